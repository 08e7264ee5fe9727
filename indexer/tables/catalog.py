"""Tables of Spark's catalog: their formats and properties, their columns in the types of sources and keys, and the
places of their partitions. The only module that reads the catalog: through the session's JVM, with one call for all
partitions; on Spark Connect by SQL, with one statement for each partition. The answers are JSON."""

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from gnomon.base.errors import Action
from gnomon.btree.key_types import is_key_type
from gnomon.indexer.spark import VARIANTS, arrow_of, context_of, quoted
from gnomon.jobs.files import CatalogTable
from gnomon.jobs.load import NoType
from gnomon.shadow.errors import KeyTypeError, ShadowError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import split, storage_at, words_of
from gnomon.shadow.tables import (
    TABLE_PREFIX,
    LakeSource,
    Table,
    lake_source,
    partition_folders,
    partition_values,
    stored_partition,
)
from gnomon.sources import OptionError
from gnomon.sources.types import to_ddl

PROVIDERS = ("parquet", "orc", "avro")  # of datasource tables
HIVE = "hive"
SEQUENCE_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
HIVE_FORMATS = {  # serde and input format
    ("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", "MapredParquetInputFormat"): "parquet",
    ("parquet.hive.serde.ParquetHiveSerDe", "DeprecatedParquetInputFormat"): "parquet",
    ("org.apache.hadoop.hive.ql.io.orc.OrcSerde", "OrcInputFormat"): "orc",
    ("org.apache.hadoop.hive.serde2.avro.AvroSerDe", "AvroContainerInputFormat"): "avro",
    (SEQUENCE_SERDE, "SequenceFileInputFormat"): "sequence",
}
# Settings of a table with which engines read other files or other values than its folders hold.
REFUSED = {
    "transactional": "its files hold changes of rows (ACID)",
    "recursivefilelookup": "it reads folders below those of its partitions",
    "pathglobfilter": "it reads some files of its folders only",
    "modifiedbefore": "it reads some files of its folders only",
    "modifiedafter": "it reads some files of its folders only",
    "parquet.column.index.access": "its columns are found by place",
    "orc.force.positional.evolution": "its columns are found by place",
    "serialization.last.column.takes.rest": "its last column takes the rest of a value",
    "hive.serialization.extend.nesting.levels": "its separators are other ones",
    "hive.serialization.extend.additional.nesting.levels": "its separators are other ones",
    "serialization.encoding": "its text is not UTF-8",
    "timestamp.formats": "its timestamps are in a form of their own",
}
OFF = ("false", "", "utf-8", "utf8")
SEPARATORS = {  # option of `sequence`: its properties, of which the first present one counts, and Hive's default
    "delimiter": (("field.delim", "serialization.format"), 1),
    "item_delimiter": (("colelction.delim",), 2),  # misspelled like this up to Hive 2.3, and in Spark
    "map_delimiter": (("mapkey.delim",), 3),
}
LATER_NAME = "collection.delim"  # its name since Hive 3
ESCAPE = "escape.delim"
NULL_FORMAT = "serialization.null.format"


def format_of_table(source: str, table: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The format of a table's files, and its options. UsageError for a table whose live rows differ from the rows of
    its files."""
    provider, storage = table["provider"], table["storage"]
    properties = {**table["properties"], **(storage["properties"] or {})}
    format_name = _hive_format(storage) if provider == HIVE else provider if provider in PROVIDERS else None
    if format_name is None:
        kind = (
            f"Hive serde {storage['serde']} over {storage['inputFormat']}" if provider == HIVE else f"format {provider}"
        )
        raise UsageError(
            f"a table of {kind} is not read; expected one of Parquet, ORC, Avro, or of SequenceFiles with "
            "Hive's LazySimpleSerDe",
            source,
        )
    for name, value in properties.items():
        if name.lower() in REFUSED and str(value).lower() not in OFF:
            raise UsageError(
                f"{REFUSED[name.lower()]} ({name}={value}), which is not read; copy it to a plain table", source
            )
    if format_name == "avro":
        _check_defaults(source, properties)
    if format_name == "orc":
        return format_name, {"timestamp_unit": "us"}
    if format_name != "sequence":
        return format_name, {}
    options = _sequence_options(properties)
    later = properties.get(LATER_NAME)
    if later and _separator(later) != options.get("item_delimiter", chr(SEPARATORS["item_delimiter"][1])):
        raise UsageError(
            f"{LATER_NAME}={later}, which Hive uses since version 3 and Spark ignores: the separator of its files "
            "is unknown; set colelction.delim to it",
            source,
        )
    return format_name, options


def is_like_table(table: Mapping[str, Any], partition: Mapping[str, Any]) -> bool:
    """Whether a partition's files are read like the table's. Always true for a datasource table, whatever Hive's
    metadata has."""
    if table["provider"] != HIVE:
        return True
    storage = table["storage"]
    ours, theirs = _hive_format(storage), _hive_format(partition)
    if ours == "sequence" == theirs:
        return _sequence_options(storage["properties"]) == _sequence_options(partition["properties"])
    return ours == theirs


def _hive_format(storage: Mapping[str, Any]) -> str | None:
    return HIVE_FORMATS.get((storage["serde"], str(storage["inputFormat"]).rpartition(".")[2]))


def _sequence_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Hive's properties as options of the format `sequence`."""
    options = {"value_format": "delimited"}
    for option, (names, default) in SEPARATORS.items():
        given = next((properties[name] for name in names if properties.get(name)), "")
        if given and _separator(given) != chr(default):
            options[option] = _separator(given)
    if properties.get(ESCAPE):
        options["escape"] = _separator(properties[ESCAPE])
    if NULL_FORMAT in properties:
        options["null"] = properties[NULL_FORMAT]
    return options


def _separator(text: str) -> str:
    """One byte: its number, or else the first character, as Hive reads it."""
    try:
        number = int(text)
    except ValueError:
        return text[0]
    return chr(number) if 0 <= number < 128 else text[0]


def _check_defaults(source: str, properties: Mapping[str, str]) -> None:
    """Raise UsageError for a schema in which a column that a file lacks is not null."""
    literal, url = properties.get("avro.schema.literal"), properties.get("avro.schema.url")
    if url == REDACTED and not literal:
        raise UsageError(
            "the server hides its property avro.schema.url; set spark.sql.redaction.options.regex of the session to "
            "a pattern without url, as (?i)password",
            source,
        )
    try:
        if not literal and url and url != "none":
            above, name = split(storage_at(url).root)
            literal = storage_at(above).read(name).decode()
        schema = json.loads(literal) if literal and literal != "none" else None
    except (OSError, ValueError, ShadowError) as error:
        raise UsageError(f"its Avro schema cannot be read ({error})", source) from None
    for name, default in _defaults(schema):
        if default is not None:
            raise UsageError(
                f"its Avro schema has {json.dumps(default)} for {name} where a file lacks it, which is not "
                "read; expected null",
                source,
            )


def _defaults(schema: Any) -> list[tuple[str, Any]]:
    """The fields of a schema that have a default, with the default."""
    if isinstance(schema, list):
        return [pair for one in schema for pair in _defaults(one)]
    if not isinstance(schema, dict):
        return []
    found = [(field["name"], field["default"]) for field in schema.get("fields", []) if "default" in field]
    inner = [field.get("type") for field in schema.get("fields", [])]
    return found + _defaults([*inner, *(schema[part] for part in ("items", "values", "type") if part in schema)])


UNREAD = (*VARIANTS, DayTimeIntervalType, YearMonthIntervalType)


def columns_of_table(source: str, schema: StructType, partitions: Sequence[str], format_name: str) -> str:
    """The columns of a table's files, as DDL. UsageError for a type that is not supported in files. ORC's timestamps
    have no zone: they are local times of their writer."""
    fields = []
    for field in schema:
        if field.name in partitions:
            continue
        try:
            fields.append(pa.field(field.name, _arrow(field.dataType)))
        except NoType:
            raise _unread(source, field) from None
    if format_name == "orc":
        fields = [field.with_type(_without_zone(field.type)) for field in fields]
    try:
        return to_ddl(pa.schema(fields))
    except OptionError as error:
        raise UsageError(str(error), source) from None


def partition_types(source: str, schema: StructType, partitions: Sequence[str]) -> dict[str, str]:
    """The partition columns, in order, with their types."""
    types = {}
    for name in partitions:
        kind = schema[name].dataType.simpleString()
        if not is_key_type(kind) or kind == "binary":
            raise UsageError(
                f"a partition column of type {kind} ({name}) is not read; expected text, a number ...", source
            )
        types[name] = kind
    return types


def _unread(source: str, field: StructField) -> UsageError:
    return UsageError(f"column {field.name} of type {field.dataType.simpleString()} is not read from files", source)


def _arrow(kind: DataType) -> pa.DataType:
    if isinstance(kind, UNREAD):
        raise NoType
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(_arrow(kind.keyType), _arrow(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, _arrow(field.dataType)) for field in kind])
    return arrow_of(kind)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


NOT_THERE = ("[TABLE_OR_VIEW_NOT_FOUND", "[SCHEMA_NOT_FOUND")  # the beginnings of errors of Spark
SESSION_CATALOG = "spark_catalog"
REDACTED = "*********(redacted)"  # by Spark, of what its options look like
SIDE_BY_SIDE = 8  # statements on Spark Connect
LAKE_PROVIDERS = ("delta", "iceberg", "hudi")


def read_table(spark: SparkSession, source: str) -> CatalogTable | LakeSource:
    """The table `table:db.name` of the catalog, which may be a Delta or Iceberg table. SourceNotFound where there is
    none; UsageError, with the reason, for one that cannot be indexed."""
    asked = source.removeprefix(TABLE_PREFIX)
    found = _found(spark, asked)
    table, storage = found.table, found.table["storage"]
    if table["type"] == "VIEW":
        raise UsageError("a view has no files; name the table that it is of", source)
    if table["provider"] in LAKE_PROVIDERS or table["properties"].get("table_type", "").upper() == "ICEBERG":
        return _lake_table(source, table)
    if not storage["locationUri"]:
        raise UsageError("the catalog names no folder of the table; expected one whose files lie in one", source)
    format_name, options = format_of_table(source, table)
    schema = StructType.fromJson(table["schema"])
    partitions = table["partitions"]
    if partitions and not table["tracked"]:
        raise UsageError(f"the catalog does not hold its partitions; run MSCK REPAIR TABLE {found.name} first", source)
    location = _location(storage["locationUri"])
    types = partition_types(source, schema, partitions)
    places = {"": location}
    if partitions:
        places = _places(source, location, types, found.partitions(), table)
    columns = columns_of_table(source, schema, partitions, format_name)
    return CatalogTable(found.name, location, format_name, options, columns, types, places, table["properties"])


def _lake_table(source: str, table: Mapping[str, Any]) -> LakeSource:
    """A table whose format keeps its own metadata. The catalog has its location: the folder of a Delta table; the
    metadata file, or the folder, of an Iceberg table."""
    kind = "delta" if table["provider"] == "delta" else "hudi" if table["provider"] == "hudi" else "iceberg"
    uri = table["properties"].get("metadata_location") or table["storage"]["locationUri"]
    if not uri:
        raise UsageError(f"the catalog names no place of the {kind} table", source)
    return lake_source(f"{kind}:{_location(uri)}")


def folders_table(spark: SparkSession, source: str, root: str) -> Table:
    """The table `table:db.name` of the catalog, whose files lie in folders of its partitions. UsageError for a lake
    table."""
    table = read_table(spark, source)
    if isinstance(table, LakeSource):
        raise UsageError(f"a lake table has no folders of partitions ({table.name})", source)
    return table.table_at(root)


def add_partitions(spark: SparkSession, source: str, root: str, folders: Collection[str]) -> None:
    """Register folders below the root of `table:db.name` that are not folders of its partitions yet. UsageError where
    the partition exists in another folder."""
    name = ".".join(map(quoted, source.removeprefix(TABLE_PREFIX).split(".")))
    for folder in sorted(set(folders) - _folders(spark, source, root)):
        try:
            spec = _partition_spec(folder)
            spark.sql(f"ALTER TABLE {name} ADD PARTITION ({spec}) LOCATION {_literal(f'{root}/{folder}')}")
        except AnalysisException as error:
            if folder not in _folders(spark, source, root):  # otherwise another program registered it
                reason = words_of(error)
                raise UsageError(f"{root}/{folder} cannot be registered as a partition: {reason}", source) from None


def default_location(spark: SparkSession, table: str) -> str:
    """The default folder of a table in the catalog, which has a database's folder as a URI."""
    database, _, name = table.rpartition(".")
    if database and not spark.catalog.databaseExists(database):
        raise UsageError(f"there is no database {database}; CREATE DATABASE makes one", table)
    described = spark.sql(f"DESCRIBE DATABASE {database or spark.catalog.currentDatabase()}").collect()
    [folder] = [row[1] for row in described if row[0] == "Location"]
    return f"{unquote(folder).rstrip('/')}/{name.strip('`').lower()}"


def _folders(spark: SparkSession, source: str, root: str) -> set[str]:
    """The folders of a table's partitions, relative to a root."""
    return set(folders_table(spark, source, root).folders.values())


def _partition_spec(folder: str) -> str:
    """The columns and values of a partition in SQL, from the names of its folders."""
    values = partition_values(folder).items()
    return ", ".join(f"{quoted(column)}={'null' if text is None else _literal(text)}" for column, text in values)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _places(
    source: str, root: str, types: Mapping[str, str], partitions: list[dict[str, Any]], table: Mapping[str, Any]
) -> dict[str, str]:
    """The place of each partition, by its folder names. UsageError for partitions that share a folder, have another
    format than the table, or have a value that is not of its column's type."""
    places: dict[str, str] = {}
    owners: dict[str, str] = {}
    for one in partitions:
        name = partition_folders({column: one["spec"][column] for column in types})
        if not is_like_table(table, one["storage"]):
            raise UsageError(f"partition {name} is of another format than the table; expected one format", source)
        try:
            stored_partition(name, types)
        except KeyTypeError as error:
            raise UsageError(
                f"partition {name}: drop or rename it",
                source,
                column=error.column,
                expected=f"{error.expected}{error.hint}",
                found=error.found,
            ) from None
        uri = one["storage"]["locationUri"]
        place = _location(uri) if uri else f"{root}/{name}"
        if place in owners:
            raise UsageError(
                f"partitions {owners[place]} and {name} lie in one folder, {place}: its rows would be of "
                "both; give each its own",
                source,
            )
        places[name], owners[place] = place, name
    return places


def _location(uri: str) -> str:
    """The root of a storage from a URI of the catalog, in which Java has escaped characters."""
    return storage_at(unquote(uri)).root


class _Found(Protocol):
    """A table in the session catalog."""

    @property
    def name(self) -> str:
        """Database and table, in the catalog's spelling."""
        ...

    @property
    def table(self) -> dict[str, Any]:
        """The catalog's properties of the table."""
        ...

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions: `spec`, the texts of the values by column, and `storage`."""
        ...


def _found(spark: SparkSession, asked: str) -> _Found:
    """A table by its name. UsageError for a name of another form or catalog, SourceNotFound where there is none."""
    source = f"{TABLE_PREFIX}{asked}"
    try:
        return _InJvm(spark, asked) if context_of(spark) is not None else _InSql(spark, asked)
    except ParseException:
        raise UsageError("expected table:name or table:database.name", source) from None
    except AnalysisException as error:
        reason = words_of(error).partition(". ")[0]
        if not str(error).startswith(NOT_THERE):
            what = f"the catalog of this Spark session cannot be read ({reason})"
            raise StorageError(what, source, action=Action.CHECK_SESSION_CATALOG) from None
        what = f"not in the catalog of this Spark session ({reason})"
        raise SourceNotFound(what, source, action=Action.NAME_TABLE) from None


def _other_catalog(asked: str) -> UsageError:
    return UsageError(f"tables of other catalogs than {SESSION_CATALOG} are not read", f"{TABLE_PREFIX}{asked}")


class _InSql:
    """A table of a session of Spark Connect, by `DESCRIBE ... AS JSON`."""

    def __init__(self, spark: SparkSession, asked: str) -> None:
        self._spark = spark
        try:
            found = spark.catalog.getTable(asked)
        except AnalysisException as error:
            if str(error).startswith("[REQUIRES_SINGLE_PART_NAMESPACE"):
                raise _other_catalog(asked) from None
            raise
        if found.isTemporary:
            raise UsageError("a temporary view has no files; name a table", f"{TABLE_PREFIX}{asked}")
        if found.catalog != SESSION_CATALOG:
            raise _other_catalog(asked)
        parts = [SESSION_CATALOG, *(found.namespace or ()), found.name]
        self.name = ".".join(parts[1:])
        self._quoted = ".".join(map(quoted, parts))
        self._told = self._described("")

    def _described(self, of: str) -> dict[str, Any]:
        [row] = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._quoted} {of} AS JSON").collect()
        told: dict[str, Any] = json.loads(row[0])
        return told

    @property
    def table(self) -> dict[str, Any]:
        told = self._told
        is_view = told["type"] == "VIEW"
        return {
            "type": told["type"],
            "provider": told.get("provider", HIVE).lower(),
            "tracked": told.get("partition_provider") == "Catalog",
            "storage": _storage_of(told),
            "properties": told.get("table_properties", {}),
            "partitions": told.get("partition_columns", []),
            "schema": None if is_view else json.loads(self._spark.table(self._quoted).schema.json()),
        }

    def partitions(self) -> list[dict[str, Any]]:
        names = [row[0] for row in self._spark.sql(f"SHOW PARTITIONS {self._quoted}").collect()]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            told = pool.map(self._described, [f"PARTITION ({_partition_spec(name)})" for name in names])
            return [{"spec": one["partition_values"], "storage": _storage_of(one)} for one in told]


def _storage_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """The storage of a table or partition in the members that the catalog's own JSON has."""
    place = told.get("location")
    return {
        "locationUri": quote(place, safe="/:") if place else None,
        "serde": told.get("serde_library"),
        "inputFormat": told.get("input_format"),
        "properties": told.get("storage_properties"),
    }


class _InJvm:
    """A table of a session of this process."""

    def __init__(self, spark: SparkSession, asked: str) -> None:
        self._jvm: Any = spark._jvm
        state: Any = spark._jsparkSession.sessionState()
        self._catalog = state.catalog()
        parts = json.loads(self._json(state.sqlParser().parseMultipartIdentifier(asked)))
        parts = parts[1:] if len(parts) > 2 and parts[0] == SESSION_CATALOG else parts
        if len(parts) > 2:
            raise _other_catalog(asked)
        parts = parts if len(parts) > 1 else [self._catalog.getCurrentDatabase(), *parts]
        self._name = state.sqlParser().parseTableIdentifier(".".join("`" + p.replace("`", "``") + "`" for p in parts))
        self._table = self._catalog.getTableMetadata(self._name)

    @property
    def name(self) -> str:
        name = self._table.identifier()
        return f"{name.database().get()}.{name.table()}"

    @property
    def table(self) -> dict[str, Any]:
        table = self._table
        provider = table.provider()
        return {
            "type": table.tableType().name(),
            "provider": provider.get().lower() if provider.isDefined() else "hive",
            "tracked": table.tracksPartitionsInCatalog(),
            "storage": json.loads(self._json(table.storage())),
            "properties": json.loads(self._json(table.properties())),
            "partitions": json.loads(self._json(table.partitionColumnNames())),
            "schema": json.loads(table.schema().json()),
        }

    def partitions(self) -> list[dict[str, Any]]:
        none = getattr(self._jvm.scala, "None$").__getattr__("MODULE$")
        found: list[dict[str, Any]] = json.loads(self._json(self._catalog.listPartitions(self._name, none)))
        return found

    def _json(self, value: Any) -> str:
        """An object of Scala's as JSON."""
        jackson = self._jvm.com.fasterxml.jackson
        mapper = jackson.databind.ObjectMapper()
        mapper.registerModule(getattr(getattr(jackson.module.scala, "DefaultScalaModule$"), "MODULE$"))
        text: str = mapper.writeValueAsString(value)
        return text

"""The index folder as a table of the Spark catalog: for SQL, for Spark's own bucketed joins, and for Hive.

A declared table shows every file in the folder. It equals the newest snapshot after a first build, and after `compact`
and `vacuum`; `gnomon inspect` shows whether it does. The table is external: a drop of it does not touch the index.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from gnomon.btree.key_types import Stored
from gnomon.btree.schema import Column, EntrySchema
from gnomon.indexer.spark import AVRO, AVRO_PACKAGE, has_avro
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import IndexSpec, open_view
from gnomon.shadow.storage import Place, is_local, join, storage_at
from gnomon.shadow.tables import TEXT, as_partition_value, partition_values

BUCKETED, HIVE = FORMS = ("bucketed", "hive")
HIVE_AVRO = (
    "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.avro.AvroSerDe' "
    "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat' "
    "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.avro.AvroContainerOutputFormat'"
)
PROPERTIES = "gnomon."  # prefix of Gnomon's table properties
INDEX, FORM = f"{PROPERTIES}index", f"{PROPERTIES}form"
DECLARED = f"{PROPERTIES}declared"  # a digest of the declaration
# A small integer is Avro's int, and Spark's reader accepts no other type for it (their hashes are the same).
_AS_INT = {"tinyint": "int", "smallint": "int"}
# In the text of a schema `timestamp` means what spark.sql.timestampType says.
_UNAMBIGUOUS = {"timestamp": "timestamp_ltz"}
# Hive 2.3 reads microseconds as milliseconds, and has no timestamp without a zone: both are numbers there.
_IN_HIVE = {**_AS_INT, "timestamp": "bigint", "timestamp_ntz": "bigint"}
PARTITIONS_A_STATEMENT = 500


def declare_table(
    spark: SparkSession,
    index: Place,
    table: str,
    form: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Declare the index as `table`, or update its table: columns, buckets, partitions.

    `bucketed` is Spark's own Avro table, whose buckets Spark prunes (by a key of one column) and joins without a
    shuffle; it must be declared again after `gnomon rebucket`, which changes their number. `hive` is a Hive Avro table,
    where timestamps are numbers of microseconds. Without `form`, an existing table keeps its form, and `form_of`
    chooses the form of a new table. UsageError where the table of this name belongs to no index or to another one."""
    there = table_properties(spark, table)
    form = form_of(spark, form or (there or {}).get(FORM))
    storage = storage_at(index)
    view = open_view(storage)
    spec, root = view.spec, storage.root
    if there is not None and there.get(INDEX) != root:
        raise UsageError(f"there is a table of this name, and it is not of the index {root}; name another", table)
    wanted = declaration(spec, root, table, form)
    theirs = {name: value for name, value in (there or {}).items() if name.startswith(PROPERTIES)}
    ours = {**theirs, **(properties or {}), INDEX: root, FORM: form, DECLARED: wanted.digest}
    if there is None or theirs != ours:
        if there is not None:
            spark.sql(f"DROP TABLE {table}")
        spark.sql(wanted.sql(ours))
    if spec.partitions and not spec.flat:
        register_partitions(spark, table, spec, root, view.partitions)
    spark.catalog.refreshTable(table)


def form_of(spark: SparkSession, form: str | None) -> str:
    """The form of a new table: the given one, or bucketed. A session of Spark 3.5 without spark-avro has only the form
    hive. UsageError for an unknown form, or for one that this session does not support."""
    if form not in (*FORMS, None):
        raise UsageError(f"form: expected {' or '.join(FORMS)}, found {form!r}")
    has_hive = spark.conf.get("spark.sql.catalogImplementation") == HIVE
    if form == HIVE and not has_hive:
        raise UsageError(
            "form=hive: the session has no Hive support; build it with enableHiveSupport(), or use another"
        )
    if form == HIVE or has_avro(spark):
        return form or BUCKETED
    if form is None and has_hive:
        return HIVE
    cure = "use form='hive'" if has_hive else "build the session with enableHiveSupport()"
    raise UsageError(
        f"form=bucketed: the session has no reader of Avro; start it with --packages {AVRO_PACKAGE}, or {cure}"
    )


@dataclass(frozen=True)
class Declaration:
    """A CREATE TABLE statement, and its table properties."""

    create: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql({}).encode()).hexdigest()[:32]

    def sql(self, properties: Mapping[str, str]) -> str:
        """The statement, with further table properties."""
        every = sorted({**self.properties, **properties}.items())
        pairs = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in every)
        return f"{self.create} TBLPROPERTIES ({pairs})" if pairs else self.create


def declaration(spec: IndexSpec, root: str, table: str, form: str = BUCKETED) -> Declaration:
    """The declaration of an index. It does not declare the files as sorted, since entries have the order of a tree's
    levels."""
    schema = spec.entry_schema
    of_folders = [] if spec.flat else [(name, spec.partition_types.get(name, TEXT)) for name in spec.partitions]
    names = {} if form == HIVE else _UNAMBIGUOUS
    folders = [f"{_name(name)} {names.get(kind, kind)}" for name, kind in of_folders]
    location = f"LOCATION {_text(spark_location(root))}"
    if form == HIVE:
        columns = ", ".join(f"{_name(one.name)} {_IN_HIVE.get(one.type, one.type)}" for one in schema.columns)
        partitioned = f"PARTITIONED BY ({', '.join(folders)}) " if folders else ""
        create = f"CREATE EXTERNAL TABLE {table} ({columns}) {partitioned}{HIVE_AVRO} {location}"
        return Declaration(create, {"avro.schema.literal": json.dumps(_hive_schema(schema))})
    columns = ", ".join(
        [f"{_name(one.name)} {({**_AS_INT, **_UNAMBIGUOUS}).get(one.type, one.type)}" for one in schema.columns]
        + folders
    )
    partitioned_by = ", ".join(_name(name) for name in spec.partitions)
    partitioned = f"PARTITIONED BY ({partitioned_by}) " if folders else ""
    keys = ", ".join(_name(one.name) for one in schema.keys)
    clustered = f"CLUSTERED BY ({keys}) INTO {spec.buckets} BUCKETS " if spec.cuts is None else ""
    return Declaration(f"CREATE TABLE {table} ({columns}) USING {AVRO} {partitioned}{clustered}{location}")


def _hive_schema(schema: EntrySchema) -> dict[str, object]:
    """The schema with which Hive reads the files: without the link, and with numbers for types that Hive misreads."""
    columns = [Column(one.name, _IN_HIVE.get(one.type, one.type), one.nullable) for one in schema.columns]
    content = EntrySchema(tuple(columns[: len(schema.keys)]), tuple(columns[len(schema.keys) :])).to_avro()
    fields = content["fields"]
    assert isinstance(fields, list)
    return {**content, "fields": fields[:-1]}


def spark_location(root: str) -> str:
    """A storage's root as a location for Spark, independent of its default file system."""
    return f"file:{root}" if is_local(root) else root


def table_properties(spark: SparkSession, table: str) -> dict[str, str] | None:
    """The properties of a table; None if there is no such table."""
    if not spark.catalog.tableExists(table):
        return None
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def register_partitions(spark: SparkSession, table: str, spec: IndexSpec, root: str, partitions: Sequence[str]) -> None:
    """Set the table's partitions to these folders. No file changes."""
    listed = [row["partition"] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()]
    there, wanted = ({_stored(spec, folder): folder for folder in folders} for folders in (listed, partitions))
    gone = [_partition_spec(spec, folder) for values, folder in there.items() if values not in wanted]
    new = [
        f"{_partition_spec(spec, folder)} LOCATION {_text(spark_location(join(root, folder)))}"
        for values, folder in wanted.items()
        if values not in there
    ]
    for some in _batches(gone):
        spark.sql(f"ALTER TABLE {table} DROP IF EXISTS {', '.join(some)}")
    for some in _batches(new):
        spark.sql(f"ALTER TABLE {table} ADD IF NOT EXISTS {' '.join(some)}")


def _stored(spec: IndexSpec, folder: str) -> tuple[Stored, ...]:
    """A partition's values in the columns' types, since engines write values and the case of names differently."""
    texts = zip(spec.partitions, partition_values(folder).values(), strict=True)
    return tuple(as_partition_value(text, spec.partition_types.get(name, TEXT), name) for name, text in texts)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(texts), PARTITIONS_A_STATEMENT):
        yield texts[begin : begin + PARTITIONS_A_STATEMENT]


def _partition_spec(spec: IndexSpec, folder: str) -> str:
    pairs = zip(spec.partitions, partition_values(folder).values(), strict=True)
    return f"PARTITION ({', '.join(f'{_name(name)} = {_text(value)}' for name, value in pairs)})"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str | None) -> str:
    """An SQL literal."""
    if value is None:
        return "null"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

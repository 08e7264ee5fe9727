"""The format and the options of a catalog table's files, from its provider or its Hive serde."""

import json
from collections.abc import Mapping
from typing import Any

from gnomon.shadow.errors import ShadowError, UsageError
from gnomon.shadow.storage import split, storage_at

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

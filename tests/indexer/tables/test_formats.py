"""The format of a catalog table's files, from its properties."""

from typing import Any

import pytest

from gnomon.indexer.tables.catalog import REDACTED, format_of_table, is_like_table
from gnomon.shadow import UsageError

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
TEXT = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def hive(serde: str, input_format: str, **properties: str) -> dict[str, Any]:
    storage = {"serde": serde, "inputFormat": f"org.example.{input_format}", "properties": properties}
    return {"provider": "hive", "storage": storage, "properties": {}}


def datasource(provider: str, **options: str) -> dict[str, Any]:
    storage = {"serde": None, "inputFormat": None, "properties": options}
    return {"provider": provider, "storage": storage, "properties": {}}


@pytest.mark.parametrize("provider", ["parquet", "avro"])
def test_datasource_tables_are_of_their_provider(provider: str) -> None:
    assert format_of_table("table:t", datasource(provider)) == (provider, {})
    assert is_like_table(datasource(provider), {"serde": "any", "inputFormat": "x.any"})


def test_a_schema_that_the_server_hides_is_refused_for_avro_alone() -> None:
    hidden = {"avro.schema.url": REDACTED}
    with pytest.raises(UsageError, match=r"the server hides its property avro\.schema\.url; set spark\.sql\.redaction"):
        format_of_table("table:t", datasource("avro", **hidden))
    assert format_of_table("table:t", datasource("parquet", **hidden)) == ("parquet", {})


@pytest.mark.parametrize(
    "table",
    [
        datasource("delta"),
        datasource("iceberg"),
        datasource("org.apache.hudi"),
        hive(PARQUET, "HoodieParquetInputFormat"),
        hive(PARQUET, "SymlinkTextInputFormat"),
        hive(TEXT, "TextInputFormat"),
        hive("org.apache.hadoop.hive.serde2.lazybinary.LazyBinarySerDe", "SequenceFileInputFormat"),
    ],
)
def test_tables_whose_rows_are_not_those_of_their_files_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^table:db.t: a table of .* is not read; expected one of Parquet"):
        format_of_table("table:db.t", table)


@pytest.mark.parametrize(
    ("name", "value"),
    [("transactional", "TRUE"), ("parquet.column.index.access", "true"), ("timestamp.formats", "yyyy")],
)
def test_properties_by_which_engines_read_something_else_are_refused(name: str, value: str) -> None:
    table = hive(PARQUET, "MapredParquetInputFormat")
    with pytest.raises(UsageError, match=rf"\({name}={value}\), which is not read"):
        format_of_table("table:t", {**table, "properties": {name: value}})
    assert format_of_table("table:t", {**table, "properties": {"transactional": "false"}}) == ("parquet", {})
    with pytest.raises(UsageError, match="it reads some files of its folders only"):
        format_of_table("table:t", datasource("parquet", pathGlobFilter="*.x"))


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({}, {}),
        ({"serialization.format": "1"}, {}),
        ({"field.delim": "\t", "serialization.format": "\t"}, {"delimiter": "\t"}),
        ({"field.delim": "9"}, {"delimiter": "\t"}),
        ({"field.delim": "||"}, {"delimiter": "|"}),
        ({"colelction.delim": ",", "mapkey.delim": ":"}, {"item_delimiter": ",", "map_delimiter": ":"}),
        ({"serialization.null.format": "", "escape.delim": "\\"}, {"null": "", "escape": "\\"}),
    ],
)
def test_hives_delimiters_are_options_of_sequence_files(properties: dict[str, str], options: dict[str, str]) -> None:
    table = hive(TEXT, "SequenceFileInputFormat", **properties)
    assert format_of_table("table:t", table) == ("sequence", {"value_format": "delimited", **options})
    assert is_like_table(table, table["storage"])
    unclear = hive(TEXT, "SequenceFileInputFormat", **{"collection.delim": ";", **properties})
    with pytest.raises(UsageError, match=r"collection.delim=;, which Hive uses since version 3 and Spark ignores"):
        format_of_table("table:t", unclear)
    assert not is_like_table(table, hive(TEXT, "SequenceFileInputFormat", **{"field.delim": "#"})["storage"])
    assert not is_like_table(table, hive(PARQUET, "MapredParquetInputFormat")["storage"])

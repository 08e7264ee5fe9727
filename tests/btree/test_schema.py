"""The record schema of an entry: made for our files, and read from all files."""

import json
from typing import Any

import pytest

from gnomon.btree import BTreeError, Column, EntrySchema
from gnomon.btree.schema import file_schema
from tests.btree.files import URL_SCHEMA

TYPES = ["string", "boolean", "int", "bigint", "float", "double", "binary"]
TYPES += ["date", "timestamp", "timestamp_ntz", "decimal(9,2)", "decimal(38,10)"]


def _read(fields: list[Any]) -> Any:
    return file_schema({"type": "record", "name": "r", "fields": fields}, ["k"], ["v"])


LINK = {"name": "metadata", "type": ["null", "long"]}
KEY, VALUE = {"name": "k", "type": ["null", "string"]}, {"name": "v", "type": "long"}


def test_a_schema_reads_back() -> None:
    columns = [Column(f"c{i}_{null}", kind, null) for i, kind in enumerate(TYPES) for null in (True, False)]
    schema = EntrySchema(tuple(columns[:12]), tuple(columns[12:]))
    names = [[c.name for c in part] for part in (schema.keys, schema.values)]
    assert file_schema(json.loads(schema.to_json()), *names).entry == schema


def test_tinyint_and_smallint_are_avros_int() -> None:
    schema = EntrySchema((Column("k", "tinyint"),), (Column("v", "smallint"),))
    read = file_schema(schema.to_avro(), ["k"], ["v"]).entry
    assert [column.type for column in read.columns] == ["int", "int"]


def test_keys_come_in_the_order_of_the_header_text() -> None:
    avro = URL_SCHEMA.to_avro()
    assert [c.name for c in file_schema(avro, ["row", "url"], ["file"]).entry.keys] == ["row", "url"]


def test_null_sorts_by_its_branch() -> None:
    assert _read([KEY, VALUE, LINK]).nulls_last == (False,)
    assert _read([{"name": "k", "type": ["string", "null"]}, VALUE, LINK]).nulls_last == (True,)
    assert _read([{"name": "k", "type": "string"}, VALUE, LINK]).nulls_last == (False,)


def test_java_strings_and_unknown_logical_types_are_plain() -> None:
    java = {"name": "k", "type": {"type": "string", "avro.java.string": "String"}}
    odd = {"name": "v", "type": {"type": "long", "logicalType": "odd"}}
    assert [c.type for c in _read([java, odd, LINK]).entry.columns] == ["string", "bigint"]


@pytest.mark.parametrize(
    "fields",
    [
        [KEY, VALUE],
        [KEY, VALUE, {"name": "metadata", "type": "long"}],
        [KEY, VALUE, LINK, LINK],
        [KEY, LINK],
        [KEY, VALUE, VALUE, LINK],
        [KEY, 5, LINK],
        [KEY, {"name": "v"}, LINK],
        [KEY, {"name": "v", "type": {"type": "array", "items": "int"}}, LINK],
        [KEY, {"name": "v", "type": ["null", "int", "string"]}, LINK],
        [KEY, {"name": "v", "type": ["null", "null"]}, LINK],
        [KEY, {"name": "v", "type": {"type": "bytes", "logicalType": "decimal"}}, LINK],
        [KEY, {"name": "v", "type": {"type": ["bytes"], "logicalType": "decimal"}}, LINK],
        [KEY, {"name": "a b", "type": "int"}, VALUE, LINK],
        None,
    ],
)
def test_a_schema_of_no_index_file_is_refused(fields: Any) -> None:
    with pytest.raises(BTreeError):
        _read(fields)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([], ["v"]),
        (["k"], []),
        (["k"], ["k"]),
        (["k"], ["metadata"]),
        (["user id"], ["v"]),
        (["k"], ["a.b"]),
        (["é"], ["v"]),
    ],
)
def test_columns_have_avro_names_of_their_own(keys: list[str], values: list[str]) -> None:
    with pytest.raises(BTreeError):
        EntrySchema(tuple(Column(k, "int") for k in keys), tuple(Column(v, "int") for v in values))


def test_a_column_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(BTreeError, match="array<int>"):
        EntrySchema((Column("k", "array<int>"),), (Column("v", "int"),))

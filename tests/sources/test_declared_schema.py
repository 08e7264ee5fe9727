"""Files read with the columns that a table declares."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from gnomon.sources import DECLARED, UnsupportedFormat, open_mapped, open_source
from gnomon.sources.declared_schema import DeclaredMappedFile
from gnomon.sources.types import COMMENT, parse_ddl, to_ddl
from tests.sources.readers import BytesReader


def parquet(table: pa.Table) -> BytesReader:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return BytesReader(out.getvalue().to_pybytes())


def test_scan_and_fetch_give_the_tables_names_order_and_types() -> None:
    reader = parquet(pa.table({"N": pa.array([1, 2], pa.int32()), "hidden": [0, 0], "Url": ["a", "b"]}))
    options = {DECLARED: "url string, n bigint, later date"}
    for file in (open_source(reader, "parquet", options), open_mapped(reader, "parquet", options)):
        assert [(field.name, field.type) for field in file.schema] == [("url", pa.string()), ("n", pa.int64())]
        assert file.digest == open_source(reader, "parquet").digest
        assert file.fetch(reader, [(1, 0), (0, 0)], ["n", "url"]).to_pydict() == {"n": [2, 1], "url": ["b", "a"]}
        [batch] = file.scan(reader, ["url"])
        assert batch.schema.names == ["url", "data_offset", "data_sub_offset", "data_size"]
        assert batch.column(0).to_pylist() == ["a", "b"]
        assert file.scan_bytes(["url", "later"]) == open_source(reader, "parquet").scan_bytes(["Url"])


def test_a_file_with_pages_can_keep_them_whatever_is_declared() -> None:
    reader = parquet(pa.table({"url": ["a", "b"]}))
    assert isinstance(open_source(reader, "parquet", {DECLARED: "url string"}), DeclaredMappedFile)


def test_columns_without_names_are_found_by_place() -> None:
    out = pa.BufferOutputStream()
    pa.orc.write_table(pa.table({"_col0": ["a"], "_col1": [7]}), out)
    reader = BytesReader(out.getvalue().to_pybytes())
    file = open_source(reader, "orc", {DECLARED: "url string, n bigint, later string"})
    assert file.fetch(reader, [(0, 0)], ["n", "url"]).to_pylist() == [{"n": 7, "url": "a"}]
    with pytest.raises(UnsupportedFormat, match="2 columns without names, the table declares 1"):
        open_source(reader, "orc", {DECLARED: "url string"})


def test_a_column_of_another_type_is_refused_when_it_is_read_and_others_are_not() -> None:
    reader = parquet(pa.table({"a": ["x"], "b": [1.5]}))
    file = open_source(reader, "parquet", {DECLARED: "a string, b int"})
    assert file.fetch(reader, [(0, 0)], ["a"]).to_pylist() == [{"a": "x"}]
    for read in (lambda: file.fetch(reader, [(0, 0)], ["b"]), lambda: list(file.scan(reader, ["b"]))):
        with pytest.raises(UnsupportedFormat, match="column b: the file has double, the table declares int32"):
            read()


def test_columns_that_differ_in_case_only_are_refused() -> None:
    reader = parquet(pa.table({"a": ["x"], "A": ["y"]}))
    with pytest.raises(UnsupportedFormat, match="the columns a, A differ in case only"):
        open_source(reader, "parquet", {DECLARED: "a string"})
    assert open_source(reader, "parquet", {DECLARED: "b string"}).schema.names == []


def test_a_column_with_a_default_has_it_where_the_file_lacks_it() -> None:
    """Of each type; a field of a struct too, where the struct is not null. A column of the file keeps its own nulls."""
    inner = pa.array([{"a": 1}, None], pa.struct([pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "3"})]))
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
            pa.field("inner", inner.type, metadata={"PARQUET:field_id": "2"}),
        ]
    )
    reader = parquet(pa.table([pa.array([7, None]), inner], schema=schema))
    members = [
        column("a", pa.int32(), {"id": 3, "default": 4}),
        column("b", pa.string(), {"id": 4, "default": "x"}),
        column("c", pa.int32(), {"id": 5}),
    ]
    defaults = [
        ("int", 5, 5),
        ("bigint", "00:00:01.000002", 1_000_002),  # a time
        ("boolean", False, False),
        ("double", 0.1, 0.1),
        ("decimal(9,2)", "-12.50", Decimal("-12.50")),
        ("date", "1969-12-31", dt.date(1969, 12, 31)),
        ("timestamp", "2026-01-01T00:00:00.000001+00:00", dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
        ("timestamp_ntz", "1969-12-31T23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("binary", "00ff", b"\x00\xff"),
        ("string", 'it\'s "none" \\ é', 'it\'s "none" \\ é'),
    ]
    fields = [column("id", pa.int64(), {"id": 1, "default": 9}), column("inner", pa.struct(members), {"id": 2})]
    for i, (kind, value, _) in enumerate(defaults):
        fields.append(column(f"d{i}", parse_ddl(f"a {kind}").field(0).type, {"id": 10 + i, "default": value}))
    file = open_source(reader, "parquet", {DECLARED: to_ddl(pa.schema(fields))})
    assert file.schema.names == [field.name for field in fields]
    names = ["d3", "id", "inner", *(f"d{i}" for i in range(len(defaults)) if i != 3)]
    expected = {f"d{i}": value for i, (_, _, value) in enumerate(defaults)}
    first = expected | {"id": 7, "inner": {"a": 1, "b": "x", "c": None}}
    second = expected | {"id": None, "inner": None}
    assert file.fetch(reader, [(1, 0), (0, 0)], names).to_pylist() == [second, first]
    [batch] = file.scan(reader, names)
    assert batch.select(names).to_pylist() == [first, second]
    assert file.fetch(reader, [(1, 0), (0, 0)], ["d0"]).to_pylist() == [{"d0": 5}] * 2
    assert file.scan_bytes(["d0"]) == 0


def column(name: str, kind: pa.DataType, record: dict[str, object]) -> pa.Field:
    """A column of a table, with its record."""
    return pa.field(name, kind, metadata={COMMENT: json.dumps(record)})

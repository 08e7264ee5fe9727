"""Files read with the columns that a table declares."""

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from gnomon.sources import DECLARED, UnsupportedFormat, open_mapped, open_source
from gnomon.sources.declared_schema import DeclaredMappedFile
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

"""The footer: the data read from it, and the refused footers."""

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.sources import DamagedSource, UnsupportedFormat, open_source
from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.footer import LEGACY_SLACK, Footer, legacy_slack, parse_footer
from gnomon.sources.parquet.thrift import ThriftError
from tests.sources.parquet_files import flat_table, nested_table, written
from tests.sources.readers import BytesReader

MAP = pa.map_(pa.string(), pa.int64())


def footer_bytes(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def test_row_groups_and_chunks_are_what_pyarrow_reads() -> None:
    data = written(nested_table(), write_page_index=True)
    footer = parse_footer(footer_bytes(data))
    metadata = pq.read_metadata(io.BytesIO(data))
    assert footer.rows == metadata.num_rows
    assert len(footer.row_groups) == metadata.num_row_groups
    for ordinal, group in enumerate(footer.row_groups):
        theirs = metadata.row_group(ordinal)
        assert group.rows == theirs.num_rows
        assert len(group.chunks) == theirs.num_columns
        for column, chunk in enumerate(group.chunks):
            meta = theirs.column(column)
            assert chunk.data_offset == meta.data_page_offset
            assert chunk.compressed == meta.total_compressed_size
            assert chunk.values == meta.num_values
            assert chunk.index_length > 0


def test_leaves_and_flatness_follow_the_schema_tree() -> None:
    footer = parse_footer(footer_bytes(written(nested_table())))
    assert [(column.name, column.flat, len(column.leaves)) for column in footer.columns] == [
        ("id", True, 1),
        ("numbers", False, 1),
        ("point", False, 2),
        ("map", False, 2),
    ]
    assert footer.columns[2].leaves[1].path == (b"point", b"tags", b"list", b"element")


def test_a_repetition_that_there_is_not_is_refused() -> None:
    data = footer_bytes(written(pa.table({"number": range(10)}), store_schema=False))
    optional = b"\x25\x02\x18\x06number"
    assert data.count(optional) == 1
    with pytest.raises(ThriftError, match="schema element b'number' has the unknown repetition 33"):
        parse_footer(data.replace(optional, b"\x25\x42\x18\x06number"))


def test_maps_are_read_whose_entries_hive_says_to_be_nulls_only() -> None:
    """Hive 4 gives the repeated group of a map the logical type UNKNOWN. pyarrow refuses the whole file."""
    table = pa.table({"id": [1, 2, 3], "map": pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], MAP)})
    data = written(table, store_schema=False)
    entries = b"\x35\x04\x18\x09key_value\x15\x04"  # repeated, its name, two children
    unknown = b"\x5c\xbc\x00\x00"  # field 10, a struct, with its 11th field, an empty struct
    assert data.count(entries + b"\x00") == 1
    length = int.from_bytes(data[-8:-4], "little") + len(unknown)
    by_hive = data.replace(entries + b"\x00", entries + unknown + b"\x00")[:-8] + length.to_bytes(4, "little") + b"PAR1"
    with pytest.raises(OSError, match="Logical type Null cannot be applied to group node"):
        pq.read_table(io.BytesIO(by_hive))
    reader = BytesReader(by_hive)
    source = open_source(reader, "parquet")
    assert source.schema == open_source(BytesReader(data), "parquet").schema
    assert (
        source.fetch(reader, [(2, 0), (0, 0)], ["map", "id"]).to_pylist()
        == table.take([2, 0]).select(["map", "id"]).to_pylist()
    )
    (batch,) = source.scan(reader, ["id", "map"])
    assert batch.select(["id", "map"]).to_pylist() == table.to_pylist()


def test_a_time_zone_that_is_no_text_is_refused() -> None:
    data = written(pa.table({"at": pa.array([0, 1], pa.timestamp("us", "Europe/Paris"))}))
    text = pq.read_metadata(io.BytesIO(data)).metadata[b"ARROW:schema"]
    damaged = base64.b64encode(base64.b64decode(text).replace(b"Europe/Paris", b"Europe/Par\xf3s"))
    assert data.count(text) == 1
    with pytest.raises(DamagedSource, match="has a time zone that is not valid text"):
        open_source(BytesReader(data.replace(text, damaged)), "parquet")


def test_cache_bytes_are_of_the_order_of_what_the_footer_holds() -> None:
    small = parse_footer(footer_bytes(written(flat_table(), row_group_size=300)))
    large = parse_footer(footer_bytes(written(flat_table(), row_group_size=3)))
    assert large.cache_bytes - small.cache_bytes > 99 * 6 * 200


@pytest.mark.parametrize(
    ("created_by", "slack"),
    [
        (b"parquet-mr version 1.2.8 (build x)", LEGACY_SLACK),
        (b"parquet-mr version 1.0.0", LEGACY_SLACK),
        (b"parquet-mr version 1.2.9", 0),
        (b"parquet-mr version 1.2.80", 0),
        (b"parquet-mr version 1.10.1", 0),
        (b"parquet-cpp-arrow version 1.0.0", 0),
        (b"", 0),
    ],
)
def test_only_writers_that_forgot_a_header_in_a_chunks_length_get_slack(created_by: bytes, slack: int) -> None:
    assert legacy_slack(Footer(1, (), (), 0, None, created_by, False)) == slack


def test_a_footer_cut_or_empty_is_refused() -> None:
    body = footer_bytes(written(flat_table()))
    for kept in range(0, len(body) - 1, 7):
        with pytest.raises(ThriftError):
            parse_footer(body[:kept])
    with pytest.raises(ThriftError, match="no schema"):
        parse_footer(b"\0")


def test_column_names_that_are_not_utf8_do_not_crash() -> None:
    data = written(pa.table({"name": [1]}), store_schema=False)
    footer = parse_footer(footer_bytes(data.replace(b"\x04name", b"\x04\xff\xfe\xfd\xfc")))
    assert footer.columns[0].name == "\ufffd" * 4


def test_a_schema_element_that_pyarrow_reads_otherwise_is_refused_for_its_column_alone() -> None:
    """The repetition, OPTIONAL, has a wrong wire type: thrift ignores the field, and REQUIRED remains."""
    data = written(pa.table({"a": [1, 2], "b": [3, 4]}), store_schema=False)
    optional = b"\x15\x04\x25\x02\x18\x01a"  # an element: INT64, OPTIONAL, its name
    assert data.count(optional) == 1
    reader = BytesReader(data.replace(optional, b"\x15\x04\x26\x02\x18\x01a"), "lake/a")
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(1, 0)], ["b"]).to_pylist() == [{"b": 4}]
    with pytest.raises(UnsupportedFormat, match="a different schema element"):
        source.fetch(reader, [(1, 0)], ["a"])


ODD_TYPES = {
    thrift.TRUE: b"",
    thrift.I32: thrift.integer(7),
    thrift.DOUBLE: bytes(8),
    thrift.BINARY: thrift.binary(b"odd"),
    thrift.LIST: thrift.array(thrift.BINARY, [thrift.binary(b"odd")]),
    thrift.STRUCT: thrift.struct([(1, thrift.BINARY, thrift.binary(b"odd"))]),
}


@pytest.mark.parametrize("field", [1, 3, 5, 6, 7, 9, 99])
@pytest.mark.parametrize("wire", ODD_TYPES)
def test_a_field_of_an_unexpected_type_counts_as_absent(wire: int, field: int) -> None:
    """Version, rows, key-values, writer, column orders, signature, and one that nobody knows."""
    table = pa.table({"id": [1, 2, 3]})
    data = written(table, store_schema=False)
    odd = bytes([wire]) + thrift.integer(field) + ODD_TYPES[wire]
    body = footer_bytes(data)[:-1] + odd + b"\0"
    changed = data[: -8 - len(body) + len(odd)] + body + len(body).to_bytes(4, "little") + b"PAR1"
    reader = BytesReader(changed)
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(row, 0) for row in range(3)], ["id"]).equals(table)


@pytest.mark.parametrize("wire", [wire for wire in ODD_TYPES if wire != thrift.LIST])
def test_a_footer_without_a_list_of_row_groups_is_damaged_not_empty(wire: int) -> None:
    element = thrift.struct([(4, thrift.BINARY, thrift.binary(b"schema"))])
    schema = (2, thrift.LIST, thrift.array(thrift.STRUCT, [element]))
    for fields in ([schema], [schema, (4, wire, ODD_TYPES[wire])]):
        with pytest.raises(ThriftError):
            parse_footer(thrift.struct(fields))

"""nested.py: fields of structs as columns, read alone where the format can."""

from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from gnomon.base.readers import MemoryFile
from gnomon.sources import DECLARED, UnsupportedFormat, open_mapped, open_source, open_writer, style_of
from gnomon.sources.nested import WrongPath, array_at, field_at, find_path, nested_option
from gnomon.sources.types import to_ddl

PATH = ("payload", "order", "id")
NAME, OTHER = "payload.order.id", "payload.order.n"
ROWS = 4000


def row(number: int) -> dict[str, Any]:
    order = {"id": f"k{number % 50}" if number % 7 else None, "n": number, "tags": ["t"] * (number % 3)}
    payload = {"blob": f"{number:09d}" * 20, "order": order if number % 13 else None}
    return {"payload": payload if number % 11 else None, "z": number}


TABLE = pa.Table.from_pylist([row(number) for number in range(ROWS)])


def leaf(number: int, name: str) -> Any:
    return ((row(number)["payload"] or {}).get("order") or {}).get(name)


class CountingFile(MemoryFile):
    read = 0

    def read_range(self, offset: int, length: int) -> bytes:
        self.read += length
        return super().read_range(offset, length)

    def read_ranges(self, ranges: Any) -> list[bytes]:
        self.read += sum(length for _, length in ranges)
        return super().read_ranges(ranges)


def parquet(**options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, compression="none", row_group_size=900, data_page_size=2000, **options)
    return bytes(sink.getvalue())


def of_orc() -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(TABLE, sink, stripe_size=100_000)
    return bytes(sink.getvalue())


def by_writer(format: str) -> bytes:
    writer = open_writer(style_of(None, format), TABLE.schema, "f")
    for batch in TABLE.to_batches(max_chunksize=500):
        writer.write(batch)
    return writer.finish()


FILES = {
    "parquet, plain": ("parquet", lambda: parquet(use_dictionary=False)),
    "parquet, version 2": ("parquet", lambda: parquet(data_page_version="2.0", store_schema=False)),
    "parquet, index": ("parquet", lambda: parquet(write_page_index=True)),
    "orc": ("orc", of_orc),
    "avro": ("avro", lambda: by_writer("avro")),
    "jsonl": ("jsonl", lambda: by_writer("jsonl")),
}
READ_ALONE = {"parquet", "orc"}


@pytest.mark.parametrize("kind", FILES)
def test_a_field_is_scanned_and_fetched_as_a_column(kind: str) -> None:
    format, make = FILES[kind]
    data = make()
    reader = CountingFile(data, "f")
    file = open_source(reader, format, nested_option([PATH, ("payload", "order", "n")]))
    assert set(file.schema.names) == {"payload", "z", NAME, OTHER}
    reader.read = 0
    batches = list(file.scan(reader, [OTHER, "z", NAME]))
    assert batches[0].schema.names[:3] == [OTHER, "z", NAME]
    found = [value for batch in batches for value in batch.column(2).to_pylist()]
    assert found == [leaf(number, "id") for number in range(ROWS)]
    assert [v for batch in batches for v in batch.column(0).to_pylist()] == [leaf(n, "n") for n in range(ROWS)]
    pointers = [pair for b in batches for pair in zip(*(column.to_pylist() for column in b.columns[3:5]), strict=True)]
    if format in READ_ALONE:
        alone, reader.read = reader.read, 0
        assert sum(batch.num_rows for batch in file.scan(reader, ["payload"])) == ROWS
        assert alone < reader.read / 2  # a scan of a small file reads more than the columns
    if format == "parquet":
        assert file.scan_bytes([NAME]) < file.scan_bytes(["payload"]) / 10
    for places in ([5], [3999, 11, 13, 7, 0, 7], range(0, ROWS, 3), range(ROWS)):
        for columns in ([NAME], [NAME, "payload", OTHER], ["z", NAME, "z"]):
            reader.read = 0
            table = file.fetch(reader, [pointers[place] for place in places], columns)
            assert table.column_names == columns
            assert table.column(columns.index(NAME)).to_pylist() == [leaf(place, "id") for place in places]
            if "payload" in columns:
                assert table.column("payload").to_pylist() == [row(place)["payload"] for place in places]
            elif format in READ_ALONE:
                assert reader.read < len(data) / 3


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind.startswith("parquet")])
def test_page_maps_and_learned_pages_serve_a_field(kind: str) -> None:
    data = FILES[kind][1]()
    reader = MemoryFile(data, "f")
    options = nested_option([PATH])
    maps = open_mapped(reader, "parquet").export_maps(reader, True)
    for given in (None, lambda: maps):
        file = open_mapped(reader, "parquet", options, given)
        file.map_pages(reader, [(5, 0), (3000, 0)], [NAME])
        for _ in range(2):
            assert file.fetch(reader, [(5, 0), (3000, 0)], [NAME]).column(0).to_pylist() == ["k5", "k0"]
        assert file.export_maps(reader, True) == maps
        file.learn(file.export_learned())


def with_id(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(number)})


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_field_is_found_by_the_record_of_its_table(with_ids: bool) -> None:
    """The file has other names than the table; the leaf is found by its ids, or by the names on record."""
    number_of = with_id if with_ids else lambda field, _: field
    own = number_of(pa.field("c3", pa.int32()), 3)
    for number in (2, 1):
        own = number_of(pa.field(f"c{number}", pa.struct([own])), number)
    sink = pa.BufferOutputStream()
    values = [{"c2": {"c3": 1}}, None, {"c2": None}, {"c2": {"c3": 4}}]
    pq.write_table(pa.table([pa.array(values, own.type)], pa.schema([own])), sink)
    reader = CountingFile(bytes(sink.getvalue()), "f")

    def of(name: str, kind: pa.DataType, number: int) -> pa.Field:
        record = f'{{"id":{number}}}' if with_ids else f'{{"names":["c{number}"]}}'
        return pa.field(name, kind, metadata={"comment": record})

    table = pa.schema([of("payload", pa.struct([of("order", pa.struct([of("id", pa.int64(), 3)]), 2)]), 1)])
    file = open_source(reader, "parquet", {DECLARED: to_ddl(table), **nested_option([PATH])})
    assert file.schema.field(NAME).type == pa.int64()
    [batch] = file.scan(reader, [NAME])
    assert batch.column(0).to_pylist() == [1, None, None, 4]
    assert file.fetch(reader, [(3, 0), (2, 0)], [NAME]).column(0) == pa.chunked_array([[4, None]], pa.int64())


def test_a_value_that_the_table_cannot_hold_is_named_by_its_path() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    declared = pa.struct([("order", pa.struct([("id", pa.int64())]))])
    table = to_ddl(pa.schema([("payload", declared), (f"{NAME}_", pa.int64())]))
    reader = MemoryFile(bytes(sink.getvalue()), "f")
    file = open_source(reader, "parquet", {DECLARED: table, **nested_option([PATH])})
    with pytest.raises(
        UnsupportedFormat, match=rf"f: column {NAME}: the file has struct<.*, which cannot hold its values"
    ):
        list(file.scan(reader, [NAME]))


def test_slices_and_chunks_keep_their_nulls() -> None:
    column = TABLE.column("payload")
    for begin, length in ((0, 30), (5, 90), (13, 1), (ROWS - 1, 1), (10, 0)):
        some = column.slice(begin, length)
        expected = [leaf(number, "n") for number in range(begin, begin + length)]
        assert array_at(some, ("order", "n")).to_pylist() == expected
        assert array_at(some.combine_chunks(), ("order", "n")).to_pylist() == expected
    together = pa.chunked_array([column.chunk(0).slice(7, 9), column.chunk(0).slice(0, 3)])
    assert array_at(together, ("order", "n")).to_pylist() == [leaf(n, "n") for n in (*range(7, 16), 0, 1, 2)]


def test_a_name_has_one_meaning() -> None:
    struct = pa.struct([("b.c", pa.int32()), ("b", pa.struct([("c", pa.int32()), ("d", pa.int32())]))])
    schema = pa.schema([("a", struct), ("a.b.d", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int32())])))])
    assert find_path(schema, "a.b.d") is None  # a column has the name
    assert find_path(schema, "a.b") == ("a", "b")
    assert find_path(schema, "a.none") is find_path(schema, "none.b") is None
    with pytest.raises(WrongPath, match=r"column a.b.c may be \('a', 'b.c'\) and \('a', 'b', 'c'\)"):
        find_path(schema, "a.b.c")
    with pytest.raises(WrongPath, match=r"column l.x leads through l, which is list<"):
        find_path(schema, "l.x")
    twice = pa.schema([("a", pa.struct([pa.field("b", pa.int32()), pa.field("b", pa.int64())]))])
    with pytest.raises(WrongPath, match=r"2 fields have the name a\.b"):
        field_at(twice, ("a", "b"))


def test_a_column_with_the_name_of_a_field_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE.append_column(NAME, TABLE.column("z")), sink)
    with pytest.raises(UnsupportedFormat, match=f"f: column {NAME}: the file has a column of this name"):
        open_source(MemoryFile(bytes(sink.getvalue()), "f"), "parquet", nested_option([PATH]))


def test_a_struct_with_a_field_that_is_not_read_gives_no_nulls() -> None:
    """A sibling that Arrow has no type for refuses the column, and so the key."""
    from gnomon.sources.orc.schema import Kind, RawType, columns_of, narrowed_type

    types = [
        RawType(Kind.STRUCT, (1,), ("payload",), 0, 0, {}),
        RawType(Kind.STRUCT, (2, 3), ("id", "odd"), 0, 0, {}),
        RawType(Kind.INT, (), (), 0, 0, {}),
        RawType(99, (), (), 0, 0, {}),
    ]
    [(_, tree)] = columns_of(types, frozenset())
    with pytest.raises(KeyError):
        narrowed_type(tree, ["id"])
    assert tree.refusal is not None

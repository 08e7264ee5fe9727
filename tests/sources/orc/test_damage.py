"""Damaged ORC files. ORC has no checksums, so a changed byte of data may decode. The promise: an error of ours that
names the file, or rows of the requested types and number, equal in fetch and scan; never a crash, never memory beyond
the stated limit."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lzallright
import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, SourceError, UnsupportedFormat, open_source
from gnomon.sources.orc.schema import fields
from gnomon.sources.orc.streams import Codec, Damage
from tests.profiles import examples, positions
from tests.sources.orc_files import (
    encoded,
    flat_table,
    nested_table,
    odd_types,
    patched_footer,
    striped,
    typed_table,
    written,
)
from tests.sources.readers import BytesReader

FILES: dict[str, bytes] = {
    "flat": striped(flat_table(150), compression="uncompressed"),
    "nested": written(nested_table(60), compression="uncompressed", row_index_stride=20),
    "typed": written(typed_table(40), compression="snappy", row_index_stride=16),
    "version 0.11": written(typed_table(40), compression="uncompressed", file_version="0.11", row_index_stride=16),
    "odd": odd_types(),
}


def read(data: bytes) -> list[list[Any]]:
    """All columns from a scan, after a check that each row is equal when fetched."""
    reader = BytesReader(data, "lake/damaged")
    source = open_source(reader, "orc")
    names = list(dict.fromkeys(source.schema.names))
    batches = [batch.select(range(len(names))) for batch in source.scan(reader, names)]
    if not batches:
        return []
    scanned = pa.Table.from_batches(batches)
    fetched = source.fetch(reader, [(row, 0) for row in range(0, scanned.num_rows, 7)], names)
    columns = [python_values(column) for column in scanned.columns]
    assert repr([column[::7] for column in columns]) == repr([python_values(column) for column in fetched.columns])
    assert scanned.num_rows == source.rows
    return columns


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_ends_in_an_error_of_ours_or_in_as_many_rows(name: str) -> None:
    data = FILES[name]
    dice = random.Random(11)
    rows, errors = len(read(data)[0]), 0
    for _ in range(examples(120)):
        at = dice.randrange(len(data)) if dice.random() < 0.5 else len(data) - 1 - dice.randrange(600)
        damaged = bytearray(data)
        damaged[at] = dice.choice((damaged[at] ^ 1 << dice.randrange(8), 0, 255))
        try:
            columns = read(bytes(damaged))
        except SourceError as error:
            errors += 1
            assert error.path == "lake/damaged"  # noqa: PT017 - rows are as good an end
            continue
        assert all(len(column) == rows for column in columns) or not columns
    assert errors > examples(120) // 6 - 2


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_anywhere_is_refused_when_it_is_opened(name: str) -> None:
    data = FILES[name]
    for kept in positions(range(0, len(data), 41)):
        with pytest.raises(SourceError, match="lake/cut"):
            open_source(BytesReader(data[:kept], "lake/cut"), "orc")


def test_an_error_tells_stripe_column_and_offset() -> None:
    data = FILES["flat"]
    reader = BytesReader(FILES["flat"], "lake/damaged")
    source = open_source(reader, "orc")
    place = source._footer.stripes[1]  # type: ignore[attr-defined]
    broken = bytearray(data)
    broken[place.footer_offset : place.footer_offset + 4] = b"\xff" * 4
    reader = BytesReader(bytes(broken), "lake/damaged")
    source = open_source(reader, "orc")
    with pytest.raises(DamagedSource, match=f"lake/damaged at byte {place.footer_offset}: the footer of stripe 1: "):
        source.fetch(reader, [(place.first_row, 0)], ["id"])
    assert source.fetch(reader, [(0, 0)], ["id"]).to_pylist() == [{"id": 0}]


def test_a_row_index_that_points_elsewhere_is_found_by_the_scan_that_makes_the_pointers() -> None:
    """Otherwise a fetch, which uses the row index, would give another row."""
    data = written(pa.table({"id": range(200)}), compression="uncompressed", file_version="0.11")
    reader = BytesReader(data, "lake/damaged")
    source = open_source(reader, "orc")
    source.fetch(reader, [(0, 0)], ["id"])
    positions = source._stripes[0].positions[1]  # type: ignore[attr-defined]
    old = b"".join(bytes([number]) for number in positions[1])
    entry = b"\x0a" + bytes([len(old)]) + old
    assert data.count(entry) == 1
    moved = data.replace(entry, entry[:-1] + bytes([entry[-1] + 1]))
    reader = BytesReader(moved, "lake/damaged")
    source = open_source(reader, "orc")
    with pytest.raises(DamagedSource, match="column 'id': the row index has another position for row 64 of the stripe"):
        list(source.scan(reader, ["id"]))


def test_a_row_index_that_cannot_be_one_is_set_aside() -> None:
    table = flat_table().select(["id"])
    data = written(table, compression="uncompressed")
    reader = BytesReader(data)
    place = open_source(reader, "orc")._footer.stripes[0]  # type: ignore[attr-defined]
    broken = data[:3] + b"\xff" * place.index_length + data[3 + place.index_length :]
    reader = BytesReader(broken)
    source = open_source(reader, "orc")
    assert source.fetch(reader, [(row, 0) for row in range(0, 300, 50)], ["id"])["id"].to_pylist() == [
        *range(0, 300, 50)
    ]
    assert pa.Table.from_batches(source.scan(reader, ["id"])).select(["id"]).equals(table)


def stripe_with(field: int, number: int) -> Callable[[int, Any], Any]:
    def change(key: int, value: Any) -> Any:
        return encoded(list((dict(fields(value)) | {field: number}).items())) if key == 3 else value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (stripe_with(1, 1 << 40), "beyond the file's body"),
        (stripe_with(1, 0), "beyond the file's body"),
        (stripe_with(2, 1 << 62), "beyond the file's body"),
        (stripe_with(3, 1 << 40), "beyond the file's body"),
        (stripe_with(4, 1 << 20), "beyond the file's body"),
        (stripe_with(5, 1 << 40), "claims 1099511627776 rows"),
        (stripe_with(5, 301), "the footer claims 300 rows, its stripes 301"),
        (lambda key, value: 299 if key == 6 else value, "the footer claims 299 rows, its stripes 300"),
    ],
)
def test_a_footer_that_lies_is_refused(change: Callable[[int, Any], Any], message: str) -> None:
    data = written(flat_table().select(["id"]), compression="uncompressed")
    with pytest.raises(DamagedSource, match=message):
        open_source(BytesReader(patched_footer(data, change)), "orc")


def type_with(types: list[dict[int, Any]]) -> Callable[[int, Any], Any]:
    """A change of the types of a footer."""
    left = iter(types)
    return lambda key, value: encoded(list(next(left).items())) if key == 4 else value


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        (
            [{1: 12, 2: b"\x01", 3: b"id"}, {1: 10, 2: b"\x01"}],
            DamagedSource,
            "found type 1, expected type 2 of 2",
        ),
        ([{1: 12, 2: b"\x01", 3: b"id"}, {1: 11, 2: b"\x02"}], DamagedSource, "a type of kind 11 with 1 children"),
        ([{1: 12, 2: b"\x00", 3: b"id"}, {1: 4}], DamagedSource, "found type 0, expected type 1"),
        ([{1: 12, 2: b"\x01"}, {1: 4}], DamagedSource, "a struct of 1 fields with 0 names"),
        ([{1: 10, 2: b"\x01"}, {1: 4}], UnsupportedFormat, "the root is of type kind 10"),
        ([{1: 12}, {1: 4}], DamagedSource, "2 types, but the tree has 1"),
    ],
)
def test_types_that_are_no_tree_are_refused(types: list[dict[int, Any]], error: type[Exception], message: str) -> None:
    data = written(flat_table().select(["id"]), compression="uncompressed")
    with pytest.raises(error, match=message):
        open_source(BytesReader(patched_footer(data, type_with(types))), "orc")


def test_a_type_that_is_not_known_refuses_its_column_alone() -> None:
    data = written(flat_table().select(["id", "nothing"]), compression="uncompressed")
    types = [{1: 12, 2: b"\x01\x02", 3: b"id"}, {1: 4}, {1: 77}]
    changed = patched_footer(data, type_with(types)).replace(b"\x1a\x02id", b"\x1a\x02id\x1a\x01n", 1)
    at = changed.index(b"\x1a\x02id\x1a\x01n")
    # Now the message with the names, and so the footer, is three bytes longer.
    length = changed.rindex(b"\x22", 0, at) + 1
    changed = changed[:length] + bytes([changed[length] + 3]) + changed[length + 1 :]
    script = dict(fields(changed[-1 - changed[-1] : -1]))
    ending = encoded(list((script | {1: int(script[1]) + 3}).items()))  # type: ignore[call-overload]
    reader = BytesReader(changed[: -1 - changed[-1]] + ending + bytes([len(ending)]))
    source = open_source(reader, "orc")
    assert source.schema.types == [pa.int64(), pa.null()]
    assert source.fetch(reader, [(5, 0)], ["id"]).to_pylist() == [{"id": 5}]
    with pytest.raises(UnsupportedFormat, match="column n: unknown type kind 77"):
        source.fetch(reader, [(5, 0)], ["n"])


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6])
def test_a_chunk_never_unpacks_to_more_than_the_block_size(kind: int) -> None:
    zeros = bytes(8 << 20)
    packed = {
        1: lambda: zlib.compress(zeros, wbits=-15),
        2: lambda: bytes(cramjam.snappy.compress_raw(zeros)),
        3: lambda: lzallright.LZOCompressor().compress(zeros),
        4: lambda: bytes(cramjam.lz4.compress_block(zeros, store_size=False)),
        5: lambda: bytes(cramjam.zstd.compress(zeros)),
        6: lambda: bytes(cramjam.brotli.compress(zeros)),
    }[kind]()
    codec = Codec(kind, 64 << 10)
    tracemalloc.start()
    with pytest.raises(Damage):
        codec.unpack((len(packed) << 1).to_bytes(3, "little"), packed[: 256 << 10])
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_an_error_in_a_stream_tells_column_stripe_and_offset() -> None:
    data = striped(flat_table().select(["text"]), compression="zlib")
    reader = BytesReader(data, "lake/damaged")
    source = open_source(reader, "orc")
    place = source._footer.stripes[0]  # type: ignore[attr-defined]
    begin = place.offset + place.index_length
    broken = data[:begin] + b"\xfe\xff\xff" + data[begin + 3 :]
    reader = BytesReader(broken, "lake/damaged")
    where = f"lake/damaged at byte {place.offset}: column 'text' in stripe 0: "
    with pytest.raises(DamagedSource, match=where):
        source.fetch(reader, [(place.first_row, 0)], ["text"])
    where = f"lake/damaged at byte {place.offset}: stripe 0: column 'text': "
    with pytest.raises(DamagedSource, match=where):
        list(source.scan(reader, ["text"]))

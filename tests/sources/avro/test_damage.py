"""Damaged Avro files: an error with path and byte, or the right rows; never a crash, never unbounded memory."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, SourceError, UnsupportedFormat, open_source
from gnomon.sources.avro import open_avro
from gnomon.sources.avro import rows as avro_rows
from tests.profiles import positions
from tests.sources.avro_files import (
    FLAT,
    NESTED,
    SYNC,
    container,
    flat_rows,
    header,
    nested_rows,
    number,
    sized,
    written,
)
from tests.sources.readers import BytesReader
from tests.sources.source_contract import pointers_of

CHECKED = ("snappy", "bzip2", "xz")  # codecs that hold a checksum of the records


def scanned(data: bytes) -> list[Any]:
    """The rows before the damage, if any, and then the error, or None."""
    reader = BytesReader(data, "lake/damaged")
    rows: list[Any] = []
    try:
        source = open_source(reader, "avro")
        names = source.schema.names
        for batch in source.scan(reader, names):
            columns = [python_values(batch[name]) for name in names]
            found = list(zip(*columns, strict=True)) if names else [()] * batch.num_rows
            check_fetched(reader, source, batch, found)
            rows += found
    except SourceError as error:
        assert error.path == "lake/damaged"  # noqa: PT017 - rows are as good an end
        return [*rows, error]
    return [*rows, None]


def check_fetched(reader: BytesReader, source: Any, batch: pa.RecordBatch, rows: list[Any]) -> None:
    """Check that each scanned row is equal when fetched by its pointer."""
    place = len(rows) // 2
    table = source.fetch(reader, [pointers_of([batch])[place]], source.schema.names)
    assert repr([python_values(column)[0] for column in table.columns]) == repr(list(rows[place]))


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("codec", CHECKED)
def test_a_flipped_bit_of_a_block_with_a_checksum_is_an_error_or_does_no_harm(codec: str) -> None:
    data = written(FLAT, flat_rows(12), codec, block_bytes=250)
    right = values(flat_rows(12))
    dice = random.Random(1)
    for at in positions(range(data.index(SYNC) + 16, len(data))):
        damaged = bytearray(data)
        damaged[at] ^= 1 << dice.randrange(8)
        *rows, error = scanned(bytes(damaged))
        assert repr(rows) == repr(right[: len(rows)])
        assert error is not None or len(rows) == len(right)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_a_changed_byte_of_a_block_without_a_checksum_is_an_error_or_gives_rows(codec: str) -> None:
    """The format cannot show the change. Still, the pointers of such rows must give the rows of the scan."""
    data = written(NESTED, nested_rows(dict, 8), codec, block_bytes=150)
    dice = random.Random(2)
    errors = 0
    tried = positions(range(data.index(SYNC) + 16, len(data)))
    for at in tried:
        damaged = bytearray(data)
        damaged[at] = dice.choice((damaged[at] ^ 1, 0xFF, 0x80, 0))
        errors += scanned(bytes(damaged))[-1] is not None
    assert errors > len(tried) // 10


def test_a_changed_byte_of_the_header_is_an_error_or_gives_rows() -> None:
    data = written(NESTED, nested_rows(dict, 4), "deflate")
    for at in positions(range(data.index(SYNC) + 16)):
        for change in (1, 2, 16, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= change
            scanned(bytes(damaged))


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_cut_file_gives_the_rows_before_the_cut_and_an_error(codec: str) -> None:
    """A file that is cut at the end of a block looks complete, and gives its remaining blocks."""
    data = written(FLAT, flat_rows(12), codec, block_bytes=250)
    right = values(flat_rows(12))
    ends = [at + 16 for at in range(len(data)) if data.startswith(SYNC, at)]
    for kept in positions(range(len(data))):
        *rows, error = scanned(data[:kept])
        assert repr(rows) == repr(right[: len(rows)])
        assert (error is None) == (kept in ends)


def one_block(count: int, payload: bytes, kind: Any = "long", codec: str = "null") -> bytes:
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]}
    return container(schema, [(count, payload)], codec)


FIXED = {"type": "fixed", "name": "F", "size": 4}
LIES: dict[str, tuple[bytes, type[SourceError], str]] = {
    "more rows than there are": (one_block(5, b"\2\2"), DamagedSource, "5 rows in 2 bytes"),
    "more rows than there are, long ones": (one_block(2, b"\x82\x82\1"), DamagedSource, "records end inside"),
    "fewer rows than there are": (one_block(1, b"\2\2"), DamagedSource, "1 bytes follow the last"),
    "no rows in some bytes": (one_block(0, b"\2"), DamagedSource, "no rows in 1 bytes"),
    "rows below 0": (one_block(-1, b"\2"), DamagedSource, "a block of -1 rows"),
    "rows without number": (one_block(1 << 40, b"", "null"), DamagedSource, "a block of 1099511627776 rows"),
    "rows without bytes": (one_block(1 << 30, b"", "null"), UnsupportedFormat, "1073741824 rows in 0 bytes"),
    "a string longer than the block": (one_block(1, number(99) + b"x", "string"), DamagedSource, "99 bytes where 1"),
    "a string of a length below 0": (one_block(1, number(-1) + b"x", "string"), DamagedSource, "a length below 0"),
    "a fixed longer than the block": (one_block(1, b"abc", FIXED), DamagedSource, "1 rows in 3 bytes"),
    "a number of 11 bytes": (one_block(1, b"\xff" * 10 + b"\1"), DamagedSource, "more than 64 bits"),
    "a number of 65 bits": (one_block(1, b"\xff" * 9 + b"\2"), DamagedSource, "more than 64 bits"),
    "an int of 33 bits": (one_block(1, number(1 << 31), "int"), DamagedSource, "column 'c': an int of more than 32"),
    "a boolean of 2": (one_block(1, b"\2", "boolean"), DamagedSource, "column 'c': a boolean that is neither"),
    "a union's branch that is none": (one_block(1, b"\4\2", ["null", "int"]), DamagedSource, "branch 2 of a union"),
    "a union's branch below 0": (one_block(1, b"\1\2", ["null", "int", "long"]), DamagedSource, "branch -1 of a union"),
    "a symbol outside": (
        one_block(1, b"\2", {"type": "enum", "name": "E", "symbols": ["a"]}),
        DamagedSource,
        "column 'c': a symbol outside the enum's 1",
    ),
    "a decimal of 20 bytes": (
        one_block(1, sized(b"\1" * 20), {"type": "bytes", "logicalType": "decimal", "precision": 9}),
        DamagedSource,
        r"column 'c': a decimal\(9, 0\) whose digits take more than 16 bytes",
    ),
    "a UUID of other text": (
        one_block(1, sized(b"0123"), {"type": "string", "logicalType": "uuid"}),
        DamagedSource,
        "column 'c': an invalid UUID",
    ),
    "more elements than bytes": (
        one_block(1, number(1 << 50) + b"\2", {"type": "array", "items": "int"}),
        DamagedSource,
        "elements where 1 bytes are left",
    ),
    "elements without bytes": (
        one_block(1, number(1 << 50) + b"\0", {"type": "array", "items": "null"}),
        UnsupportedFormat,
        "more than 33554432 elements",
    ),
    "a run of elements longer than the block": (
        one_block(1, number(-1) + number(99) + b"\2\0", {"type": "array", "items": "int"}),
        DamagedSource,
        "a run of elements longer than the records",
    ),
    "a snappy block that claims to be large": (
        one_block(1, b"\xff\xff\xff\x7f" + bytes(8), codec="snappy"),
        DamagedSource,
        "268435455 bytes of content claimed by",
    ),
    "an lz4 block that claims to be large": (
        one_block(1, b"\xff\xff\xff\x0f" + bytes(8), codec="lz4"),
        DamagedSource,
        "268435455 bytes of content claimed by 8",
    ),
    "an lz4 block that states more than it holds": (
        one_block(3, b"\4\0\0\0" + b"\x20\2a", "string", codec="lz4"),  # zeros would be two empty strings
        DamagedSource,
        "unpacks to 2 bytes, the block states 4",
    ),
    "an lz4 block without its size": (
        one_block(1, b"ab", codec="lz4"),
        DamagedSource,
        "the compressed block is truncated",
    ),
    "a deflate stream that is cut": (one_block(1, b"\x4b", codec="deflate"), DamagedSource, "1 rows in 0 bytes"),
    "a deflate stream of another kind": (one_block(1, b"\x07", codec="deflate"), DamagedSource, "cannot be decoded"),
    "a truncated bzip2 stream": (one_block(1, b"BZh9", codec="bzip2"), DamagedSource, "stream is truncated"),
    "an empty snappy block": (one_block(1, b"", codec="snappy"), DamagedSource, "cannot be decoded"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_block_that_lies_is_refused_with_its_place(name: str) -> None:
    data, kind, message = LIES[name]
    offset = data.index(SYNC) + 16
    reader = BytesReader(data, "lake/lies")
    source = open_avro(reader)
    with pytest.raises(kind, match=f"^lake/lies at byte {offset}: .*{message}"):
        list(source.scan(reader, source.schema.names))
    with pytest.raises(SourceError, match=f"^lake/lies at byte {offset}: "):
        source.fetch(reader, [(offset, 0), (offset, 1 << 20)], source.schema.names)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_a_block_that_unpacks_to_more_than_the_limit_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "BLOCK_LIMIT", 10_000)
    data = written("bytes", [bytes(20_000)], codec)
    reader = BytesReader(data, "lake/bomb")
    source = open_avro(reader)
    with pytest.raises(UnsupportedFormat, match=r"lake/bomb at byte \d+: .*unpacks to more than 10000 bytes"):
        list(source.scan(reader, ["value"]))


def test_a_block_longer_than_the_file_is_refused_before_it_is_read() -> None:
    data = header("long") + number(1) + number(1 << 40) + bytes(100)
    reader = BytesReader(data, "lake/long")
    source = open_avro(reader)
    for attempt in (
        lambda: list(source.scan(reader, ["value"])),
        lambda: source.fetch(reader, [(data.index(SYNC) + 16, 0)], []),
    ):
        with pytest.raises(DamagedSource, match=f"a block of {1 << 40} bytes, the file ends at {len(data)}"):
            attempt()


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("string", sized(b"\xff"), "utf-8"),
        ({"type": "map", "values": "int"}, number(1) + sized(b"\xff") + b"\2\0", "utf-8"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\4", "a symbol outside"),
        ({"type": "string", "logicalType": "uuid"}, sized(b"x"), "an invalid UUID"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, sized(b"\1" * 30), "more than 16 bytes"),
        ("int", number(1 << 40), "an int of more than 32 bits"),
        (["int", "string"], b"\6", "branch 3 of a union of 2"),
        ({"type": "array", "items": "int"}, number(1 << 40), "elements of arrays"),
        ({"type": "array", "items": "null"}, number(1 << 40), "more than 33554432 elements"),
        ("double", b"", "."),
    ],
)
def test_damage_within_a_recursive_type_is_found_reading_and_passing_over(
    kind: Any, payload: bytes, message: str
) -> None:
    fields = [{"name": "kid", "type": ["null", "T"]}, {"name": "c", "type": kind}]
    data = container({"type": "record", "name": "T", "fields": fields}, [(1, b"\2\0" + payload)])
    reader = BytesReader(data, "lake/damaged")
    source = open_avro(reader)
    for columns in (["kid"], ["c"]):
        with pytest.raises(SourceError, match=f"^lake/damaged at byte {data.index(SYNC) + 16}: .*{message}"):
            list(source.scan(reader, columns))


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def doubled(times: int, fields: Sequence[Any] = ({"name": "a", "type": "int"},)) -> Any:
    """A short schema with two to the power of `times` columns: nested records of these fields."""
    kind: Any = {"type": "record", "name": "r0", "fields": fields}
    for i in range(1, times):
        kind = {
            "type": "record",
            "name": f"r{i}",
            "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"r{i - 1}"}],
        }
    return kind


HEADERS: dict[str, tuple[bytes, type[SourceError], str]] = {
    "nothing": (b"", DamagedSource, "0 bytes are too few"),
    "another magic": (b"PAR1" + bytes(100), DamagedSource, "begins with b'PAR1'"),
    "no end": (
        b"Obj\1" + number(1) + sized(b"a" * 20) + number(1 << 20),
        DamagedSource,
        "the file ends inside the header",
    ),
    "a length below 0": (b"Obj\1" + number(1) + number(-9) + bytes(50), DamagedSource, "a length below 0"),
    "a length beyond the limit": (
        b"Obj\1" + number(1) + number(1 << 50) + bytes(50),
        UnsupportedFormat,
        "a header of more",
    ),
    "no schema": (b"Obj\1\0" + SYNC, DamagedSource, "has no avro.schema"),
    "a schema that is no JSON": (header(b"{"), DamagedSource, "not JSON"),
    "a schema that is no text": (header(b'"\xff"'), DamagedSource, "not JSON"),
    "JSON nested without end": (header(b"[" * 100_000), DamagedSource, "not JSON"),
    "an unknown type": (header("integer"), DamagedSource, "unknown type 'integer'"),
    "a type that is none": (header({"type": 5}), DamagedSource, "5 is not a type"),
    "a union of nothing": (header([]), DamagedSource, "a union of no types"),
    "an array of nothing": (header({"type": "array"}), DamagedSource, "None is not a type"),
    "a record without fields": (header({"type": "record", "name": "r"}), DamagedSource, "record r without fields"),
    "a record without a name": (header({"type": "record", "fields": []}), DamagedSource, "a type without a name"),
    "a name of half a character": (
        header({"type": "record", "name": "\ud800", "fields": []}),
        DamagedSource,
        "a type without",
    ),
    "a field without a name": (
        header({"type": "record", "name": "r", "fields": [{}]}),
        DamagedSource,
        "a field without",
    ),
    "a fixed below 0": (header({"type": "fixed", "name": "f", "size": -1}), DamagedSource, "a fixed of size -1"),
    "an enum without symbols": (header({"type": "enum", "name": "e"}), DamagedSource, "an enum without symbols"),
    "types nested too deep": (header(nested(300)), UnsupportedFormat, "types nested more than 200 deep"),
    "more columns than are followed": (header(doubled(20)), UnsupportedFormat, "more than 20000 columns"),
    "more records without fields than are followed": (
        header(doubled(38, [])),
        UnsupportedFormat,
        "more than 20000 columns",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_cannot_be_is_refused(name: str) -> None:
    data, kind, message = HEADERS[name]
    with pytest.raises(kind, match=f"^lake/header at byte 0: .*{message}"):
        open_avro(BytesReader(data, "lake/header"))


def test_types_nested_deeper_than_columns_go_come_as_json() -> None:
    data = container(nested(60), [(1, b"\2" * 60 + b"\6" + b"\0" * 60)])
    reader = BytesReader(data)
    source = open_avro(reader)
    (value,) = python_values(next(source.scan(reader, ["value"]))["value"])
    for _ in range(60):
        (value,) = value
    assert value == 3


def test_rows_of_one_block_are_no_more_than_a_batch_at_a_time() -> None:
    data = container("string", [(3000, sized(bytes(5000)) * 3000)])
    reader = BytesReader(data)
    source = open_avro(reader)
    batches = list(source.scan(reader, ["value"]))
    assert sum(batch.num_rows for batch in batches) == 3000
    assert max(batch.nbytes for batch in batches) < 4.5 * (1 << 20)
    assert len(set(pointers_of(batches))) == 3000


def test_an_error_of_the_store_is_passed_on_as_it_is() -> None:
    class Lost(OSError):
        pass

    class Failing(BytesReader):
        def _bytes(self, offset: int, length: int) -> bytes:
            raise Lost("gone")

    data = written(FLAT, flat_rows(5))
    source = open_avro(BytesReader(data))
    with pytest.raises(Lost):
        open_avro(Failing(data))
    with pytest.raises(Lost):
        list(source.scan(Failing(data), ["id"]))
    with pytest.raises(Lost):
        source.fetch(Failing(data), [(data.index(SYNC) + 16, 0)], ["id"])

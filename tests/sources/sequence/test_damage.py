"""Damaged SequenceFiles. Only the streams inside some codecs have checksums; the records have none."""

import struct
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, SourceError, UnsupportedFormat, open_source
from gnomon.sources.sequence import layout
from tests.profiles import positions
from tests.sources.readers import BytesReader
from tests.sources.sequence_files import (
    CODECS,
    COMPRESS,
    HADOOP,
    MARKER,
    block,
    header,
    record,
    sized,
    text,
    vint,
    written,
)
from tests.sources.source_contract import pointers_of

ROWS = [(f"key-{i:02}", f"value {i} " * (i % 7)) for i in range(24)]
TEXT = HADOOP + "Text"
Rows = list[tuple[Any, Any]]


def read(data: bytes) -> tuple[Rows, SourceError | None]:
    """The rows of a scan before it ends or fails, after a check that each is equal when fetched."""
    reader = BytesReader(data, "lake/damaged")
    rows: Rows = []
    try:
        source = open_source(reader, "sequence")
        for batch in source.scan(reader, ["key", "value"]):
            part = pairs(pa.table(batch))
            rows += part
            assert pairs(source.fetch(reader, pointers_of([batch]), ["key", "value"])) == part
    except SourceError as error:
        assert error.path == "lake/damaged"  # noqa: PT017 - rows may come first
        return rows, error
    return rows, None


def pairs(table: pa.Table) -> Rows:
    return list(zip(python_values(table["key"]), python_values(table["value"]), strict=True))


def flipped(data: bytes, position: int, bit: int = 4) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


@pytest.mark.parametrize("codec", ["DefaultCodec", "GzipCodec", "BZip2Codec"])
def test_a_flipped_bit_in_blocks_with_checksums_never_gives_a_wrong_row(codec: str) -> None:
    data = written(ROWS, codec=codec, blocks=True)
    begin = len(written([], codec=codec, blocks=True))
    failures = 0
    tried = positions(range(begin, len(data)))
    for position in tried:
        rows, error = read(flipped(data, position, position % 8))
        assert rows == ROWS[: len(rows)]
        assert error is not None or rows == ROWS  # a bit without effect, as in gzip's header
        failures += error is not None
    assert failures > 0.8 * len(tried)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"codec": "DefaultCodec"},
        {"codec": "SnappyCodec", "blocks": True},
        {"codec": "Lz4Codec", "blocks": True},
        {"codec": "ZStandardCodec", "blocks": True},
    ],
    ids=str,
)
def test_a_flipped_bit_where_nothing_is_checked_changes_no_other_row(options: dict[str, Any]) -> None:
    """A letter may change. No row is lost or invented without an error, and rows of other records (blocks) before the
    bit are right."""
    data = written(ROWS, **options)
    begin = len(written([], **options))
    reader = BytesReader(data)
    offsets = [offset for offset, _ in pointers_of(open_source(reader, "sequence").scan(reader, []))]
    for position in positions(range(begin, len(data))):
        rows, error = read(flipped(data, position, position % 8))
        before = max((i for i, offset in enumerate(offsets) if offset <= position), default=0)
        before = offsets.index(offsets[before])
        assert rows[:before] == ROWS[:before]
        if error is None and len(rows) == len(ROWS):
            after = [row for row, offset in zip(ROWS, offsets, strict=True) if offset > position]
            assert not after or rows[-len(after) :] == after


@pytest.mark.parametrize("options", [{}, {"codec": "DefaultCodec"}, {"codec": "DefaultCodec", "blocks": True}], ids=str)
def test_any_byte_of_the_header_may_be_wrong(options: dict[str, Any]) -> None:
    """The header has no checksum: a changed class name is an unknown class, whose values are plain bytes."""
    data = written(ROWS[:3], metadata={"a": "b"}, **options)
    for position in positions(range(len(written([], metadata={"a": "b"}, **options)))):
        for bit in range(8):
            read(flipped(data, position, bit))


@pytest.mark.parametrize("options", [{}, {"codec": "GzipCodec"}, {"codec": "SnappyCodec", "blocks": True}], ids=str)
def test_a_file_cut_anywhere_gives_rows_before_the_cut_and_an_error(options: dict[str, Any]) -> None:
    data = written(ROWS[:9], every=4, **options)
    reader = BytesReader(data)
    pointers = pointers_of(open_source(reader, "sequence").scan(reader, []))
    unseen = {offset for offset, _ in pointers} | {len(written([], **options)), len(data)}  # between two records
    unseen |= {offset + len(MARKER) for offset in unseen if data[offset:].startswith(MARKER)} - (
        {offset + len(MARKER) for offset, _ in pointers} if "blocks" in options else set()
    )
    for kept in positions(range(len(data))):
        rows, error = read(data[:kept])
        assert rows == ROWS[: len(rows)]
        assert (error is None) == (kept in unseen), kept


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (struct.pack(">ii", 2**31 - 1, 4) + b"abcd", "a record takes 2147483655 bytes, the file ends after 12"),
        (struct.pack(">ii", -2, 4) + b"abcd", "a record claims -2 bytes"),
        (struct.pack(">ii", 4, 5) + b"abcd", "a record of 4 bytes claims a key of 5"),
        (struct.pack(">ii", 4, -1) + b"abcd", "a record of 4 bytes claims a key of -1"),
        (b"\xff" * 20 + record(text("a"), text("b")), "expected the file's sync marker, found other bytes"),
        (MARKER[:-1], "a sync marker takes 20 bytes, the file ends after 19"),
        (b"\x00\x00", "the length of a record takes 4 bytes, the file ends after 2"),
        (record(text("ab")[:-1], text("b")), "column key: not a org.apache.hadoop.io.Text: 2 bytes, where the text"),
        (record(text("ab"), text("b") + b"x"), "column value: not a org.apache.hadoop.io.Text: 3 bytes, where"),
        (record(b"", text("b")), "column key: not a org.apache.hadoop.io.Text: 0 bytes, where a text takes 1 or more"),
        (record(b"\x88\xff", text("b")), "2 bytes, where the length alone takes more"),
    ],
)
def test_a_record_that_lies_is_reported_behind_the_rows_before_it(tail: bytes, message: str) -> None:
    good = header(TEXT, TEXT) + record(text("a"), text("b"))
    rows, error = read(good + tail)
    assert rows == [("a", "b")]
    assert isinstance(error, DamagedSource)
    assert error.offset == len(good)
    assert message in str(error)


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("IntWritable", b"\0" * 5, "5 bytes, where a value takes 4"),
        ("BooleanWritable", b"", "0 bytes, where a value takes 1"),
        ("NullWritable", b"x", "1 bytes, where a null takes none"),
        ("VIntWritable", b"", "0 bytes, where a number takes 1 or more"),
        ("VIntWritable", vint(2**31), "2147483648 exceeds 32 bits"),
        ("VLongWritable", vint(300) + b"x", "its first byte claims another length"),
        ("BytesWritable", b"\0\0\0", "3 bytes, where the length alone takes 4"),
        ("BytesWritable", b"\0\0\0\2a", "5 bytes, where the value claims another length"),
    ],
)
def test_a_value_that_is_none_of_its_class_is_reported(name: str, cell: bytes, message: str) -> None:
    for data in (
        header(TEXT, HADOOP + name) + record(text("a"), cell),
        header(TEXT, HADOOP + name, COMPRESS + "DefaultCodec", True)
        + block([text("a")], [cell], CODECS[COMPRESS + "DefaultCodec"]),
    ):
        rows, error = read(data)
        assert not rows
        assert isinstance(error, DamagedSource)
        assert message in str(error)
        reader = BytesReader(data, "lake/x")
        source = open_source(reader, "sequence")
        (pointer,) = pointers_of(source.scan(reader, []))
        with pytest.raises(DamagedSource, match="column value: not a "):
            source.fetch(reader, [pointer], ["value"])


def zipped(*buffers: bytes, rows: int = 2) -> bytes:
    compress = CODECS[COMPRESS + "DefaultCodec"]
    head = header(TEXT, TEXT, COMPRESS + "DefaultCodec", True)
    return head + MARKER + vint(rows) + b"".join(sized(compress(buffer)) for buffer in buffers)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d", rows=-3), "a block claims -3: number of records"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d", rows=3), "3 rows: the lengths of keys are 2"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d", rows=2**31), "a block claims 2147483648"),
        (zipped(b"\x02\x8f", b"\1a\1b", b"\x02\x02", b"\1c\1d"), "the lengths of keys end inside a number"),
        (zipped(b"\x02\xff", b"\1a\1b", b"\x02\x02", b"\1c\1d"), "lengths of keys say -1 bytes"),
        (zipped(b"\x02\x03", b"\1a\1b", b"\x02\x02", b"\1c\1d"), "keys are 4 bytes, the sum of their lengths is 5"),
        (zipped(b"\x02\x01", b"\1a\1b", b"\x02\x02", b"\1c\1d"), "unpacks to more than 3 bytes"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02\x02", b"\1c\1d"), "lengths of values are 3"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d")[:-1], "bytes or more, the file ends"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d") + MARKER, "bytes or more, the file ends"),
        (zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d") + b"\0" * 30, "expected the file's sync marker"),
    ],
)
def test_a_block_that_lies_is_reported(data: bytes, message: str) -> None:
    _, error = read(data)
    assert isinstance(error, DamagedSource)
    assert message in str(error)


def test_lengths_beyond_the_limit_are_refused_before_anything_is_made() -> None:
    head = header(TEXT, TEXT, COMPRESS + "DefaultCodec", True)
    lengths = sized(CODECS[COMPRESS + "DefaultCodec"](vint(2**31 - 1) * 3))
    _, error = read(head + MARKER + vint(3) + lengths * 4)
    assert isinstance(error, UnsupportedFormat)
    assert "a block's keys unpack to 6442450941 bytes; the limit is 536870912" in str(error)


@pytest.mark.parametrize(
    "codec", ["DefaultCodec", "GzipCodec", "BZip2Codec", "ZStandardCodec", "SnappyCodec", "Lz4Codec"]
)
def test_a_bomb_is_not_unpacked(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LARGEST", 1 << 20)
    data = header(TEXT, TEXT, COMPRESS + codec) + record(text("a"), CODECS[COMPRESS + codec](bytes(30 << 20)))
    tracemalloc.start()
    _, error = read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, DamagedSource)
    assert "column value: cannot be decompressed" in str(error)
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (struct.pack(">i", 1 << 29) + bytes(40), "claims to unpack to 536870912"),
        (struct.pack(">iI", 5, 1 << 31) + bytes(40), "a chunk claims 2147483648 bytes, 40 are left"),
        (struct.pack(">ii", 5, 3) + b"\x09\x20a", "a chunk claims to unpack to 9 bytes, its frame has 5 left"),
        (struct.pack(">i", 5), "a frame of 0 bytes claims to unpack to 5"),
        (b"\x00\x00", "unpack"),
    ],
)
def test_frames_that_lie_are_reported(frames: bytes, message: str) -> None:
    _, error = read(header(TEXT, TEXT, COMPRESS + "SnappyCodec") + record(text("a"), frames))
    assert isinstance(error, DamagedSource)
    assert message in str(error)


def test_a_buffer_that_claims_more_than_the_file_has_costs_no_read_of_the_rest() -> None:
    data = zipped(b"\x02\x02", b"\1a\1b", b"\x02\x02", b"\1c\1d")
    lying = data.replace(sized(CODECS[COMPRESS + "DefaultCodec"](b"\1a\1b")), vint(400 << 20), 1) + bytes(300_000)
    reader = BytesReader(lying, "lake/x")
    source = open_source(reader, "sequence")
    reader.forget()
    with pytest.raises(DamagedSource, match=r"a block takes .* bytes or more, the file ends after"):
        source.fetch(reader, [(len(header(TEXT, TEXT, COMPRESS + "DefaultCodec", True)), 0)], ["key"])
    assert reader.rounds == 1


def test_a_block_of_more_rows_than_memory_is_good_for_is_refused() -> None:
    """Compressed rows without key and value take a thousandth of a byte each, and eight or more bytes unpacked."""
    count = 1 << 25
    packer = zlib.compressobj(9)
    lengths = b"".join(packer.compress(bytes(1 << 20)) for _ in range(count >> 20)) + packer.flush()
    nothing = zlib.compress(b"")
    head = header(HADOOP + "NullWritable", HADOOP + "NullWritable", COMPRESS + "DefaultCodec", blocks=True)
    data = head + MARKER + vint(count) + (sized(lengths) + sized(nothing)) * 2
    message = f"^lake/many at byte {len(head)}: a block of {count} rows in {len(data) - len(head)} bytes; the limit is"
    reader = BytesReader(data, "lake/many")
    source = open_source(reader, "sequence")
    for attempt in (
        lambda: list(source.scan(reader, ["key"])),
        lambda: source.fetch(reader, [(len(head), 5)], ["key"]),
    ):
        with pytest.raises(UnsupportedFormat, match=message):
            attempt()

"""Features that only some writers use: the rows are read the same, and rows before damage come before the error."""

import random
import zlib
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gnomon.base.compression import RAW_DEFLATE
from gnomon.shadow.values.row_values import python_values, to_json
from gnomon.sources import DamagedSource, SourceError
from gnomon.sources.avro import container as avro_container
from gnomon.sources.avro import open_avro
from gnomon.sources.avro import rows as avro_rows
from tests.sources.avro_files import block, container, header, number, sized
from tests.sources.readers import BytesReader
from tests.sources.source_contract import pointers_of

INT = {"type": "record", "name": "R", "fields": [{"name": "c", "type": "int"}]}


def of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]}


def rows_of(data: bytes) -> list[Any]:
    """The values of the one column from a scan, after a check that each row is equal when fetched."""
    reader = BytesReader(data, "lake/file")
    source = open_avro(reader)
    batches = list(source.scan(reader, ["c"]))
    rows = [row for batch in batches for row in python_values(batch["c"])]
    for pointer, row in zip(pointers_of(batches), rows, strict=True):
        assert python_values(source.fetch(reader, [pointer], ["c"])["c"]) == [row]
    return rows


def rows_before(data: bytes) -> tuple[list[Any], SourceError | None]:
    """The rows before the damage, and the error."""
    reader = BytesReader(data, "lake/damaged")
    rows: list[Any] = []
    try:
        for batch in open_avro(reader).scan(reader, ["c"]):
            rows += python_values(batch["c"])
    except SourceError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("kind", [["null", "int"], ["int", "null"], ["null", "int", "string"]])
def test_the_branch_of_a_union_may_take_more_bytes_than_it_needs(kind: list[str]) -> None:
    some, none = kind.index("int"), kind.index("null")
    payload = bytes([2 * some | 128, 0]) + number(7) + bytes([2 * none | 128, 128, 0])
    assert rows_of(container(of(kind), [(2, payload)])) == [7, None]


def test_a_deflate_stream_that_is_flushed_and_not_ended_gives_its_rows() -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, RAW_DEFLATE)
    payload = packer.compress(b"".join(number(i) for i in range(500))) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert rows_of(container(INT, [(500, payload), (0, b""), (500, payload)], "deflate")) == [*range(500), *range(500)]


def test_a_deflate_stream_that_is_cut_gives_the_rows_in_it_and_an_error() -> None:
    packer = zlib.compressobj(0, zlib.DEFLATED, RAW_DEFLATE)
    payload = packer.compress(b"".join(number(i) for i in range(60))) + packer.flush()
    rows, error = rows_before(container(INT, [(60, payload[:-9])], "deflate"))
    assert rows == list(range(len(rows)))
    assert isinstance(error, DamagedSource)


@pytest.mark.parametrize(
    ("kind", "payload", "value", "shown"),
    [
        ("string", sized(b"\xff\xfe"), b"\xff\xfe", '"//4="'),
        (["null", "string"], b"\2" + sized(b"a\xc3"), b"a\xc3", '"YcM="'),
        ({"type": "array", "items": "string"}, b"\2" + sized(b"\xff") + b"\0", [b"\xff"], '["/w=="]'),
        (
            {"type": "map", "values": "int"},
            b"\2" + sized(b"\xff") + b"\2\0",
            {b"\xff": 1},
            '[["/w==", 1]]',
        ),
    ],
)
def test_text_that_is_not_utf8_comes_as_its_bytes(kind: Any, payload: bytes, value: Any, shown: str) -> None:
    """Go's writers do not check text."""
    (row,) = rows_of(container(of(kind), [(1, payload)]))
    assert row == value
    assert to_json(row) == shown


def test_a_type_that_is_annotated_from_around_it_has_its_logical_type() -> None:
    """Rust's writer writes a decimal, and a duration, in fixed like this."""
    fixed = {"type": "fixed", "name": "F", "size": 3}
    around = {"type": fixed, "logicalType": "decimal", "precision": 5, "scale": 2}
    data = container(of(around), [(1, b"\xff\xff\xfe")])
    assert open_avro(BytesReader(data)).schema.field("c").type == pa.decimal128(5, 2)
    assert rows_of(data) == [Decimal("-0.02")]
    duration = {"type": {"type": "fixed", "name": "D", "size": 12}, "logicalType": "duration"}
    assert rows_of(container(of(duration), [(1, bytes(range(12)))])) == [bytes(range(12))]


def test_what_is_annotated_from_around_it_is_plain_where_it_is_named() -> None:
    around = {"type": {"type": "fixed", "name": "F", "size": 1}, "logicalType": "decimal", "precision": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": around}, {"name": "c", "type": "F"}]}
    assert rows_of(container(schema, [(1, b"\1\2")])) == [b"\2"]


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        ({"type": "long", "logicalType": "time-micros"}, number(500_000), "00:00:00.5"),
        ({"type": "long", "logicalType": "time-micros"}, number(10**12), "277:46:40"),
        ({"type": "long", "logicalType": "time-micros"}, number((1 << 63) - 1), "2562047788:00:54.775807"),
        ({"type": "int", "logicalType": "time-millis"}, number(86_400_000), "24:00:00"),
        ({"type": "int", "logicalType": "time-millis"}, number(-5), "-1:59:59.995"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 80, "scale": 2}, sized(b"\xfb"), "-0.05"),
    ],
)
def test_a_value_within_a_recursive_type_reads_as_it_does_elsewhere(kind: Any, payload: bytes, value: str) -> None:
    fields = [{"name": "kid", "type": ["null", "T"]}, {"name": "c", "type": kind}]
    data = container({"type": "record", "name": "T", "fields": fields}, [(1, b"\2\0" + payload + payload)])
    reader = BytesReader(data, "lake/file")
    (batch,) = open_avro(reader).scan(reader, ["kid", "c"])
    assert python_values(batch["kid"]) == [{"kid": None, "c": value}]
    assert python_values(batch["c"]) == [value]


@pytest.mark.parametrize("columns", [["kid"], ["c"]])
def test_a_decimal_of_more_digits_than_are_reported_is_refused(columns: list[str]) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4300}
    fields = [{"name": "kid", "type": ["null", "T"]}, {"name": "c", "type": kind}]
    payload = b"\2\0" + sized(b"\x7f" * 1800) * 2
    data = container({"type": "record", "name": "T", "fields": fields}, [(1, payload)])
    reader = BytesReader(data, "lake/file")
    with pytest.raises(DamagedSource, match=r"^lake/file at byte \d+: .*a decimal of more than 4300 digits"):
        list(open_avro(reader).scan(reader, columns))


@pytest.mark.parametrize("sync", [bytes(16), b"\1" * 16, b"\1\0" * 8])
def test_a_file_whose_sync_marker_repeats_is_one_split(sync: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the marker is zeros, rows of zeros look like blocks."""
    monkeypatch.setattr(avro_container, "LOOK_BACK", 40)
    data = header(of("bytes"), sync=sync) + b"".join(block(1, sized(bytes(400)), sync) for _ in range(20))
    reader = BytesReader(data, "lake/file")
    source = open_avro(reader)
    for target in (50, 1000, len(data) // 2):
        splits = source.splits(target)
        assert sum(batch.num_rows for split in splits for batch in source.scan(reader, ["c"], split)) == 20


BAD = {  # kinds of unreadable rows, in a block of sound ones
    "a branch that is none": (["null", "int"], b"\2", b"\6\2"),
    "a symbol that is none": ({"type": "enum", "name": "E", "symbols": ["5"]}, b"", b"\2"),
    "an int of 33 bits": ("int", b"", number(1 << 40)),
}


@pytest.mark.parametrize("name", BAD)
def test_the_rows_of_a_block_before_the_one_that_cannot_be_read_come_first(name: str) -> None:
    kind, prefix, bad = BAD[name]
    good = prefix + (b"\0" if "symbol" in name else number(5))
    for before in (0, 1, 2, 7, 100):
        for after in (0, 1, 30):
            payload = good * before + bad + good * after
            rows, error = rows_before(container(of(kind), [(3, good * 3), (before + 1 + after, payload)]))
            assert [str(row) for row in rows] == ["5"] * (3 + before)
            assert isinstance(error, DamagedSource)


def test_the_rows_of_a_block_that_has_bytes_left_come_before_the_error() -> None:
    rows, error = rows_before(container(INT, [(2, b"\2\4"), (1, b"\6\4"), (2, b"\2\4")]))
    assert rows == [1, 2, 3]
    assert error is not None
    assert str(error).endswith("1 bytes follow the last of the block's 1 rows")


def test_no_row_before_damage_comes_twice_or_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches end within blocks, and span several."""
    monkeypatch.setattr(avro_rows, "BATCH_ROWS", 7)
    dice = random.Random(3)
    for _ in range(60):
        counts = [dice.randrange(12) for _ in range(6)]
        values = iter(range(sum(counts)))
        payloads = [(count, b"".join(number(next(values)) for _ in range(count))) for count in counts]
        bad = dice.randrange(sum(counts) + 1)
        where = next((i for i in range(6) if sum(counts[: i + 1]) > bad), 5)
        within = bad - sum(counts[:where])
        numbers = [number(i) for i in range(sum(counts[:where]), sum(counts[: where + 1]))]
        numbers.insert(within, number(1 << 40))
        payloads[where] = (len(numbers), b"".join(numbers))
        rows, error = rows_before(header(INT) + b"".join(block(*payload) for payload in payloads))
        assert rows == list(range(bad))
        assert error is not None

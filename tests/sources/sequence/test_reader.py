"""SequenceFiles through the public functions: `open_source(..., "sequence")`, `scan`, `fetch`."""

import math
import struct
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, StalePointer, UnsupportedFormat, detect, open_source
from gnomon.sources.pointers import OFFSET, SIZE
from gnomon.sources.sequence import blocks, layout, records
from tests.sources.readers import BytesReader
from tests.sources.sequence_files import HADOOP, MARKER, RAW_CLASS, SYNC, header, record, text, vint, written
from tests.sources.source_contract import Sample, SourceContract, pointers_of, read_all

CODECS = ("DefaultCodec", "DeflateCodec", "GzipCodec", "BZip2Codec", "SnappyCodec", "Lz4Codec", "ZStandardCodec")
WRITERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain, no markers": {"every": 1000},
    "plain, a marker before each": {"every": 1},
    "plain, metadata": {"metadata": {"writer": "test", "empty": ""}},
    **{f"version {version}": {"version": version} for version in (4, 5)},
    "version 4 record": {"version": 4, "codec": "DefaultCodec"},
    "version 4 block": {"version": 4, "codec": "DefaultCodec", "blocks": True},
    "version 5 block": {"version": 5, "codec": "GzipCodec", "blocks": True},
    **{f"{codec} record": {"codec": codec} for codec in CODECS},
    **{f"{codec} block": {"codec": codec, "blocks": True} for codec in CODECS},
    "one block": {"codec": "DefaultCodec", "blocks": True, "every": 1000},
    "a block for each": {"codec": "DefaultCodec", "blocks": True, "every": 1},
}
ROWS = [(f"key-{i:03}", f"naïve value {i} " * (i % 23)) for i in range(60)]
EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "Text": (pa.string(), ["", "a", "ünï 名", "x" * 127, "x" * 128, "x" * 70_000]),
    "BytesWritable": (pa.binary(), [b"", b"\x00", b"\xff" * 300]),
    "NullWritable": (pa.null(), [None, None]),
    "BooleanWritable": (pa.bool_(), [True, False, False, True, True, False, True, False, True]),
    "ByteWritable": (pa.int8(), [0, -128, 127]),
    "ShortWritable": (pa.int16(), [0, -32768, 32767]),
    "IntWritable": (pa.int32(), [0, 1, -1, -(2**31), 2**31 - 1]),
    "LongWritable": (pa.int64(), [0, 1, -1, -(2**63), 2**63 - 1]),
    "FloatWritable": (pa.float32(), [0.0, -0.0, 1.5, math.inf, -math.inf]),
    "DoubleWritable": (pa.float64(), [0.0, -0.0, 0.1, math.inf, -math.inf, 5e-324]),
    "VIntWritable": (pa.int32(), [0, 127, 128, 255, 256, -1, -112, -113, -256, -257, 2**31 - 1, -(2**31)]),
    "VLongWritable": (pa.int64(), [0, 127, -113, 2**31, 2**47, -(2**47) - 1, 2**63 - 1, -(2**63)]),
    RAW_CLASS: (pa.binary(), [b"", b"\x00\x01", b"point" * 50]),
}


def noise(seed: int, length: int) -> str:
    """Text that does not compress well."""
    return Random(seed).randbytes(length).hex()


def scanned(data: bytes, columns: list[str] | None = None) -> pa.Table:
    reader = BytesReader(data, "lake/x")
    source = open_source(reader, "sequence")
    return pa.Table.from_batches(source.scan(reader, source.schema.names if columns is None else columns))


class TestEveryLayoutAndCodec(SourceContract):
    @pytest.fixture(params=WRITERS)
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        data = written(ROWS, **WRITERS[request.param])
        rows: list[dict[str, object]] = [{"key": key, "value": value} for key, value in ROWS]
        return Sample(data, "sequence", rows, one_row_bytes=8192, knows_rows=False, cut_is_seen=False)

    def test_a_cut_file_gives_an_error_that_names_it(self, sample: Sample) -> None:
        """A cut between two records, or two blocks, cannot be noticed."""
        reader = sample.reader()
        pointers = pointers_of(sample.open(reader).scan(reader, []))
        for kept in (0, 3, 40, *(offset + 5 for offset, _ in pointers), len(sample.data) - 1):
            cut = BytesReader(sample.data[:kept], "lake/cut")
            with pytest.raises(DamagedSource, match="lake/cut at byte"):
                read_all(sample, cut)


class TestFixedWidths(SourceContract):
    @pytest.fixture(params=[{}, {"codec": "DefaultCodec", "blocks": True}], ids=["plain", "block"])
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        numbers = [(i, i * 0.5) for i in range(100)]
        data = written(numbers, "IntWritable", "DoubleWritable", **request.param)
        rows: list[dict[str, object]] = [{"key": key, "value": value} for key, value in numbers]
        return Sample(data, "sequence", rows, one_row_bytes=8192, knows_rows=False, cut_is_seen=False)


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize(
    "options",
    [{}, {"codec": "DefaultCodec"}, {"codec": "SnappyCodec", "blocks": True, "every": 4}],
    ids=["plain", "record", "block"],
)
def test_a_class_comes_in_its_own_type_as_key_and_as_value(name: str, options: dict[str, Any]) -> None:
    kind, values = EDGES[name]
    if name == "Text":
        values = values[:-1] if "blocks" not in options else values
    reader = BytesReader(written([(value, value) for value in values], name, name, **options))
    source = open_source(reader, "sequence")
    assert source.schema.types == [kind, kind]
    table = pa.Table.from_batches(source.scan(reader, ["key", "value"]))
    assert repr(table["key"].to_pylist()) == repr(table["value"].to_pylist()) == repr(values)
    fetched = source.fetch(reader, pointers_of(source.scan(reader, [])), ["value"])
    assert repr(fetched["value"].to_pylist()) == repr(values)


def test_nan_comes_as_nan() -> None:
    (value,) = scanned(written([("a", math.nan)], value="DoubleWritable"))["value"].to_pylist()
    assert math.isnan(value)


def test_the_class_stands_in_the_metadata_of_the_field() -> None:
    schema = open_source(BytesReader(written([("a", b"")], value=RAW_CLASS)), "sequence").schema
    assert schema.field("key").metadata == {b"hadoop.class": b"org.apache.hadoop.io.Text"}
    assert schema.field("value").metadata == {b"hadoop.class": RAW_CLASS.encode()}


def test_text_that_is_not_utf8_comes_as_it_is() -> None:
    table = scanned(written([(b"\xff\xfe", "fine"), ("ü", b"\x80")]))
    assert python_values(table["key"]) == [b"\xff\xfe", "ü"]
    assert python_values(table["value"]) == ["fine", b"\x80"]


def test_the_magic_bytes_speak_for_the_format() -> None:
    assert detect(BytesReader(written(ROWS))) == "sequence"


@pytest.mark.parametrize("options", [{}, {"codec": "DefaultCodec", "blocks": True}], ids=["plain", "block"])
def test_a_file_without_rows_has_none(options: dict[str, Any]) -> None:
    reader = BytesReader(written([], **options))
    source = open_source(reader, "sequence")
    assert list(source.scan(reader, ["key"])) == []
    assert source.row_bytes == 1
    with pytest.raises(StalePointer):
        source.fetch(reader, [(reader.size, 0)], ["key"])


def test_a_pointer_is_the_record_or_the_marker_before_it() -> None:
    data = written(ROWS[:10], every=4)
    reader = BytesReader(data)
    source = open_source(reader, "sequence")
    batch = next(source.scan(reader, ["key"]))
    offsets = batch[OFFSET].to_pylist()
    assert data[offsets[4] :].startswith(MARKER)
    assert data[offsets[5] + 9 :].startswith(b"key-005")
    both = source.fetch(reader, [(offsets[4], 0), (offsets[4] + len(MARKER), 0)], ["key"])
    assert both["key"].to_pylist() == ["key-004", "key-004"]
    assert batch[SIZE].to_pylist()[4] == len(record(text(ROWS[4][0]), text(ROWS[4][1])))


def test_markers_may_follow_each_other_and_end_the_file() -> None:
    parts = [header(HADOOP + "Text", HADOOP + "Text"), record(text("a"), text("b")), MARKER, MARKER]
    parts += [record(text("c"), text("d")), MARKER]
    assert scanned(b"".join(parts))["key"].to_pylist() == ["a", "c"]


def test_a_fetch_reads_8_kb_of_small_records_and_one_round() -> None:
    rows = [(f"{i:06}", "v" * 90) for i in range(5000)]
    reader = BytesReader(written(rows, every=50))
    source = open_source(reader, "sequence")
    pointers = pointers_of(source.scan(reader, []))
    reader.forget()
    assert source.fetch(reader, [pointers[2500]], ["key"])["key"].to_pylist() == ["002500"]
    assert reader.reads == [(pointers[2500][0], 8192)]
    reader.forget()
    source.fetch(reader, [pointers[i] for i in (4000, 10, 11, 2000)], ["key"])
    assert reader.rounds == 1
    assert [offset for offset, _ in reader.reads] == [pointers[i][0] for i in (10, 2000, 4000)]


def test_a_record_beyond_the_guess_takes_a_second_round_of_its_own() -> None:
    rows = [(f"{i:03}", "v" * (200_000 if i == 40 else 10)) for i in range(80)]
    reader = BytesReader(written(rows, every=1000))
    source = open_source(reader, "sequence")
    pointers = pointers_of(source.scan(reader, []))
    reader.forget()
    table = source.fetch(reader, [pointers[i] for i in (60, 40, 3)], ["key", "value"])
    assert table.to_pylist() == [{"key": rows[i][0], "value": rows[i][1]} for i in (60, 40, 3)]
    assert reader.rounds == 2
    assert reader.bytes_read < 200_000 + 3 * 8192 + 100


def test_a_fetch_from_blocks_reads_each_block_once_and_knows_its_length_the_second_time() -> None:
    rows = [(f"{i:05}", noise(i, 30)) for i in range(6000)]
    reader = BytesReader(written(rows, codec="SnappyCodec", blocks=True, every=3000))
    source = open_source(reader, "sequence")
    pointers = pointers_of(source.scan(reader, []))
    block = pointers[3000][0] - pointers[0][0]
    assert 100_000 < block < 300_000
    for _ in range(2):
        reader.forget()
        table = source.fetch(reader, [pointers[i] for i in (2999, 17, 2999)], ["key"])
        assert table["key"].to_pylist() == ["02999", "00017", "02999"]
    assert reader.rounds == 1
    assert block <= reader.bytes_read <= 2 * block


def test_a_long_block_is_read_in_few_rounds() -> None:
    rows = [(noise(i, 15), noise(i, 25)) for i in range(9000)]
    reader = BytesReader(written(rows, codec="SnappyCodec", blocks=True, every=9000))
    source = open_source(reader, "sequence")
    assert reader.size > 300_000
    start = header(HADOOP + "Text", HADOOP + "Text", "org.apache.hadoop.io.compress.SnappyCodec", True)
    reader.forget()
    assert source.fetch(reader, [(len(start), 8999)], ["key"])["key"].to_pylist() == [rows[-1][0]]
    assert reader.rounds <= 3
    assert reader.bytes_read == reader.size - len(start)


def test_many_pointers_are_fetched_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "TOGETHER", 3000)
    monkeypatch.setattr(blocks, "TOGETHER", 3000)
    rows = [(f"{i:05}", f"{i}" * (i % 90)) for i in range(400)]
    for options in ({}, {"codec": "DefaultCodec"}, {"codec": "DefaultCodec", "blocks": True}):
        reader = BytesReader(written(rows, **options))
        source = open_source(reader, "sequence")
        pointers = pointers_of(source.scan(reader, []))
        table = source.fetch(reader, pointers[::-1], ["key", "value"])
        assert table.to_pylist() == [{"key": key, "value": value} for key, value in rows[::-1]]


def test_scan_reads_on_in_pieces_and_carries_what_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHUNK", 100)
    monkeypatch.setattr(layout, "BEYOND", 30)
    for options in ({}, {"codec": "GzipCodec"}, {"codec": "GzipCodec", "blocks": True}, {"every": 1}):
        data = written(ROWS, **options)
        table = scanned(data)
        assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == ROWS
        reader = BytesReader(data)
        source = open_source(reader, "sequence")
        parts = [source.scan(reader, ["key"], split) for split in source.splits(170)]
        assert [key for part in parts for batch in part for key in batch["key"].to_pylist()] == [k for k, _ in ROWS]


def test_a_split_reads_little_beyond_its_end() -> None:
    rows = [(f"{i:06}", "v" * 90) for i in range(20_000)]
    reader = BytesReader(written(rows, every=100))
    source = open_source(reader, "sequence")
    split = source.splits(300_000)[3]
    reader.forget()
    batches = list(source.scan(reader, ["key"], split))
    assert reader.bytes_read < 2 * 300_000 + 2 * (64 << 10)
    first = batches[0][OFFSET][0].as_py()
    assert split[0] <= first < split[1]


def test_batches_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon.sources.sequence import blocks, records

    for module in (blocks, records):
        monkeypatch.setattr(module, "BATCH_ROWS", 8)
    for module in (blocks, layout):
        monkeypatch.setattr(module, "BATCH_BYTES", 2000)
    rows = [(f"{i:03}", "v" * 300) for i in range(50)]
    for options in ({}, {"codec": "DefaultCodec"}, {"codec": "DefaultCodec", "blocks": True, "every": 50}):
        reader = BytesReader(written(rows, **options))
        batches = list(open_source(reader, "sequence").scan(reader, ["key", "value"]))
        assert sum(batch.num_rows for batch in batches) == 50
        assert max(batch.num_rows for batch in batches) <= 8
        assert max(batch.nbytes for batch in batches) < 2000 + 1200


def test_values_that_no_one_asks_for_are_not_unpacked() -> None:
    """Their codec would fail if they were unpacked."""
    data = written(ROWS, codec="DefaultCodec", blocks=True, every=1000)
    broken = data[:-3] + b"\x00\x00\x00"
    assert scanned(broken, ["key"])["key"].to_pylist() == [key for key, _ in ROWS]
    with pytest.raises(DamagedSource, match=r"lake/x at byte .*: a block's values cannot be decompressed"):
        scanned(broken, ["value"])


def test_streams_may_follow_each_other_in_one_buffer() -> None:
    import gzip

    body = gzip.compress(text("hello")[:3]) + gzip.compress(text("hello")[3:])
    data = header(HADOOP + "Text", HADOOP + "Text", "org.apache.hadoop.io.compress.GzipCodec")
    assert scanned(data + record(text("a"), body))["value"].to_pylist() == ["hello"]


def test_frames_may_follow_each_other_and_be_empty() -> None:
    import cramjam

    def frame(part: bytes) -> bytes:
        packed = bytes(cramjam.snappy.compress_raw(part))
        return struct.pack(">ii", len(part), len(packed)) + packed

    whole = text("hello world")
    head = header(HADOOP + "Text", HADOOP + "Text", "org.apache.hadoop.io.compress.SnappyCodec")
    data = head + record(text("a"), frame(whole[:5]) + frame(whole[5:]))
    assert scanned(data)["value"].to_pylist() == ["hello world"]
    nulls = header(HADOOP + "Text", HADOOP + "NullWritable", "org.apache.hadoop.io.compress.SnappyCodec")
    assert scanned(nulls + record(text("a"), struct.pack(">i", 0)))["value"].to_pylist() == [None]


def test_a_wrong_sub_offset_is_stale() -> None:
    plain, block = (
        BytesReader(written(ROWS), "lake/x"),
        BytesReader(written(ROWS, codec="GzipCodec", blocks=True), "lake/x"),
    )
    for reader, message in ((plain, "must be 0 in a file of single records"), (block, "no row 7 in a block of 7")):
        source = open_source(reader, "sequence")
        offset = pointers_of(source.scan(reader, []))[0][0]
        with pytest.raises(StalePointer, match=message):
            source.fetch(reader, [(offset, 7)], ["key"])
    with pytest.raises(StalePointer, match="no row -1"):
        source.fetch(reader, [(offset, -1)], ["key"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"codec": "DefaultCodec"},
        {"codec": "DefaultCodec", "blocks": True},
        {"key": "LongWritable", "value": "LongWritable"},
        {"key": "LongWritable", "value": RAW_CLASS},
        {"key": RAW_CLASS, "value": RAW_CLASS},
        {"key": "NullWritable", "value": "Text"},
        {"key": "NullWritable", "value": "Text", "codec": "SnappyCodec"},
    ],
    ids=str,
)
def test_a_pointer_that_is_no_record_is_refused_wherever_it_points(options: dict[str, Any]) -> None:
    makers = {RAW_CLASS: lambda i: struct.pack(">iiii", 8, 4, i, i) * 3, "NullWritable": lambda i: None}
    long = lambda i: i * 7919  # noqa: E731
    makers |= {"LongWritable": long, "Text": lambda i: f"text {i} " * (i % 9)}
    key, value = (makers[options.get(name, "Text")] for name in ("key", "value"))
    data = written([(key(i), value(i)) for i in range(20)], **options)
    reader = BytesReader(data, "lake/x")
    source = open_source(reader, "sequence")
    good = {offset for offset, _ in pointers_of(source.scan(reader, []))}
    if "blocks" not in options:
        good |= {offset + len(MARKER) for offset in good if data[offset:].startswith(MARKER)}
    for offset in [*range(-2, len(data) + 3), 1 << 62, 1 << 70]:
        if offset in good:
            source.fetch(reader, [(offset, 0)], ["key", "value"])
            continue
        with pytest.raises((StalePointer, DamagedSource), match="lake/x"):
            source.fetch(reader, [(offset, 0)], ["value"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends inside its header, after 0 bytes"),
        (b"SEQ", "ends inside its header, after 3 bytes"),
        (b"PAR1" * 20, "begins with b'PAR', a SequenceFile begins with b'SEQ'"),
        (written(ROWS)[:50], "ends inside its header, after 50 bytes"),
        (b"SEQ\x06" + vint(-5), "the header claims a key class of -5 bytes"),
        (b"SEQ\x06" + vint(2**31 - 1), "the header claims a key class of 2147483647 bytes"),
        (b"SEQ\x06" + text(b"\xff\xff") + text("x") + bytes(40), "the header's key class is not UTF-8"),
        (b"SEQ\x06" + text("k") + text("v") + b"\x02" + bytes(40), "has a flag of 2"),
        (
            b"SEQ\x06" + text("k") + text("v") + b"\x00\x01" + bytes(40),
            "is marked as block-compressed",
        ),
        (b"SEQ\x06" + text("k") + text("v") + b"\x00\x00\xff\xff\xff\xff" + SYNC, "claims -1 pairs of metadata"),
        (b"SEQ\x06" + text("k") + text("v") + b"\x00\x00\x00\x01\x00\x00" + bytes(64), "ends inside its header"),
    ],
)
def test_a_damaged_header_is_reported(data: bytes, message: str) -> None:
    with pytest.raises(DamagedSource, match=message):
        open_source(BytesReader(data, "lake/x"), "sequence")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SEQ\x09" + bytes(60), "a SequenceFile of version 9, expected 4 to 6"),
        (b"SEQ\x03" + bytes(60), "a SequenceFile of version 3"),
        (b"SEQ\x06" + text("org.apache.hadoop.hive.ql.io.RCFile$KeyBuffer") + text("v") + bytes(9), "a Hive RCFile"),
        (b"RCF\x01" + bytes(60), "a Hive RCFile"),
        (header("k", "v", "com.hadoop.compression.lzo.LzoCodec"), "LzoCodec': LZO is not supported"),
        (header("k", "v", "com.example.MyCodec"), "MyCodec': unknown codec; supported: DefaultCodec"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedFormat, match=rf"^lake/x at byte \d: .*{message}"):
        open_source(BytesReader(data, "lake/x"), "sequence")


def test_a_header_longer_than_the_first_read_is_read_on() -> None:
    notes = {f"note {i}": "n" * 1000 for i in range(200)}
    table = scanned(written(ROWS, metadata=notes))
    assert table["key"].to_pylist() == [key for key, _ in ROWS]


def test_an_unknown_column_is_a_key_error() -> None:
    reader = BytesReader(written(ROWS))
    with pytest.raises(KeyError, match="no column 'x'; it has key, value"):
        open_source(reader, "sequence").fetch(reader, [(0, 0)], ["x"])


def test_a_column_may_be_asked_for_twice_and_none_at_all() -> None:
    for options in ({}, {"codec": "GzipCodec", "blocks": True}):
        reader = BytesReader(written(ROWS[:3], **options))
        source = open_source(reader, "sequence")
        pointers = pointers_of(source.scan(reader, []))
        assert source.fetch(reader, pointers, ["key", "value", "key"]).column_names == ["key", "value", "key"]
        assert source.fetch(reader, pointers, []).num_rows == 3


def test_a_record_within_a_value_harms_no_other() -> None:
    """A record inside of a value looks like a record of the file when its pointer is fetched."""
    packed = record(text("packed"), struct.pack(">i", 20_000) + bytes(20_000))
    outer = bytes(100) + packed + b"x" * 40_000
    small = [("a", bytes(20))] * 2000  # so that the first read at a pointer is small
    data = written([*small, ("b", outer), ("c", b"")], value="BytesWritable", every=3000)
    reader = BytesReader(data, "lake/x")
    source = open_source(reader, "sequence")
    pointers = pointers_of(source.scan(reader, []))
    table = source.fetch(reader, [(data.index(packed), 0), *pointers[2000:]], ["value"])
    assert table["value"].to_pylist() == [bytes(20_000), outer, b""]

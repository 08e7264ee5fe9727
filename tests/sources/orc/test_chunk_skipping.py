"""The chunks of ORC streams: the bytes copied and unpacked, and single rows compared with a scan."""

import io
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, open_source
from gnomon.sources.orc import streams, stripe_rows
from gnomon.sources.orc.metadata import DATA
from gnomon.sources.orc.streams import Codec
from tests.sources.orc_chunks import in_chunks
from tests.sources.orc_files import by_pyorc, written
from tests.sources.readers import BytesReader

PAIRS = pa.map_(pa.string(), pa.int64())
CODECS = ("uncompressed", "zlib", "snappy", "lz4", "zstd")


class Counted(bytes):
    """Bytes that count the copied bytes."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        if isinstance(part, bytes):
            Counted.copied += len(part)
        return part


class CountingReader(BytesReader):
    def _bytes(self, offset: int, length: int) -> bytes:
        return Counted(super()._bytes(offset, length))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_were_read_are_copied_once(codec: str) -> None:
    """A copy of the rest with each chunk would take quadratic time."""
    dice = np.random.default_rng(1)
    table = pa.table({"text": [dice.bytes(1500).hex() for _ in range(1000)]})
    reader = CountingReader(written(table, compression=codec, row_index_stride=1000))
    source = open_source(reader, "orc")
    for rows in ([999], range(1000)):
        Counted.copied = 0
        reader.forget()
        assert source.fetch(reader, [(row, 0) for row in rows], ["text"]).num_rows == len(rows)
        assert reader.bytes_read > 1_000_000
        assert Counted.copied < 1.1 * reader.bytes_read
    Counted.copied = 0
    reader.forget()
    assert sum(batch.num_rows for batch in source.scan(reader, ["text"])) == 1000
    assert Counted.copied < 1.1 * reader.bytes_read


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each unpacked chunk of a stream."""
    sizes: list[int] = []
    unpack = Codec.unpack

    def counted(self: Codec, header: bytes, body: bytes) -> bytes:
        content = unpack(self, header, body)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(Codec, "unpack", counted)
    return sizes


def texts(rows: int, most: int, seed: int = 2) -> pa.Array:
    """Texts of lengths from 0 to `most`, which compress to about half."""
    dice = np.random.default_rng(seed)
    return pa.array([dice.bytes(int(length) // 2).hex() for length in dice.integers(0, most, rows)], pa.string())


def fetched(reader: BytesReader, rows: list[int], column: str = "text") -> pa.Array:
    return open_source(reader, "orc").fetch(reader, [(row, 0) for row in rows], [column])[column].combine_chunks()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_of_a_wide_row_no_more_is_unpacked_than_the_chunks_it_lies_in(codec: str, unpacked: list[int]) -> None:
    values = texts(1000, 16_000)
    block = 64 << 10
    reader = BytesReader(written(pa.table({"text": values}), compression=codec, row_index_stride=400))
    ends = np.cumsum([len(text) for text in values.to_pylist()])
    assert ends[400] > 2 << 20
    source = open_source(reader, "orc")
    source.fetch(reader, [(0, 0)], ["text"])
    for row in (390, 399, 700, 799, 950, 999):
        unpacked.clear()
        assert source.fetch(reader, [(row, 0)], ["text"])["text"].combine_chunks().equals(values.slice(row, 1))
        spanned = int(ends[row] // block - (ends[row] - len(values[row].as_py())) // block) + 1
        # the last chunk of the stripe if the row's group is the last in the row index, and one chunk of the lengths
        assert len(unpacked) <= spanned + 2 + (row >= 800), row


@pytest.mark.parametrize("codec", CODECS)
def test_each_row_alone_is_what_it_is_in_a_scan(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, blobs and floats, plain and in lists, structs, maps and unions, with nulls; and dictionaries."""
    monkeypatch.setattr(streams, "LEAST_LEAP", 1 << 10)
    rows = 330
    values = texts(rows, 4000).to_pylist()
    dice = np.random.default_rng(4)
    table = pa.table(
        {
            "text": [None if i % 7 == 3 else value for i, value in enumerate(values)],
            "blob": pa.array([value.encode() * (i % 3) for i, value in enumerate(values)], pa.binary()),
            "list": [None if i % 9 == 4 else [value, None, value[:77]][: i % 4] for i, value in enumerate(values)],
            "struct": [None if i % 5 == 2 else {"n": i, "text": value} for i, value in enumerate(values)],
            "map": pa.array([[(value, 1), ("b", 2)][: i % 3] for i, value in enumerate(values)], PAIRS),
            "floats": [dice.random(i % 600).tolist() for i in range(rows)],
            "few": [f"{i % 5}" * 900 for i in range(rows)],
        }
    )
    for stride, options in (
        (100, {}),
        (10_000, {}),
        (60, {"dictionary_key_size_threshold": 0.9, "file_version": "0.11"}),
    ):
        reader = BytesReader(written(table, compression=codec, row_index_stride=stride, **options))
        source = open_source(reader, "orc")
        whole = pa.Table.from_batches(source.scan(reader, table.column_names)).select(table.column_names)
        assert whole.equals(table)
        for row in range(3, rows, 11):
            assert source.fetch(reader, [(row, 0)], table.column_names).equals(table.slice(row, 1)), row
        some = [1, 2, 90, 99, 100, 101, 207, 329]
        assert source.fetch(reader, [(row, 0) for row in some], table.column_names).equals(table.take(some))


@pytest.mark.parametrize("kind", [1, 5], ids=["zlib", "zstd"])
def test_rows_of_pyorc_and_its_unions_too(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LEAST_LEAP", 1 << 10)
    values = texts(300, 6000).to_pylist()
    rows = [(None if i % 4 == 1 else value, i if i % 3 else value) for i, value in enumerate(values)]
    shape = "struct<text:string,u:uniontype<int,string>>"
    options = {"row_index_stride": 90, "compression": kind, "compression_block_size": 64 << 10}
    reader = BytesReader(by_pyorc(shape, rows, **options))
    source = open_source(reader, "orc")
    for row in range(0, 300, 3):
        found = source.fetch(reader, [(row, 0)], ["text", "u"])
        assert (python_values(found["text"])[0], python_values(found["u"])[0]) == rows[row], row


CUTS = {
    "all full": repeat(1024),
    "one in two": [*[1024] * 60, 500, 524, *[1024] * 2000],
    "one short in two groups": [*[1024] * 60, 924, *[1024] * 110, 924, *[1024] * 2000],
    "all short": repeat(700),
    "of any size": [300, 1024, 1, 1023] * 1000,
}


@pytest.mark.slow
@pytest.mark.parametrize("spare", [b"", b"x" * 5000], ids=["", "bytes behind the last text"])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("packs", [True, False], ids=["packed", "as they are"])
def test_chunks_that_are_not_full_are_not_taken_for_full_ones(
    cuts: str, packs: bool, spare: bytes, monkeypatch: pytest.MonkeyPatch, unpacked: list[int]
) -> None:
    monkeypatch.setattr(streams, "LEAST_LEAP", 1)
    dice = np.random.default_rng(6)
    lengths = dice.integers(0, 800, 500)
    values = texts(500, 800) if packs else pa.array([dice.bytes(int(each)) for each in lengths], pa.binary())
    reader = BytesReader(in_chunks(values, 200, 1024, CUTS[cuts], spare))
    source = open_source(reader, "orc")
    assert orc.read_table(io.BytesIO(reader.data))["text"].combine_chunks().equals(values)
    assert pa.Table.from_batches(source.scan(reader, ["text"]))["text"].combine_chunks().equals(values)
    for row in range(500):
        unpacked.clear()
        found = source.fetch(reader, [(row, 0)], ["text"])["text"].combine_chunks()
        assert found.equals(values.slice(row, 1)), row
        leaps = not packs or cuts == "all full" or (cuts.startswith("one") and row >= 200)
        if row < 400 and leaps:
            assert len(unpacked) < 8, row
        elif row in (199, 399):
            assert len(unpacked) > 60, row


def test_rows_of_a_stride_together_are_right_where_chunks_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LEAST_LEAP", 1)
    values = texts(500, 800)
    dice = np.random.default_rng(7)
    for cuts in CUTS.values():
        reader = BytesReader(in_chunks(values, 100, 1024, cuts))
        monkeypatch.setattr(stripe_rows, "GAP_ROWS", 1)
        for _ in range(60):
            rows = np.unique(dice.integers(0, 500, int(dice.integers(1, 9)))).tolist()
            assert fetched(reader, rows).equals(values.take(pa.array(rows))), rows


def test_a_damaged_chunk_refuses_the_rows_that_lie_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch refuses them, and skips the chunk for other rows; a scan refuses the stripe."""
    monkeypatch.setattr(streams, "LEAST_LEAP", 1)
    values = texts(500, 800)
    data = in_chunks(values, 100, 1024, repeat(1024))
    reader = BytesReader(data)
    source = open_source(reader, "orc")
    source.fetch(reader, [(0, 0)], ["text"])
    at, _ = source._stripes[0].streams[1, DATA]  # type: ignore[attr-defined]
    for _ in range(10):
        at += 3 + (int.from_bytes(data[at : at + 3], "little") >> 1)
    broken = BytesReader(data[: at + 3] + b"\xff" * 40 + data[at + 43 :], "lake/damaged")
    with pytest.raises(DamagedSource, match="lake/damaged"):
        list(open_source(broken, "orc").scan(broken, ["text"]))
    ends = np.cumsum([len(text) for text in values.to_pylist()])
    for row in range(500):
        begin, end = int(ends[row - 1]) if row else 0, int(ends[row])
        if begin < 11 << 10 and end > 10 << 10:
            with pytest.raises(DamagedSource, match=r"lake/damaged .* column 'text' in stripe 0: a chunk that cannot"):
                fetched(broken, [row])
        else:
            assert fetched(broken, [row]).equals(values.slice(row, 1)), row

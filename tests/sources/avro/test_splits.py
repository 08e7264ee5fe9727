"""Block boundaries and reads: splits, bytes that look like sync markers, bytes and rounds of a fetch."""

import random
from itertools import pairwise

import pytest

from gnomon.sources import DamagedSource, StalePointer
from gnomon.sources.avro import container, open_avro
from gnomon.sources.avro.reader import AvroFile
from tests.profiles import positions
from tests.sources.avro_files import FLAT, SYNC, block, flat_rows, header, number, records, sized, written
from tests.sources.readers import BytesReader
from tests.sources.source_contract import pointers_of

BYTES = {"type": "record", "name": "Raw", "fields": [{"name": "raw", "type": "bytes"}]}
KB = 1 << 10


def opened(data: bytes) -> tuple[BytesReader, AvroFile]:
    reader = BytesReader(data, "lake/file")
    return reader, open_avro(reader)


def rows_of_splits(data: bytes, cuts: list[int]) -> list[bytes]:
    reader, source = opened(data)
    edges = [0, *cuts, len(data)]
    splits = list(pairwise(edges))
    return [
        row for split in splits for batch in source.scan(reader, ["raw"], split) for row in batch["raw"].to_pylist()
    ]


def raw_file(payloads: list[bytes], more: dict[str, bytes] | None = None) -> bytes:
    """A block for each payload."""
    return header(BYTES, more=more) + b"".join(block(1, sized(payload)) for payload in payloads)


def test_every_cut_of_a_file_in_two_gives_each_row_once() -> None:
    payloads = [bytes([i]) * (i % 5) for i in range(12)]
    data = raw_file(payloads)
    for cut in positions(range(1, len(data))):
        assert rows_of_splits(data, [cut]) == payloads


LOOKALIKES = {
    "a marker": SYNC,
    "a marker and a block cut short": SYNC + number(1) + number(1 << 20),
    "a marker and a block": SYNC + block(1, sized(b"made up")),
    "a marker and blocks": SYNC + block(1, sized(b"made up")) * 3,
    "a marker and a block that ends with the real one": SYNC + number(1) + number(4) + sized(b"not"),
}


@pytest.mark.parametrize("payload", LOOKALIKES.values(), ids=LOOKALIKES)
def test_sync_markers_within_rows_begin_no_blocks(payload: bytes) -> None:
    payloads = [b"first", payload, b"between", payload * 3, payload, b"last"]
    data = raw_file(payloads)
    for cut in positions(range(1, len(data))):
        assert rows_of_splits(data, [cut]) == payloads


def test_sync_markers_within_the_metadata_begin_no_blocks() -> None:
    data = raw_file([b"a", b"b"], {"mark": b"x" + SYNC + block(1, sized(b"made up")) + SYNC})
    for cut in positions(range(1, len(data))):
        assert rows_of_splits(data, [cut]) == [b"a", b"b"]


def test_blocks_longer_than_what_is_looked_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "LOOK_BACK", 8)
    monkeypatch.setattr(container, "LONG_READ", 40)
    payloads = [bytes([i]) * 100 for i in range(5)]
    data = raw_file(payloads)
    for cut in positions(range(1, len(data))):
        assert rows_of_splits(data, [cut]) == payloads


def test_splits_of_random_sizes_give_each_row_once() -> None:
    dice = random.Random(5)
    payloads = [dice.randbytes(dice.choice((0, 3, 200))) for _ in range(60)]
    data = raw_file(payloads)
    for _ in range(100):
        assert rows_of_splits(data, sorted(dice.sample(range(len(data)), 6))) == payloads


def test_a_damaged_head_between_two_splits_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second split cannot distinguish the damaged block from bytes of a row, but the first one can."""
    monkeypatch.setattr(container, "LOOK_BACK", 0)
    data = bytearray(raw_file([b"a" * 50, b"b" * 50, b"c" * 50]))
    second = len(header(BYTES)) + len(block(1, sized(b"a" * 50)))
    data[second + 1] ^= 4
    for cut in (second - 5, second, second + 5):
        with pytest.raises(DamagedSource, match=f"lake/file at byte .*block at byte {second}"):
            rows_of_splits(bytes(data), [cut])


def test_a_fetch_of_a_row_reads_its_block_in_one_round() -> None:
    reader, source = opened(written(FLAT, flat_rows(4000), "null", block_bytes=16 * KB))
    pointers = pointers_of(source.scan(reader, []))
    blocks = sorted({offset for offset, _ in pointers})
    assert len(blocks) > 10
    lengths = dict(zip(blocks, [*blocks[1:], reader.size], strict=True))
    reader.forget()
    source.fetch(reader, [pointers[2000]], ["id"])
    offset = pointers[2000][0]
    assert reader.rounds == 1
    assert reader.reads == [(offset - 16, 16 + 64 * KB)]  # the length is not known yet
    reader.forget()
    source.fetch(reader, [pointers[2000]], ["id"])
    assert reader.reads == [(offset - 16, 16 + lengths[offset] - offset)]


def test_a_fetch_of_many_rows_reads_each_block_once_and_all_in_one_round() -> None:
    reader, source = opened(written(FLAT, flat_rows(2000), "deflate", block_bytes=4 * KB))
    pointers = pointers_of(source.scan(reader, []))
    blocks = {offset for offset, _ in pointers}
    reader.forget()
    table = source.fetch(reader, pointers[::-1] + pointers, ["id"])
    assert table["id"].to_pylist() == [row["id"] for row in [*flat_rows(2000)[::-1], *flat_rows(2000)]]
    assert reader.rounds == 1
    assert len(reader.reads) == len(blocks)
    assert reader.bytes_read <= reader.size + 16 * len(blocks)


def test_blocks_longer_than_the_guess_take_a_second_round() -> None:
    data = raw_file([b"a", b"b" * 300 * KB, b"c" * 200 * KB])
    reader, source = opened(data)
    first, second, third = [offset for offset, _ in pointers_of(source.scan(reader, []))]
    reader.forget()
    rows = source.fetch(reader, [(third, 0), (second, 0)], ["raw"])["raw"].to_pylist()
    assert [len(row) for row in rows] == [200 * KB, 300 * KB]
    assert reader.rounds == 2
    assert reader.bytes_read == len(data) - second + 2 * 16
    reader.forget()
    source.fetch(reader, [(first, 0), (third, 0), (second, 0)], ["raw"])
    assert reader.rounds == 1


def test_opening_costs_one_round_and_a_scan_long_reads() -> None:
    payloads = [bytes(100 * KB)] * 100
    reader, source = opened(raw_file(payloads))
    assert reader.rounds == 1
    reader.forget()
    batches = list(source.scan(reader, ["raw"]))
    assert len(batches) > 1
    assert max(batch.nbytes for batch in batches) < 5 << 20
    assert len(reader.reads) <= 4
    assert reader.bytes_read <= reader.size


def test_a_scan_of_a_split_reads_little_beyond_it() -> None:
    payloads = [bytes(100 * KB)] * 100
    reader, source = opened(raw_file(payloads))
    reader.forget()
    list(source.scan(reader, ["raw"], (5 << 20, 6 << 20)))
    assert reader.bytes_read < 2.3 * (1 << 20) + 4 * 100 * KB


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_pointer_that_is_none_is_stale(codec: str) -> None:
    data = written(FLAT, flat_rows(), codec)
    reader, source = opened(data)
    pointers = set(pointers_of(source.scan(reader, [])))
    blocks = {offset for offset, _ in pointers}
    for offset in (*range(-1, len(data) + 2), 1 << 62):
        if offset not in blocks:
            with pytest.raises(StalePointer, match="lake/file"):
                source.fetch(reader, [(offset, 0)], ["id"])
    for offset in blocks:
        rows = sum(one == offset for one, _ in pointers)
        for row in (-1, rows, rows + 1, 1 << 40):
            with pytest.raises(StalePointer, match="lake/file"):
                source.fetch(reader, [(offset, row)], ["id"])


def test_a_long_header_is_read_in_steps_that_grow() -> None:
    reader, source = opened(header(BYTES, more={"note": bytes(1 << 20)}) + block(1, records(BYTES, [{"raw": b"x"}])))
    assert reader.rounds == 3
    assert [batch["raw"].to_pylist() for batch in source.scan(reader, ["raw"])] == [[b"x"]]

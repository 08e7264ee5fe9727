"""A Bloom filter never denies a key it holds, lets few others pass, and detects every changed byte."""

import io
import struct
import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from gnomon.btree import bloom
from gnomon.btree.blocks import LookupStats
from gnomon.btree.bloom import PAGE_BYTES, BloomFilter, BloomFilterReader, blocks_for, false_positive_rate
from gnomon.btree.errors import DamagedIndexFile
from tests.btree.files import NAME, Bytes
from tests.profiles import examples, positions

LONGS = st.integers(-(2**63), 2**63 - 1)


def random_hashes(count: int, seed: int = 1) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count, dtype=np.int64)


def opened(data: bytes, **options: bool) -> BloomFilterReader:
    return BloomFilterReader(Bytes(data), **options)


@pytest.fixture
def by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read filters page by page, as large ones."""
    for name, value in (("WHOLE_BYTES", 0), ("SMALL_BYTES", 0), ("PAGES_FOR_ONE", 0)):
        monkeypatch.setattr(bloom, name, value)


# -- keys --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(st.lists(LONGS), st.lists(LONGS), st.sampled_from([0.3, 0.01, 1e-6]))
def test_it_never_denies_a_key_it_holds_and_answers_one_as_many(held: list[int], asked: list[int], rate: float) -> None:
    made = BloomFilter.build(np.array(held, np.int64), rate)
    reader = opened(made.data)
    assert all(reader.may_contain(hash_) for hash_ in held)
    assert reader.may_contain_many(np.array(held, np.int64)).all()
    answers = reader.may_contain_many(np.array(asked, np.int64))
    assert answers.tolist() == [reader.may_contain(hash_) for hash_ in asked]
    assert made.keys == reader.keys == len(set(held))


@pytest.mark.parametrize("count", [1000, 30_000, 300_000])
@pytest.mark.parametrize("rate", [0.1, 0.01, 0.001])
def test_the_share_of_absent_keys_that_pass_is_the_one_stated(count: int, rate: float) -> None:
    reader = opened(BloomFilter.build(random_hashes(count), rate).data)
    passed = reader.may_contain_many(random_hashes(1_000_000, seed=2)).mean()
    assert rate / 1.3 < passed < 1.3 * rate


def test_bits_a_key_are_those_of_the_parquet_specification() -> None:
    bits = {rate: blocks_for(1_000_000, rate) * 256 / 1_000_000 for rate in (0.1, 0.01, 0.001, 0.0001, 0.00001)}
    assert list(bits.values()) == pytest.approx([6.0, 10.5, 16.9, 26.4, 41], rel=0.005)
    assert blocks_for(0, 0.01) == blocks_for(1, 0.01) == 1
    assert false_positive_rate(10**6, 1) == 1
    assert false_positive_rate(1000, 41) > 0.01 >= false_positive_rate(1000, blocks_for(1000, 0.01))


def test_a_filter_of_no_key_denies_all() -> None:
    reader = opened(BloomFilter.build(np.zeros(0, np.int64)).data)
    assert not reader.may_contain_many(random_hashes(1000)).any()


def test_a_key_many_times_counts_once() -> None:
    once, often = (BloomFilter.build(np.repeat(random_hashes(100), times)) for times in (1, 50))
    assert once == often


@pytest.mark.parametrize("keys", [5, 300, 20_000])
def test_the_blocks_are_those_of_a_parquet_file(keys: int) -> None:
    """They are compared with pyarrow's filter of the same values, which has XXH64 with seed 0 and a power of two of
    blocks."""
    out = io.BytesIO()
    values = np.arange(keys) * 7919
    options = {"v": {"ndv": keys, "fpp": 0.01}}
    pq.write_table(pa.table({"v": values}), out, bloom_filter_options=options)
    hashes = np.sort(np.array([xxh64_intdigest(struct.pack("<q", value), 0) for value in values], np.uint64))
    ours = {blocks: bloom._filled(hashes.view(np.int64), blocks) for blocks in (2**power for power in range(14))}
    found = [blocks for blocks, body in ours.items() if body in out.getvalue()]
    assert len(found) == 1
    assert found[0] >= blocks_for(keys, 0.02)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("by_page")
def test_a_check_of_a_large_file_reads_its_head_once_and_then_one_page() -> None:
    hashes = random_hashes(100_000)
    file, stats = Bytes(BloomFilter.build(hashes).data), LookupStats()
    reader = BloomFilterReader(file, keep=False, stats=stats)
    assert reader.cache_bytes < 2000
    assert all(reader.may_contain(int(hash_), stats) for hash_ in hashes[:10])
    assert [length for _, length in file.reads[1:]] == [PAGE_BYTES] * 10
    assert (stats.reads, stats.filter_checks) == (11, 10)
    assert stats.bytes == stats.filter_bytes == file.reads[0][1] + 10 * PAGE_BYTES


@pytest.mark.usefixtures("by_page")
@given(st.integers(0, 2**32), st.integers(1, 300))
@settings(max_examples=examples(50))
def test_pages_answer_as_the_whole(seed: int, count: int) -> None:
    held, asked = random_hashes(30_000), random_hashes(count, seed)
    asked[::3] = held[: len(asked[::3])]
    reader = opened(BloomFilter.build(held, 0.1).data, keep=False)
    answers = reader.may_contain_many(asked)
    assert answers.tolist() == [reader.may_contain(hash_) for hash_ in asked.tolist()]
    assert answers[::3].all()


@pytest.mark.parametrize("keep", [True, False])
def test_a_large_file_is_read_whole_when_many_pages_were_asked_for_and_kept_if_it_may_be(keep: bool) -> None:
    hashes = random_hashes(1_000_000)
    file = Bytes(BloomFilter.build(hashes).data)
    reader = BloomFilterReader(file, keep=keep)
    for hash_ in hashes[:30].tolist():
        assert reader.may_contain(hash_)
    assert len(file.reads) == (22 if keep else 31)
    assert (reader.cache_bytes > 1_300_000) == keep
    assert reader.may_contain_many(hashes).all()
    assert len(file.reads) == (22 if keep else 32)


def test_small_files_are_one_read() -> None:
    for count, keep in ((100_000, True), (10_000, False)):
        file = Bytes(BloomFilter.build(random_hashes(count)).data)
        BloomFilterReader(file, keep=keep).may_contain(1)
        assert len(file.reads) == 1


# -- damage ------------------------------------------------------------------------------------------------------------


def refused(data: bytes, crc32: int | None = None, keep: bool = True) -> DamagedIndexFile:
    hashes = random_hashes(1000)
    with pytest.raises(DamagedIndexFile, match=r"filters=False") as caught:
        BloomFilterReader(Bytes(data), crc32, keep).may_contain_many(hashes)
    assert caught.value.path == NAME
    assert 0 <= caught.value.offset <= len(data)
    return caught.value


def test_every_flipped_byte_is_noticed() -> None:
    data = BloomFilter.build(random_hashes(200)).data
    for at in positions(range(len(data))):
        for bit in (0x01, 0x80):
            refused(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])


@pytest.mark.usefixtures("by_page")
def test_every_flipped_byte_is_noticed_in_the_page_it_lies_in() -> None:
    hashes = random_hashes(1000)
    data = BloomFilter.build(hashes, 1e-6).data
    head = len(data) - blocks_for(1000, 1e-6) * 32
    for at in positions(range(0, len(data), 61)):
        offset = refused(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], keep=False).offset
        assert offset <= at < offset + (head if at < head else PAGE_BYTES)


@pytest.mark.parametrize("keep", [True, False])
def test_every_cut_and_every_byte_too_many_is_noticed(keep: bool) -> None:
    data = BloomFilter.build(random_hashes(500)).data
    for length in positions(range(len(data))):
        refused(data[:length], keep=keep)
    refused(data + b"\0", keep=keep)


def test_a_reader_that_gives_fewer_bytes_is_noticed() -> None:
    class Short(Bytes):
        def read_range(self, offset: int, length: int) -> bytes:
            return super().read_range(offset, length)[:-1]

    with pytest.raises(DamagedIndexFile, match="expected 216 bytes, found 215"):
        BloomFilterReader(Short(BloomFilter.build(random_hashes(100)).data))


def test_the_sound_filter_of_another_file_is_noticed() -> None:
    one, other = BloomFilter.build(random_hashes(100)), BloomFilter.build(random_hashes(100, seed=2))
    assert len(one.data) == len(other.data)
    assert "expected" in str(refused(one.data, other.crc32))
    assert opened(one.data).may_contain(int(random_hashes(100)[0]))


def test_a_later_version_and_another_hash_are_refused() -> None:
    data = BloomFilter.build(random_hashes(10)).data
    assert "version 2, expected 1" in str(refused(data[:4] + b"\2\0" + data[6:]))
    for at, value in ((8, b"spark-xxhash63\0\0"), (24, struct.pack("<Q", 43)), (6, struct.pack("<H", 64))):
        head = data[:at] + value + data[at + len(value) : 52]
        changed = head + struct.pack("<I", zlib.crc32(head)) + data[56:]
        assert "not a filter of this program" in str(refused(changed))

"""Bloom filters: "surely not" or "perhaps" for a key, from about ten bits per key. This module has every byte rule of a
filter file.

A filter is a split-block filter with the blocks, salts and arithmetic of the Parquet format (BloomFilter.md there),
over the XXH64 of a key by `hashing.xxhash64`. A block has 256 bits in eight 32-bit words; a key sets one bit in each
word of one block. So a check reads one block, and a file need not be read whole: its blocks lie in pages, each with a
checksum.

    head    magic, version, blocks a page, name of the hash, seed, keys, blocks     48 bytes, little-endian
            CRC-32 of each page                                                     4 bytes each
            CRC-32 of the head up to here; metadata that name the file have it      4 bytes
    pages   the blocks, 32 bytes each, as in a Parquet file
"""

import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from gnomon.base import kernel
from gnomon.base.errors import Action
from gnomon.base.hashes_python import BLOCK_BYTES, MOST_BLOCKS, SALTS, SEED
from gnomon.base.readers import MemoryFile, RangeReader, looking_again
from gnomon.btree.blocks import LookupStats
from gnomon.btree.errors import DamagedIndexFile
from gnomon.btree.hashing import FILTER_HASH_NAME

FALSE_POSITIVES = 0.01  # share of absent keys that pass, by default
MAGIC, VERSION = b"GnKF", 1
HEAD = struct.Struct("<4sHH16sQQQ")
CRC = struct.Struct("<I")
BLOCK_WORDS, WORD_BITS = 8, 32
PAGE_BLOCKS = 128
PAGE_BYTES = PAGE_BLOCKS * BLOCK_BYTES
WHOLE_BYTES = 256 * 1024  # a file of up to this size is read whole when opened, if it is cached
SMALL_BYTES = 32 * 1024  # the same limit for files that are not cached
PAGES_FOR_ONE = 16  # pages that are read and checked together in the time of one page alone
BARE_BYTES = 1024  # approximate memory of an open filter without its pages

Hashes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


# -- arithmetic --------------------------------------------------------------------------------------------------------


def false_positive_rate(keys: int, blocks: int) -> float:
    """The share of absent keys that pass a filter. The number of keys in a block has a Poisson distribution, and an
    absent key passes if it meets a set bit in each of eight words."""
    mean = keys / blocks
    if mean > BLOCK_WORDS * WORD_BITS:
        return 1.0
    chance, rate = math.exp(-mean), 0.0
    for held in range(1, int(mean + 12 * math.sqrt(mean) + 20)):
        chance *= mean / held
        rate += chance * float((1 - (1 - 1 / WORD_BITS) ** held) ** BLOCK_WORDS)
    return rate


def blocks_for(keys: int, rate: float) -> int:
    """The least number of blocks with which a filter of `keys` keys has at most this rate of false positives."""
    low, high = 1, 1
    while high < MOST_BLOCKS and false_positive_rate(keys, high) > rate:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if false_positive_rate(keys, middle) > rate:
            low = middle + 1
        else:
            high = middle
    return high


def _blocks_of(hashes: Hashes, blocks: int) -> npt.NDArray[np.int64]:
    upper = hashes.view(np.uint64) >> np.uint64(32)
    return (upper * np.uint64(blocks) >> np.uint64(32)).view(np.int64)


def _low(hashes: Hashes) -> npt.NDArray[np.uint32]:
    return hashes.view(np.uint64).astype(np.uint32)


def _bit(low: npt.NDArray[np.uint32], salt: int) -> npt.NDArray[np.uint32]:
    """The position of each key's bit in the word that belongs to a salt."""
    return low * np.uint32(salt) >> np.uint32(27)


def _pass(hashes: Hashes, places: npt.NDArray[np.int64], words: npt.NDArray[np.uint32]) -> Flags:
    """Which keys have all their bits set in the blocks at `places`."""
    blocks, low = words.reshape(-1, BLOCK_WORDS)[places], _low(hashes)
    passed = np.ones(len(hashes), np.uint32)
    for i, salt in enumerate(SALTS):
        passed &= blocks[:, i] >> _bit(low, salt)
    return passed.astype(bool)


# -- the file ----------------------------------------------------------------------------------------------------------


class BloomFilter(NamedTuple):
    """A finished filter file: its bytes, the number of distinct keys, and the CRC-32 of its head. The head holds the
    CRCs of the pages, so its CRC identifies the file."""

    data: bytes
    keys: int
    crc32: int

    @classmethod
    def build(cls, hashes: Hashes, rate: float = FALSE_POSITIVES) -> Self:
        """The filter of keys, from their XXH64."""
        ordered = np.sort(hashes.view(np.uint64))  # numpy's `unique` takes a hundred times longer
        ordered = ordered[np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))]
        blocks = blocks_for(len(ordered), rate)
        body = _filled(ordered.view(np.int64), blocks)
        name = FILTER_HASH_NAME.encode()
        head = HEAD.pack(MAGIC, VERSION, PAGE_BLOCKS, name, SEED, len(ordered), blocks)
        crcs = [zlib.crc32(body[at : at + PAGE_BYTES]) for at in range(0, len(body), PAGE_BYTES)]
        head += struct.pack(f"<{len(crcs)}I", *crcs)
        crc = zlib.crc32(head)
        return cls(head + CRC.pack(crc) + body, len(ordered), crc)


def _filled(ordered: Hashes, blocks: int) -> bytes:
    """The bytes of the blocks, from hashes in unsigned order, which is the order of their blocks."""
    words = np.zeros((blocks, BLOCK_WORDS), np.uint32)
    places, low = _blocks_of(ordered, blocks), _low(ordered)
    firsts = np.flatnonzero(np.diff(places, prepend=-1))  # the first key of each block that has keys
    for i, salt in enumerate(SALTS):
        bits = np.uint32(1) << _bit(low, salt)
        words[places[firsts], i] = np.bitwise_or.reduceat(bits, firsts) if len(firsts) else 0
    return words.astype("<u4").tobytes()


def _refuse(what: str, path: str, offset: int, expected: object = None, found: object = None) -> NoReturn:
    raise DamagedIndexFile(
        f"Bloom filter: {what}" if what else "Bloom filter",
        path,
        offset,
        expected=expected,
        found=found,
        action=Action.BUILD_FULL_OR_NO_FILTERS,
    )


class _Head(NamedTuple):
    keys: int
    blocks: int
    start: int  # offset of the first page
    crcs: npt.NDArray[np.uint32]


def _pages_in(size: int) -> int:
    """The number of pages in a filter file of `size` bytes."""
    return max(0, -(-(size - HEAD.size - CRC.size) // (PAGE_BYTES + CRC.size)))


def _decode_head(data: bytes, size: int, path: str, crc32: int | None) -> _Head:
    """The head of a file of `size` bytes. `data` has the first bytes of the file."""
    pages = _pages_in(size)
    crcs = HEAD.size + CRC.size * pages
    if len(data) < crcs + CRC.size or data[: len(MAGIC)] != MAGIC:
        _refuse("", path, 0, expected="a filter", found=f"{size} bytes beginning {data[:4]!r}")
    _, version, page_blocks, name, seed, keys, blocks = HEAD.unpack_from(data)
    if version > VERSION:
        _refuse(f"version {version}, expected {VERSION}", path, 4)
    (crc,) = CRC.unpack_from(data, crcs)
    found = zlib.crc32(data[:crcs])
    if found != crc or (crc32 is not None and crc32 != crc):
        wanted = crc if crc32 is None else crc32
        _refuse(f"a head that states CRC {crc:08x}", path, 0, expected=f"CRC {wanted:08x}", found=f"{found:08x}")
    hash_ = (page_blocks, name.rstrip(b"\0").decode(errors="replace"), seed)
    if hash_ != (PAGE_BLOCKS, FILTER_HASH_NAME, SEED) or crcs + CRC.size + blocks * BLOCK_BYTES != size or not blocks:
        _refuse(f"not a filter of this program: {blocks} blocks in {size} bytes, {hash_}", path, 0)
    return _Head(keys, blocks, crcs + CRC.size, np.frombuffer(data, "<u4", pages, HEAD.size))


class BloomFilterReader:
    """An open filter file, which threads may share: a check changes only the cache.

    A small file is read whole when it is opened. A larger one is read by pages, and whole once the pages read cost as
    much as the whole file; if `keep` is true, it then stays in memory. `crc32` is the CRC of the head, if the caller
    knows it. DamagedIndexFile, with path and offset, where a byte that is read differs from the byte that was
    written."""

    def __init__(
        self, reader: RangeReader, crc32: int | None = None, keep: bool = True, stats: LookupStats | None = None
    ) -> None:
        self._reader = reader
        self._keep = keep
        self._requested = 0  # pages requested so far
        self.path = reader.name
        self.size = reader.size
        whole = self.size <= (WHOLE_BYTES if keep else SMALL_BYTES)
        head = min(self.size, HEAD.size + CRC.size * (_pages_in(self.size) + 1))
        data = self._read(0, self.size if whole else head, stats or LookupStats())
        self._head = _decode_head(data, self.size, self.path, crc32)
        self._words: npt.NDArray[np.uint32] | None = None
        self._body = b""
        if len(data) == self.size:
            self._cache(self._checked(0, data[self._head.start :]))

    @classmethod
    def of(cls, data: bytes, path: str, crc32: int | None = None) -> Self:
        """A filter from the bytes of its file."""
        return cls(MemoryFile(data, path), crc32)

    @property
    def keys(self) -> int:
        """The number of distinct keys in the filter."""
        return self._head.keys

    @property
    def cache_bytes(self) -> int:
        """Memory that this reader holds."""
        return BARE_BYTES + len(self._body) + self._head.crcs.nbytes

    @property
    def is_whole(self) -> bool:
        """Whether all of the file is in memory."""
        return self._words is not None

    def may_contain(self, hash_: int, stats: LookupStats | None = None) -> bool:
        """Whether the filter may have a key with this hash (by `hashing.xxhash64`). False is certain."""
        stats = stats if stats is not None else LookupStats()
        stats.filter_checks += 1
        body, page, blocks = self._body, 0, self._head.blocks
        if not body and self._is_due(1):
            body = self._whole(stats)
        elif not body:
            page = ((hash_ >> 32 & 0xFFFFFFFF) * blocks >> 32) // PAGE_BLOCKS
            body = self._pages(page, page + 1, stats)
        return kernel.may_hold(body, page * PAGE_BLOCKS, blocks, hash_)

    def may_contain_many(self, hashes: Hashes, stats: LookupStats | None = None) -> Flags:
        """`may_contain` for each hash."""
        stats = stats if stats is not None else LookupStats()
        stats.filter_checks += len(hashes)
        places = _blocks_of(hashes, self._head.blocks)
        if self._words is not None:
            return _pass(hashes, places, self._words)
        wanted = np.zeros(len(self._head.crcs), bool)
        wanted[places // PAGE_BLOCKS] = True
        pages = np.flatnonzero(wanted)
        if self._is_due(len(pages)):
            return _pass(hashes, places, np.frombuffer(self._whole(stats), "<u4"))
        body = b"".join([self._pages(begin, end, stats) for begin, end in _runs(pages.tolist())])
        nth = np.cumsum(wanted) - 1  # index of each page in `body`
        places = nth[places // PAGE_BLOCKS] * PAGE_BLOCKS + places % PAGE_BLOCKS
        return _pass(hashes, places, np.frombuffer(body, "<u4"))

    def _is_due(self, pages: int) -> bool:
        """Whether to read the whole file instead of some pages."""
        requested = self._requested + pages
        if self._keep:
            self._requested = requested
        return requested * PAGES_FOR_ONE >= len(self._head.crcs)

    def _whole(self, stats: LookupStats) -> bytes:
        body = self._pages(0, len(self._head.crcs), stats)
        if self._keep:
            self._cache(body)
        return body

    def _cache(self, body: bytes) -> None:
        self._words = np.frombuffer(body, "<u4")
        self._body = body

    def _pages(self, begin: int, end: int, stats: LookupStats) -> bytes:
        """Pages `begin` to `end`."""
        offset = begin * PAGE_BYTES
        length = min(end * PAGE_BYTES, self._head.blocks * BLOCK_BYTES) - offset
        try:
            return self._checked(begin, self._read(self._head.start + offset, length, stats))
        except DamagedIndexFile:
            if not self._reader.is_remote:
                raise
        with looking_again():
            return self._checked(begin, self._read(self._head.start + offset, length, stats))

    def _checked(self, first: int, body: bytes) -> bytes:
        """The pages from page `first` on, if their checksums match."""
        view = memoryview(body)
        for page, at in enumerate(range(0, len(body), PAGE_BYTES), first):
            expected, found = int(self._head.crcs[page]), zlib.crc32(view[at : at + PAGE_BYTES])
            if found != expected:
                offset = self._head.start + page * PAGE_BYTES
                _refuse("page", self.path, offset, expected=f"CRC {expected:08x}", found=f"{found:08x}")
        return body

    def _read(self, offset: int, length: int, stats: LookupStats) -> bytes:
        stats.reads += 1
        stats.bytes += length
        stats.filter_bytes += length
        data = self._reader.read_range(offset, length)
        if len(data) != length:
            _refuse("", self.path, offset, expected=f"{length} bytes", found=str(len(data)))
        return data


def _runs(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Runs of consecutive numbers among ascending ones, as (first, one past the last)."""
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[begin], numbers[i - 1] + 1
            begin = i

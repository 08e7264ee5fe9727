"""The page maps of a file as bytes. They are recorded when a file is indexed and given to `open_parquet` at a fetch,
which then reads no page headers. Value maps may follow them; then the fetch reads only parts of pages.

    GPM1 | crc32 of all that follows, 4 bytes | footer digest, 16 bytes | page maps
    GPM2 | crc32 of all that follows, 4 bytes | footer digest, 16 bytes | length of the page maps, 4 bytes | page maps
         | value maps (see below)

The page maps are numbers of 8 bytes, deflated. All numbers are little-endian. First comes the number of chunks. Then
come columns over all chunks: row group, leaf, pages (-1: no map), offset and length of the dictionary page (0: none),
and 0 where only a page itself shows whether it needs the dictionary. Then come columns over all pages in order: offset,
length, first row, and whether it needs the dictionary.

The value maps of a file's pages are deflated together. First come numbers of 8 bytes: the number of maps, and columns
over all maps: row group, leaf, offset and length of the page, the numbers of the map (`Stored`), and the lengths of its
parts (-1: none). The maps are in the order of the offsets; each offset is the difference to the one before. Then come
the first parts of all maps, the second ones, and so on. All integers are little-endian.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from gnomon.base.compression import DecompressionError, decompress_streams
from gnomon.base.errors import GnomonError
from gnomon.sources.parquet.dictionary import PageKey
from gnomon.sources.parquet.page_map import PageMap
from gnomon.sources.parquet.value_map import MappedPage, Stored, restored

KEY, NUMBERS, PARTS = 4, 8, 5  # numbers of a map: of its key, its own, lengths of its parts
OF_A_MAP = KEY + NUMBERS + PARTS
OFFSET, LENGTH = 2, 3  # the places of the page's offset and length in the key
NUMBER_BYTES = 8
INTEGER_PARTS = (0, 1, 3)  # parts that consist of integers of 4 bytes: starts, checks, marks
NO_PART = -1
VALUES_LIMIT = 64 << 20  # bytes of all maps, inflated
MAGIC, MAGIC_WITH_VALUES = b"GPM1", b"GPM2"  # the last byte is the version
CHECKSUM_BYTES, DIGEST_BYTES = 4, 16
NUMBERS_AT = len(MAGIC) + CHECKSUM_BYTES + DIGEST_BYTES
LENGTH_BYTES = 4  # of the page maps, where value maps follow
OF_A_CHUNK, OF_A_PAGE = 6, 4  # numbers
MAPS_LIMIT = 1 << 28  # bytes of the numbers: 8 million pages

Key = tuple[int, int]  # row group, leaf


class DamagedMaps(GnomonError, ValueError):
    """Recorded page maps are damaged, of another version, or of another file. A reader can ignore them and make new
    ones."""


def stored_bytes(map: MappedPage) -> int:
    """The bytes of a map before compression."""
    return NUMBER_BYTES * OF_A_MAP + sum(len(part) for part in map.stored().parts if part)


def encode_values(maps: Mapping[PageKey, MappedPage]) -> bytes:
    """The maps as bytes."""
    stored = [(key, maps[key].stored()) for key in sorted(maps, key=lambda key: key[OFFSET])]
    heads = [
        [*key, *one.numbers, *(NO_PART if part is None else len(part) for part in one.parts)] for key, one in stored
    ]
    table = np.array(heads, np.int64).reshape(-1, OF_A_MAP)
    table[1:, OFFSET] -= table[:-1, OFFSET].copy()
    numbers = np.concatenate(([len(table)], table.T.ravel())).astype("<i8")
    parts = [_ordered(one.parts[kind], kind) or b"" for kind in range(PARTS) for _, one in stored]
    return isal_zlib.compress(b"".join([numbers.tobytes(), *parts]), 3)


class RecordedValues:
    """Recorded value maps. A map is made from its bytes when it is asked for."""

    def __init__(self, deflated: bytes) -> None:
        """DamagedMaps for bytes that `encode_values` did not give."""
        try:
            self._data = decompress_streams("zlib", deflated, VALUES_LIMIT)
            count = int.from_bytes(self._data[:NUMBER_BYTES], "little")
            table = np.frombuffer(self._data, "<i8", OF_A_MAP * count, NUMBER_BYTES).astype(np.int64)
        except (DecompressionError, ValueError, OverflowError) as error:
            raise DamagedMaps(f"the value maps cannot be read: {error}") from None
        self._table = table.reshape(OF_A_MAP, count)
        np.cumsum(self._table[OFFSET], out=self._table[OFFSET])
        lengths = np.maximum(self._table[KEY + NUMBERS :], 0)
        ends = NUMBER_BYTES * (1 + OF_A_MAP * count) + np.cumsum(lengths.ravel())
        if len(self._data) != (ends[-1] if count else NUMBER_BYTES) or self._table[KEY + NUMBERS :].min(initial=0) < -1:
            raise DamagedMaps("the value maps have another length than their parts")
        self._begins = (ends - lengths.ravel()).reshape(PARTS, count)
        self._offsets: list[int] = self._table[OFFSET].tolist()
        self.cache_bytes = 500 + len(self._data) + self._table.nbytes + self._begins.nbytes + 40 * count

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[PageKey]:
        for key in self._table[:KEY].T.tolist():
            yield tuple(key)

    def get(self, key: PageKey) -> MappedPage | None:
        """The map of a page; None where none is recorded, or one that cannot be of this page."""
        at = bisect_left(self._offsets, key[OFFSET])
        if at == len(self._offsets) or self._offsets[at] != key[OFFSET]:
            return None
        numbers = self._table[:, at].tolist()
        if tuple(numbers[:KEY]) != key:
            return None
        parts: list[bytes | None] = []
        for kind, (begin, length) in enumerate(zip(self._begins[:, at], numbers[KEY + NUMBERS :], strict=True)):
            parts.append(_ordered(None if length == NO_PART else self._data[begin : begin + length], kind))
        return restored(Stored(tuple(numbers[KEY : KEY + NUMBERS]), tuple(parts)), key[LENGTH])


def _ordered(part: bytes | None, kind: int) -> bytes | None:
    """A part with its integers in the other order of bytes, on machines whose own is not little-endian."""
    if sys.byteorder == "little" or not part or kind not in INTEGER_PARTS:
        return part
    integers = array("i", part)
    integers.byteswap()
    return integers.tobytes()


def encode_maps(
    maps: Mapping[Key, PageMap | None], digest: str, values: Mapping[PageKey, MappedPage] | None = None
) -> bytes:
    """The page maps as bytes, and the value maps, if any are given. `digest` is the digest of the file's footer, in
    hex."""
    pages, lead = _encoded_pages(maps), bytes.fromhex(digest)
    if values is None:
        return _with_checksum(MAGIC, lead + pages)
    length = len(pages).to_bytes(LENGTH_BYTES, "little")
    return _with_checksum(MAGIC_WITH_VALUES, b"".join((lead, length, pages, encode_values(values))))


def _with_checksum(magic: bytes, payload: bytes) -> bytes:
    return magic + isal_zlib.crc32(payload).to_bytes(CHECKSUM_BYTES, "little") + payload


def _encoded_pages(maps: Mapping[Key, PageMap | None]) -> bytes:
    keys = sorted(maps)
    found = [maps[key] for key in keys]
    chunks = np.array([_chunk_numbers(key, maps[key]) for key in keys], np.int64).reshape(-1, OF_A_CHUNK)
    pages = [np.empty((0, OF_A_PAGE), np.int64)]
    for each in found:
        if each is not None:
            needs = each.needs_dictionary if each.needs_dictionary is not None else np.zeros(len(each.offsets))
            pages.append(np.column_stack((each.offsets, each.lengths, each.first_rows[:-1], needs)).astype(np.int64))
    table = np.concatenate(pages)
    table[1:, :3] -= table[:-1, :3].copy()  # deflate compresses small and similar steps well
    numbers = np.concatenate(([len(keys)], chunks.T.ravel(), table.T.ravel())).astype("<i8")
    return isal_zlib.compress(numbers.tobytes(), 3)


def _chunk_numbers(key: Key, pages: PageMap | None) -> tuple[int, ...]:
    if pages is None:
        return (*key, -1, 0, 0, 0)
    return (*key, len(pages.offsets), *(pages.dictionary or (0, 0)), pages.needs_dictionary is not None)


def check_maps(data: bytes, digest: str) -> None:
    """DamagedMaps unless `data` is whole and was made from the file with this footer digest."""
    body = data[len(MAGIC) + CHECKSUM_BYTES :]
    if data[: len(MAGIC)] not in (MAGIC, MAGIC_WITH_VALUES):
        raise DamagedMaps(f"page maps begin with {data[:4]!r}, expected {MAGIC!r} or {MAGIC_WITH_VALUES!r}")
    if isal_zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "little") != data[len(MAGIC) : len(MAGIC) + CHECKSUM_BYTES]:
        raise DamagedMaps("page maps do not match their checksum")
    if body[:DIGEST_BYTES] != bytes.fromhex(digest):
        found = body[:DIGEST_BYTES].hex()
        raise DamagedMaps(f"page maps of a file whose footer has digest {found}, this file's has {digest}")


def have_values(data: bytes) -> bool:
    """Whether value maps were made for `data`, which `check_maps` has checked."""
    return data.startswith(MAGIC_WITH_VALUES)


def decode_maps(data: bytes, digest: str) -> tuple[NDArray[np.int64], RecordedValues | None]:
    """The numbers of the page maps in `data`, as int64, and the value maps; None where none were made. DamagedMaps as
    `check_maps`."""
    check_maps(data, digest)
    begin, end = NUMBERS_AT, len(data)
    if have_values(data):
        begin += LENGTH_BYTES
        end = begin + int.from_bytes(data[NUMBERS_AT:begin], "little")
    try:
        numbers = decompress_streams("zlib", data[begin:end], MAPS_LIMIT)
    except DecompressionError as error:
        raise DamagedMaps(f"the numbers of page maps cannot be read: {error}") from None
    values = RecordedValues(data[end:]) if have_values(data) else None
    return np.frombuffer(numbers, "<i8").astype(np.int64), values


class RecordedMaps:
    """Recorded page maps. A `PageMap` is made at its first use. `values` are the recorded value maps; None where none
    were made."""

    def __init__(self, data: bytes, digest: str) -> None:
        """`DamagedMaps` as `check_maps`."""
        numbers, self.values = decode_maps(data, digest)
        try:
            self._read(numbers)
        except (ValueError, IndexError) as error:
            raise DamagedMaps(f"the numbers of page maps contradict each other: {error}") from None

    def _read(self, numbers: NDArray[np.int64]) -> None:
        count = int(numbers[0])
        chunks = numbers[1 : 1 + OF_A_CHUNK * count].reshape(OF_A_CHUNK, count)
        self._pages = numbers[1 + OF_A_CHUNK * count :].reshape(OF_A_PAGE, -1).copy()
        np.cumsum(self._pages[:3], axis=1, out=self._pages[:3])
        counts = np.maximum(chunks[2], 0)
        if counts.sum() != self._pages.shape[1] or (counts > self._pages.shape[1]).any():
            raise ValueError(f"{counts.sum()} pages, and numbers of {self._pages.shape[1]}")
        begins = (np.cumsum(counts) - counts).tolist()
        heads = zip(begins, *chunks[2:].tolist(), strict=True)
        self._chunks: dict[Key, tuple[int, ...]] = dict(zip(zip(*chunks[:2].tolist(), strict=True), heads, strict=True))
        self.cache_bytes = 500 + self._pages.nbytes + 300 * count + (self.values.cache_bytes if self.values else 0)

    def __contains__(self, key: Key) -> bool:
        return key in self._chunks

    def __iter__(self) -> Iterator[Key]:
        return iter(self._chunks)

    def map_of(self, key: Key, rows: int, start: int, end: int) -> PageMap | None:
        """The page map of a chunk of `rows` rows, which lies within these bytes of the file; None where only the levels
        can tell its rows apart. DamagedMaps where the chunk cannot have this map."""
        begin, count, offset, length, known = self._chunks[key]
        if count < 0:
            return None
        table: NDArray[np.int64] = self._pages[:, begin : begin + count]
        first_rows = np.append(table[2], rows)
        needs = table[3].astype(np.bool_) if known else None
        dictionary = (offset, length) if length else None
        made = PageMap(dictionary, table[0].copy(), table[1].copy(), first_rows, needs)
        if not made.is_possible(start, end):
            raise DamagedMaps(f"the page map of row group {key[0]}, leaf {key[1]} leads out of its chunk")
        return made

"""The page maps of a file as bytes. They are recorded when a file is indexed and given to `open_parquet` at a fetch,
which then reads no page headers. Value maps may follow them; then the fetch reads only parts of pages.

    GPM1 | crc32 of all that follows, 4 bytes | footer digest, 16 bytes | page maps
    GPM2 | crc32 of all that follows, 4 bytes | footer digest, 16 bytes | length of the page maps, 4 bytes | page maps
         | value maps (`value_map_codec`)

The page maps are numbers of 8 bytes, deflated. All numbers are little-endian. First comes the number of chunks. Then
come columns over all chunks: row group, leaf, pages (-1: no map), offset and length of the dictionary page (0: none),
and 0 where only a page itself shows whether it needs the dictionary. Then come columns over all pages in order: offset,
length, first row, and whether it
needs the dictionary.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from gnomon.base.compression import DecompressionError, decompress_streams
from gnomon.sources.parquet.page_decode import MappedPage, PageKey
from gnomon.sources.parquet.page_map import PageMap
from gnomon.sources.parquet.value_map_codec import DamagedMaps, RecordedValues, encode_values

MAGIC, MAGIC_WITH_VALUES = b"GPM1", b"GPM2"  # the last byte is the version
CHECKSUM_BYTES, DIGEST_BYTES = 4, 16
NUMBERS_AT = len(MAGIC) + CHECKSUM_BYTES + DIGEST_BYTES
LENGTH_BYTES = 4  # of the page maps, where value maps follow
OF_A_CHUNK, OF_A_PAGE = 6, 4  # numbers
MAPS_LIMIT = 1 << 28  # bytes of the numbers: 8 million pages

Key = tuple[int, int]  # row group, leaf


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

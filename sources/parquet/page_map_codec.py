"""The page maps of a file as bytes. They are recorded when a file is indexed and given to `open_parquet` at a fetch,
which then reads no page headers.

    GPM1 | crc32 of all that follows, 4 bytes | footer digest, 16 bytes | numbers of 8 bytes, deflated

All numbers are int64, little-endian. First comes the number of chunks. Then come columns over all chunks: row group,
leaf, pages (-1: no map), offset and length of the dictionary page (0: none), and 0 where only a page itself shows
whether it needs the dictionary. Then come columns over all pages in order: offset, length, first row, and whether it
needs the dictionary.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from gnomon.base.compression import DecompressionError, decompress_streams
from gnomon.base.errors import GnomonError
from gnomon.sources.parquet.page_map import PageMap

MAGIC = b"GPM1"  # the last byte is the version
CHECKSUM_BYTES, DIGEST_BYTES = 4, 16
NUMBERS_AT = len(MAGIC) + CHECKSUM_BYTES + DIGEST_BYTES
OF_A_CHUNK, OF_A_PAGE = 6, 4  # numbers
MAPS_LIMIT = 1 << 30  # bytes of the numbers: 32 million pages

Key = tuple[int, int]  # row group, leaf


class DamagedMaps(GnomonError, ValueError):
    """Recorded page maps are damaged, of another version, or of another file. A reader can ignore them and make new
    ones."""


def encode_maps(maps: Mapping[Key, PageMap | None], digest: str) -> bytes:
    """The page maps as bytes. `digest` is the digest of the file's footer, in hex."""
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
    payload = bytes.fromhex(digest) + isal_zlib.compress(numbers.tobytes(), 3)
    return MAGIC + isal_zlib.crc32(payload).to_bytes(CHECKSUM_BYTES, "little") + payload


def _chunk_numbers(key: Key, pages: PageMap | None) -> tuple[int, ...]:
    if pages is None:
        return (*key, -1, 0, 0, 0)
    return (*key, len(pages.offsets), *(pages.dictionary or (0, 0)), pages.needs_dictionary is not None)


def check_maps(data: bytes, digest: str) -> None:
    """DamagedMaps unless `data` is whole and was made from the file with this footer digest."""
    body = data[len(MAGIC) + CHECKSUM_BYTES :]
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedMaps(f"page maps begin with {data[:4]!r}, expected {MAGIC!r}")
    if isal_zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "little") != data[len(MAGIC) : len(MAGIC) + CHECKSUM_BYTES]:
        raise DamagedMaps("page maps do not match their checksum")
    if body[:DIGEST_BYTES] != bytes.fromhex(digest):
        found = body[:DIGEST_BYTES].hex()
        raise DamagedMaps(f"page maps of a file whose footer has digest {found}, this file's has {digest}")


def decode_maps(data: bytes, digest: str) -> NDArray[np.int64]:
    """The numbers in `data`, as int64. DamagedMaps as `check_maps`."""
    check_maps(data, digest)
    try:
        numbers = decompress_streams("zlib", data[NUMBERS_AT:], MAPS_LIMIT)
    except DecompressionError as error:
        raise DamagedMaps(f"the numbers of page maps cannot be read: {error}") from None
    return np.frombuffer(numbers, "<i8").astype(np.int64)


class RecordedMaps:
    """Recorded page maps. A `PageMap` is made at its first use."""

    def __init__(self, data: bytes, digest: str) -> None:
        """`DamagedMaps` as `check_maps`."""
        numbers = decode_maps(data, digest)
        count = int(numbers[0])
        chunks = numbers[1 : 1 + OF_A_CHUNK * count].reshape(OF_A_CHUNK, count)
        self._pages = numbers[1 + OF_A_CHUNK * count :].reshape(OF_A_PAGE, -1).copy()
        np.cumsum(self._pages[:3], axis=1, out=self._pages[:3])
        counts = np.maximum(chunks[2], 0)
        begins = (np.cumsum(counts) - counts).tolist()
        heads = zip(begins, *chunks[2:].tolist(), strict=True)
        self._chunks: dict[Key, tuple[int, ...]] = dict(zip(zip(*chunks[:2].tolist(), strict=True), heads, strict=True))
        self.cache_bytes = 500 + self._pages.nbytes + 300 * count

    def __contains__(self, key: Key) -> bool:
        return key in self._chunks

    def __iter__(self) -> Iterator[Key]:
        return iter(self._chunks)

    def map_of(self, key: Key, rows: int) -> PageMap | None:
        """The page map of a chunk of `rows` rows; None where only the levels can tell its rows apart."""
        begin, count, offset, length, known = self._chunks[key]
        if count < 0:
            return None
        table: NDArray[np.int64] = self._pages[:, begin : begin + count]
        first_rows = np.append(table[2], rows)
        needs = table[3].astype(np.bool_) if known else None
        return PageMap((offset, length) if length else None, table[0].copy(), table[1].copy(), first_rows, needs)

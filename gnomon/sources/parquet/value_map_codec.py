"""The value maps of a file's pages as bytes, which `page_map_codec` puts after the page maps.

All is deflated together. First come numbers of 8 bytes: the number of maps, and columns over all maps: row group, leaf,
offset and length of the page, the numbers of the map (`Stored`), and the lengths of its parts (-1: none). The maps are
in the order of the offsets; each offset is the difference to the one before. Then come the first parts of all maps,
the second ones, and so on. All integers are little-endian."""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np
from isal import isal_zlib

from gnomon.base.compression import DecompressionError, decompress_streams
from gnomon.base.errors import GnomonError
from gnomon.sources.parquet.page_decode import MappedPage, PageKey, Stored, restored

KEY, NUMBERS, PARTS = 4, 8, 5  # numbers of a map: of its key, its own, lengths of its parts
OF_A_MAP = KEY + NUMBERS + PARTS
OFFSET, LENGTH = 2, 3  # the places of the page's offset and length in the key
NUMBER_BYTES = 8
INTEGER_PARTS = (0, 1, 3)  # parts that consist of integers of 4 bytes: starts, checks, marks
NO_PART = -1
VALUES_LIMIT = 64 << 20  # bytes of all maps, inflated


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

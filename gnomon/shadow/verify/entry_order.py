"""The order of the entries of one key in an index file: by source file, in the order of the segment's manifest, then by
row. So answers always have the rows of a key in the same order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.keys import adjacent

Numbers = npt.NDArray[np.signedinteger[Any]]


class EqualKeys:
    """Checks the order of the entries of an index file, batch after batch."""

    def __init__(self) -> None:
        self._last: tuple[list[pa.Array], list[Numbers]] | None = None

    def disordered(self, keys: Sequence[pa.Array], places: Sequence[Numbers]) -> int:
        """The number of entries that come after one of the same key, but do not lie after it in the source. `keys` are
        the key columns of a batch, `places` the number of the source file (negative: unknown), offset and
        sub-offset."""
        rows = len(keys[0])
        if not rows:
            return 0
        count = _disordered(keys, places)
        if self._last is not None:
            keys_before, places_before = self._last
            joined = [pa.concat_arrays([a, b.slice(0, 1)]) for a, b in zip(keys_before, keys, strict=True)]
            count += _disordered(joined, [np.append(a, b[:1]) for a, b in zip(places_before, places, strict=True)])
        self._last = [key.slice(rows - 1) for key in keys], [column[-1:].copy() for column in places]
        return count


def _disordered(keys: Sequence[pa.Array], places: Sequence[Numbers]) -> int:
    files = places[0]
    behind = np.zeros(len(files) - 1, bool)
    same = ~behind
    for column in places:
        before, after = column[:-1], column[1:]
        behind |= same & (after > before)
        same &= after == before
    wrong = ~behind & (files[:-1] >= 0) & (files[1:] >= 0)
    return int((wrong & adjacent(keys)[0]).sum()) if wrong.any() else 0

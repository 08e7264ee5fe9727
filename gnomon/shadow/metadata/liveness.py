"""The rule that decides which entries of an index file are live. Every reader of entries calls this module, except the
verifier, which has its own rule as a check of this one.

An entry is live while its own segment still covers the source file that it names, and no mask has its row. A rewritten
or deleted source file is dead in the segment that indexed it, and its entries are skipped. An entry of a file that the
segment never covered in the folder of the index file is damage.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import DamagedIndexFile
from gnomon.shadow.metadata.manifests import IndexFileEntry, Segment, SourceFileEntry
from gnomon.shadow.metadata.spec import IndexSpec

NOT_LIVE = -1

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class NamedFiles(NamedTuple):
    """The source files that a batch of n entries names.

    `files` holds each distinct file once, None for a dead one. `codes[i]` is the index in `files` for entry i. For a
    masked row it is the last index, and the file there is None."""

    files: Sequence[SourceFileEntry | None]
    codes: Ints

    @property
    def is_live(self) -> Flags:
        """n flags: whether each entry is live."""
        return np.array([file is not None for file in self.files], bool)[self.codes]

    def numbers(self, number_of: Callable[[SourceFileEntry], int]) -> Ints:
        """n numbers: `number_of` the source file of each entry, NOT_LIVE for a dead entry. Calls it once per file."""
        numbers = [NOT_LIVE if file is None else number_of(file) for file in self.files]
        return np.array(numbers, np.int64)[self.codes]


class Liveness:
    """Finds the live entries of one index file of a segment; `root` is the folder of the index."""

    def __init__(self, spec: IndexSpec, segment: Segment, file: IndexFileEntry, root: str) -> None:
        self._spec = spec
        self._segment = segment
        self._file = file
        self._live = segment.live
        self._masks = segment.masks
        self._root = root

    def source_file(self, name: str) -> SourceFileEntry | None:
        """The live source file that an entry names, None where it is dead.

        DamagedIndexFile where the segment does not cover it in the folder of the index file."""
        file = self._live.get(name)
        partition = self._segment.partition_of.get(name) if file is None else file.partition
        if partition is None or (partition != self._file.partition and not self._spec.flat):
            raise DamagedIndexFile(uncovered(name), f"{self._root}/{self._file.path}", 0, action=self._spec.remedy)
        return file

    def is_masked(self, name: str, row: int) -> bool:
        """Whether the table has deleted this row of a source file."""
        mask = self._masks.get(name)
        return mask is not None and mask.holds(row)

    def source_files(self, names: pa.Array, rows: pa.Array | None) -> NamedFiles:
        """The live source files that n entries name, with one look-up per distinct name. `rows` has the offsets of
        their pointers. If it is None, rows that the table has deleted count as live. Errors as in `source_file`."""
        encoded = names.dictionary_encode(null_encoding="encode")
        found = encoded.dictionary.to_pylist()
        files = [self.source_file(name) for name in found]
        codes = encoded.indices.to_numpy().astype(np.int64, copy=False)
        masked = [(place, self._masks[name]) for place, name in enumerate(found) if name in self._masks]
        if rows is None or not masked:
            return NamedFiles(files, codes)
        numbers, codes = rows.to_numpy(), codes.copy()
        for place, mask in masked:
            entries = np.flatnonzero(codes == place)
            codes[entries[mask.holds_each(numbers[entries])]] = len(files)
        return NamedFiles([*files, None], codes)


def uncovered(name: str) -> str:
    """The error text for an entry of a source file that its segment does not cover."""
    return f"an entry names {name}, which its segment does not cover"

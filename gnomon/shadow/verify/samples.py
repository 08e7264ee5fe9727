"""The rows of an index that are looked up when it is verified."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from gnomon.shadow.metadata import Masks, SourceFileEntry
from gnomon.sources import Pointer

MOST_PARTITIONS = {False: 100, True: 1000}  # whose rows are looked up, without and with --all: up to 1 s for each
MOST_TRIED = 10_000  # deleted rows of a file in a batch, to find one of each kind
LIVE, BY_POSITION, BY_VALUE = "live", "deleted by position", "deleted by values"


def some_of(partitions: Collection[str], every: bool) -> frozenset[str]:
    """The partitions whose rows are looked up: all, or as many as MOST_PARTITIONS says, evenly spread."""
    most, there = MOST_PARTITIONS[every], sorted(partitions)
    return frozenset(there[i * len(there) // most] for i in range(most)) if len(there) > most else frozenset(there)


@dataclass
class Samples:
    """One row of each partition that is live, one that is deleted by its position and one that is deleted by values, of
    those that occur. `partitions` are the wanted ones. `by_position` has the rows that the table deletes by position,
    of each file."""

    partitions: Collection[str]
    masks: Masks
    by_position: Mapping[str, BitMap64]
    rows: dict[tuple[str, str], tuple[SourceFileEntry, Pointer]] = field(default_factory=dict)

    def wanted(
        self, files: Sequence[SourceFileEntry], numbers: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> dict[int, tuple[str, str]]:
        """The rows of a batch of entries that are the first of their partition and kind, each with both. `numbers` has
        the number of each entry's file, -1 for none."""
        found: dict[tuple[str, str], int] = {}
        there, firsts = np.unique(numbers, return_index=True)
        for number, first in zip(there.tolist(), firsts.tolist(), strict=True):
            file = files[number]
            if number < 0 or file.partition not in self.partitions:
                continue
            mask = self.masks.get(file.path)
            if mask is None:
                found.setdefault((file.partition, LIVE), first)
                continue
            of_table = self.by_position.get(file.path, BitMap64())
            there_are = {LIVE: file.rows > mask.rows, BY_POSITION: bool(of_table), BY_VALUE: mask.rows > len(of_table)}
            kinds = [(file.partition, kind) for kind, is_there in there_are.items() if is_there]
            if all(kind in self.rows or kind in found for kind in kinds):
                continue
            own = np.flatnonzero(numbers == number)
            is_deleted = mask.holds_each(offsets[own])
            for row in own[~is_deleted][:1].tolist():
                found.setdefault((file.partition, LIVE), row)
            for row in own[is_deleted][:MOST_TRIED].tolist():
                kind = BY_POSITION if int(offsets[row]) in of_table else BY_VALUE
                found.setdefault((file.partition, kind), row)
        return {row: kind for kind, row in found.items() if kind not in self.rows}

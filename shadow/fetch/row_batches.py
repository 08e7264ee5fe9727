"""Rows that are wanted, by the files they lie in, some at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.btree.keys import Key
from gnomon.shadow.lookup import Hit
from gnomon.shadow.metadata import SourceFileEntry

UNPACKED = 4  # times the bytes in a file are what rows take in memory, as a rule of thumb


@dataclass(frozen=True)
class Located:
    """A row to read: where it lies, and the key it must hold (in stored form)."""

    hit: Hit
    key: Key


def row_bytes(file: SourceFileEntry) -> int:
    """Bytes that a row takes in memory, roughly: more than its share of the file."""
    return max(1, UNPACKED * file.size // max(file.rows, 1))


def shares_of(wanted: Sequence[Located], share_bytes: int | None) -> list[tuple[SourceFileEntry, Sequence[int]]]:
    """The places of the rows of each file among those wanted; of a file whose rows take more than `share_bytes`,
    roughly, in several shares."""
    by_file: dict[SourceFileEntry, list[int]] = {}
    for place, located in enumerate(wanted):
        by_file.setdefault(located.hit.file, []).append(place)
    if share_bytes is None:
        return list(by_file.items())
    shares: list[tuple[SourceFileEntry, Sequence[int]]] = []
    for file, places in by_file.items():
        most = max(1, share_bytes // row_bytes(file))
        if len(places) > most:  # what is read together lies in one share, or two
            places.sort(key=lambda place: wanted[place].hit.pointer[1:3])
        shares += [(file, places[begin : begin + most]) for begin in range(0, len(places), most)]
    return shares

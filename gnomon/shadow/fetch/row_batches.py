"""Requested rows, grouped by their files, in shares of a bounded size."""

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.btree.keys import Key
from gnomon.shadow.lookup import Hit
from gnomon.shadow.metadata import SourceFileEntry

UNPACKED = 4  # bytes in memory for each byte in a file, as a rule of thumb


class Located(NamedTuple):
    """A row to read: its place, and the key it must hold (in stored form)."""

    hit: Hit
    key: Key


def row_bytes(file: SourceFileEntry) -> int:
    """The approximate bytes of a row in memory, which are more than in the file."""
    return max(1, UNPACKED * file.size // max(file.rows, 1))


def shares_of(wanted: Sequence[Located], share_bytes: int | None) -> list[tuple[SourceFileEntry, Sequence[int]]]:
    """The places of each file's rows among the requested ones. A file whose rows take more than about `share_bytes` has
    several shares."""
    by_file: dict[SourceFileEntry, list[int]] = {}
    for place, located in enumerate(wanted):
        by_file.setdefault(located.hit.file, []).append(place)
    if share_bytes is None:
        return list(by_file.items())
    shares: list[tuple[SourceFileEntry, Sequence[int]]] = []
    for file, places in by_file.items():
        most = max(1, share_bytes // row_bytes(file))
        if len(places) > most:  # rows that are read together lie in one share, or two
            places.sort(key=lambda place: wanted[place].hit.pointer[1:3])
        shares += [(file, places[begin : begin + most]) for begin in range(0, len(places), most)]
    return shares

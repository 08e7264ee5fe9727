"""Converts Dione's pointers to ordinals of rows and to Gnomon's pointers, and back.

Dione points to a Parquet row by the ordinal of its row group and its ordinal in the group, to an ORC row by its ordinal
in the file, and to a row of an Avro file or SequenceFile by the position of a block or record and the number of rows to
skip there, which may reach beyond that block (docs/guide/from-dione.md).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gnomon.base.later import Later
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import SourceFile
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.parquet import ParquetFile

if TYPE_CHECKING:
    from gnomon.sources import avro, orc, sequence
else:
    avro, orc = Later("gnomon.sources.avro"), Later("gnomon.sources.orc")
    sequence = Later("gnomon.sources.sequence")

Ints = npt.NDArray[np.int64]
NO_ROW = -1


@dataclass(frozen=True)
class RowTable:
    """The rows of a source file. `places` are the valid values of Dione's `data_offset`, ascending; `firsts` has the
    ordinal of the first row of each place, `sizes` the `data_size` of its rows. `rows` is the number of all rows. In
    ORC the places are the rows themselves, and `places` is None. `is_ordinal`: Gnomon's pointers have the row's ordinal
    as `data_offset`."""

    rows: int
    firsts: Ints
    sizes: Ints
    places: Ints | None
    is_ordinal: bool

    def ordinals(self, offsets: Ints, sub_offsets: Ints) -> Ints:
        """The ordinal of the row at each of Dione's pointers; NO_ROW where a pointer leads to no row."""
        if self.places is None:
            found = offsets + sub_offsets
            is_there = offsets >= 0
        else:
            place = np.searchsorted(self.places, offsets)
            within = np.minimum(place, max(len(self.places) - 1, 0))
            is_there = (self.places[within] == offsets) if len(self.places) else np.zeros(len(offsets), bool)
            found = np.where(is_there, self.firsts[within] if len(self.places) else 0, 0) + sub_offsets
            if self.is_ordinal and len(self.places):  # Parquet: the row is in this row group
                is_there &= found < np.append(self.firsts[1:], self.rows)[within]
        return np.where(is_there & (sub_offsets >= 0) & (found < self.rows), found, NO_ROW)

    def of_dione(self, offsets: Ints, sub_offsets: Ints) -> tuple[Ints, Ints]:
        """Dione's `data_offset` and `data_sub_offset` for Gnomon's pointers."""
        if not self.is_ordinal or self.places is None:
            return offsets, sub_offsets
        place = np.searchsorted(self.firsts, offsets, side="right") - 1
        return self.places[place], offsets - self.firsts[place]

    def pointers(self, ordinals: Ints) -> tuple[Ints, Ints, Ints]:
        """`data_offset`, `data_sub_offset` and `data_size` of rows, as a scan gives them."""
        if self.is_ordinal:
            return ordinals, np.zeros(len(ordinals), np.int64), np.repeat(self.sizes[:1], len(ordinals))
        assert self.places is not None
        place = np.searchsorted(self.firsts, ordinals, side="right") - 1
        return self.places[place], ordinals - self.firsts[place], self.sizes[place]


def row_table(source: SourceFile, reader: RangeReader) -> RowTable:
    """The rows of a file. Parquet and ORC have them in their metadata; of Avro the heads of all blocks are read; a
    SequenceFile is read whole. UnsupportedFormat for a format that Dione does not index."""
    if isinstance(source, ParquetFile):
        firsts = np.concatenate([[0], np.cumsum(source.group_rows, dtype=np.int64)])[:-1]
        groups = np.arange(len(firsts), dtype=np.int64)
        return RowTable(source.rows, firsts, np.array([source.row_bytes]), groups, True)
    if isinstance(source, orc.OrcFile):
        return RowTable(source.rows, np.empty(0, np.int64), np.array([source.row_bytes]), None, True)
    if isinstance(source, avro.AvroFile):
        blocks = [(block.offset, block.rows, block.row_bytes) for block in source.blocks(reader)]
        offsets, rows, sizes = np.array(blocks, np.int64).reshape(-1, 3).T
        return _of_units(offsets, rows, sizes)
    if isinstance(source, sequence.SequenceFile):
        places, counts, sizes = _units(source, reader)
        return _of_units(places, counts, sizes)
    raise UnsupportedFormat("Dione indexes Parquet, ORC, Avro and SequenceFile only", reader.name)


def _of_units(places: Ints, counts: Ints, sizes: Ints) -> RowTable:
    is_filled = counts > 0  # if a block is empty, `pointers` must find the next block
    places, counts, sizes = places[is_filled], counts[is_filled], sizes[is_filled]
    ends = np.cumsum(counts)
    return RowTable(int(counts.sum()), ends - counts, sizes, places, False)


def _units(source: "sequence.SequenceFile", reader: RangeReader) -> tuple[Ints, Ints, Ints]:
    """The places in the pointers of a scan, with the number of rows at each place, and the `data_size` of these
    rows."""
    batches = [batch.columns[-3:] for batch in source.scan(reader, [])]
    if not batches:
        none = np.empty(0, np.int64)
        return none, none, none
    offsets, _, sizes = (np.concatenate([one[i].to_numpy() for one in batches]).astype(np.int64) for i in range(3))
    places, begins, counts = np.unique(offsets, return_index=True, return_counts=True)
    return places, counts.astype(np.int64), sizes[begins]

"""Reads that pyarrow decodes. Each covers one column of one row group: the byte ranges it needs, and the rows in their
bytes. `PageRead` reads pages of flat columns, `GroupRead` all chunks of the column in the row group.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnomon.base.errors import check_memory
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.parquet.footer import MAGIC, ChunkPlace
from gnomon.sources.parquet.guards import ChunkCheck, check_leaf_lengths
from gnomon.sources.parquet.page_header import check_page
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.synthetic_file import ChunkEntry, FooterTemplate
from gnomon.sources.types import int64s

Rows = NDArray[np.int64]  # ordinals in the row group, ascending
# Types whose pages pyarrow can give as indices into their dictionary. So one wanted row of a page with half a million
# strings makes one string.
DICTIONARY_READABLE = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
GROUP_BATCH = 8192  # rows decoded at a time from a whole row group, few of which are wanted


class Read(Protocol):
    """`column` is the column's position in the requested columns."""

    column: int
    ranges: list[Range]

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        """The wanted rows, from the bytes of `ranges`."""


class PageRead:
    """Pages of a flat column chunk that hold wanted rows."""

    def __init__(
        self,
        column: int,
        place: ChunkPlace,
        template: FooterTemplate,
        kind: pa.DataType,
        pages: PageMap,
        chosen: Rows,
        rows: Rows,
    ) -> None:
        """`kind`: the Arrow type of the column. `chosen`: the pages that hold `rows`."""
        self.column = column
        self._place = place
        self._template = template
        self._kind = kind
        counts = pages.first_rows[chosen + 1] - pages.first_rows[chosen]
        self._counts: list[int] = counts.tolist()
        slots = np.searchsorted(chosen, pages.pages_of(rows))
        before = np.cumsum(counts) - counts
        self._positions = before[slots] + rows - pages.first_rows[chosen][slots]
        self.ranges: list[Range] = list(
            zip(pages.offsets[chosen].tolist(), pages.lengths[chosen].tolist(), strict=True)
        )
        needed = pages.needs_dictionary is None or bool(pages.needs_dictionary[chosen].any())
        self._dictionary = pages.dictionary if needed else None
        if self._dictionary is not None:
            self.ranges.insert(0, self._dictionary)

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        """The wanted rows. Decodes pages to their end, past the last wanted row, to find damage there."""
        indices = self._check(parts) and self._kind in DICTIONARY_READABLE
        lead = len(parts[0]) if self._dictionary is not None else 0
        length, total = sum(map(len, parts)), sum(self._counts)
        chunk = ChunkEntry(self._place.chunk.codec, total, length, length, len(MAGIC), len(MAGIC) + lead)
        with decode_errors(self._place, self.ranges[0][0]):
            file = self._template.open(total, [chunk], parts, as_dictionary=indices, verify=False)
            values = file.read_row_group(0, use_threads=False).column(0)
            if len(values) != total:
                raise pa.ArrowInvalid(f"{len(values)} rows, expected {total}")
            taken = pc.take(values, int64s(self._positions))
            return taken if taken.type == self._kind else taken.cast(self._kind)

    def _check(self, parts: Sequence[bytes]) -> bool:
        """Check that every page is whole and agrees with the page map. Returns whether all values are in the
        dictionary."""
        counts = [None, *self._counts] if self._dictionary is not None else self._counts
        headers = [
            check_page(part, self._place, offset, count)
            for (offset, _), part, count in zip(self.ranges, parts, counts, strict=True)
        ]
        return all(header.in_dictionary for header in headers if header.is_data)


class GroupRead:
    """All chunks of a column in one row group, for nested columns."""

    def __init__(
        self, column: int, places: Sequence[ChunkPlace], template: FooterTemplate, slack: int, rows: Rows
    ) -> None:
        """`slack`: bytes to read beyond each chunk (`legacy_slack`)."""
        self.column = column
        self._places = places
        self._template = template
        self._rows = rows
        self.ranges: list[Range] = [(place.chunk.start, place.chunk.compressed + slack) for place in places]

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        place, chunks, start = self._places[0], [], len(MAGIC)
        for each, part in zip(self._places, parts, strict=True):
            ChunkCheck(each).check(part)
            chunk = each.chunk
            lead = chunk.data_offset - chunk.start
            chunks.append(ChunkEntry(chunk.codec, chunk.values, chunk.uncompressed, len(part), start, start + lead))
            start += len(part)
        with decode_errors(place, place.chunk.start):
            file = self._template.open(place.rows, chunks, parts)
            pieces, seen = [], 0
            for batch in file.iter_batches(GROUP_BATCH, use_threads=False):
                check_leaf_lengths(batch)
                low, high = np.searchsorted(self._rows, (seen, seen + len(batch)))
                if low < high:
                    pieces.append(pc.take(batch.column(0), int64s(self._rows[low:high] - seen)))
                seen += len(batch)
                if seen > self._rows[-1]:
                    return pa.chunked_array(pieces)
            raise pa.ArrowInvalid(f"{seen} rows, the row group has {place.rows}")


def split_pages(pages: PageMap, rows: Rows, limit: int) -> Iterator[tuple[Rows, Rows]]:
    """`(pages, their rows)`: the pages that hold `rows`, in parts of about `limit` bytes."""
    page_of = pages.pages_of(rows)
    chosen = np.unique(page_of)
    filled = np.cumsum(pages.lengths[chosen])
    if filled[-1] <= limit:
        yield chosen, rows
        return
    share_of = filled // limit
    for share in np.unique(share_of):
        part = chosen[share_of == share]
        yield part, rows[(page_of >= part[0]) & (page_of <= part[-1])]


@contextmanager
def decode_errors(place: ChunkPlace, offset: int) -> Iterator[None]:
    """Turn errors of pyarrow over bytes in memory into DamagedSource or UnsupportedFormat at `offset`."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        what = f"row group {place.row_group}: {error}"
        raise UnsupportedFormat(what, place.path, offset, column=place.column) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        check_memory(error)
        raise place.damaged(f"cannot be decoded: {error}", offset) from error

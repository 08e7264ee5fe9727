"""Reads that pyarrow decodes. Each covers one column of one row group: the byte ranges it needs, and the rows in their
bytes. `PageRead` reads pages of flat columns, `GroupRead` all chunks of the column in the row group.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.footer import MAGIC, ChunkPlace
from gnomon.sources.parquet.guards import ChunkCheck, NeedsRecoding, check_leaf_lengths, decode_errors
from gnomon.sources.parquet.page_header import PageHeader, check_page, misreads_levels
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.recode import DELTAS, Coded, open_recoded
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
        headers = self._check(parts)
        if not any(misreads_levels(header, self._place) for header in headers):
            try:
                entries = headers[0].values if self._dictionary is not None else 0
                return self._decoded(self._file(parts, headers), entries)
            except NeedsRecoding:
                pass
            except DamagedSource:
                if not any(header.encoding in DELTAS for header in headers if header.is_data):
                    raise
        total = sum(self._counts)
        coded = Coded(self._place, b"".join(parts), self.ranges[0][0], total)
        return self._decoded(lambda: open_recoded(self._template, total, [coded]))

    def _file(self, parts: Sequence[bytes], headers: Sequence[PageHeader]) -> Callable[[], pq.ParquetFile]:
        """Opens the pages as they are."""
        in_dictionary = all(header.in_dictionary for header in headers if header.is_data)
        indices = in_dictionary and self._kind in DICTIONARY_READABLE
        lead = len(parts[0]) if self._dictionary is not None else 0
        length, total = sum(map(len, parts)), sum(self._counts)
        chunk = ChunkEntry(self._place.chunk.codec, total, length, length, len(MAGIC), len(MAGIC) + lead)
        return partial(self._template.open, total, [chunk], parts, as_dictionary=indices, verify=False)

    def _decoded(self, opened: Callable[[], pq.ParquetFile], entries: int = 0) -> pa.ChunkedArray:
        """The wanted rows of a file with the pages. NeedsRecoding where pyarrow gives them as indices into fewer than
        the `entries` of the dictionary: it drops an entry that repeats another, and not its index."""
        total = sum(self._counts)
        with decode_errors(self._place, self.ranges[0][0]):
            values = opened().read_row_group(0, use_threads=False).column(0)
            if len(values) != total:
                raise pa.ArrowInvalid(f"{len(values)} rows, expected {total}")
            if pa.types.is_dictionary(values.type) and any(len(one.dictionary) < entries for one in values.chunks):
                raise NeedsRecoding
            taken = pc.take(values, int64s(self._positions))
            return taken if taken.type == self._kind else taken.cast(self._kind)

    def _check(self, parts: Sequence[bytes]) -> list[PageHeader]:
        """Check that every page is whole and agrees with the page map. Returns their headers."""
        counts = [None, *self._counts] if self._dictionary is not None else self._counts
        return [
            check_page(part, self._place, offset, count)
            for (offset, _), part, count in zip(self.ranges, parts, counts, strict=True)
        ]


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
        try:
            for each, part in zip(self._places, parts, strict=True):
                ChunkCheck(each).check(part)
            return self._decoded(lambda: self._file(parts))
        except NeedsRecoding:
            pass
        except DamagedSource:
            if all(place.chunk.decodable for place in self._places):
                raise
        coded = [Coded.of_chunk(place, part) for place, part in zip(self._places, parts, strict=True)]
        return self._decoded(lambda: open_recoded(self._template, self._places[0].rows, coded))

    def _file(self, parts: Sequence[bytes]) -> pq.ParquetFile:
        """The chunks as they are."""
        chunks, start = [], len(MAGIC)
        for each, part in zip(self._places, parts, strict=True):
            chunk = each.chunk
            lead = chunk.data_offset - chunk.start
            chunks.append(ChunkEntry(chunk.codec, chunk.values, chunk.uncompressed, len(part), start, start + lead))
            start += len(part)
        return self._template.open(self._places[0].rows, chunks, parts)

    def _decoded(self, opened: Callable[[], pq.ParquetFile]) -> pa.ChunkedArray:
        """The wanted rows of a file with the chunks."""
        place = self._places[0]
        with decode_errors(place, place.chunk.start):
            pieces, seen = [], 0
            for batch in opened().iter_batches(GROUP_BATCH, use_threads=False):
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

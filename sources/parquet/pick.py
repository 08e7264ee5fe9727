"""The few rows wanted of a column, taken out of their pages without decoding the rest: what most fetches are."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sources.parquet.bare import hybrid_values
from sources.parquet.dictionaries import Dictionaries
from sources.parquet.footer import ChunkPlace
from sources.parquet.hybrid import flags_at
from sources.parquet.page_header import RLE, PageHeader, check_page
from sources.parquet.pages import PageMap, Range
from sources.parquet.picked import LeafRows, joined
from sources.parquet.schema import Column, Leaf
from sources.parquet.thrift import ThriftError
from sources.parquet.unpack import unpack_page
from sources.parquet.values import LOOK_AHEAD, Dictionary, Span, Unpickable, level_section, page_values

Levels = NDArray[np.int32]
Rows = NDArray[np.int64]


class LeafPick:
    """The pages of one leaf's chunk that hold the rows wanted."""

    def __init__(
        self,
        place: ChunkPlace,
        leaf: Leaf,
        pages: PageMap,
        chosen: Sequence[tuple[int, list[int]]],
        dictionaries: Dictionaries,
    ) -> None:
        """`chosen`: each page, and its rows that are wanted, counted from its first."""
        self._place = place
        self._leaf = leaf
        self._pages = [(int(pages.first_rows[page + 1] - pages.first_rows[page]), rows) for page, rows in chosen]
        self._dictionaries = dictionaries
        self._key = (place.row_group, leaf.ordinal)
        self._dictionary: Dictionary | None = None
        self.ranges: list[Range] = [(int(pages.offsets[page]), int(pages.lengths[page])) for page, _ in chosen]
        needed = pages.needs_dictionary
        self._reads_dictionary = False
        if pages.dictionary is not None and (needed is None or any(needed[page] for page, _ in chosen)):
            self._dictionary = dictionaries.get(self._key)
            if self._dictionary is None:
                self._reads_dictionary = True
                self.ranges.insert(0, pages.dictionary)

    def rows(self, parts: Sequence[bytes]) -> LeafRows:
        """The rows, from the bytes of `ranges`. `Unpickable` where pyarrow has to decode whole pages."""
        ranges = self.ranges
        if self._reads_dictionary:
            self._dictionary = self._read_dictionary(parts[0])
            ranges, parts = ranges[1:], parts[1:]
        found = []
        for (offset, _), part, (count, rows) in zip(ranges, parts, self._pages, strict=True):
            header = check_page(part, self._place, offset, count)
            try:
                found.append(self._of_page(part, header, offset, count, rows))
            except pa.ArrowNotImplementedError as error:
                raise Unpickable from error
            except (ThriftError, pa.ArrowException, OSError, ValueError) as error:
                raise self._place.damaged(f"cannot be decoded: {error}", offset) from error
        return joined(found)

    def _read_dictionary(self, part: bytes) -> Dictionary:
        offset = self.ranges[0][0]
        header = check_page(part, self._place, offset, None)
        made = Dictionary(part, header, self._place, offset, self._leaf)
        self._dictionaries.put(self._key, made)
        return made

    def _of_page(self, part: bytes, header: PageHeader, offset: int, count: int, rows: list[int]) -> LeafRows:
        levels, values = unpack_page(part, header, self._place, offset)
        sections = []  # of repetition levels, then of definition levels
        for highest, encoding, length in (
            (self._leaf.repetitions, header.repetition_encoding, header.repetition_bytes),
            (self._leaf.definitions, header.definition_encoding, header.definition_bytes),
        ):
            if header.is_v2:
                section, levels = levels[:length], levels[length:]
            elif not highest:
                section = values[:0]
            elif encoding == RLE:
                section, values = level_section(values)
            else:
                raise Unpickable
            sections.append(section)
        if self._leaf.repetitions or self._leaf.definitions > 1:
            entries, spans = self._nested(sections, header.values, count, rows)
        else:
            entries, spans = self._flat(sections[1], rows)
        if not spans:
            return entries
        share = (rows[-1] + 1 + LOOK_AHEAD) / count
        plain = page_values(values, header, self._leaf, self._dictionary, spans[-1][1], share).plain(spans)
        return entries._replace(values=plain)

    def _flat(self, definitions: memoryview, rows: list[int]) -> tuple[LeafRows, list[Span]]:
        if not self._leaf.definitions:
            return LeafRows(len(rows), b"", b"", b""), [(row, row + 1) for row in rows]
        flags = flags_at(definitions, rows)
        spans = [(rank, rank + 1) for there, rank in flags if there]
        return LeafRows(len(rows), b"", bytes([there for there, _ in flags]), b""), spans

    def _nested(
        self, sections: Sequence[memoryview], entries: int, count: int, rows: list[int]
    ) -> tuple[LeafRows, list[Span]]:
        """All levels of the page are decoded: only they say where a row begins."""
        leaf, wanted = self._leaf, np.array(rows)
        repetitions = _levels(sections[0], leaf.repetitions, entries)
        definitions = _levels(sections[1], leaf.definitions, entries)
        starts = np.append(np.flatnonzero(repetitions == 0), entries)
        if starts[0] != 0 or len(starts) != count + 1:
            raise Unpickable  # a page that does not begin with a row, or not as the page map has it
        there = np.concatenate(([0], np.cumsum(definitions == leaf.definitions)))
        bounds = list(zip(starts[wanted].tolist(), starts[wanted + 1].tolist(), strict=True))
        spans = [(int(there[begin]), int(there[end])) for begin, end in bounds]
        found = LeafRows(
            sum([end - begin for begin, end in bounds]),
            _of_rows(repetitions, bounds) if leaf.repetitions else b"",
            _of_rows(definitions, bounds) if leaf.definitions else b"",
            b"",
        )
        return found, [span for span in spans if span[0] < span[1]]


def _of_rows(levels: Levels, bounds: Sequence[Span]) -> bytes:
    return b"".join([levels[begin:end].astype(np.uint8).tobytes() for begin, end in bounds])


def _levels(section: memoryview, highest: int, count: int) -> Levels:
    if not highest:
        return np.zeros(count, np.int32)
    if highest > 255:
        raise Unpickable
    return hybrid_values(section, highest.bit_length(), count, highest + 1)


class PickRead:
    """A column's share of one row group, of which few rows are wanted."""

    def __init__(
        self, column: int, of: Column, places: Sequence[ChunkPlace], leaves: Sequence[LeafPick], wanted: Rows
    ) -> None:
        """`column` is the place in the list of columns asked for, `wanted` are rows of the row group."""
        self.column = column
        self.of = of
        self.places = places
        self.wanted = wanted
        self._leaves = leaves
        self.ranges: list[Range] = [span for leaf in leaves for span in leaf.ranges]

    def pick(self, parts: Sequence[bytes]) -> list[LeafRows]:
        """The rows of each leaf, from the bytes of `ranges`."""
        found, at = [], 0
        for leaf in self._leaves:
            found.append(leaf.rows(parts[at : at + len(leaf.ranges)]))
            at += len(leaf.ranges)
        return found

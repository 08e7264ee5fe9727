"""Reads of single rows: selects the pages of a chunk that hold the rows of a fetch, decodes only these rows, and makes
an Arrow array of each column.

`build_array` makes an array of types whose Arrow layout equals the PLAIN encoding. For other columns `decode_leaves`
writes the rows of all leaves into one Parquet file in memory, which pyarrow decodes in one call.
"""

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.errors import check_memory
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.dictionary import MOST_IN_PARTS, DictionaryRead, PageCaches, PartReads
from gnomon.sources.parquet.footer import BINARY, BOOLEAN, MAGIC, ChunkPlace, Column, Leaf
from gnomon.sources.parquet.page import DecompressedPage
from gnomon.sources.parquet.page_header import DATA, PLAIN, check_leaf_lengths, check_page, decode_errors
from gnomon.sources.parquet.page_map import PageMap, PageShare, Range
from gnomon.sources.parquet.page_values import LENGTH_BYTES, LeafRows, NeedsPyarrow, concatenate, decoding
from gnomon.sources.parquet.synthetic_file import (
    UNCOMPRESSED,
    ArrowTypes,
    ChunkEntry,
    FooterTemplate,
    encode_levels,
    encode_page_header,
)
from gnomon.sources.parquet.value_map import IndexMap, ValueMap

Rows = NDArray[np.int64]
Found = tuple[LeafRows, list[int] | None]  # rows; without their values where these are dictionary entries, given here
MOST_ROWS = 64  # for more, one call of pyarrow for all columns is faster
LONGEST = (1 << 31) - 1  # bytes of all texts of an array
INT32, INT64, INT96, FLOAT, DOUBLE = 1, 2, 3, 4, 5  # physical types (Type in parquet.thrift)
UNIX_EPOCH = 2_440_588  # the Julian day
DAY = 86_400_000_000  # microseconds
WORD = 1 << 64
# Each physical type with the Arrow types that have the same bytes. Timestamps keep the file's unit, since pyarrow read
# the file's schema, and it converts no INT64.
SAME_BYTES = {
    INT32: frozenset({pa.int32().id, pa.date32().id}),
    INT64: frozenset({pa.int64().id, pa.timestamp("us").id}),
    INT96: frozenset({pa.timestamp("us").id}),  # after `_microseconds`
    FLOAT: frozenset({pa.float32().id}),
    DOUBLE: frozenset({pa.float64().id}),
    BINARY: frozenset({pa.string().id, pa.binary().id}),
}


class _SelectedPage(NamedTuple):
    """A page with wanted rows: its place, its number of rows, and what is wanted of it. It is decompressed already
    where it is cached; else, where it is mapped, only parts of it are read, and `flags` says for each row whether it
    has a value. `dictionary`: whether it may need the dictionary."""

    range: Range
    in_all: int
    share: PageShare
    kept: DecompressedPage | None
    parts: PartReads | None
    flags: bytes
    dictionary: bool

    def ranges(self) -> list[Range]:
        """The bytes to read."""
        if self.kept is not None:
            return []
        return [self.range] if self.parts is None else self.parts.ranges


class LeafRead:
    """The pages of one leaf's chunk that hold the wanted rows."""

    def __init__(
        self,
        place: ChunkPlace,
        leaf: Leaf,
        pages: PageMap,
        chosen: Sequence[PageShare],
        caches: PageCaches,
        is_remote: bool,
    ) -> None:
        """`ranges` are the bytes to read: without the pages and the dictionary that are cached. A second round of
        remote reads takes long."""
        self._place = place
        self._leaf = leaf
        self._caches = caches
        self._key = (place.row_group, leaf.ordinal)
        self._dictionary = DictionaryRead(place, leaf, pages.dictionary, caches) if pages.dictionary else None
        self._pages = [self._select(pages, share) for share in chosen]
        self.ranges: list[Range] = [span for page in self._pages for span in page.ranges()]
        self._found: list[Found] = []
        self._dictionary_later = False
        if self._dictionary is not None and any(page.dictionary for page in self._pages):
            self.ranges[:0] = self._dictionary_ranges(self._dictionary, is_remote)

    def _select(self, pages: PageMap, share: PageShare) -> _SelectedPage:
        number = share.page
        span = (int(pages.offsets[number]), int(pages.lengths[number]))
        in_all = int(pages.first_rows[number + 1] - pages.first_rows[number])
        kept = self._caches.pages.get((self._leaf.ordinal, span)) if self._caches.pages else None
        parts, flags = (None, b"") if kept is not None else self._parts_of(span, share.rows)
        if kept is not None:
            dictionary = kept.needs_dictionary
        elif parts is not None:
            dictionary = isinstance(parts.map, IndexMap) and bool(parts.values)
        else:
            dictionary = pages.needs_dictionary is None or bool(pages.needs_dictionary[number])
        return _SelectedPage(span, in_all, share, kept, parts, flags, dictionary)

    def _parts_of(self, span: Range, rows: list[int]) -> tuple[PartReads | None, bytes]:
        """The parts of a page to read instead of it, and a flag for each row whether it has a value. No parts where the
        page has no map, or they are most of it."""
        found = self._caches.maps.get((*self._key, *span))
        if found is None or not found.suits(self._leaf):
            return None, b""
        try:
            flags, values = found.wanted(rows)
        except (ValueError, pa.ArrowException, OSError) as error:  # its levels have fewer rows
            check_memory(error)
            return None, b""
        if not found.has(values):
            return None, b""
        reads = PartReads(found, span, values, self._leaf.ordinal, self._caches.pages)
        return reads if reads.pays else None, flags

    def _dictionary_ranges(self, dictionary: DictionaryRead, is_remote: bool) -> list[Range]:
        """The bytes of the dictionary to read in the first round: single entries where all indices are in memory. Else
        all of it, unless single entries can be read in a second round."""
        if not dictionary.in_parts:
            return dictionary.all()
        users = [page for page in self._pages if page.dictionary]
        if not any(page.ranges() for page in users):
            try:
                found = [self._found_in(page, iter(())) for page in users]
                return dictionary.select(list(chain.from_iterable(indices or () for _, indices in found)))
            except NeedsPyarrow:
                return dictionary.all()
        self._dictionary_later = not is_remote
        return [] if self._dictionary_later else dictionary.all()

    def decode(self, read: Iterator[bytes]) -> list[Range]:
        """Decode the pages. `read` has the bytes of `ranges`. Returns what a second round has to read. NeedsPyarrow,
        here and in `rows`, where pyarrow has to decode whole pages."""
        if self._dictionary is not None and not self._dictionary_later:
            self._dictionary.read(read)
        self._found = [self._found_in(page, read) for page in self._pages]
        if self._dictionary is None or not self._dictionary_later:
            return []
        indices = list(chain.from_iterable(indices or () for _, indices in self._found))
        return self._dictionary.select(indices) if indices else []

    def rows(self, read: Iterator[bytes]) -> LeafRows:
        """The rows. `read` has the bytes that `decode` asked for."""
        if self._dictionary is not None and self._dictionary_later:
            self._dictionary.read(read)
        return concatenate([self._with_values(*found) for found in self._found])

    def _with_values(self, rows: LeafRows, indices: list[int] | None) -> LeafRows:
        if not indices:
            return rows
        if self._dictionary is None:
            raise NeedsPyarrow
        return rows._replace(values=self._dictionary.at(indices))

    def _found_in(self, page: _SelectedPage, read: Iterator[bytes]) -> Found:
        if page.kept is not None:
            return self._found_in_kept_page(page.kept, page.share)
        if page.parts is not None:
            return self._found_in_parts(page.parts, LeafRows(len(page.share.rows), b"", page.flags, b""), read)
        return self._found_in_read_page(next(read), page)

    def _found_in_parts(self, parts: PartReads, entries: LeafRows, read: Iterator[bytes]) -> Found:
        """As `_found_in`. `entries`: the rows without their values."""
        map, values, contents = parts.map, parts.values, parts.contents(read)
        if isinstance(map, ValueMap):
            plain = [map.plain(content, part.begin, part.values) for part, content in contents]
            return entries._replace(values=b"".join(chain.from_iterable(plain))), None
        if not values:  # the dictionary was not read
            return entries, None
        if self._dictionary is None or not isinstance(map, IndexMap):
            raise NeedsPyarrow
        limit = self._dictionary.count
        try:
            with decoding(self._place):
                if map.kept is not None:
                    return entries, map.kept_indices(values, limit)
                found = [map.indices(content, part.begin, part.values, limit) for part, content in contents]
        except DamagedSource as error:
            raise NeedsPyarrow from error
        return entries, list(chain.from_iterable(found))

    def _found_in_read_page(self, part: bytes, wanted: _SelectedPage) -> Found:
        offset = wanted.range[0]
        header = check_page(part, self._place, offset, wanted.in_all)
        if not header.values and not wanted.share.rows:  # it need not even have the lengths of its levels
            return LeafRows(0, b"", b"", b""), None
        page = DecompressedPage(part, header, self._place, offset, self._leaf, wanted.in_all)
        found = self._rows_of(page, wanted.share)
        if self._caches.pages is not None and len(wanted.share.rows) <= MOST_IN_PARTS:  # else it is a part of a scan
            self._caches.pages.put((self._leaf.ordinal, wanted.range), page)
        if page.map is not None and page.map.saves_reads:
            self._caches.maps.learn((*self._key, *wanted.range), page.map)
        return found

    def _rows_of(self, page: DecompressedPage, share: PageShare) -> Found:
        if not page.needs_dictionary:
            return page.rows(share), None
        if self._dictionary is None:
            raise NeedsPyarrow
        return page.indices(share, self._dictionary.count)

    def _found_in_kept_page(self, page: DecompressedPage, share: PageShare) -> Found:
        """Rows of a cached page. If it is damaged, the page is read again, which reports the damage."""
        try:
            return self._rows_of(page, share)
        except DamagedSource as error:
            raise NeedsPyarrow from error


class RowRead:
    """The wanted rows of a column in one row group, few in each page."""

    def __init__(
        self, column: int, of: Column, places: Sequence[ChunkPlace], leaves: Sequence[LeafRead], wanted: Rows
    ) -> None:
        """`column` is the position in the list of requested columns, `wanted` are rows of the row group."""
        self.column = column
        self.of = of
        self.places = places
        self.wanted = wanted
        self._leaves = leaves
        self.ranges: list[Range] = [span for leaf in leaves for span in leaf.ranges]

    def decode(self, parts: Sequence[bytes]) -> list[Range]:
        """Decode the pages, from the bytes of `ranges`. Returns what a second round has to read, usually nothing."""
        read = iter(parts)
        return [span for leaf in self._leaves for span in leaf.decode(read)]

    def leaf_rows(self, parts: Sequence[bytes]) -> list[LeafRows]:
        """The rows of each leaf, from the bytes that `decode` asked for."""
        read = iter(parts)
        return [leaf.rows(read) for leaf in self._leaves]


class _UntypedRows:
    """Decoded rows of one column that are not Arrow arrays yet, of one or more row groups."""

    def __init__(self, place: ChunkPlace) -> None:
        self.place = place
        self.rows = 0
        self.leaves: list[list[LeafRows]] = []  # for each read


class RowAssembler:
    """Collects the rows of each column in order. Columns with only untyped rows, the usual case, become Arrow arrays
    together."""

    def __init__(self, types: ArrowTypes, requested: Sequence[Column]) -> None:
        self._types = types
        self._requested = requested
        self._of: list[list[_UntypedRows | pa.ChunkedArray]] = [[] for _ in requested]

    def add_decoded(self, column: int, found: pa.ChunkedArray) -> None:
        """Add rows that pyarrow decoded."""
        self._of[column].append(found)

    def add_untyped(self, read: RowRead, leaves: list[LeafRows]) -> None:
        """Add rows that `RowRead` decoded."""
        pieces = self._of[read.column]
        if not pieces or not isinstance(pieces[-1], _UntypedRows):
            pieces.append(_UntypedRows(read.places[0]))
        last = pieces[-1]
        last.rows += len(read.wanted)
        last.leaves.append(leaves)

    def arrays(self) -> list[pa.Array | pa.ChunkedArray]:
        """The rows of each column, in the type of the file's schema."""
        whole = {i: pieces[0] for i, pieces in enumerate(self._of) if len(pieces) == 1}
        found = self._typed({i: piece for i, piece in whole.items() if isinstance(piece, _UntypedRows)})
        for i, pieces in enumerate(self._of):
            if i not in found:
                typed = [self._typed({i: piece})[i] if isinstance(piece, _UntypedRows) else piece for piece in pieces]
                chunks = [piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece] for piece in typed]
                found[i] = pa.chunked_array(list(chain(*chunks)), self._types.kinds[self._requested[i].ordinal])
        return [found[i] for i in range(len(self._of))]

    def _typed(self, untyped: Mapping[int, _UntypedRows]) -> dict[int, pa.Array | pa.ChunkedArray]:
        """The rows of columns, by the position of each among the requested ones."""
        found: dict[int, pa.Array | pa.ChunkedArray] = {}
        others: list[tuple[int, Column, _UntypedRows]] = []
        for i, each in untyped.items():
            column = self._requested[i]
            kind = self._types.kinds[column.ordinal]
            if has_arrow_layout(column, kind, each.rows):
                with decoding(each.place):
                    found[i] = build_array(column, kind, concatenate([rows for [rows] in each.leaves]))
            else:
                others.append((i, column, each))
        if others:
            self._by_pyarrow(others, found)
        return found

    def _by_pyarrow(
        self,
        untyped: Sequence[tuple[int, Column, _UntypedRows]],
        found: dict[int, pa.Array | pa.ChunkedArray],
    ) -> None:
        """Decode untyped rows of several columns in one call of pyarrow. Adds them to `found`."""
        requested, first = [column for _, column, _ in untyped], untyped[0][2]
        leaves = [leaf for column in requested for leaf in column.leaves]
        rows = [concatenate(parts) for _, _, each in untyped for parts in zip(*each.leaves, strict=True)]
        with decode_errors(first.place, first.place.chunk.start):
            table = decode_leaves(self._types.template(requested), leaves, rows, first.rows)
        for (i, column, _), values in zip(untyped, table.columns, strict=True):
            kind = self._types.kinds[column.ordinal]
            found[i] = values if values.type == kind else values.cast(kind)


def decode_leaves(template: FooterTemplate, leaves: Sequence[Leaf], columns: Sequence[LeafRows], rows: int) -> pa.Table:
    """A table of `rows` rows, from the rows of each leaf of the template."""
    parts: list[bytes] = []
    chunks, start = [], len(MAGIC)
    for leaf, column in zip(leaves, columns, strict=True):
        values = _pack_booleans(column.values) if leaf.kind == BOOLEAN else column.values
        repetitions = encode_levels(column.repetitions, leaf.repetitions)
        definitions = encode_levels(column.definitions, leaf.definitions)
        size = len(repetitions) + len(definitions) + len(values)
        head = encode_page_header(DATA, column.entries, PLAIN, size, size)
        total = len(head) + size
        parts += (head, repetitions, definitions, values)
        chunks.append(ChunkEntry(UNCOMPRESSED, column.entries, total, total, start, start))
        start += total
    table = template.open(rows, chunks, parts, verify=False).read_row_group(0, use_threads=False)
    table.validate()
    for batch in table.to_batches():
        check_leaf_lengths(batch)
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{table.num_rows} rows, expected {rows}")
    return table


def _pack_booleans(booleans: bytes) -> bytes:
    return np.packbits(np.frombuffer(booleans, np.uint8), bitorder="little").tobytes()


def has_arrow_layout(column: Column, kind: pa.DataType, rows: int) -> bool:
    """Whether `build_array` handles this number of rows of a column of this Arrow type."""
    if not column.flat or rows > MOST_ROWS:
        return False
    stored = column.leaves[0].kind
    return kind.id in SAME_BYTES.get(stored, ()) and (stored != INT96 or kind.unit == "us")


def build_array(column: Column, kind: pa.DataType, rows: LeafRows) -> pa.Array:
    """The rows of a column for which `has_arrow_layout` is true, as an array. ArrowInvalid where levels and values
    contradict each other."""
    leaf = column.leaves[0]
    present = rows.definitions if leaf.definitions else b"\1" * rows.entries
    if len(present) != rows.entries:
        raise pa.ArrowInvalid(f"{len(present)} levels for {rows.entries} rows")
    valid, count = None, present.count(1)
    if count < rows.entries:
        valid = pa.py_buffer(np.packbits(np.frombuffer(present, np.uint8), bitorder="little"))
    if leaf.kind == BINARY:
        buffers = _byte_array_buffers(rows.values, present)
    elif leaf.kind == INT96:
        buffers = [_numbers(_microseconds(rows.values), present, 8, count)]
    else:
        buffers = [_numbers(rows.values, present, leaf.width, count)]
    return pa.Array.from_buffers(kind, rows.entries, [valid, *buffers])


def _microseconds(values: bytes) -> bytes:
    """INT96 timestamps, each the nanoseconds of the day and the Julian day, as microseconds since 1970. What does not
    fit into 64 bits wraps, and day 0, which only damaged files have, is 1970, as in pyarrow, which scans files."""
    if len(values) % 12:
        raise pa.ArrowInvalid(f"{len(values)} bytes of INT96 values")
    pairs = struct.iter_unpack("<QI", values)
    times = [(day - UNIX_EPOCH) * DAY + nanoseconds // 1000 if day else 0 for nanoseconds, day in pairs]
    return b"".join([(time % WORD).to_bytes(8, "little") for time in times])


def _numbers(values: bytes, present: bytes, width: int, count: int) -> pa.Buffer:
    """Values of `width` bytes each, with zeros for nulls."""
    if len(values) != width * count:
        raise pa.ArrowInvalid(f"{len(values)} bytes for {count} values of {width} bytes")
    if count == len(present):
        return pa.py_buffer(values)
    whole = np.zeros((len(present), width), np.uint8)
    whole[np.frombuffer(present, np.bool_)] = np.frombuffer(values, np.uint8).reshape(-1, width)
    return pa.py_buffer(whole)


def _byte_array_buffers(values: bytes, present: bytes) -> list[pa.Buffer]:
    """The offsets and the bytes of byte arrays. In `values`, each has its length before it."""
    lengths, texts, position = [], [], 0
    for is_present in present:
        end = position
        if is_present:
            position += LENGTH_BYTES
            end = position + int.from_bytes(values[position - LENGTH_BYTES : position], "little")
            texts.append(values[position:end])
        lengths.append(end - position)
        position = end
    if position != len(values):
        raise pa.ArrowInvalid(f"byte arrays of {position} bytes in {len(values)}")
    if position > LONGEST:
        raise pa.ArrowInvalid(f"byte arrays of {position} bytes in one column")
    offsets = array("i", accumulate(lengths, initial=0))
    return [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]

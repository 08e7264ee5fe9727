"""A Parquet file as a `SourceFile`. The pointer of a row is its ordinal in the file
(docs/internals/parquet-fetch.md)."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import KeptPages, Maps, Numbers, Options, PlainValues, Pointers, Split
from gnomon.sources.errors import DamagedSource, UnsupportedFormat, check_column
from gnomon.sources.parquet.footer import (
    ENCRYPTED_MAGIC,
    MAGIC,
    Column,
    Footer,
    WrongPageMap,
    narrowed_column,
    parse_footer,
)
from gnomon.sources.parquet.map_codec import RecordedMaps, decode_maps
from gnomon.sources.parquet.page_map import Range
from gnomon.sources.parquet.page_values import NeedsPyarrow
from gnomon.sources.parquet.read_plan import ReadPlanner, read_batches
from gnomon.sources.parquet.row_reads import RowAssembler, RowRead
from gnomon.sources.parquet.synthetic_file import ArrowTypes
from gnomon.sources.parquet.thrift import ThriftError
from gnomon.sources.parquet.whole_reads import Read, Rows, scan_group
from gnomon.sources.pointers import distinct_rows, even_splits, first_of_each, in_pointer_order, table_without_columns

FIRST_READ = 64 << 10  # bytes from the end: they contain nearly every footer
ENDING = 8  # bytes: footer length, magic
MUCH_BYTES = 1 << 20  # of pages as they are stored: worth threads
MOST_CHOICES = 16  # of columns, that a file keeps
INT32_MAX = (1 << 31) - 1


def open_parquet(reader: RangeReader, _options: Options | None = None, maps: Maps | None = None) -> "ParquetFile":
    """Open a Parquet file. Reads the footer: one read where it lies in the last 64 KB, else two. `maps` returns the
    recorded result of `ParquetFile.export_maps` for this file; `DamagedMaps` for anything else."""
    path, size = reader.name, reader.size
    body, start, tail = read_footer(reader)
    try:
        footer = parse_footer(body)
        types = ArrowTypes(footer)
    except ThriftError as error:
        raise DamagedSource(f"the footer cannot be read: {error}", path, start) from error
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    held = _index_in(tail, size - len(tail), start, footer)
    planner = ReadPlanner(footer, types, size, held, RecordedMaps(maps(), digest) if maps else None)
    return ParquetFile(footer, types, size, digest, planner)


def read_footer(reader: RangeReader) -> tuple[bytes, int, bytes]:
    """The bytes of the footer, their offset, and the last bytes of the file, which were read first."""
    path, size = reader.name, reader.size
    if size < len(MAGIC) + ENDING:
        raise DamagedSource(f"{size} bytes are too few for a Parquet file", path, 0)
    tail = reader.read_range(max(size - FIRST_READ, 0), min(size, FIRST_READ))
    magic = tail[-len(MAGIC) :]
    if magic == ENCRYPTED_MAGIC:
        raise UnsupportedFormat("the footer is encrypted, and no keys are known", path)
    if magic != MAGIC:
        raise DamagedSource(f"ends in {magic!r}, a Parquet file ends in {MAGIC!r}", path, size - len(MAGIC))
    length = int.from_bytes(tail[-ENDING : -len(MAGIC)], "little")
    start = size - ENDING - length
    if start < len(MAGIC):
        raise DamagedSource(f"claims a footer of {length} bytes, the file has {size}", path, size - ENDING)
    body = tail[-ENDING - length : -ENDING] if length + ENDING <= len(tail) else reader.read_range(start, length)
    return body, start, tail


def _index_in(tail: bytes, tail_start: int, footer_start: int, footer: Footer) -> tuple[int, bytes]:
    """`(offset, bytes)` of the OffsetIndexes that came with the tail, since they lie just before the footer. They save
    the first fetch a round trip."""
    offsets = [chunk.index_offset for group in footer.row_groups for chunk in group.chunks]
    first = min((offset for offset in offsets if tail_start <= offset < footer_start), default=0)
    return (first, tail[first - tail_start : footer_start - tail_start]) if first else (0, b"")


class ParquetFile:
    """One Parquet file, with its footer read. Safe to share between threads."""

    ragged = 0

    def __init__(self, footer: Footer, types: ArrowTypes, size: int, digest: str, planner: ReadPlanner) -> None:
        self._footer = footer
        self._types = types
        self._size = size
        self.digest = digest
        self._planner = planner
        self.schema = first_of_each(types.schema)
        self.rows = footer.rows  # the sum over the row groups, which is right even where the footer's own total differs
        self.group_rows = [group.rows for group in footer.row_groups]
        total = sum(max(chunk.compressed, 0) for group in footer.row_groups for chunk in group.chunks)
        self.row_bytes = min(max(total // max(self.rows, 1), 1), INT32_MAX)  # the value of `data_size` in `scan`
        self._footer_bytes = footer.cache_bytes
        self._choices: dict[tuple[str, ...], tuple[list[Column], pa.Schema, list[pa.DataType]]] = {}
        self._by_name: dict[str, Column] = {}
        for column in footer.columns:  # if columns share a name, it means the first of them
            self._by_name.setdefault(column.name, column)

    @property
    def cache_bytes(self) -> int:
        return self._footer_bytes + self._types.cache_bytes + self._planner.cache_bytes

    def narrow(self, path: Sequence[str]) -> str:
        whole, name = self._by_name[path[0]], ".".join(path)
        while name in self._by_name:
            name += "_"
        column = narrowed_column(whole, path[1:], len(self._types.schema), name)
        if column is None or whole.ordinal in self._types.refusals or not self._types.add(column, path):
            return whole.name
        self._by_name[name] = column
        return name

    def scan_bytes(self, columns: Sequence[str]) -> int:
        leaves = [leaf.ordinal for name in columns if name in self._by_name for leaf in self._by_name[name].leaves]
        return sum(max(group.chunks[leaf].compressed, 0) for group in self._footer.row_groups for leaf in leaves)

    def splits(self, target: int) -> list[Split]:
        return even_splits(self._size, target)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows; for a split, those of the row groups whose first byte lies in it."""
        path = reader.name
        requested = self._columns(columns, path)
        begin, end = split or (0, self._size)
        for ordinal, group in enumerate(self._footer.row_groups):
            if not group.rows or not begin <= self._begin(ordinal) < end:
                continue
            places = [self._planner.places(path, ordinal, column) for column in requested]
            flat = [place for each in places for place in each]
            for batch in scan_group(reader, group, self._types.template(requested), flat, self.row_bytes):
                yield self._as_declared(batch, requested)

    def _begin(self, ordinal: int) -> int:
        """The position of a row group for splits: a byte of the file, the same in each call."""
        first = min((chunk.start for chunk in self._footer.row_groups[ordinal].chunks), default=0)
        return min(max(first, 0), self._size - 1)

    def _as_declared(self, batch: pa.RecordBatch, requested: Sequence[Column]) -> pa.RecordBatch:
        """The batch with the types of `schema` (INT96 as an instant)."""
        arrays, fields = list(batch.columns), list(batch.schema)
        for i, column in enumerate(requested):
            declared = self._types.schema.field(column.ordinal)
            if pa.types.is_timestamp(fields[i].type) and fields[i].type != declared.type:
                arrays[i], fields[i] = arrays[i].cast(declared.type), declared
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def units(self, offsets: Numbers) -> Numbers:
        """The row groups."""
        return self._planner.group_of_rows(offsets)

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        path = reader.name
        requested, schema, _ = self._choice(tuple(columns), path)
        rows, places = distinct_rows(pointers, self.rows, path)
        if not requested:
            return table_without_columns(len(places))
        distinct = list(dict.fromkeys(columns))
        found = self._found(reader, path, requested, rows)
        if len(distinct) < len(columns):
            found = [found[distinct.index(name)] for name in columns]
        return in_pointer_order(pa.Table.from_arrays(found, schema=schema), places)

    def values(self, reader: RangeReader, rows: Sequence[int], columns: Sequence[str]) -> PlainValues | None:
        requested, _, kinds = self._choice(tuple(columns), reader.name)
        if not requested or len(requested) < len(columns) or min(rows) < 0 or max(rows) >= self.rows:
            return None
        found = self._planner.values(reader, reader.name, requested, rows)
        return None if found is None else PlainValues(kinds, found)

    def _choice(self, names: tuple[str, ...], path: str) -> tuple[list[Column], pa.Schema, list[pa.DataType]]:
        """The distinct columns of these names, and the schema and the types of a table of the names, kept for later
        fetches."""
        found = self._choices.get(names)
        if found is None:
            columns = self._columns(names, path)
            schema = pa.schema([self._types.schema.field(column.ordinal) for column in columns])
            if len(self._choices) >= MOST_CHOICES:
                self._choices.clear()
            distinct = list({column.ordinal: column for column in columns}.values())
            found = self._choices[names] = distinct, schema, schema.types
        return found

    def keep_in(self, pages: KeptPages) -> None:
        self._planner.keep_in(pages)

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        path = reader.name
        rows, _ = distinct_rows(pointers, self.rows, path)
        self._planner.plan(reader, path, self._choice(tuple(columns), path)[0], rows)

    def _found(
        self, reader: RangeReader, path: str, requested: Sequence[Column], rows: Rows
    ) -> list[pa.Array | pa.ChunkedArray]:
        """The values of `rows`, which ascend, in each column. If a page contradicts its page map, they are read anew
        with maps made of page headers, and so are later ones."""
        planner = self._planner
        try:
            return self._arrays(planner, reader, path, requested, rows)
        except WrongPageMap:
            sure = planner.from_headers()
            if sure is None:
                raise
        found = self._arrays(sure, reader, path, requested, rows)
        self._planner = sure
        return found

    def _arrays(
        self, planner: ReadPlanner, reader: RangeReader, path: str, requested: Sequence[Column], rows: Rows
    ) -> list[pa.Array | pa.ChunkedArray]:
        """The values of `rows` in each column, with the page maps of a planner."""
        pieces = RowAssembler(self._types, requested)
        for reads in read_batches(planner.plan(reader, path, requested, rows)):
            ranges = [span for read in reads for span in read.ranges]
            parts = reader.read_ranges(ranges)[::-1] if ranges else []  # taken from the end, and freed once decoded
            found = _all_decoded(reads, parts)
            later = [span for each in found if isinstance(each, list) for span in each]
            parts = reader.read_ranges(later)[::-1] if later else []
            for read, each in zip(reads, found, strict=True):
                if isinstance(read, RowRead):
                    rest = None if each is None else [parts.pop() for _ in each]
                    for whole in _add_rows(planner, read, rest, pieces):
                        pieces.add_decoded(read.column, whole.rows(reader.read_ranges(whole.ranges)))
                else:
                    pieces.add_decoded(read.column, each)
        return pieces.arrays()

    def export_maps(self, reader: RangeReader, deep: bool = False) -> bytes:
        """The page maps of the whole file, for `open_parquet`. `--page-maps` records them."""
        return self._planner.export(reader, reader.name, self.digest, deep)

    @property
    def learned(self) -> int:
        return self._planner.learned

    def export_learned(self) -> bytes:
        return self._planner.export_learned(self.digest)

    def learn(self, data: bytes) -> None:
        self._planner.learn(data, self.digest)

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        """Whether recorded page maps equal those of the file. Value maps are compared where loops are compiled.
        `DamagedMaps` if they belong to another file."""
        recorded, values = decode_maps(maps, self.digest)
        found, _ = decode_maps(self.export_maps(reader), self.digest)
        if not np.array_equal(recorded, found):
            return False
        return values is None or not kernel.COMPILED or self._planner.has_values(reader, reader.name, values)

    def _columns(self, names: Sequence[str], path: str) -> list[Column]:
        requested = []
        for name in names:
            check_column(name, self._by_name, path)
            column = self._by_name[name]
            refusal = self._types.refusals.get(column.ordinal)
            if refusal is not None:
                raise UnsupportedFormat(refusal, path, column=name)
            requested.append(column)
        return requested


def _add_rows(planner: ReadPlanner, read: RowRead, parts: Sequence[bytes] | None, pieces: RowAssembler) -> list[Read]:
    """Add the rows of `read`, from the bytes of its second round; None where its pages differ from their chunk's
    metadata. Returns the reads of such pages, which are decoded whole."""
    try:
        if parts is None:
            raise NeedsPyarrow
        pieces.add_untyped(read, read.leaf_rows(parts))
    except NeedsPyarrow:
        return planner.whole_page_reads(read.column, read.of, read.places, read.wanted)
    return []


def _all_decoded(reads: Sequence[Read | RowRead], parts: list[bytes]) -> list[pa.ChunkedArray | list[Range] | None]:
    """The result of `_decoded` for each read. `parts` has the bytes of all reads, the last first. If they are many,
    several threads decode them: codecs and pyarrow release the lock of Python."""
    cores = min(pa.cpu_count(), len(reads))  # 1 in a process that shares the cores with others
    if cores < 2 or sum(map(len, parts)) < MUCH_BYTES:
        return [_decoded(read, [parts.pop() for _ in read.ranges]) for read in reads]
    with ThreadPoolExecutor(cores) as pool:
        begun = [pool.submit(_decoded, read, [parts.pop() for _ in read.ranges]) for read in reads]
        return [one.result() for one in begun]


def _decoded(read: Read | RowRead, parts: Sequence[bytes]) -> pa.ChunkedArray | list[Range] | None:
    """The rows of a read that pyarrow decodes; for single rows, what a second round has to read, or None where pyarrow
    has to decode them."""
    if not isinstance(read, RowRead):
        return read.rows(parts)
    try:
        return read.decode(parts)
    except NeedsPyarrow:
        return None

"""A Parquet file as a `SourceFile`: the pointer of a row is its ordinal in the file (docs/pointers.md)."""

import hashlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sources.arrow_numbers import int64s
from sources.errors import DamagedSource, StalePointer, UnsupportedFormat
from sources.parquet.arrow_types import ArrowTypes
from sources.parquet.footer import ENCRYPTED_MAGIC, MAGIC, ChunkPlace, Footer, legacy_slack, parse_footer
from sources.parquet.pages import PageMap, map_pages
from sources.parquet.reads import GroupRead, PageRead, Read, Rows, split_pages
from sources.parquet.scan import scan_group
from sources.parquet.schema import Column
from sources.parquet.thrift import ThriftError
from sources.ranges import HeldRange, PlainReader, name_of, read_ranges, size_of

FIRST_READ = 64 << 10  # bytes from the end: nearly every footer lies in them
ENDING = 8  # bytes: footer length, magic
TOGETHER = 64 << 20  # bytes asked for, and held, at once in a fetch of many rows
INT32_MAX = (1 << 31) - 1


def open_parquet(reader: PlainReader) -> "ParquetFile":
    """Reads the footer: one read where it lies in the last 64 KB, else two."""
    path, size = name_of(reader), size_of(reader)
    if size < len(MAGIC) + ENDING:
        raise DamagedSource(f"{size} bytes are too few for a Parquet file", path, 0)
    tail = reader.read_range(max(size - FIRST_READ, 0), min(size, FIRST_READ))
    magic = tail[-len(MAGIC) :]
    if magic == ENCRYPTED_MAGIC:
        raise UnsupportedFormat("the footer is encrypted, and no keys are known", path)
    if magic != MAGIC:
        raise DamagedSource(f"ends in {magic!r}, a Parquet file in {MAGIC!r}", path, size - len(MAGIC))
    length = int.from_bytes(tail[-ENDING : -len(MAGIC)], "little")
    start = size - ENDING - length
    if start < len(MAGIC):
        raise DamagedSource(f"claims a footer of {length} bytes, the file has {size}", path, size - ENDING)
    body = tail[-ENDING - length : -ENDING] if length + ENDING <= len(tail) else reader.read_range(start, length)
    try:
        footer = parse_footer(body)
        types = ArrowTypes(footer)
    except ThriftError as error:
        raise DamagedSource(f"the footer cannot be read: {error}", path, start) from error
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    return ParquetFile(footer, types, size, digest, _index_in(tail, size - len(tail), start, footer))


def _index_in(tail: bytes, tail_start: int, footer_start: int, footer: Footer) -> tuple[int, bytes]:
    """`(offset, bytes)` of the OffsetIndexes that came with the tail, which lie just before the footer: they
    save the first fetch a round."""
    offsets = [chunk.index_offset for group in footer.row_groups for chunk in group.chunks]
    first = min((offset for offset in offsets if tail_start <= offset < footer_start), default=0)
    return (first, tail[first - tail_start : footer_start - tail_start]) if first else (0, b"")


class ParquetFile:
    """One Parquet file, its footer read. Safe to share between threads: page maps are added, never changed."""

    def __init__(self, footer: Footer, types: ArrowTypes, size: int, digest: str, held: tuple[int, bytes]) -> None:
        """`held`: `(offset, bytes)` of page index that came with the footer."""
        self._footer = footer
        self._types = types
        self._size = size
        self._digest = digest
        self._held = held
        self._slack = legacy_slack(footer)
        self._first_rows = np.array([group.first_row for group in footer.row_groups], dtype=np.int64)
        self._by_name: dict[str, Column] = {}
        for column in footer.columns:  # of columns that share a name the first is the one a name means
            self._by_name.setdefault(column.name, column)
        self._maps: dict[tuple[int, int], PageMap] = {}
        self._map_bytes = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """The sum over the row groups, which is the truth where the footer's own total differs."""
        return self._footer.rows

    @property
    def schema(self) -> pa.Schema:
        return self._types.schema

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def cache_bytes(self) -> int:
        return self._footer.cache_bytes + self._types.cache_bytes + self._map_bytes + len(self._held[1])

    @property
    def mean_row_bytes(self) -> int:
        """Compressed bytes a row, at least 1: what `scan` gives as `data_size`."""
        total = sum(max(chunk.compressed, 0) for group in self._footer.row_groups for chunk in group.chunks)
        return min(max(total // max(self.rows, 1), 1), INT32_MAX)

    def scan_bytes(self, columns: Sequence[str]) -> int:
        leaves = [leaf.ordinal for name in columns if name in self._by_name for leaf in self._by_name[name].leaves]
        return sum(max(group.chunks[leaf].compressed, 0) for group in self._footer.row_groups for leaf in leaves)

    def scan(self, reader: PlainReader, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        path = name_of(reader)
        asked = self._columns(columns, path)
        size = self.mean_row_bytes
        for ordinal, group in enumerate(self._footer.row_groups):
            if not group.rows:
                continue
            places = [self._places(path, ordinal, column) for column in asked]
            flat = [place for each in places for place in each]
            for batch in scan_group(reader, group, self._types.template(asked), flat, size):
                yield self._as_declared(batch, asked)

    def _as_declared(self, batch: pa.RecordBatch, asked: Sequence[Column]) -> pa.RecordBatch:
        """The batch with the types of `schema` (INT96 as an instant)."""
        arrays, fields = list(batch.columns), list(batch.schema)
        for i, column in enumerate(asked):
            declared = self._types.schema.field(column.ordinal)
            if pa.types.is_timestamp(fields[i].type) and fields[i].type != declared.type:
                arrays[i], fields[i] = arrays[i].cast(declared.type), declared
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def fetch(self, reader: PlainReader, pointers: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        path = name_of(reader)
        asked = self._columns(columns, path)
        rows, back = np.unique(self._ordinals(pointers, path), return_inverse=True)
        pieces: list[list[pa.Array]] = [[] for _ in asked]
        for reads in _together(self._plan(reader, path, asked, rows)):
            parts = read_ranges(reader, [span for read in reads for span in read.ranges])
            for read in reads:
                count = len(read.ranges)
                pieces[read.column].extend(read.rows(parts[:count]).chunks)
                del parts[:count]
        fields = [self._types.schema.field(column.ordinal) for column in asked]
        arrays = [pa.chunked_array(piece, field.type) for piece, field in zip(pieces, fields, strict=True)]
        if not arrays:
            return pa.Table.from_struct_array(pa.array([{}] * len(back), pa.struct([])))
        table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        in_order = len(back) == len(rows) and bool((back[1:] > back[:-1]).all())
        return table if in_order else table.take(int64s(back))

    def _columns(self, names: Sequence[str], path: str) -> list[Column]:
        asked = []
        for name in names:
            column = self._by_name.get(name)
            if column is None:
                raise KeyError(f"{path}: no column {name!r}; it has {', '.join(self._by_name)}")
            refusal = self._types.refusals.get(column.ordinal)
            if refusal is not None:
                raise UnsupportedFormat(f"column {name!r}: {refusal}", path)
            asked.append(column)
        return asked

    def _ordinals(self, pointers: Sequence[tuple[int, int]], path: str) -> Rows:
        for row, sub_offset in pointers:
            if not 0 <= row < self.rows or sub_offset != 0:
                message = f"no row at pointer ({row}, {sub_offset}), the file has {self.rows}: index it again"
                raise StalePointer(message, path)
        return np.array([row for row, _ in pointers], dtype=np.int64)

    def _places(self, path: str, ordinal: int, column: Column) -> list[ChunkPlace]:
        """The column's chunks in a row group, checked against the file."""
        group = self._footer.row_groups[ordinal]
        places = []
        for leaf in column.leaves:
            place = ChunkPlace(path, column.name, ordinal, group.rows, group.chunks[leaf.ordinal])
            place.check(self._size, leaf.kind)
            places.append(place)
        return places

    def _plan(self, reader: PlainReader, path: str, asked: Sequence[Column], rows: Rows) -> list[Read]:
        """The reads that give `rows`, by row group and then by column."""
        if not len(rows):
            return []
        group_of = np.searchsorted(self._first_rows, rows, side="right") - 1
        shares = []
        groups, starts = np.unique(group_of, return_index=True)
        for ordinal, share in zip(groups.tolist(), np.split(rows, starts[1:]), strict=True):
            local = share - self._first_rows[ordinal]
            for position, column in enumerate(asked):
                shares.append((position, column, ordinal, self._places(path, ordinal, column), local))
        self._map(reader, [(column, places[0]) for _, column, _, places, _ in shares if column.flat])
        reads: list[Read] = []
        for position, column, ordinal, places, local in shares:
            template = self._types.template([column])
            if column.flat:
                kind = self._types.schema.field(column.ordinal).type
                pages = self._maps[ordinal, column.leaves[0].ordinal]
                for chosen, share in split_pages(pages, local, TOGETHER):
                    reads.append(PageRead(position, places[0], template, kind, pages, chosen, share))
            else:
                slack = min(self._slack, *(self._size - p.chunk.start - p.chunk.compressed for p in places))
                reads.append(GroupRead(position, places, template, slack, local))
        return reads

    def _map(self, reader: PlainReader, chunks: Sequence[tuple[Column, ChunkPlace]]) -> None:
        """Page maps of the flat chunks that have none yet, with one round of reads."""
        missing = {
            (place.row_group, column.leaves[0].ordinal): place
            for column, place in chunks
            if (place.row_group, column.leaves[0].ordinal) not in self._maps
        }
        if not missing:
            return
        made = map_pages(HeldRange(reader, *self._held), list(missing.values()), self._size, self._slack)
        with self._lock:
            for key, pages in zip(missing, made, strict=True):
                if key not in self._maps:
                    self._maps[key] = pages
                    self._map_bytes += pages.cache_bytes


def _together(reads: Sequence[Read]) -> Iterator[list[Read]]:
    """The reads in batches of about `TOGETHER` bytes, a read never split."""
    batch: list[Read] = []
    size = 0
    for read in reads:
        length = sum(length for _, length in read.ranges)
        if batch and size + length > TOGETHER:
            yield batch
            batch, size = [], 0
        batch.append(read)
        size += length
    if batch:
        yield batch

"""An ORC file as a `SourceFile`. The pointer of a row is its ordinal in the file (docs/internals/other-formats.md)."""

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Numbers, Options, Pointers, Split
from gnomon.sources.errors import DamagedSource, OptionError, UnsupportedFormat, check_column
from gnomon.sources.orc.metadata import MAGIC, Footer, StripeMeta, load_stripes, parse_footer, parse_postscript
from gnomon.sources.orc.rle import Ints
from gnomon.sources.orc.schema import Type, arrow_field, narrowed_type
from gnomon.sources.orc.streams import Damage, OrcError
from gnomon.sources.orc.stripe_rows import Share, plan, read_shares, scan_stripe
from gnomon.sources.pointers import (
    batch_without_columns,
    distinct_rows,
    even_splits,
    first_of_each,
    group_of_rows,
    in_pointer_order,
    table_without_columns,
    with_ordinals,
)

FIRST_READ = 64 << 10  # bytes from the end: they contain nearly every footer
INT32_MAX = (1 << 31) - 1


TIMESTAMP_UNIT = "timestamp_unit"
OPTIONS: Mapping[str, str] = {
    TIMESTAMP_UNIT: "us: timestamps in microseconds; default: nanoseconds, except in files that exceed their range",
}


def open_orc(reader: RangeReader, options: Options | None = None) -> "OrcFile":
    """Open an ORC file. Reads postscript and footer: one read where they lie in the last 64 KB, else two."""
    unit = (options or {}).get(TIMESTAMP_UNIT)
    if unit not in (None, "us"):
        raise OptionError(f"option {TIMESTAMP_UNIT}", expected="us", found=repr(unit))
    path, size = reader.name, reader.size
    if size <= len(MAGIC) + 1:
        raise DamagedSource(f"{size} bytes are too few for an ORC file", path, 0)
    tail = reader.read_range(max(size - FIRST_READ, 0), min(size, FIRST_READ))
    length = tail[-1]
    if length + 1 + len(MAGIC) > size:
        raise DamagedSource(f"claims a postscript of {length} bytes, the file has {size}", path, size - 1)
    with _error_context(path, size - 1 - length, "the postscript cannot be read"):
        postscript = parse_postscript(tail[-1 - length : -1])
    start = size - 1 - length - postscript.footer_length
    if start < len(MAGIC):
        message = f"claims a footer of {postscript.footer_length} bytes, the file has {size}"
        raise DamagedSource(message, path, size - 1 - length)
    body = tail[start - size :] if size - start <= len(tail) else reader.read_range(start, size - start)
    with _error_context(path, start, "the footer cannot be read"):
        footer = parse_footer(body[: postscript.footer_length], postscript, start, in_micros=unit is not None)
    return OrcFile(footer, size, hashlib.blake2b(body, digest_size=16).hexdigest())


class OrcFile:
    """One ORC file, with its footer read. Safe to share between threads: metadata of stripes is added, never
    changed."""

    ragged = 0

    def __init__(self, footer: Footer, size: int, digest: str) -> None:
        self._footer = footer
        self.codec = footer.codec.kind  # the number of the CompressionKind
        self._size = size
        self.rows = footer.rows
        self.digest = digest  # of footer and postscript, in hex
        self._data_bytes = sum(stripe.data_length for stripe in footer.stripes)
        # mean compressed bytes of a row: the `data_size` of `scan`
        self.row_bytes = min(max(self._data_bytes // max(self.rows, 1), 1), INT32_MAX)
        self._first_rows = np.array([stripe.first_row for stripe in footer.stripes], dtype=np.int64)
        self.names = [name for name, _ in footer.columns]  # also of columns that share one
        self._by_name: dict[str, Type] = {}
        for name, tree in footer.columns:  # if columns share a name, it means the first of them
            self._by_name.setdefault(name, tree)
        self.schema = first_of_each(pa.schema([arrow_field(name, tree) for name, tree in footer.columns]))
        self._stripes: dict[int, StripeMeta] = {}
        self._lock = threading.Lock()

    @property
    def cache_bytes(self) -> int:
        footer = 2000 + 1000 * self._footer.types + 300 * len(self._footer.stripes)
        return footer + sum(stripe.cache_bytes for stripe in list(self._stripes.values()))

    def narrow(self, path: Sequence[str]) -> str:
        whole, name = self._by_name[path[0]], ".".join(path)
        while name in self._by_name:
            name += "_"
        try:
            self._by_name[name] = narrowed_type(whole, path[1:])
        except KeyError:
            return path[0]
        return name

    def scan_bytes(self, columns: Sequence[str]) -> int:
        """Bytes by the statistics in the footer; without them, as if all columns had the same size."""
        requested = [self._by_name[name] for name in columns if name in self._by_name]
        by_column = self._footer.disk_bytes
        if sum(by_column):
            return sum(by_column[each.column] for tree in requested for each in tree.tree())
        return self._data_bytes * len(requested) // max(len(self._by_name), 1)

    def splits(self, target: int) -> list[Split]:
        return even_splits(self._size, target)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows; for a split, those of the stripes whose first byte lies in it."""
        path = reader.name
        requested = self._columns(columns, path)
        schema = pa.schema([arrow_field(name, tree) for name, tree in requested])
        begin, end = split or (0, self._size)
        for ordinal, stripe in enumerate(self._footer.stripes):
            if not stripe.rows or not begin <= stripe.offset < end:
                continue
            seen = 0
            with _error_context(path, stripe.offset, f"stripe {ordinal}"):
                metas = load_stripes(reader, self._footer, {}, [ordinal], requested)
                for arrays, rows in scan_stripe(reader, metas[ordinal], requested):
                    batch = pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch_without_columns(rows)
                    yield with_ordinals(batch, stripe.first_row + seen, self.row_bytes)
                    seen += rows

    def units(self, offsets: Numbers) -> Numbers:
        """The stripes."""
        return group_of_rows(offsets, self._first_rows)

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        path = reader.name
        requested = self._columns(columns, path)
        rows, places = distinct_rows(pointers, self.rows, path)
        if not requested:
            return table_without_columns(len(places))
        pieces: list[list[pa.Array]] = [[] for _ in requested]
        for slot, piece in self._fetched(reader, path, requested, rows):
            pieces[slot].append(piece)
        schema = pa.schema([arrow_field(name, tree) for name, tree in requested])
        arrays = [pa.chunked_array(piece, field.type) for piece, field in zip(pieces, schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        return in_pointer_order(table, places)

    def _fetched(
        self, reader: RangeReader, path: str, requested: Sequence[tuple[str, Type]], rows: Ints
    ) -> Iterator[tuple[int, pa.Array]]:
        """`(position in the requested columns, some of its rows)`. The rows of each column ascend."""
        ordinals, starts = np.unique(group_of_rows(rows, self._first_rows), return_index=True)
        parts = np.split(rows, starts[1:]) if len(rows) else []
        with self._lock:
            known = {ordinal: self._stripes[ordinal] for ordinal in ordinals.tolist() if ordinal in self._stripes}
        first = self._footer.stripes[int(ordinals[0])].offset if len(rows) else 0
        with _error_context(path, first):
            metas = load_stripes(reader, self._footer, known, ordinals.tolist(), requested)
            with self._lock:
                self._stripes.update(metas)
            shares: list[Share] = []
            for ordinal, part in zip(ordinals.tolist(), parts, strict=True):
                local = part - self._footer.stripes[ordinal].first_row
                shares += plan(metas[ordinal], ordinal, requested, local)
            yield from read_shares(reader, shares, self.row_bytes)

    def _columns(self, names: Sequence[str], path: str) -> list[tuple[str, Type]]:
        for name in names:
            check_column(name, self._by_name, path)
            refusal = self._by_name[name].refusal
            if refusal is not None:
                raise UnsupportedFormat(refusal, path, column=name)
        return [(name, self._by_name[name]) for name in names]


@contextmanager
def _error_context(path: str, offset: int, what: str | None = None) -> Iterator[None]:
    """Add what was read, and its offset, to errors in the file's bytes."""
    try:
        yield
    except OrcError as error:
        kind = DamagedSource if isinstance(error, Damage) else UnsupportedFormat
        message = str(error) if what is None else f"{what}: {error}"
        raise kind(message, path, offset if error.offset is None else error.offset) from error

"""Batches of rows: joined; divided by file, by the bytes read at a time and by the bytes yielded at a time; and written
as Parquet. Divisions work on numbers and slices, not on values."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gnomon.shadow.errors import StorageError, UnsupportedFormat, UsageError
from gnomon.shadow.storage import ahead, is_local, storage_at, writing
from gnomon.sources import Numbers
from gnomon.sources.types import int64s

HELD_BYTES = 64 << 20  # of rows of the sample that wait for more rows of the same file

Flags = NDArray[np.bool_]


def runs(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yield rows, which are sorted by a text column, in as few batches as possible, each with one value of this
    column."""
    held: list[pa.RecordBatch] = []
    size, value = 0, None
    for batch in batches:
        encoded = pc.run_end_encode(batch.column(name))
        begin = 0
        for found, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
            part = batch.slice(begin, end - begin)
            begin = end
            if held and (found != value or size >= HELD_BYTES):
                yield joined(held)
                held, size = [], 0
            held.append(part)
            size, value = size + part.nbytes, found
    if held:
        yield joined(held)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def gathered(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Small batches joined into larger ones, of at most this number of rows and bytes; a larger batch stays alone. The
    sorted keys of a large batch share each read of a part of an index file."""
    held: list[pa.RecordBatch] = []
    held_rows = held_size = 0
    for batch in batches:
        if held and (held_rows + batch.num_rows > rows or held_size + batch.nbytes > size):
            yield joined(held)
            held, held_rows, held_size = [], 0, 0
        held.append(batch)
        held_rows, held_size = held_rows + batch.num_rows, held_size + batch.nbytes
    if held:
        yield joined(held)


def numbers_of(column: pa.Array) -> Numbers:
    """An integer column without nulls."""
    plain = column.cast(pa.int64())
    return np.frombuffer(plain.buffers()[1] or b"", np.int64, len(plain), 8 * plain.offset)


def without_nulls(column: pa.Array) -> pa.Array:
    """An int64 column with 0 for null. `fill_null` would import pandas, which takes each worker a third of a second."""
    return pc.coalesce(column, int64s(np.zeros(len(column), np.int64))) if column.null_count else column


def firsts(offsets: Numbers, sub_offsets: Numbers) -> Flags:
    """Flags of the sorted pointers that differ from the one before."""
    fresh = np.ones(len(offsets), dtype=np.bool_)
    fresh[1:] = (offsets[1:] != offsets[:-1]) | (sub_offsets[1:] != sub_offsets[:-1])
    return fresh


def next_cut(cumulative: NDArray[np.float64], units: Numbers, begin: int, most: float) -> int:
    """The end of a piece that begins with row `begin`. `cumulative` has the cumulative bytes of the rows, `units` their
    read units. A piece has at least one row and about `most` bytes; it may have half or twice as many, to end with a
    unit."""
    before = cumulative[begin - 1] if begin else 0.0
    end = max(int(np.searchsorted(cumulative, before + most, side="right")), begin + 1)
    if end >= len(cumulative) or units[end - 1] != units[end]:
        return end
    first, following = np.searchsorted(units, [units[end], units[end] + 1]).tolist()
    if first > begin and cumulative[first - 1] - before >= most / 2:
        return int(first)
    return int(following) if cumulative[following - 1] - before <= 2 * most else end


def row_bytes(columns: list[pa.Array]) -> NDArray[np.float64]:
    """The bytes of each row: exact for texts, the mean for nested values."""
    total = np.zeros(len(columns[0]) if columns else 0)
    for column in columns:
        if _is_text(column.type):
            total += numbers_of(without_nulls(pc.binary_length(column).cast(pa.int64())))
        else:
            total += column.nbytes / max(len(column), 1)
    return total


def slices(sizes: NDArray[np.float64], most: float) -> Iterator[tuple[int, int]]:
    """Yield `(begin, end)` of runs of rows of at most `most` bytes, or one row."""
    cumulative, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = cumulative[begin - 1] if begin else 0.0
        end = max(int(np.searchsorted(cumulative, before + most, side="right")), begin + 1)
        yield begin, end
        begin = end


def taken(column: pa.Array, places: Numbers) -> pa.Array:
    """The rows at ascending places, without a copy where these are consecutive."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and bool((np.diff(places) == 1).all()):
        return column.slice(int(places[0]), len(places))
    return column.take(int64s(places))


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in tests)


def new_file(place: str) -> Path:
    """The path of a file to write. UsageError where it exists, or is not in a folder of a local disk."""
    path = storage_at(place).root
    if not is_local(path):
        raise UsageError("it is written to a local disk; name a file here", place)
    if os.path.lexists(path):
        raise UsageError("the file exists; name a new one", place)
    if not os.path.isdir(os.path.dirname(path)):
        raise UsageError("no such folder; expected a file in an existing folder", place)
    return Path(path)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A file to write to, which gets its name when it is complete. StorageError where the disk fails."""
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with writing(target):
            yield staged
            os.rename(staged, target)
    finally:
        with suppress(OSError):
            staged.unlink()


MOST_ROWS, GROUP_BYTES = 1 << 20, 64 << 20  # of a row group, in memory


def write_parquet(
    rows: pa.RecordBatchReader, file: Path, on_progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Write rows to a new file, and read its number of rows back. Returns that number. `on_progress` is called with the
    number of rows written so far. UnsupportedFormat for a column that Parquet cannot hold, StorageError where the disk
    fails."""
    count = 0
    try:
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with pq.ParquetWriter(file, rows.schema, compression="zstd") as writer:
                for group in ahead(gathered(rows, MOST_ROWS, GROUP_BYTES)):
                    writer.write_batch(group)
                    count += group.num_rows
                    on_progress(count)
            written = pq.read_metadata(file).num_rows
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UnsupportedFormat(
            f"the rows cannot be written as Parquet ({error}); load other columns", str(file)
        ) from None
    if written != count:
        raise StorageError(f"{count:,} rows were written, and {written:,} are there", str(file))
    return count

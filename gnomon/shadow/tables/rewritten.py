"""Rewrites a Parquet data file of a lake table without some of its rows, for tables that keep no deletes beside their
files. The new file is written like the old one, and read back before it is put."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types
from pyroaring import BitMap64

from gnomon.base.readers import RangeFile
from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage import Readable, Storage
from gnomon.sources import RangeReader, SourceFile, UnsupportedFormat, check_written, open_source, open_writer
from gnomon.sources.parquet import ParquetStyle, parquet_style

# Key-values that the new file does not take over: pyarrow writes the first itself, pandas states a number of rows.
NOT_KEPT = {b"ARROW:schema", b"pandas"}
More = Callable[[pa.Table, int], pa.Table]


def rewrite(source: Readable, path: str, target: Storage, to: str, deleted: BitMap64, more: More | None = None) -> int:
    """Write the rows of a Parquet file, without those whose ordinals are in `deleted`, to a new file in their order.
    Returns its bytes. Columns, field ids, nullability, codec, key-values and INT96 are as in the old file. Row groups
    are read one by one, twice; of the new file all bytes are in memory.

    `more` gets n rows of the old file with the ordinal of the first, and returns them with more columns, whose fields
    may have ids. It must give the same each time. Errors: UnsupportedFormat where the file cannot be written without a
    loss, NotReadBack, StorageError where `deleted` has rows that the file lacks, AlreadyExists where `to` is taken."""
    where = f"{target.root}/{to}"
    with source.open(path) as reader:
        style, file = _style(reader), open_source(reader, "parquet")
        rows = file.rows or 0
        if deleted and deleted.max() >= rows:
            what = "rows to delete that are not in this file"
            raise StorageError(what, reader.name, expected=f"ordinals below {rows}", found=deleted.max())
        if more is not None:  # the first key-values of Spark name all columns
            fields = more(pa.schema(style.fields).empty_table(), 0).schema
            style = replace(style, fields=fields, notes={})
        writer = open_writer(style, style.fields, where)
        for batch in _kept(file, reader, deleted, more):
            writer.write(batch)
        data = writer.finish()
        check_written(data, "parquet", {}, where, _kept(file, reader, deleted, more))
    target.put_new(to, [data])
    return len(data)


def _style(reader: RangeReader) -> ParquetStyle:
    """How the file is written. UnsupportedFormat for one with instants that are not read exactly."""
    style = parquet_style(reader, {})
    found = pq.ParquetFile(RangeFile(reader)).metadata.metadata or {}
    if style.int96:
        _check_instants(reader, sorted(style.int96))
    return replace(style, notes={key.decode(): value.decode() for key, value in found.items() if key not in NOT_KEPT})


def _check_instants(reader: RangeReader, columns: list[str]) -> None:
    """UnsupportedFormat where INT96 has parts of a microsecond. It is read as microseconds, since nanoseconds do not
    reach all of its years; there they are only right modulo 2**64, which suffices to see the parts."""
    fine, coarse = (
        pq.ParquetFile(RangeFile(reader), coerce_int96_timestamp_unit=unit).iter_batches(columns=columns)
        for unit in ("ns", "us")
    )
    for nanos, micros in zip(fine, coarse, strict=True):
        for name, one, other in zip(columns, nanos.columns, micros.columns, strict=True):
            for a, b in zip(_instants(one), _instants(other), strict=True):
                if (a.view("uint64") != b.view("uint64") * np.uint64(1000)).any():
                    what = "its INT96 timestamps have nanoseconds, which would be lost in a new file"
                    raise UnsupportedFormat(what, reader.name, column=name)


def _instants(array: pa.Array) -> Iterator[np.ndarray]:
    """The timestamps in an array, at any depth, as arrays of int64."""
    if types.is_timestamp(array.type):
        yield array.drop_null().cast(pa.int64()).to_numpy()
    elif types.is_struct(array.type):
        for part in array.flatten():
            yield from _instants(part)
    elif types.is_map(array.type):
        yield from _instants(array.keys)
        yield from _instants(array.items)
    elif types.is_list(array.type):
        yield from _instants(array.flatten())


def _kept(file: SourceFile, reader: RangeReader, deleted: BitMap64, more: More | None) -> Iterator[pa.RecordBatch]:
    """The rows that stay, in batches."""
    gone, first = np.array(deleted.to_array(), np.int64), 0
    for batch in file.scan(reader, file.schema.names):
        rows = pa.Table.from_batches([batch.select(file.schema.names)])
        if more is not None:
            rows = more(rows, first)
        low, high = np.searchsorted(gone, [first, first + batch.num_rows])
        keep = np.ones(batch.num_rows, bool)
        keep[gone[low:high] - first] = False
        first += batch.num_rows
        yield from rows.filter(pa.array(keep)).to_batches()

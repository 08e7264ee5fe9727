"""Rows as a Parquet file on a local disk."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.shadow.errors import StorageError, UnsupportedFormat
from gnomon.shadow.storage import writing

GROUP_BYTES = 64 << 20  # of rows in a row group, in memory


def write_parquet(
    rows: pa.RecordBatchReader, file: Path, on_progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Write rows to a new file, and read its number of rows back. Returns that number. `on_progress` is called with the
    number of rows written so far. UnsupportedFormat for a column that Parquet cannot hold, StorageError where the disk
    fails."""
    count, held = 0, _Held()
    try:
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with pq.ParquetWriter(file, rows.schema, compression="zstd") as writer:
                for batch in rows:
                    count += batch.num_rows
                    if held.add(batch) >= GROUP_BYTES:
                        writer.write_table(held.taken(rows.schema))
                        on_progress(count)
                writer.write_table(held.taken(rows.schema))
            written = pq.read_metadata(file).num_rows
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UnsupportedFormat(
            f"the rows cannot be written as Parquet ({error}); load other columns", str(file)
        ) from None
    if written != count:
        raise StorageError(f"{count:,} rows were written, and {written:,} are there", str(file))
    on_progress(count)
    return count


class _Held:
    """The rows of the next row group."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Hold a batch. Returns the bytes of all."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        return self._bytes

    def taken(self, schema: pa.Schema) -> pa.Table:
        """Remove and return the rows."""
        table = pa.Table.from_batches(self._batches, schema)
        self._batches, self._bytes = [], 0
        return table

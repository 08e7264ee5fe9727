"""Rows as a Parquet file on a local disk."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.jobs.load.task_batches import gathered
from gnomon.shadow.errors import StorageError, UnsupportedFormat
from gnomon.shadow.storage import writing

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
                for group in gathered(rows, MOST_ROWS, GROUP_BYTES):
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

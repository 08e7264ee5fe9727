"""The report of an append: the rows that it did not append, each with the pointer to the first row with its key.

Tasks of the append put rejected rows into the index's `_shadow/rejected/`. Once the appended rows are indexed, the
program looks the keys of the rejected rows up, writes the report, and removes these files.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.jobs.dedup.check import DUPLICATE, OF_ROW, PRESENT, REJECTED, STATUS, held_keys
from gnomon.jobs.load import new_file, whole_file
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.commit import REJECTED_FOLDER, Append
from gnomon.shadow.errors import StorageError
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.storage import Storage, storage_at
from gnomon.sources import POINTER_COLUMNS

PIECE_BYTES = 64 << 20  # of rows in memory
POINTER_TYPES = (pa.string(), pa.int64(), pa.int32(), pa.int32())
REASON = "dedup_reason"
REASONS = {DUPLICATE: "duplicate in batch", PRESENT: "already present", REJECTED: "null in key"}


def rejected_folder(number: int, append_id: str) -> str:
    """The folder of an index for the rows that an append rejects."""
    return f"{REJECTED_FOLDER}/{number:020d}-{append_id}"


class SideFilesAt(NamedTuple):
    """A folder for rows of an append that do not go to its source: rejected rows, and the keys of a change."""

    location: str
    folder: str

    def open(self) -> "SideFiles":
        return SideFiles(storage_at(self.location), self.folder)


class SideFiles:
    """Writes rows of a task to Parquet files. `files` are those of this attempt: a retried task may leave others."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder
        self._rows: list[pa.RecordBatch] = []
        self.files: list[str] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._rows += [rows] if rows.num_rows else []
        if sum(batch.nbytes for batch in self._rows) >= PIECE_BYTES:
            self.close()

    def close(self) -> None:
        """Write the remaining rows."""
        if self._rows:
            sink, path = pa.BufferOutputStream(), f"{self._folder}/{secrets.token_hex(8)}.parquet"
            pq.write_table(pa.Table.from_batches(self._rows), sink, compression="zstd", store_schema=True)
            self._storage.put_new(path, [sink.getvalue().to_pybytes()])
            self.files.append(path)
            self._rows = []


def report_target(report: str, columns: Sequence[str]) -> Path:
    """The path of a report. UsageError where it cannot be written, before any work."""
    path = new_file(report)
    taken = [name for name in (REASON, *POINTER_COLUMNS) if name in columns]
    if taken:
        raise UsageError(f"the batch has a column {taken[0]}, which the report adds", report)
    return path


def write_report(
    target: Path, opened: OpenIndex, append: Append, files: Sequence[str], schema: pa.Schema, within: Sequence[str]
) -> int:
    """Write the rows that an append rejected, from `files` of the index, as one Parquet file: the batch's columns
    (`schema`), then REASON and the pointer to the first row of the source with the key (null for a rejected null key).
    Returns their number. StorageError where rows are missing: another run reported them."""
    storage, rows, folder = storage_at(opened.location), 0, rejected_folder(append.number, append.append_id)
    pointers = [pa.field(name, kind) for name, kind in zip(POINTER_COLUMNS, POINTER_TYPES, strict=True)]
    wanted = pa.schema([*schema, pa.field(REASON, pa.string()), *pointers])
    expected = append.counts["rows_read"] - append.counts["appended"]
    with whole_file(target) as staged:
        with pq.ParquetWriter(staged, wanted, compression="zstd") as writer:
            for piece in side_rows(storage, files):
                writer.write_table(_told(piece, opened, schema, wanted, within))
                rows += piece.num_rows
        if rows != expected:
            raise StorageError(
                f"{rows:,} rejected rows, expected {expected:,}: another run of the batch has "
                "reported them; the batch is appended, and there is no report",
                f"{storage.root}/{folder}",
            )
    storage.delete_folder(folder)
    return rows


def side_rows(storage: Storage, files: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each file that is there."""
    for path in files:
        with suppress(FileNotFoundError):  # another run reported them: the count of the rows shows it
            yield pq.read_table(pa.BufferReader(storage.read(path)))


def _told(piece: pa.Table, opened: OpenIndex, schema: pa.Schema, wanted: pa.Schema, within: Sequence[str]) -> pa.Table:
    rows = piece.combine_chunks().to_batches()[0]
    status = rows.column(STATUS).to_numpy() & OF_ROW
    asked = np.flatnonzero(status != REJECTED)
    keys, narrow = held_keys(rows.take(pa.array(asked)), opened.spec, within)
    first = np.full(len(asked), -1)
    found: list[pa.RecordBatch] = []
    seen = 0
    for some in opened.match_pieces(keys, narrow, MatchStats(), null_safe=True):
        places, begins = np.unique(some.rows.to_numpy(), return_index=True)
        fresh = first[places] < 0
        first[places[fresh]] = seen + np.arange(fresh.sum())
        found.append(some.entries.take(pa.array(begins[fresh])))
        seen += int(fresh.sum())
    where = np.full(len(status), -1)
    where[asked] = first
    taken = pa.array(where, mask=where < 0)
    entries = pa.Table.from_batches(found) if found else None
    pointers = [
        entries.column(name).combine_chunks().take(taken) if entries is not None else pa.nulls(len(status))
        for name in POINTER_COLUMNS
    ]
    reasons = pa.array([REASONS[one] for one in status.tolist()], pa.string())
    columns = [rows.column(name) for name in schema.names]
    arrays = [array.cast(one.type) for array, one in zip([*columns, reasons, *pointers], wanted, strict=True)]
    return pa.Table.from_arrays(arrays, schema=wanted)

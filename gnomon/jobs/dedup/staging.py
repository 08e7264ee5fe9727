"""The rows of a batch, and the new ones staged: written as data files in the source's format, to a folder that readers
of the source skip.

Spark's tasks (`gnomon.indexer.dedup`), or this process (`gnomon.jobs.dedup.local_rows`), check and write the rows.
Files are written through `gnomon.shadow.storage`, so that each is whole and durable before it counts. Other rows are
counted, so that the counts of the batch are exact."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.keys import adjacent
from gnomon.jobs.build import Engine
from gnomon.jobs.dedup.check import (
    ABSENT,
    DELETES,
    DELETING,
    DUPLICATE,
    NEW,
    OF_ROW,
    PRESENT,
    REJECTED,
    STATUS,
    TASK_BITS,
    CheckOptions,
    DeleteMarker,
    are_of_one_attempt,
)
from gnomon.jobs.dedup.layout import Layout
from gnomon.jobs.dedup.rejected import SideFilesAt
from gnomon.jobs.dedup.row_digest import digest_of
from gnomon.jobs.files import check_visible
from gnomon.jobs.stages import Stages
from gnomon.shadow import OpenIndex
from gnomon.shadow.commit import AppendedFile
from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.tables import govern_table
from gnomon.shadow.values import KEY_PREFIX, key_names
from gnomon.sources import Writer, check_written, open_writer

DIGEST, NULLS = f"{KEY_PREFIX}digest", f"{KEY_PREFIX}nulls"  # the hash of a row; whether its key holds a null
PART_PREFIX = f"{KEY_PREFIX}part_"  # the partition of a row, as text
COUNTS = ("rows_read", "duplicates_in_batch", "already_loaded", "null_keys", "rejected", "appended")
FILES = "files"
CHANGE_COUNTS = (*COUNTS, "absent", "deleting")  # of a change, whose batch also has rows that only delete
WRITTEN = f"{KEY_PREFIX}written"  # in the keys of a change: whether a new row takes the place of the old ones
PIECES = 8  # in which a file of full size is written: it ends after one of them
NO_PARTITION = "\0"  # marks pieces without a partition: no partition has this name
NUMBERS = ("size", *CHANGE_COUNTS, "digest", "task", "is_rejected_file", "is_key_file")


class Piece(NamedTuple):
    """The report of a task on a partition of the source: a file that it wrote (with `appended` rows) or, without a
    path, the outcomes of rows of the batch. `folder` is the folder of the partition's files. A piece with the partition
    NO_PARTITION reports a file of rejected rows (`is_rejected_file`), one of the keys of a change (`is_key_file`), or
    the number of a `task` of the check that sent rows."""

    partition: str
    folder: str
    path: str | None
    size: int = 0
    rows_read: int = 0
    duplicates_in_batch: int = 0
    already_loaded: int = 0
    null_keys: int = 0
    rejected: int = 0
    appended: int = 0
    absent: int = 0
    deleting: int = 0
    digest: int = 0
    task: int = 0
    is_rejected_file: int = 0
    is_key_file: int = 0


@dataclass(frozen=True)
class Staged:
    """The files of an append, which no reader of the source sees yet, and the partition of each; the counts of the
    batch's rows, in all and by partition of the source; the digest of these rows; the files of the index with rejected
    rows; and, of a change, the files of the keys whose rows it deletes."""

    folder: str
    files: tuple[AppendedFile, ...]
    file_partitions: tuple[str, ...]
    counts: dict[str, int]
    partitions: dict[str, dict[str, int]]
    content: str
    rejected: tuple[str, ...]
    key_files: tuple[str, ...] = ()


class StageRunAgain(Exception):
    """Spark ran a task of the check again after some of its rows had been written. The second attempt may have chosen
    another copy of a key as new, so that the files have both copies, or none."""


def part_columns(layout: Layout) -> list[str]:
    """The columns whose values, as text, decide which rows share a file: the partition columns, and a `split`."""
    return [f"{PART_PREFIX}{i}" for i in range(len(layout.partitions) + (layout.split is not None))]


class StagingWriter:
    """Writes rows that come sorted by partition: `part_columns` tell partitions apart. `keys` are the key columns of a
    change, whose keys are written, too; the rows have DELETES where some of them only delete."""

    def __init__(
        self, layout: Layout, folder: str, rejected: SideFilesAt | None, keys: Sequence[str] | None = None
    ) -> None:
        self._layout, self._folder = layout, folder
        govern_table(layout.table, layout.root)  # in a task, which knows the table by nothing else
        self._storage = storage_at(layout.root)
        self._rejected = rejected.open() if rejected is not None else None
        self._keys = [] if keys is None else keys
        self._key_rows = None if keys is None else SideFilesAt(layout.root, folder).open()
        self._pieces: list[Piece] = []
        self._tasks: set[int] = set()  # tasks of the check that sent rows to this task
        self._values: tuple[str | None, ...] = ()
        self._path = ""
        self._writer: Writer | None = None
        self._rows: list[pa.RecordBatch] = []  # rows of the current file

    @property
    def _texts(self) -> tuple[str | None, ...]:
        """The partition of the current rows, as folder names."""
        return self._values[: len(self._layout.partitions)]

    @property
    def _place(self) -> tuple[str, str]:
        """The partition of the current rows, and the folder of its files."""
        return self._layout.place_of(self._texts)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows after the earlier ones."""
        parts = [batch.column(name) for name in part_columns(self._layout)]
        begins = [0, *(np.flatnonzero(~adjacent(parts)[0]) + 1)] if parts else [0]
        for begin, end in zip(begins, [*begins[1:], batch.num_rows], strict=True):
            if begin < end:
                values = tuple(part[int(begin)].as_py() for part in parts)
                if values != self._values:
                    self._close()
                    self._values = values
                self._add(batch.slice(begin, end - begin))

    def _add(self, rows: pa.RecordBatch) -> None:
        """Add rows of one partition."""
        statuses = rows.column(STATUS).to_numpy()
        self._tasks.update(np.unique(statuses >> TASK_BITS).tolist())
        outcomes = statuses & OF_ROW
        if DELETES in rows.schema.names:
            flags = rows.column(DELETES).to_numpy(zero_copy_only=False)
            outcomes = np.where(flags & (outcomes == NEW), DELETING, outcomes)
        found = np.bincount(outcomes, minlength=DELETING + 1).tolist()
        nulls, digest = rows.column(NULLS).true_count, int(np.add.reduce(rows.column(DIGEST).to_numpy()))
        counts = [found[one] for one in (REJECTED, NEW, ABSENT, DELETING)]
        numbers = (0, rows.num_rows, found[DUPLICATE], found[PRESENT], nulls, *counts, digest)
        self._pieces.append(Piece(*self._place, None, *numbers))
        is_new = pa.array(outcomes == NEW)
        if self._rejected is not None:
            self._rejected.add(rows.filter(pc.invert(is_new)))
        if self._key_rows is not None:
            changing = rows.append_column(WRITTEN, is_new).filter(pa.array((outcomes == NEW) | (outcomes == DELETING)))
            self._key_rows.add(changing.select([*self._keys, WRITTEN]))
        if found[NEW]:
            new = rows.filter(is_new).select(self._layout.columns.names)
            step = max(1, self._layout.file_bytes // PIECES * new.num_rows // max(new.nbytes, 1))
            for begin in range(0, new.num_rows, step):
                self._write(new.slice(begin, step))

    def _write(self, new: pa.RecordBatch) -> None:
        """Add new rows to the current file, which ends where it is large."""
        layout = self._layout
        if self._writer is None:
            # Below its partition: a name that the store refuses fails now, and not after the commit.
            partition, _ = self._place
            name = f"{secrets.token_hex(8)}{layout.style.ending}"
            self._path = "/".join(filter(None, [self._folder, partition, name]))
            self._writer = open_writer(layout.style, layout.written, f"{layout.root}/{self._path}")
        self._writer.write(layout.in_file(new, self._texts))
        self._rows.append(new)
        if max(self._writer.size, sum(rows.nbytes for rows in self._rows)) >= layout.file_bytes:
            self._close()

    def _close(self) -> None:
        """End the current file: read it back, and put it."""
        if self._writer is None:
            return
        data, layout = self._writer.finish(), self._layout
        check_written(data, layout.format, layout.options, f"{layout.root}/{self._path}", self._rows)
        self._storage.put_new(self._path, [data])
        rows = sum(batch.num_rows for batch in self._rows)
        self._pieces.append(Piece(*self._place, self._path, len(data), appended=rows))
        self._writer, self._rows = None, []

    def end(self) -> list[Piece]:
        """End the last file. Returns the written files and the counts."""
        self._close()
        self._pieces += [Piece(NO_PARTITION, "", None, task=task) for task in self._tasks]
        if self._rejected is not None:
            self._rejected.close()
            self._pieces += [Piece(NO_PARTITION, "", path, is_rejected_file=1) for path in self._rejected.files]
        if self._key_rows is not None:
            self._key_rows.close()
            self._pieces += [Piece(NO_PARTITION, "", path, is_key_file=1) for path in self._key_rows.files]
        return self._pieces


def staged_of(storage: Storage, folder: str, name: str, pieces: Sequence[Piece]) -> Staged:
    """The result of all writers. StorageError where this machine does not find a file that a task wrote."""
    if not are_of_one_attempt(
        {piece.task for piece in pieces if piece.partition == NO_PARTITION and piece.path is None}
    ):
        raise StageRunAgain
    rejected = [piece.path for piece in pieces if piece.is_rejected_file and piece.path is not None]
    key_files = [piece.path for piece in pieces if piece.is_key_file and piece.path is not None]
    pieces = [piece for piece in pieces if piece.partition != NO_PARTITION]
    written = sorted((piece.folder, piece.path, piece) for piece in pieces if piece.path is not None)
    check_visible(storage, {path: piece.size for _, path, piece in written})
    files = []
    for i, (where, path, piece) in enumerate(written):
        target = "/".join(filter(None, [where, f"part-{i:05d}-of-{len(written):05d}-{name}"]))
        files.append(AppendedFile(path, target, piece.size, piece.appended))
    partitions: dict[str, dict[str, int]] = {}
    total = 0
    for piece in pieces:
        counts = partitions.setdefault(piece.partition, dict.fromkeys((*CHANGE_COUNTS, FILES), 0))
        if piece.path is not None:
            counts[FILES] += 1
            continue
        total += piece.digest
        for one in CHANGE_COUNTS:
            counts[one] += getattr(piece, one)
    counts = {one: sum(of[one] for of in partitions.values()) for one in (*CHANGE_COUNTS, FILES)}
    rows = sum(file.rows for file in files)
    if rows != counts["appended"]:
        raise StorageError(f"{counts['appended']:,} new rows, and files of {rows:,}", f"{storage.root}/{folder}")
    content = digest_of(counts["rows_read"], total)
    parts = tuple(piece.partition for _, _, piece in written)
    by_partition = {name: {one: of[one] for one in (*COUNTS, FILES)} for name, of in sorted(partitions.items())}
    return Staged(
        folder, tuple(files), parts, counts, by_partition, content, tuple(sorted(rejected)), tuple(sorted(key_files))
    )


@dataclass(frozen=True)
class Staging:
    """The check of a batch, and the place for its new rows: `folder` below the source's root, with file names that
    begin with `name`. `index` is None for a source without an index, whose spec will be `spec`. `rejected` is the place
    for the other rows."""

    index: OpenIndex | None
    spec: IndexSpec
    check: CheckOptions
    layout: Layout
    folder: str
    name: str
    rejected: SideFilesAt | None

    @property
    def keys(self) -> Sequence[str] | None:
        """The columns of the keys that a change needs; None for an append."""
        return key_names(self.spec) if self.check.change is not None else None


class BatchRows(Protocol):
    """The rows of a batch, which can be read more than once. `deletes` says which of them only delete."""

    deletes: DeleteMarker | None

    @property
    def engine(self) -> Engine:
        """The engine of builds."""
        ...

    @property
    def columns(self) -> Mapping[str, str | None]:
        """The columns by name: None for a column whose values have an order (`order_of`), else the name of its type."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        ...

    def check_columns(self, index: OpenIndex) -> None:
        """Raise UsageError, with the differences, where its columns are not the source's."""
        ...

    def as_source(self, index: OpenIndex | None, spec: IndexSpec) -> pa.Schema:
        """The columns that this batch gives to a source without files; partition columns are text. If the source has
        files, the result is not used. UsageError as in `check_columns`."""
        ...

    def reported(self, index: OpenIndex) -> pa.Schema:
        """The columns of a report of rows that were not appended."""
        ...

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        """The digest of the rows (`row_digest`), which this call reads."""
        ...

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        """Check the rows, and write the new ones. StageRunAgain where the caller has to call it again."""
        ...

    @property
    def index_bytes_read(self) -> int:
        """The bytes of the index that checks have read."""
        ...

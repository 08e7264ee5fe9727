"""The search for the rows that a change of a lake table deletes: those with its keys, at the newest version."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from gnomon.base.errors import Action
from gnomon.jobs.dedup.check import held_keys, shown_row
from gnomon.jobs.dedup.staging import WRITTEN
from gnomon.jobs.load import gathered
from gnomon.shadow import OpenIndex, open_index
from gnomon.shadow.errors import ConcurrentCommit, IndexBehind, SpecMismatch, StorageError, TableChanged
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.storage import join, storage_at
from gnomon.shadow.tables import Deleted, LakeSource, PlannedChange, TableVersion
from gnomon.sources import POINTER_COLUMNS

KEY_ROWS, KEY_BYTES = 1_000_000, 64 << 20  # of keys that are looked up together
LOOKS = 5  # at a table that changes meanwhile
FILE_NAME, OFFSET = POINTER_COLUMNS[:2]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class RowSearch:
    """The search for the rows of a table that have the keys of a change. `root` is the table's root. The last result is
    kept, with the keys that have rows: `updated` of those that get another row, `deleted` of the others."""

    def __init__(self, index: str, root: str, change: PlannedChange) -> None:
        self._index, self._root, self._change = index, root, change
        self.found: Deleted | None = None
        self.updated = self.deleted = 0

    def newest(self, build: Callable[[], object]) -> Deleted:
        """The rows that the newest version of the table has. `build` brings the index up to date, where it is too far
        behind. TableChanged where the change may not be committed at this version; StorageError, for which the append
        is given up, where the keys are gone."""
        try:
            opened = OpenIndex.of(open_index(self._index, newest=True))
        except IndexBehind:
            build()
            opened = OpenIndex.of(open_index(self._index, newest=True))
        version = opened.view.snapshot.table
        if version is None:
            raise SpecMismatch("the index covers no version of a table; expected the one of this change", self._index)
        if self.found is None or self.found.version != version:
            self.found = self._search(opened, version)
        return self.found

    def _search(self, opened: OpenIndex, version: TableVersion) -> Deleted:
        rows: dict[str, BitMap64] = {}
        self.updated = self.deleted = 0
        for keys in gathered(self._keys(), KEY_ROWS, KEY_BYTES):
            hits = rows_of_keys(opened, keys, rows)
            written = np.asarray(keys.column(WRITTEN).to_numpy(zero_copy_only=False))
            self.updated += int(np.count_nonzero(hits[written]))
            self.deleted += int(np.count_nonzero(hits[~written]))
            self._check(opened, keys, hits, written)
        return Deleted(version, rows)

    def _check(self, opened: OpenIndex, keys: pa.RecordBatch, hits: Ints, written: Bools) -> None:
        several = np.flatnonzero(hits > 1)
        if len(several) and not self._change.replaces_all:
            one = int(several[0])
            shown = shown_row(opened.spec, keys.columns, one)
            raise SeveralRows(
                f"{len(several):,} keys of the batch have several rows, such as {shown} with "
                f"{hits[one]}; --all (replace_all=True) replaces all rows of a key",
                opened.spec.source.name,
            )
        absent = np.flatnonzero(written & (hits == 0))
        if len(absent) and not self._change.inserts:
            shown = shown_row(opened.spec, keys.columns, int(absent[0]))
            raise RowsMoved(f"{shown} has no row any more", opened.spec.source.name, action=Action.APPEND_BATCH_AGAIN)

    def _keys(self) -> Iterator[pa.RecordBatch]:
        storage = storage_at(self._root)
        for path in self._change.key_files:
            try:
                data = storage.read(path)
            except (FileNotFoundError, NotADirectoryError):
                what, where = "a file of keys of this change is gone", join(self._root, path)
                raise StorageError(what, where, action=Action.RESTORE_APPEND) from None
            yield from pq.ParquetFile(pa.BufferReader(data)).iter_batches(KEY_ROWS)


class RowsMoved(TableChanged):
    """Keys of a change have lost their rows since the batch was checked."""


class NothingFound(ConcurrentCommit):
    """The keys to delete have no row."""


class SeveralRows(TableChanged):
    """Keys of a change have several rows, and the change may not replace them all."""


def rows_of_keys(opened: OpenIndex, keys: pa.RecordBatch, rows: dict[str, BitMap64]) -> Ints:
    """Add the rows of keys to `rows`, by the path of their file. `keys` has the columns `key_names`; nulls equal nulls.
    Returns the number of rows of each key."""
    hits = np.zeros(keys.num_rows, np.int64)
    stored, narrow = held_keys(keys, opened.spec, ())
    for matches in opened.match_pieces(stored, narrow, MatchStats(), null_safe=True):
        hits += np.bincount(matches.rows.to_numpy(), minlength=len(hits))
        named = matches.entries.column(FILE_NAME).dictionary_encode()
        codes, numbers = named.indices.to_numpy(), matches.entries.column(OFFSET).cast(pa.uint64()).to_numpy()
        order = np.argsort(codes, kind="stable")
        for share in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else ():
            path = named.dictionary[int(codes[share[0]])].as_py()
            rows[path] = rows.get(path, BitMap64()) | BitMap64(numbers[share])
    return hits


def equality_deleted(index: str) -> tuple[Deleted, int]:
    """The rows that only equality deletes delete at the newest version of an Iceberg table, and the number of values in
    these deletes."""
    for _ in range(LOOKS):
        view = OpenIndex.of(open_index(index, newest=True)).view
        content = LakeSource(view.spec.source.name, None, view.spec.partitions).content
        if content.version == view.snapshot.table:
            break
    else:
        raise ConcurrentCommit(
            f"it changed {LOOKS} times while it was read", view.spec.source.name, action=Action.RUN_AGAIN
        )
    by_position, deletes = content.deleted(), content.equality_deletes()
    masks = {path: mask for segment in view.segments for path, mask in segment.masks.items()}
    masked = {path: BitMap64(mask.numbers.astype(np.uint64)) for path, mask in masks.items()}
    rows = {path: numbers - by_position.get(path, BitMap64()) for path, numbers in masked.items()}
    values = sum(one.rows.num_rows for one in deletes)
    dropped = frozenset(one.location for one in deletes)
    return Deleted(content.version, {path: one for path, one in rows.items() if len(one)}, dropped), values

"""Checks of a key-value folder: its index files match its segments, each entry lies where look-ups search it, and
look-ups find its rows. There is no source to compare."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.btree.hash_columns import buckets_of, plain_column, xxhash64_columns
from gnomon.shadow.index import Index
from gnomon.shadow.lookup import read_index_file
from gnomon.shadow.metadata import IndexFileEntry, View, manifest_path
from gnomon.shadow.storage import Storage
from gnomon.shadow.verify.index_files import FolderProof
from gnomon.shadow.verify.look_ups import look_all_up, look_value_up
from gnomon.shadow.verify.report import Fault, Report
from gnomon.shadow.verify.samples import Samples, some_of


def prove_values(storage: Storage, view: View, every: bool, report: Report) -> None:
    """Check the index files of all segments, and that each segment has as many entries as were written. Look up a row
    of some partitions, and with `every` the keys of all rows."""
    partitions = {file.partition for segment in view.segments for file in segment.live.values()}
    chosen = some_of(partitions, every)
    proofs: dict[str, list[_ValuesProof]] = {}
    for segment in view.segments:
        for folder in sorted(segment.index_files_in):
            proof = _ValuesProof(storage, view.spec, segment, folder, report, Samples((), {}, {}))
            proofs.setdefault(folder, []).append(proof)
            proof.run(0)
        rows, entries = sum(file.rows for file in segment.live.values()), sum(f.entries for f in segment.index_files)
        if rows != entries:
            where = f"{storage.root}/{manifest_path(segment.id)}"
            report.add(
                Fault(where, 0, f"lists {rows} rows, its index files have {entries} entries", Action.WRITE_VALUES)
            )
    if not report.is_sound:  # an answer shows nothing new
        return
    index = Index(storage, view, True)
    report.partitions, report.partitions_looked_up = len(partitions), len(chosen)
    for folder, of_folder in proofs.items():
        for proof in of_folder:
            if folder in chosen and proof.first is not None:
                look_value_up(index, *proof.first, report)
            if every:
                look_all_up(index, proof, report)


class _ValuesProof(FolderProof):
    first: tuple[IndexFileEntry, pa.RecordBatch] | None = None  # a row, in its index file

    def live_keys(self) -> Iterator[tuple[IndexFileEntry, pa.RecordBatch]]:
        keys = [column.name for column in self._spec.entry_schema.keys]
        for entry in self._index_files:
            for batch in self._batches(read_index_file(self._storage, self._spec, entry), entry):
                yield entry, batch.select(keys)

    def _prove_entries(self, data: bytes, entry: IndexFileEntry, picks: npt.NDArray[np.int64]) -> int:
        """Check that each entry is in its bucket and passes the filter. Returns the number of entries."""
        filter_ = self._open_filter(entry)
        seen = misplaced = denied = 0
        for batch in self._batches(data, entry):
            if self.first is None and batch.num_rows:
                self.first = entry, batch.slice(0, 1)
            keys = [plain_column(batch.column(i), kind) for i, kind in enumerate(self._spec.key_types)]
            misplaced += int((buckets_of(keys, self._spec.buckets_in(entry.partition)) != entry.bucket).sum())
            if filter_ is not None:
                denied += self._denied(filter_, xxhash64_columns(keys))
            seen += batch.num_rows
        self._report_keys(entry, filter_, misplaced, denied)
        return seen

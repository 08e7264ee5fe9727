"""Checks of a key-value folder: its index files match its segments, and each entry lies where look-ups search it. There
is no source to compare."""

import numpy as np
import numpy.typing as npt

from gnomon.base.actions import Action
from gnomon.btree.hash_columns import buckets_of, plain_column, xxhash64_columns
from gnomon.shadow.metadata import IndexFileEntry, View, manifest_path
from gnomon.shadow.storage import Storage
from gnomon.shadow.verify.index_files import FolderProof
from gnomon.shadow.verify.report import Fault, Report
from gnomon.shadow.verify.samples import Samples


def prove_values(storage: Storage, view: View, report: Report) -> None:
    """Check the index files of all segments, and that each segment has as many entries as were written."""
    for segment in view.segments:
        for folder in sorted(segment.index_files_in):
            _ValuesProof(storage, view.spec, segment, folder, report, Samples({}, {})).run(0)
        rows, entries = sum(file.rows for file in segment.live.values()), sum(f.entries for f in segment.index_files)
        if rows != entries:
            where = f"{storage.root}/{manifest_path(segment.id)}"
            report.add(
                Fault(where, 0, f"lists {rows} rows, its index files have {entries} entries", Action.WRITE_VALUES)
            )


class _ValuesProof(FolderProof):
    def _prove_entries(self, data: bytes, entry: IndexFileEntry, picks: npt.NDArray[np.int64]) -> int:
        """Check that each entry is in its bucket and passes the filter. Returns the number of entries."""
        filter_ = self._open_filter(entry)
        seen = misplaced = denied = 0
        for batch in self._batches(data, entry):
            keys = [plain_column(batch.column(i), kind) for i, kind in enumerate(self._spec.key_types)]
            misplaced += int((buckets_of(keys, self._spec.buckets_in(entry.partition)) != entry.bucket).sum())
            if filter_ is not None:
                denied += self._denied(filter_, xxhash64_columns(keys))
            seen += batch.num_rows
        self._report_keys(entry, filter_, misplaced, denied)
        return seen

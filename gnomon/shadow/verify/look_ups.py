"""Look-ups of sampled keys, as a user makes them, and the count of live rows by the table's own reader.

The other checks follow pointers from the entries to the rows. A look-up goes the other way: from the key, through
partitions, filters and masks, to the columns of the row. A key-value folder has no source to compare: look-ups find the
rows of its entries."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.base.errors import Action
from gnomon.btree.hashing import plain_column, xxhash64_columns
from gnomon.shadow.errors import BeyondBound
from gnomon.shadow.fetch import Fetcher, FetchReads, PartitionColumns
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import MatchStats, read_index_file
from gnomon.shadow.metadata import IndexFileEntry, SourceFileEntry, View, manifest_path, masks_of
from gnomon.shadow.storage import Storage, join
from gnomon.shadow.tables import Versions
from gnomon.shadow.values import python_values
from gnomon.shadow.verify.index_files import FolderProof
from gnomon.shadow.verify.report import FAILURES, LIVE, Fault, Report, Samples, fault_of, some_of
from gnomon.sources import Numbers, Pointer

MOST_ROWS = 10_000  # of a looked-up key: a key with more is not followed to the row
SCANNED_BYTES = 64 << 20  # of source files that are scanned to compare whole rows
COUNTED_BYTES = 1 << 30  # of data files with deleted rows, which the table's own reader reads to count
POINTER_NUMBERS = 3  # pointer columns, the last of a scan of a source


class LookUps:
    """Looks sampled keys up in an index at a view, and reports each answer that is not the one of its entry."""

    def __init__(self, index: OpenIndex, fetcher: Fetcher, root: str, report: Report) -> None:
        self._index, self._fetcher = index, fetcher
        self._root, self._report = root, report
        self._columns = [name for name in index.view.columns if name not in index.spec.partitions]

    def run(self, samples: Samples, every: bool) -> None:
        """Look each sample up, and compare whole rows with a scan: of files of SCANNED_BYTES together, or of `every`
        file with a sample."""
        left = SCANNED_BYTES
        for (_, kind), (file, pointer) in samples.rows.items():
            try:
                self._look_up(kind, file, pointer)
                self._report.looked_up += 1
                if kind == LIVE and (every or file.size <= left):
                    left -= file.size
                    self._compare(file, pointer)
            except FAILURES as error:
                what = f"a look-up of its key fails: {fault_of(error, '').what}"
                self._report.add(Fault(join(self._root, file.path), pointer.data_offset, what, Action.BUILD_FULL))

    def _look_up(self, kind: str, file: SourceFileEntry, pointer: Pointer) -> None:
        spec = self._index.spec
        names = list(dict.fromkeys([*(column.name for column in spec.keys), *spec.partitions]))
        row = self._fetcher.table(file, _place(pointer), {}, names, FetchReads())
        values = {name: python_values(row.column(name))[0] for name in names}
        key = {column.name: values[column.name] for column in spec.keys}
        where = {name: values[name] for name in spec.partitions}
        for within in (None, where) if where else (None,):
            columns = [*(column.column for column in spec.keys), *where] if within else None  # the whole row once
            answer = self._index.answer_many([key], columns, within, 1)[0]
            if answer.count > MOST_ROWS:
                return
            is_found = pointer in self._index.lookup(key, where=within)
            if is_found != (kind == LIVE):
                what = "does not find the row" if kind == LIVE else f"finds the row, which is {kind}"
                fault = Fault(join(self._root, file.path), pointer.data_offset, f"a look-up of its key {what}")
                self._report.add(fault)

    def _compare(self, file: SourceFileEntry, pointer: Pointer) -> None:
        """Compare a row as a fetch reads it with the same row in a scan of its file."""
        fetched = self._fetcher.table(file, _place(pointer), {}, self._columns, FetchReads())
        for batch in self._fetcher.scan(file, self._columns):
            offsets, sub_offsets = batch.columns[-POINTER_NUMBERS:-1]  # by place: the source may have such names, too
            same = pc.and_(pc.equal(offsets, pointer.data_offset), pc.equal(sub_offsets, pointer.data_sub_offset))
            rows = batch.filter(same)
            if rows.num_rows:
                read = zip(batch.schema.names[:-POINTER_NUMBERS], rows.columns, strict=False)
                wrong = [name for name, values in read if not _alike(values, fetched.column(name))]
                if wrong:
                    what = f"a fetch of the row has another value of {', '.join(wrong)} than a scan of the file"
                    self._report.add(Fault(join(self._root, file.path), pointer.data_offset, what))
                return


def look_all_up(index: OpenIndex, proof: FolderProof, report: Report) -> None:
    """Look the keys of all live entries of a segment in a folder up."""
    stats = MatchStats()
    for entry, keys in proof.live_keys():
        found = index.holds(keys, {}, stats)
        report.looked_up += keys.num_rows
        if missing := keys.num_rows - found.true_count:
            what = f"look-ups do not find {missing} of its keys"
            report.add(Fault(f"{index.location}/{entry.path}", 0, what, index.spec.remedy))


def look_value_up(index: OpenIndex, entry: IndexFileEntry, row: pa.RecordBatch, report: Report) -> None:
    """Look up the key of a row of a key-value folder, which has the columns of the entry: an answer must have the
    row."""
    spec, where = index.spec, PartitionColumns(index.spec).values(entry.partition)
    stored = [column.name for column in (*spec.stored_keys, *spec.include)]
    values = dict(zip(stored, (python_values(column)[0] for column in row.columns), strict=False)) | where
    key = {column.name: values[column.name] for column in spec.keys}
    path = f"{index.location}/{entry.path}"
    report.looked_up += 1
    for within in (None, where) if where else (None,):
        try:
            rows = index.answer_many([key], None, within, most_rows=MOST_ROWS, most_bytes=SCANNED_BYTES)[0].rows
        except BeyondBound:
            return
        except FAILURES as error:
            report.add(Fault(path, 0, f"a look-up of its key fails: {fault_of(error, '').what}", spec.remedy))
            return
        if not any(all(repr(one[name]) == repr(value) for name, value in values.items()) for one in rows):
            report.add(Fault(path, 0, "a look-up of its key does not find the row", spec.remedy))


def _place(pointer: Pointer) -> Numbers:
    return np.array([[pointer.data_offset, pointer.data_sub_offset]], np.int64)


def _alike(one: pa.Array, other: pa.ChunkedArray) -> bool:
    """Whether two values are the same; NaNs are, and -0.0 is not 0.0."""
    return repr(python_values(one)) == repr(python_values(other))


def count_by_table(table: Versions, view: View, every: bool, report: Report) -> None:
    """Compare the number of live rows with the count of the table's own library, at the version of the snapshot. The
    count is left out where it would read more than COUNTED_BYTES, unless `every` row is compared, and where the library
    cannot read the table."""
    covered, known = view.covered, view.snapshot.table
    if known is None:
        return
    masked = sum(covered[path].size for path in masks_of(view.segments) if path in covered)
    if masked > COUNTED_BYTES and not every:
        report.not_counted = f"it would read {masked:,} bytes of files with deleted rows; --all does"
        return
    try:
        counted = table.count(known)
    except FAILURES as error:
        report.not_counted = fault_of(error, "").what
        return
    report.counted = counted
    if counted != view.snapshot.rows:
        what = (
            f"the table's own reader counts {counted:,} rows in version {known.version}, and the snapshot has "
            f"{view.snapshot.rows:,}"
        )
        report.add(Fault(view.spec.source.location, None, what, Action.BUILD_FULL))


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
    index = OpenIndex(storage, view, True)
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
        for entry in self.index_files:
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
            buckets = self._spec.bucketing_in(entry.partition).of_columns(batch.columns, keys)
            misplaced += int((buckets != entry.bucket).sum())
            if filter_ is not None:
                denied += self._denied(filter_, xxhash64_columns(keys))
            seen += batch.num_rows
        self._report_keys(entry, filter_, misplaced, denied)
        return seen

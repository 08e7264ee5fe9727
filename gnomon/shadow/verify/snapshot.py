"""Verification of an index: its metadata, its index files, and the rows of its pointers.

A build checks a sample before its commit. `verify` checks all files of a snapshot, and reports every fault. With all
entries it does so on all cores."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

from pyroaring import BitMap64

from gnomon.base.errors import Action
from gnomon.btree import BTreeReader, DamagedIndexFile
from gnomon.btree.hashing import xxhash64
from gnomon.btree.keys import Key
from gnomon.shadow.errors import DamagedMetadata, IndexNotFound, SnapshotNotFound, SourceNotFound
from gnomon.shadow.fetch import Fetcher, prove_page_maps
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import open_filter
from gnomon.shadow.maintenance import check_mask, masks_at
from gnomon.shadow.metadata import (
    SPEC_PATH,
    DigestChecks,
    IndexFileEntry,
    IndexSpec,
    Masks,
    Snapshot,
    SourceFileEntry,
    SourceRoot,
    View,
    diff,
    manifest_path,
    masks_of,
    newest_snapshot,
    read_masks,
    read_segment,
    read_snapshot,
    read_spec,
    snapshot_numbers,
    snapshot_path,
    source_of,
)
from gnomon.shadow.storage import Place, Readable, Storage, join, patiently, storage_at
from gnomon.shadow.tables import TableVersion, Versions
from gnomon.shadow.verify.index_files import FolderProof, Proved
from gnomon.shadow.verify.look_ups import LookUps, count_by_table, look_all_up, prove_values
from gnomon.shadow.verify.manifests import check_appends, check_columns, check_manifests, check_snapshot
from gnomon.shadow.verify.pointers import ReadBack, RowSum
from gnomon.shadow.verify.report import FAILURES, Fault, Report, Samples, fault_of, plain_table, some_of
from gnomon.shadow.write import WORTH_ROWS, Workers, processes_for

SHARES = 4  # tasks for each process: an index file may take longer than others
SAMPLED_FILES = 16
ENTRIES_PER_FILE = 4
CACHE_BYTES = 16 * 1024 * 1024


def verify_sample(
    index: Storage,
    source: Readable,
    spec: IndexSpec,
    index_files: Sequence[IndexFileEntry],
    source_files: Sequence[SourceFileEntry],
) -> int:
    """Read some entries of some index files and compare their rows. Returns the number of compared rows.

    DamagedIndexFile when an entry is not in the index file where look-ups search it, or its key does not pass the
    file's filter; StalePointer when a row does not hold its key. The reads use recorded page maps, if any."""
    fetcher = Fetcher(source, spec, CACHE_BYTES, index)
    by_path: Mapping[str, SourceFileEntry] = {file.path: file for file in source_files}
    compared = 0
    for entry, key, value in sampled(index, spec, index_files):
        pointer = spec.entries.pointer(value)
        file = by_path.get(pointer.data_filename)
        if file is None or spec.folder_of(file.partition) != entry.partition:
            what = f"holds an entry of file {pointer.data_filename}, which belongs elsewhere"
            raise DamagedIndexFile(what, f"{index.root}/{entry.path}", 0)
        fetcher.check(file, pointer, key)
        compared += 1
    return compared


def sampled(
    index: Storage, spec: IndexSpec, index_files: Sequence[IndexFileEntry]
) -> Iterator[tuple[IndexFileEntry, Key, Key]]:
    """Yield some entries of some index files, key and value. DamagedIndexFile for an entry that no look-up would find:
    it lies in another bucket, or does not pass the file's filter."""
    step = -(-len(index_files) // SAMPLED_FILES) or 1
    for entry in index_files[::step]:
        filter_ = open_filter(index, entry.filter) if entry.filter is not None else None
        with index.open(entry.path) as reader:
            for key, value in BTreeReader(reader, action=spec.remedy).sample(ENTRIES_PER_FILE):
                bucket = spec.bucketing_in(entry.partition).of(key)
                if bucket != entry.bucket:
                    what = f"holds an entry of bucket {bucket}, which belongs elsewhere"
                    raise DamagedIndexFile(what, f"{index.root}/{entry.path}", 0, action=spec.remedy)
                if filter_ is not None and not filter_.may_contain(xxhash64(key, spec.key_types)):
                    what = f"denies a key of {entry.path}, its index file"
                    raise DamagedIndexFile(what, filter_.path, 0, action=Action.BUILD_FULL_OR_NO_FILTERS)
                yield entry, key, value


@patiently()
def verify(index: Place | Storage, sample: int | None = ENTRIES_PER_FILE, snapshot: int | None = None) -> Report:
    """Check the newest snapshot, or the given one: its metadata, each index file and its Bloom filter, and `sample`
    pointers of each index file. With None, it also compares all entries with a scan of the source. On a remote store
    the faults are those of a second check.

    The report has all faults, each with its place. Only errors that leave nothing to verify are raised: IndexNotFound,
    SnapshotNotFound, NewerFormat. If a vacuum removes the newest snapshot during the check, the new newest one is
    checked instead."""
    storage = storage_at(index)
    while True:
        report = _verify(storage, sample, snapshot)
        if not report.is_sound and storage.is_remote:  # a store may answer wrongly once
            report = _verify(storage, sample, snapshot)
        if report.is_sound or report.snapshot is None or report.snapshot in snapshot_numbers(storage):
            return report
        if snapshot is not None:
            raise SnapshotNotFound(f"snapshot {snapshot} was vacuumed while it was verified", storage.root)


def _verify(storage: Storage, sample: int | None, snapshot: int | None) -> Report:
    report = Report(storage.root)
    check_appends(storage, report)
    view = _open(storage, snapshot, report)
    if view is None:
        return report
    check_snapshot(storage, view, report)
    check_manifests(storage, view, report)
    if view.spec.holds_values:
        prove_values(storage, view, sample is None, report)
        report.plain_table = plain_table(storage, view)
        return report
    root = _source_of(storage, view, report)
    stale = _check_coverage(storage, root, view, report) if root else set(view.covered)
    source: Readable = root.storage if root else storage  # without a root, nothing is read from it
    fetcher = Fetcher(source, view.spec, CACHE_BYTES)  # with the pages of the files themselves, not recorded page maps
    read_back = ReadBack(root.storage.root if root else view.spec.source.location, view.spec, fetcher, report)
    for file in view.covered.values():
        compared = fetcher if sample is None and file.path not in stale else None
        _check_page_maps(storage, view.spec, file, compared, report)
    versions = root.source.versions if root is not None else None
    partitions = {file.partition for file in view.covered.values()}
    by_position = {} if versions is None else _deleted_by_position(versions)
    samples = Samples(some_of(partitions, sample is None), masks_of(view.segments), by_position)
    proofs: list[tuple[int, str, FolderProof]] = []
    of_file = ENTRIES_PER_FILE if sample is None else sample
    job = _Part(storage, view, source, samples, of_file)
    with _Cores(job, sample is None) as cores:
        for number, segment in enumerate(view.segments):
            for folder in sorted({view.spec.folder_of(file.partition) for file in segment.live.values()}):
                proof = FolderProof(storage, view.spec, segment, folder, report, samples)
                proofs.append((number, folder, proof))
                cores.prove(number, folder, proof, of_file)
                if sample is None and proof.is_whole:
                    files = [t.file.path for t in proof.tallies if t.is_live and t.file.path not in stale]
                    read_back.sums = cores.sums(files)
                read_back.run(proof, sample is None, stale)
        if report.is_sound and root is not None:  # else an answer shows nothing new
            index = OpenIndex(storage, view, True)
            report.partitions, report.partitions_looked_up = len(partitions), len(samples.partitions)
            LookUps(index, fetcher, root.storage.root, report).run(samples, sample is None)
            for number, folder, proof in proofs if sample is None else ():
                cores.look_all_up(number, folder, index, proof, report)
            if versions is not None and not report.unchecked:
                count_by_table(versions, view, sample is None, report)
    check_columns(storage, view.snapshot, read_back.columns, _is_all(view, read_back.opened), report)
    report.plain_table = plain_table(storage, view)
    return report


class _Files(NamedTuple):
    """Some index files of a segment in a folder, to be proved or, with `look_up`, to have their keys looked up."""

    segment: int
    folder: str
    index_files: Sequence[IndexFileEntry]
    look_up: bool


@dataclass
class _Part:
    """The tasks of a verification, for another process. It gives the proof of some index files, or the sum of a source
    file; None where the caller has to look at the source file itself."""

    storage: Storage
    view: View
    source: Readable
    samples: Samples
    sample: int

    def __call__(self, task: _Files | str) -> Iterator[Proved | RowSum | None]:
        spec, report = self.view.spec, Report(self.storage.root)
        if isinstance(task, str):
            fetcher = Fetcher(self.source, spec, CACHE_BYTES)
            try:
                yield ReadBack(self.source.root, spec, fetcher, report).sum_of(self.view.covered[task])
            except FAILURES:
                yield None
            return
        segment, samples = self.view.segments[task.segment], replace(self.samples, rows={})
        proof = FolderProof(self.storage, spec, segment, task.folder, report, samples, task.index_files)
        if task.look_up:
            look_all_up(self._index, proof, report)
        else:
            proof.run(self.sample)
        yield proof.proved

    @cached_property
    def _index(self) -> OpenIndex:
        return OpenIndex(self.storage, self.view, True)


class _Cores:
    """The checks of a verification that are worth several processes. A context manager: at its end they have ended."""

    def __init__(self, job: _Part, every: bool) -> None:
        is_worth = every and sum(file.rows for file in job.view.covered.values()) >= WORTH_ROWS
        self._processes = processes_for(0, job.storage, job.source) if is_worth else 1
        self._workers = Workers[_Files | str, Proved | RowSum | None](self._processes, job)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._processes > 1:
            self._stack.enter_context(self._workers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prove(self, segment: int, folder: str, proof: FolderProof, sample: int) -> None:
        """`FolderProof.run`."""
        if not self._workers.number:
            proof.run(sample)
        for part in self._parts(segment, folder, proof, False):
            proof.take(part)

    def look_all_up(self, segment: int, folder: str, index: OpenIndex, proof: FolderProof, report: Report) -> None:
        """Look the keys of all live entries of a segment in a folder up."""
        if not self._workers.number:
            look_all_up(index, proof, report)
        for part in self._parts(segment, folder, proof, True):
            report.merge(part.report)

    def sums(self, paths: Sequence[str]) -> dict[str, RowSum]:
        """The sums of those source files that could be read; none where this is the only process."""
        tasks: list[_Files | str] = list(paths) if self._workers.number else []
        return {paths[number]: found for number, found in self._workers.run(tasks) if isinstance(found, RowSum)}

    def _parts(self, segment: int, folder: str, proof: FolderProof, look_up: bool) -> list[Proved]:
        """The results of the processes, in the order of the index files; none where this is the only process."""
        if not self._workers.number:
            return []
        files = proof.index_files
        share = max(1, -(-len(files) // (SHARES * self._processes)))
        parts = [files[begin : begin + share] for begin in range(0, len(files), share)]
        tasks: list[_Files | str] = [_Files(segment, folder, part, look_up) for part in parts]
        found = sorted(self._workers.run(tasks), key=lambda one: one[0])
        return [part for _, part in found if isinstance(part, Proved)]


def _check_page_maps(
    storage: Storage, spec: IndexSpec, file: SourceFileEntry, source: Fetcher | None, report: Report
) -> None:
    """Check that recorded page maps are whole and of their file; with `source`, also that they equal its current
    ones."""
    entry = file.page_maps
    if entry is None:
        return
    try:
        maps = prove_page_maps(storage, spec.format, entry, file.digest)
        if source is not None and not source.files.has_maps(file, maps):
            report.add(
                Fault(
                    f"{storage.root}/{entry.path}",
                    entry.offset,
                    f"not the page maps of {file.path}",
                    Action.BUILD_PAGE_MAPS,
                )
            )
        report.page_maps += 1
    except FAILURES as error:
        report.add(fault_of(error, f"{storage.root}/{entry.path}"))


def _is_all(view: View, opened: int) -> bool:
    """Whether the opened files are all that were ever indexed: each snapshot added a segment, and lost no file. False
    for a catalog table, whose columns are declared, whatever the files have."""
    refs = view.snapshot.segments
    never_lost = not view.spec.is_of_table and len(view.segments) == view.snapshot.number
    return never_lost and not any(r.dead for r in refs) and opened == len(view.covered)


def _open(storage: Storage, number: int | None, report: Report) -> View | None:
    """The snapshot with its readable segments. None, and a fault in the report, where the snapshot cannot be read."""
    spec = found = None
    try:
        spec = read_spec(storage)
    except DamagedMetadata as error:  # each snapshot has the spec, too
        report.add(fault_of(error, storage.root))
    try:
        found = newest_snapshot(storage) if number is None else read_snapshot(storage, number)
    except DamagedMetadata as error:
        report.add(fault_of(error, storage.root))
    if found is None:
        if not report.is_sound:
            return None
        raise IndexNotFound("no snapshot yet, its first build has not ended", storage.root, action=Action.BUILD_AGAIN)
    report.snapshot = found.number
    if spec is not None and not spec.is_like(found.spec):
        report.add(
            Fault(
                f"{storage.root}/{SPEC_PATH}",
                0,
                f"not the spec that snapshot {found.number} was built with",
                Action.BUILD_SPEC,
            )
        )
    segments, masks = [], _masks(storage, found, report)
    for ref in found.segments:
        try:
            segments.append(replace(read_segment(storage, ref), masks=masks))
        except FAILURES as error:
            report.add(fault_of(error, f"{storage.root}/{manifest_path(ref.id)}"))
    return View(found, tuple(segments))


def _masks(storage: Storage, snapshot: Snapshot, report: Report) -> Masks:
    """The masks of a snapshot; none, and a fault in the report, where they cannot be read."""
    try:
        masks = read_masks(storage, snapshot.masks)
    except FAILURES as error:
        report.add(fault_of(error, f"{storage.root}/{snapshot_path(snapshot.number)}"))
        return {}
    return masks


def _source_of(storage: Storage, view: View, report: Report) -> SourceRoot | None:
    try:
        return source_of(view.spec, view.snapshot.folders, view.snapshot.table)
    except FAILURES as error:
        report.add(fault_of(error, f"{storage.root}/{snapshot_path(view.snapshot.number)}"))
        return None


def _check_coverage(storage: Storage, root: SourceRoot, view: View, report: Report) -> set[str]:
    """Compare the source's files with the covered ones. Changed and vanished files are faults, and returned. A lake
    table is compared at the version that the snapshot covers, with its deleted rows."""
    if root.source.versions is not None:
        return _check_version(storage, root.source.versions, view, report)
    try:
        files, lake_table = root.listing()
        digest_checks = DigestChecks(root.storage, view.spec.format, view.spec.read_options)
        difference = diff(files, view.segments, root.source, digest_checks)
    except FAILURES as error:
        report.add(fault_of(error, root.location))
        return set(view.covered)
    if len(view.segments) == len(view.snapshot.segments):  # else it is unknown
        report.not_covered = [info.path for info in difference.new]
    if lake_table is not None and not view.spec.source.as_files:
        what = f"the source belongs to {lake_table}: the index answers rows that the table deleted or replaced"
        report.add(Fault(root.location, None, what))
    for info in difference.changed:
        report.add(Fault(join(root.storage.root, info.path), None, "changed since it was indexed", Action.BUILD_AGAIN))
    for path in difference.vanished:
        report.add(Fault(join(root.storage.root, path), None, "gone since it was indexed", Action.BUILD_AGAIN))
    return {info.path for info in difference.changed}.union(difference.vanished)


def _deleted_by_position(table: Versions) -> Mapping[str, BitMap64]:
    try:
        return table.content.deleted()
    except FAILURES:  # `_check_version` reports it
        return {}


def _is_expired(table: Versions, covered: TableVersion | None) -> bool:
    """Whether the table is there, and has removed the metadata of the version that the snapshot covers."""
    if covered is None:
        return False
    try:
        lines = table.history(covered).branches.values()
    except FAILURES:
        return False
    return not any(one.version == covered.version for line in lines for one in line)


def _check_version(storage: Storage, table: Versions, view: View, report: Report) -> set[str]:
    """Compare the files and deleted rows of a lake table with the covered ones. Returns the files that differ."""
    try:
        known = table.content
        deleted = masks_at(storage, view.spec, view.segments, known)
    except FAILURES as error:
        if isinstance(error, SourceNotFound) and _is_expired(table, view.snapshot.table):
            report.unchecked.append(
                f"{view.spec.source.name}: {error.what}, so that its files and deleted rows cannot be compared"
            )
            return set()
        report.add(fault_of(error, view.spec.source.location))
        return set()
    covered, masks = view.covered, masks_of(view.segments)
    for path, mask in masks.items():
        if path in covered:
            check_mask(mask, known, path, covered[path])
    what = f"version {known.version.version} of the table"
    wrong: dict[str, str] = {}
    for path in known.files.keys() - covered.keys():
        wrong[path] = f"live in {what}, and not covered"
    for path in covered.keys() - known.files.keys():
        wrong[path] = f"covered, and not live in {what}"
    for path, file in covered.items():
        if path in known.files and known.files[path][:2] != (file.size, file.partition):
            wrong[path] = f"of other bytes or another partition in {what}"
    for path in deleted.keys() | masks.keys():
        if deleted.get(path) != masks.get(path):
            wrong.setdefault(path, f"other rows of it are deleted in {what} than the index masks")
    for path, why in sorted(wrong.items()):
        report.add(Fault(join(view.spec.source.location, path), None, why, Action.BUILD_FULL))
    return set(wrong)

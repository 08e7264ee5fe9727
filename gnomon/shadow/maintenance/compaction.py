"""Compact: merge many small segments into one, without dead entries. Rebucket: the same with another number of buckets
or another layout. No source file is read, and pointers stay unchanged.

A segment is replaced whole or stays. A folder of index files (a partition, or a whole flat index) is untidy when
several live segments cover files in it, or when a live segment there has entries of dead files. Each segment that
covers, or covered, a file of an untidy folder is replaced. So afterwards each partition lies in one segment, without
dead entries. The cost depends on the untidy folders only, not on others that share their segments.

The new segment covers the same source files with the same fingerprints, in the order of the old segments, so the rows
of a key keep their order. It names an index file unchanged if it is alone in its bucket and its segment has no dead
entry in its folder. All other index files are merged and written. Where buckets or layout change, all are written.

A build of a flat index merges small segments with its new one, in its own commit. A segment is merged when it has at
most FACTOR times the rows merged so far, the smallest first. So each segment that stays has more than FACTOR times the
rows of the next smaller one: n rows have about log2(n) segments at most, whatever the number of builds, and an entry is
written about log2(n) times."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key, stored_array
from gnomon.shadow.commit import Changes, Current, made_for, new_segment_id, publish
from gnomon.shadow.errors import CommitLost, ConcurrentCommit, UsageError
from gnomon.shadow.lookup import open_index_file, write_index_file
from gnomon.shadow.metadata import (
    RANGE,
    IndexFileEntry,
    IndexSpec,
    Segment,
    SegmentFile,
    Snapshot,
    SourceFileEntry,
    View,
    buckets_for,
    check_buckets,
    check_order,
    cuts_of,
    open_view,
    with_cuts,
)
from gnomon.shadow.storage import Place, Storage, patiently, probe, storage_at
from gnomon.shadow.write import WORTH_ROWS, Workers, merged, processes_for, shares_of_merge

SAMPLED = 20_000  # keys of an index from which its ranges are cut


class Rewritten(NamedTuple):
    """The index files that stay, and those that were written."""

    kept: Sequence[IndexFileEntry]
    written: Sequence[IndexFileEntry]

    @property
    def all(self) -> list[IndexFileEntry]:
        return [*self.kept, *self.written]


def folders_of(spec: IndexSpec, files: Iterable[SourceFileEntry]) -> set[str]:
    """The folders in which source files have their index files."""
    return {spec.folder_of(file.partition) for file in files}


def dead_folders(spec: IndexSpec, segment: Segment) -> set[str]:
    """The folders in which a segment has dead entries."""
    dead = (segment.source_files[i] for i in segment.dead)
    return folders_of(spec, (file for file in dead if file.rows))


def rewrite(
    storage: Storage,
    spec: IndexSpec,
    segments: Sequence[Segment],
    target: IndexSpec,
    segment_id: str,
    on_all_cores: bool = False,
) -> Rewritten:
    """The index files of one segment for the live source files of `segments`. The segments have `spec`; the result has
    the buckets and the layout of `target`. The entries of a key come in the order of the segments. Errors as in
    `merge.merged`. `on_all_cores` lets several processes do it where that is worth it."""
    kept: list[IndexFileEntry] = []
    written: list[IndexFileEntry] = []
    if spec.flat != target.flat:
        parts = [SegmentFile(segment, file) for segment in segments for file in segment.by_bucket.values()]
        return Rewritten([], _merge(_Merge(storage, spec, parts, target, segment_id), on_all_cores))
    dead = {segment.id: dead_folders(spec, segment) for segment in segments}
    for folder in sorted({folder for segment in segments for folder in folders_of(spec, segment.live.values())}):
        clean = {segment.id for segment in segments if target == spec and folder not in dead[segment.id]}
        as_they_are, parts = _split_by_reuse(segments, folder, clean)
        kept += as_they_are
        job = _Merge(storage, spec.in_folder(folder), parts, target.in_folder(folder), segment_id)
        written += _merge(job, on_all_cores)
    return Rewritten(kept, written)


def _split_by_reuse(
    segments: Sequence[Segment], folder: str, clean: Set[str]
) -> tuple[list[IndexFileEntry], list[SegmentFile]]:
    """The index files of a folder that may stay, and the others. `clean` has the segments whose entries in the folder
    are all live and in their target buckets."""
    by_bucket: dict[int, list[SegmentFile]] = {}
    for segment in segments:
        for file in segment.index_files_in.get(folder, ()):
            by_bucket.setdefault(file.bucket, []).append(SegmentFile(segment, file))
    kept, merge = [], []
    for parts in by_bucket.values():
        segment, file = parts[0]
        if len(parts) == 1 and segment.id in clean:
            kept.append(file)
        else:
            merge += parts
    return kept, merge


@dataclass(frozen=True)
class _Merge:
    """Merges a share of the parts, or all of them, and yields the written files."""

    storage: Storage
    spec: IndexSpec
    parts: Sequence[SegmentFile]
    target: IndexSpec
    segment_id: str

    def __call__(self, share: int | None) -> Iterator[IndexFileEntry]:
        for folder, bucket, batches in merged(self.storage, self.spec, self.parts, self.target, share):
            yield write_index_file(self.storage, self.target, self.segment_id, folder, bucket, batches)


def _merge(job: _Merge, on_all_cores: bool) -> list[IndexFileEntry]:
    shares = shares_of_merge(job.spec, job.target)
    is_worth = on_all_cores and sum(part.file.entries for part in job.parts) >= WORTH_ROWS
    processes = min(shares, processes_for(0, job.storage)) if is_worth else 1
    if processes > 1:
        with Workers[int | None, IndexFileEntry](processes, job) as workers:
            if workers.number:
                found = sorted(workers.run(range(shares)), key=lambda one: one[0])
                return [file for _, file in found]
    return list(job(None))


@dataclass(frozen=True)
class CompactResult:
    """The result of a compact or rebucket; not `committed` where there was nothing to do. The new segment names `kept`
    index files unchanged; bytes and entries count the written files; `dropped` entries had a dead source file."""

    snapshot: int
    committed: bool
    segments_before: int
    segments: int
    buckets: int
    index_files: int
    index_bytes: int
    kept: int
    entries: int
    dropped: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@patiently()
def compact(index: Place | Storage, partition: str | None = None) -> CompactResult:
    """Merge the segments of each untidy partition, or of the one named (`dt=2026-01-01`), as the next snapshot.
    Answers stay the same. Where one partition is named, the rows of a key in another partition that shares a segment
    with it may come in another order.

    UsageError for a partition that the index does not have; ConcurrentCommit where another commit was first."""
    begin, storage = time.perf_counter(), storage_at(index)
    view = open_view(storage)
    if partition is not None and view.spec.flat:
        raise UsageError("the index is flat; it is compacted whole", storage.root)
    if partition is not None and partition not in view.snapshot.partitions:
        raise UsageError(f"no partition {partition!r}; expected its folder, like dt=2026-01-01", storage.root)
    replaced = _to_replace(view, partition)
    if not replaced:
        return _result(view, view.snapshot, Rewritten([], []), 0, begin)
    return _replace(storage, view, replaced, view.spec, "compact", begin)


@patiently()
def rebucket(
    index: Place | Storage, buckets: int | None = None, flat: bool | None = None, order: str | None = None
) -> CompactResult:
    """Distribute all live entries to another number of buckets, by the hash of the key or in ranges of keys (`order`:
    "hash" or "range"), and lay them out `flat` or in the partitions' folders, as the next snapshot.

    None keeps the buckets, their order or the layout; a change of order or layout without `buckets` takes the number
    that a first build would choose. Ranges are cut anew, so that they are about equal: also where the index has ranges
    and `order` is "range". Answers stay the same, but the rows of one key may come in another order where the layout
    changes. UsageError for an index whose source has no partitions; other errors as in `compact`."""
    begin, storage = time.perf_counter(), storage_at(index)
    check_order(order)
    view = open_view(storage)
    is_other = flat is not None and flat != view.spec.flat
    if is_other and not view.spec.partitions:
        raise UsageError("its source has no partitions; expected one whose layout can be changed", storage.root)
    if is_other:
        view.spec.entries.check_source("a key-value folder keeps its partition folders", storage.root)
    asked_order, order = order, order or view.spec.order
    if order == RANGE:
        view.spec.entries.check_source("the buckets of a key-value folder are hashed", storage.root)
    if buckets is None and (is_other or order != view.spec.order):
        buckets = buckets_for(view.snapshot.partitions, bool(flat))
    if buckets is not None:
        check_buckets(buckets)
    target = replace(
        view.spec,
        buckets=view.spec.buckets if buckets is None else buckets,
        cuts=None,
        folder_buckets=view.spec.folder_buckets if buckets is None else {},
        flat=view.spec.flat if flat is None else flat,
    )
    if order == RANGE and (asked_order or target.buckets != view.spec.buckets):
        target = with_cuts(target, cuts_of(_sample(storage, view), target.key_types, target.buckets))
    elif order == RANGE:
        target = replace(target, cuts=view.spec.cuts)
    if target == view.spec:
        return _result(view, view.snapshot, Rewritten([], []), 0, begin)
    return _replace(storage, view, view.segments, target, "rebucket", begin)


def _sample(storage: Storage, view: View) -> list[pa.Array]:
    """Keys of the index, evenly from its index files, as columns."""
    files = [(segment, file) for segment in view.segments for file in segment.by_bucket.values()]
    entries = sum(file.entries for _, file in files)
    keys: list[Key] = []
    for place in files:
        tree = open_index_file(storage, SegmentFile(*place), view.spec, LookupStats())
        keys += [key for key, _ in tree.sample(-(-SAMPLED * place[1].entries // entries))]
    return [stored_array([key[i] for key in keys], kind) for i, kind in enumerate(view.spec.key_types)]


def _to_replace(view: View, partition: str | None) -> list[Segment]:
    """The segments that cover, or covered, a file of an untidy folder."""
    covering: Counter[str] = Counter()
    dead: set[str] = set()
    for segment in view.segments:
        covering.update(folders_of(view.spec, segment.live.values()))
        dead |= dead_folders(view.spec, segment)
    untidy = {name for name, count in covering.items() if count > 1} | dead
    if partition is not None:
        untidy &= {partition}
    return [segment for segment in view.segments if untidy & folders_of(view.spec, segment.source_files)]


def _replace(
    storage: Storage, view: View, replaced: Sequence[Segment], target: IndexSpec, operation: str, begin: float
) -> CompactResult:
    probe(storage)
    segment_id = new_segment_id()
    with made_for(storage, view.snapshot):
        files = rewrite(storage, view.spec, replaced, target, segment_id, on_all_cores=True)
    dropped = sum(file.entries for segment in replaced for file in segment.index_files)
    dropped -= sum(file.entries for file in files.all)
    changes = Changes(
        operation=operation,
        index_files=files.all,
        source_files=[file for segment in replaced for file in segment.live.values()],
        dead={},
        columns=view.snapshot.columns,
        counts={
            "segments_replaced": len(replaced),
            "index_files_written": len(files.written),
            "index_files_kept": len(files.kept),
            "entries_dropped": dropped,
        },
        replaced=frozenset(segment.id for segment in replaced),
        relaid=target if target != view.spec else None,
    )
    snapshot = publish(storage, view.spec, view.snapshot, changes, segment_id)
    return _result(view, snapshot, files, dropped, begin)


def _result(view: View, snapshot: Snapshot, files: Rewritten, dropped: int, begin: float) -> CompactResult:
    return CompactResult(
        snapshot=snapshot.number,
        committed=snapshot is not view.snapshot,
        segments_before=len(view.segments),
        segments=len(snapshot.segments),
        buckets=snapshot.spec.buckets,
        index_files=len(files.written),
        index_bytes=sum(file.size + (file.filter.size if file.filter else 0) for file in files.written),
        kept=len(files.kept),
        entries=sum(file.entries for file in files.written),
        dropped=dropped,
        seconds=round(time.perf_counter() - begin, 3),
    )


FACTOR = 2


class Published(NamedTuple):
    """The newest snapshot, and whether this build committed it: false if nothing was left to do."""

    snapshot: Snapshot
    is_committed: bool


def publish_build(
    storage: Storage, spec: IndexSpec, view: View | None, changes: Changes, segment_id: str, current: Current | None
) -> Published:
    """Commit a build, as `publish` does. Where others have replaced a segment that it merges, the new segment is
    committed alone; the next build merges it."""
    parent = view.snapshot if view else None
    if view is not None and spec.flat and changes.source_files:
        ours = Segment(segment_id, tuple(changes.index_files), tuple(changes.source_files))
        before = [replace(one, dead=one.dead | changes.dead.get(one.id, frozenset())) for one in view.segments]
        chosen = segments_to_merge(ours, before)
        if chosen:
            try:
                return _publish_merged(storage, spec, view.snapshot, changes, [*chosen, ours], current)
            except CommitLost:  # the lost snapshot named files of the new segment
                raise
            except ConcurrentCommit:
                pass
    snapshot = publish(storage, spec, parent, changes, segment_id, current)
    return Published(snapshot, snapshot.commit_id == segment_id)


def segments_to_merge(ours: Segment, segments: Sequence[Segment]) -> list[Segment]:
    """The segments to merge with a new one, in their order."""
    total, chosen = _rows(ours), set()
    for segment in sorted(segments, key=_rows):
        if _rows(segment) > FACTOR * total:
            break
        if segment.live:
            total += _rows(segment)
            chosen.add(segment.id)
    return [segment for segment in segments if segment.id in chosen]


def _rows(segment: Segment) -> int:
    return sum(file.rows for file in segment.live.values())


def _publish_merged(
    storage: Storage,
    spec: IndexSpec,
    parent: Snapshot,
    changes: Changes,
    segments: Sequence[Segment],
    current: Current | None,
) -> Published:
    segment_id = new_segment_id()
    with made_for(storage, parent):
        files = rewrite(storage, spec, segments, spec, segment_id)
    merged = replace(
        changes,
        index_files=files.all,
        source_files=[file for segment in segments for file in segment.live.values()],
        replaced=frozenset(segment.id for segment in segments[:-1]),
    )
    snapshot = publish(storage, spec, parent, merged, segment_id, current)
    return Published(snapshot, snapshot.commit_id == segment_id)

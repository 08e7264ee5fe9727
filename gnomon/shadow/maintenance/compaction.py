"""Compact: merge many small segments into one, without dead entries. Rebucket: the same with another number of buckets
or another layout. No source file is read, and pointers stay unchanged.

A segment is replaced whole or stays. A folder of index files (a partition, or a whole flat index) is untidy when
several live segments cover files in it, or when a live segment there has entries of dead files. Each segment that
covers, or covered, a file of an untidy folder is replaced. So afterwards each partition lies in one segment, without
dead entries. The cost depends on the untidy folders only, not on others that share their segments (`rewrite`).

The new segment covers the same source files with the same fingerprints, in the order of the old segments, so the rows
of a key keep their order.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from gnomon.shadow.commit import Changes, made_for, new_segment_id, publish
from gnomon.shadow.errors import UsageError
from gnomon.shadow.maintenance.rewrite_segments import Rewritten, dead_folders, folders_of, rewrite
from gnomon.shadow.metadata import IndexSpec, Segment, Snapshot, View, buckets_for, check_buckets, open_view
from gnomon.shadow.storage import Storage, patiently, probe


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
def compact(storage: Storage, partition: str | None = None) -> CompactResult:
    """Merge the segments of each untidy partition, or of the one named (`dt=2026-01-01`), as the next snapshot.
    Answers stay the same. Where one partition is named, the rows of a key in another partition that shares a segment
    with it may come in another order.

    UsageError for a partition that the index does not have; ConcurrentCommit where another commit was first."""
    begin = time.perf_counter()
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
def rebucket(storage: Storage, buckets: int | None = None, flat: bool | None = None) -> CompactResult:
    """Distribute all live entries to another number of buckets, and lay them out `flat` or in the partitions' folders,
    as the next snapshot. None keeps the layout or the buckets; a change of the layout without `buckets` takes the
    number that a first build would choose. Answers stay the same, but the rows of one key may come in another order
    where the layout changes. UsageError for an index whose source has no partitions; other errors as in `compact`."""
    begin = time.perf_counter()
    view = open_view(storage)
    is_other = flat is not None and flat != view.spec.flat
    if is_other and not view.spec.partitions:
        raise UsageError("its source has no partitions; expected one whose layout can be changed", storage.root)
    if is_other:
        view.spec.entries.check_source("a key-value folder keeps its partition folders", storage.root)
    if buckets is None and is_other:
        buckets = buckets_for(view.snapshot.partitions, bool(flat))
    if buckets is not None:
        check_buckets(buckets)
    target = replace(
        view.spec,
        buckets=view.spec.buckets if buckets is None else buckets,
        folder_buckets=view.spec.folder_buckets if buckets is None else {},
        flat=view.spec.flat if flat is None else flat,
    )
    if target == view.spec:
        return _result(view, view.snapshot, Rewritten([], []), 0, begin)
    return _replace(storage, view, view.segments, target, "rebucket", begin)


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
        files = rewrite(storage, view.spec, replaced, target, segment_id)
    dropped = sum(file.entries for segment in replaced for file in segment.index_files)
    dropped -= sum(file.entries for file in files.all)
    of_view = view.spec.buckets, view.spec.folder_buckets
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
        buckets=target.buckets if (target.buckets, target.folder_buckets) != of_view else None,
        flat=target.flat if target.flat != view.spec.flat else None,
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

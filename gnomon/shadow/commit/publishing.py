"""The commit: the manifest of a segment, and the next snapshot, put create-only.

Before the commit, look-ups see nothing of a build; after it, everything. No snapshot names the files that a crash
leaves, and later builds never use their names, since names are unique. The second of two racing commits keeps the part
of its work that is still needed, and tries again."""

import datetime as dt
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from gnomon.base.errors import Action
from gnomon.shadow.commit.rebase import (
    Changes,
    Current,
    State,
    check_changes,
    check_kept,
    check_read_last,
    columns_after,
    folders_after,
    is_committed,
    is_recorded,
    masks_after,
    nothing_left,
    rebase,
    spec_after,
)
from gnomon.shadow.errors import (
    AlreadyExists,
    BuildFailed,
    CommitLost,
    ConcurrentCommit,
    DamagedMetadata,
    FilesGone,
    ShadowError,
    SnapshotNotFound,
    StorageError,
)
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.metadata import (
    IndexSpec,
    MasksRef,
    Segment,
    SegmentRef,
    Snapshot,
    check_apart,
    commit,
    create_first_spec,
    manifest_path,
    masks_path,
    most_maps,
    put_back,
    read_newest,
    read_segment,
    read_segments,
    read_snapshot,
    rows_by_partition,
    snapshot_numbers,
    snapshot_path,
    source_of,
    utc_now,
    write_masks,
    write_segment,
)
from gnomon.shadow.storage import Storage, in_order, probe

__all__ = [
    "Changes",
    "new_segment_id",
    "publish",
    "put_snapshot",
    "wait",
    "write_index_file",
]

ATTEMPTS = 20
_CHANCE = random.SystemRandom()  # callers may have seeded the module's own generator
LISTED = 64  # up to this many files are checked one by one before a commit; for more, the index is listed
LONGEST_SLEEP = 23 * 3600.0  # seconds; a vacuum waits for a day
LONGEST_PUT = 60.0  # seconds; after a longer put the files are checked again
SLEPT = "the program slept for too long; nothing was changed"
FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0  # seconds before another attempt: random, with a limit that doubles each time


def new_segment_id() -> str:
    """A unique name; later names sort after earlier ones."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"


def publish(
    storage: Storage,
    spec: IndexSpec,
    parent: Snapshot | None,
    changes: Changes,
    segment_id: str,
    current: Current | None = None,
) -> Snapshot:
    """Commit what a build wrote for `parent` as the next snapshot, and return it: its `commit_id` is `segment_id`.
    Where another program has committed all of it, nothing is committed, and its snapshot is returned.

    `current` lists the source, to decide which program indexed a file last. BuildFailed when the entries are not
    exactly the rows of the source files, partition by partition; ConcurrentCommit when others changed files or settings
    that the build relied on; UnsafeStore where two builds could overwrite each other."""
    check_counts(changes.spec(spec), changes)
    base = State(parent, _base_segments(storage, parent))
    ours = Segment(segment_id, tuple(changes.index_files), tuple(changes.source_files))
    check_changes(base, changes, ours)
    if parent is None:
        check_apart(source_of(spec, changes.folders), storage)
    probe(storage)
    if parent is None:
        create_first_spec(storage, spec)
    begin = time.time()
    ref = write_manifest(storage, ours)
    masks = write_masks(storage, segment_id, changes.masks or {})
    written = paths_of(ours, base.segments, masks)
    for attempt in range(ATTEMPTS):
        wait(attempt)
        now = State(*read_newest(storage, {segment.id: segment for segment in base.segments}))
        if now.snapshot is not None and is_committed(now, segment_id):
            return now.snapshot
        check_read_last(base, _since(storage, base, now, changes), changes)
        widened = spec_after(base, now, spec, storage.root)
        after = rebase(base, now, changes, ours, current)
        check_kept(base, now, after, ours)
        snapshot = _next(base, now, after, changes, widened, ref, masks)
        if now.snapshot is not None and nothing_left(now, after, changes) and is_recorded(now.snapshot, snapshot):
            return now.snapshot
        if put_snapshot(storage, snapshot, written, begin):
            if parent is None:
                put_back(storage, spec)
            return snapshot
    raise ConcurrentCommit(
        f"other programs committed first {ATTEMPTS} times; nothing was changed",
        storage.root,
        action=Action.RUN_AGAIN,
    )


def wait(attempt: int) -> None:
    """Wait before another attempt, so that others can commit. Attempt 0 does not wait."""
    if attempt:
        time.sleep(_CHANCE.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**attempt)))


def _base_segments(storage: Storage, parent: Snapshot | None) -> tuple[Segment, ...]:
    """The segments of the snapshot that the build was made for."""
    if parent is None:
        return ()
    with made_for(storage, parent):
        return read_segments(storage, parent)


def _since(storage: Storage, base: State, now: State, changes: Changes) -> Sequence[Snapshot]:
    """The snapshots after the base of a build that read a table, oldest first. ConcurrentCommit where a vacuum removed
    one of them."""
    if now.snapshot is None or (changes.table is None and changes.folders is None):
        return []
    first = base.snapshot.number + 1 if base.snapshot is not None else now.snapshot.number
    try:
        return [*(read_snapshot(storage, number) for number in range(first, now.snapshot.number)), now.snapshot]
    except SnapshotNotFound:
        raise ConcurrentCommit(
            "snapshots were committed and vacuumed during the build; nothing was changed",
            storage.root,
            action=Action.RUN_AGAIN,
        ) from None


@contextmanager
def made_for(storage: Storage, snapshot: Snapshot) -> Iterator[None]:
    """Raise ConcurrentCommit where the block misses files because a vacuum removed the snapshot."""
    try:
        yield
    except DamagedMetadata:
        if snapshot.number in snapshot_numbers(storage):
            raise
        raise ConcurrentCommit(
            f"snapshot {snapshot.number} was vacuumed while work that was made for it was running; nothing was changed",
            storage.root,
            action=Action.RUN_AGAIN,
        ) from None


def write_manifest(storage: Storage, ours: Segment) -> SegmentRef:
    """Write the manifest of a segment and read it back. A segment without files is not written, since it never becomes
    live."""
    if not ours.source_files:
        return SegmentRef(ours.id, 0, 0)
    ref = write_segment(storage, ours)
    try:
        read_segment(storage, ref)
    except DamagedMetadata:
        check_there(storage, paths_of(ours))
        raise
    return ref


def _next(
    base: State,
    now: State,
    after: Sequence[Segment],
    changes: Changes,
    spec: IndexSpec,
    ours: SegmentRef,
    masks: MasksRef | None,
) -> Snapshot:
    """The next snapshot, with these live segments."""
    parent = now.snapshot
    refs = {ref.id: ref for ref in (*(parent.segments if parent else ()), ours)}
    # another commit may have set these since the build began
    page_maps = most_maps(spec.page_maps, parent.spec.page_maps if parent is not None else False)
    as_files = spec.source.as_files or (parent is not None and parent.spec.source.as_files)
    ours_now = changes.spec(spec)
    return Snapshot(
        number=(parent.number if parent else 0) + 1,
        operation=changes.operation,
        segments=tuple(replace(refs[segment.id], dead=tuple(sorted(segment.dead))) for segment in after),
        partitions=rows_by_partition(after, masks_after(now, changes)),
        columns=columns_after(base, now, changes, spec),
        spec=replace(ours_now, page_maps=page_maps, source=replace(ours_now.source, as_files=as_files)),
        committed_at=utc_now(),
        batch=changes.batch,
        commit_id=ours.id,
        parent_id=parent.commit_id if parent else None,
        counts=dict(changes.counts or {}),
        folders=folders_after(base, now, changes),
        table=changes.table if changes.table is not None else parent.table if parent else None,
        masks=masks if changes.masks is not None else parent.masks if parent else None,
    )


def paths_of(ours: Segment, base: Sequence[Segment] = (), masks: MasksRef | None = None) -> list[str]:
    """The files that a commit of a segment is the first to name: index files, Bloom filters, page maps, the segment's
    manifest and its masks. Files that the replaced segments name are not among them, even if the new segment keeps
    them."""
    named = {path for segment in base for path in _files_of(segment)}
    manifests = [manifest_path(ours.id)] if ours.source_files else []
    manifests += [masks_path(masks.id)] if masks is not None else []
    return [*(path for path in _files_of(ours) if path not in named), *manifests]


def _files_of(segment: Segment) -> list[str]:
    """The index files of a segment, their Bloom filters, and the page maps of its source files."""
    filters = [file.filter.path for file in segment.index_files if file.filter is not None]
    maps = {file.page_maps.path for file in segment.source_files if file.page_maps is not None}
    return [*(file.path for file in segment.index_files), *filters, *sorted(maps)]


def check_there(storage: Storage, written: Sequence[str]) -> None:
    """Raise FilesGone if a file that the commit names first is missing, or if a vacuum may be about to remove it. A
    vacuum removes the files of a segment that no snapshot names once none of them was written for a day
    (`gnomon.shadow.maintenance.vacuuming`). A program may sleep longer than that: a suspended machine, a paused
    container."""
    if len(written) > LISTED:
        times: dict[str, int | None] = {info.path: info.mtime_ns for info in storage.list(hidden=True)}
    else:
        calls: list[Callable[[], int | None]] = [partial(_time_of, storage, path) for path in written]
        times = dict(zip(written, in_order(calls), strict=True))
    for path in written:
        if times.get(path) is None:
            what = f"gone before it was committed; {SLEPT}"
            raise FilesGone(what, f"{storage.root}/{path}", action=Action.RUN_AGAIN)
    latest = sorted(times[path] or 0 for path in written)[-2:]
    if len(latest) == 2 and latest[1] - latest[0] > LONGEST_SLEEP * 1e9:
        raise FilesGone(
            f"{(latest[1] - latest[0]) / 3.6e12:.0f} hours passed before the commit, a vacuum may be "
            f"removing what it names; {SLEPT}",
            storage.root,
            action=Action.RUN_AGAIN,
        )


def _time_of(storage: Storage, path: str) -> int | None:
    try:
        with storage.open(path) as file:
            return file.mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def put_snapshot(storage: Storage, snapshot: Snapshot, written: Sequence[str], begin: float) -> bool:
    """Put the next snapshot; return whether this program got the number. `written` are the paths of the files that no
    earlier snapshot named; the last of them were written after `begin`, a time of `time.time`. If the reply is lost,
    the snapshot is read back.

    FilesGone where one of these files is missing: nothing was put, or, where it went between the check and the put,
    the snapshot was removed again. A vacuum removes masks, then manifests, then the rest, so after a put that was
    quick the last of `written` stands for all. CommitLost where the snapshot was put and does not count."""
    check_there(storage, written)
    looked = time.time()
    if looked - begin > LONGEST_SLEEP:
        raise FilesGone(
            f"{(looked - begin) / 3600:.0f} hours passed before the commit; {SLEPT}",
            storage.root,
            action=Action.RUN_AGAIN,
        )
    if not _put(storage, snapshot):
        return False
    try:
        check_there(storage, written if time.time() - looked > LONGEST_PUT else written[-1:])
    except FilesGone:
        storage.delete(snapshot_path(snapshot.number))
        raise
    return True


def _put(storage: Storage, snapshot: Snapshot) -> bool:
    try:
        commit(storage, snapshot)
        if not _is_kept(storage, snapshot):
            return False
    except AlreadyExists:
        if not _is_ours(storage, snapshot):
            return False
    except (StorageError, OSError) as error:
        try:
            ours = _is_ours(storage, snapshot)
        except (ShadowError, OSError):
            raise StorageError(
                f"the store failed ({error}) and does not answer whether snapshot {snapshot.number} "
                "was committed; a committed build is not done twice",
                storage.root,
                action=Action.RUN_AGAIN,
            ) from error
        if not ours:
            raise
    _check_stands(storage, snapshot)
    return True


def _is_kept(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether the store kept a snapshot that it said it put: it may say yes to two puts of a name, and keep one or
    none. True, too, where later snapshots are there, and a vacuum may have removed it."""
    try:
        return read_snapshot(storage, snapshot.number).commit_id == snapshot.commit_id
    except SnapshotNotFound:
        return snapshot_numbers(storage)[-1:] > [snapshot.number]


def _is_ours(storage: Storage, snapshot: Snapshot) -> bool:
    try:
        return read_snapshot(storage, snapshot.number).commit_id == snapshot.commit_id
    except SnapshotNotFound:
        return False


def _check_stands(storage: Storage, snapshot: Snapshot) -> None:
    """CommitLost where a snapshot that was put is not the newest and the next one was not made from it. In that case
    other programs committed this number and later ones before, and a vacuum removed the older ones. The snapshot is
    then removed."""
    if snapshot_numbers(storage)[-1:] == [snapshot.number]:
        return
    try:
        if read_snapshot(storage, snapshot.number + 1).parent_id == snapshot.commit_id:
            return
    except SnapshotNotFound:
        # A vacuum removes the oldest first, so a valid snapshot of ours would be gone, too.
        if snapshot.number not in snapshot_numbers(storage):
            raise CommitLost(
                f"other programs committed and vacuumed, so it is unknown whether snapshot "
                f"{snapshot.number} counted; a committed build is not done twice",
                storage.root,
                action=Action.RUN_AGAIN,
            ) from None
    storage.delete(snapshot_path(snapshot.number))
    raise CommitLost(
        f"others committed snapshot {snapshot.number} and more, and vacuumed it, while it was put; nothing was changed",
        storage.root,
        action=Action.RUN_AGAIN,
    )


def check_counts(spec: IndexSpec, changes: Changes) -> None:
    """BuildFailed where the entries are not the rows of the source files, folder by folder."""
    rows: Counter[str] = Counter()
    entries: Counter[str] = Counter()
    for source in changes.source_files:
        rows[spec.folder_of(source.partition)] += source.rows
    for file in changes.index_files:
        entries[file.partition] += file.entries
    if len({(file.partition, file.bucket) for file in changes.index_files}) < len(changes.index_files):
        raise BuildFailed("a bucket was written to two index files; nothing was committed")
    for partition in rows.keys() | entries.keys():
        if rows[partition] != entries[partition]:
            raise BuildFailed(
                f"partition {partition or '(none)'}: the source has {rows[partition]} rows, the scan brought "
                f"{entries[partition]}; nothing was committed"
            )

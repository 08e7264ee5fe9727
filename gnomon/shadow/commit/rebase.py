"""The changes of a build, rebased on commits of other programs. The functions take and return segments; they read and
write no files.

A build starts from one snapshot, its base, and is committed on the newest one. Where these are the same, all changes
apply. A source file is live in one segment only, whichever program indexed it. Columns of a source, with their Arrow
type names, are merged over files that differ in them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from gnomon.base.errors import Action
from gnomon.shadow.errors import BuildFailed, ConcurrentCommit
from gnomon.shadow.metadata import (
    IndexFileEntry,
    IndexSpec,
    Masks,
    Segment,
    Snapshot,
    SourceFileEntry,
    masks_of,
    shown,
    spec_differences,
)
from gnomon.shadow.storage import FileInfo, difference
from gnomon.shadow.tables import Recorded, Table, TableVersion
from gnomon.sources import FORMATS
from gnomon.sources.types import common_moments_named, parse_ddl, to_ddl

T = TypeVar("T")
Fingerprint = tuple[int, int, str, str]
Current = Callable[[], Iterable[FileInfo]]


@dataclass(frozen=True)
class Changes:
    """The changes of a commit: one new segment of these files, if any. `dead` has all dead ordinals of the segments it
    names. `replaced` names the segments whose live source files the new one covers, with the same entries. `relaid` has
    the new buckets and the new layout, which replace all live segments. `columns` are
    added to the known ones. `folders` are the current folders of a catalog table's partitions (None: unchanged).
    `table` is the version of a lake table that the build read, and `masks` are its deleted rows (None: both
    unchanged)."""

    operation: str
    index_files: Sequence[IndexFileEntry]
    source_files: Sequence[SourceFileEntry]
    dead: Mapping[str, frozenset[int]]
    columns: Mapping[str, str]
    batch: str | None = None
    counts: Mapping[str, int] | None = None
    replaced: frozenset[str] = frozenset()
    relaid: IndexSpec | None = None
    folders: Mapping[str, str] | None = None
    table: TableVersion | None = None
    masks: Masks | None = None

    @property
    def replaces_all(self) -> bool:
        return self.relaid is not None

    def spec(self, spec: IndexSpec) -> IndexSpec:
        """The spec with the buckets and the layout of these changes."""
        new = self.relaid
        if new is None:
            return spec
        return replace(spec, buckets=new.buckets, folder_buckets=new.folder_buckets, cuts=new.cuts, flat=new.flat)


class State(NamedTuple):
    """A snapshot and its segments; None before the first commit."""

    snapshot: Snapshot | None
    segments: tuple[Segment, ...] = ()


def check_changes(base: State, changes: Changes, ours: Segment) -> None:
    """BuildFailed when the changes do not fit their base snapshot: a file would count twice, or be lost from a segment
    that is replaced."""
    covers = {file.path: _fingerprint(file) for file in ours.source_files}
    if len(covers) < len(ours.source_files):
        raise BuildFailed("a source file is twice in one segment; nothing was committed")
    dead_in_build = _dead_in_build(base, changes)
    for segment in base.segments:
        is_replaced = segment.id in changes.replaced
        for path, file in segment.live.items():
            stays = (path, _fingerprint(file)) not in dead_in_build
            if stays and is_replaced and covers.get(path) != _fingerprint(file):
                raise BuildFailed(f"not in the segment that replaces {segment.id}; nothing was committed", path)
            if stays and not is_replaced and path in covers:
                raise BuildFailed("indexed though the index covers it already; nothing was committed", path)
    existing = {segment.id for segment in base.segments}
    if changes.replaced - existing or (changes.replaces_all and existing - changes.replaced):
        raise BuildFailed("the segments that are replaced are not those of the snapshot; nothing was committed")


def rebase(
    base: State, now: State, changes: Changes, ours: Segment, current: Current | None = None
) -> tuple[Segment, ...]:
    """The live segments when the changes that were made for `base` are committed on `now`.

    `current` lists the source, and is called when another program saw a file in another state. ConcurrentCommit when
    the build has to run again."""
    _check_replaced(now, changes)
    dead_in_build = _dead_in_build(base, changes)
    taken_over = _taken_over(base, changes, dead_in_build)
    in_source = _Source(current, folders_after(base, now, changes))
    dead = {segment.id: set(segment.dead) for segment in (*now.segments, ours)}
    live_elsewhere: dict[str, tuple[str, int, SourceFileEntry]] = {}  # in segments that stay
    live_in_replaced: set[str] = set()
    base_ids = {segment.id for segment in base.segments}
    for segment in now.segments:
        for ordinal, file in _live(segment):
            if segment.id in changes.replaced:
                live_in_replaced.add(file.path)
            elif (file.path, _fingerprint(file)) in dead_in_build and not (
                segment.id not in base_ids and current is not None and in_source.holds(file)
            ):
                dead[segment.id].add(ordinal)
            else:
                live_elsewhere[file.path] = (segment.id, ordinal, file)
    dropped_by_others = _covered(base) - _covered(now)
    for ordinal, file in _live(ours):
        is_dead = file.path in taken_over and file.path not in live_in_replaced
        is_gone = file.path in dropped_by_others and current is not None and not in_source.holds(file)
        if is_dead or is_gone:
            dead[ours.id].add(ordinal)
        elif file.path in live_elsewhere:
            segment_id, other_ordinal, other = live_elsewhere[file.path]
            if _fingerprint(other) != _fingerprint(file) and in_source.holds(file):
                dead[segment_id].add(other_ordinal)
            else:
                dead[ours.id].add(ordinal)
    kept = [segment for segment in (*now.segments, ours) if segment.id not in changes.replaced]
    after = (replace(segment, dead=frozenset(dead[segment.id])) for segment in kept)
    return tuple(segment for segment in after if segment.live)


def check_kept(base: State, now: State, after: Sequence[Segment], ours: Segment) -> None:
    """ConcurrentCommit where our segment keeps an index file of a replaced segment that the newest snapshot no longer
    needs, since all entries of it are dead there: a vacuum may have removed it."""
    in_base = {file.path for segment in base.segments for file in segment.index_files}
    needed = {file.path for segment in now.segments for file in segment.by_bucket.values()}
    for segment in after:
        if segment.id == ours.id:
            for file in segment.by_bucket.values():
                if file.path in in_base and file.path not in needed:
                    raise ConcurrentCommit(
                        "no longer needed, since another commit found its source files gone; nothing was changed",
                        file.path,
                        action=Action.RUN_AGAIN,
                    )


def is_committed(now: State, commit_id: str) -> bool:
    """Whether the commit was made, even if the store's reply was lost."""
    ids = {segment.id for segment in now.segments}
    return commit_id in ids or (now.snapshot is not None and now.snapshot.commit_id == commit_id)


def check_read_last(base: State, since: Sequence[Snapshot], changes: Changes) -> None:
    """ConcurrentCommit where the build may have read a table before another build did whose commit is in `since`, the
    snapshots after the base in their order: its version of a lake table, or its folder of a partition. A version says
    nothing of its age, since a rollback makes an older one the newest. A build reads the source after its base, so that
    its state is newer than each one in the base."""
    before = Recorded(*(base.snapshot.folders, base.snapshot.table) if base.snapshot else (None, None))
    others = [(one.folders or {}, one.table) for one in since]
    if changes.table is not None:
        _check_newer(before.version, [version for _, version in others], changes.table, "another version of the table")
    if changes.folders is not None:
        folders = before.folders or {}
        for name in folders.keys() | changes.folders.keys():
            ours = changes.folders.get(name)
            if ours != folders.get(name):  # else the commit keeps the folder of the others, as `folders_after` says
                later = [known.get(name) for known, _ in others]
                _check_newer(folders.get(name), later, ours, f"another folder of partition {name}")


def _check_newer(before: T, since: Sequence[T], ours: T, what: str) -> None:
    """ConcurrentCommit where others have recorded a state since `before`, and not ours as the last one."""
    if since[-1:] != [ours] and any(one != before for one in since):
        raise ConcurrentCommit(f"another build committed {what}; nothing was changed", action=Action.RUN_AGAIN)


def folders_after(base: State, now: State, changes: Changes) -> Mapping[str, str] | None:
    """The folders of a catalog table's partitions: the newest snapshot's, with the build's changes."""
    known = now.snapshot.folders if now.snapshot else None
    if changes.folders is None:
        return known
    before = (base.snapshot.folders if base.snapshot else None) or {}
    changed = {name: folder for name, folder in changes.folders.items() if before.get(name) != folder}
    gone = before.keys() - changes.folders.keys()
    return {name: folder for name, folder in {**(known or {}), **changed}.items() if name not in gone}


def masks_after(now: State, changes: Changes) -> Masks:
    """The deleted rows of the next snapshot."""
    return masks_of(now.segments) if changes.masks is None else changes.masks


def nothing_left(now: State, after: Sequence[Segment], changes: Changes) -> bool:
    """Whether a commit would change nothing: the segments are the same, and it names no batch, buckets or layout."""
    return tuple(after) == now.segments and changes.batch is None and not changes.replaces_all


def spec_after(base: State, now: State, spec: IndexSpec, where: str) -> IndexSpec:
    """The spec to commit: the build's, with the columns that other programs inferred since, for formats whose files do
    not declare them. ConcurrentCommit when the newest snapshot has another spec or number of buckets than the base (or
    than `spec`, for a first build). `page_maps` and `as_files` may differ."""
    if now.snapshot is None:
        if base.snapshot is not None:
            raise ConcurrentCommit(
                "all snapshots were removed during the build; nothing was changed", where, action=Action.RUN_AGAIN
            )
        return spec
    newest = now.snapshot.spec
    ours = base.snapshot.spec if base.snapshot else spec
    may_differ = {name: getattr(newest, name) for name in ("schema", "page_maps", "folder_buckets")}
    source = replace(ours.source, as_files=newest.source.as_files)
    made_for = replace(ours, source=source, **may_differ)
    differences = spec_differences(made_for, newest)
    if differences:
        changed = "; ".join(f"{name}: {shown(old)} before, {shown(new)} now" for name, old, new in differences)
        raise ConcurrentCommit(
            f"another program committed snapshot {now.snapshot.number} with another spec ({changed}); "
            "nothing was changed",
            where,
            action=Action.RUN_AGAIN,
        )
    if spec.cuts != newest.cuts and {one.id for one in now.segments} - {one.id for one in base.segments}:
        what = f"another program committed snapshot {now.snapshot.number}; its keys may lie in this build's new ranges"
        raise ConcurrentCommit(f"{what}; nothing was changed", where, action=Action.RUN_AGAIN)
    for folder, number in spec.folder_buckets.items():
        is_there = folder in newest.folder_buckets or folder in now.snapshot.partitions
        if is_there and number != newest.buckets_in(folder):
            raise ConcurrentCommit(
                f"another program committed snapshot {now.snapshot.number} with {newest.buckets_in(folder)} buckets in "
                f"{folder}, where {number} were written; nothing was changed",
                where,
                action=Action.RUN_AGAIN,
            )
    both = {**spec.folder_buckets, **newest.folder_buckets}
    return replace(spec, schema=_both_schemas(spec, newest), folder_buckets=both)


def _both_schemas(ours: IndexSpec, newest: IndexSpec) -> str:
    """Columns whose types hold the values of both specs. Key columns have the same type in both, and keep it."""
    if ours.schema == newest.schema:
        return ours.schema
    merge = FORMATS[ours.format].merge
    if merge is None:
        return ours.schema
    return to_ddl(merge([parse_ddl(newest.schema), parse_ddl(ours.schema)]))


def is_recorded(snapshot: Snapshot, after: Snapshot) -> bool:
    """Whether a snapshot has the same partition folders, table columns, table version, masks and `as_files` as the one
    after it would have."""
    is_same_table = not after.spec.is_of_table or snapshot.spec.schema == after.spec.schema
    is_same_table = is_same_table and snapshot.table == after.table and snapshot.masks == after.masks
    return (
        snapshot.folders == after.folders
        and is_same_table
        and snapshot.spec.source.as_files == after.spec.source.as_files
    )


class _Source:
    """The current files of the source, listed on first use, and the partition folders of a catalog table."""

    def __init__(self, current: Current | None, folders: Mapping[str, str] | None) -> None:
        self._current = current
        self._table = None if folders is None else Table("", folders, {}, "")
        self._files: dict[str, FileInfo] | None = None

    def holds(self, file: SourceFileEntry) -> bool:
        if self._files is None:
            if self._current is None:
                raise ConcurrentCommit(
                    "another build indexed another state of it; nothing was changed", file.path, action=Action.RUN_AGAIN
                )
            self._files = {info.path: info for info in self._current()}
        found = self._files.get(file.path)
        if self._table is not None and not self._table.is_still_in(file.path, file.partition):
            return False
        return found is not None and not difference(file, found)


def _covered(state: State) -> set[str]:
    """The paths of the live source files."""
    return {path for segment in state.segments for path in segment.live}


def _fingerprint(file: SourceFileEntry) -> Fingerprint:
    """The state in which a file was indexed. It has the partition, since the catalog may give a folder to another
    one."""
    return file.size, file.mtime_ns, file.etag, file.partition


def _live(segment: Segment) -> Iterator[tuple[int, SourceFileEntry]]:
    return ((i, file) for i, file in enumerate(segment.source_files) if i not in segment.dead)


def _dead_in_build(base: State, changes: Changes) -> set[tuple[str, Fingerprint]]:
    """The files that the build found changed or gone, as they were indexed, whichever segment covers them now."""
    return {
        (file.path, _fingerprint(file))
        for segment in base.segments
        for ordinal, file in _live(segment)
        if ordinal in changes.dead.get(segment.id, ())
    }


def _taken_over(base: State, changes: Changes, dead_in_build: set[tuple[str, Fingerprint]]) -> set[str]:
    """The files that the new segment takes over from the segments that it replaces."""
    replaced = (segment for segment in base.segments if segment.id in changes.replaced)
    files = (file for segment in replaced for file in segment.live.values())
    return {file.path for file in files if (file.path, _fingerprint(file)) not in dead_in_build}


def _check_replaced(now: State, changes: Changes) -> None:
    existing = {segment.id for segment in now.segments}
    gone = changes.replaced - existing
    if gone:
        raise ConcurrentCommit(
            f"segment {min(gone)} was replaced or dropped by another commit; nothing was changed, run it again"
        )
    if changes.replaces_all and existing - changes.replaced:
        raise ConcurrentCommit(
            f"segment {min(existing - changes.replaced)} was added by another commit while buckets or layout were "
            "changed; nothing was changed",
            action=Action.RUN_AGAIN,
        )


WIDENING = (("int8", "int16", "int32", "int64"), ("halffloat", "float", "double"))


def wider(before: str, now: str) -> str:
    """The type that holds the numbers of both, or the timestamps of both (`common_moments`); for other types the
    second one, unless that is the null type."""
    if now == "null":
        return before or now
    moments = common_moments_named(before, now)
    if moments is not None:
        return moments
    chain = next((chain for chain in WIDENING if before in chain and now in chain), (now,))
    return max(before, now, key=chain.index) if len(chain) > 1 else now


def columns_after(base: State, now: State, changes: Changes, spec: IndexSpec) -> dict[str, str]:
    """The source's columns: the known ones, and the new ones of the build. For formats whose files do not declare
    columns, `spec` has the types, which also hold the values that other programs found. A catalog table has the columns
    that it declares."""
    given = {field.name: str(field.type) for field in parse_ddl(spec.schema)}
    if spec.is_of_table:
        return given
    before = base.snapshot.columns if base.snapshot else {}
    columns = dict(now.snapshot.columns) if now.snapshot else {}
    for name, kind in changes.columns.items():
        if before.get(name) != kind:
            columns[name] = wider(columns.get(name, ""), kind)
    return {name: given.get(name, kind) for name, kind in columns.items()}

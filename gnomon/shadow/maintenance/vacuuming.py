"""Vacuum: remove the snapshots that were superseded long enough ago, and the files that no remaining snapshot needs.

Snapshots go first, oldest first, and then the files that only they named. So after a crash at any point each remaining
snapshot has all its files. A file whose name this program does not write stays.

A file that no snapshot ever named may belong to a build that is about to commit. It goes only when nothing of its
segment was written for a day, or for the grace period where that is longer."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, groupby, pairwise, takewhile
from typing import NamedTuple

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedMetadata, IndexNotFound, SnapshotNotFound, Unreachable, UsageError
from gnomon.shadow.fetch import PAGE_MAPS_FOLDER
from gnomon.shadow.lookup import FILTER_FOLDER
from gnomon.shadow.metadata import (
    MASKS_FOLDER,
    REJECTED_FOLDER,
    SEGMENT_FOLDER,
    SNAPSHOT_NAME,
    IndexFileEntry,
    Segment,
    SegmentRef,
    Snapshot,
    SourceFileEntry,
    manifest_path,
    masks_path,
    read_segment,
    read_snapshot,
    read_spec,
    snapshot_files,
    snapshot_numbers,
    snapshot_path,
)
from gnomon.shadow.storage import PROBE_FOLDER, STAGED, FileInfo, Place, Storage, patiently, storage_at, time_of_store

DAY = 24 * 3600.0
ATTEMPTS = 5
SNAPSHOT, INDEX_FILE, BLOOM_FILTER, PAGE_MAPS, MANIFEST, MASKS, LEFTOVER = (
    "snapshot",
    "index file",
    "Bloom filter",
    "page maps",
    "manifest",
    "masks",
    "leftover",
)
ORDER = (SNAPSHOT, MASKS, MANIFEST, INDEX_FILE, BLOOM_FILTER, PAGE_MAPS, LEFTOVER)  # in which they are removed
_SEGMENT = r"(?P<segment>\d{8}T\d{6}-[0-9a-f]{12})"
_PARTITION = r"(?:[^/]+=[^/]*/)*"
_NAMES = {
    SNAPSHOT: SNAPSHOT_NAME,
    INDEX_FILE: re.compile(rf"{_PARTITION}{_SEGMENT}_\d{{5}}\.btree\.avro", re.ASCII),
    BLOOM_FILTER: re.compile(rf"{FILTER_FOLDER}/{_SEGMENT}/{_PARTITION}\d{{5}}\.filter", re.ASCII),
    PAGE_MAPS: re.compile(rf"{PAGE_MAPS_FOLDER}/{_SEGMENT}/\d{{5}}\.maps", re.ASCII),
    MANIFEST: re.compile(rf"{SEGMENT_FOLDER}/{_SEGMENT}\.avro", re.ASCII),
    MASKS: re.compile(rf"{MASKS_FOLDER}/{_SEGMENT}\.avro", re.ASCII),
    LEFTOVER: re.compile(
        rf"(?:{_PARTITION}|_shadow/(?:.+/)?){STAGED}[0-9a-f]{{32}}|{PROBE_FOLDER}/[^/]+"
        rf"|{REJECTED_FOLDER}/(?P<segment>\d+-[^/]+)/.+",
        re.ASCII | re.DOTALL,
    ),
}


class Removed(NamedTuple):
    """A file that was removed, or would be in a dry run: path below the index folder, bytes, and kind."""

    path: str
    size: int
    kind: str


@dataclass(frozen=True)
class VacuumResult:
    """The removed files (in a dry run, those to remove), in order; the numbers of the snapshots that stay."""

    dry_run: bool
    kept: tuple[int, ...]
    files: tuple[Removed, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def counts(self) -> dict[str, int]:
        """The number of files of each kind."""
        kinds = [file.kind for file in self.files]
        return {kind: kinds.count(kind) for kind in _NAMES if kind in kinds}

    def to_json(self) -> dict[str, object]:
        return {
            "dry_run": self.dry_run,
            "kept_snapshots": list(self.kept),
            "removed": self.counts,
            "bytes": self.bytes,
            "files": [file._asdict() for file in self.files],
        }


@patiently()
def vacuum(
    index: Place | Storage,
    grace_seconds: float = DAY,
    keep: int = 1,
    dry_run: bool = False,
    unnamed_seconds: float = DAY,
) -> VacuumResult:
    """Remove the files that no kept snapshot needs. The newest `keep` are kept, and those superseded less than
    `grace_seconds` ago. Files that no snapshot ever named stay for `unnamed_seconds` or the grace, whichever is longer.

    No build may take longer than `unnamed_seconds`. Nothing is removed where the metadata of the kept snapshots cannot
    be read (DamagedMetadata), where the store's listings lack the newest snapshot (Unreachable) or any
    (IndexNotFound), and where its clock differs from this machine's (StorageError). A file goes only if two listings
    show that nothing needs it."""
    if not grace_seconds >= 0:
        raise UsageError("grace", expected="0 s or more", found=f"{grace_seconds:g}")
    if keep < 1:
        raise UsageError("keep", expected="1 snapshot or more", found=str(keep))
    storage = storage_at(index)
    read_spec(storage)
    now = time.time() if dry_run else time_of_store(storage)
    for attempt in count():
        there = snapshot_numbers(storage)
        try:
            kept, removed = _plan(storage, now - grace_seconds, keep, now - max(grace_seconds, unnamed_seconds))
            break
        except (DamagedMetadata, SnapshotNotFound, Unreachable):
            if there == snapshot_numbers(storage) or attempt == ATTEMPTS:
                raise
            # another vacuum removed files that this one was reading: try again
    if not dry_run:
        for file in removed:
            storage.delete(file.path)
        _remove_empty_folders(storage, removed)
    return VacuumResult(dry_run, tuple(kept), tuple(removed))


def _plan(storage: Storage, superseded: float, keep: int, young: float) -> tuple[list[int], list[Removed]]:
    """The numbers of the snapshots that stay, and the files to remove, in order."""
    files = list(storage.list(hidden=True))  # before the snapshots, which then name each committed file
    snapshots = snapshot_files(storage)
    going = _expired(storage, snapshots, superseded, keep)
    staying = [number for number in snapshots if number not in going]
    kept = [read_snapshot(storage, number) for number in staying]
    needs = _Needs.of(storage, kept, _readable(storage, going))
    removed = [Removed(snapshots[number].path, snapshots[number].size, SNAPSHOT) for number in sorted(going)]
    unneeded = set(_unneeded(files, needs, young)).intersection(_unneeded(storage.list(hidden=True), needs, young))
    removed += sorted(unneeded, key=lambda file: (ORDER.index(file.kind), file.path))
    _check_newest(storage, snapshots, files)
    return staying, removed


def _check_newest(storage: Storage, snapshots: Mapping[int, FileInfo], files: Sequence[FileInfo]) -> None:
    """Raise Unreachable where the listing of the snapshots lacks the newest one: another listing has it, or it can be
    read."""
    listed = max(snapshots, default=0)
    newer = [int(match[1]) for info in files if (match := SNAPSHOT_NAME.fullmatch(info.path))]
    after = max([listed, *newer])
    if after == listed:
        after = listed + 1
        try:
            storage.read(snapshot_path(after))
        except (FileNotFoundError, NotADirectoryError):
            if listed:
                return
            what = "no snapshot is listed, so nothing says which files are needed; nothing was removed"
            raise IndexNotFound(what, storage.root, action=Action.BUILD_AGAIN) from None
    what = f"the store does not list snapshot {after}, which is there; nothing was removed"
    raise Unreachable(what, storage.root, action=Action.RUN_AGAIN)


def _expired(storage: Storage, snapshots: Mapping[int, FileInfo], before: float, keep: int) -> set[int]:
    """The numbers of the snapshots to remove. These are the oldest ones that were superseded at the time `before` or
    earlier, but never the newest `keep`. A snapshot is superseded when the next one is put, by the store's clock. At
    any age, a snapshot is removed with all older ones if the next snapshot was not made from it: its writer was too
    slow and died."""
    numbers = list(snapshots)
    pairs = list(pairwise(numbers))
    old = takewhile(lambda pair: snapshots[pair[1]].mtime_ns / 1e9 <= before, pairs[: max(len(numbers) - keep, 0)])
    stray = [place for place, (one, after) in enumerate(pairs) if not _follows(storage, one, after)]
    return {one for one, _ in old} | set(numbers[: stray[-1] + 1] if stray else [])


def _follows(storage: Storage, one: int, after: int) -> bool:
    """Whether the second snapshot may have been made from the first. Only two readable snapshots with consecutive
    numbers can prove that it was not."""
    if after != one + 1:
        return True
    try:
        return read_snapshot(storage, after).parent_id in (read_snapshot(storage, one).commit_id, None)
    except DamagedMetadata:
        return True


def _readable(storage: Storage, numbers: Iterable[int]) -> list[Snapshot]:
    """The snapshots that can be read. Files that only unreadable snapshots name are removed by their age."""
    found = []
    for number in sorted(numbers):
        with suppress(DamagedMetadata):
            found.append(read_snapshot(storage, number))
    return found


@dataclass(frozen=True)
class _Needs:
    """The paths that the kept snapshots need, the paths that any snapshot names, and the segments that only removed
    snapshots name."""

    needed: frozenset[str]
    named: frozenset[str]
    superseded: frozenset[str]

    @classmethod
    def of(cls, storage: Storage, kept: Sequence[Snapshot], expired: Sequence[Snapshot]) -> "_Needs":
        needed, named = {snapshot_path(one.number) for one in kept}, set[str]()
        needed |= {masks_path(one.masks.id) for one in kept if one.masks is not None}
        named |= {masks_path(one.masks.id) for one in expired if one.masks is not None}
        staying = _refs(kept)
        for segment in _segments(storage, staying):
            needed.add(manifest_path(segment.id))
            needed |= _paths(segment.by_bucket.values(), segment.live.values())
            named |= _paths(segment.index_files, segment.source_files)
        going = [ref for ref in _refs(expired) if ref.id not in {ref.id for ref in staying}]
        for ref in going:
            try:
                segment = read_segment(storage, ref)
                named |= _paths(segment.index_files, segment.source_files)
            except DamagedMetadata:  # its files are removed by their age
                continue
        return cls(frozenset(needed), frozenset(named), frozenset(ref.id for ref in going))


def _refs(snapshots: Iterable[Snapshot]) -> list[SegmentRef]:
    """The segments of snapshots, grouped by segment, once for each set of dead ordinals."""
    return sorted({ref for snapshot in snapshots for ref in snapshot.segments}, key=lambda ref: ref.id)


def _segments(storage: Storage, refs: Iterable[SegmentRef]) -> Iterator[Segment]:
    """Yield each segment as each snapshot has it; one manifest at a time is in memory."""
    for _, same in groupby(refs, key=lambda ref: ref.id):
        first, *others = same
        segment = read_segment(storage, first)
        yield segment
        yield from (replace(segment, dead=frozenset(ref.dead)) for ref in others)


def _paths(index_files: Iterable[IndexFileEntry], source_files: Iterable[SourceFileEntry]) -> set[str]:
    """The paths of index files, of their filters, and of the page maps of source files."""
    beside = (file.filter.path for file in index_files if file.filter is not None)
    maps = (file.page_maps.path for file in source_files if file.page_maps is not None)
    return {file.path for file in index_files}.union(beside, maps)


def _unneeded(files: Iterable[FileInfo], needs: _Needs, young: float) -> Iterator[Removed]:
    """Yield the files to remove. A file without a snapshot that was written after the time `young` may belong to a
    running build."""
    known = [(info, *found) for info in files if (found := _recognised(info.path))]
    written: dict[str, int] = {}  # the time of the newest file of each segment
    for info, _, owner in known:
        written[owner] = max(written.get(owner, 0), info.mtime_ns)
    for info, kind, owner in known:
        if kind == SNAPSHOT or info.path in needs.needed:
            continue
        if info.path in needs.named or owner in needs.superseded or written[owner] / 1e9 <= young:
            yield Removed(info.path, info.size, kind)


def _recognised(path: str) -> tuple[str, str] | None:
    """The kind of a file by its name, and its segment (or the file itself). None for a file that Gnomon did not
    write."""
    for kind, name in _NAMES.items():
        match = name.fullmatch(path)
        if match:
            return kind, match.groupdict().get("segment") or path
    return None


def check_no_other_files(storage: Storage) -> None:
    """Raise UsageError where the folder of a new index holds other files: a table on the folder would show them. Names
    that engines skip are allowed."""
    for info in storage.list():
        if _recognised(info.path) is None:
            raise UsageError(
                f"other files are there ({info.path}); expected an empty folder for a new index, name another one",
                storage.root,
            )


def _remove_empty_folders(storage: Storage, removed: Sequence[Removed]) -> None:
    """Remove empty folders of Bloom filters, page maps and rejected rows. Folders of index files stay, since builds
    write into them."""
    rejected = f"{REJECTED_FOLDER}/"
    beside = [file.path for file in removed if file.kind in (BLOOM_FILTER, PAGE_MAPS) or file.path.startswith(rejected)]
    for folder in dict.fromkeys("/".join(path.split("/")[:3]) for path in beside):
        storage.delete_empty(folder)

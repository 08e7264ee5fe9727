"""Commits that write new manifests and no index file: the adoption of a source that was copied or moved, whose files
have other times or another root, and the indexed content; and page maps of files that are indexed already.

A file is adopted when its path below the root, its size and the digest of its own metadata are as recorded. At another
root, times and etags prove nothing: a copy may keep its times, and each HDFS cluster numbers its files from the same
first number. So the digest of each file is compared in that case. A sample of pointers is followed, too, since files
with other rows may have the same metadata."""

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gnomon.base.errors import Action
from gnomon.btree import BTreeReader
from gnomon.shadow.commit.append_log import read_log
from gnomon.shadow.commit.publishing import ATTEMPTS, new_segment_id, put_snapshot, wait
from gnomon.shadow.errors import ConcurrentCommit, UsageError
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.metadata import (
    PageMapsEntry,
    PageMapsSetting,
    Segment,
    SegmentRef,
    Snapshot,
    SourceFileEntry,
    SourceRoot,
    View,
    append_path,
    digest_and_rows,
    manifest_path,
    masks_of,
    most_maps,
    moved_to,
    open_view,
    read_segment,
    rows_by_partition,
    utc_now,
    write_segment,
)
from gnomon.shadow.storage import FileInfo, Storage, difference, is_in_doubt, probe
from gnomon.shadow.tables import TableVersion
from gnomon.sources import SourceError


def relist(storage: Storage, view: View, after: Iterable[Segment]) -> tuple[SegmentRef, ...]:
    """The segments as the next snapshot names them; `after` has the new state of each. Changed manifests are written
    and read back; a segment without live files is dropped."""
    refs = []
    for before, segment, ref in zip(view.segments, after, view.snapshot.segments, strict=True):
        if not segment.live:
            continue
        if segment.source_files != before.source_files:
            ref = write_segment(storage, replace(segment, id=new_segment_id()))
            read_segment(storage, ref)
        refs.append(replace(ref, dead=tuple(sorted(segment.dead))))
    return tuple(refs)


def new_lists(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths of the manifests that one snapshot names and the other does not."""
    known = {ref.id for ref in before.segments}
    return [manifest_path(ref.id) for ref in after.segments if ref.id not in known]


READERS = 16  # files whose metadata is read at the same time
SAMPLED_FILES, ENTRIES_PER_FILE = 64, 4  # index files, and entries of each, whose pointers are followed
CACHE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Adoption:
    """Covered files to adopt, which have a new fingerprint and the recorded content; and the `strangers`, which have
    other content, though size, time or etag are as recorded."""

    adopted: dict[str, SourceFileEntry]
    strangers: frozenset[str]

    def applied_to(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """The segments with the adopted files in place of their old entries, and the strangers dead."""
        return tuple(
            replace(
                segment,
                source_files=tuple(
                    file if ordinal in segment.dead else self.adopted.get(file.path, file)
                    for ordinal, file in enumerate(segment.source_files)
                ),
                dead=segment.dead.union(
                    ordinal for ordinal, file in enumerate(segment.source_files) if file.path in self.strangers
                ),
            )
            for segment in segments
        )


def adoption(index: Storage, root: SourceRoot, view: View, files: Iterable[FileInfo]) -> Adoption:
    """The files at `root` that the snapshot covers. UsageError where there are none."""
    covered, elsewhere = view.covered, root.location != view.spec.source.location
    compared = [
        (covered[info.path], info)
        for info in files
        if info.path in covered
        and info.size == covered[info.path].size
        and (elsewhere or difference(covered[info.path], info) or is_in_doubt(covered[info.path], info))
    ]

    def is_same(entry: SourceFileEntry, info: FileInfo) -> bool:
        found = digest_and_rows(root.storage, info, view.spec.format, view.spec.read_options)
        return found is not None and found[0] == entry.digest and found[1] in (None, entry.rows)

    with ThreadPoolExecutor(READERS) as pool:
        same = list(pool.map(lambda pair: is_same(*pair), compared))
    now = {
        entry.path: replace(entry, mtime_ns=info.mtime_ns, etag=info.etag, ctime_ns=info.ctime_ns)
        for (entry, info), kept in zip(compared, same, strict=True)
        if kept
    }
    for path in _of_other_rows(index, root, view, now):
        del now[path]
    if elsewhere and covered and not now:
        raise UsageError(
            f"none of the {len(covered):,} files that the index covers is there; expected a copy of "
            f"{view.spec.source.name}",
            root.location,
        )
    strangers = (
        entry.path
        for entry, info in compared
        if entry.path not in now and not difference(entry, info)  # the build finds files of another fingerprint
    )
    return Adoption({path: file for path, file in now.items() if file != covered[path]}, frozenset(strangers))


def _of_other_rows(
    index: Storage, root: SourceRoot, view: View, files: Mapping[str, SourceFileEntry]
) -> Collection[str]:
    """The files in which a sample of pointers finds other keys."""
    if not files:
        return ()
    found: set[str] = set()
    fetcher = Fetcher(root.storage, view.spec, CACHE_BYTES)
    index_files = [(segment, file) for segment in view.segments for file in segment.by_bucket.values()]
    for segment, index_file in index_files[:: -(-len(index_files) // SAMPLED_FILES) or 1]:
        with index.open(index_file.path) as reader:
            for key, value in BTreeReader(reader).sample(ENTRIES_PER_FILE):
                pointer = view.spec.entries.pointer(value)
                file = files.get(pointer.data_filename)
                if file is not None and file.path in segment.live and file.path not in found:
                    try:
                        fetcher.check(file, pointer, key)
                    except SourceError:
                        found.add(file.path)
    return found


def adopt(storage: Storage, root: SourceRoot, base: View | None = None) -> tuple[Snapshot, int]:
    """Take over the source at `root`. Returns the newest snapshot, and the number of files with a new fingerprint in
    it. Commits nothing where nothing differs. `base` is the newest snapshot before `root` was read: another one may
    cover a newer state of a table. UsageError where an append is not finished; ConcurrentCommit where other commits
    keep winning, or one came after `base`; UnsafeStore where two writers could overwrite each other."""
    for attempt in range(ATTEMPTS):
        wait(attempt)
        _check_appends(storage)
        view = open_view(storage)
        if base is not None and view.snapshot.commit_id != base.snapshot.commit_id:
            what = f"another program committed snapshot {view.snapshot.number} after {root.name} was read"
            raise ConcurrentCommit(f"{what}; nothing was adopted", storage.root, action=Action.RUN_AGAIN)
        found = adoption(storage, root, view, root.list())
        if not found.adopted and (view.spec.source.name, view.spec.source.location) == (root.name, root.location):
            return view.snapshot, 0
        probe(storage)
        begin = time.time()
        snapshot = _adopted(storage, view, root, found)
        if put_snapshot(storage, snapshot, new_lists(view.snapshot, snapshot), begin):
            return snapshot, len(found.adopted)
    raise ConcurrentCommit(f"other programs committed first {ATTEMPTS} times", storage.root, action=Action.RUN_AGAIN)


def _check_appends(storage: Storage) -> None:
    """UsageError if an append has files staged at the recorded source, which no program would find at the new one."""
    for append in read_log(storage).open:
        raise UsageError(
            f"append {append.number} of batch {append.batch!r} is not finished, and its files are staged at the old "
            f"source (its record: {append_path(append.number)})",
            storage.root,
            action=Action.FINISH_APPEND,
        )


def _adopted(storage: Storage, view: View, root: SourceRoot, found: Adoption) -> Snapshot:
    """The snapshot with the adopted files, after its manifests were written and read back."""
    after = found.applied_to(view.segments)
    return replace(
        view.snapshot,
        number=view.snapshot.number + 1,
        operation="adopt",
        segments=relist(storage, view, after),
        partitions=rows_by_partition(after, masks_of(view.segments)),
        spec=replace(view.spec, source=moved_to(view.spec.source, root)),
        committed_at=utc_now(),
        batch=None,
        commit_id=new_segment_id(),
        parent_id=view.snapshot.commit_id,
        counts={"adopted": len(found.adopted)},
        folders=root.source.recorded.folders,
        table=_version(view, root),
    )


def _version(view: View, root: SourceRoot) -> TableVersion | None:
    """The version that the snapshot covers, of the table at the root: a later one is for the next build."""
    covered, found = view.snapshot.table, root.source.recorded.version
    return found if covered is None or found is None else found._replace(version=covered.version)


Made = Mapping[SourceFileEntry, PageMapsEntry]

OPERATION = "page-maps"


def record(storage: Storage, made: Made, page_maps: PageMapsSetting = True) -> Snapshot:
    """Commit page maps of source files, except files whose entry in the index has changed since. `page_maps`: the
    setting for later builds, unless the index's records more. Returns the newest snapshot; commits nothing where
    nothing differs. ConcurrentCommit where other commits keep winning; UnsafeStore
    where two writers could overwrite each other."""
    for attempt in range(ATTEMPTS):
        wait(attempt)
        view = open_view(storage)
        recorded = sum(file in made for segment in view.segments for file in segment.live.values())
        setting = most_maps(view.spec.page_maps, page_maps)
        if not recorded and view.spec.page_maps == setting:
            return view.snapshot
        probe(storage)
        begin = time.time()
        snapshot = _recorded(storage, view, made, recorded, setting)
        maps = sorted({entry.path for entry in made.values()})
        if put_snapshot(storage, snapshot, [*maps, *new_lists(view.snapshot, snapshot)], begin):
            return snapshot
    raise ConcurrentCommit(f"other programs committed first {ATTEMPTS} times", storage.root, action=Action.RUN_AGAIN)


def _recorded(storage: Storage, view: View, made: Made, recorded: int, setting: PageMapsSetting) -> Snapshot:
    return replace(
        view.snapshot,
        number=view.snapshot.number + 1,
        operation=OPERATION,
        segments=relist(storage, view, [_with(segment, made) for segment in view.segments]),
        spec=replace(view.spec, page_maps=setting),
        committed_at=utc_now(),
        batch=None,
        commit_id=new_segment_id(),
        parent_id=view.snapshot.commit_id,
        counts={"recorded": recorded},
    )


def _with(segment: Segment, made: Made) -> Segment:
    files = (replace(file, page_maps=made.get(file, file.page_maps)) for file in segment.source_files)
    return replace(segment, source_files=tuple(files))

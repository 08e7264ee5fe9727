"""A lake that was copied or moved: its files have other times, or another root, and are what was indexed all the same.

A file is taken over when it lies at the same path below the root and its size and the digest of its own metadata are
those on record. The commit writes the lists of the segments anew, with the fingerprints of now; no index file changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from shadow.coverage import SourceRoot
from shadow.errors import StorageError
from shadow.fingerprint import difference
from shadow.probe import probe
from shadow.publish import ATTEMPTS, new_segment_id, put_snapshot, wait
from shadow.rebase import ConcurrentCommit
from shadow.segments import Segment, SegmentRef, SourceFileEntry, write_segment
from shadow.snapshots import Snapshot, utc_now
from shadow.storage import FileInfo, Storage
from shadow.view import View, open_view
from sources import SourceError, open_source

READERS = 16  # files whose metadata is read at a time


def adoptable(root: SourceRoot, view: View, files: Iterable[FileInfo]) -> dict[str, SourceFileEntry]:
    """By path, the covered files that are there with another fingerprint and the same content, as they are now."""
    covered = view.covered
    moved = [
        (covered[info.path], info)
        for info in files
        if info.path in covered and info.size == covered[info.path].size and difference(covered[info.path], info)
    ]

    def one(entry: SourceFileEntry, info: FileInfo) -> SourceFileEntry | None:
        try:
            with root.storage.open(info.path, known=info) as reader:
                source = open_source(reader, view.spec.format)
        except (SourceError, StorageError, OSError):  # what cannot be read is for the build to say
            return None
        if (source.rows, source.digest) != (entry.rows, entry.digest):
            return None
        return replace(entry, mtime_ns=info.mtime_ns, etag=info.etag)

    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda pair: one(*pair), moved)
    return {entry.path: entry for entry in found if entry is not None}


def with_adopted(segments: Sequence[Segment], adopted: Mapping[str, SourceFileEntry]) -> tuple[Segment, ...]:
    """The segments with these files in the place of what they cover."""
    return tuple(
        replace(
            segment,
            source_files=tuple(
                file if ordinal in segment.dead else adopted.get(file.path, file)
                for ordinal, file in enumerate(segment.source_files)
            ),
        )
        for segment in segments
    )


def adopt(storage: Storage, root: SourceRoot) -> tuple[Snapshot, int]:
    """Take over the source at `root`: the newest snapshot then, and how many files have a new fingerprint in it.
    Nothing is committed where nothing differs. ConcurrentCommit where others go on committing meanwhile;
    UnsafeStore where two writers could overwrite each other."""
    for attempt in range(ATTEMPTS):
        wait(attempt)
        view = open_view(storage)
        adopted = adoptable(root, view, root.list())
        if not adopted and view.spec.source == root.location:
            return view.snapshot, 0
        probe(storage)
        snapshot = _next(storage, view, root, adopted)
        if put_snapshot(storage, snapshot):
            return snapshot, len(adopted)
    raise ConcurrentCommit(f"{storage.root}: others committed {ATTEMPTS} times meanwhile; run it again")


def _next(storage: Storage, view: View, root: SourceRoot, adopted: Mapping[str, SourceFileEntry]) -> Snapshot:
    """The snapshot in which the files are adopted; the lists of its segments are written."""
    refs: list[SegmentRef] = []
    after = with_adopted(view.segments, adopted)
    for before, segment, ref in zip(view.segments, after, view.snapshot.segments, strict=True):
        if segment == before:
            refs.append(ref)
        else:
            refs.append(replace(write_segment(storage, replace(segment, id=new_segment_id())), dead=ref.dead))
    return replace(
        view.snapshot,
        number=view.snapshot.number + 1,
        operation="adopt",
        segments=tuple(refs),
        spec=replace(view.spec, source=root.location),
        committed_at=utc_now(),
        batch=None,
        commit_id=new_segment_id(),
        parent_id=view.snapshot.commit_id,
        counts={"adopted": len(adopted)},
    )

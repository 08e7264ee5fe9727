"""The commit that records page maps for files that are indexed already. It also makes later builds record them. No
index file changes."""

import time
from collections.abc import Mapping
from dataclasses import replace

from gnomon.base.actions import Action
from gnomon.shadow.commit.publishing import ATTEMPTS, new_segment_id, put_snapshot, wait
from gnomon.shadow.commit.rewrite_manifests import new_lists, relist
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.metadata import (
    PageMapsEntry,
    PageMapsSetting,
    Segment,
    Snapshot,
    SourceFileEntry,
    View,
    most_maps,
    open_view,
    utc_now,
)
from gnomon.shadow.storage import Storage, probe

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
        snapshot = _next(storage, view, made, recorded, setting)
        maps = sorted({entry.path for entry in made.values()})
        if put_snapshot(storage, snapshot, [*maps, *new_lists(view.snapshot, snapshot)], begin):
            return snapshot
    raise ConcurrentCommit(f"other programs committed first {ATTEMPTS} times", storage.root, action=Action.RUN_AGAIN)


def _next(storage: Storage, view: View, made: Made, recorded: int, setting: PageMapsSetting) -> Snapshot:
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

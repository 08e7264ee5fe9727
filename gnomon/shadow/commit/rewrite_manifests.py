"""New manifests for segments whose source files have new data. They get new names; no index file changes."""

from collections.abc import Iterable
from dataclasses import replace

from gnomon.shadow.commit.publishing import new_segment_id
from gnomon.shadow.metadata import Segment, SegmentRef, Snapshot, View, manifest_path, read_segment, write_segment
from gnomon.shadow.storage import Storage


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

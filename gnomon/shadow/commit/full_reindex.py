"""The repair of a damaged index. A build indexes all files of the source again, and commits them as the next snapshot.
The newest snapshot and its files may be damaged.

The commit needs only the number of the newest snapshot. Readers use that snapshot until the commit; older snapshots
stay until a vacuum.
"""

import time

from gnomon.base.errors import Action
from gnomon.shadow.commit.publishing import Changes, check_counts, paths_of, put_snapshot, write_manifest
from gnomon.shadow.errors import ConcurrentCommit, DamagedMetadata, ShadowError, SnapshotNotFound
from gnomon.shadow.metadata import (
    IndexSpec,
    Segment,
    Snapshot,
    put_back,
    read_snapshot,
    read_spec,
    rows_by_partition,
    snapshot_numbers,
    utc_now,
    write_masks,
)
from gnomon.shadow.storage import Storage, probe


def newest_number(storage: Storage) -> int:
    """The number of the newest snapshot, which may be damaged; 0 before the first commit."""
    return max(snapshot_numbers(storage), default=0)


def spec_on_record(storage: Storage) -> IndexSpec | None:
    """The spec of the newest snapshot that can be read, or else the one in spec.json; None where all are damaged."""
    for number in reversed(snapshot_numbers(storage)):
        try:
            return read_snapshot(storage, number).spec
        except (DamagedMetadata, SnapshotNotFound):
            continue
    try:
        return read_spec(storage)
    except DamagedMetadata:
        return None


def publish_full(storage: Storage, spec: IndexSpec, newest: int, changes: Changes, segment_id: str) -> Snapshot:
    """Commit index files of the whole source as the only segment of snapshot `newest` + 1. ConcurrentCommit where
    another program has committed that number; BuildFailed and UnsafeStore as in `publish`."""
    check_counts(spec, changes)
    probe(storage)
    ours = Segment(segment_id, tuple(changes.index_files), tuple(changes.source_files))
    begin = time.time()
    ref = write_manifest(storage, ours)
    masks = write_masks(storage, segment_id, changes.masks or {})
    snapshot = Snapshot(
        number=newest + 1,
        operation=changes.operation,
        segments=(ref,) if ours.live else (),
        partitions=rows_by_partition([ours], changes.masks or {}),
        columns=dict(changes.columns),
        spec=spec,
        committed_at=utc_now(),
        batch=changes.batch,
        commit_id=segment_id,
        parent_id=_commit_id(storage, newest),
        counts=dict(changes.counts or {}),
        folders=None if changes.folders is None else dict(changes.folders),
        table=changes.table,
        masks=masks,
    )
    if not put_snapshot(storage, snapshot, paths_of(ours, masks=masks), begin):
        raise ConcurrentCommit(
            f"another program committed snapshot {snapshot.number} first; nothing was changed",
            storage.root,
            action=Action.RUN_AGAIN,
        )
    put_back(storage, spec)
    return snapshot


def _commit_id(storage: Storage, number: int) -> str | None:
    try:
        return read_snapshot(storage, number).commit_id
    except ShadowError:
        return None

"""The history of an index: its existing snapshots, each with its operation and size."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedMetadata, IndexNotFound, SnapshotNotFound
from gnomon.shadow.metadata.snapshots import read_snapshot, read_spec, snapshot_files, snapshot_numbers
from gnomon.shadow.storage import FileInfo, Place, Storage, storage_at


@dataclass(frozen=True)
class Record:
    """A snapshot: its operation, its size, the counts of its commit (for a build: files `new`, `changed` and
    `vanished`), and the version of the lake table that it covers, if its source is one. A snapshot that cannot be read
    has an `error` and nothing else."""

    snapshot: int
    committed_at: str = ""
    operation: str = ""
    rows: int = 0
    partitions: int = 0
    segments: int = 0
    buckets: int = 0
    batch: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    table_version: str | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def history(index: Place | Storage) -> list[Record]:
    """The kept snapshots of an index, oldest first. IndexNotFound where there is none."""
    storage = storage_at(index)
    read_spec(storage)
    records = [record for number in snapshot_numbers(storage) if (record := _recorded(storage, number)) is not None]
    if not records:
        raise IndexNotFound("no snapshot yet, its first build has not ended", storage.root, action=Action.BUILD_AGAIN)
    return records


def newest_records(storage: Storage, most: int, known: Mapping[FileInfo, Record]) -> dict[FileInfo, Record]:
    """The newest `most` snapshots, oldest first. Snapshots in `known` are not read."""
    found = {}
    for number, info in list(snapshot_files(storage).items())[-most:]:
        record = known.get(info) or _recorded(storage, number)
        if record is not None:
            found[info] = record
    return found


def _recorded(storage: Storage, number: int) -> Record | None:
    """The record of a snapshot, with its error where it cannot be read; None where a vacuum just removed it."""
    try:
        return _record(storage, number)
    except DamagedMetadata as error:
        return Record(number, error=str(error))
    except SnapshotNotFound:
        return None


def _record(storage: Storage, number: int) -> Record:
    snapshot = read_snapshot(storage, number)
    return Record(
        snapshot=number,
        committed_at=snapshot.committed_at,
        operation=snapshot.operation,
        rows=snapshot.rows,
        partitions=len(snapshot.partitions),
        segments=len(snapshot.segments),
        buckets=snapshot.spec.buckets,
        batch=snapshot.batch,
        counts=snapshot.counts,
        table_version=None if snapshot.table is None else snapshot.table.version,
    )

"""The snapshots of an index that are there, as they were committed."""

from dataclasses import asdict, dataclass, field
from typing import Any

from shadow.errors import DamagedMetadata, IndexNotFound, SnapshotNotFound
from shadow.snapshots import read_snapshot, snapshot_numbers
from shadow.spec_file import read_spec
from shadow.storage import Storage


@dataclass(frozen=True)
class Record:
    """A snapshot: what made it, what it holds, and what its commit counted (of a build: files `new`, `changed` and
    `vanished`). One that cannot be read has an `error` and nothing else."""

    snapshot: int
    committed_at: str = ""
    operation: str = ""
    rows: int = 0
    partitions: int = 0
    segments: int = 0
    buckets: int = 0
    batch: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def history(storage: Storage) -> list[Record]:
    """The snapshots from the oldest that is kept to the newest. IndexNotFound where there is none."""
    read_spec(storage)
    records = []
    for number in snapshot_numbers(storage):
        try:
            records.append(_record(storage, number))
        except DamagedMetadata as error:
            records.append(Record(number, error=str(error)))
        except SnapshotNotFound:  # vacuumed just now
            continue
    if not records:
        raise IndexNotFound(f"{storage.root}: no snapshot yet, its first build has not ended; run gnomon build again")
    return records


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
    )

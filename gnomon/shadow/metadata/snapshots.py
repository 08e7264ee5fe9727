"""Snapshots: numbered, immutable lists of live segments. A create-only put of the next number is the commit. Each holds
its own spec; `_shadow/spec.json` has that of the first build, for people who look into the folder, and can be written
again."""

import datetime as dt
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from gnomon.base.errors import Action
from gnomon.shadow.errors import (
    AlreadyExists,
    DamagedMetadata,
    IndexNotFound,
    SnapshotNotFound,
    SpecMismatch,
    UsageError,
)
from gnomon.shadow.metadata import json_files
from gnomon.shadow.metadata.manifests import Segment, SegmentRef, read_segment
from gnomon.shadow.metadata.masks import MasksRef, read_masks
from gnomon.shadow.metadata.spec import IndexSpec, check_same, parse_spec
from gnomon.shadow.storage import FileInfo, Storage, probe
from gnomon.shadow.tables import TableVersion

SPEC_PATH = "_shadow/spec.json"  # written before the first snapshot
SNAPSHOT_FOLDER = "_shadow/snapshots"
SNAPSHOT_NAME = re.compile(SNAPSHOT_FOLDER + r"/(\d{20})\.json", re.ASCII)


@dataclass(frozen=True)
class Snapshot:
    """One state of the index. `spec` describes the index; its number of buckets and the place of its source may differ
    from the snapshot before. `partitions` maps a partition folder ("" where there are none) to its live rows; `columns`
    maps the source's columns to their Arrow types, in order. `batch` is the id of an append. A program recognises its
    own commit by `commit_id`, which is unique; `parent_id` is the `commit_id` of the snapshot before. `folders` are the
    folders of a catalog table's partitions, as the build found them in the catalog. `table` is the version of a lake
    table that the snapshot covers, and `masks` names the file with the rows that the table has deleted."""

    number: int
    operation: str
    segments: tuple[SegmentRef, ...]
    partitions: dict[str, int]
    columns: dict[str, str]
    spec: IndexSpec
    committed_at: str = ""
    batch: str | None = None
    commit_id: str = ""
    parent_id: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    folders: Mapping[str, str] | None = None
    table: TableVersion | None = None
    masks: MasksRef | None = None

    @property
    def rows(self) -> int:
        return sum(self.partitions.values())

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "snapshot": self.number,
            "parent": self.number - 1 or None,
            "commit_id": self.commit_id,
            "parent_id": self.parent_id,
            "operation": self.operation,
            "committed_at": self.committed_at,
            "batch": self.batch,
            "counts": self.counts,
            "spec": self.spec.to_json(),
            "segments": [
                {"id": ref.id, "size": ref.size, "crc32": ref.crc32, "dead": list(ref.dead)} for ref in self.segments
            ],
            "partitions": self.partitions,
            "columns": self.columns,
        }
        content |= {} if self.folders is None else {"folders": self.folders}
        content |= {} if self.table is None else {"table": self.table._asdict()}
        return content | ({} if self.masks is None else {"masks": self.masks._asdict()})


def snapshot_path(number: int) -> str:
    return f"{SNAPSHOT_FOLDER}/{number:020d}.json"


def snapshot_files(storage: Storage) -> dict[int, FileInfo]:
    """The existing snapshots by number, ascending."""
    files = {}
    for info in storage.list(SNAPSHOT_FOLDER, witness=SPEC_PATH):
        match = SNAPSHOT_NAME.fullmatch(info.path)
        if match:
            files[int(match[1])] = info
    return files


def snapshot_numbers(storage: Storage) -> list[int]:
    """The numbers of the existing snapshots, ascending."""
    return list(snapshot_files(storage))


def read_snapshot(storage: Storage, number: int) -> Snapshot:
    """A snapshot by its number. SnapshotNotFound where it is gone, DamagedMetadata where it is damaged."""
    path = snapshot_path(number)
    where = f"{storage.root}/{path}"
    try:
        content = json_files.read(storage, path)
    except (FileNotFoundError, NotADirectoryError):
        numbers = snapshot_numbers(storage)
        known = "there is none"
        if numbers:
            known = f"there are {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"there is {numbers[0]} alone"
        raise SnapshotNotFound(f"snapshot {number} is not there ({known})", storage.root) from None
    if content.get("snapshot") != number:
        recorded = content.get("snapshot")
        raise DamagedMetadata("", where, 0, action=Action.RESTORE, expected=f"snapshot {number}", found=repr(recorded))
    try:
        refs = (SegmentRef(s["id"], s["size"], s["crc32"], tuple(map(index, s["dead"]))) for s in content["segments"])
        return Snapshot(
            number=number,
            operation=content["operation"],
            segments=tuple(refs),
            partitions={name: index(rows) for name, rows in content["partitions"].items()},
            columns={name: str(kind) for name, kind in content["columns"].items()},
            spec=parse_spec(content["spec"], where),
            committed_at=content["committed_at"],
            batch=content["batch"],
            commit_id=content["commit_id"],
            parent_id=content["parent_id"],
            counts=content["counts"],
            folders=_folders(content),
            table=_table(content),
            masks=_masks(content),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedMetadata(f"not a snapshot ({error!r})", where, 0, action=Action.BUILD_FULL) from None


def _folders(content: Mapping[str, Any]) -> dict[str, str] | None:
    folders = content.get("folders")
    return None if folders is None else {partition: str(folder) for partition, folder in folders.items()}


def _table(content: Mapping[str, Any]) -> TableVersion | None:
    table = content.get("table")
    return None if table is None else TableVersion(table["uuid"], table["version"], table["metadata"])


def _masks(content: Mapping[str, Any]) -> MasksRef | None:
    masks = content.get("masks")
    return None if masks is None else MasksRef(masks["id"], masks["size"], masks["crc32"], masks["rows"])


def snapshot_of_version(storage: Storage, version: str) -> int:
    """The number of the newest snapshot that covers a version of its lake table. SnapshotNotFound where none does."""
    known: dict[str, None] = {}
    for number in reversed(snapshot_numbers(storage)):
        with suppress(SnapshotNotFound, DamagedMetadata):
            table = read_snapshot(storage, number).table
            if table is None:
                raise UsageError("not the index of a Delta or Iceberg table, so it has no table versions", storage.root)
            if table.version == version:
                return number
            known[table.version] = None
    raise SnapshotNotFound(
        f"no snapshot covers version {version} of the table (there are {', '.join(reversed(known)) or 'none'})",
        storage.root,
    )


def newest_snapshot(storage: Storage) -> Snapshot | None:
    """The newest snapshot; None before the first commit."""
    number = 0
    while numbers := snapshot_numbers(storage):
        try:
            snapshot = read_snapshot(storage, numbers[-1])
            while storage.is_remote and is_there(storage, snapshot.number + 1):  # a listing may lack the newest
                snapshot = read_snapshot(storage, snapshot.number + 1)
            return snapshot
        except SnapshotNotFound:
            if numbers[-1] == number:
                raise
            number = numbers[-1]  # a vacuum removed it since the listing: there is a newer one
    return None


def is_there(storage: Storage, number: int) -> bool:
    """Whether the file of a snapshot exists."""
    try:
        storage.read(snapshot_path(number))  # one request, where opening a file that is not there takes two
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_segments(
    storage: Storage, snapshot: Snapshot, known: Mapping[str, Segment] | None = None
) -> tuple[Segment, ...]:
    """The segments of a snapshot, with its masks. Known ones are not read. DamagedMetadata as in `read_segment` and
    `read_masks`."""
    known = known or {}
    masks = read_masks(storage, snapshot.masks)
    return tuple(
        replace(known[ref.id] if ref.id in known else read_segment(storage, ref), dead=frozenset(ref.dead), masks=masks)
        for ref in snapshot.segments
    )


def read_newest(
    storage: Storage, known: Mapping[str, Segment] | None = None
) -> tuple[Snapshot | None, tuple[Segment, ...]]:
    """The newest snapshot with its segments. If a vacuum removes it during the read, a newer one."""
    while True:
        snapshot = newest_snapshot(storage)
        if snapshot is None:
            return None, ()
        try:
            return snapshot, read_segments(storage, snapshot, known)
        except DamagedMetadata:
            if snapshot_numbers(storage)[-1:] <= [snapshot.number]:
                raise


def commit(storage: Storage, snapshot: Snapshot) -> None:
    """Make a snapshot the newest: put its number create-only. AlreadyExists when another commit has the number."""
    storage.put_new(snapshot_path(snapshot.number), [json_files.encode(snapshot.to_json())])


def utc_now() -> str:
    """The time of a commit, as ISO 8601 with Z."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_spec(storage: Storage) -> IndexSpec:
    """The first build's spec, from the file. IndexNotFound, NewerFormat or DamagedMetadata where it cannot be read."""
    where = f"{storage.root}/{SPEC_PATH}"
    try:
        content = json_files.read(storage, SPEC_PATH)
    except (FileNotFoundError, NotADirectoryError):
        if snapshot_numbers(storage):
            raise DamagedMetadata("missing, though there are snapshots", where, action=Action.BUILD_SPEC) from None
        raise IndexNotFound(
            f"not an index ({SPEC_PATH} is not there)", storage.root, action=Action.BUILD_FIRST
        ) from None
    return parse_spec(content, where)


def create_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec, create-only. An earlier build that did not finish may have written the same spec. `page_maps` may
    differ, since each snapshot has its own."""
    try:
        storage.put_new(SPEC_PATH, [json_files.encode(spec.to_json())])
    except AlreadyExists:
        check_same(replace(read_spec(storage), page_maps=spec.page_maps), spec, storage.root)


def create_first_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec before the first commit. It replaces the spec of a build that never committed.

    If two first builds with different specs race, each looks for the other's commit after it wrote its spec, and puts
    that commit's spec back. If it dies before, the next build does it (`put_back`)."""
    try:
        create_spec(storage, spec)
    except SpecMismatch:
        if snapshot_numbers(storage):
            raise
        _replace(storage, spec)
        committed = newest_snapshot(storage)
        if committed is not None:
            put_back(storage, committed.spec)
            raise


def put_back(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec of the newest snapshot into the file, where it is missing, damaged or from another build."""
    with suppress(DamagedMetadata):
        if read_spec(storage).is_like(spec):
            return
    probe(storage)
    _replace(storage, spec)


def _replace(storage: Storage, spec: IndexSpec) -> None:
    storage.delete(SPEC_PATH)
    create_spec(storage, spec)

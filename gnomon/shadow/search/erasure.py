"""The proof that some keys are erased: no file of a lake table holds a row with them any more, whatever version lists
it, or none does. Otherwise the result says which file holds which key, and how the table's own maintenance removes it.

Only files are searched. The metadata of a table has the least and the greatest value of a column in each file, which
may be a key, until the versions with this file expire."""

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from gnomon.base.errors import Action
from gnomon.shadow.errors import SourceError, StorageError, TableChanged, UsageError
from gnomon.shadow.metadata import STAGING_FOLDER, open_view
from gnomon.shadow.search.all_versions import AllVersions, VersionedRow, find_all_versions
from gnomon.shadow.storage import Place, Storage, join, source_storage, storage_at
from gnomon.shadow.tables import MAIN, LakeSource
from gnomon.shadow.values import given_keys


class Hold(Enum):
    """Why a file that holds a key is still there."""

    LIVE = "a live row"
    BRANCH = "a row that a branch or a tag of the table has"
    DELETED_ROW = "a deleted row of a live data file"
    OLD_VERSION = "a data file of older versions"
    EQUALITY_DELETE = "a file of equality deletes, which holds the keys"
    NO_VERSION = "a file that no readable version lists"


# What removes a file, for each format of tables.
REMEDIES = {
    "delta": {
        Hold.LIVE: "gnomon delete, then as for a deleted row",
        Hold.DELETED_ROW: "REORG TABLE ... APPLY (PURGE), then VACUUM after the retention time",
        Hold.BRANCH: "VACUUM",
        Hold.OLD_VERSION: "VACUUM after the retention time",
        Hold.EQUALITY_DELETE: "VACUUM",
        Hold.NO_VERSION: "VACUUM after the retention time; remove the file if VACUUM does not",
    },
    "iceberg": {
        Hold.LIVE: "gnomon delete, then as for a deleted row",
        Hold.DELETED_ROW: "CALL system.rewrite_data_files(table => '...', options => "
        "map('delete-file-threshold', '1')), then system.expire_snapshots",
        Hold.BRANCH: "ALTER TABLE ... DROP BRANCH or DROP TAG, then CALL system.expire_snapshots",
        Hold.OLD_VERSION: "CALL system.expire_snapshots, which keeps what a branch or a tag still has",
        Hold.EQUALITY_DELETE: "gnomon convert-deletes, then CALL system.expire_snapshots",
        Hold.NO_VERSION: "CALL system.remove_orphan_files",
    },
}


ORDER = list(Hold)  # a row that is there for several reasons is named by the first


@dataclass(frozen=True)
class Holder:
    """A file that holds a key. `key` is the place of the key among the requested keys, `row` the number of the row in
    the file (of an Avro file, that in its pointer), `hold` why it is still there, `remedy` what removes it."""

    key: int
    file: str
    row: int
    hold: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Erasure:
    """The result of a proof. `is_proven`: nothing holds a key, and everything was searched. `versions` are the readable
    versions, `expired` those whose metadata is gone. `index_entries` is the number of entries of the keys in the index
    itself, which `gnomon compact` and `gnomon vacuum` remove; they do not count as holders. Times are in UTC."""

    table: str
    keys: int
    is_proven: bool
    holders: list[Holder]
    failures: list[str]
    versions: list[str]
    expired: list[str]
    files_by_index: int
    files_scanned: int
    index_entries: int
    began: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def prove_erased(index: Place | Storage, keys: Any) -> Erasure:
    """Search all files of the table of an index for some keys: those of each readable version, and all other files in
    the table's folders. What was not searched is in `failures`, also a version that came meanwhile. UsageError without
    a key; other errors as in `find_all_versions`."""
    keys = given_keys(keys)
    if not len(keys):
        raise UsageError("no keys: there is nothing to prove; expected one key or more")
    storage = storage_at(index)
    begin, began = time.perf_counter(), datetime.now(UTC)
    view = open_view(storage)
    spec, known = view.spec, view.snapshot.table
    before = LakeSource(spec.source.table).newest(known) if known is not None else None
    found = find_all_versions(storage, keys, orphans=True)
    remedies = REMEDIES[spec.source.name.partition(":")[0]]
    holds: dict[tuple[int, str, int], Hold] = {}
    for row in found.rows:
        if row.on_disk:
            hold, at = _hold(found, row), (row.key, row.file, row.row)
            holds[at] = min(hold, holds.get(at, hold), key=ORDER.index)
    failures: list[Exception] = [*found.failures, *map(_unsearched, found.unsearched), *_staged(spec.source.location)]
    if before is not None and LakeSource(spec.source.table).newest(before) != before:
        what = "another program changed the table during the search, so that new files may be missing"
        failures.append(TableChanged(what, spec.source.table, action=Action.RUN_AGAIN))
    return Erasure(
        table=spec.source.name,
        keys=len(keys),
        is_proven=not holds and not failures,
        holders=[Holder(*at, hold.value, remedies[hold]) for at, hold in holds.items()],
        failures=[str(one) for one in failures],
        versions=found.versions,
        expired=found.expired,
        files_by_index=found.indexed,
        files_scanned=found.scanned,
        index_entries=found.entries,
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - begin, 3),
    )


def _hold(found: AllVersions, row: VersionedRow) -> Hold:
    if row.first is not None and row.removed_by is None and row.branch == MAIN:
        return Hold.LIVE
    if row.first is not None and row.removed_by is None and not row.branch.startswith("snapshot "):
        return Hold.BRANCH
    if row.file in found.current:
        return Hold.DELETED_ROW
    if row.file in found.equality_deletes:
        return Hold.EQUALITY_DELETE
    return Hold.OLD_VERSION if row.file in found.listed else Hold.NO_VERSION


def _unsearched(file: str) -> Exception:
    what = "a file in the table's folders, in a format that is not searched; look at it, and remove it"
    return SourceError(what, file, expected="Parquet, ORC or Avro")


def _staged(root: str) -> list[Exception]:
    """An error for each file of an append or change that is not finished: it may hold keys."""
    what = "a file of an append or change that is not finished; run its command again"
    files = source_storage(root).list(STAGING_FOLDER, hidden=True)
    return [StorageError(what, join(root, one.path)) for one in files]

"""The proof that some keys are erased: no file of a lake table holds a row with them any more, whatever version lists
it, or none does. Otherwise the result says which file holds which key, and how the table's own maintenance removes it.

Only files are searched. The metadata of a table has the least and the greatest value of a column in each file, which
may be a key, until the versions with this file expire."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata import STAGING_FOLDER, open_view
from gnomon.shadow.search.all_versions import AllVersions, find_all_versions
from gnomon.shadow.storage import Storage, join, source_storage


class Hold(Enum):
    """Why a file that holds a key is still there."""

    LIVE = "a live row"
    DELETED_ROW = "a deleted row of a live data file"
    OLD_VERSION = "a data file of older versions"
    EQUALITY_DELETE = "a file of equality deletes, which holds the keys"
    NO_VERSION = "a file that no readable version lists"


# What removes a file, for each format of tables.
REMEDIES = {
    "delta": {
        Hold.LIVE: "gnomon delete, then as for a deleted row",
        Hold.DELETED_ROW: "REORG TABLE ... APPLY (PURGE), then VACUUM after the retention time",
        Hold.OLD_VERSION: "VACUUM after the retention time",
        Hold.EQUALITY_DELETE: "VACUUM",
        Hold.NO_VERSION: "VACUUM after the retention time; remove the file if VACUUM does not",
    },
    "iceberg": {
        Hold.LIVE: "gnomon delete, then as for a deleted row",
        Hold.DELETED_ROW: "CALL system.rewrite_data_files(table => '...', options => "
        "map('delete-file-threshold', '1')), then system.expire_snapshots",
        Hold.OLD_VERSION: "CALL system.expire_snapshots",
        Hold.EQUALITY_DELETE: "gnomon convert-deletes, then CALL system.expire_snapshots",
        Hold.NO_VERSION: "CALL system.remove_orphan_files",
    },
}


@dataclass(frozen=True)
class Holder:
    """A file that holds a key. `key` is the place of the key among the requested keys, `row` the number of the row in
    the file, `hold` why it is still there, `remedy` what removes it."""

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


def prove_erased(storage: Storage, keys: Sequence[object]) -> Erasure:
    """Search all files of the table of an index for some keys: those of each readable version, and all other data files
    below its location. Errors as in `find_all_versions`."""
    begin, began = time.perf_counter(), datetime.now(UTC)
    spec = open_view(storage).spec
    found = find_all_versions(storage, keys, orphans=True)
    remedies = REMEDIES[spec.source.name.partition(":")[0]]
    holders: dict[tuple[int, str, int], Holder] = {}
    for row in found.rows:
        if row.on_disk:
            hold = Hold.LIVE if row.removed_by is None and row.first is not None else _hold(found, row.file)
            at = row.key, row.file, row.row
            if at not in holders or hold is Hold.LIVE:
                holders[at] = Holder(*at, hold.value, remedies[hold])
    failures = [str(one) for one in (*found.failures, *_staged(spec.source.location))]
    return Erasure(
        table=spec.source.name,
        keys=len(keys),
        is_proven=not holders and not failures,
        holders=list(holders.values()),
        failures=failures,
        versions=found.versions,
        expired=found.expired,
        files_by_index=found.indexed,
        files_scanned=found.scanned,
        index_entries=found.entries,
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - begin, 3),
    )


def _hold(found: AllVersions, file: str) -> Hold:
    if file in found.current:
        return Hold.DELETED_ROW
    if file in found.equality_deletes:
        return Hold.EQUALITY_DELETE
    return Hold.OLD_VERSION if file in found.listed else Hold.NO_VERSION


def _staged(root: str) -> list[Exception]:
    """An error for each file that an unfinished append or change left below the table: it may hold keys."""
    source = source_storage(root)
    return [
        StorageError("an unfinished append left this file; run the command with its batch again", join(root, one.path))
        for one in source.list(STAGING_FOLDER, hidden=True)
    ]

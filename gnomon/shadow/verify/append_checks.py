"""The report on the log of appends: its counts, and whether its records are complete and undamaged."""

from dataclasses import dataclass
from typing import Any

from gnomon.base.actions import Action
from gnomon.shadow.commit import read_log
from gnomon.shadow.errors import ShadowError
from gnomon.shadow.metadata import (
    APPENDED,
    APPENDS_FOLDER,
    BATCHES_FOLDER,
    DONE,
    ORIGIN_PATH,
    Append,
    batch_path,
    find_batch,
    mark_path,
    read_append,
    read_batch,
)
from gnomon.shadow.storage import Storage
from gnomon.shadow.verify.report import Fault, Report, fault_of


@dataclass(frozen=True)
class OpenAppend:
    """An append that is committed and not finished. Its age is unknown, since records have no time."""

    number: int
    batch: str
    rows: int
    files: int


@dataclass(frozen=True)
class AppendsReport:
    """The appends of an index, the `void` ones among them, and those that are not finished."""

    appends: int
    void: int
    open: tuple[OpenAppend, ...]

    def to_json(self) -> dict[str, Any]:
        return {"appends": self.appends, "void": self.void, "open": [vars(append) for append in self.open]}


def appends_report(storage: Storage) -> AppendsReport:
    """The report on the log, without writing. DamagedMetadata or NewerFormat where it cannot be read."""
    found = read_log(storage)
    left = tuple(OpenAppend(append.number, append.batch, append.rows, len(append.files)) for append in found.open)
    return AppendsReport(found.last, len(found.void), left)


def check_appends(storage: Storage, report: Report) -> None:
    """Check that every record can be read and has the right name, that no append is missing, and that an append marked
    as done has the record of its batch and the mark of its files."""
    for info in list(storage.list(BATCHES_FOLDER)):
        _check_batch(storage, info.path, report)
    try:
        found = read_log(storage)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, storage.root))
        return
    report.appends = found.last
    there = {info.path for info in storage.list(APPENDS_FOLDER, witness=ORIGIN_PATH)}
    for number in range(1, found.last + 1):
        try:
            append = read_append(storage, number)
        except (ShadowError, OSError) as error:
            report.add(fault_of(error, storage.root))
            continue
        if mark_path(append, DONE) in there:
            _check_done(storage, append, mark_path(append, APPENDED) in there, report)


def _check_batch(storage: Storage, path: str, report: Report) -> None:
    where = f"{storage.root}/{path}"
    try:
        batch = read_batch(storage, path)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, where))
        return
    if batch is not None and path != batch_path(batch.append.batch):
        report.add(
            Fault(
                where, 0, f"the record of batch {batch.append.batch!r}, which belongs elsewhere", Action.RESTORE_RECORD
            )
        )


def _check_done(storage: Storage, append: Append, is_appended: bool, report: Report) -> None:
    where = f"{storage.root}/{mark_path(append, DONE)}"
    try:
        batch = find_batch(storage, append.batch)
    except (ShadowError, OSError):  # reported as its own fault
        return
    if batch is None:
        report.add(
            Fault(
                where,
                None,
                f"says that batch {append.batch!r} was appended, and its record is missing",
                Action.RESTORE_RECORD,
            )
        )
    elif not is_appended and batch.append.append_id == append.append_id:
        report.add(
            Fault(
                where,
                None,
                "says that the append is finished, and not that its files have their names",
                Action.RESTORE_RECORD,
            )
        )

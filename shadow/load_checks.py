"""What there is to say of the log of loads: its counts, and whether all of it is as it was written."""

from dataclasses import dataclass
from typing import Any

from shadow.errors import ShadowError
from shadow.load_records import (
    APPENDED,
    BATCHES_FOLDER,
    DONE,
    Load,
    batch_path,
    find_batch,
    mark_path,
    read_batch,
    read_load,
)
from shadow.loads import read_loads
from shadow.report import Fault, Report, fault_of
from shadow.storage import Storage


@dataclass(frozen=True)
class OpenLoad:
    """A load that was committed and is not finished. How old it is nobody knows: records have no clock."""

    number: int
    batch: str
    rows: int
    files: int


@dataclass(frozen=True)
class LoadsReport:
    """The loads of an index, the `void` ones among them, and those that are not finished."""

    loads: int
    void: int
    open: tuple[OpenLoad, ...]

    def to_json(self) -> dict[str, Any]:
        return {"loads": self.loads, "void": self.void, "open": [vars(load) for load in self.open]}


def loads_report(storage: Storage) -> LoadsReport:
    """What the log says; nothing is written. DamagedMetadata, NewerFormat where it cannot be read."""
    found = read_loads(storage)
    left = tuple(OpenLoad(load.number, load.batch, load.rows, len(load.files)) for load in found.open)
    return LoadsReport(found.last, len(found.void), left)


def check_loads(storage: Storage, report: Report) -> None:
    """Every record can be read and has its name, no load is missing, and one that is marked as done has the record of
    its batch, and was marked as appended."""
    for info in list(storage.list(BATCHES_FOLDER)):
        _check_batch(storage, info.path, report)
    try:
        found = read_loads(storage)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, storage.root))
        return
    report.loads = found.last
    there = {info.path for info in storage.list("_shadow/loads")}
    for number in range(1, found.last + 1):
        try:
            load = read_load(storage, number)
        except (ShadowError, OSError) as error:
            report.add(fault_of(error, storage.root))
            continue
        if mark_path(load, DONE) in there:
            _check_done(storage, load, mark_path(load, APPENDED) in there, report)


def _check_batch(storage: Storage, path: str, report: Report) -> None:
    where = f"{storage.root}/{path}"
    try:
        batch = read_batch(storage, path)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, where))
        return
    if batch is not None and path != batch_path(batch.load.batch):
        report.add(Fault(where, 0, f"the record of batch {batch.load.batch!r}, which belongs elsewhere"))


def _check_done(storage: Storage, load: Load, is_appended: bool, report: Report) -> None:
    where = f"{storage.root}/{mark_path(load, DONE)}"
    try:
        batch = find_batch(storage, load.batch)
    except (ShadowError, OSError):  # which is a fault of its own
        return
    if batch is None:
        report.add(Fault(where, None, f"says that batch {load.batch!r} is loaded, and its record is missing"))
    elif not is_appended and batch.load.load_id == load.load_id:
        report.add(Fault(where, None, "says that the load is finished, and not that its files have their names"))

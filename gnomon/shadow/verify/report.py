"""The report of a verification; the rows that are sampled for it; and the differences between the snapshot and an
engine's view of the index folder as a plain table.

Both are equal when the snapshot needs every file that engines see, and no file has an entry whose source file is dead
or whose row is masked: after a first build, and after compact and vacuum."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from gnomon.base.errors import Action, GnomonError
from gnomon.shadow.errors import BTreeError, ShadowError, SourceError
from gnomon.shadow.metadata import Masks, SourceFileEntry, View, masks_of
from gnomon.shadow.storage import FileInfo, Storage
from gnomon.sources import Pointer

MOST_PARTITIONS = {False: 100, True: 1000}  # whose rows are looked up, without and with --all: up to 1 s for each
MOST_TRIED = 10_000  # deleted rows of a file in a batch, to find one of each kind
LIVE, BY_POSITION, BY_VALUE = "live", "deleted by position", "deleted by values"


def some_of(partitions: Collection[str], every: bool) -> frozenset[str]:
    """The partitions whose rows are looked up: all, or as many as MOST_PARTITIONS says, evenly spread."""
    most, there = MOST_PARTITIONS[every], sorted(partitions)
    return frozenset(there[i * len(there) // most] for i in range(most)) if len(there) > most else frozenset(there)


@dataclass
class Samples:
    """One row of each partition that is live, one that is deleted by its position and one that is deleted by values, of
    those that occur. `partitions` are the wanted ones. `by_position` has the rows that the table deletes by position,
    of each file."""

    partitions: Collection[str]
    masks: Masks
    by_position: Mapping[str, BitMap64]
    rows: dict[tuple[str, str], tuple[SourceFileEntry, Pointer]] = field(default_factory=dict)

    def wanted(
        self, files: Sequence[SourceFileEntry], numbers: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> dict[int, tuple[str, str]]:
        """The rows of a batch of entries that are the first of their partition and kind, each with both. `numbers` has
        the number of each entry's file, -1 for none."""
        found: dict[tuple[str, str], int] = {}
        there, firsts = np.unique(numbers, return_index=True)
        for number, first in zip(there.tolist(), firsts.tolist(), strict=True):
            file = files[number]
            if number < 0 or file.partition not in self.partitions:
                continue
            mask = self.masks.get(file.path)
            if mask is None:
                found.setdefault((file.partition, LIVE), first)
                continue
            of_table = self.by_position.get(file.path, BitMap64())
            there_are = {LIVE: file.rows > mask.rows, BY_POSITION: bool(of_table), BY_VALUE: mask.rows > len(of_table)}
            kinds = [(file.partition, kind) for kind, is_there in there_are.items() if is_there]
            if all(kind in self.rows or kind in found for kind in kinds):
                continue
            own = np.flatnonzero(numbers == number)
            is_deleted = mask.holds_each(offsets[own])
            for row in own[~is_deleted][:1].tolist():
                found.setdefault((file.partition, LIVE), row)
            for row in own[is_deleted][:MOST_TRIED].tolist():
                kind = BY_POSITION if int(offsets[row]) in of_table else BY_VALUE
                found.setdefault((file.partition, kind), row)
        return {row: kind for kind, row in found.items() if kind not in self.rows}


@dataclass(frozen=True)
class PlainTable:
    """The files that the snapshot does not need, and the dead entries in its own files."""

    extra_files: tuple[FileInfo, ...]
    dead_entries: int

    @property
    def equals_snapshot(self) -> bool:
        return not self.extra_files and not self.dead_entries

    def to_json(self) -> dict[str, object]:
        return {
            "equals_snapshot": self.equals_snapshot,
            "extra_files": [info.path for info in self.extra_files],
            "dead_entries": self.dead_entries,
        }


def plain_table(storage: Storage, view: View) -> PlainTable:
    """List the folder as engines do, and compare."""
    needed = {file.path for segment in view.segments for file in segment.by_bucket.values()}
    extra = tuple(info for info in storage.list() if info.path not in needed)
    dead = sum(mask.rows for mask in masks_of(view.segments).values())
    for segment in view.segments:
        folders = {view.spec.folder_of(file.partition) for file in segment.live.values()}
        gone = [file for i, file in enumerate(segment.source_files) if i in segment.dead]
        dead += sum(file.rows for file in gone if view.spec.folder_of(file.partition) in folders)
    return PlainTable(extra, dead)


# Errors that show a fault of a file. ArrowMemoryError, also an ArrowException, says nothing about the file.
FAILURES = (OSError, ShadowError, BTreeError, SourceError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowCapacityError)


@dataclass(frozen=True)
class Fault:
    """A fault: the file (whole path), the byte if known (in a source file, the `data_offset` of the row), what is
    wrong, and what to do. Faults that differ only in what to do are equal."""

    path: str
    offset: int | None
    what: str
    action: Action | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.path}{'' if self.offset is None else f' at {self.offset}'}: {self.what}"

    def to_json(self) -> dict[str, Any]:
        action = None if self.action is None else str(self.action)
        return {"path": self.path, "offset": self.offset, "what": self.what, "action": action}


def fault_of(error: Exception, path: str) -> Fault:
    """The fault of an error, at `path` where the error has no path."""
    if isinstance(error, GnomonError):
        return Fault(error.path or path, error.offset, " ".join(error.fault.split()), error.action)
    return Fault(path, None, " ".join(str(error).split()) or type(error).__name__)


@dataclass
class Report:
    """The report on one snapshot: the numbers of checked objects, and every fault. `page_maps` counts the source files
    whose page maps were read, `rows_compared` the rows read back from the source, by pointer or in a scan, and
    `appends` the records read. `not_covered` are files of the source that are not indexed yet, which is no fault;
    `unchecked` says what the source no longer has the metadata to check. `looked_up` counts the sampled keys that were
    looked up, in `partitions_looked_up` of `partitions`; `counted` is the number of live rows by the reader of a lake
    table, and `not_counted` says why there is none."""

    index: str
    snapshot: int | None = None
    index_files: int = 0
    entries: int = 0
    bytes: int = 0
    source_files: int = 0
    page_maps: int = 0
    rows_compared: int = 0
    appends: int = 0
    looked_up: int = 0
    partitions_looked_up: int = 0
    partitions: int = 0
    counted: int | None = None
    not_counted: str = ""
    faults: list[Fault] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    plain_table: PlainTable | None = None

    def add(self, fault: Fault) -> None:
        """Add a fault, unless the report has an equal one."""
        if fault not in self.faults:
            self.faults.append(fault)

    def merge(self, part: "Report") -> None:
        """Add the counts and faults of a part of the checks."""
        for name in ("index_files", "entries", "bytes", "rows_compared", "looked_up"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for fault in part.faults:
            self.add(fault)

    @property
    def actions(self) -> list[tuple[Action, int]]:
        """The actions to take, each once, with the number of faults that need it."""
        return list(Counter(fault.action for fault in self.faults if fault.action is not None).items())

    @property
    def is_sound(self) -> bool:
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "snapshot": self.snapshot,
            "sound": self.is_sound,
            "index_files": self.index_files,
            "entries": self.entries,
            "bytes": self.bytes,
            "source_files": self.source_files,
            "page_maps": self.page_maps,
            "rows_compared": self.rows_compared,
            "appends": self.appends,
            "looked_up": self.looked_up,
            "partitions_looked_up": self.partitions_looked_up,
            "partitions": self.partitions,
            "counted": self.counted,
            "not_counted": self.not_counted,
            "faults": [fault.to_json() for fault in self.faults],
            "not_covered": self.not_covered,
            "unchecked": self.unchecked,
            "plain_table": self.plain_table.to_json() if self.plain_table else None,
        }

"""The report of a verification."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.base.errors import GnomonError
from gnomon.shadow.errors import BTreeError, ShadowError, SourceError
from gnomon.shadow.verify.external_table import PlainTable

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

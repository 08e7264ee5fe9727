"""What a verification found."""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shadow.plain_table import PlainTable

# How errors of metadata and index files begin, and how the latter end.
_PLACE = re.compile(r"(?P<path>.+?)(?: at byte (?P<offset>\d+))?: (?P<what>.+)", re.DOTALL)
_CURE = re.compile(r"; [^;]*\b(?:rebuild|restore|run gnomon build)\b[^;]*$")


class Fault(NamedTuple):
    """Something that is not as it should be: the file (whole path), the byte where that is known (of a source file:
    the `data_offset` of the row), and what is wrong."""

    path: str
    offset: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.path}{'' if self.offset is None else f' at {self.offset}'}: {self.what}"


def fault_of(error: Exception, path: str) -> Fault:
    """The fault that an error tells of; at `path` where it names no place."""
    text = " ".join(_CURE.sub("", str(error)).split()) or type(error).__name__
    offset = getattr(error, "offset", None)
    match = _PLACE.fullmatch(text)
    if isinstance(error, OSError) or match is None or "/" not in match["path"]:
        return Fault(path, offset, text)
    return Fault(match["path"], int(match["offset"]) if match["offset"] else offset, match["what"])


@dataclass
class Report:
    """Of one snapshot: what was looked at, and every fault. `page_maps` were read, each those of one source file;
    `rows_compared` were read back from the source, by pointer or (of all) in a scan; `appends` are those whose
    records were read. `not_covered` are files of the source that are not indexed yet: no fault of the index."""

    index: str
    snapshot: int | None = None
    index_files: int = 0
    entries: int = 0
    bytes: int = 0
    source_files: int = 0
    page_maps: int = 0
    rows_compared: int = 0
    appends: int = 0
    faults: list[Fault] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    plain_table: PlainTable | None = None

    def add(self, fault: Fault) -> None:
        """Note a fault, once."""
        if fault not in self.faults:
            self.faults.append(fault)

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
            "faults": [fault._asdict() for fault in self.faults],
            "not_covered": self.not_covered,
            "plain_table": self.plain_table.to_json() if self.plain_table else None,
        }

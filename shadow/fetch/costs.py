"""The cost of an answer: reads, bytes and time."""

from dataclasses import asdict, dataclass, field
from typing import Any

from gnomon.btree.reader import LookupStats
from gnomon.shadow.storage import ReadStats, Trace


@dataclass
class FetchReads(ReadStats):
    """Reads of source files, and reads of their recorded page maps (`page_maps`), which lie in the index. `opened` has
    the files that rows were read from, each with its ctime in nanoseconds when it was opened, 0 on remote stores."""

    page_maps: ReadStats = field(default_factory=ReadStats)
    opened: dict[str, int] = field(default_factory=dict)

    def add(self, other: "FetchReads") -> None:
        """Add the counts of another fetch."""
        self.opened |= other.opened
        for mine, others in ((self, other), (self.page_maps, other.page_maps)):
            mine.reads += others.reads
            mine.bytes += others.bytes


@dataclass
class FetchStats:
    """The cost of an answer: the index look-up, the reads of the source and of its page maps, and microseconds of
    each. `trace`, if given, records each step."""

    snapshot: int = 0
    index: LookupStats = field(default_factory=LookupStats)
    source: FetchReads = field(default_factory=FetchReads)
    lookup_us: int = 0
    fetch_us: int = 0
    trace: Trace | None = None

    @property
    def source_files(self) -> int:
        """The number of source files that were read."""
        return len(self.source.opened)

    def to_json(self) -> dict[str, Any]:
        """The costs as a JSON object, with the steps of the trace, if there is one."""
        counts = {name: getattr(self, name) for name in ("snapshot", "source_files", "lookup_us", "fetch_us")}
        index = {name: value for name, value in vars(self.index).items() if name != "visits"}
        steps = {} if self.trace is None else {"steps": self.trace.to_json()}
        source = {name: value for name, value in asdict(self.source).items() if name != "opened"}
        return {**counts, "index": index, "source": source, **steps}

"""The cost of an answer: reads, bytes and time."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from gnomon.btree.reader import LookupStats
from gnomon.shadow.storage import Identity, ReadStats, Trace


@dataclass
class FetchReads(ReadStats):
    """Reads of source files, and reads of their recorded page maps (`page_maps`), which lie in the index. `opened` has
    the files that rows were read from, each with the identity that it had when it was opened."""

    page_maps: ReadStats = field(default_factory=ReadStats)
    opened: dict[str, Identity] = field(default_factory=dict)

    def add(self, other: "FetchReads") -> None:
        """Add the counts of another fetch."""
        self.opened |= other.opened
        for mine, others in ((self, other), (self.page_maps, other.page_maps)):
            mine.reads += others.reads
            mine.bytes += others.bytes


class TimedStep(NamedTuple):
    """A look-up or a fetch: its begin and its end (of `time.perf_counter_ns`) and what it cost, by names of counts."""

    step: str
    begin_ns: int
    end_ns: int
    counts: Mapping[str, int]


@dataclass
class FetchStats:
    """The cost of an answer: the index look-up, the reads of the source and of its page maps, and microseconds of
    each. `trace`, if given, records each step; `timed`, if given, each look-up and fetch as a whole."""

    snapshot: int = 0
    index: LookupStats = field(default_factory=LookupStats)
    source: FetchReads = field(default_factory=FetchReads)
    lookup_us: int = 0
    fetch_us: int = 0
    trace: Trace | None = None
    timed: list[TimedStep] | None = None

    def add_lookup(self, begin_ns: int) -> None:
        """Add a look-up that began then (of `time.perf_counter_ns`) and ends now."""
        end_ns = time.perf_counter_ns()
        self.lookup_us += (end_ns - begin_ns) // 1000
        if self.timed is not None:
            index = self.index
            counts = {"nodes": index.nodes, "filter_checks": index.filter_checks}
            self._time("lookup", begin_ns, end_ns, {**counts, "reads": index.reads, "bytes": index.bytes})

    def add_fetch(self, begin_ns: int) -> None:
        """Add a fetch that began then (of `time.perf_counter_ns`) and ends now."""
        end_ns = time.perf_counter_ns()
        self.fetch_us += (end_ns - begin_ns) // 1000
        if self.timed is not None:
            source, maps = self.source, self.source.page_maps
            read = {"reads": source.reads + maps.reads, "bytes": source.bytes + maps.bytes}
            self._time("fetch", begin_ns, end_ns, {"files": self.source_files, **read})

    def _time(self, step: str, begin_ns: int, end_ns: int, totals: Mapping[str, int]) -> None:
        """Record a step: its cost is what the totals have grown by since the one before."""
        assert self.timed is not None
        earlier = [one.counts for one in self.timed if one.step == step]
        counts = {name: total - sum(one[name] for one in earlier) for name, total in totals.items()}
        self.timed.append(TimedStep(step, begin_ns, end_ns, counts))

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

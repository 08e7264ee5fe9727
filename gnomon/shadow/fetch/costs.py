"""The cost of an answer (reads, bytes and time), its limits, and the errors of answers beyond them."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key
from gnomon.shadow.errors import BeyondBound
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


SHARE_BYTES = 16 << 20  # approximate size in memory of the rows that are read before they are counted
NUMBER_BYTES = 8  # of a value that is neither text nor bytes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Limits of a whole answer: rows, and bytes of their values in memory. None is no limit. `rows_before` and
    `bytes_before` count what the answer already has, if its keys are looked up in several queries."""

    rows: int | None = None
    bytes: int | None = None
    rows_before: int = 0
    bytes_before: int = 0

    def too_many_rows(self, matches: int, wanted: int, before: int) -> BeyondBound | None:
        """The error, if any, of adding a key to an answer. `matches` are the key's rows, `wanted` the requested ones,
        `before` the rows already in the answer."""
        most = self.rows
        if most is None or before + wanted <= most:
            return None
        if wanted > most:
            text = (
                f"the key has {matches:,} rows; an answer takes {most:,} at most: set a limit, or narrow it with where"
            )
        else:
            text = (
                f"the key has {matches:,} rows, and the keys before it {before:,}; an answer takes {most:,} at most: "
                "ask for fewer keys at a time"
            )
        return BeyondBound(text, "rows", most, matches)

    def too_many_bytes(self, matches: int, seen: tuple[int, int] | None = None) -> BeyondBound:
        """The error of a key whose rows alone exceed the limit. `seen` has the number of rows read, and their bytes."""
        most = self.bytes or 0
        some = f", {seen[0]:,} of which take {seen[1]:,} bytes" if seen is not None else ""
        text = (
            f"the key has {matches:,} rows{some}; an answer takes {most:,} bytes at most: ask for fewer columns, or "
            "set a limit"
        )
        return BeyondBound(text, "bytes", most, matches)

    def is_full(self, matches: int, held: int) -> BeyondBound:
        """The error of a key whose rows no longer fit into the answer."""
        most = self.bytes or 0
        text = (
            f"the rows of the keys before it take {held:,} bytes; an answer takes {most:,} at most: ask for fewer keys "
            "at a time"
        )
        return BeyondBound(text, "bytes", most, matches)


def bytes_of_rows(table: pa.Table) -> Ints:
    """The bytes that the values of each row take in memory."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        begin = 0
        for chunk in column.chunks:
            sizes[begin : begin + len(chunk)] += _sizes(chunk)
            begin += len(chunk)
    return sizes


def _sizes(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return NUMBER_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64) + NUMBER_BYTES
    return np.array([array.slice(row, 1).nbytes for row in range(len(array))], np.int64)


def bytes_of_key(values: Key) -> int:
    """The bytes that values in stored form take in memory."""
    return sum(len(value) if isinstance(value, (str, bytes)) else NUMBER_BYTES for value in values)

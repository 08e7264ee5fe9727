"""The steps of one request, with their times and bytes."""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnomon.base.readers import RangeReader

MOST_ALIKE = 8  # more similar steps than this are listed as one
NOT_SUMMED = ("answer", "level", "columns", "bucket")  # members of `own`


class Counted(Protocol):
    """A counter of reads and their bytes."""

    reads: int
    bytes: int


@dataclass
class Step:
    """A step: its file, by the path below the root of index or source, and the offset there; its ranged reads, or that
    it was `cached`; its begin, from the start of the trace, and its duration, both in microseconds. `own` has members
    of this kind of step. The times of concurrent steps overlap."""

    step: str
    file: str | None = None
    offset: int | None = None
    reads: int = 0
    bytes: int = 0
    cached: bool = False
    begin_us: int = 0
    microseconds: int = 0
    own: dict[str, Any] = field(default_factory=dict)

    def say(self, **own: Any) -> None:
        """Add members to `own`."""
        self.own.update(own)

    def to_json(self) -> dict[str, Any]:
        """The members, without those that are None."""
        members = {**{name: value for name, value in vars(self).items() if name != "own"}, **self.own}
        return {name: value for name, value in members.items() if value is not None}

    @property
    def likeness(self) -> tuple[object, ...]:
        """The members by which similar steps are grouped. They do not include path, bytes and time."""
        return (self.step, self.cached, *(self.own.get(name) for name in NOT_SUMMED))


class _Untraced(Step):
    """A step that is not recorded."""

    def say(self, **own: Any) -> None:
        pass


class Trace:
    """The steps of one request, timed from its start. Threads may share it."""

    def __init__(self) -> None:
        self._begin = time.perf_counter_ns()
        self._steps: list[Step] = []
        self._lock = threading.Lock()

    def add(self, step: Step, begin_ns: int, end_ns: int) -> None:
        """Add a step with these times of `time.perf_counter_ns`."""
        step.begin_us = max(begin_ns - self._begin, 0) // 1000
        step.microseconds = (end_ns - begin_ns) // 1000
        with self._lock:
            self._steps.append(step)

    @contextmanager
    def step(self, name: str, file: str | None, counted: Counted | None) -> Iterator[Step]:
        """Record the block as a step. Its cost is the growth of `counted`, which no other step may use at the same
        time. If `counted` does not grow, the step read from memory. A step that fails is recorded, too."""
        step, begin = Step(name, file), time.perf_counter_ns()
        before = (counted.reads, counted.bytes) if counted is not None else (0, 0)
        try:
            yield step
        finally:
            if counted is not None:
                step.reads, step.bytes = counted.reads - before[0], counted.bytes - before[1]
                step.cached = not step.reads
            self.add(step, begin, time.perf_counter_ns())

    @property
    def steps(self) -> list[Step]:
        """The steps in the order of their begins."""
        with self._lock:
            return sorted(self._steps, key=lambda step: step.begin_us)

    def to_json(self) -> list[dict[str, Any]]:
        """The steps as JSON objects. More than `MOST_ALIKE` similar steps become one in place of the first: `count` is
        their number, numbers are sums, and `end_us` is the end of the last."""
        alike: dict[tuple[object, ...], list[Step]] = {}
        for step in self.steps:
            alike.setdefault(step.likeness, []).append(step)
        objects = itertools.chain.from_iterable(
            [_folded(steps)] if len(steps) > MOST_ALIKE else [step.to_json() for step in steps]
            for steps in alike.values()
        )
        return sorted(objects, key=lambda step: step["begin_us"])


def _folded(steps: Sequence[Step]) -> dict[str, Any]:
    """Similar steps as one."""
    first, objects = steps[0], [step.to_json() for step in steps]
    same = {"step": first.step, "file": first.file, "cached": first.cached, "begin_us": first.begin_us}
    same |= {name: first.own.get(name) for name in NOT_SUMMED}
    if any(step.file != first.file for step in steps):
        del same["file"]
    summed = dict.fromkeys(name for one in objects for name in one if name not in {*same, "file", "offset"})
    sums = {name: sum(one.get(name, 0) for one in objects) for name in summed}
    end = max(step.begin_us + step.microseconds for step in steps)
    known = {name: value for name, value in same.items() if value is not None}
    return {**known, **sums, "count": len(steps), "end_us": end}


_UNTRACED = nullcontext[Step](_Untraced(""))


def step_of(
    trace: Trace | None, name: str, file: str | None = None, counted: Counted | None = None
) -> AbstractContextManager[Step]:
    """`Trace.step`, or an unrecorded step without a trace."""
    return _UNTRACED if trace is None else trace.step(name, file, counted)


class TracedReader:
    """An open file that records each round of reads as a step, and the decoding of the bytes as another, until
    `end`."""

    def __init__(self, trace: Trace, reader: RangeReader, file: str, counted: Counted, columns: int) -> None:
        self.name, self.size, self.is_remote = reader.name, reader.size, reader.is_remote
        self._trace, self._reader, self._file, self._counted, self._columns = trace, reader, file, counted, columns
        self._begin = self._decoding = 0
        self._since = time.perf_counter_ns()

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if not ranges:
            return []
        reads, size, begin = self._counted.reads, self._counted.bytes, time.perf_counter_ns()
        self._decoding += begin - self._since
        try:
            return self._reader.read_ranges(ranges)
        finally:
            step = Step("pages", self._file, min((offset for offset, _ in ranges), default=None))
            step.reads, step.bytes = self._counted.reads - reads, self._counted.bytes - size
            step.say(columns=self._columns, pages=len(ranges))
            self._since = time.perf_counter_ns()
            self._begin = self._begin or self._since
            self._trace.add(step, begin, self._since)

    def end(self, rows: int) -> None:
        """Record that the bytes read were decoded to a number of rows."""
        end = time.perf_counter_ns()
        self._decoding += end - self._since
        begin = self._begin or self._since
        if not self._begin:
            kept = {"columns": self._columns, "pages": 0}
            self._trace.add(Step("pages", self._file, cached=True, own=kept), begin, begin)
        self._trace.add(Step("decode", self._file, own={"rows": rows}), begin, begin + self._decoding)

"""Fetches in turns: each key goes to every contender before the next key, so that a slow phase of the machine slows all
of them. Every answer is compared with the others'."""

import gc
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.contenders import Answer, Contender, Row
from bench.lake import Keys, folder_bytes
from gnomon.commands.crawl import SCHEMA

SCAN_KEYS, SCAN_ABSENT_KEYS, SCAN_WARM_UP = 20, 10, 2  # numbers of keys for a contender that scans
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WrongRows(Exception):
    """A contender gave other rows than the others."""


class Cost(NamedTuple):
    """The cost of a contender's extra data."""

    seconds: float
    bytes: int


def cost_of(make: Callable[[], object], target: Path) -> Cost:
    """The cost to make `target`, which is replaced."""
    shutil.rmtree(target, ignore_errors=True)
    begin = time.perf_counter()
    make()
    return Cost(time.perf_counter() - begin, folder_bytes(target))


class Sample(NamedTuple):
    """One fetch."""

    ms: float
    bytes: int


@dataclass
class Line:
    """A contender on a source, and its measurements."""

    contender: type[Contender]
    workload: str  # its source by name
    title: str  # its source, described
    source: Path
    extra: Path  # the folder of the contender's extra data, if it needs any
    cost: Cost | None = None
    present: list[Sample] = field(default_factory=list)
    absent: list[Sample] = field(default_factory=list)

    @property
    def p50_ms(self) -> float:
        """The median of the fetches of present keys."""
        return statistics.median(sample.ms for sample in self.present)


def measure(lines: Sequence[Line], keys: Keys) -> None:
    """Fill the samples of all lines. WrongRows when two of them disagree. Closes all contenders at the end."""
    with ExitStack() as stack, _without_collection():
        opened = [stack.enter_context(closing(line.contender(line.source, line.extra))) for line in lines]
        for one in opened:
            one.prepare(keys.present)
        _in_turns(opened, [[] for _ in lines], keys.warm_up, 1, SCAN_WARM_UP)
        _in_turns(opened, [line.present for line in lines], keys.present, 1, SCAN_KEYS)
        with_absent = [(one, line.absent) for one, line in zip(opened, lines, strict=True) if not one.is_by_position]
        _in_turns(
            [one for one, _ in with_absent], [samples for _, samples in with_absent], keys.absent, 0, SCAN_ABSENT_KEYS
        )


@contextmanager
def _without_collection() -> Iterator[None]:
    """Excludes earlier objects from garbage collection, which would otherwise run again and again during fetches."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _in_turns(
    contenders: Sequence[Contender], samples: Sequence[list[Sample]], keys: Sequence[str], rows: int, scan_keys: int
) -> None:
    """Fetch each key from contender after contender, in another order each turn. With a fixed order, the contender
    after a scan would always be slowed by its effects. `rows` is the number of rows of a key."""
    for turn, key in enumerate(keys):
        expected: list[tuple[object, ...]] | None = None
        pairs = list(zip(contenders, samples, strict=True))
        random.Random(turn).shuffle(pairs)
        for contender, own in pairs:
            if contender.scans and not has_turn(turn, len(keys), scan_keys):
                continue
            sample, answer = _timed(contender, key)
            own.append(sample)
            if expected is None:
                expected = _comparable(answer.rows, contender.name)
                if len(expected) != rows:
                    raise WrongRows(f"{contender.name} gave {len(expected)} rows for {key}, expected {rows}")
            check_rows(contender.name, key, answer.rows, expected)


def has_turn(turn: int, turns: int, wanted: int) -> bool:
    """Whether a turn is one of `wanted` turns, which are spread evenly over all turns."""
    return turn * wanted % turns < wanted


def check_rows(name: str, key: str, rows: Sequence[Row], expected: Sequence[tuple[object, ...]]) -> None:
    """WrongRows unless the rows are the expected ones, with `crawl_ts` compared as an instant."""
    found = _comparable(rows, name)
    if found == expected:
        return
    if len(found) != len(expected):
        raise WrongRows(f"{name} gave {len(found)} rows for {key}, others {len(expected)}")
    for one, other in zip(found, expected, strict=True):
        for column, value, wanted in zip(SCHEMA.names, one, other, strict=True):
            if value != wanted:
                raise WrongRows(f"{name}, {key}: {column} is {value!r:.200}, others have {wanted!r:.200}")


def _comparable(rows: Sequence[Row], name: str) -> list[tuple[object, ...]]:
    for row in rows:
        if set(row) != set(SCHEMA.names):
            raise WrongRows(f"{name} gave the columns {', '.join(row)}, expected {', '.join(SCHEMA.names)}")
    return [
        tuple(instant(row[column]) if column == "crawl_ts" else row[column] for column in SCHEMA.names) for row in rows
    ]


def instant(value: Any) -> int:
    """Microseconds since 1970, from a number of them, ISO text, or a datetime, which is UTC by default."""
    if isinstance(value, int):
        return value
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return int(((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1))


def _timed(contender: Contender, key: str) -> tuple[Sample, Answer]:
    before, looking = bytes_read(contender.pid)
    begin = time.perf_counter_ns()
    answer = contender.fetch(key)
    took = time.perf_counter_ns() - begin
    counted = bytes_read(contender.pid)[0] - before
    if contender.pid == os.getpid():
        counted -= looking
    return Sample(took / 1e6, counted if answer.bytes is None else answer.bytes), answer


def bytes_read(pid: int) -> tuple[int, int]:
    """Bytes that a process has requested from the system, from disk or from memory, without those that it maps; and the
    bytes read to find this out, which count from now on."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split()[1]), len(text)

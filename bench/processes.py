"""CPU time of a Spark session on this machine, by process."""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PARENT, UTIME, CHILDREN_STIME, START = 1, 11, 14, 19  # fields of /proc/<pid>/stat after the name

# by process and its start time: an idle worker is ended, and no parent counts its time
_spent: dict[tuple[int, int], int] = {}


class Cpu(NamedTuple):
    """Seconds of CPU: of the JVM, and of all Python (the driver and the workers, also those that ended)."""

    jvm: float
    python: float

    def __sub__(self, other: Any) -> "Cpu":
        return Cpu(self.jvm - other.jvm, self.python - other.python)


def cpu_of(spark: SparkSession) -> Cpu:
    """The CPU time that a local session has used so far."""
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    stats = _stats()
    workers = _below(stats, jvm)
    for pid in workers:
        _spent[pid, stats[pid][START]] = sum(stats[pid][UTIME : CHILDREN_STIME + 1])
    return Cpu(
        sum(stats[jvm][UTIME : UTIME + 2]) / TICKS_PER_SECOND,
        time.process_time() + sum(_spent.values()) / TICKS_PER_SECOND,
    )


def _stats() -> dict[int, list[int]]:
    """The numbers of each process, in the order of the file; other fields are 0."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process ended
            continue
        stats[int(path.parent.name)] = [int(text) if text.lstrip("-").isdigit() else 0 for text in fields]
    return stats


def _below(stats: dict[int, list[int]], root: int) -> set[int]:
    """The processes that a process started, and all their descendants."""
    found: set[int] = set()
    more = {root}
    while more:
        more = {pid for pid, fields in stats.items() if fields[PARENT] in more} - found
        found |= more
    return found

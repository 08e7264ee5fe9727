"""The counts of a load."""

from dataclasses import dataclass
from typing import Protocol

from gnomon.shadow.lookup import MatchStats


class Counter(Protocol):
    """A sum, over the tasks of Spark (an Accumulator) or in this process (`Count`)."""

    @property
    def value(self) -> int: ...

    def add(self, term: int) -> None: ...


class Count:
    """A sum in this process. Threads may not share it."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, term: int) -> None:
        self.value += term


@dataclass
class LookupCounters:
    """Sums over the tasks of a join, complete once its result was computed; a retried task counts twice."""

    index_bytes: Counter  # bytes read of index files and Bloom filters
    files_spared: Counter  # ruled out by their Bloom filter; below, searches of other files in each way
    files_by_key: Counter
    files_by_leaf: Counter
    files_read_whole: Counter
    keys: Counter  # rows of the sample, and the rows that have an entry
    matched: Counter

    def add(self, stats: MatchStats) -> None:
        """Add the counts of a task."""
        self.index_bytes.add(stats.bytes)
        self.files_spared.add(stats.files_spared)
        self.files_by_key.add(stats.files_by_key)
        self.files_by_leaf.add(stats.files_by_leaf)
        self.files_read_whole.add(stats.files_read_whole)


@dataclass
class FetchCounters:
    """Sums over the tasks that fetch rows; a retried task counts twice."""

    source_bytes: Counter
    map_bytes: Counter
    rows: Counter
    unreadable: Counter
    tasks: Counter


@dataclass
class LoadCounters(LookupCounters, FetchCounters):
    """Sums over the tasks of a load, complete once its result was computed; a retried task counts twice."""

"""The metrics of one process: counts of requests, as plain numbers that one event loop adds to in some microseconds for
each request, and values that are read from memory for each scrape. A reader in another thread sees each number
whole."""

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gnomon.service.access import Tokens
from gnomon.service.api import Service
from gnomon.service.costs import Cost
from gnomon.service.indexes import ServedIndex
from gnomon.shadow import FetchStats

# Seconds: from an answer out of memory to the longest time a request usually has.
BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
BOUNDS = (*map(str, BUCKETS), "+Inf")
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
OTHER = "other"
PREFIX = "gnomon_"
# Name and text of what look-ups cost, in the order of `Lookups.numbers`.
COSTS = (
    ("lookups", "Keys that the service looked up in the index."),
    ("nodes", "B-Tree nodes that look-ups visited, in memory or in a file."),
    ("filter_checks", "Checks of a key against the Bloom filter of an index file."),
    ("index_reads", "Reads of index files and of their Bloom filters."),
    ("index_read_bytes", "Bytes read from index files and from their Bloom filters."),
    ("source_reads", "Reads of source files and of their page maps."),
    ("source_read_bytes", "Bytes read from source files and from their page maps."),
)
Labels = tuple[str, str, int, str]  # of a request: route, method, status, index
Values = Iterable[tuple[tuple[str, ...], float]]
# Of each cache of an index, in the order of `CacheCounts`: name, text, type.
OF_CACHES = (
    ("cache_hits", "Look-ups in a cache that found the entry.", "counter"),
    ("cache_misses", "Look-ups in a cache that did not find the entry and read a file.", "counter"),
    ("cache_bytes", "Bytes that a cache holds in memory.", "gauge"),
)


class Timing:
    """A histogram of durations: the number in each bucket, and their sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def put(self, family: Metric, labels: dict[str, str]) -> None:
        """Add the samples of the histogram to a family."""
        so_far = 0
        for bound, count in zip(BOUNDS, tuple(self.counts), strict=True):
            so_far += count
            family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, so_far)
        family.add_sample(f"{family.name}_count", labels, so_far)
        family.add_sample(f"{family.name}_sum", labels, self.seconds)


class _Requests:
    """The number of requests of one route, method, status and index. All requests of one route and index share a
    timing."""

    __slots__ = ("count", "timing")

    def __init__(self, timing: Timing) -> None:
        self.count = 0
        self.timing = timing


class Tallies(Collector):
    """The counters that grow when a request ends."""

    def __init__(self) -> None:
        self._requests: dict[Labels, _Requests] = {}
        self._timings: dict[tuple[str, str], Timing] = {}
        self._rejected: dict[str, int] = {}
        self._costs: dict[str, list[int]] = {}
        self._steps = {step: Timing() for step in ("lookup", "fetch", "encode")}
        self._lookup, self._fetch, self._encode = self._steps.values()

    def count(self, labels: Labels, seconds: float, cost: Cost, rejected: str | None) -> None:
        """Count a request that has ended."""
        requests = self._requests.get(labels)
        if requests is None:
            requests = self._new(*labels)
        requests.count += 1
        requests.timing.add(seconds)
        if rejected:
            self._rejected[rejected] = self._rejected.get(rejected, 0) + 1
        if cost.stats is not None:
            self._count_cost(labels[-1], cost.keys, cost.stats)
        if cost.encode_seconds is not None:
            self._encode.add(cost.encode_seconds)

    def _new(self, route: str, method: str, status: int, index: str) -> _Requests:
        timing = self._timings.setdefault((route, index), Timing())
        key = (route, method if method in METHODS else OTHER, status, index)
        return self._requests.setdefault(key, _Requests(timing))

    def _count_cost(self, index: str, keys: int, stats: FetchStats) -> None:
        of, source, maps = stats.index, stats.source, stats.source.page_maps
        read = (
            keys,
            of.nodes,
            of.filter_checks,
            of.reads,
            of.bytes,
            source.reads + maps.reads,
            source.bytes + maps.bytes,
        )
        numbers = self._costs.get(index)
        if numbers is None:
            numbers = self._costs.setdefault(index, [0] * len(COSTS))
        for place, number in enumerate(read):
            numbers[place] += number
        self._lookup.add(stats.lookup_us / 1e6)
        self._fetch.add(stats.fetch_us / 1e6)

    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels of each family."""
        return {
            f"{PREFIX}requests": ("route", "method", "status", "index"),
            f"{PREFIX}rejected": ("reason",),
            f"{PREFIX}request_seconds": ("route", "index"),
            f"{PREFIX}step_seconds": ("step",),
        } | {PREFIX + name: ("index",) for name, _ in COSTS}

    def collect(self) -> Iterable[Metric]:
        requests = Metric(f"{PREFIX}requests", "Requests that the service answered.", "counter")
        for (route, method, status, index), of in list(self._requests.items()):
            labels = {"route": route, "method": method, "status": str(status), "index": index}
            requests.add_sample(f"{PREFIX}requests_total", labels, of.count)
        yield requests
        rejected = Metric(f"{PREFIX}rejected", "Requests that the service refused, by reason.", "counter")
        for reason, count in list(self._rejected.items()):
            rejected.add_sample(f"{PREFIX}rejected_total", {"reason": reason}, count)
        yield rejected
        seconds = Metric(f"{PREFIX}request_seconds", "Seconds from a request to the end of its answer.", "histogram")
        for (route, index), timing in list(self._timings.items()):
            timing.put(seconds, {"route": route, "index": index})
        yield seconds
        steps = Metric(f"{PREFIX}step_seconds", "Seconds of a step of an answer: lookup, fetch or encode.", "histogram")
        for step, timing in self._steps.items():
            timing.put(steps, {"step": step})
        yield steps
        for place, (name, text) in enumerate(COSTS):
            family = Metric(PREFIX + name, text, "counter")
            for index, numbers in list(self._costs.items()):
                family.add_sample(f"{PREFIX}{name}_total", {"index": index}, numbers[place])
            yield family


@dataclass(frozen=True)
class Gauge:
    """A metric whose values, with their labels, are read at each scrape."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Values]
    type: str = "gauge"

    def family(self) -> Metric:
        family = Metric(self.name, self.text, self.type)
        sample = f"{self.name}_total" if self.type == "counter" else self.name
        for labels, value in self.read():
            family.add_sample(sample, dict(zip(self.labels, labels, strict=True)), float(value))
        return family


def _number(served: ServedIndex) -> float | None:
    return served.index.view.snapshot.number if served.is_open else None


def _age_seconds(served: ServedIndex) -> float | None:
    """None where the snapshot does not say when it was committed."""
    committed_at = served.index.view.snapshot.committed_at if served.is_open else ""
    if not committed_at:
        return None
    return max(0.0, (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(committed_at)).total_seconds())


# Of each index: name, text, and value; None where the index has no value yet.
OF_INDEXES: tuple[tuple[str, str, Callable[[ServedIndex], float | None]], ...] = (
    ("requests_waiting", "Requests that wait for a free thread of the index.", lambda s: s.threads.waiting),
    ("threads_running", "Threads of the index that work on a request.", lambda s: s.threads.running),
    ("threads_stuck", "Threads that wait for storage after their request was answered.", lambda s: s.threads.stuck),
    ("batches_waiting", "Batches that wait for a free thread of the index.", lambda s: s.batch_threads.waiting),
    ("batches_running", "Threads of the index that work on a batch.", lambda s: s.batch_threads.running),
    ("index_open", "1 if the index is open, 0 if it is not open yet.", lambda s: s.is_open),
    ("index_unreachable", "1 if the last check for a newer snapshot failed.", lambda s: s.unreachable is not None),
    ("snapshot_number", "Number of the snapshot that the service reads.", _number),
    ("snapshot_age_seconds", "Seconds since the served snapshot was committed.", _age_seconds),
    (
        "snapshot_refused",
        "1 if the newest snapshot cannot be opened, so that an older one is served.",
        lambda s: s.refused is not None,
    ),
    (
        "coverage_age_seconds",
        "Seconds since the service last listed the source.",
        lambda s: s.coverage.age_seconds if s.coverage is not None else None,
    ),
)


class Gauges(Collector):
    """All gauges. `dropped` returns the number of dropped lines of the log."""

    def __init__(
        self, service: Service, in_progress: Callable[[], int], dropped: Callable[[], int], tokens: Tokens
    ) -> None:
        self._indexes = indexes = service.indexes
        self.all: list[Gauge] = []

        def add(name: str, text: str, labels: tuple[str, ...], read: Callable[[], Values], kind: str = "gauge") -> None:
            self.all.append(Gauge(PREFIX + name, text, labels, read, kind))

        def memory() -> Values:
            return [(("bodies",), indexes.bodies.held), (("answers",), indexes.memory.held)]

        add("requests_in_progress", "Requests that have no answer yet.", (), lambda: [((), in_progress())])
        add("requests_memory_bytes", "Memory that requests hold, limited by memory_bytes.", ("kind",), memory)
        for name, text, read in OF_INDEXES:
            add(name, text, ("index",), partial(self._of_each, read))
        text = "Source files that were added, changed or removed since the snapshot was built."
        add("coverage_files", text, ("index", "state"), self._coverage)
        for place, (name, text, kind) in enumerate(OF_CACHES):
            add(name, text, ("index", "cache"), partial(self._of_caches, place), kind)
        text = "1 if the tokens file cannot be read, so that the earlier tokens stay valid."
        add("tokens_refused", text, (), lambda: [((), tokens.trouble is not None)])
        text = "Log lines that were dropped because too many lines waited to be written."
        add("log_dropped", text, (), lambda: [((), dropped())], "counter")
        text = "Always 1. The label `version` is the version of Gnomon."
        add("build_info", text, ("version",), lambda: [((version("gnomon-index"),), 1)])

    def collect(self) -> Iterable[Metric]:
        return [gauge.family() for gauge in self.all]

    def _of_each(self, read: Callable[[ServedIndex], float | None]) -> Values:
        """The value of each index that has one."""
        for served in self._indexes:
            value = read(served)
            if value is not None:
                yield (served.place.name,), value

    def _coverage(self) -> Values:
        for served in self._indexes:
            if (known := served.coverage) is not None:
                for state, files in (("new", known.new), ("changed", known.changed), ("vanished", known.vanished)):
                    yield (served.place.name, state), files

    def _of_caches(self, place: int) -> Values:
        for served in self._indexes:
            if served.is_open:
                for cache, counts in served.cache_counts().items():
                    yield (served.place.name, cache), counts[place]

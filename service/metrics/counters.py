"""Counts of requests, as plain numbers that one event loop adds to, in some microseconds for each request. A reader in
another thread sees each number whole."""

from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gnomon.service.costs import Cost
from gnomon.shadow import FetchStats

# Seconds: from an answer out of memory to the longest time a request usually has.
BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
BOUNDS = (*map(str, BUCKETS), "+Inf")
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
OTHER = "other"
PREFIX = "gnomon_"
# Name and text of what look-ups cost, in the order of `Lookups.numbers`.
COSTS = (
    ("lookups", "Keys that were looked up."),
    ("nodes", "B-Tree nodes visited."),
    ("filter_checks", "Keys checked against the Bloom filter of an index file."),
    ("index_reads", "Reads of index files and Bloom filters."),
    ("index_read_bytes", "Bytes of these reads."),
    ("source_reads", "Reads of source files and of their page maps."),
    ("source_read_bytes", "Bytes of these reads."),
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


Labels = tuple[str, str, int, str]  # of a request: route, method, status, index


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
        requests = Metric(f"{PREFIX}requests", "Requests that were answered.", "counter")
        for (route, method, status, index), of in list(self._requests.items()):
            labels = {"route": route, "method": method, "status": str(status), "index": index}
            requests.add_sample(f"{PREFIX}requests_total", labels, of.count)
        yield requests
        rejected = Metric(f"{PREFIX}rejected", "Requests the service refused to work on, by the reason.", "counter")
        for reason, count in list(self._rejected.items()):
            rejected.add_sample(f"{PREFIX}rejected_total", {"reason": reason}, count)
        yield rejected
        seconds = Metric(f"{PREFIX}request_seconds", "Time from a request to the end of its answer.", "histogram")
        for (route, index), timing in list(self._timings.items()):
            timing.put(seconds, {"route": route, "index": index})
        yield seconds
        steps = Metric(f"{PREFIX}step_seconds", "Time of a step of an answer: lookup, fetch, encode.", "histogram")
        for step, timing in self._steps.items():
            timing.put(steps, {"step": step})
        yield steps
        for place, (name, text) in enumerate(COSTS):
            family = Metric(PREFIX + name, text, "counter")
            for index, numbers in list(self._costs.items()):
                family.add_sample(f"{PREFIX}{name}_total", {"index": index}, numbers[place])
            yield family

"""What the service counts, in the text format of Prometheus. With several workers the sum of all, whichever is asked.

Labels have few values: routes are templates, methods and statuses are those of HTTP, indexes those of the settings."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.costs import Cost
from service.exchange import Row, Slot
from service.gauges import Gauges
from service.routes import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
WRITE_SECONDS = 1.0  # how old what a worker knows of another may be
# Seconds: from an answer out of memory to the longest time a request usually has.
BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
COUNTED = ("counter", "histogram")
Sample = tuple[str, tuple[tuple[str, str], ...]]  # name and labels
# What is no sum: the least or the greatest of all workers.
LEAST = frozenset({"gnomon_snapshot_number", "gnomon_index_open", "process_start_time_seconds", "process_max_fds"})
GREATEST = frozenset(
    {
        "gnomon_build_info",
        "gnomon_snapshot_age_seconds",
        "gnomon_snapshot_refused",
        "gnomon_index_unreachable",
        "gnomon_tokens_refused",
        "gnomon_coverage_files",
        "gnomon_coverage_age_seconds",
    }
)


class Metrics:
    """The counts of one app. `slot` is its place among several workers, None where it is alone."""

    def __init__(self, service: Service, slot: Slot | None, dropped: Callable[[], int]) -> None:
        self.in_progress = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._slot = slot
        self._before = slot.counts() if slot is not None else []
        self._publishing = threading.Lock()
        self._scrapes = ThreadPoolExecutor(1, "gnomon-scrape")
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None
        self._labels: dict[str, tuple[str, ...]] = {}
        counted = self._counted
        self._requests = counted("requests", "Requests that were answered.", ("route", "method", "status", "index"))
        self._rejected = counted("rejected", "Requests the service refused to work on, by the reason.", ("reason",))
        self._lookups = counted("lookups", "Keys that were looked up.", ("index",))
        self._nodes = counted("nodes", "B-Tree nodes visited.", ("index",))
        self._filter_checks = counted("filter_checks", "Keys checked against the filter of an index file.", ("index",))
        self._index_reads = counted("index_reads", "Reads of index files and key filters.", ("index",))
        self._index_bytes = counted("index_read_bytes", "Bytes of these reads.", ("index",))
        self._source_reads = counted("source_reads", "Reads of source files and of their page maps.", ("index",))
        self._source_bytes = counted("source_read_bytes", "Bytes of these reads.", ("index",))
        self._seconds = self._timed(
            "request_seconds", "Time from a request to the end of its answer.", "route", "index"
        )
        self._steps = self._timed("step_seconds", "Time of a step of an answer: lookup, fetch, encode.", "step")
        self._lookup, self._fetch, self._encode = (self._steps.labels(step) for step in ("lookup", "fetch", "encode"))
        self._of_request: dict[tuple[str, str, int, str], tuple[Counter, Histogram]] = {}
        self._gauges = Gauges(service, lambda: self.in_progress, dropped)
        self._registry.register(self._gauges)
        ProcessCollector(registry=self._registry)

    def _counted(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        self._labels[f"gnomon_{name}"] = labels
        return Counter(f"gnomon_{name}", text, labels, registry=self._registry)

    def _timed(self, name: str, text: str, *labels: str) -> Histogram:
        self._labels[f"gnomon_{name}"] = labels
        return Histogram(f"gnomon_{name}", text, labels, buckets=BUCKETS, registry=self._registry)

    def count(
        self, route: str, method: str, status: int, index: str, seconds: float, cost: Cost, rejected: str | None
    ) -> None:
        """A request has ended."""
        key = (route, method if method in METHODS else "other", status, index)
        children = self._of_request.get(key)
        if children is None:
            children = self._requests.labels(*key), self._seconds.labels(route, index)
            self._of_request[key] = children
        children[0].inc()
        children[1].observe(seconds)
        if rejected:
            self._rejected.labels(rejected).inc()
        if cost.stats is not None:
            self._count_cost(index, cost)
        if cost.encode_seconds is not None:
            self._encode.observe(cost.encode_seconds)

    def _count_cost(self, index: str, cost: Cost) -> None:
        stats = cost.stats
        assert stats is not None
        source, maps = stats.source, stats.source.page_maps
        self._lookups.labels(index).inc(cost.keys)
        self._nodes.labels(index).inc(stats.index.nodes)
        self._filter_checks.labels(index).inc(stats.index.filter_checks)
        self._index_reads.labels(index).inc(stats.index.reads)
        self._index_bytes.labels(index).inc(stats.index.bytes)
        self._source_reads.labels(index).inc(source.reads + maps.reads)
        self._source_bytes.labels(index).inc(source.bytes + maps.bytes)
        self._lookup.observe(stats.lookup_us / 1e6)
        self._fetch.observe(stats.fetch_us / 1e6)

    def start(self) -> None:
        """Let other workers know these counts, from now on."""
        if self._slot is not None:
            self._published()
            self._writer = threading.Thread(target=self._keep_publishing, name="gnomon-metrics", daemon=True)
            self._writer.start()

    def stop(self) -> None:
        """The last counts of this worker; its gauges count no more when it has ended."""
        self._stop.set()
        self._published()

    def _keep_publishing(self) -> None:
        while not self._stop.wait(WRITE_SECONDS):
            self._published()

    def text(self) -> bytes:
        """All samples of all workers. Quick, but not for an event loop: a thousand samples take some milliseconds."""
        families = self._published()  # before they are told: what was told once is never told smaller by another worker
        rows = [row for family in families for row in _rows(family)] + self._before
        if self._slot is not None:
            rows += self._slot.of_others()
        summed = _summed(rows)
        told = [_with_samples(family, summed.get(family.name, {})) for family in families]
        return generate_latest(_Told([*told, self._restarts()]))

    async def answer(self) -> bytes:
        """`text`, in a thread that no request for rows waits for."""
        return await asyncio.get_running_loop().run_in_executor(self._scrapes, self.text)

    def table(self) -> str:
        """The metrics as the Markdown table of `docs/observability.md`."""
        labels_of = self._labels | {gauge.name: gauge.labels for gauge in self._gauges.all}
        lines = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
        for family in [*self._registry.collect(), self._restarts()]:
            if family.name.startswith("gnomon_"):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = ", ".join(f"`{label}`" for label in labels_of.get(family.name, ()))
                lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
        return "\n".join(lines) + "\n"

    def _restarts(self) -> Metric:
        """Of the parent of the workers, so no sum of theirs."""
        family = Metric("gnomon_worker_restarts", "Workers that ended unasked and were replaced.", "counter")
        family.add_sample("gnomon_worker_restarts_total", {}, self._slot.restarts() if self._slot is not None else 0)
        return family

    def _published(self) -> list[Metric]:
        """The samples of this process, which the other workers can read from here on."""
        with self._publishing:
            families = list(self._registry.collect())
            if self._slot is not None:
                counts = [row for family in families if family.type in COUNTED for row in _rows(family)]
                gauges = [row for family in families if family.type not in COUNTED for row in _rows(family)]
                summed = _summed(counts + self._before)
                whole = [(family, *sample, value) for family, of in summed.items() for sample, value in of.items()]
                self._slot.write(whole, gauges)
            return families


class _Told(Collector):
    """Families that are there already, as `generate_latest` wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _rows(family: Metric) -> Iterable[Row]:
    for sample in family.samples:
        if not sample.name.endswith("_created"):  # when a counter began: the sum of several has no such time
            yield family.name, sample.name, tuple(sample.labels.items()), sample.value


def _summed(rows: Iterable[Row]) -> dict[str, dict[Sample, float]]:
    """Samples by family, those of the same labels in one; in the order they came first."""
    summed: dict[str, dict[Sample, float]] = {}
    for family, name, labels, value in rows:
        of, sample = summed.setdefault(family, {}), (name, labels)
        if sample not in of:
            of[sample] = value
        elif family in LEAST:
            of[sample] = min(of[sample], value)
        else:
            of[sample] = max(of[sample], value) if family in GREATEST else of[sample] + value
    return summed


def _with_samples(family: Metric, samples: dict[Sample, float]) -> Metric:
    whole = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in samples.items():
        whole.add_sample(name, dict(labels), value)
    return whole

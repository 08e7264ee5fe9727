"""The metrics of the service in the text format of Prometheus. Any worker answers with the sum over all workers.

Labels have few values: route templates, HTTP methods and statuses, the indexes of the settings."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gnomon.service.access import Tokens
from gnomon.service.api import Service
from gnomon.service.metrics.collectors import PREFIX, Gauges, Tallies
from gnomon.service.metrics.multiprocess import Row, Slot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WRITE_SECONDS = 1.0  # between two times that a worker publishes its samples
COUNTED = ("counter", "histogram")
Sample = tuple[str, tuple[tuple[str, str], ...]]  # name and labels
# Families that are not summed: the least or the greatest value of all workers counts.
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
    """The metrics of one app. `slot` is its place among several workers; None for a single process."""

    def __init__(
        self,
        service: Service,
        slot: Slot | None,
        dropped: Callable[[], int],
        tokens: Tokens,
        more: Iterable[Collector] = (),
    ) -> None:
        self.in_progress = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._slot = slot
        self._publishing = threading.Lock()
        self._scrapes = ThreadPoolExecutor(1, "gnomon-scrape")
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None
        self._tallies = Tallies()
        self.count = self._tallies.count
        self._gauges = Gauges(service, lambda: self.in_progress, dropped, tokens)
        for collector in (self._tallies, self._gauges, *more):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def start(self) -> None:
        """Begin to publish the samples to the other workers, at intervals; also after `stop`."""
        self._stop = threading.Event()
        self._scrapes = ThreadPoolExecutor(1, "gnomon-scrape")
        if self._slot is not None:
            self._published()
            target, name = self._keep_publishing, "gnomon-metrics"
            self._writer = threading.Thread(target=target, args=(self._stop,), name=name, daemon=True)
            self._writer.start()

    def stop(self) -> None:
        """Publish the last counts of this worker. Its gauges no longer count when it has ended."""
        self._stop.set()
        self._published()
        self._scrapes.shutdown(wait=False)

    def _keep_publishing(self, stop: threading.Event) -> None:
        while not stop.wait(WRITE_SECONDS):
            self._published()

    def text(self) -> bytes:
        """All samples of all workers. Quick, but not for an event loop: a thousand samples take some milliseconds."""
        families = self._published()  # published first: no worker may answer later with smaller counts
        rows = [row for family in families for row in _rows(family)]
        if self._slot is not None:
            rows += self._slot.of_others()
        summed = _summed(rows)
        told = [_with_samples(family, summed.get(family.name, {})) for family in families]
        return generate_latest(_Told([*told, self._restarts()]))

    async def answer(self) -> bytes:
        """`text`, made in a thread that no request for rows uses."""
        return await asyncio.get_running_loop().run_in_executor(self._scrapes, self.text)

    def table(self) -> str:
        """The metrics as the Markdown table of `docs/operations/observability.md`."""
        labels_of = self._tallies.labels() | {gauge.name: gauge.labels for gauge in self._gauges.all}
        lines = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
        for family in [*self._registry.collect(), self._restarts()]:
            if family.name.startswith(PREFIX):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = ", ".join(f"`{label}`" for label in labels_of.get(family.name, ()))
                lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
        return "\n".join(lines) + "\n"

    def _restarts(self) -> Metric:
        """The number of restarts. The parent of the workers counts them, so they are not summed."""
        family = Metric(
            "gnomon_worker_restarts", "Workers that ended unexpectedly or hung, and were replaced.", "counter"
        )
        family.add_sample("gnomon_worker_restarts_total", {}, self._slot.restarts() if self._slot is not None else 0)
        return family

    def _published(self) -> list[Metric]:
        """Publish the samples of this process to the other workers, and return them."""
        with self._publishing:
            families = list(self._registry.collect())
            if self._slot is not None:
                counts = [row for family in families if family.type in COUNTED for row in _rows(family)]
                gauges = [row for family in families if family.type not in COUNTED for row in _rows(family)]
                self._slot.write(counts, gauges)
            return families


class _Told(Collector):
    """Families that were collected already, in the form that `generate_latest` needs."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _rows(family: Metric) -> Iterable[Row]:
    for sample in family.samples:
        yield family.name, sample.name, tuple(sample.labels.items()), sample.value


def _summed(rows: Iterable[Row]) -> dict[str, dict[Sample, float]]:
    """Samples by family, with equal labels summed, in the order of their first sample."""
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

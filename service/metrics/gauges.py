"""Metrics that are read for each scrape, all from memory."""

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gnomon.service.access import Tokens
from gnomon.service.api import Service
from gnomon.service.indexes import ServedIndex

Values = Iterable[tuple[tuple[str, ...], float]]


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
            family.add_sample(sample, dict(zip(self.labels, labels, strict=True)), value)
        return family


class Gauges(Collector):
    """All gauges. `dropped` returns the number of dropped lines of the log."""

    def __init__(
        self, service: Service, in_progress: Callable[[], int], dropped: Callable[[], int], tokens: Tokens
    ) -> None:
        self._service = service
        self.all = [
            Gauge(
                "gnomon_requests_in_progress", "Requests that are not answered yet.", (), lambda: [((), in_progress())]
            ),
            Gauge(
                "gnomon_requests_memory_bytes",
                "Memory that requests hold, of memory_bytes.",
                ("kind",),
                lambda: [
                    (("bodies",), service.indexes.bodies.held),
                    (("answers",), service.indexes.memory.held),
                ],
            ),
            *self._of_threads(),
            *self._of_indexes(),
            *self._of_caches(),
            Gauge(
                "gnomon_tokens_refused",
                "1 while the tokens file cannot be read and earlier tokens stay valid.",
                (),
                lambda: [((), tokens.trouble is not None)],
            ),
            Gauge(
                "gnomon_log_dropped",
                "Log lines that were dropped, because too many waited to be written.",
                (),
                lambda: [((), dropped())],
                "counter",
            ),
            Gauge(
                "gnomon_build_info",
                "Always 1; its label has the version of Gnomon.",
                ("version",),
                lambda: [((version("gnomon-index"),), 1)],
            ),
        ]

    def collect(self) -> Iterable[Metric]:
        return [gauge.family() for gauge in self.all]

    def _each(self, read: Callable[[ServedIndex], float | None]) -> Callable[[], Values]:
        """The value of each index that has one."""

        def values() -> Values:
            for served in self._service.indexes:
                value = read(served)
                if value is not None:
                    yield (served.place.name,), value

        return values

    def _of_threads(self) -> list[Gauge]:
        each, index = self._each, ("index",)
        return [
            Gauge(
                "gnomon_requests_waiting", "Requests that wait for a thread.", index, each(lambda s: s.threads.waiting)
            ),
            Gauge(
                "gnomon_threads_running", "Threads that work for a request.", index, each(lambda s: s.threads.running)
            ),
            Gauge(
                "gnomon_threads_stuck",
                "Threads that still wait for storage after their request was answered.",
                index,
                each(lambda s: s.threads.stuck),
            ),
            Gauge(
                "gnomon_batches_waiting",
                "Batches that wait for a thread.",
                index,
                each(lambda s: s.batch_threads.waiting),
            ),
            Gauge(
                "gnomon_batches_running",
                "Threads that work for a batch.",
                index,
                each(lambda s: s.batch_threads.running),
            ),
        ]

    def _of_indexes(self) -> list[Gauge]:
        each, index = self._each, ("index",)
        return [
            Gauge("gnomon_index_open", "1 when the index is open, 0 before.", index, each(lambda s: s.is_open)),
            Gauge(
                "gnomon_index_unreachable",
                "1 while checks for a newer snapshot fail.",
                index,
                each(lambda s: s.unreachable is not None),
            ),
            Gauge("gnomon_snapshot_number", "The snapshot that is served.", index, each(_number)),
            Gauge(
                "gnomon_snapshot_age_seconds",
                "Seconds since the served snapshot was committed.",
                index,
                each(_age_seconds),
            ),
            Gauge(
                "gnomon_snapshot_refused",
                "1 while the newest snapshot cannot be opened and an older one is served.",
                index,
                each(lambda s: s.refused is not None),
            ),
            Gauge(
                "gnomon_coverage_files",
                "Source files that the snapshot does not cover in their present state.",
                ("index", "state"),
                self._coverage,
            ),
            Gauge(
                "gnomon_coverage_age_seconds",
                "Seconds since the source was last listed.",
                index,
                each(lambda s: s.coverage.age_seconds if s.coverage is not None else None),
            ),
        ]

    def _coverage(self) -> Values:
        for served in self._service.indexes:
            if (known := served.coverage) is not None:
                for state, files in (("new", known.new), ("changed", known.changed), ("vanished", known.vanished)):
                    yield (served.place.name, state), files

    def _of_caches(self) -> list[Gauge]:
        def each(place: int) -> Callable[[], Values]:
            def values() -> Values:
                for served in self._service.indexes:
                    if served.is_open:
                        for cache, counts in served.cache_counts().items():
                            yield (served.place.name, cache), counts[place]

            return values

        labels = ("index", "cache")
        return [
            Gauge(
                "gnomon_cache_hits", "Look-ups in a cache that found what they looked for.", labels, each(0), "counter"
            ),
            Gauge(
                "gnomon_cache_misses",
                "Look-ups in a cache that found nothing; the service then read a file.",
                labels,
                each(1),
                "counter",
            ),
            Gauge("gnomon_cache_bytes", "Bytes in a cache.", labels, each(2)),
        ]


def _number(served: ServedIndex) -> float | None:
    return served.index.view.snapshot.number if served.is_open else None


def _age_seconds(served: ServedIndex) -> float | None:
    """None where the snapshot does not say when it was committed."""
    committed_at = served.index.view.snapshot.committed_at if served.is_open else ""
    if not committed_at:
        return None
    return max(0.0, (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(committed_at)).total_seconds())

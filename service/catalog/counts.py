"""Counts of plans, for the metrics and for `/readyz`."""

import logging
from collections import Counter
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gnomon.service.catalog.planning import FULL, Plan

PREFIX = "gnomon_catalog_"
TOTALS = (
    ("plans", "Plans of scans, and further ranges of plans."),
    ("live_files", "Live files of the snapshots that were planned."),
    ("planned_files", "Files that these plans named."),
)
UNUSED = "Plans that did not ask an index of their table, by the reason."

logger = logging.getLogger("gnomon.service")


class PlanCounts(Collector):
    """The counters of plans. For one event loop; a reader in another thread sees each number whole."""

    labels = {PREFIX + name: () for name, _ in TOTALS} | {f"{PREFIX}index_unused": ("index", "reason")}

    def __init__(self) -> None:
        self._totals = dict.fromkeys([name for name, _ in TOTALS], 0)
        self._unused: Counter[tuple[str, str]] = Counter()
        self.trouble: dict[str, str] = {}  # by index: why it is not used for any plan

    def add(self, plan: Plan) -> None:
        """Count a plan."""
        for name, number in zip(self._totals, (1, plan.live, plan.planned), strict=True):
            self._totals[name] += number
        for index in plan.indexes:
            self.trouble.pop(index, None)
        for index, (reason, why) in plan.unused.items():
            self.add_unused(index, reason, why)

    def add_unused(self, index: str, reason: str, why: str) -> None:
        """Count that an index was not asked. The first time that it cannot be used at all is logged."""
        self._unused[index, reason] += 1
        if reason not in FULL and self.trouble.get(index) != why:
            self.trouble[index] = why
            logger.warning("index %s is not used, plans name all files: %s", index, why)

    def collect(self) -> Iterable[Metric]:
        for name, text in TOTALS:
            family = Metric(PREFIX + name, text, "counter")
            family.add_sample(f"{PREFIX}{name}_total", {}, self._totals[name])
            yield family
        unused = Metric(f"{PREFIX}index_unused", UNUSED, "counter")
        for (index, reason), number in list(self._unused.items()):
            unused.add_sample(f"{PREFIX}index_unused_total", {"index": index, "reason": reason}, number)
        yield unused

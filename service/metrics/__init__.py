"""Metrics of requests, indexes and processes, for Prometheus.

- `exposition`    `/metrics`
- `collectors`    the metrics of one process
- `multiprocess`  the samples of several worker processes, summed
- `observe`       the outermost layer: ids, counts and log lines of requests
"""

from gnomon.service.metrics.exposition import CONTENT_TYPE, Metrics
from gnomon.service.metrics.multiprocess import Exchange, Slot
from gnomon.service.metrics.observe import Following, WatchedApp

__all__ = [
    "CONTENT_TYPE",
    "Exchange",
    "Following",
    "Metrics",
    "Slot",
    "WatchedApp",
]

"""Iceberg's REST catalog protocol, with scans planned through indexes.

- `application`    the routes: all of the protocol passed on, and the plans
- `upstream`       the catalog behind this one
- `local_catalog`  a catalog of pyiceberg's configuration behind this one
- `planning`       the plan of a scan: which files a filter needs
- `filters`        filters of the protocol, and the keys that they name
- `pruning`        files left out by their partitions and statistics
- `tasks`          scan tasks in the JSON of the protocol
- `counts`         counts of plans, for metrics
"""

from gnomon.service.catalog.application import CatalogRoutes
from gnomon.service.catalog.counts import PlanCounts

__all__ = ["CatalogRoutes", "PlanCounts"]

"""Jobs in this process, without Spark.

- `engine`  builds
"""

from gnomon.jobs.local.engine import LocalEngine, has_spark

__all__ = ["LocalEngine", "has_spark"]

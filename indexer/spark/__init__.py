"""Spark: sessions, versions, types, keys, tasks and their errors.

- `tasks`     Gnomon in the tasks of Spark: its code, the open index of a worker, errors
- `versions`  differences between versions of Spark
- `session`   a Spark session, the progress of its jobs, and separate plans of scans (`OwnScans.java`)
- `types`     columns in Spark's types
- `keys`      keys in DataFrames
- `arrow_tasks` functions over Arrow batches in tasks, and what they count
"""

from gnomon.indexer.spark.arrow_tasks import JobCounters, map_batches, map_batches_counted, with_column_counted
from gnomon.indexer.spark.keys import column, quoted, route, to_buckets, with_keys
from gnomon.indexer.spark.session import (
    is_this_machine,
    keep_scans_apart,
    local_session,
    made_active,
    named_jobs,
    spark_stage,
)
from gnomon.indexer.spark.tasks import (
    SPARK_ERRORS,
    WAIT_SECONDS,
    AtSnapshot,
    ExecutorsUnfit,
    check_executors,
    context_of,
    cores_of,
    handing_over,
    hands_errors_over,
    open_in_worker,
    ship,
    task_errors,
    this_task,
)
from gnomon.indexer.spark.types import (
    arrow_of,
    arrow_schema,
    as_frame,
    as_spark,
    key_spark_type,
    source_types,
    spark_type,
    spark_types,
)
from gnomon.indexer.spark.versions import (
    AVRO,
    AVRO_PACKAGE,
    HAS_SOURCES,
    VARIANTS,
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    ReadColumn,
    check_sources,
    has_avro,
    rebalanced,
    with_column_in_arrow,
    with_read_columns,
)

__all__ = [
    "AVRO",
    "AVRO_PACKAGE",
    "HAS_SOURCES",
    "SPARK_ERRORS",
    "VARIANTS",
    "WAIT_SECONDS",
    "AtSnapshot",
    "DataSource",
    "DataSourceReader",
    "DataSourceWriter",
    "ExecutorsUnfit",
    "InputPartition",
    "JobCounters",
    "ReadColumn",
    "arrow_of",
    "arrow_schema",
    "as_frame",
    "as_spark",
    "check_executors",
    "check_sources",
    "column",
    "context_of",
    "cores_of",
    "handing_over",
    "hands_errors_over",
    "has_avro",
    "is_this_machine",
    "keep_scans_apart",
    "key_spark_type",
    "local_session",
    "made_active",
    "map_batches",
    "map_batches_counted",
    "named_jobs",
    "open_in_worker",
    "quoted",
    "rebalanced",
    "route",
    "ship",
    "source_types",
    "spark_stage",
    "spark_type",
    "spark_types",
    "task_errors",
    "this_task",
    "to_buckets",
    "with_column_counted",
    "with_column_in_arrow",
    "with_keys",
    "with_read_columns",
]

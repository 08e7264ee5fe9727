"""Spark: sessions, versions, types, tasks and their errors.

- `session`           a Spark session
- `versions`          differences between versions of Spark
- `types`             columns in Spark's types
- `tasks`             the open index of a Python worker
- `task_errors`       errors of tasks, handed to the driver
- `executor_package`  Gnomon's code for the executors of a cluster
- `progress`          the progress of a job
- `scan_isolation`    Spark's plans of a Python source, kept apart (`OwnScans.java`)
"""

from gnomon.indexer.spark.executor_package import WAIT_SECONDS, check_executors, ship
from gnomon.indexer.spark.progress import spark_stage
from gnomon.indexer.spark.scan_isolation import keep_scans_apart, made_active
from gnomon.indexer.spark.session import is_this_machine, local_session
from gnomon.indexer.spark.task_errors import (
    SPARK_ERRORS,
    as_raised,
    handing_over,
    hands_errors_over,
)
from gnomon.indexer.spark.tasks import AtSnapshot, open_in_worker
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
    ClassicDataFrame,
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
    "ClassicDataFrame",
    "DataSource",
    "DataSourceReader",
    "DataSourceWriter",
    "InputPartition",
    "ReadColumn",
    "arrow_of",
    "arrow_schema",
    "as_frame",
    "as_raised",
    "as_spark",
    "check_executors",
    "check_sources",
    "handing_over",
    "hands_errors_over",
    "has_avro",
    "is_this_machine",
    "keep_scans_apart",
    "key_spark_type",
    "local_session",
    "made_active",
    "open_in_worker",
    "rebalanced",
    "ship",
    "source_types",
    "spark_stage",
    "spark_type",
    "spark_types",
    "with_column_in_arrow",
    "with_read_columns",
]

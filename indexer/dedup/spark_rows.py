"""The rows of a batch as a DataFrame: Spark's tasks check them, and write the new ones."""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import AtomicType, StructType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.check import with_status
from gnomon.indexer.dedup.row_digest import row_hash, rows_digest
from gnomon.indexer.dedup.staging import stage
from gnomon.indexer.join import lookup_counters
from gnomon.indexer.keys import column
from gnomon.indexer.spark import AtSnapshot, arrow_of, as_frame, spark_stage
from gnomon.indexer.tables import arrow_schema, first_columns, source_columns
from gnomon.jobs import Stages
from gnomon.jobs.dedup import DIGEST, NULLS, Staged, Staging
from gnomon.jobs.load import KEY_PREFIX, LookupCounters, key_names
from gnomon.shadow import Index
from gnomon.shadow.metadata import IndexSpec

ORDER_PREFIX = f"{KEY_PREFIX}order_"


class SparkRows:
    """A DataFrame as the rows of a batch."""

    def __init__(self, spark: SparkSession, batch: object) -> None:
        self.spark = spark
        self.batch = as_frame(spark, batch, "batch")
        self.engine = SparkEngine(spark)

    @cached_property
    def columns(self) -> Mapping[str, str | None]:
        kinds = {one.name: one.dataType for one in self.batch.schema}
        return {name: None if isinstance(kind, AtomicType) else kind.simpleString() for name, kind in kinds.items()}

    @property
    def schema(self) -> pa.Schema:
        return _arrow(self.batch.schema)

    def check_columns(self, index: Index) -> None:
        source_columns(self.spark, self.batch.schema, index)

    def _as_source(self, index: Index | None, spec: IndexSpec) -> list[Column]:
        if index is None:
            return first_columns(self.batch.schema, spec)
        return source_columns(self.spark, self.batch.schema, index)

    def as_source(self, index: Index | None, spec: IndexSpec) -> pa.Schema:
        columns = self._as_source(index, spec)
        if index is not None and index.view.covered:  # files of the source give the columns their types
            return pa.schema([])
        return _arrow(self.batch.select(*columns).schema)

    def reported(self, index: Index) -> pa.Schema:
        return arrow_schema(self.batch.select(*self._as_source(index, index.spec)).schema)

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        with spark_stage(stages, self.spark, "compare with the known batch"):
            return rows_digest(self.batch, partitions)

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        spec, check = staging.spec, staging.check
        at = None if staging.index is None else AtSnapshot.of(staging.index)
        columns = self._as_source(staging.index, spec)
        names = self.batch.select(*columns).columns
        order = [(f"{ORDER_PREFIX}{i}", down) for i, (_, down) in enumerate(check.order)]  # of the batch's own columns
        ordered = [column(name).alias(ours) for (name, _), (ours, _) in zip(check.order, order, strict=True)]
        rows = self.batch.select(*columns, row_hash(self.batch, spec.partitions).alias(DIGEST), *ordered)
        checked = with_status(rows, spec, at, type(check)(check.scope, order, check.null_keys), self._counters)
        has_null = reduce(or_, [column(name).isNull() for name in key_names(spec)])
        with spark_stage(stages, self.spark, "check and write"):
            return stage(
                checked.withColumn(NULLS, has_null),
                names,
                staging.layout,
                staging.folder,
                staging.name,
                staging.rejected,
            )

    @cached_property
    def _counters(self) -> LookupCounters:
        return lookup_counters(self.spark)

    @property
    def index_bytes_read(self) -> int:
        return self._counters.index_bytes.value


def _arrow(schema: StructType) -> pa.Schema:
    return pa.schema([pa.field(one.name, arrow_of(one.dataType)) for one in schema])

"""The rows of a batch as a DataFrame: Spark's tasks check them, and write the new ones."""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import AtomicType, StructType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.check import with_status
from gnomon.indexer.dedup.row_digest import row_hash, rows_digest
from gnomon.indexer.dedup.staging import stage
from gnomon.indexer.join import lookup_counters
from gnomon.indexer.keys import column
from gnomon.indexer.spark import AtSnapshot, arrow_of, as_frame, spark_stage
from gnomon.indexer.tables import SourceCast, arrow_schema, first_cast, source_cast
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
        source_cast(self.spark, self.batch.schema, index)

    def _cast(self, index: Index | None, spec: IndexSpec) -> SourceCast:
        schema = self.batch.schema
        return first_cast(schema, spec) if index is None else source_cast(self.spark, schema, index)

    def as_source(self, index: Index | None, spec: IndexSpec) -> pa.Schema:
        cast = self._cast(index, spec)
        if index is not None and index.view.covered:  # files of the source give the columns their types
            return pa.schema([])
        return _arrow(cast.columns)

    def reported(self, index: Index) -> pa.Schema:
        return arrow_schema(self._cast(index, index.spec).columns)

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        with spark_stage(stages, self.spark, "compare with the known batch"):
            return rows_digest(self.batch, partitions)

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        spec, check = staging.spec, staging.check
        at = None if staging.index is None else AtSnapshot.of(staging.index)
        cast = self._cast(staging.index, spec)
        order = [(f"{ORDER_PREFIX}{i}", down) for i, (_, down) in enumerate(check.order)]  # of the batch's own columns
        ordered = [column(name).alias(ours) for (name, _), (ours, _) in zip(check.order, order, strict=True)]
        digest = row_hash(self.batch, spec.partitions).alias(DIGEST)
        rows = cast.with_texts(self.batch).select(*cast.selected(), digest, *ordered)
        checked = with_status(rows, spec, at, type(check)(check.scope, order, check.null_keys), self._counters)
        has_null = reduce(or_, [column(name).isNull() for name in key_names(spec)])
        with spark_stage(stages, self.spark, "check and write"):
            return stage(
                checked.withColumn(NULLS, has_null),
                cast.columns.names,
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

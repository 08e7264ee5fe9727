"""The rows of a batch as a DataFrame: Spark's tasks check them, and write the new ones."""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.check import arrow_types, with_status, with_texts
from gnomon.indexer.dedup.staging import stage
from gnomon.indexer.join import lookup_counters
from gnomon.indexer.keys import column
from gnomon.indexer.spark import (
    AtSnapshot,
    ReadColumn,
    arrow_schema,
    as_frame,
    spark_stage,
    spark_type,
    spark_types,
    with_read_columns,
)
from gnomon.jobs import Stages
from gnomon.jobs.dedup import (
    DIGEST,
    NULLS,
    SourceCast,
    Staged,
    Staging,
    cast_to,
    digest_of,
    first_cast,
    hashed_text,
    hashed_type,
)
from gnomon.jobs.load import KEY_PREFIX, LookupCounters, common_type, key_names
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import is_lake

ORDER_PREFIX, HASHED_PREFIX = f"{KEY_PREFIX}order_", f"{KEY_PREFIX}hashed_"
IN_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")  # time zones in which the text of a moment is that of UTC


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
        return arrow_types(self.batch)

    def check_columns(self, index: Index) -> None:
        self._cast(index, index.spec)

    def _cast(self, index: Index | None, spec: IndexSpec) -> SourceCast:
        if index is None:
            return first_cast(self.schema, spec)
        if spec.table and not is_lake(spec.source_name):
            check_zone(spec, str(self.spark.conf.get("spark.sql.session.timeZone")))
        return cast_to(index, self.schema, common_type)

    def as_source(self, index: Index | None, spec: IndexSpec) -> pa.Schema:
        return self._cast(index, spec).columns

    def reported(self, index: Index) -> pa.Schema:
        return arrow_schema(spark_types(self._cast(index, index.spec).columns))

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        with spark_stage(stages, self.spark, "compare with the known batch"):
            hashes = with_hash(self.batch, self.schema, partitions).select(column(DIGEST).cast("decimal(38,0)"))
            rows, total = hashes.toDF("hash").agg(F.count(F.lit(1)), F.sum("hash")).collect()[0]
            return digest_of(rows, int(total or 0))

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        spec, check = staging.spec, staging.check
        at = None if staging.index is None else AtSnapshot.of(staging.index)
        cast = self._cast(staging.index, spec)
        order = [(f"{ORDER_PREFIX}{i}", down) for i, (_, down) in enumerate(check.order)]  # of the batch's own columns
        ordered = [column(name).alias(ours) for (name, _), (ours, _) in zip(check.order, order, strict=True)]
        hashed = with_hash(self.batch, self.schema, spec.partitions)
        rows = with_texts(hashed, cast.texts, _in_source(cast, self.schema), [column(DIGEST), *ordered])
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


def _in_source(cast: SourceCast, batch: pa.Schema) -> dict[str, Column]:
    """The columns of a batch in the types of its source. Spark casts only narrower numbers."""
    kinds = spark_types(cast.columns)
    alike = {one.name for one in cast.columns if batch.field(one.name).type == one.type or one.name in cast.texts}
    return {one.name: column(one.name) if one.name in alike else column(one.name).cast(one.dataType) for one in kinds}


def with_hash(batch: DataFrame, schema: pa.Schema, partitions: Sequence[str]) -> DataFrame:
    """The batch with the hash of each row in DIGEST (`gnomon.jobs.dedup.row_hashes`). Spark hashes the columns; tasks
    make those that are hashed as text."""
    kinds = {one.name: hashed_type(one, partitions) for one in sorted(schema, key=lambda one: one.name)}
    as_text = [name for name, kind in kinds.items() if kind == pa.string() != schema.field(name).type]
    named = {name: f"{HASHED_PREFIX}{i}" for i, name in enumerate(as_text)}
    made = [ReadColumn(ours, StringType(), name, hashed_text) for name, ours in named.items()]
    parts = [F.lit("\0".join(kinds))]
    for name, kind in kinds.items():
        value = column(name) if kind == schema.field(name).type else column(name).cast(spark_type(kind))
        parts += [column(name).isNull(), column(named[name]) if name in named else value]
    kept = [column(name) for name in batch.columns]
    return with_read_columns(batch, made).select(*kept, F.xxhash64(*parts).alias(DIGEST))


def check_zone(spec: IndexSpec, zone: str) -> None:
    """Raise UsageError where the catalog would write a moment as a text that an index reads as another moment: Spark
    registers a partition by the text of the session's time zone, and an index reads it in UTC."""
    moments = [name for name, kind in spec.partition_types.items() if kind == "timestamp"]
    if moments and zone not in IN_UTC:
        raise UsageError(
            f"the partition column {moments[0]} is timestamp, and Spark would register its partitions in the time zone "
            f"of the session, {zone}; set spark.sql.session.timeZone to UTC; nothing was written",
            spec.source_name,
        )

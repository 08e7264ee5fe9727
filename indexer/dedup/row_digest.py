"""A digest of the rows of a batch: the sum of their hashes, and their number. It does not depend on their order. It
shows whether a batch with a known name has the same rows again."""

from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegralType,
    StringType,
)

from gnomon.indexer.keys import column
from gnomon.jobs.dedup import digest_of

WITH_TEXT = (IntegralType, DateType, BooleanType, StringType)  # types whose text is the same in every session
AS_IT_IS = {"ignoreNullFields": "false", "timeZone": "UTC"}  # options of JSON


def row_hash(batch: DataFrame, partitions: Collection[str]) -> Column:
    """A hash of each row, over its columns in the order of their names. It includes the places of nulls, which Spark's
    hash ignores. Partition columns are hashed as the text of their folders, if all engines write their values alike."""
    fields = sorted(batch.schema, key=lambda field: field.name)
    parts = [F.lit("\0".join(field.name for field in fields))]
    for field in fields:
        value = column(field.name)
        is_text = field.name in partitions and isinstance(field.dataType, WITH_TEXT)
        parts += [value.isNull(), value.cast("string") if is_text else _hashable(value, field.dataType)]
    return F.xxhash64(*parts)


def rows_digest(batch: DataFrame, partitions: Collection[str]) -> str:
    """The digest of a batch, which this call reads."""
    found: Any = batch.select(row_hash(batch, partitions).cast("decimal(38,0)").alias("hash")).agg(
        F.count(F.lit(1)).alias("rows"), F.sum("hash").alias("total")
    )
    rows, total = found.first()
    return digest_of(rows, int(total or 0))


def _hashable(value: Column, kind: DataType) -> Column:
    """A value in the form for the hash, which does not depend on the width of the type, since the source's column may
    be widened between two runs. Nested values are hashed as JSON, since Spark does not hash maps and variants."""
    if isinstance(kind, IntegralType):
        return value.cast("bigint")
    if isinstance(kind, FloatType):
        return value.cast("double")
    if isinstance(kind, DecimalType):
        text = value.cast("string")
        return F.when(text.contains("."), F.regexp_replace(text, r"\.?0+$", "")).otherwise(text)
    return value if isinstance(kind, AtomicType) else F.to_json(F.struct(value), AS_IT_IS)

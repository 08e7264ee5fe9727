"""Casts of the columns of a batch to the columns of its source."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from gnomon.btree.key_types import Stored
from gnomon.indexer.keys import column
from gnomon.indexer.spark import NoSparkType, ReadColumn, arrow_of, with_read_columns
from gnomon.indexer.tables.column_types import source_types
from gnomon.jobs.dedup import PartitionText, partition_texts
from gnomon.jobs.load import KEY_PREFIX
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import is_lake

IN_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")  # time zones in which the text of a moment is that of UTC
WHOLE = (ByteType, ShortType, IntegerType, LongType)
TEXT_PREFIX = f"{KEY_PREFIX}text_"  # of the texts of partition columns, beside the columns of a batch


@dataclass(frozen=True)
class SourceCast:
    """The cast of a batch to the columns of its source. `columns` has the source's columns and types; partition columns
    are text, which `texts` makes."""

    columns: StructType
    texts: Mapping[str, PartitionText]

    def with_texts(self, batch: DataFrame) -> DataFrame:
        """The batch, and beside its columns the texts that tasks make, as an append in this process does."""
        made = enumerate(self.texts.items())
        texts = [ReadColumn(f"{TEXT_PREFIX}{i}", StringType(), name, text) for i, (name, text) in made]
        return with_read_columns(batch, texts)

    def selected(self) -> list[Column]:
        """The source's columns, from the columns of `with_texts`."""
        texts = {name: column(f"{TEXT_PREFIX}{i}") for i, name in enumerate(self.texts)}
        return [texts.get(one.name, column(one.name).cast(one.dataType)).alias(one.name) for one in self.columns]


def source_cast(spark: SparkSession, batch: StructType, opened: Index) -> SourceCast:
    """The cast of a batch's columns to the source of an index. UsageError, with the differences, where they do not fit:
    a column may only differ as a narrower number."""
    if opened.spec.table and not is_lake(opened.spec.source_name):
        check_zone(opened.spec, str(spark.conf.get("spark.sql.session.timeZone")))
    wanted = source_types(spark, opened, opened.view.columns)
    found = {field.name: field.dataType for field in batch}
    problems = [f"{name} is not a column of the source" for name in found if name not in wanted.names]
    for field in wanted:
        kind = found.get(field.name)
        if kind is None:
            problems.append(f"{field.name} is missing")
        elif field.name not in opened.spec.partitions and not _fits(kind, field.dataType):
            problems.append(f"{field.name} is {kind.simpleString()}, expected {field.dataType.simpleString()}")
    _refuse(batch, problems)
    return _cast(wanted, batch, opened.spec, opened.view.partition_values.values())


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


def first_cast(batch: StructType, spec: IndexSpec) -> SourceCast:
    """The cast for the first rows of a source without files."""
    _refuse(batch, [])
    fields = [*(one for one in batch if one.name not in spec.partitions), *(batch[name] for name in spec.partitions)]
    return _cast(fields, batch, spec, ())


def batch_texts(
    batch: StructType, spec: IndexSpec, values: Iterable[Mapping[str, Stored]] = ()
) -> dict[str, PartitionText]:
    """The text of each partition column of an index that a batch has (`gnomon.jobs.dedup.partition_texts`)."""
    kinds = {field.name: field.dataType for field in batch if field.name in spec.partitions}
    schema = pa.schema([(name, _arrow_of(kind)) for name, kind in kinds.items()])
    return partition_texts(schema, spec, values, {name: kind.simpleString() for name, kind in kinds.items()})


def _cast(
    columns: Iterable[StructField], batch: StructType, spec: IndexSpec, values: Iterable[Mapping[str, Stored]]
) -> SourceCast:
    fields = [StructField(one.name, StringType()) if one.name in spec.partitions else one for one in columns]
    return SourceCast(StructType(fields), batch_texts(batch, spec, values))


def _arrow_of(kind: DataType) -> pa.DataType:
    try:
        return arrow_of(kind)
    except NoSparkType:
        return pa.list_(pa.null())  # a type that no partition column has


def _refuse(batch: StructType, problems: list[str]) -> None:
    twice = [name for name in dict.fromkeys(batch.names) if batch.names.count(name) > 1]
    problems = [*problems, *(f"{name} is there more than once" for name in twice)]
    problems += [f"the name {name} is taken" for name in batch.names if name.startswith(KEY_PREFIX)]
    if problems:
        raise UsageError(f"batch: its columns are not the source's: {'; '.join(problems)}; nothing was written")


def _fits(found: DataType, wanted: DataType) -> bool:
    """Whether a cast to another type keeps each value."""
    if found.simpleString() == wanted.simpleString():
        return True
    if isinstance(found, WHOLE) and isinstance(wanted, WHOLE):
        return WHOLE.index(type(found)) < WHOLE.index(type(wanted))
    if isinstance(found, DecimalType) and isinstance(wanted, DecimalType):
        return bool(found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale)
    return isinstance(found, FloatType) and isinstance(wanted, DoubleType)

"""Casts of the columns of a batch to the columns of its source."""

import re
from collections.abc import Sequence

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from gnomon.indexer.keys import column
from gnomon.indexer.spark import key_spark_type, raised_by_sql, try_cast
from gnomon.indexer.tables.column_types import source_types
from gnomon.jobs.load import KEY_PREFIX
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import NULL_VALUE, is_lake

AS_SPARK: dict[type[DataType], re.Pattern[str]] = {  # types whose text is the same in every session
    IntegralType: re.compile(r"-?[1-9]\d*|0"),
    DateType: re.compile(r"\d{4}-\d\d-\d\d"),
    BooleanType: re.compile("true|false"),
    StringType: re.compile(".*", re.DOTALL),
}
WHOLE = (ByteType, ShortType, IntegerType, LongType)


def source_columns(spark: SparkSession, batch: StructType, opened: Index) -> list[Column]:
    """The source's columns, in their order, from the columns of a batch. UsageError, with the differences, where they
    do not fit: a column may only differ as a narrower number."""
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
    spec, existing = opened.spec, opened.view.partition_values.values()
    values = {
        name: folder_text(name, found[name], [str(one[name]) for one in existing if one.get(name) is not None])
        if name not in spec.partition_types
        else (lake_text if is_lake(spec.source_name) else declared_text)(name, spec.partition_types[name])
        for name in spec.partitions
    }
    return [
        values[field.name].alias(field.name)
        if field.name in values
        else column(field.name).cast(field.dataType).alias(field.name)
        for field in wanted
    ]


def first_columns(batch: StructType, spec: IndexSpec) -> list[Column]:
    """The columns of the first rows of a source without files."""
    _refuse(batch, [])
    kinds = {field.name: field.dataType for field in batch}
    names = [*(name for name in kinds if name not in spec.partitions), *spec.partitions]
    return [
        folder_text(name, kinds[name], []).alias(name) if name in spec.partitions else column(name) for name in names
    ]


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


def folder_text(name: str, kind: DataType, existing: Sequence[str]) -> Column:
    """A partition column as the text of its folder; empty text is Hive's null. UsageError where existing folders write
    values of its type in another form than Spark (01, 20260101, True), so that a value may match several folders."""
    plain = next((pattern for of, pattern in AS_SPARK.items() if isinstance(kind, of)), None)
    if plain is None:
        raise UsageError(f"batch: the partition column {name} is {kind.simpleString()}; expected text")
    odd = [text for text in existing if not plain.fullmatch(text)]
    if odd:
        raise UsageError(f"batch: {name} is {kind.simpleString()}, the source has folders like {name}={odd[0]}")
    return no_null_text(column(name).cast("string"))


def declared_text(name: str, kind: str) -> Column:
    """A partition column of a catalog table as the text of its folder. Each value of its type has one text."""
    given = column(name)
    text = no_null_text(given.cast("string"))
    read = try_cast(text, key_spark_type(kind)).cast("string")
    error = UsageError(f"batch: partition column {name}", expected=kind)
    return F.when(text.isNull() | read.isNotNull(), read).otherwise(raised_by_sql(error, text).cast("string"))


def lake_text(name: str, kind: str) -> Column:
    """A partition column of a lake table as text. Empty text and Hive's name of null are refused: they would be
    written as null."""
    text = column(name).cast("string")
    error = UsageError(f"batch: partition column {name}", expected="a text that is not empty, or null")
    is_valid = text.isNull() | ((text != "") & (text != NULL_VALUE))
    return F.when(is_valid, declared_text(name, kind)).otherwise(raised_by_sql(error, text).cast("string"))


def no_null_text(text: Column) -> Column:
    """The text of a folder, null for Hive's name of null."""
    return F.when((text != "") & (text != NULL_VALUE), text)

"""The types of the columns of source files in Spark."""

import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    StringType,
    StructField,
    StructType,
)

from gnomon.btree.key_types import key_type
from gnomon.indexer.spark import IN_UTC, SPARK_ERRORS, NoSparkType, holds, spark_type
from gnomon.jobs.load import widest_type
from gnomon.shadow import Index, UsageError
from gnomon.shadow.commit import wider
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import is_local
from gnomon.sources.types import parse_ddl

PATTERN_SIGNS = re.compile(r"[\\*?\[\]{}]")


def read_parquet(spark: SparkSession, paths: Sequence[str], schema: StructType | str | None = None) -> DataFrame:
    """Parquet files by their exact paths. Spark reads a path as a pattern, so pattern characters are escaped. (Its
    option against patterns reads each of several files twice when a folder above them is named like a pattern.) Days
    are not rebased, whatever the session's settings; Spark rebases the days of files that declare the old calendar."""
    reader = spark.read.options(datetimeRebaseMode="CORRECTED", int96RebaseMode="CORRECTED")
    reader = reader if schema is None else reader.schema(schema)
    return reader.parquet(*map(_exact, paths))


def _exact(path: str) -> str:
    """A pattern that matches only this local path, with any default file system of Spark."""
    return "file:" + PATTERN_SIGNS.sub(r"\\\g<0>", path)


def source_types(spark: SparkSession | None, index: Index, names: Sequence[str]) -> StructType:
    """The source's columns in Spark's types for them (partition columns are text), or in the types of a catalog table.
    The rules of `spark_types` apply where Spark has no type, cannot read the file, may not reach it, or is None.
    UsageError for a column that no Spark type holds; SourceError as in `Index.schemas`."""
    found: dict[str, DataType] = {name: StringType() for name in index.spec.partitions}
    if index.spec.table or index.spec.holds_values:
        return _declared(index.spec, names)
    for path, schema in index.schemas(names):
        try:
            by_spark = spark is not None and is_local(path) and index.spec.format == "parquet"
            in_spark = {f.name: f.dataType for f in read_parquet(spark, [path]).schema} if by_spark else {}
        except SPARK_ERRORS:
            in_spark = {}
        for field in schema:
            if field.name in names and field.name not in found and not pa.types.is_null(field.type):
                widest = wider(index.view.snapshot.columns.get(field.name, ""), str(field.type))
                kind = widest_type(widest, field.type)
                own = in_spark.get(field.name) if kind == field.type else None
                found[field.name] = _type_of(field.with_type(kind), own)
    return StructType([StructField(name, found.get(name, StringType())) for name in names])


def spark_types(schema: pa.Schema, names: Sequence[str]) -> StructType:
    """Columns of a file in Spark's types for them. UsageError for a column that no Spark type holds."""
    return StructType([StructField(name, _type_of(schema.field(name), None)) for name in names])


def _declared(spec: IndexSpec, names: Sequence[str]) -> StructType:
    """Columns of a catalog table, with their declared types; partition columns of a key-value folder."""
    declared = {field.name: field.type for field in parse_ddl(spec.schema)}
    declared |= {name: key_type(kind).arrow for name, kind in spec.partition_types.items()}
    return StructType([StructField(name, spark_type(declared[name])) for name in names])


def _type_of(field: pa.Field, in_spark: DataType | None) -> DataType:
    """Spark's own type for a column, if Python can get this type and it holds the column's values; else the type that
    `spark_type` chooses, as for a variant that is stored in columns."""
    try:
        if in_spark is not None and not pa.types.is_duration(field.type) and holds(in_spark, field.type):
            return in_spark
        return spark_type(field.type)
    except NoSparkType:
        raise UsageError(f"column {field.name} of type {field.type} has no Spark type; name other columns") from None


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of these columns in Spark, with timestamps in UTC."""
    return to_arrow_schema(schema, **IN_UTC)

"""Keys in DataFrames: casts to the types of the spec, and the shuffle to the tasks of their buckets."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, NumericType, StringType, StructField, StructType

from gnomon.btree.key_types import key_type
from gnomon.btree.source_types import is_number_of_units
from gnomon.indexer.keys.udfs import read_by_udf
from gnomon.indexer.spark import hands_errors_over, key_spark_type, raised_by_sql, try_cast
from gnomon.jobs.load import key_names
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn

NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}
CHUNK_ROWS, CHUNK_BYTES = 200_000, 32 * 1024 * 1024  # that a task looks up at once, besides one Spark batch
HAS_OFFSET = r"(?i)(z|[+-]\d{1,2}(:?\d{2}){0,2}|utc|gmt)$"


def quoted(name: str) -> str:
    """A column name with any characters, quoted for Spark's expressions."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    return F.col(quoted(name))


def with_keys(
    frame: DataFrame, spec: IndexSpec, what: str, every_key_counts: bool = False, all_of_it: bool = True
) -> DataFrame:
    """The frame with a second copy of its key, in the types of the index, in the columns `key_names`: int 5 and bigint
    5 hash differently. Text is read as on the command line: bytes as base64, timestamps in UTC.

    A number that the index's type cannot hold exactly has no row: its key becomes null, which matches nothing. With
    `every_key_counts` it fails the job, as invalid text always does. UsageError for a type that cannot be compared.
    Without `all_of_it` columns of the key may be missing."""
    missing = [key.name for key in spec.keys if key.name not in frame.columns]
    if missing and all_of_it:
        raise UsageError(f"{what}: the key column {', '.join(missing)} is missing; it has {', '.join(frame.columns)}")
    kinds = {field.name: field.dataType for field in frame.schema}
    keys = [
        _key(what, key, kinds[key.name], every_key_counts).alias(name)
        for key, name in zip(spec.keys, key_names(spec), strict=True)
        if key.name in kinds
    ]
    return frame.select("*", *keys)


def typed_keys(frame: DataFrame, spec: IndexSpec, what: str) -> DataFrame:
    """The frame with its text key columns in the source's types, read as `with_keys` reads them. Times of day and
    nanoseconds stay text, since Spark's types do not hold all their values."""
    keyed = with_keys(frame, spec, what)
    kinds = {field.name: field.dataType for field in frame.schema}
    read = {
        key.name: name
        for key, name in zip(spec.keys, key_names(spec), strict=True)
        if isinstance(kinds[key.name], StringType) and not is_number_of_units(key.source_type)
    }
    return keyed.select(*[column(read.get(name, name)).alias(name) for name in frame.columns])


def _key(what: str, key: KeyColumn, kind: DataType, every_key_counts: bool) -> Column:
    given, found, name, wanted = column(key.name), kind.simpleString(), key.name, key.type
    target = key_spark_type(wanted)
    if found == wanted:
        return given
    by_udf, is_text = read_by_udf(given, kind, key), isinstance(kind, StringType)
    if by_udf is not None or is_text:
        read = _read_text(given, wanted) if by_udf is None else by_udf
        refused = _refuse(what, key, given) if is_text or every_key_counts else F.lit(None)
        return F.when(given.isNull() | read.isNotNull(), read).otherwise(refused.cast(target))
    if found == "timestamp" and wanted == "timestamp_ntz":
        return F.unix_micros(given)  # it has the same hash; a cast would use the session's time zone
    if isinstance(kind, NumericType) and (wanted in NUMBERS or key_type(wanted).decimal):
        read = try_cast(given, target)
        refused = _refuse(what, key, given) if every_key_counts else F.lit(None)
        return F.when(given.isNull() | (read.cast(kind) == given), read).otherwise(refused.cast(target))
    if wanted == "string" and isinstance(kind, DateType):  # a partition column, which Spark infers as a date
        return given.cast(target)
    if wanted == "string" and isinstance(kind, IntegralType):
        return given.cast(target)
    stored = f"{key.source_type}, stored as {wanted}" if key.source_type else wanted
    raise UsageError(f"{what}: the key column {name} is {found}, the index's is {stored}; cast it")


def _read_text(given: Column, wanted: str) -> Column:
    if wanted == "binary":
        return F.unbase64(given)
    if wanted == "timestamp":
        day = F.when(given.rlike(r"^\d+-\d+-\d+$"), F.concat(given, F.lit("T00:00:00"))).otherwise(given)
        given = F.when(given.rlike(HAS_OFFSET), given).otherwise(F.concat(day, F.lit("Z")))
    return try_cast(given, key_spark_type(wanted))


def _refuse(what: str, key: KeyColumn, given: Column) -> Column:
    expected = key.source_type or key.type
    return raised_by_sql(UsageError(f"{what}: key column {key.name}", expected=expected), given)


def to_buckets(frame: DataFrame, spec: IndexSpec) -> DataFrame:
    """Shuffle by key so that each task holds keys of one bucket only.

    Spark sends a row to partition pmod(hash(key), n). If n is a multiple of the buckets, partition p holds keys of
    bucket p mod buckets."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    tasks = spec.buckets * -(-cores // spec.buckets)
    stored = [name for key, name in zip(spec.keys, key_names(spec), strict=True) if not key.partition]
    return frame.repartition(tasks, *stored)


def in_chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches joined into larger ones. The sorted keys of a large batch read each part of an index file once."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.concat_batches(some)
            some, rows, size = [], 0, 0
    if some:
        yield pa.concat_batches(some)


def map_batches(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """`mapInArrow` for columns of any name: Spark's own reads a dot in a name as a field of a struct. The function gets
    batches with the frame's names; the batches that it yields are matched by position."""
    names = frame.columns

    @hands_errors_over
    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        for batch in function(named):
            yield pa.RecordBatch.from_arrays(batch.columns, names=[f"c{i}" for i in range(batch.num_columns)])

    plain = StructType([StructField(f"c{i}", field.dataType, True) for i, field in enumerate(schema)])
    return frame.toDF(*[f"c{i}" for i in range(len(names))]).mapInArrow(renamed, plain).toDF(*schema.names)

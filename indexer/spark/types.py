"""Columns of source files in Spark's types: the Spark type of a column, and its exact values in that type.

A type that Spark lacks is mapped to a type that holds all its values: unsigned integers by the next wider one (64 bits:
`decimal(20,0)`), half floats by `float`, UUIDs by `binary`, decimals of more than 38 digits and JSON by `string`, a
column of nulls by `string`, a duration by `interval day to second`. The same within lists, maps and structs. A value
that the type cannot hold (digits below a microsecond, say) is an error."""

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from gnomon.base.errors import check_memory
from gnomon.btree.key_types import LONGEST_DECIMAL, key_type
from gnomon.btree.source_types import MAPPED, is_number_of_units, source_type, value_type
from gnomon.indexer.spark.versions import IN_UTC, TIME_TYPE, frame_of, is_time, type_of
from gnomon.jobs.load import check_given, first_refused, in_type, plain_values, reader_of
from gnomon.shadow import UsageError
from gnomon.sources.types import SAFE_CAST, can_hold, is_list

LIST_VIEW = "list_view<"  # pyarrow 26 casts a list view with a null at the end to an invalid list
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
MICROSECONDS, NANOSECONDS = 6, 9  # digits of a time of day


class NoSparkType(Exception):
    """No Spark type holds all values of a column."""


def spark_type(arrow: pa.DataType) -> DataType:
    """The Spark type of a column of a source file. NoSparkType where there is none."""
    if is_list(arrow):
        return ArrayType(spark_type(arrow.value_type))
    if types.is_map(arrow):
        return MapType(spark_type(arrow.key_type), spark_type(arrow.item_type))
    if types.is_struct(arrow):
        return StructType([StructField(field.name, spark_type(field.type)) for field in arrow])
    name = source_type(arrow)
    if name is not None and not is_number_of_units(name):
        return type_of(MAPPED[name])
    kind = value_type(arrow)
    if types.is_time(kind):
        if TIME_TYPE is None:
            raise NoSparkType
        return TIME_TYPE(NANOSECONDS if kind.unit == "ns" else MICROSECONDS)
    if types.is_null(kind) or (types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= LONGEST_DECIMAL):
        return StringType()
    kind = _PLAIN.get(kind, kind)
    if types.is_decimal(kind):
        kind = pa.decimal128(kind.precision, kind.scale)
    if types.is_union(kind) or types.is_interval(kind):
        raise NoSparkType
    try:
        return type_of(kind)
    except PySparkException:
        raise NoSparkType from None


def key_spark_type(name: str) -> DataType:
    """The Spark type of a key type (`gnomon.btree.keys`). Types are objects here, since in the text of a schema the
    meaning of `timestamp` depends on `spark.sql.timestampType`."""
    return spark_type(key_type(name).arrow)


def arrow_of(kind: DataType) -> pa.DataType:
    """The Arrow type with exactly the values of a Spark type. NoSparkType where Python cannot get the type."""
    if isinstance(kind, ArrayType):
        return pa.list_(arrow_of(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(arrow_of(kind.keyType), arrow_of(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_of(field.dataType)) for field in kind])
    if is_time(kind) and kind.precision <= MICROSECONDS:
        return pa.time64("us")  # Spark sends it as nanoseconds
    try:
        return to_arrow_type(kind, **IN_UTC)
    except PySparkException:
        raise NoSparkType from None


def holds(kind: DataType, arrow: pa.DataType) -> bool:
    """Whether a Spark type may hold the values of a column of a source file; `as_spark` then finds values that it does
    not hold."""
    try:
        return can_hold(arrow, arrow_of(kind), SAFE_CAST)
    except NoSparkType:
        return False


def as_spark(array: pa.Array, kind: DataType, target: pa.DataType, name: str, rows: pa.Array, path: str) -> pa.Array:
    """A column of a source file in `target`, the Arrow type of `kind` in Spark. UnsupportedFormat, with the value and
    its row (`rows` has their offsets), where Spark's type does not hold it."""
    return in_type(array, arrow_of(kind), f"Spark's {kind.simpleString()}", name, rows, path).cast(target)


def as_frame(spark: SparkSession, given: object, what: str) -> DataFrame:
    """A DataFrame of Spark, or the rows of an Arrow table, of a reader of batches, or of a frame of pandas or Polars as
    one, in the types of `spark_type`. UsageError, which names `what`, for a column that Spark cannot hold."""
    if isinstance(given, DataFrame):
        return given
    reader = reader_of(given, what)
    check_given(reader.schema.names, what)
    fields: list[StructField] = []
    for field in reader.schema:
        try:
            if LIST_VIEW in str(field.type):
                raise NoSparkType
            fields.append(StructField(field.name, spark_type(field.type)))
            arrow_of(fields[-1].dataType)
        except NoSparkType:
            raise UsageError(f"{what}: column {field.name} of type {field.type} has no Spark type; cast it") from None
    target = pa.schema([(field.name, arrow_of(field.dataType)) for field in fields])
    batches, begin = [], 0
    for batch in reader:
        arrays = [_exact(array, to, begin, what) for array, to in zip(batch.columns, target, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=target))
        begin += batch.num_rows
    table = pa.Table.from_batches(batches, target).combine_chunks()  # Spark loses the rows after an empty chunk
    try:  # Spark takes no table without a chunk
        schema = StructType(fields)
        return frame_of(spark, table, schema) if table.num_rows else spark.createDataFrame([], schema)
    except PySparkException as error:  # names of a struct that occur twice
        raise UsageError(f"{what}: Spark does not take it: {' '.join(str(error).split())}") from None


def _exact(given: pa.Array, field: pa.Field, begin: int, what: str) -> pa.Array:
    """The values of a column in the type of a field. UsageError, with the row (`begin` is the first one), where the
    type does not hold one."""
    array = plain_values(given)
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        check_memory(error)
        place, value = first_refused(array, field.type)
        where = f"{what}: column {field.name}, row {begin + place}"
        raise UsageError(f"{where}: Spark's {field.type} does not hold {value}; cast it") from None

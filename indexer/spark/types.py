"""Columns of source files in Spark's types: the Spark type of a column, and its exact values in that type.

A type that Spark lacks is mapped to one that holds all its values (`gnomon.jobs.load.common_type`). A value that the
type cannot hold (digits below a microsecond, say) is an error."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from gnomon.base.errors import check_memory
from gnomon.btree.key_types import key_type
from gnomon.indexer.spark.versions import IN_UTC, TIME_TYPE, frame_of, is_time, type_of
from gnomon.jobs.load import NoType, check_given, common_type, first_refused, in_type, reader_of, source_columns
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.values import plain_values

LIST_VIEW = "list_view<"  # pyarrow 26 casts a list view with a null at the end to an invalid list
MICROSECONDS, NANOSECONDS = 6, 9  # digits of a time of day


def spark_type(arrow: pa.DataType) -> DataType:
    """The Spark type of a column of a source file. NoType where there is none."""
    return _spark(common_type(arrow))


def _spark(kind: pa.DataType) -> DataType:
    if types.is_list(kind):
        return ArrayType(_spark(kind.value_type))
    if types.is_map(kind):
        return MapType(_spark(kind.key_type), _spark(kind.item_type))
    if types.is_struct(kind):
        return StructType([StructField(field.name, _spark(field.type)) for field in kind])
    if types.is_time(kind) and TIME_TYPE is not None:
        return TIME_TYPE(NANOSECONDS if kind.unit == "ns" else MICROSECONDS)
    try:
        return type_of(kind)
    except PySparkException:
        raise NoType from None


def key_spark_type(name: str) -> DataType:
    """The Spark type of a key type (`gnomon.btree.keys`). Types are objects here, since in the text of a schema the
    meaning of `timestamp` depends on `spark.sql.timestampType`."""
    return spark_type(key_type(name).arrow)


def arrow_of(kind: DataType) -> pa.DataType:
    """The Arrow type with exactly the values of a Spark type. NoType where Python cannot get the type."""
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
        raise NoType from None


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark takes these columns, with timestamps in UTC."""
    return to_arrow_schema(schema, **IN_UTC)


def spark_types(schema: pa.Schema) -> StructType:
    """Columns of files in Spark's types for them. UsageError for a column that no Spark type holds."""
    fields = []
    for field in schema:
        try:
            fields.append(StructField(field.name, spark_type(field.type)))
        except NoType:
            raise UsageError(
                f"column {field.name} of type {field.type} has no Spark type; name other columns"
            ) from None
    return StructType(fields)


def source_types(index: OpenIndex, names: Sequence[str]) -> StructType:
    """Columns of the source of an index in Spark's types for them. Errors as in `spark_types` and `Index.schemas`."""
    return spark_types(source_columns(index, names))


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
                raise NoType
            fields.append(StructField(field.name, spark_type(field.type)))
            arrow_of(fields[-1].dataType)
        except NoType:
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

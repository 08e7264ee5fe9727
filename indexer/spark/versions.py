"""All differences between the supported versions of Spark (3.5 to 4.3)."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import __version__ as spark_version
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from gnomon.indexer.spark.tasks import hands_errors_over
from gnomon.shadow import UsageError

try:
    from pyspark.sql.datasource import DataSource as DataSource
    from pyspark.sql.datasource import DataSourceReader as DataSourceReader
    from pyspark.sql.datasource import DataSourceWriter as DataSourceWriter
    from pyspark.sql.datasource import InputPartition as InputPartition

    HAS_SOURCES = True
except ModuleNotFoundError:  # Spark 3.5
    DataSource = DataSourceReader = DataSourceWriter = InputPartition = object
    HAS_SOURCES = False

AVRO = "org.apache.spark.sql.avro.AvroFileFormat"  # while the name `avro` needs a package in all versions
AVRO_PACKAGE = f"org.apache.spark:spark-avro_2.12:{spark_version}"  # of 3.5
HAS_PUSHDOWN = hasattr(DataSourceReader, "pushFilters")  # filters for a Python source, since 4.1
VARIANTS = tuple(kind for kind in [getattr(types, "VariantType", None)] if kind is not None)  # since 4.0
TIME_TYPE: Any = getattr(types, "TimeType", None)  # a time of day, since 4.1
HAS_ARROW_UDF = hasattr(F, "arrow_udf")  # since 4.1
# The argument for UTC timestamps in Arrow: required since 4.2, the default before.
IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


def check_sources() -> None:
    """Raise UsageError where Spark has no sources in Python."""
    if not HAS_SOURCES:
        raise UsageError(
            "format gnomon: expected Spark 4.0 or later, which has data sources in Python, "
            f"found {spark_version}; gnomon.read_index(spark, index) gives the same rows"
        )


def has_avro(spark: SparkSession) -> bool:
    """Whether the session can read Avro. Spark 4.0 and later can; Spark 3.5 needs the package spark-avro."""
    if HAS_SOURCES:
        return True
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(AVRO))


def is_time(kind: DataType) -> bool:
    return TIME_TYPE is not None and isinstance(kind, TIME_TYPE)


def type_of(arrow: pa.DataType) -> DataType:
    """Spark's own type for an Arrow type. A timestamp without a zone is timestamp_ntz, which needs an argument in 4.0
    and 4.1."""
    return from_arrow_type(arrow, prefer_timestamp_ntz=True)


def rebalanced(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows in tasks of a size that Spark chooses, by columns. Python's `hint` takes no columns in Spark 3.5."""
    columns = [F.col(name) for name in names]
    if HAS_SOURCES:
        return frame.hint("rebalance", *columns)
    hinted = frame._jdf.hint("rebalance", frame._jseq([one._jc.expr() for one in columns]))
    return DataFrame(hinted, frame.sparkSession)


def frame_of(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """The rows of an Arrow table whose columns have exactly the values of these types. No chunk of it may be empty:
    Spark loses the rows after one."""
    if HAS_SOURCES:
        return spark.createDataFrame(table, schema)
    plain = StructType([StructField(f"c{i}", field.dataType) for i, field in enumerate(schema)])
    table = pa.table(table.columns, plain.names).cast(to_arrow_schema(plain))
    most = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 10_000)
    pieces = [(bytearray(_packed(batch)),) for batch in table.to_batches(most)]

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0):
                yield from pa.ipc.open_stream(piece.as_buffer())

    return spark.createDataFrame(pieces, "piece binary").mapInArrow(unpacked, plain).toDF(*schema.names)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class ReadColumn(NamedTuple):
    """A new column of a type, which `read` makes from the column `given`, array by array."""

    name: str
    kind: DataType
    given: str
    read: Callable[[pa.Array], pa.Array]


def with_read_columns(frame: DataFrame, columns: Sequence[ReadColumn]) -> DataFrame:
    """The frame with more columns, in their order. One Python worker of a task makes all of them."""
    if HAS_ARROW_UDF:
        return frame.select("*", *map(_read, columns))
    for one in columns:
        frame = _mapped(frame, one.name, one.kind, [one.given], partial(_each, one.read))
    return frame


def _read(one: ReadColumn) -> Column:
    @hands_errors_over
    def in_arrow(array: pa.Array) -> pa.Array:
        return one.read(array)

    made: Column = F.arrow_udf(in_arrow, one.kind)(_column(one.given))
    return made.alias(one.name)


def _each(read: Callable[[pa.Array], pa.Array], batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
    return (read(batch[0]) for batch in batches)


def with_column_in_arrow(
    frame: DataFrame,
    name: str,
    kind: DataType,
    inputs: Sequence[str],
    function: Callable[[Iterator[Sequence[pa.Array]]], Iterator[pa.Array]],
    is_deterministic: bool = False,
) -> DataFrame:
    """The frame with one more column. `function` makes it from the columns `inputs`, for the rows of a task in their
    order. The function maps batches of arrays to arrays. An array need not have the length of its batch, but all
    together must have a value for each row. The other columns stay in Spark's own rows; in Spark 3.5 and 4.0, which
    have no such function, they go to Python and back."""
    if not HAS_ARROW_UDF:
        return _mapped(frame, name, kind, inputs, function)

    @hands_errors_over
    def in_arrow(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        yield from function((batch,) if isinstance(batch, pa.Array) else batch for batch in batches)

    made = F.arrow_udf(in_arrow, kind)
    if not is_deterministic:  # else Spark may call it twice, or filter the rows before it gets them
        made = made.asNondeterministic()
    return frame.withColumn(name, made(*map(_column, inputs)))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _mapped(
    frame: DataFrame,
    name: str,
    kind: DataType,
    inputs: Sequence[str],
    function: Callable[[Iterator[Sequence[pa.Array]]], Iterator[pa.Array]],
) -> DataFrame:
    names, places = frame.columns, [frame.columns.index(one) for one in inputs]

    @hands_errors_over
    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []

        def given() -> Iterator[Sequence[pa.Array]]:
            for batch in batches:
                waiting.append(batch)
                yield [batch.column(place) for place in places]

        for made in function(given()):
            begin = 0
            while begin < len(made):
                batch = waiting.pop(0)
                some = made.slice(begin, batch.num_rows)
                begin += batch.num_rows
                yield pa.RecordBatch.from_arrays([*batch.columns, some], [f"c{i}" for i in range(len(names) + 1)])

    fields = [*(field.dataType for field in frame.schema), kind]
    plain = StructType([StructField(f"c{i}", one, True) for i, one in enumerate(fields)])
    return frame.toDF(*[f"c{i}" for i in range(len(names))]).mapInArrow(mapped, plain).toDF(*names, name)

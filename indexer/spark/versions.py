"""All differences between the supported versions of Spark (4.0 to 4.3)."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from gnomon.indexer.spark.task_errors import hands_errors_over

TIME_TYPE: Any = getattr(types, "TimeType", None)  # a time of day, since 4.1
HAS_ARROW_UDF = hasattr(F, "arrow_udf")  # since 4.1
# The argument for UTC timestamps in Arrow: required since 4.2, the default before.
IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


def is_time(kind: DataType) -> bool:
    return TIME_TYPE is not None and isinstance(kind, TIME_TYPE)


def type_of(arrow: pa.DataType) -> DataType:
    """Spark's own type for an Arrow type. A timestamp without a zone is timestamp_ntz, which needs an argument in 4.0
    and 4.1."""
    return from_arrow_type(arrow, prefer_timestamp_ntz=True)


def arrow_udf(read: Callable[[pa.Array], pa.Array], kind: DataType) -> Callable[[Column], Column]:
    """A function of a column, which takes and returns Arrow arrays. Only where `HAS_ARROW_UDF`."""

    @hands_errors_over
    def in_arrow(array: pa.Array) -> pa.Array:
        return read(array)

    made: Callable[[Column], Column] = F.arrow_udf(in_arrow, kind)
    return made


def text_udf(read: Callable[[pa.Array], pa.Array], kind: DataType) -> Callable[[Column], Column]:
    """A function of a text column, which Spark 4.0 passes as pandas."""
    if HAS_ARROW_UDF:
        return arrow_udf(read, kind)

    @hands_errors_over
    def in_pandas(series: pd.Series) -> pd.Series:
        return pd.Series(read(pa.array(series.tolist(), pa.string())).to_pylist(), dtype=object)

    made: Callable[[Column], Column] = F.pandas_udf(in_pandas, kind)
    return made


def with_column_in_arrow(
    frame: DataFrame,
    name: str,
    kind: DataType,
    inputs: Sequence[str],
    function: Callable[[Iterator[Sequence[pa.Array]]], Iterator[pa.Array]],
) -> DataFrame:
    """The frame with another column, which a function makes from some columns, for the rows of a task in their order.
    It maps batches of arrays to arrays. An array need not have the length of its batch, but all together must have a
    value for each row. Other columns stay in Spark's own rows; in 4.0, which has no such function, they go to Python
    and back."""
    if not HAS_ARROW_UDF:
        return _mapped(frame, name, kind, inputs, function)

    @hands_errors_over
    def in_arrow(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        yield from function((batch,) if isinstance(batch, pa.Array) else batch for batch in batches)

    # Not deterministic: else Spark may call it twice, or filter the rows before it gets them.
    made = F.arrow_udf(in_arrow, kind).asNondeterministic()
    return frame.withColumn(name, made(*inputs))


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

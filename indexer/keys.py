"""Keys in DataFrames: cast to the types of the spec, brought to the task that holds their bucket."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from btree.keys import stored_values
from shadow.errors import UsageError
from shadow.lookup import Wanted
from shadow.spec import IndexSpec


def quoted(name: str) -> str:
    """A column name as Spark's expressions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    return F.col(quoted(name))


def cast_keys(frame: DataFrame, spec: IndexSpec, what: str) -> DataFrame:
    """The frame with its key columns in the types of the index (int 5 and bigint 5 hash differently); text given for
    a binary column is base64."""
    types = {key.name: key.type for key in spec.keys}
    missing = [key.name for key in spec.keys if key.name not in frame.columns]
    if missing:
        raise UsageError(f"{what}: the key column {', '.join(missing)} is missing; it has {', '.join(frame.columns)}")
    given = {field.name: field.dataType for field in frame.schema}
    return frame.select(
        *[
            _cast(column(name), given[name], types[name]).alias(name) if name in types else column(name)
            for name in frame.columns
        ]
    )


def _cast(given: Column, kind: DataType, wanted: str) -> Column:
    if wanted == "binary" and isinstance(kind, StringType):
        return F.unbase64(given)
    return given.cast(wanted)


def to_buckets(frame: DataFrame, spec: IndexSpec) -> DataFrame:
    """Shuffle by key so that each task holds keys of one bucket only.

    Spark sends a row to partition pmod(hash(key), n); with n a multiple of the buckets, partition p holds keys of
    bucket p mod buckets."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    tasks = spec.buckets * -(-cores // spec.buckets)
    return frame.repartition(tasks, *[column(key.name) for key in spec.stored_keys])


def wanted_keys(batch: pa.RecordBatch, spec: IndexSpec, within: Sequence[str] = ()) -> list[Wanted]:
    """The key of each row of a batch in stored form; `within` names partition columns that narrow the look-up."""
    stored = zip(*(stored_values(batch.column(key.name), key.type) for key in spec.stored_keys), strict=True)
    names = list(dict.fromkeys([*(key.name for key in spec.keys if key.partition), *within]))
    if not names:
        return [Wanted(key) for key in stored]
    values = zip(*(batch.column(name).cast(pa.string()).to_pylist() for name in names), strict=True)
    return [Wanted(key, tuple(zip(names, value, strict=True))) for key, value in zip(stored, values, strict=True)]


def map_batches(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """`mapInArrow` for columns of any name: Spark's own takes a dot in a name as a field of a struct. The function
    gets batches with the frame's names; what it yields is taken by position."""
    names = frame.columns

    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        for batch in function(named):
            yield pa.RecordBatch.from_arrays(batch.columns, names=[f"c{i}" for i in range(batch.num_columns)])

    plain = StructType([StructField(f"c{i}", field.dataType, True) for i, field in enumerate(schema)])
    return frame.toDF(*[f"c{i}" for i in range(len(names))]).mapInArrow(renamed, plain).toDF(*schema.names)

"""Functions over Arrow batches in Spark's tasks, and the sums of what they count."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, fields, replace
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from gnomon.indexer.spark.keys import column, quoted
from gnomon.indexer.spark.tasks import SPARK_ERRORS, hands_errors_over
from gnomon.indexer.spark.types import arrow_schema
from gnomon.indexer.spark.versions import with_column_in_arrow
from gnomon.jobs.load import FetchCounters, LoadCounters, LookupCounters

Batches = Iterator[pa.RecordBatch]
Counts = TypeVar("Counts", LookupCounters, FetchCounters)
COUNTS = "__gnomon_counts"  # what a task counted, in the order of the fields; null in all rows but its last one
COUNTED = "__gnomon_counted"  # a value with counts beside it
COUNTS_TYPE = pa.list_(pa.int64())
ANSWER_SECONDS = 5  # an action that has ended gives its sums within milliseconds


class JobCounters:
    """The sums of what the tasks of a load, a join or a dedup count, for their argument `counters`.

    They are those of the first action on each result, in any kind of session, and 0 before it has ended. A task that is
    tried again counts once."""

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def observe(self, frame: DataFrame, kind: type[Counts]) -> DataFrame:
        """The frame, whose column COUNTS has counts of this kind, without this column."""
        observation = Observation()
        self._observations.append(observation)
        sums = [F.sum(column(COUNTS)[i]).alias(one.name) for i, one in enumerate(fields(kind))]
        return frame.observe(observation, *sums)

    @property
    def value(self) -> LoadCounters:
        """The sums. Where no action has ended, it takes ANSWER_SECONDS: Spark would wait for one without end."""
        total = LoadCounters()
        for name, found in (one for observation in self._observations for one in _answer(observation).items()):
            setattr(total, name, getattr(total, name) + (found or 0))
        return total


def _answer(observation: Observation) -> dict[str, Any]:
    """The sums of an observation; none before an action has ended, and where Spark left the empty frame out."""
    found: list[dict[str, Any]] = []

    def ask() -> None:
        with suppress(*SPARK_ERRORS):  # no metrics; an error of the action was raised there
            found.append(observation.get)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return found[0] if found else {}


def map_batches(frame: DataFrame, function: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """`mapInArrow` for columns of any name: Spark's own reads a dot in a name as a field of a struct. The function gets
    batches with the frame's names; the batches that it yields are matched by position."""
    names = frame.columns

    @hands_errors_over
    def renamed(batches: Batches) -> Batches:
        named = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        for batch in function(named):
            yield pa.RecordBatch.from_arrays(batch.columns, names=[f"c{i}" for i in range(batch.num_columns)])

    plain = StructType([StructField(f"c{i}", field.dataType, True) for i, field in enumerate(schema)])
    return frame.toDF(*[f"c{i}" for i in range(len(names))]).mapInArrow(renamed, plain).toDF(*schema.names)


def map_batches_counted(
    frame: DataFrame,
    function: Callable[[Batches, Counts], Batches],
    schema: StructType,
    kind: type[Counts],
    counters: JobCounters | None,
) -> DataFrame:
    """`map_batches` with a function that counts: `counters` gets what all tasks count. A task sends its counts in a row
    of its own, which the result does not have."""
    if counters is None:
        return map_batches(frame, lambda batches: function(batches, kind()), schema)
    kinds = arrow_schema(schema).types

    def counting(batches: Batches) -> Batches:
        counts = kind()
        for batch in function(batches, counts):
            yield _with(batch.columns, pa.nulls(batch.num_rows, COUNTS_TYPE))
        yield _with([pa.nulls(1, one) for one in kinds], _row_of(counts))

    counted = map_batches(frame, counting, StructType([*schema, StructField(COUNTS, ArrayType(LongType()))]))
    return counters.observe(counted, kind).where(column(COUNTS).isNull()).drop(COUNTS)


def _with(columns: Sequence[pa.Array], counts: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns, counts], [str(i) for i in range(len(columns) + 1)])


def _row_of(counts: LookupCounters | FetchCounters) -> pa.Array:
    return pa.array([list(astuple(counts))], COUNTS_TYPE)


def with_column_counted(
    frame: DataFrame,
    name: str,
    data_type: DataType,
    inputs: Sequence[str],
    function: Callable[[Iterator[Sequence[pa.Array]], Counts], Iterator[pa.Array]],
    kind: type[Counts],
    counters: JobCounters | None,
) -> DataFrame:
    """`with_column_in_arrow` with a function that counts, and yields an array after it has counted: `counters` gets
    what all tasks count. A task sends its counts beside the last value of an array."""
    if counters is None:
        return with_column_in_arrow(frame, name, data_type, inputs, lambda batches: function(batches, kind()))
    both = StructType([StructField(name, data_type), StructField(COUNTS, ArrayType(LongType()))])

    def counting(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        counts, told = kind(), kind()
        for made in (one for one in function(batches, counts) if len(one)):
            since = kind(*(now - then for now, then in zip(astuple(counts), astuple(told), strict=True)))
            told = replace(counts)
            beside = pa.concat_arrays([pa.nulls(len(made) - 1, COUNTS_TYPE), _row_of(since)])
            yield pa.StructArray.from_arrays([made, beside], [name, COUNTS])

    counted = with_column_in_arrow(frame, COUNTED, both, inputs, counting)
    kept = [column(one) for one in frame.columns]
    parts = [F.col(f"{COUNTED}.{quoted(one)}").alias(one) for one in (name, COUNTS)]
    return counters.observe(counted.select(*kept, *parts), kind).drop(COUNTS)

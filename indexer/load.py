"""Load: the rows of many keys, as a join that shuffles the sample but neither the index nor the payload.

The sample goes to the index's buckets, each task looks its keys up in its own index files; the pointers found go
to their source files, each task reads its rows in file order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from indexer.join import FILE, OFFSET, SIZE, SUB_OFFSET, LookupCounters, located, lookup_counters
from indexer.keys import column, drop_keys, map_batches, wanted_keys, with_keys
from indexer.spark_types import as_spark
from indexer.tables import arrow_schema, source_types
from indexer.tasks import open_in_worker
from shadow import Index, UsageError, open_index
from shadow.coverage import source_of
from shadow.fetch import FetchReads

TASKS_PER_CORE = 2
ROWS_PER_PIECE = 10_000  # rows of a source file that go to one task, so that a hot file is many tasks
FETCH_BYTES = 64 * 1024 * 1024  # rows read at a time by a task, by the mean size of a row


@dataclass
class LoadCounters(LookupCounters):
    """Sums over the tasks of a load, complete once its result was computed; a retried task counts twice."""

    source_bytes: Accumulator[int]


def load_counters(spark: SparkSession) -> LoadCounters:
    return LoadCounters(**vars(lookup_counters(spark)), source_bytes=spark.sparkContext.accumulator(0))


def load(
    spark: SparkSession,
    index: str,
    keys: DataFrame,
    columns: Sequence[str] | None = None,
    how: str = "inner",
    counters: LoadCounters | None = None,
) -> DataFrame:
    """The rows of the source whose key is in `keys`: all columns of `keys`, then those of the source asked for
    (default: all that `keys` does not have).

    A row of `keys` gives one row for each source row with its key; with how="left" one of nulls where there is
    none. As in SQL, a key with a null matches nothing. Lazy; errors of a task (StalePointer ...) fail the job."""
    opened = open_index(index)
    counters = counters or load_counters(spark)
    sample = with_keys(keys, opened.spec, "keys")
    payload = _payload_columns(opened, keys, columns)
    snapshot = opened.view.snapshot.number
    found = located(spark, opened, sample, how, counters=counters)
    piece = F.floor(column(OFFSET) / ROWS_PER_PIECE)
    tasks = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    ordered = found.repartition(tasks, column(FILE), piece).sortWithinPartitions(FILE, OFFSET, SUB_OFFSET)
    schema = StructType([*keys.schema, *source_types(spark, opened, payload)])
    fetch = _fetch(opened.location, snapshot, payload, schema, counters)
    return map_batches(ordered, fetch, schema)


def _payload_columns(index: Index, sample: DataFrame, columns: Sequence[str] | None) -> list[str]:
    """The source's columns to read. A column that `keys` has, too, would be ambiguous: only the key may be in both."""
    known, keys = index.view.columns, {key.name for key in index.spec.keys}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UsageError(f"the source has no column {', '.join(unknown)}; it has {', '.join(known)}")
    wanted = [name for name in dict.fromkeys(known if columns is None else columns) if name not in keys]
    both = [name for name in wanted if name in sample.columns]
    if both:
        raise UsageError(f"keys: the source has a column {', '.join(both)}, too; rename it, or do not ask for it")
    return wanted


def _fetch(
    location: str, snapshot: int, payload: list[str], schema: StructType, counters: LoadCounters
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    target = arrow_schema(schema)

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = open_in_worker(location, snapshot)
        root = source_of(index.spec).storage.root
        for batch in batches:
            for piece in _by_file(batch, index):
                stats = FetchReads()
                rows = drop_keys(piece.drop_columns([FILE, OFFSET, SUB_OFFSET, SIZE]))
                table = _read(index, piece, payload, stats)
                counters.source_bytes.add(stats.bytes)
                counters.index_bytes.add(stats.page_maps.bytes)
                given = [c.cast(field.type) for c, field in zip(rows.columns, target, strict=False)]
                kinds = zip(schema[len(given) :], target.types[len(given) :], table.columns, strict=True)
                at, path = piece.column(OFFSET), f"{root}/{piece.column(FILE)[0]}"
                read = [
                    as_spark(c.combine_chunks(), field.dataType, kind, field.name, at, path) for field, kind, c in kinds
                ]
                arrays = [*given, *read]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)

    return fetch


def _read(index: Index, piece: pa.RecordBatch, payload: list[str], stats: FetchReads) -> pa.Table:
    path = piece.column(FILE)[0].as_py()
    if path is None:  # a left join's row without a match
        return pa.table({name: pa.nulls(piece.num_rows) for name in payload})
    pointers = list(zip(piece.column(OFFSET).to_pylist(), piece.column(SUB_OFFSET).to_pylist(), strict=True))
    keys = [key.stored for key in wanted_keys(piece, index.spec)]
    return index.read(path, pointers, keys, payload, stats)


def _by_file(batch: pa.RecordBatch, index: Index) -> Iterator[pa.RecordBatch]:
    """The batch, cut where the file changes and where its rows would take more than FETCH_BYTES."""
    paths = batch.column(FILE).to_pylist()
    begin = 0
    while begin < len(paths):
        most = max(1, FETCH_BYTES // index.row_bytes(paths[begin])) if paths[begin] is not None else len(paths)
        end = begin + 1
        while end < len(paths) and paths[end] == paths[begin] and end - begin < most:
            end += 1
        yield batch.slice(begin, end - begin)
        begin = end

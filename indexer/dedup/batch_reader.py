"""A batch, of any format and on any store, as a DataFrame in the types of the source."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.spark import arrow_schema, as_raised, hands_errors_over, spark_type, spark_types
from gnomon.jobs.dedup import (
    BatchFile,
    BatchPlan,
    LocalRows,
    members_of,
    plan_batch,
    read_batch_locally,
    rows_of,
    task_shares,
)
from gnomon.jobs.load import common_type
from gnomon.shadow import Index
from gnomon.shadow.metadata import SourceRoot
from gnomon.shadow.storage import Place, source_storage
from gnomon.sources import Options, Split

TASKS_PER_CORE = 4


def read_batch(
    spark: SparkSession | None,
    path: Place,
    index: Index | Place | None,
    format: str = "auto",
    options: Options | None = None,
) -> DataFrame | LocalRows:
    """The rows of a file, or of the files of a folder, on any store, with all of their columns.

    Columns of partition folders are text, and come last. A column of the source of `index` gets the source's type, if
    that holds it (`batch_columns`). Other columns keep their type, and so do the source's partition columns inside the
    files, and all columns without an index (text for CSV). Files may differ in columns: a missing column is null. CSV
    columns are matched by the names in the header, or by place without a header. JSON lines are read twice, first for
    their names: columns of the source that no row has are null, except the columns of the key and of the partitions.
    `options` are the options of the format, by default the source's if it has the same format; the option `schema`
    gives the types of text.

    This call lists the files and reads their metadata; their rows are read when the DataFrame is used. Each use reads
    them in the same order, by path and row, so that `monotonically_increasing_id()` directly on the DataFrame increases
    in that order. A damaged file, a value that the source's type does not hold, and a file that changed are errors that
    name it. With None in place of the session, the rows are for `append_new(None, ...)`."""
    if spark is None:
        return read_batch_locally(path, index, format, options)
    reading = _SparkReading(spark)
    plan = plan_batch(path, index, format, options, reading)
    schema = spark_types(plan.schema)
    shares = task_shares(plan.files, reading.tasks)
    scanned = _scan(plan, shares, schema)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)


class _SparkReading:
    """Spark as the engine that reads a batch."""

    name = "Spark"

    def __init__(self, spark: SparkSession) -> None:
        self.engine = SparkEngine(spark)
        self.tasks = int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE

    def held(self, kind: pa.DataType) -> pa.DataType:
        spark_type(kind)  # raises NoType
        return common_type(kind)

    def names_in(self, root: SourceRoot, files: Sequence[BatchFile]) -> set[str | None]:
        place, shares = root.storage.root, task_shares(files, self.tasks)
        opened = [(file.info, file.options) for file in files]

        @hands_errors_over
        def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage, names = source_storage(place), set[str | None]()
            for file, split in (piece for batch in batches for i in batch.column(0).to_pylist() for piece in shares[i]):
                info, options = opened[file]
                names |= members_of(storage, info, options, split)
            yield pa.RecordBatch.from_arrays([pa.array(list(names), pa.string())], names=["name"])

        tasks = self.engine.spark.range(0, len(shares), 1, len(shares))
        return {row.name for row in tasks.mapInArrow(named, "name string").distinct().collect()}

    def errors(self) -> AbstractContextManager[None]:
        return as_raised()


def _scan(
    plan: BatchPlan, shares: Sequence[Sequence[tuple[int, Split]]], schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task. Its input rows are the numbers of the shares to read."""
    place, format_name, opened, columns = plan.root.storage.root, plan.format, plan.opened(), plan.schema
    target = arrow_schema(schema)

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(place)
        for share in (share for batch in batches for share in batch.column(0).to_pylist()):
            for file, split in shares[share]:
                for rows in rows_of(storage, format_name, opened[file], split, columns):
                    arrays = [array.cast(kind) for array, kind in zip(rows.columns, target.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=target)

    return scanned

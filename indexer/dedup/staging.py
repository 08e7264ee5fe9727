"""Staging in Spark's tasks: one job checks the batch, groups the new rows by partition of the source, and writes them
(`gnomon.jobs.dedup.StagingWriter`). Other rows pass the same tasks, as a few bytes each, so that the counts of the
batch are exact even if tasks run again.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from gnomon.indexer.keys import column, map_batches
from gnomon.indexer.spark import rebalanced, with_column_in_arrow
from gnomon.jobs.dedup import (
    DIGEST,
    NEW,
    NULLS,
    NUMBERS,
    OF_ROW,
    PART_PREFIX,
    STATUS,
    Layout,
    Piece,
    RejectedAt,
    Staged,
    StagingWriter,
    part_columns,
    staged_of,
)
from gnomon.jobs.load import KEY_PREFIX
from gnomon.shadow.storage import storage_at

TEXTS = ("partition", "folder", "path")
PIECE = StructType(
    [*(StructField(name, StringType()) for name in TEXTS), *(StructField(name, LongType()) for name in NUMBERS)]
)


def stage(
    checked: DataFrame, names: Sequence[str], layout: Layout, folder: str, name: str, rejected: RejectedAt | None
) -> Staged:
    """Write the new rows of a batch, checked by `with_status`, to a folder below the source's root. `name` is the
    prefix of the file names. `names` are the batch's columns; `checked` has DIGEST and NULLS, too. With `rejected` the
    other rows are written there. StageRunAgain where the job has to run again."""
    for i, partition in enumerate(layout.partitions):
        checked = checked.withColumn(f"{PART_PREFIX}{i}", column(partition))
    checked = _with_split(checked, layout)
    parts = part_columns(layout)
    if rejected is None:
        is_new = column(STATUS).bitwiseAND(OF_ROW) == NEW
        columns = [F.when(is_new, column(one)).alias(one) for one in names]
        kept = [STATUS, NULLS, DIGEST, *parts]
    else:
        columns = [column(one) for one in names]
        kept = [one for one in checked.columns if one.startswith(KEY_PREFIX)]
    # Rows of a partition go to one task; Spark, which knows their bytes, divides them where they are many.
    rows, by = checked.select(*columns, *map(column, kept)), parts or [DIGEST]
    is_adaptive = rows.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    rows = rebalanced(rows, by) if is_adaptive else rows.repartition(*by)
    rows = rows.sortWithinPartitions(*map(column, parts)) if parts else rows
    writing = _writing(layout, folder, rejected)
    pieces = [Piece(*row) for row in map_batches(rows, writing, PIECE).collect()]
    return staged_of(storage_at(layout.root), folder, name + layout.style.ending, pieces)


def _with_split(checked: DataFrame, layout: Layout) -> DataFrame:
    split = layout.split
    if split is None:
        return checked
    inputs = [f"{KEY_PREFIX}of_split_{i}" for i in range(len(split.columns))]
    named = [column(name).alias(ours) for name, ours in zip(split.columns, inputs, strict=True)]

    def texts(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        return (split.value_of(arrays) for arrays in batches)

    rows = checked.select("*", *named)
    return with_column_in_arrow(rows, part_columns(layout)[-1], StringType(), inputs, texts).drop(*inputs)


def _writing(
    layout: Layout, folder: str, rejected: RejectedAt | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    kinds = [pa.string()] * len(TEXTS) + [pa.int64()] * len(NUMBERS)

    def writing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = StagingWriter(layout, folder, rejected)
        for batch in batches:
            task.add(batch)
        columns = zip(*task.end(), strict=True)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=False)]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, names=list(Piece._fields))

    return writing

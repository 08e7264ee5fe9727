"""Index files, which Spark's tasks write.

A task puts entries into blocks of bytes, each for one of the tasks that write. Spark shuffles the blocks without a look
at their entries. The tasks that get them sort the entries (`gnomon.shadow.write`), write, and return one row for each
file."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.indexer.spark import SPARK_ERRORS, cores_of, hands_errors_over, route
from gnomon.jobs.files import Described, check_visible, scan_file, shares_of
from gnomon.shadow.metadata import BloomFilterEntry, IndexFileEntry, IndexSpec
from gnomon.shadow.storage import Storage, is_local, source_storage, storage_at
from gnomon.shadow.write import GROUP, Entries, EntrySorter, Target, by_number, write_rows

# A row of a shuffle: the task that gets it, and a block of entries. `place` orders the blocks of a task as the source
# orders their entries. A row for COUNTS has no block: `place` is the number of a source file, and `rows` and `ragged`
# count those of a range of it.
BLOCKS = pa.schema(
    [
        ("task", pa.int32()),
        ("place", pa.int64()),
        ("rows", pa.int64()),
        ("ragged", pa.int64()),
        ("block", pa.binary()),
    ]
)
BLOCKS_DDL = "task int, place bigint, rows bigint, ragged bigint, block binary"
NUMBER = "__gnomon_group"
COUNTS = 1 << 62  # after the places of all blocks
PLACES = 1 << 32  # of the blocks of a range
PACKED_BYTES = 32 << 20  # of entries that are put into blocks together
BLOCK_BYTES = 16 << 10
# Spark gives a task many blocks at once: up to a number of bytes, 64 MB by default, in its newest versions; in all
# versions up to a number of rows.
BYTES_LIMIT, ROWS_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_AT_ONCE = 128 << 20
SORT_BYTES = 256 << 20  # of memory for the sort of a task, beyond which it takes temporary files
TASK_FOLDERS = "SPARK_LOCAL_DIRS"  # a variable with the folders for temporary files of an executor
ROWS_OF_A_TASK = 100_000  # in one index file: with more, it is worth a task
ROWS_PER_TASK = 1_000_000  # in several index files
MOST_TASKS = 4096


def tasks_for(spark: SparkSession, files: int, rows: int) -> int:
    """The number of tasks that write so many index files of so many rows. Each large file has its own task."""
    if files >= MOST_TASKS or rows < files * ROWS_OF_A_TASK:
        return max(1, min(files, max(cores_of(spark), rows // ROWS_PER_TASK), MOST_TASKS))
    return files


def block_bytes(spark: SparkSession) -> int:
    """The bytes of a block of which a task gets at most MOST_AT_ONCE at once."""
    try:
        spark.conf.get(BYTES_LIMIT)  # without a default, so that it raises where the version has no such setting
    except SPARK_ERRORS:
        return max(1, min(BLOCK_BYTES, MOST_AT_ONCE // int(spark.conf.get(ROWS_LIMIT) or BLOCK_BYTES)))
    return BLOCK_BYTES


def packed(tables: Iterable[pa.Table], tasks: int, block: int, place: int = 0) -> Iterator[pa.RecordBatch]:
    """Blocks of entries, as rows of BLOCKS, from tables with GROUP: group n is for task n modulo `tasks`. A block has
    about `block` bytes, or one entry. `place` is that of the first block."""
    held, size = list[pa.Table](), 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > PACKED_BYTES:
            yield (blocks := _blocks(held, tasks, block, place))
            held, size, place = [], 0, place + blocks.num_rows
    if held:
        yield _blocks(held, tasks, block, place)


def _blocks(tables: Sequence[pa.Table], tasks: int, block: int, place: int) -> pa.RecordBatch:
    entries = pa.concat_tables(tables).combine_chunks()
    numbers, blocks = list[int](), list[bytes]()
    most = max(1, block * entries.num_rows // max(entries.nbytes, 1))
    for task, rows in by_number(entries.column(GROUP).to_numpy() % tasks):
        for batch in entries.take(pa.array(rows)).to_batches(max_chunksize=most):
            numbers.append(task)
            blocks.append(batch.serialize().to_pybytes())
    none = pa.nulls(len(blocks), pa.int64())
    places = pa.array(np.arange(place, place + len(blocks)))
    columns = [pa.array(numbers, pa.int32()), places, none, none, pa.array(blocks, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=BLOCKS)


def scan(spark: SparkSession, root: str, target: Target, described: Sequence[Described], tasks: int) -> DataFrame:
    """The blocks of the entries of source files for so many tasks, and the counts of each range of a file, which are
    for one task more."""
    pieces = [(file, split) for file, one in enumerate(described) for split in one.splits]
    weights = [described[file].scan_bytes // len(described[file].splits) for file, _ in pieces]
    shares, files, schema = shares_of(weights, cores_of(spark)), [one.entry.info for one in described], target.schema
    block = block_bytes(spark)

    @hands_errors_over
    def scan_share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(root)
        for batch in batches:
            for piece in (piece for share in batch.column(0).to_pylist() for piece in shares[share]):
                file, split = pieces[piece]
                rows, ragged = list[int](), list[int]()
                scanned = scan_file(storage, files[file], target.spec, split, ragged.append)
                tables = (_counted(target, file, columns, rows).cast(schema) for columns in scanned)
                yield from packed(tables, tasks, block, piece * PLACES)
                counts = {"task": tasks, "place": COUNTS + file, "rows": sum(rows), "ragged": sum(ragged)}
                yield pa.RecordBatch.from_pylist([counts], BLOCKS)

    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scan_share, BLOCKS_DDL)


def _counted(target: Target, file: int, columns: Sequence[pa.Array], rows: list[int]) -> pa.Table:
    rows.append(len(columns[0]))
    return target.table(Entries(columns, np.full(rows[-1], file, np.int32)))


RESULT = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("entries", pa.int64()),
        ("size", pa.int64()),
        ("crc32", pa.int64()),
        ("filter", pa.struct([("path", pa.string()), ("size", pa.int64()), ("crc32", pa.int64())])),
    ]
)
RESULT_DDL = (
    "path string, partition string, bucket int, entries bigint, size bigint, crc32 bigint, "
    "filter struct<path: string, size: bigint, crc32: bigint>"
)


@dataclass(frozen=True)
class WriteTask:
    """The input of a task that writes index files: their numbers, the columns of its blocks, by how many of them it
    sorts, and what writes the sorted entries to the index."""

    index: str
    groups: range
    schema: pa.Schema
    keys: int
    write: Callable[[Storage, EntrySorter], Iterator[IndexFileEntry]]


def write_index_files(
    spark: SparkSession, root: str, index: str, spec: IndexSpec, segment: str, described: Sequence[Described]
) -> tuple[list[IndexFileEntry], dict[int, int], dict[int, int]]:
    """Scan source files, shuffle the entries to their index files, sort, write and read back. Returns the written
    files, and the rows of each source file and its ragged ones, by its ordinal."""
    target = Target.of(spec, segment, [one.entry for one in described])
    tasks = tasks_for(spark, len(target.groups), sum(one.likely_rows for one in described))
    blocks = scan(spark, root, target, described, tasks)
    task = WriteTask(index, target.groups, target.schema, target.sorted_by(is_ordered=True), target.write)
    written = _written(blocks, tasks, 1, task)
    counts, ragged = Counter[int](), Counter[int]()
    for row in written:
        if row.path is None:
            counts[row.bucket] += row.entries
            ragged[row.bucket] += row.size
    return _entries(written, index), dict(counts), dict(ragged)


def write_values(
    entries: DataFrame, group: Column, index: str, spec: IndexSpec, segment: str, folders: list[str], rows: int
) -> list[IndexFileEntry]:
    """Write the index files of entries that hold values, which have the columns of the entry schema. `group` is the
    place of the folder times the buckets of the spec, plus the bucket.

    Equal keys are sorted by their values, so that a task that runs again writes the same bytes."""
    columns, groups = spec.entry_schema.columns, range(len(folders) * spec.buckets)
    tasks, block = tasks_for(entries.sparkSession, len(groups), rows), block_bytes(entries.sparkSession)
    names = [column.name for column in columns]
    fields = [pa.field(column.name, key_type(column.type).arrow) for column in columns]
    schema = pa.schema([*fields, pa.field(GROUP, pa.int32())])

    @hands_errors_over
    def given(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def tables() -> Iterator[pa.Table]:
            for batch in batches:
                arrays = [key_array(batch.column(i), one.type, one.name) for i, one in enumerate(columns)]
                yield pa.Table.from_arrays([*arrays, batch.column(len(columns))], schema=schema)

        yield from packed(tables(), tasks, block)

    blocks = entries.select(*names, group.cast("int").alias(NUMBER)).mapInArrow(given, BLOCKS_DDL)
    task = WriteTask(index, groups, schema, len(columns), partial(_write_values, spec, segment, folders))
    return _entries(_written(blocks, tasks, 0, task), index)


def _write_values(
    spec: IndexSpec, segment: str, folders: Sequence[str], storage: Storage, sorter: EntrySorter
) -> Iterator[IndexFileEntry]:
    return write_rows(storage, spec, segment, folders, sorter)


def _written(blocks: DataFrame, tasks: int, more: int, task: WriteTask) -> list[Any]:
    """The rows of the tasks that get the blocks. `more` tasks get counts."""
    placed = blocks.repartition(tasks + more, route(F.col("task"), tasks + more)).sortWithinPartitions("place")
    return list(placed.mapInArrow(_writer(task, tasks), RESULT_DDL).collect())


def _entries(written: Sequence[Any], index: str) -> list[IndexFileEntry]:
    """The index files that tasks wrote."""
    files = [_entry_of(row.asDict(recursive=True)) for row in written if row.path is not None]
    check_on_disk(index, {entry.path: entry.size for entry in files})
    return files


def check_on_disk(index: str, sizes: Mapping[str, int]) -> None:
    """Raise StorageError where tasks wrote files of an index on a local disk to disks of other machines."""
    if is_local(index):
        check_visible(storage_at(index), sizes)


def _entry_of(row: dict[str, Any]) -> IndexFileEntry:
    found = row["filter"]
    return IndexFileEntry(**{**row, "filter": found and BloomFilterEntry(**found)})


def _writer(task: WriteTask, tasks: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task."""

    @hands_errors_over
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sorter, done = None, list[dict[str, Any]]()
        with ExitStack() as opened:
            for batch in batches:
                for number, place, rows, ragged, block in zip(*map(_values, batch.columns), strict=True):
                    if block is None:
                        done.append({"bucket": place - COUNTS, "entries": rows, "size": ragged})
                        continue
                    if sorter is None:
                        groups = task.groups[number::tasks]
                        sorter = opened.enter_context(EntrySorter(task.keys, groups, SORT_BYTES, _folder()))
                    sorter.add(pa.Table.from_batches([pa.ipc.read_record_batch(block, task.schema)]))
            if sorter is not None:
                done += [asdict(entry) for entry in task.write(storage_at(task.index), sorter)]
        yield pa.RecordBatch.from_pylist(done, RESULT)

    return write


def _values(column: pa.Array) -> Iterable[Any]:
    """The values of a column; of blocks their buffers."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return (one.as_buffer() if one.is_valid else None for one in column)
    return list(column.to_pylist())


def _folder() -> str | None:
    """A folder for temporary files of this executor; None for that of the system."""
    first = os.environ.get(TASK_FOLDERS, "").split(",")[0]
    return first if os.path.isdir(first) else None

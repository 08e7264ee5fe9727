"""Index files, which Spark's tasks write. Arrow map tasks scan keys and pointers of source files through `sources`.
Spark shuffles and sorts them. Tasks write the sorted batches, and return one row for each file."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise, takewhile
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from gnomon.btree.key_types import key_type
from gnomon.indexer.spark import cores_of, hands_errors_over, key_spark_type, route
from gnomon.jobs.files import Described, check_visible, listed, scan_file, shares_of
from gnomon.shadow.commit import write_index_file
from gnomon.shadow.errors import SourceError
from gnomon.shadow.metadata import BloomFilterEntry, IndexFileEntry, IndexSpec
from gnomon.shadow.storage import Readable, is_local, source_storage, storage_at
from gnomon.shadow.values import python_values
from gnomon.shadow.write import file_columns
from gnomon.sources import open_source

HEAD = "__gnomon_head"
HEAD_BYTES = 8
LARGEST = b"\xff" * (HEAD_BYTES + 1)  # greater than any head
SAMPLED_FILES = 8
WORTH_ROWS = 500_000  # a build of more rows reads some keys beforehand


def likely_beginning(root: Readable, spec: IndexSpec, described: Sequence[Described]) -> str:
    """The common prefix of the first key column in some rows of Parquet files; empty where it is not text, or rows are
    few. It is a guess, on which only speed depends."""
    key, files = spec.stored_keys[0], [one for one in described if one.is_counted and one.entry.rows]
    if key.type != "string" or sum(one.entry.rows for one in files) < WORTH_ROWS:
        return ""
    texts: list[str] = []
    for one in files[:: -(-len(files) // SAMPLED_FILES)]:
        if key.field_in(one.schema) is None:
            continue
        places = [(row, 0) for row in sorted({0, one.entry.rows // 2, one.entry.rows - 1})]
        try:
            with listed(root, one.entry.info) as reader:
                rows = open_source(reader, spec.format, spec.read_options).fetch(reader, places, [key.name])
        except SourceError:  # the scan reports it
            return ""
        texts += [value for value in python_values(rows.column(0)) if isinstance(value, str)]
    return shared_beginning(texts) if len(texts) > 1 else ""


def shared_beginning(texts: Sequence[str]) -> str:
    """The longest common prefix of the texts."""
    least, most = min(texts), max(texts)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False)))
    return least[:same]


def head_of(text: Column, beginning: str) -> Column:
    """Bytes whose order agrees with the order of the texts: equal or ascending where the texts ascend. For texts with
    the prefix `beginning` they are the bytes after it."""
    data = text.cast("binary")
    behind = F.substring(data, len(beginning.encode()) + 1, HEAD_BYTES)
    head = F.when(text.isNull(), F.lit(None)).when(text.startswith(beginning), behind)
    return head.when(text < beginning, F.lit(b"")).otherwise(F.lit(LARGEST))


FOLDER, GROUP, FILE, ROW = "__gnomon_folder", "__gnomon_group", "__gnomon_file", "__gnomon_row"
SUB, SIZE = "__gnomon_sub_offset", "__gnomon_size"
MOST_COUNTED = 2**31 - 1  # ragged records of a range of a file


def scan(spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described]) -> DataFrame:
    """One row for each source row: stored key and included columns under their names in the index file, GROUP (folder
    ordinal * buckets + bucket), FILE (ordinal in `described`), and the pointer: ROW (`data_offset`), SUB and SIZE.

    Each scanned range of a file adds a row: ROW is the number of rows in the range, SIZE that of its ragged records,
    and GROUP the first number after the groups of all folders."""
    columns = [*spec.stored_keys, *spec.include]
    names = [entry.name for entry in spec.entry_schema.columns][: len(columns)]
    folders = folders_of(spec, described)
    ordinals = {folder: i for i, folder in enumerate(folders)}
    folder_of = [ordinals[spec.folder_of(one.entry.partition)] for one in described]
    in_ranges = spec.cuts is not None
    pieces = [(file, split) for file, one in enumerate(described) for split in one.splits]
    weights = [described[file].scan_bytes // len(described[file].splits) for file, _ in pieces]
    shares = shares_of(weights, cores_of(spark))
    files, behind = [one.entry.info for one in described], len(folders)
    tail = [FOLDER, FILE, ROW, SUB, SIZE]

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(root)
        for batch in batches:
            for file, split in (pieces[piece] for share in batch.column(0).to_pylist() for piece in shares[share]):
                rows, ragged = 0, list[int]()
                for *values, offsets, sub_offsets, sizes in scan_file(storage, files[file], spec, split, ragged.append):
                    rows += len(offsets)
                    folders = np.full(len(offsets), folder_of[file], np.int32)
                    if in_ranges:
                        folders = folders * spec.buckets + spec.bucketing.of_columns(values)
                    of_file = pa.array(np.full(len(offsets), file, np.int32))
                    arrays = [*values, pa.array(folders, pa.int32()), of_file, offsets, sub_offsets, sizes]
                    yield pa.RecordBatch.from_arrays(arrays, names=[*names, *tail])
                nulls = [pa.nulls(1, key_type(c.type).arrow) for c in columns]
                kinds = (pa.int32(), pa.int32(), pa.int64(), pa.int32(), pa.int32())
                counted = (
                    behind * spec.buckets if in_ranges else behind,
                    file,
                    rows,
                    0,
                    min(sum(ragged), MOST_COUNTED),
                )
                count = [pa.array([n], kind) for n, kind in zip(counted, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays([*nulls, *count], names=[*names, *tail])

    stored = [StructField(name, key_spark_type(c.type)) for name, c in zip(names, columns, strict=True)]
    numbers = zip(tail, (IntegerType(), IntegerType(), LongType(), IntegerType(), IntegerType()), strict=True)
    schema = StructType([*stored, *(StructField(name, kind) for name, kind in numbers)])
    rows = spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)
    group = F.col(FOLDER)  # of ranges of keys the group already, which Spark does not compute
    if not in_ranges:
        bucket = F.pmod(F.hash(*names[: len(spec.stored_keys)]), F.lit(spec.buckets))
        group = F.least(group * spec.buckets + bucket, F.lit(behind * spec.buckets))
    return rows.select(*names, group.cast("int").alias(GROUP), FILE, ROW, SUB, SIZE)


def folders_of(spec: IndexSpec, described: Sequence[Described]) -> list[str]:
    """The folders of the index files for these source files, ordered."""
    return sorted({spec.folder_of(one.entry.partition) for one in described})


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
ROWS_OF_A_TASK = 100_000  # in one index file: with more, it is worth a task
ROWS_PER_TASK = 1_000_000  # in several index files
MOST_TASKS = 4096


@dataclass(frozen=True)
class WriteTask:
    """The input of a task."""

    index: str
    spec: IndexSpec
    segment: str
    folders: list[str]  # of the index files
    paths: list[str]  # of the source files
    partitions: list[str]  # by file


def write_index_files(
    entries: DataFrame,
    index: str,
    spec: IndexSpec,
    segment: str,
    described: Sequence[Described],
    beginning: str,
) -> tuple[list[IndexFileEntry], dict[int, int], dict[int, int]]:
    """Shuffle the scanned entries to their index files, sort, write and read back. Returns the written files, and the
    rows of each source file and its ragged ones, by its ordinal. `beginning` is a likely prefix of the first key
    (`sort_prefix`)."""
    folders = folders_of(spec, described)
    rows = sum(one.likely_rows for one in described)
    task = WriteTask(
        index,
        spec,
        segment,
        folders,
        [one.entry.path for one in described],
        [one.entry.partition for one in described],
    )
    placed = by_index_file(entries, spec, len(folders), rows, [FILE, ROW, SUB], beginning)
    written = placed.mapInArrow(_writer(task, _entries), RESULT_DDL).collect()
    counts, ragged = Counter[int](), Counter[int]()
    for row in written:
        if row.path is None:
            counts[row.bucket] += row.entries
            ragged[row.bucket] += row.size
    entries_of = [_entry_of(row.asDict(recursive=True)) for row in written if row.path is not None]
    check_on_disk(index, {entry.path: entry.size for entry in entries_of})
    return entries_of, dict(counts), dict(ragged)


def check_on_disk(index: str, sizes: Mapping[str, int]) -> None:
    """Raise StorageError where tasks wrote files of an index on a local disk to disks of other machines."""
    if is_local(index):
        check_visible(storage_at(index), sizes)


def write_values(
    entries: DataFrame,
    index: str,
    spec: IndexSpec,
    segment: str,
    folders: list[str],
    rows: int,
    beginning: str,
) -> list[IndexFileEntry]:
    """Write the index files of entries that hold values: the columns of the entry schema, and GROUP, the place of the
    folder times the buckets of the spec, plus the bucket.

    Equal keys are sorted by their values, so that a task that runs again writes the same bytes."""
    within_key = [column.name for column in spec.entry_schema.values]
    placed = by_index_file(entries, spec, len(folders), rows, within_key, beginning)
    task = WriteTask(index, spec, segment, folders, [], [])
    written = placed.mapInArrow(_writer(task, _values), RESULT_DDL).collect()
    files = [_entry_of(row.asDict(recursive=True)) for row in written]
    check_on_disk(index, {entry.path: entry.size for entry in files})
    return files


def by_index_file(
    entries: DataFrame, spec: IndexSpec, folders: int, rows: int, within_key: Sequence[str], beginning: str = ""
) -> DataFrame:
    """The entries, shuffled so that each task has whole index files, one after the other, each sorted by key.
    `beginning` is a likely prefix of the first key column.

    Each large file has its own task. Its entries need not be sorted by file first, so that Spark compares the key
    quickly (`sort_prefix`)."""
    cores = cores_of(entries.sparkSession)
    files, keys = folders * spec.buckets, [key.name for key in spec.entry_schema.keys]
    if files >= MOST_TASKS or rows < files * ROWS_OF_A_TASK:
        tasks = min(files, max(cores, rows // ROWS_PER_TASK), MOST_TASKS)
        return entries.repartition(tasks, route(F.col(GROUP), tasks)).sortWithinPartitions(GROUP, *keys, *within_key)
    tasks = files + (SUB in entries.columns)  # the last one for the counts of a scan
    routed = entries.repartition(tasks, route(F.col(GROUP), tasks))
    if not beginning:
        return routed.sortWithinPartitions(*keys, *within_key)
    headed = routed.withColumn(HEAD, head_of(F.col(keys[0]), beginning))
    return headed.sortWithinPartitions(HEAD, *keys, *within_key).drop(HEAD)


def _entry_of(row: dict[str, Any]) -> IndexFileEntry:
    found = row["filter"]
    return IndexFileEntry(**{**row, "filter": found and BloomFilterEntry(**found)})


def _writer(
    task: WriteTask, entries_of: Callable[[pa.RecordBatch, WriteTask], pa.RecordBatch]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task. `entries_of` makes the columns of the entry schema from the sorted columns."""

    @hands_errors_over
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_at(task.index)
        done = []
        for group, pieces in groupby(_pieces(batches), key=lambda piece: piece[0]):
            folder, bucket = divmod(group, task.spec.buckets)
            if folder == len(task.folders):
                done += [count for _, piece in pieces for count in _counts(piece)]
                continue
            entry = write_index_file(
                storage,
                task.spec,
                task.segment,
                task.folders[folder],
                bucket,
                (entries_of(piece, task) for _, piece in pieces),
            )
            done.append(asdict(entry))
        yield pa.RecordBatch.from_pylist(done, RESULT)

    return write


def _counts(piece: pa.RecordBatch) -> list[dict[str, Any]]:
    """The counts of a scan, as rows of RESULT without a path: a file's ordinal as the bucket, its rows as entries, its
    ragged rows as the size."""
    found = zip(*(piece.column(name).to_pylist() for name in (FILE, ROW, SIZE)), strict=True)
    return [{"path": None, "bucket": file, "entries": rows, "size": ragged} for file, rows, ragged in found]


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, split where the group changes."""
    for batch in batches:
        groups = batch.column(GROUP).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        for begin, end in pairwise(cuts):
            if end > begin:
                yield int(groups[begin]), batch.slice(begin, end - begin)


def _entries(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """The columns of the entry schema: keys, included columns, partition columns in a flat index, then the pointer."""
    spec = task.spec
    names = [column.name for column in spec.entry_schema.columns]
    columns = [batch.column(name) for name in names[: len(spec.stored_keys) + len(spec.include)]]
    named = file_columns(spec, task.paths, task.partitions, batch.column(FILE))
    arrays = [*columns, *named, *(batch.column(name) for name in (ROW, SUB, SIZE))]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _values(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """The columns of the entry schema of a key-value folder."""
    return batch.select([column.name for column in task.spec.entry_schema.columns])

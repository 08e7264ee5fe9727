"""Page maps of source files, which Spark tasks make and write."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from gnomon.indexer.build.write import check_on_disk
from gnomon.indexer.spark import hands_errors_over
from gnomon.jobs.files import exported_maps, shares_of
from gnomon.shadow.fetch import page_maps_path, write_page_maps
from gnomon.shadow.metadata import DEEP, IndexSpec, PageMapsEntry, SourceFileEntry
from gnomon.shadow.storage import source_storage, storage_at
from gnomon.sources import maps_have_values

LOG = logging.getLogger("gnomon.build")

RESULT = pa.schema(
    [
        ("file", pa.int32()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("crc32", pa.int64()),
        ("values", pa.bool_()),
    ]
)
RESULT_DDL = "file int, path string, size bigint, offset bigint, length bigint, crc32 bigint, values boolean"


@dataclass(frozen=True)
class MapTask:
    """The input of a task."""

    root: str
    index: str
    spec: IndexSpec
    segment: str
    files: Sequence[SourceFileEntry]
    shares: Sequence[Sequence[int]]  # for each task, the ordinals of its files


def write_maps(
    spark: SparkSession, root: str, index: str, spec: IndexSpec, segment: str, files: Sequence[SourceFileEntry]
) -> dict[str, PageMapsEntry]:
    """The page maps of source files that have rows, by path. Each task writes the maps of its files into one file of
    the index. Where `spec` asks for value maps and the loops that make them are not compiled, they are left out."""
    there = [file for file in files if file.rows]
    if not there:
        return {}
    shares = shares_of([file.size for file in there], spark.sparkContext.defaultParallelism)
    task = MapTask(root, index, spec, segment, there, shares)
    rows = spark.range(0, len(shares), 1, len(shares)).mapInArrow(_writer(task), RESULT_DDL).collect()
    check_on_disk(index, {row.path: row.size for row in rows})
    bare = sum(not row["values"] for row in rows) if spec.page_maps == DEEP else 0
    if bare:
        LOG.warning("no value maps of %d files: Gnomon's loops are not compiled where Spark's tasks run", bare)
    return {there[row.file].path: PageMapsEntry(row.path, row.size, row.offset, row.length, row.crc32) for row in rows}


def _writer(task: MapTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    @hands_errors_over
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, index = source_storage(task.root), storage_at(task.index)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                blocks = [exported_maps(source, task.spec, task.files[file]) for file in task.shares[number]]
                placed = write_page_maps(index, page_maps_path(task.segment, number), blocks)
                done = [
                    {"file": file, **asdict(entry), "values": maps_have_values(task.spec.format, block)}
                    for file, entry, block in zip(task.shares[number], placed, blocks, strict=True)
                ]
                yield pa.RecordBatch.from_pylist(done, RESULT)

    return write

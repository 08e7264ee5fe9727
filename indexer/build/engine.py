"""The engine that scans and writes for a build in Spark's tasks, and makes page maps there."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from gnomon.indexer.build.write import check_on_disk, write_index_files
from gnomon.indexer.spark import cores_of, hands_errors_over, named_jobs, spark_stage, task_errors
from gnomon.indexer.tables import add_partitions, folders_table, read_table
from gnomon.jobs import Stages, dione
from gnomon.jobs import build as jobs
from gnomon.jobs.files import MOST_TASKS, CatalogTable, Described, columns_in, exported_maps, shares_of, with_rows
from gnomon.shadow.fetch import page_maps_path, write_page_maps
from gnomon.shadow.metadata import DEEP, IndexFileEntry, IndexSpec, PageMapsEntry, SourceFileEntry, SourceRoot
from gnomon.shadow.storage import FileInfo, Storage, source_storage, storage_at
from gnomon.shadow.tables import LakeSource, Table
from gnomon.sources import Options, maps_have_values

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
    shares = shares_of([file.size for file in there], cores_of(spark))
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


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class SparkEngine:
    """Builds by the tasks of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def read_table(self, source: str) -> CatalogTable | LakeSource:
        return read_table(self.spark, source)

    def folders_table(self, source: str, root: str) -> Table:
        return folders_table(self.spark, source, root)

    def add_partitions(self, source: str, root: str, folders: Collection[str]) -> None:
        add_partitions(self.spark, source, root, folders)

    def columns_of_text(
        self, root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]
    ) -> list[tuple[int, pa.Schema]]:
        place, given = root.storage.root, dict(options)

        @hands_errors_over
        def inferred(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = source_storage(place)
            for batch in batches:
                for ordinal in batch.column(0).to_pylist():
                    schema = columns_in(storage, format_name, given, files[ordinal])
                    yield pa.RecordBatch.from_pylist([{"file": ordinal, "schema": schema.serialize().to_pybytes()}])

        tasks = self.spark.range(0, len(files), 1, min(len(files), MOST_TASKS))
        found = tasks.mapInArrow(inferred, "file bigint, schema binary").collect()
        return [(row.file, pa.ipc.read_schema(pa.py_buffer(bytes(row.schema)))) for row in found]

    def write_page_maps(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        files: Sequence[SourceFileEntry],
        stages: Stages,
    ) -> dict[str, PageMapsEntry]:
        with spark_stage(stages, self.spark, "page maps"):
            return write_maps(self.spark, root.storage.root, storage.root, spec, segment, files)

    def write_index_files(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        described: Sequence[Described],
        stages: Stages,
    ) -> tuple[list[IndexFileEntry], list[Described]]:
        is_about = not all(one.is_counted for one in described)
        rows = sum(one.likely_rows for one in described)
        with spark_stage(stages, self.spark, "write", rows, is_about):
            return _write(self.spark, storage, root, spec, segment, described)

    @contextmanager
    def running(self, job: str) -> Iterator[None]:
        with named_jobs(self.spark, job), task_errors():
            yield


def on_spark(
    job: Callable[Concatenate[jobs.Engine | None, Arguments], Result],
) -> Callable[Concatenate[SparkSession | None, Arguments], Result]:
    """The job as a function that takes a Spark session in place of an engine. With None, this process does the work."""

    @wraps(job)
    def call(spark: SparkSession | None, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return job(None if spark is None else SparkEngine(spark), *args, **kwargs)

    return call


build = on_spark(jobs.build)
import_dione = on_spark(dione.import_dione)


def _write(
    spark: SparkSession,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: Sequence[Described],
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files. Returns them, and the source files with their numbers of rows."""
    empty = [one for one in described if one.is_counted and not one.entry.rows]
    others = [one for one in described if not one.is_counted or one.entry.rows]
    if not others:
        return [], list(described)
    written, rows, ragged = write_index_files(spark, root.storage.root, storage.root, spec, segment, others)
    # The tasks number the files. The segment lists its files in the same order, so that entries of a key have it.
    numbers = {one.entry.path: number for number, one in enumerate(described)}
    return written, sorted([*empty, *with_rows(others, rows, ragged)], key=lambda one: numbers[one.entry.path])

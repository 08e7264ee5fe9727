"""What row lineage would save after a compaction of an Iceberg v3 table: `python -m bench.repoint --spark PYTHON`.

A build indexes the compacted files: it scans their keys, sorts the entries and writes index files. With the row ids of
format version 3, the old entries could be pointed to the new files instead: a read of `_row_id` from the new files, a
read of the old entries in order, and the same writes, without a sort. The parts are timed one after the other in one
thread, without Spark, and both ways must give the same entries."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bench.page import RecordOption, Report, digits, row
from bench.tables import catalog_of, source_of
from gnomon.btree.blocks import LookupStats
from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.lookup.index_files import open_index_file
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.storage import LocalStorage, SourceStorage, source_storage, storage_at
from gnomon.shadow.tables import lake_source
from gnomon.shadow.write import index_locally, stored_columns
from gnomon.shadow.write.merge import sort_order
from gnomon.sources import POINTER_COLUMNS, open_source
from tests.golden.tables.session import SparkBeside, spark_beside
from tests.opened import open_index

KEYS = {
    "a bigint": "(id * 7919) % 1000000007",
    "a URL": "concat('https://www.host-', id % 9973, '.example/archive/2026/', md5(cast(id as string)), '.html')",
}
LIBRARIES = ("gnomon-index", "pyiceberg", "pyarrow", "pyspark")
NEW = "b" * 16  # a segment
Result = TypeVar("Result")

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Parts:
    """The seconds of each part of a way."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, part: str, work: Callable[[], Result]) -> Result:
        begin = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[part] = self.seconds.get(part, 0) + time.perf_counter() - begin

    def lines(self, way: str) -> list[str]:
        seconds = {**self.seconds, "all": sum(self.seconds.values())}
        return [row([way, part, digits(took)]) for part, took in seconds.items()]


def first_row_ids(metadata: Any) -> dict[str, int]:
    """The row id of the first row of each live data file: its own, or counted on from its manifest's."""
    found = {}
    for manifest in metadata.current_snapshot().manifests(metadata.io):
        with open(manifest.manifest_path.removeprefix("file:"), "rb") as opened:
            entries = list(fastavro.reader(opened))
        with open(metadata.current_snapshot().manifest_list.removeprefix("file:"), "rb") as opened:
            lists = {one["manifest_path"]: one for one in fastavro.reader(opened)}
        following = lists[manifest.manifest_path]["first_row_id"]
        for entry in entries:
            file = entry["data_file"]
            own = file.get("first_row_id")
            if own is None:
                own, following = following, following + file["record_count"]
            if entry["status"] != 2:
                found[Path(file["file_path"]).name] = own
    return found


def entries_of(storage: Any, spec: IndexSpec, segment: Segment) -> list[pa.Table]:
    """The entries of each index file of a segment, in order."""
    return [
        pa.Table.from_batches(
            open_index_file(storage, SegmentFile(segment, file), spec, LookupStats()).scan_batches()
        ).combine_chunks()
        for file in segment.index_files
    ]


class Compaction(NamedTuple):
    """An index of a table, and the files that a compaction wrote since."""

    place: str
    spec: IndexSpec
    segment: Segment
    first_row_ids: dict[str, int]  # by the name of an old file
    root: SourceStorage
    files: list[SourceFileEntry]


def compacted(key: str, folder: Path, rows: int, spark: SparkBeside) -> Compaction:
    """Write a table of 8 files, index it, and compact it."""
    catalog, index = catalog_of(folder), str(folder / "index")
    spark.run("CREATE NAMESPACE IF NOT EXISTS own.ns")
    spark.run(
        "CREATE TABLE own.ns.t USING iceberg TBLPROPERTIES ('format-version' = '3') AS "
        f"SELECT {KEYS[key]} AS id, id AS n, repeat(md5(cast(id as string)), 4) AS text FROM range(0, {rows}, 1, 8)"
    )
    build_index(LocalEngine(), source_of(catalog), index, BuildRequest(["id"]))
    first = first_row_ids(catalog.load_table("ns.t"))
    spark.run("CALL own.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))")
    opened, content = open_index(index), lake_source(source_of(catalog)).content
    root, spec, files = source_storage(content.root), opened.spec, []
    for path in content.files:
        with root.open(path) as file:
            source = open_source(file, spec.format, spec.read_options)
            files.append(
                SourceFileEntry(path, "", source.rows or 0, file.size, file.mtime_ns, source.digest, file.etag)
            )
    return Compaction(index, spec, opened.view.segments[0], first, root, files)


def built_again(of: Compaction, storage: LocalStorage) -> tuple[list[IndexFileEntry], list[str]]:
    """Index the new files, as a build does. Returns the files, and the lines of the table."""
    parts, fetcher = Parts(), Fetcher(of.root, of.spec, 64 << 20)
    keys = parts.of("scan of the keys", lambda: [one for file in of.files for one in fetcher.scan(file, ["id"])])
    ids = pa.concat_arrays([batch.column(0) for batch in keys])
    parts.of("sort of the keys", lambda: sort_order([ids]))
    begin = time.perf_counter()

    def scan(file: SourceFileEntry) -> Iterator[list[pa.Array]]:
        return stored_columns(of.spec, fetcher.scan(file, ["id"]), file.path)

    written, _ = index_locally(storage, of.spec, NEW, scan, of.files)
    whole = time.perf_counter() - begin
    parts.seconds["the rest: hashes, entries in order, writes"] = whole - sum(parts.seconds.values())
    return written, parts.lines("build of the new files")


def pointed_again(of: Compaction, storage: LocalStorage) -> tuple[list[IndexFileEntry], list[str]]:
    """Write the old entries with pointers to the new files, found by row ids. Returns as `built_again`."""
    parts = Parts()

    def scan() -> list[Any]:
        names = [f"{of.root.root}/{file.path}" for file in of.files]
        return [pq.read_table(name, columns=["_row_id"]).column(0).to_numpy() for name in names]

    row_ids = parts.of("scan of `_row_id`", scan)
    numbers = np.concatenate(row_ids)
    base = int(numbers.min())

    def mapped() -> Any:
        rows = np.full(int(numbers.max()) - base + 1, -1, np.int64)
        rows[numbers - base] = np.arange(len(numbers))
        return rows

    row_of = parts.of("map of row ids", mapped)
    entries = parts.of("read of the old entries", lambda: entries_of(storage_at(of.place), of.spec, of.segment))
    of_file = np.repeat(np.arange(len(of.files)), [len(one) for one in row_ids])
    positions = np.concatenate([np.arange(len(one)) for one in row_ids])
    names = pa.array([file.path for file in of.files])

    def repoint(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(POINTER_COLUMNS[0])
        old = table.column(at).chunk(0).dictionary_encode()
        starts = np.array([of.first_row_ids[Path(path).name] for path in old.dictionary.to_pylist()], np.int64)
        rows = row_of[starts[old.indices.to_numpy()] + table.column(at + 1).to_numpy() - base]
        table, rows = table.filter(pa.array(rows >= 0)), rows[rows >= 0]
        table = table.set_column(at, table.schema.field(at), names.take(pa.array(of_file[rows])))
        return table.set_column(at + 1, table.schema.field(at + 1), pa.array(positions[rows]))

    tables = parts.of("new pointers", lambda: [repoint(table) for table in entries])
    groups = list(zip(of.segment.index_files, tables, strict=True))
    written = parts.of(
        "writes",
        lambda: [write_index_file(storage, of.spec, NEW, one.partition, one.bucket, [table]) for one, table in groups],
    )
    return written, parts.lines("new pointers for the old entries")


def compare(key: str, folder: Path, rows: int, spark: SparkBeside) -> list[str]:
    """The lines of a key's table."""
    of = compacted(key, folder, rows, spark)
    ways, lines = [], [row([f"**{key}, {rows:,} rows**", "", ""])]
    for name, way in (("built", built_again), ("moved", pointed_again)):
        storage = LocalStorage(str(folder / name))
        files, timed = way(of, storage)
        lines += timed
        written = Segment(NEW, tuple(files), tuple(of.files))
        # The column after the pointer is an estimate of the row's size, which compaction changes.
        ways.append([table.drop_columns(POINTER_COLUMNS[-1]) for table in entries_of(storage, of.spec, written)])
    if ways[0] != ways[1]:
        raise ValueError(f"{key}: the entries of both ways differ")
    return lines


@app.command()
def main(
    spark: Annotated[str, typer.Option(help="The Python of the environment of deploy/make-tables.sh.")],
    rows: Annotated[int, typer.Option(help="Rows of a table.")] = 1_000_000,
    folder: Annotated[Path, typer.Option(help="Where the data go.")] = Path(".bench/repoint"),
    record: RecordOption = False,
) -> None:
    """Compare a build after a compaction with new pointers by row ids."""
    report = Report("bench.repoint", LIBRARIES, {"spark": spark, "rows": rows})
    report.say("\n".join([row(["way", "part", "s"]), row(["---"] * 3)]))
    for name in KEYS:
        place = folder / name.split()[1]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        with spark_beside(spark, place) as session:
            report.say("\n".join(compare(name, place, rows, session)))
    report.record(record)


if __name__ == "__main__":
    app()

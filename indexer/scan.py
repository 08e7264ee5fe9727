"""Keys and row ordinals of source files: from Spark's own vectorised scan of the key columns, and, on stores that Spark
is not taken to reach, from that of `sources` inside Arrow map tasks."""

import heapq
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from btree.keys import arrow_type
from indexer.files import Described, listed
from indexer.keys import column, quoted
from indexer.tables import read_parquet
from shadow.spec import IndexSpec, KeyColumn
from shadow.storage import FileInfo, Storage, is_local, storage_at
from sources import open_source
from sources.pointer import OFFSET

GROUP, FILE, ROW = "__gnomon_group", "__gnomon_file", "__gnomon_row"
FOLDER = "__gnomon_folder"
URI_SAFE = "/;:@&=+$,-_.!~*'()"  # what java.net.URI leaves in a path
MOST_TASKS = 10_000  # of a scan of our own


def scan(spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described]) -> DataFrame:
    """One row for each source row: stored key and included columns under their names in the index file, GROUP
    (folder ordinal * buckets + bucket), FILE (ordinal in `described`) and ROW (ordinal in the file)."""
    names = [entry.name for entry in spec.entry_schema.columns][: len(spec.stored_keys) + len(spec.include)]
    rows = (_by_spark if is_local(root) else _by_sources)(spark, root, spec, described, names)
    bucket = F.pmod(F.hash(*names[: len(spec.stored_keys)]), F.lit(spec.buckets))
    group = (F.col(FOLDER) * spec.buckets + bucket).cast("int").alias(GROUP)
    return rows.select(*names, group, F.col(FILE), F.col(ROW))


def _by_spark(
    spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described], names: Sequence[str]
) -> DataFrame:
    columns = [*spec.stored_keys, *spec.include]
    schema = ", ".join(f"{quoted(c.name)} {c.type}" for c in columns)
    paths = [f"{root}/{one.entry.path}" for one in described]
    folders = _folder_ordinals(spec, described)
    files = spark.createDataFrame(
        [(file_uri(path), i, folders[i]) for i, path in enumerate(paths)],
        f"__gnomon_path string, {FILE} int, {FOLDER} int",
    )
    stored = [column(c.name).alias(name) for c, name in zip(columns, names, strict=True)]
    rows = read_parquet(spark, paths, schema).select(
        *stored,
        F.col("_metadata.file_path").alias("__gnomon_path"),
        F.col("_metadata.row_index").alias(ROW),
    )
    return rows.join(F.broadcast(files), "__gnomon_path")


def _by_sources(
    spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described], names: Sequence[str]
) -> DataFrame:
    columns = [*spec.stored_keys, *spec.include]
    folders = _folder_ordinals(spec, described)
    shares = _shares([one.scan_bytes for one in described], spark.sparkContext.defaultParallelism)
    files = [one.entry.info for one in described]
    format_name = spec.format

    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_at(root)
        for batch in batches:
            for ordinal in (file for share in batch.column(0).to_pylist() for file in shares[share]):
                rows = _scan_file(storage, files[ordinal], format_name, columns)
                for *values, offsets in rows:
                    numbers = [pa.array([n] * len(offsets), pa.int32()) for n in (folders[ordinal], ordinal)]
                    arrays = [*values, *numbers, offsets]
                    yield pa.RecordBatch.from_arrays(arrays, names=[*names, FOLDER, FILE, ROW])

    kinds = [f"{quoted(name)} {c.type}" for name, c in zip(names, columns, strict=True)]
    schema = ", ".join([*kinds, f"{FOLDER} int", f"{FILE} int", f"{ROW} bigint"])
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)


def _scan_file(
    storage: Storage, info: FileInfo, format_name: str, columns: Sequence[KeyColumn]
) -> Iterator[list[pa.Array]]:
    """The columns of a file in the types of the index, a batch at a time, and behind them the rows' ordinals. A column
    that the file lacks is null."""
    with listed(storage, info) as reader:
        source = open_source(reader, format_name)
        there = [c.name for c in columns if c.name in source.schema.names]
        for batch in source.scan(reader, there):
            found = dict(zip(there, batch.columns, strict=False))  # the pointer's columns stand behind
            yield [
                *(
                    found[c.name].cast(arrow_type(c.type))
                    if c.name in found
                    else pa.nulls(batch.num_rows, arrow_type(c.type))
                    for c in columns
                ),
                batch.column(batch.schema.get_field_index(OFFSET)),
            ]


def _shares(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """The ordinals of files for each task: the largest first, each to the task that has least."""
    tasks = [(0, task) for task in range(max(1, min(len(sizes), max(4 * cores, len(sizes) // 64), MOST_TASKS)))]
    shares: list[list[int]] = [[] for _ in tasks]
    for file in sorted(range(len(sizes)), key=lambda file: -sizes[file]):
        load, task = heapq.heappop(tasks)
        shares[task].append(file)
        heapq.heappush(tasks, (load + sizes[file] + 1, task))
    return shares


def _folder_ordinals(spec: IndexSpec, described: Sequence[Described]) -> list[int]:
    """For each file, the ordinal of its index files' folder among `folders_of` them."""
    ordinals = {folder: i for i, folder in enumerate(folders_of(spec, described))}
    return [ordinals[spec.folder_of(one.entry.partition)] for one in described]


def folders_of(spec: IndexSpec, described: Sequence[Described]) -> list[str]:
    """The folders of the index files for these source files, ordered."""
    return sorted({spec.folder_of(one.entry.partition) for one in described})


def file_uri(path: str) -> str:
    """A local path as Spark's `_metadata.file_path` shows it: percent-encoded as java.net.URI does."""
    return "file:" + "".join(_uri_character(c) for c in path)


def _uri_character(c: str) -> str:
    if c.isascii():
        return quote(c, safe=URI_SAFE)
    return quote(c) if unicodedata.category(c) in ("Zs", "Zl", "Zp", "Cc") else c

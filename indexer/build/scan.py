"""Keys and pointers of source files. Spark's own vectorised scan reads local Parquet files. The scan of `sources`,
inside Arrow map tasks, reads other formats, files on stores that Spark may not reach, columns that Spark reads
differently, and files that Spark cannot read."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import count
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from gnomon.btree.hash_columns import xxhash64_columns
from gnomon.btree.key_types import key_type
from gnomon.indexer.build.reader_parity import reads_alike
from gnomon.indexer.keys import column
from gnomon.indexer.spark import hands_errors_over, key_spark_type
from gnomon.indexer.tables import read_parquet
from gnomon.jobs.files import Described, scan_file, shares_of
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import is_local, join, source_storage

GROUP, FILE, ROW = "__gnomon_group", "__gnomon_file", "__gnomon_row"
SUB, SIZE = "__gnomon_sub_offset", "__gnomon_size"
MOST_COUNTED = 2**31 - 1  # ragged records of a range of a file
FOLDER, PATH_HASH = "__gnomon_folder", "__gnomon_path_hash"
URI_SAFE = "/;:@&=+$,-_.!~*'()"  # characters that java.net.URI does not escape in a path


def is_for_spark(spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described]) -> bool:
    """Whether Spark can read these files, with the same values as a fetch."""
    case_sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
    are_local = all(is_local(join(root, one.entry.path)) for one in described)
    return are_local and spec.format == "parquet" and reads_alike(spec, described, case_sensitive)


def scan(spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described], in_spark: bool) -> DataFrame:
    """One row for each source row: stored key and included columns under their names in the index file, GROUP (folder
    ordinal * buckets + bucket), FILE (ordinal in `described`), and ROW, its `data_offset`. A scan by `sources` (not
    `in_spark`) also has SUB and SIZE, the rest of the pointer. It adds a row for each scanned range: ROW is the number
    of rows in the range, and GROUP the first number after the groups of all folders."""
    names = [entry.name for entry in spec.entry_schema.columns][: len(spec.stored_keys) + len(spec.include)]
    rows = (_by_spark if in_spark else _by_sources)(spark, root, spec, described, names)
    bucket = F.pmod(F.hash(*names[: len(spec.stored_keys)]), F.lit(spec.buckets))
    behind = F.lit(len(folders_of(spec, described)) * spec.buckets)
    group = F.least(F.col(FOLDER) * spec.buckets + bucket, behind).cast("int").alias(GROUP)
    return rows.select(*names, group, F.col(FILE), F.col(ROW), *([] if in_spark else [F.col(SUB), F.col(SIZE)]))


def _by_spark(
    spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described], names: Sequence[str]
) -> DataFrame:
    columns = [*spec.stored_keys, *spec.include]
    schema = StructType([StructField(c.name, key_spark_type(c.type)) for c in columns])
    paths = [join(root, one.entry.path) for one in described]
    folders = _folder_ordinals(spec, described)
    salt, hashes = distinct_hashes([file_uri(path) for path in paths])
    files = spark.createDataFrame(
        [(one, i, folders[i]) for i, one in enumerate(hashes)], f"{PATH_HASH} bigint, {FILE} int, {FOLDER} int"
    )
    stored = [column(c.name).alias(name) for c, name in zip(columns, names, strict=True)]
    rows = read_parquet(spark, paths, schema).select(
        *stored,
        F.xxhash64(F.lit(salt), F.col("_metadata.file_path")).alias(PATH_HASH),
        F.col("_metadata.row_index").alias(ROW),
    )
    return rows.join(F.broadcast(files), PATH_HASH)


def distinct_hashes(paths: Sequence[str]) -> tuple[int, list[int]]:
    """A salt with which Spark's `xxhash64(salt, path)` differs for all paths, and the hashes of the paths. The scan
    joins rows to their files by these numbers, which is faster than by paths."""
    texts, different = pa.array(paths, pa.large_binary()), len(set(paths))
    hashed = ((salt, xxhash64_columns([pa.repeat(pa.scalar(salt, pa.int32()), len(paths)), texts])) for salt in count())
    return next((salt, hashes.tolist()) for salt, hashes in hashed if len(np.unique(hashes)) == different)


def _by_sources(
    spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described], names: Sequence[str]
) -> DataFrame:
    columns = [*spec.stored_keys, *spec.include]
    folders = _folder_ordinals(spec, described)
    pieces = [(file, split) for file, one in enumerate(described) for split in one.splits]
    weights = [described[file].scan_bytes // len(described[file].splits) for file, _ in pieces]
    shares = shares_of(weights, spark.sparkContext.defaultParallelism)
    files = [one.entry.info for one in described]
    behind = len(folders_of(spec, described))
    tail = [FOLDER, FILE, ROW, SUB, SIZE]

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(root)
        for batch in batches:
            for file, split in (pieces[piece] for share in batch.column(0).to_pylist() for piece in shares[share]):
                rows, ragged = 0, list[int]()
                for *values, offsets, sub_offsets, sizes in scan_file(storage, files[file], spec, split, ragged.append):
                    rows += len(offsets)
                    numbers = [pa.array(np.full(len(offsets), n, np.int32)) for n in (folders[file], file)]
                    arrays = [*values, *numbers, offsets, sub_offsets, sizes]
                    yield pa.RecordBatch.from_arrays(arrays, names=[*names, *tail])
                nulls = [pa.nulls(1, key_type(c.type).arrow) for c in columns]
                kinds = (pa.int32(), pa.int32(), pa.int64(), pa.int32(), pa.int32())
                counted = (behind, file, rows, 0, min(sum(ragged), MOST_COUNTED))
                count = [pa.array([n], kind) for n, kind in zip(counted, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays([*nulls, *count], names=[*names, *tail])

    stored = [StructField(name, key_spark_type(c.type)) for name, c in zip(names, columns, strict=True)]
    numbers = zip(tail, (IntegerType(), IntegerType(), LongType(), IntegerType(), IntegerType()), strict=True)
    schema = StructType([*stored, *(StructField(name, kind) for name, kind in numbers)])
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)


def _folder_ordinals(spec: IndexSpec, described: Sequence[Described]) -> list[int]:
    """For each file, the ordinal of its folder in `folders_of`."""
    ordinals = {folder: i for i, folder in enumerate(folders_of(spec, described))}
    return [ordinals[spec.folder_of(one.entry.partition)] for one in described]


def folders_of(spec: IndexSpec, described: Sequence[Described]) -> list[str]:
    """The folders of the index files for these source files, ordered."""
    return sorted({spec.folder_of(one.entry.partition) for one in described})


def file_uri(path: str) -> str:
    """A local path in the form of Spark's `_metadata.file_path`: percent-encoded as in java.net.URI."""
    return "file:" + "".join(_uri_character(c) for c in path)


def _uri_character(c: str) -> str:
    if c.isascii():
        return quote(c, safe=URI_SAFE)
    return quote(c) if unicodedata.category(c) in ("Zs", "Zl", "Zp", "Cc") else c

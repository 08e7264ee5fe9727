"""Keys and pointers of source files, scanned by `sources` inside Arrow map tasks."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from gnomon.btree.key_types import key_type
from gnomon.indexer.spark import hands_errors_over, key_spark_type
from gnomon.jobs.files import Described, scan_file, shares_of
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import source_storage

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
    pieces = [(file, split) for file, one in enumerate(described) for split in one.splits]
    weights = [described[file].scan_bytes // len(described[file].splits) for file, _ in pieces]
    shares = shares_of(weights, spark.sparkContext.defaultParallelism)
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
                    numbers = [pa.array(np.full(len(offsets), n, np.int32)) for n in (folder_of[file], file)]
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
    rows = spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)
    bucket = F.pmod(F.hash(*names[: len(spec.stored_keys)]), F.lit(spec.buckets))
    group = F.least(F.col(FOLDER) * spec.buckets + bucket, F.lit(behind * spec.buckets)).cast("int").alias(GROUP)
    return rows.select(*names, group, FILE, ROW, SUB, SIZE)


def folders_of(spec: IndexSpec, described: Sequence[Described]) -> list[str]:
    """The folders of the index files for these source files, ordered."""
    return sorted({spec.folder_of(one.entry.partition) for one in described})

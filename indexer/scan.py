"""Keys and row ordinals of source files, from Spark's own vectorised scan of the key columns."""

import unicodedata
from collections.abc import Sequence
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from indexer.files import Described
from indexer.keys import column, quoted
from indexer.tables import read_parquet
from shadow.spec import IndexSpec

GROUP, FILE, ROW = "__gnomon_group", "__gnomon_file", "__gnomon_row"
URI_SAFE = "/;:@&=+$,-_.!~*'()"  # what java.net.URI leaves in a path


def scan(spark: SparkSession, root: str, spec: IndexSpec, described: Sequence[Described]) -> DataFrame:
    """One row for each source row: stored key and included columns under their names in the index file, GROUP
    (partition ordinal * buckets + bucket), FILE (ordinal in `described`) and ROW (ordinal in the file)."""
    columns = [*spec.stored_keys, *spec.include]
    schema = ", ".join(f"{quoted(c.name)} {c.type}" for c in columns)
    paths = [f"{root}/{one.entry.path}" for one in described]
    ordinals = {partition: i for i, partition in enumerate(partitions_of(described))}
    files = spark.createDataFrame(
        [
            (file_uri(path), i, ordinals[one.entry.partition])
            for i, (path, one) in enumerate(zip(paths, described, strict=True))
        ],
        "__gnomon_path string, __gnomon_file int, __gnomon_partition int",
    )
    rows = read_parquet(spark, paths, schema)
    names = [entry.name for entry in spec.entry_schema.columns]
    bucket = F.pmod(F.hash(*names[: len(spec.stored_keys)]), F.lit(spec.buckets))
    stored = [column(c.name).alias(name) for c, name in zip(columns, names, strict=False)]
    return (
        rows.select(
            *stored,
            F.col("_metadata.file_path").alias("__gnomon_path"),
            F.col("_metadata.row_index").alias(ROW),
        )
        .join(F.broadcast(files), "__gnomon_path")
        .select(
            *names[: len(columns)],
            (F.col("__gnomon_partition") * spec.buckets + bucket).cast("int").alias(GROUP),
            F.col(FILE),
            F.col(ROW),
        )
    )


def partitions_of(described: Sequence[Described]) -> list[str]:
    """The partition folders of the files, ordered."""
    return sorted({one.entry.partition for one in described})


def file_uri(path: str) -> str:
    """A local path as Spark's `_metadata.file_path` shows it: percent-encoded as java.net.URI does."""
    return "file:" + "".join(_uri_character(c) for c in path)


def _uri_character(c: str) -> str:
    if c.isascii():
        return quote(c, safe=URI_SAFE)
    return quote(c) if unicodedata.category(c) in ("Zs", "Zl", "Zp", "Cc") else c

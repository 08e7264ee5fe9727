"""The rows of a DataFrame for a key-value folder: Spark shuffles them, and its tasks sort them and write index files.
`gnomon.jobs.build` has the rules."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gnomon.indexer.build.write import write_values
from gnomon.indexer.spark import column, task_errors
from gnomon.jobs.build import (
    HeldRows,
    LocalValues,
    Measured,
    Partition,
    ValueRows,
    WriteResult,
    is_measured,
    write_rows,
)
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec
from gnomon.shadow.storage import Place, Storage

HASH, PART, PLACE, NUMBER = "__gnomon_hash", "__gnomon_part", "__gnomon_place", "__gnomon_number"


def write_btree(
    df: DataFrame | pa.Table | pa.RecordBatchReader,
    path: Place,
    keys: Sequence[str],
    buckets: int | None = None,
    mode: str = "error",
    partitions: Sequence[str] = (),
) -> WriteResult:
    """Write the rows of `df` to the folder `path`. `shadow.open_index(path).get(key)` and `gnomon get` then find all
    rows of a key (the columns `keys`), each with all columns.

    Spark writes a DataFrame. This process writes an Arrow table, a reader of batches (read once), or a frame of pandas
    or Polars: the same bytes, without a session, within a bound of memory.

    `partitions` are columns that become partition folders: a look-up may name them (`where`), and a key may contain
    some of them. Each partition has a number of buckets for its own size, which divides `buckets`, the largest.

    `mode` decides about a folder with rows: "error" refuses it, "overwrite" replaces all rows in one commit and may
    change the columns, "append" adds rows. `df` is evaluated once. UsageError for columns that an index file cannot
    hold, SpecMismatch for rows that cannot be added, ConcurrentCommit where another program committed first."""
    rows: ValueRows = SparkValues(df) if isinstance(df, DataFrame) else LocalValues(df)
    return write_rows(rows, path, keys, buckets, mode, partitions)


class SparkValues:
    """The rows of a DataFrame for a key-value folder."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    @property
    def columns(self) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in self._df.schema]

    @contextmanager
    def held(self, spec: IndexSpec) -> Iterator[HeldRows]:
        """The rows, persisted unless the DataFrame is."""
        df, named = self._df, _named(self._df, spec)
        is_cached = df.storageLevel.useMemory or df.storageLevel.useDisk
        if not is_cached:
            named.persist()
        try:
            with task_errors():
                yield _SparkRows(named, spec)
        finally:
            if not is_cached:
                named.unpersist()


class _SparkRows:
    """Rows with the columns of `_named`."""

    def __init__(self, named: DataFrame, spec: IndexSpec) -> None:
        self._named, self._spec = named, spec

    def measured(self, most: int) -> list[Measured]:
        named, spec = self._named, self._spec
        columns = spec.entry_schema.columns
        texts = [F.octet_length(one.name) for one in columns if is_measured(one.type)]
        lengths = [F.coalesce(F.sum(length), F.lit(0)).alias(f"c{i}") for i, length in enumerate(texts)]
        by_part = named.groupBy(*_parts(spec)).agg(F.count(F.lit(1)).alias("rows"), *lengths)
        found = []
        for row in by_part.limit(most + 1).collect():
            values, (rows, *sizes) = row[: len(spec.partitions)], row[len(spec.partitions) :]
            if rows:
                found.append(Measured(tuple(values), rows, sum(sizes)))
        return found

    def write(
        self, storage: Storage, spec: IndexSpec, segment: str, found: Sequence[Partition]
    ) -> list[IndexFileEntry]:
        named = self._named
        parts, folders = _parts(spec), [one.folder for one in found]
        if parts:
            places = [(*one.texts, i, spec.buckets_in(one.folder)) for i, one in enumerate(found)]
            names = [*(f"{part} string" for part in parts), f"{PLACE} int", f"{NUMBER} int"]
            table = named.sparkSession.createDataFrame(places, ", ".join(names))
            is_same = [named[part].eqNullSafe(table[part]) for part in parts]
            named = named.join(F.broadcast(table), is_same, "inner").drop(*[table[part] for part in parts])
            place, number = F.col(PLACE), F.col(NUMBER)
        else:
            place, number = F.lit(0), F.lit(spec.buckets)
        group = place * spec.buckets + F.pmod(F.col(HASH), number)
        return write_values(named, group, storage.root, spec, segment, folders, sum(one.rows for one in found))


def _named(df: DataFrame, spec: IndexSpec) -> DataFrame:
    """The stored columns under their names in the index files, the hash of the key, and the texts of the partition
    columns."""
    stored = [column(name).alias(spec.file_names[name]) for name in df.columns if name in spec.file_names]
    texts = [column(name).cast("string").alias(part) for name, part in zip(spec.partitions, _parts(spec), strict=True)]
    named = df.select(*stored, *texts)
    return named.select("*", F.hash(*[key.name for key in spec.entry_schema.keys]).alias(HASH))


def _parts(spec: IndexSpec) -> list[str]:
    """The names of the partition columns while the rows are written."""
    return [f"{PART}{i}" for i in range(len(spec.partitions))]

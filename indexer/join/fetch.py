"""Pointers to rows, in Spark's tasks.

Pointers go to tasks by file and by place in the file, so that several tasks share a file with many pointers. Each task
reads its rows in file order (`gnomon.jobs.load.RowReader`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gnomon.indexer.keys import column, map_batches
from gnomon.indexer.spark import AtSnapshot, arrow_schema, as_spark, open_in_worker
from gnomon.jobs.load import (
    ERROR,
    FILE,
    OFFSET,
    SIZE,
    SUB_OFFSET,
    FetchCounters,
    OutputColumns,
    RowReader,
    key_names,
    runs,
)
from gnomon.shadow import Index
from gnomon.shadow.rows_of_files import NamedFiles, RowsOfFiles
from gnomon.sources import FORMATS

TASKS_PER_CORE = 2
PIECES_PER_TASK = 8  # pieces of the source per task if all rows were wanted: enough for an even distribution
PIECE_BYTES = (16 << 20, 128 << 20)  # of a source file, least and most; two tasks read a page on a border
COMPRESSED_TEXT = r"(?i)\.(gz|bz2|zst)$"  # each read begins at the start of the file, so one task reads all its rows


@dataclass(frozen=True)
class PointedFiles:
    """The files to which pointers lead. A task calls `open` to read them. `keys` maps each key column to the column of
    the pointers with the expected key. `bytes` and `rows` are the totals of all files, 0 if unknown."""

    open: Callable[[], RowsOfFiles]
    format: str
    keys: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    rows: int = 0

    @classmethod
    def of_index(cls, opened: Index, columns: Sequence[str]) -> "PointedFiles":
        """The files of an index, for pointers with these columns."""
        names = zip(opened.spec.keys, key_names(opened.spec), strict=True)
        keys = {key.name: name for key, name in names if not key.partition and name in columns}
        files = opened.view.covered.values()
        total, rows = sum(file.size for file in files), sum(file.rows for file in files)
        return cls(partial(_indexed, AtSnapshot.of(opened)), opened.spec.format, keys, total, rows)

    @classmethod
    def named(cls, format: str, options: Mapping[str, str]) -> "PointedFiles":
        """Files without an index. Pointers name each by its whole path or URL."""
        return cls(partial(NamedFiles, format, dict(options)), format)


def _indexed(at: AtSnapshot) -> RowsOfFiles:
    return open_in_worker(at).files


@dataclass(frozen=True)
class FetchSpec:
    """The input of the tasks of a load. `given`: the columns of the pointers to keep. `payload`: the columns to
    read."""

    files: PointedFiles
    given: Sequence[str]
    payload: Sequence[str]
    schema: StructType
    report: bool

    def output_columns(self) -> OutputColumns:
        """The columns for a reader of rows, in the Arrow types that Spark takes."""
        target, kinds = arrow_schema(self.schema), {field.name: field.dataType for field in self.schema}

        def in_type(array: pa.Array, name: str, rows: pa.Array, path: str) -> pa.Array:
            return as_spark(array, kinds[name], target.field(name).type, name, rows, path)

        return OutputColumns(self.given, self.payload, self.files.keys, target, self.report, in_type)


def fetched(
    files: PointedFiles,
    found: DataFrame,
    given: Sequence[str],
    payload: StructType,
    report: bool,
    counters: FetchCounters,
) -> DataFrame:
    """The columns `given` of `found`, with the rows of its pointers (`join.POINTER_FIELDS`). A row without a pointer
    stays, with nulls. Key columns of `found` are compared with the keys of the rows."""
    kinds = {field.name: field for field in found.schema}
    error = [StructField(ERROR, StringType())] if report else []
    schema = StructType([*(kinds[name] for name in given), *payload, *error])
    spec = FetchSpec(files, tuple(given), tuple(payload.names), schema, report)
    tasks = found.sparkSession.sparkContext.defaultParallelism * TASKS_PER_CORE
    ordered = found.repartition(tasks, column(FILE), _piece(files, found, tasks))
    return map_batches(ordered.sortWithinPartitions(FILE, OFFSET, SUB_OFFSET), _fetch(spec, counters), schema)


def _piece(files: PointedFiles, found: DataFrame, tasks: int) -> Column:
    """The number of the piece that holds a pointer's row. Rows without a pointer get numbers that spread them."""
    least, most = PIECE_BYTES
    piece_bytes = min(max(files.bytes // (tasks * PIECES_PER_TASK), least), most) if files.bytes else most
    place = column(OFFSET).cast("double")  # the offsets of Avro files in a lake table have up to 63 bits
    if FORMATS[files.format].by_ordinal:
        mean = max(files.bytes // max(files.rows, 1), 1)
        place = place * F.when(column(SIZE) > 0, column(SIZE)).otherwise(F.lit(mean))
    compressed = column(FILE).rlike(COMPRESSED_TEXT) & F.lit(bool(FORMATS[files.format].endings))
    piece = F.when(compressed, F.lit(0)).otherwise(F.floor(place / F.lit(piece_bytes)).cast("long"))
    plain = [column(field.name) for field in found.schema if _can_be_hashed(field.dataType)]
    return F.when(column(FILE).isNull(), F.xxhash64(*plain)).otherwise(piece)


def _can_be_hashed(kind: DataType) -> bool:
    return isinstance(kind, NumericType | BinaryType | DateType | TimestampType) or kind == StringType()


def _fetch(spec: FetchSpec, counters: FetchCounters) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = None
        for run in runs(batches, FILE):
            if reader is None:
                counters.tasks.add(1)
                reader = RowReader(spec.files.open(), spec.output_columns(), counters)
            yield from reader.rows(run)

    return fetch

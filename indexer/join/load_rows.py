"""Load: the rows of many keys. It is a join that shuffles the sample, but neither the index nor the payload.

The sample goes to the index's buckets, and each task looks its keys up in its own index files (`key_join`). The
pointers go to tasks by file and by place in the file, so that several tasks share a file with many pointers. Each task
reads its rows in file order (`gnomon.jobs.load.RowReader`)."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gnomon.indexer.join.key_join import POINTER_FIELDS, JoinOptions, located
from gnomon.indexer.spark import (
    AtSnapshot,
    JobCounters,
    arrow_schema,
    as_frame,
    as_spark,
    column,
    cores_of,
    map_batches,
    map_batches_counted,
    open_in_worker,
    source_types,
    spark_types,
    this_task,
    with_keys,
)
from gnomon.jobs.files import check_visible
from gnomon.jobs.load import (
    ERROR,
    FILE,
    OFFSET,
    SIZE,
    SUB_OFFSET,
    FetchCounters,
    LoadCounters,
    LoadRequest,
    OutputColumns,
    RowReader,
    check_given,
    check_unreadable,
    payload_columns,
    runs,
    write_parquet,
)
from gnomon.jobs.load import load as load_locally
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.metadata import check_names
from gnomon.shadow.rows_of_files import NamedFiles, RowsOfFiles, named_file
from gnomon.shadow.storage import Place, patiently, storage_at
from gnomon.shadow.values import KEY_PREFIX, key_names
from gnomon.sources import FORMATS, POINTER_COLUMNS, check_options, detect
from gnomon.sources.pointers import FILENAME

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
    def of_index(cls, opened: OpenIndex, columns: Sequence[str]) -> "PointedFiles":
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
    counters: JobCounters | None,
) -> DataFrame:
    """The columns `given` of `found`, with the rows of its pointers (`join.POINTER_FIELDS`). A row without a pointer
    stays, with nulls. Key columns of `found` are compared with the keys of the rows."""
    kinds = {field.name: field for field in found.schema}
    error = [StructField(ERROR, StringType())] if report else []
    schema = StructType([*(kinds[name] for name in given), *payload, *error])
    spec = FetchSpec(files, tuple(given), tuple(payload.names), schema, report)
    tasks = cores_of(found.sparkSession) * TASKS_PER_CORE
    ordered = found.repartition(tasks, column(FILE), _piece(files, found, tasks))
    rows = ordered.sortWithinPartitions(FILE, OFFSET, SUB_OFFSET)
    return map_batches_counted(rows, _fetch(spec), schema, FetchCounters, counters)


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


def _fetch(spec: FetchSpec) -> Callable[[Iterator[pa.RecordBatch], FetchCounters], Iterator[pa.RecordBatch]]:
    def fetch(batches: Iterator[pa.RecordBatch], counters: FetchCounters) -> Iterator[pa.RecordBatch]:
        reader = None
        for run in runs(batches, FILE):
            if reader is None:
                counters.tasks += 1
                reader = RowReader(spec.files.open(), spec.output_columns(), counters)
            yield from reader.rows(run)

    return fetch


WRITTEN = StructType(
    [StructField("name", StringType()), StructField("rows", LongType()), StructField("size", LongType())]
)
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
AS_GIVEN = tuple(zip(POINTER_COLUMNS, POINTER_FIELDS, strict=True))


@patiently()
def load(
    spark: SparkSession | None,
    index: Place,
    keys: DataFrame | pd.DataFrame | pa.Table | pa.RecordBatchReader,
    columns: Sequence[str] | None = None,
    how: str = "inner",
    counters: LoadCounters | JobCounters | None = None,
    null_safe: bool = False,
    unreadable: str = "fail",
) -> DataFrame | pa.RecordBatchReader:
    """The rows of the source whose key is in `keys` (a DataFrame of Spark, pandas or Polars, or an Arrow table): all
    columns of `keys`, then the requested columns of the source (by default all that `keys` lacks).

    Each row of `keys` gives one row for each source row with its key; with how="left", a row of nulls where there is
    none. As in SQL, a key with a null matches nothing; with `null_safe` nulls match nulls. Lazy.

    A row that cannot be read (its file changed or is gone, its page is damaged) fails the job with its error. With
    unreadable="report" it has nulls in the source's columns, and the error, with path and pointer, in a last column
    `data_error`, which is null in all other rows.

    With None in place of the session, this process loads the rows: keys are an Arrow table or a reader of Arrow
    batches, and so is the answer, whose columns have the types of the source's files (`gnomon.jobs.load.load`)."""
    if spark is None:
        return load_locally(None, index, keys, columns, how, cast(LoadCounters | None, counters), null_safe, unreadable)
    of_tasks = cast(JobCounters | None, counters)
    opened = OpenIndex.of(index)
    keys = as_frame(spark, keys, "keys")
    request = LoadRequest(columns, how, null_safe, unreadable)
    return load_keyed(opened, with_keys(keys, opened.spec, "keys"), request, of_tasks)


def load_keyed(
    opened: OpenIndex, sample: DataFrame, request: LoadRequest, counters: JobCounters | None = None
) -> DataFrame:
    """As `load`, for a sample with the key columns of `with_keys`."""
    names = [name for name in sample.columns if not name.startswith(KEY_PREFIX)]
    payload = payload_columns(opened, names, request.columns)
    check_unreadable(request.unreadable, [*names, *payload])
    found = located(opened, sample, JoinOptions(request.how, request.null_safe), counters)
    types = source_types(opened, payload)
    files = PointedFiles.of_index(opened, found.columns)
    return fetched(files, found, names, types, request.unreadable == "report", counters)


@patiently()
def load_by_index(
    spark: SparkSession,
    index: Place | None,
    pointers: DataFrame,
    columns: Sequence[str] | None = None,
    unreadable: str = "fail",
    counters: JobCounters | None = None,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of the source for pointers. `pointers` has the columns data_filename, data_offset, data_sub_offset and
    data_size, from `join_with_index`, from Dione or from another job; a job may have filtered and joined them. A
    data_filename is the path in the index, or a whole path or URL, as `file:/lake/a.parquet`. A `data_size` below 0
    marks a pointer of Dione; into a Parquet file, it names the row group.

    All columns of `pointers` are kept, except the four, which `columns` may name; then come the requested columns of
    the source that `pointers` lacks (by default all). Key columns that `pointers` has are compared with the keys of the
    rows: StalePointer where one differs. Keep them: if the file was replaced and indexed again since, a pointer alone
    would lead to another row. A row whose data_filename is null stays, with nulls. `unreadable`: as in `load`; a
    pointer into a file that the newest snapshot does not cover counts as unreadable. Lazy.

    With None in place of the index, pointers name whole paths or URLs of files of one `format`, which are read with
    these `options`. The first file gives the columns: this call computes one row of `pointers` to find it. No keys are
    compared, and a change of a file since the pointers were made is not noticed."""
    check_names("columns", columns)
    pointers = as_frame(spark, pointers, "pointers")
    _check_pointers(pointers)
    source = _of_index(index, pointers) if index is not None else _of_names(pointers, format, options or {})
    kept = [name for name in pointers.columns if name not in POINTER_COLUMNS or name in (columns or ())]
    known = source.columns
    unknown = [name for name in columns or () if name not in known and name not in pointers.columns]
    if unknown:
        there = f"the source has {', '.join(known)}"
        raise UsageError(f"neither the source nor pointers have a column {', '.join(unknown)}; {there}")
    payload = [name for name in dict.fromkeys(known if columns is None else columns) if name not in pointers.columns]
    if not kept and not payload:
        raise UsageError("columns: none are left to load; name some")
    check_unreadable(unreadable, [*kept, *payload])
    asked = [column(name).cast(field.dataType).alias(field.name) for name, field in AS_GIVEN]
    keys = [column(name) for name in source.keyed.columns if name.startswith(KEY_PREFIX)]
    found = source.keyed.select(*map(column, kept), *keys, *asked)
    return fetched(source.files, found, kept, source.types(payload), unreadable == "report", counters)


def write_files(rows: DataFrame, folder: Path) -> int:
    """Write rows as Parquet files of a new folder on a local disk, one for each task that has rows, at least one.
    Returns the number of rows. StorageError where tasks wrote to disks of other machines; errors of
    `gnomon.jobs.load.write_parquet`."""
    target, place = arrow_schema(rows.schema), str(folder)

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = (batch for batch in batches if batch.num_rows)
        first = next(there, None)
        if first is None:
            return
        given = (pa.RecordBatch.from_arrays(one.columns, names=names).cast(target) for one in chain([first], there))
        file = Path(place, f"part-{_partition():05}-{secrets.token_hex(8)}.parquet")  # a task may run twice
        count = write_parquet(pa.RecordBatchReader.from_batches(target, given), file)
        yield pa.RecordBatch.from_pylist([{"name": file.name, "rows": count, "size": file.stat().st_size}])

    names = target.names
    found = map_batches(rows, written, WRITTEN).collect()
    if not found:
        return write_parquet(target.empty_table().to_reader(), folder / "part-00000.parquet")
    check_visible(storage_at(place), {row.name: row.size for row in found})
    for file in set(folder.iterdir()) - {folder / row.name for row in found}:
        file.unlink()
    return sum(row.rows for row in found)


def _partition() -> int:
    context = this_task()
    return int(context.partitionId()) if context is not None else 0


class _Source(NamedTuple):
    """The files of a load, their columns, and the function that gives the columns' types in Spark. `keyed` are the
    pointers, with their keys in the types of the index."""

    files: PointedFiles
    columns: Sequence[str]
    types: Callable[[Sequence[str]], StructType]
    keyed: DataFrame


def _of_index(index: Place, pointers: DataFrame) -> _Source:
    opened = OpenIndex.of(index)
    alike = {key.name.lower(): key.name for key in opened.spec.keys if key.name not in pointers.columns}
    for name in pointers.columns:
        if name.lower() in alike:  # it would not be compared
            raise UsageError(f"pointers: rename column {name} to that of the key, {alike[name.lower()]}")
    keyed = with_keys(pointers, opened.spec, "pointers", all_of_it=False)
    files = PointedFiles.of_index(opened, keyed.columns)
    return _Source(files, list(opened.view.columns), partial(source_types, opened), keyed)


def _of_names(pointers: DataFrame, format: str, options: Mapping[str, str]) -> _Source:
    """The files that pointers name, and the columns of the first one."""
    first = pointers.where(column(FILENAME).isNotNull()).select(column(FILENAME)).first()
    if first is None:
        raise UsageError("pointers: no row has a data_filename, so the columns are unknown; name the index")
    with named_file(first[0]) as reader:
        format = detect(reader) if format == "auto" else format
    check_options(format, options)
    schema = NamedFiles(format, options).schema(first[0])
    return _Source(PointedFiles.named(format, options), schema.names, partial(_types, schema), pointers)


def _types(schema: pa.Schema, names: Sequence[str]) -> StructType:
    return spark_types(pa.schema([schema.field(name) for name in names]))


def _check_pointers(pointers: DataFrame) -> None:
    check_given(pointers.columns, "pointers")
    kinds = {field.name: field.dataType for field in pointers.schema}
    missing = [name for name in POINTER_COLUMNS if name not in kinds]
    if missing:
        raise UsageError(f"pointers: the column {', '.join(missing)} is missing; it has {', '.join(kinds)}")
    for name, one in AS_GIVEN:
        fits = StringType if isinstance(one.dataType, StringType) else INTEGERS
        if not isinstance(kinds[name], fits):
            expected, found = one.dataType.simpleString(), kinds[name].simpleString()
            raise UsageError(f"pointers: column {name}: expected {expected}, found {found}")

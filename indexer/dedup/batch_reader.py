"""A batch, of any format and on any store, as a DataFrame in the types of the source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.batch_columns import column_kinds, csv_columns, in_kind, json_columns
from gnomon.indexer.dedup.batch_files import TEXT, BatchFile, batch_root, describe_batch, open_file, task_shares
from gnomon.indexer.dedup.batch_names import columns_in_rows
from gnomon.indexer.spark import as_raised, hands_errors_over
from gnomon.indexer.tables import arrow_schema, source_types
from gnomon.jobs.build import infer_schema
from gnomon.shadow import Index
from gnomon.shadow.metadata import SourceRoot
from gnomon.shadow.storage import FileInfo, Place, Readable, as_location, source_storage
from gnomon.sources import FORMATS, Options, Split, check_options, open_source
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.text import flag
from gnomon.sources.types import to_ddl

TASKS_PER_CORE = 4
Opened = tuple[FileInfo, Mapping[str, str | None], Options]  # the part of a `BatchFile` that a task needs
OUT_BYTES = 16 << 20  # of rows that a task yields to Spark at a time


def read_batch(
    spark: SparkSession, path: Place, index: Index | None, format: str = "auto", options: Options | None = None
) -> DataFrame:
    """The rows of a file, or of the files of a folder, on any store, with all of their columns.

    Columns of partition folders are text, and come last. A column of the source of `index` gets the source's type, if
    that holds it (`batch_columns`). Other columns keep their type, and so do the source's partition columns inside the
    files, and all columns without an index (text for CSV). Files may differ in columns: a missing column is null. CSV
    columns are matched by the names in the header, or by place without a header. JSON lines are read twice, first for
    their names: columns of the source that no row has are null, except the columns of the key and of the partitions.
    `options` are the options of the format, by default the source's if it has the same format; the option `schema`
    gives the types of text.

    This call lists the files and reads their metadata; their rows are read when the DataFrame is used. Each use reads
    them in the same order, by path and row, so that `monotonically_increasing_id()` directly on the DataFrame increases
    in that order. A damaged file, a value that the source's type does not hold, and a file that changed are errors that
    name it."""
    root, format_name, infos = batch_root(as_location(path), format)
    options = _options(index, format_name, options)
    tasks = _tasks(spark)
    if FORMATS[format_name].endings and "schema" not in options:
        if index is not None:
            files = _text_files(spark, root, format_name, infos, options, index)
        else:
            with as_raised():
                options["schema"] = infer_schema(SparkEngine(spark), root, format_name, options, infos, None)
            files = describe_batch(root, format_name, infos, options, tasks)
    else:
        files = describe_batch(root, format_name, infos, options, tasks)
    names = {field.name for file in files for field in file.schema}
    # Files with the format of the source's table are read like the table's own files.
    in_utc = index is not None and bool(index.spec.table) and index.spec.format == format_name
    kinds = column_kinds(files, _wanted(spark, index, names), in_utc)
    fields = [*kinds.items(), *((name, StringType()) for name in root.partitions(infos))]
    schema = StructType([StructField(name, kind) for name, kind in fields])
    shares = task_shares(files, tasks)
    scanned = _scan(root.storage.root, format_name, files, shares, schema)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)


def _tasks(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE


def _options(index: Index | None, format_name: str, options: Options | None) -> dict[str, str]:
    """The options to read the files with: the given ones, then the source's where it has the same format."""
    check_options(format_name, options or {})
    spec = index.spec if index is not None else None
    as_source = spec.options if spec is not None and spec.format == format_name else ()
    own = {name: value for name, value in as_source if name != "schema"}
    return {**(TEXT if FORMATS[format_name].endings else {}), **own, **(options or {})}


def _wanted(spark: SparkSession, index: Index | None, names: set[str]) -> dict[str, DataType]:
    """The source's types of these columns, without its partition columns."""
    if index is None:
        return {}
    known = [name for name in index.view.columns if name in names and name not in index.spec.partitions]
    return {field.name: field.dataType for field in source_types(spark, index, known)} if known else {}


def _text_files(
    spark: SparkSession,
    root: SourceRoot,
    format_name: str,
    infos: Sequence[FileInfo],
    options: Options,
    index: Index,
) -> list[BatchFile]:
    """Open files of formats without types with the types of the source."""
    tasks = _tasks(spark)
    known = index.view.snapshot.columns
    folders = set(root.partitions(infos))
    of_source = [name for name in index.view.columns if name not in folders]
    if format_name == "csv" and flag(options, "header", True) and any(info.size for info in infos):
        files = describe_batch(root, format_name, infos, {**options, "schema": ""}, tasks)
        wanted = _wanted(spark, index, {name for file in files for name in file.schema.names})
        return [_declared(file, csv_columns(file.schema.names, wanted, known)) for file in files]
    wanted = _wanted(spark, index, set(of_source))
    if format_name == "csv":
        given = {"schema": to_ddl(csv_columns(of_source, wanted, known))} if of_source else {}
        return describe_batch(root, format_name, infos, {**options, **given}, tasks)
    files = describe_batch(root, format_name, infos, {**options, "schema": ""}, tasks)
    if any(info.size for info in infos):
        of_rows = columns_in_rows(spark, root, files, options, {name: wanted.get(name) for name in of_source}, tasks)
        found = [one.with_type(pa.string()) if one.name in index.spec.partitions else one for one in of_rows]
        keys = {key.name for key in index.spec.keys}
        wanted = {name: kind for name, kind in wanted.items() if name in of_rows.names or name not in keys}
    else:
        found = [pa.field(name, pa.string()) for name in of_source if name in index.spec.partitions]
    return [_declared(file, json_columns(pa.schema(found), wanted, known)) for file in files]


def _declared(file: BatchFile, columns: pa.Schema) -> BatchFile:
    """A file of text with the types of its columns."""
    return replace(file, schema=columns, options={**file.options, "schema": to_ddl(columns)})


def _scan(
    place: str,
    format_name: str,
    files: Sequence[BatchFile],
    shares: Sequence[Sequence[tuple[int, Split]]],
    schema: StructType,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task, whose input are numbers of shares."""
    opened: list[Opened] = [(file.info, file.values, file.options) for file in files]

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage, target = source_storage(place), arrow_schema(schema)
        for share in (share for batch in batches for share in batch.column(0).to_pylist()):
            for file, split in shares[share]:
                yield from _rows(storage, format_name, opened[file], split, schema, target)

    return scanned


def _rows(
    storage: Readable, format_name: str, file: Opened, split: Split, schema: StructType, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a range of a file, in file order, in the types of the batch."""
    info, values, options = file
    by_ordinal = FORMATS[format_name].by_ordinal
    with open_file(storage, info) as reader:
        source = open_source(reader, format_name, options)
        own = set(source.schema.names).difference(values)
        names = [name for name in schema.names if name in own]
        for batch in source.scan(reader, names, split):
            offsets = batch.column(batch.num_columns - len(POINTER_FIELDS))
            found = dict(zip(names, batch.columns, strict=False))  # the columns of the pointer come after
            arrays = [
                in_kind(found[field.name], field.dataType, kind, field.name, offsets, by_ordinal, reader.name)
                if field.name in found
                else _constant(values, field.name, batch.num_rows, kind)
                for field, kind in zip(schema, target.types, strict=True)
            ]
            yield from _handed_on(pa.RecordBatch.from_arrays(arrays, schema=target))


def _handed_on(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `OUT_BYTES`, by the mean size of a row."""
    rows = max(batch.num_rows * OUT_BYTES // max(batch.nbytes, 1), 1)
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _constant(values: Mapping[str, str | None], name: str, rows: int, kind: pa.DataType) -> pa.Array:
    """A column that a file does not have: the text of its folder, or nulls."""
    value = values.get(name)
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)

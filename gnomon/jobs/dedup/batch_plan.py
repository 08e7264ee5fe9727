"""A batch, of any format and on any store: its files, its columns in the types of the source, and its rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from gnomon.jobs.build import Engine, check_ragged, infer_schema
from gnomon.jobs.dedup.batch_columns import column_kinds, csv_columns, in_kind, json_columns
from gnomon.jobs.dedup.batch_files import TEXT, BatchFile, batch_root, describe_batch, open_file
from gnomon.jobs.load import NoType, source_columns
from gnomon.shadow import Index, UsageError, open_index
from gnomon.shadow.metadata import SourceRoot
from gnomon.shadow.storage import FileInfo, Place, Readable, as_location
from gnomon.sources import FORMATS, Options, Split, check_options, open_source
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.text import flag, open_jsonl
from gnomon.sources.types import NOT_JSON, RefusedValue, decode_object, one_value, parse_ddl, to_ddl

Opened = tuple[FileInfo, Mapping[str, str | None], Options]  # the part of a `BatchFile` that a task needs
OUT_BYTES = 16 << 20  # of rows that are yielded at a time


class BatchEngine(Protocol):
    """The engine that reads a batch. `tasks` is the number of pieces to divide it into, `name` is for errors."""

    name: str
    tasks: int

    @property
    def engine(self) -> Engine:
        """The engine of builds."""
        ...

    def held(self, kind: pa.DataType) -> pa.DataType:
        """The type in which the engine holds a column of a file. NoType where there is none."""
        ...

    def names_in(self, root: SourceRoot, files: Sequence[BatchFile]) -> set[str | None]:
        """The names of the members of all rows of JSON lines (`members_of`)."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """A block in which errors of ours reach the caller."""
        ...


@dataclass(frozen=True)
class BatchPlan:
    """The files of a batch, and the types of the columns in them; `folders` are the columns of partition folders, which
    are text and come last."""

    root: SourceRoot
    format: str
    files: Sequence[BatchFile]
    kinds: Mapping[str, pa.DataType]
    folders: Sequence[str]

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.kinds.items(), *((name, pa.string()) for name in self.folders)])

    def opened(self) -> list[Opened]:
        """The files, for tasks."""
        return [(file.info, file.values, file.options) for file in self.files]


def plan_batch(
    path: Place, index: Index | Place | None, format: str, options: Options | None, reading: BatchEngine
) -> BatchPlan:
    """List the files of a batch, and read their metadata. Arguments and errors as in `read_batch`."""
    index = index if index is None or isinstance(index, Index) else open_index(index)
    root, format_name, infos = batch_root(as_location(path), format)
    options = _options(index, format_name, options)
    if FORMATS[format_name].endings and "schema" not in options and index is not None:
        files = _text_files(reading, root, format_name, infos, options, index)
    else:
        if FORMATS[format_name].endings and "schema" not in options:
            with reading.errors():
                options["schema"] = infer_schema(reading.engine, root, format_name, options, infos, None)
        files = describe_batch(root, format_name, infos, options, reading.tasks)
    names = {field.name for file in files for field in file.schema}
    # Files with the format of the source's table are read like the table's own files.
    in_utc = index is not None and bool(index.spec.table) and index.spec.format == format_name
    kinds = column_kinds(files, _wanted(reading, index, names), in_utc, reading.name, reading.held)
    return BatchPlan(root, format_name, files, kinds, root.partitions(infos))


def _options(index: Index | None, format_name: str, options: Options | None) -> dict[str, str]:
    """The options to read the files with: the given ones, then the source's where it has the same format."""
    check_options(format_name, options or {})
    spec = index.spec if index is not None else None
    as_source = spec.options if spec is not None and spec.format == format_name else ()
    own = {name: value for name, value in as_source if name != "schema"}
    return {**(TEXT if FORMATS[format_name].endings else {}), **own, **(options or {})}


def _wanted(reading: BatchEngine, index: Index | None, names: set[str]) -> dict[str, pa.DataType]:
    """The source's types of these columns, as the engine holds them, without its partition columns and columns without
    any value. UsageError for a column that the engine cannot hold."""
    if index is None:
        return {}
    known = [name for name in index.view.columns if name in names and name not in index.spec.partitions]
    found: dict[str, pa.DataType] = {}
    for one in source_columns(index, known) if known else ():
        if not pa.types.is_null(one.type):
            try:
                found[one.name] = reading.held(one.type)
            except NoType:
                text = f"column {one.name} of type {one.type} has no {reading.name} type; name other columns"
                raise UsageError(text) from None
    return found


def _text_files(
    reading: BatchEngine,
    root: SourceRoot,
    format_name: str,
    infos: Sequence[FileInfo],
    options: Options,
    index: Index,
) -> list[BatchFile]:
    """Open text files, and read their columns in the types of the source."""
    tasks, known = reading.tasks, index.view.snapshot.columns
    folders = set(root.partitions(infos))
    of_source = [name for name in index.view.columns if name not in folders]
    if format_name == "csv" and flag(options, "header", True) and any(info.size for info in infos):
        files = describe_batch(root, format_name, infos, {**options, "schema": ""}, tasks)
        named = {name for file in files for name in file.schema.names}
        wanted = _wanted(reading, index, named)
        return [_declared(file, csv_columns(file.schema.names, wanted, known)) for file in files]
    wanted = _wanted(reading, index, set(of_source))
    if format_name == "csv":
        given = {"schema": to_ddl(csv_columns(of_source, wanted, known))} if of_source else {}
        return describe_batch(root, format_name, infos, {**options, **given}, tasks)
    files = describe_batch(root, format_name, infos, {**options, "schema": ""}, tasks)
    if any(info.size for info in infos):
        of_rows = _columns_in_rows(reading, root, files, options, {name: wanted.get(name) for name in of_source})
        found = [one.with_type(pa.string()) if one.name in index.spec.partitions else one for one in of_rows]
        keys = {key.name for key in index.spec.keys}
    else:
        keys = set()
        found = [pa.field(name, pa.string()) for name in of_source if name in index.spec.partitions]
    there = {one.name for one in found}
    absent = [name for name in of_source if name not in there | keys and name not in index.spec.partitions]
    return [_declared(file, json_columns(pa.schema(found), wanted, known, absent)) for file in files]


def _declared(file: BatchFile, columns: pa.Schema) -> BatchFile:
    """A file of text with the types of its columns."""
    return replace(file, schema=columns, options={**file.options, "schema": to_ddl(columns)})


def _columns_in_rows(
    reading: BatchEngine,
    root: SourceRoot,
    files: Sequence[BatchFile],
    options: Options,
    known: Mapping[str, pa.DataType | None],
) -> pa.Schema:
    """The columns of the rows of JSON lines. If all of them are `known`, they are strings here, and their types come
    from elsewhere. Otherwise, or if records may hold unknown fields, the types are inferred, which takes three times as
    long."""
    with reading.errors():
        names = reading.names_in(root, files)
        if None not in names and names <= set(known) and not any(_has_records(known[str(name)]) for name in names):
            return pa.schema([(name, pa.string()) for name in known if name in names])
        infos = [file.info for file in files]
        return parse_ddl(infer_schema(reading.engine, root, "jsonl", options, infos, None))


def _has_records(kind: pa.DataType | None) -> bool:
    if kind is None or pa.types.is_struct(kind):
        return kind is not None
    if pa.types.is_map(kind):
        return _has_records(kind.key_type) or _has_records(kind.item_type)
    return pa.types.is_list(kind) and _has_records(kind.value_type)


def members_of(storage: Readable, info: FileInfo, options: Options, split: Split) -> set[str | None]:
    """The names of the members of the rows of a range of a file of JSON lines; None is one of them where a row is not a
    JSON object."""
    names = set[str | None]()
    with open_file(storage, info) as reader:
        source = open_jsonl(reader, options)
        for _, block in source.blocks(reader, *split):
            try:
                names.update(*map(_members, block.texts(0, len(block.starts))))
            except (*NOT_JSON, RefusedValue):
                names.add(None)
    return names


def _members(text: bytes) -> Mapping[str, object]:
    """The members of a row. Raises one of `NOT_JSON` where it is not an object."""
    try:
        return decode_object(text)
    except NOT_JSON:  # it may hold NaN, or be null
        raw = one_value(text)
        return {} if raw == b"null" else decode_object(raw)


def rows_of(
    storage: Readable, format_name: str, file: Opened, split: Split, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a range of a file, in file order, in the types of the batch. UsageError at the end of a range of
    CSV in which too many records have fewer or more fields than the header."""
    info, values, options = file
    by_ordinal = FORMATS[format_name].by_ordinal
    with open_file(storage, info) as reader:
        source = open_source(reader, format_name, options)
        own = set(source.schema.names).difference(values)
        names = [name for name in schema.names if name in own]
        rows = 0
        for batch in source.scan(reader, names, split):
            rows += batch.num_rows
            offsets = batch.column(batch.num_columns - len(POINTER_FIELDS))
            found = dict(zip(names, batch.columns, strict=False))  # drops the pointer columns
            arrays = [
                in_kind(found[column.name], column, offsets, by_ordinal, reader.name)
                if column.name in found
                else _constant(values, column, batch.num_rows)
                for column in schema
            ]
            yield from _handed_on(pa.RecordBatch.from_arrays(arrays, schema=schema))
        check_ragged(source.ragged, rows, options, reader.name)


def _handed_on(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `OUT_BYTES`, by the mean size of a row."""
    rows = max(batch.num_rows * OUT_BYTES // max(batch.nbytes, 1), 1)
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _constant(values: Mapping[str, str | None], column: pa.Field, rows: int) -> pa.Array:
    """A column that a file does not have: the text of its folder, or nulls."""
    value = values.get(column.name)
    return pa.nulls(rows, column.type) if value is None else pa.repeat(pa.scalar(value, column.type), rows)

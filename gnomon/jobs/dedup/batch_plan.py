"""A batch, of any format and on any store: its files, its columns in the types of the source, and its rows.

Types are Arrow's, as an engine holds them: this process as the files have them, Spark in `common_type`. A column that
the source has, too, gets the source's type if that type holds every value of the file's type: numbers are widened.
Other columns keep the type of the files. Values in text files have no type: they are parsed in the types of the
source's columns, and refused where they do not fit."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import Action, check_memory
from gnomon.jobs.build import FORMAT_NAMES, Engine, check_ragged, infer_schema
from gnomon.jobs.files import READERS, check_names, listed, of_one_format
from gnomon.jobs.load import NoType, source_columns
from gnomon.shadow import Index, OpenIndex, to_json
from gnomon.shadow.errors import OptionError, SourceNotFound, UnsupportedFormat, UsageError
from gnomon.shadow.metadata import SourceRoot, source_root
from gnomon.shadow.storage import FileInfo, OpenFile, Place, Readable, as_location
from gnomon.shadow.tables import check_plain_files, partition_values
from gnomon.shadow.values import python_values
from gnomon.sources import FORMATS, Options, Split, check_options, detect, open_source
from gnomon.sources.literals import NOT_JSON, RefusedValue, converter, decode_object, one_value
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.text import flag, open_jsonl
from gnomon.sources.types import SAFE_CAST, WIDENED, Unfit, can_hold, conform, parse_ddl, to_ddl

LEAST_SPLIT, LARGEST_SPLIT = 8 << 20, 128 << 20  # bytes
MOST_TASKS = 10_000
EXPECTED = "a batch: a data file whose name engines do not skip, or a folder of such files"
TEXT = {"whole_file": "true"}  # a batch is read from beginning to end, so compressed text is allowed
# The options for a text file that is opened for its digest only: no content is an error.
BARE_TEXT = {"csv": {**TEXT, "schema": "", "header": "false", "quote": ""}, "jsonl": {**TEXT, "schema": ""}}


@dataclass(frozen=True)
class BatchFile:
    """A file of a batch: the values of its partition folders, its own columns, its options, and its splits."""

    info: FileInfo
    values: Mapping[str, str | None]
    schema: pa.Schema
    options: Options
    splits: Sequence[Split]


def batch_digest(path: Place, format: str = "auto") -> str:
    """A name for a batch, 16 hex digits. It depends on the paths of its files below `path`, their sizes, and some of
    their bytes (a footer, a header, both ends of a text). A copy has the same name, whatever its times."""
    root, format_name, infos = batch_root(as_location(path), format)
    options = BARE_TEXT.get(format_name, {})

    def found(info: FileInfo) -> str:
        with open_file(root.storage, info) as reader, of_one_format(reader, format_name):
            return open_source(reader, format_name, options).digest

    digest = hashlib.blake2b(digest_size=8)
    with ThreadPoolExecutor(READERS) as pool:
        for info, of_file in zip(infos, pool.map(found, infos), strict=True):
            digest.update(f"{info.path}\0{info.size}\0{of_file}\0".encode())
    return digest.hexdigest()


def batch_root(path: str, format: str) -> tuple[SourceRoot, str, list[FileInfo]]:
    """The root of a batch, its format (that of its first file if `auto`), and its files, ordered by path.
    SourceNotFound where there are none, UsageError where they belong to a lake table."""
    if format not in FORMAT_NAMES:
        raise UsageError(f"format: expected one of {', '.join(FORMAT_NAMES)}, found {format!r}")
    if not path:
        raise SourceNotFound("no such file", "(empty)", expected=EXPECTED)
    try:
        root = source_root(path)
    except SourceNotFound as error:
        raise SourceNotFound(error.what, error.path, expected=EXPECTED) from None
    infos, lake_table = root.listing()
    check_plain_files(lake_table, path, "write its live rows to plain files, and append these")
    if format == "auto":
        with open_file(root.storage, infos[0]) as reader:
            format = detect(reader)
        check_names(root, format, infos)
    return root, format, infos


def describe_batch(
    root: SourceRoot, format: str, infos: Sequence[FileInfo], options: Options, tasks: int
) -> list[BatchFile]:
    """Open each file, read its metadata, and divide it into splits for a number of tasks. A file that is damaged, has
    another format, names a column twice, or has other partition columns is an error."""
    is_partitioned = bool(root.partitions(infos))
    target = min(max(sum(info.size for info in infos) // tasks, LEAST_SPLIT), LARGEST_SPLIT)

    def one(info: FileInfo) -> BatchFile:
        with open_file(root.storage, info) as reader:
            with of_one_format(reader, format):
                source = open_source(reader, format, options)
            schema = source.schema
            if twice := [name for name in schema.names if schema.names.count(name) > 1]:
                raise UsageError(f"it has more than one column {twice[0]}; expected each name once", reader.name)
            values = partition_values(root.partition_of(info.path, is_partitioned))
            return BatchFile(info, values, schema, options, source.splits(target))

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(one, infos))


def task_shares(files: Sequence[BatchFile], tasks: int) -> list[list[tuple[int, Split]]]:
    """The splits for each task, each with the ordinal of its file. A task gets consecutive splits, and all tasks get
    about the same number of bytes. There are about `tasks` tasks, or more where splits are many."""
    pieces = [(ordinal, split) for ordinal, file in enumerate(files) for split in file.splits]
    tasks = min(len(pieces), max(tasks, len(pieces) // 64), MOST_TASKS)
    sizes = np.array([end - begin + 1 for _, (begin, end) in pieces], dtype=np.int64)
    ends = np.cumsum(sizes)
    owners = (ends - sizes // 2 - 1) * tasks // ends[-1]
    return [[pieces[i] for i in np.flatnonzero(owners == task).tolist()] for task in np.unique(owners)]


def open_file(storage: Readable, info: FileInfo) -> AbstractContextManager[OpenFile]:
    """An open file of the batch. StalePointer where it changed since the listing."""
    return listed(storage, info, "while the batch was read", Action.RUN_WHOLE)


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
    index = None if index is None else OpenIndex.of(index)
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
    in_utc = index is not None and index.spec.is_of_table and index.spec.format == format_name
    kinds = column_kinds(files, _wanted(reading, index, names), in_utc, reading.name, reading.held)
    return BatchPlan(root, format_name, files, kinds, root.partitions(infos))


def _options(index: OpenIndex | None, format_name: str, options: Options | None) -> dict[str, str]:
    """The options to read the files with: the given ones, then the source's where it has the same format."""
    check_options(format_name, options or {})
    spec = index.spec if index is not None else None
    as_source = spec.options if spec is not None and spec.format == format_name else ()
    own = {name: value for name, value in as_source if name != "schema"}
    return {**(TEXT if FORMATS[format_name].endings else {}), **own, **(options or {})}


def _wanted(reading: BatchEngine, index: OpenIndex | None, names: set[str]) -> dict[str, pa.DataType]:
    """The source's types of these columns, as the engine holds them, without its partition columns and columns without
    any value. UsageError for a column that the engine cannot hold."""
    if index is None:
        return {}
    known = [name for name in index.view.columns if name in names and name not in index.spec.partitions]
    found: dict[str, pa.DataType] = {}
    for one in source_columns(index, known) if known else ():
        if not pa.types.is_null(one.type):
            try:
                found[one.name] = reading.held(_without_records(one.type))
            except NoType:
                text = f"column {one.name} of type {one.type} has no {reading.name} type; name other columns"
                raise UsageError(text) from None
    return found


def _without_records(kind: pa.DataType) -> pa.DataType:
    """A type without a lake table's records of nested fields, by which its own files have them. Files of a batch have
    other field ids, or none: all their fields are matched by name."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_records(one.type), one.nullable) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_records(kind.key_type), _without_records(kind.item_type))
    return pa.list_(_without_records(kind.value_type)) if pa.types.is_list(kind) else kind


def _text_files(
    reading: BatchEngine,
    root: SourceRoot,
    format_name: str,
    infos: Sequence[FileInfo],
    options: Options,
    index: OpenIndex,
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
        keys = {key.column for key in index.spec.keys}
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


EXTENSION = "extension<"  # prefix of Arrow's names of extension types, like UUID


Held = Callable[[pa.DataType], pa.DataType]  # the type in which an engine holds a column; NoType where there is none


def column_kinds(
    files: Sequence[BatchFile], wanted: Mapping[str, pa.DataType], in_utc: bool, engine: str, held: Held
) -> dict[str, pa.DataType]:
    """The type of each column of some files, without partition columns: `wanted`, the source's type, if it holds the
    types of all files, else one of the files' types, as the engine holds it. With `in_utc` a timestamp without a zone
    is an instant. UsageError where the engine cannot hold a column, or no file's type holds the types of the other
    files."""
    found: dict[str, dict[pa.DataType, str]] = {}
    for file in files:
        for field in file.schema:
            if field.name not in file.values:
                found.setdefault(field.name, {}).setdefault(field.type, file.info.path)
    return {name: _kind(name, kinds, wanted.get(name), in_utc, engine, held) for name, kinds in found.items()}


def _kind(
    name: str, found: Mapping[pa.DataType, str], wanted: pa.DataType | None, in_utc: bool, engine: str, held: Held
) -> pa.DataType:
    """The type of a column that has these types in files, each with its first file."""
    if wanted is not None and all(_can_be_cast(kind, wanted, in_utc, held) for kind in found):
        return wanted
    own: dict[str, pa.DataType] = {}
    for kind, path in found.items():
        if types.is_null(kind):
            continue
        try:
            own[path] = held(kind)
        except NoType:
            raise UsageError(f"column {name} of type {kind} has no {engine} type; leave it out", path) from None
    for one in own.values():
        if all(_can_be_cast(kind, one, False, held) for kind in found):
            return one
    if own:
        shown = ", ".join(f"{one} in {path}" for path, one in list(own.items())[:3])
        raise UsageError(f"batch: column {name} is {shown}; expected one type in all of its files")
    return pa.string()


def _can_be_cast(found: pa.DataType, kind: pa.DataType, in_utc: bool, held: Held) -> bool:
    """Whether a column of a file may be cast to a type that the engine holds: the cast keeps or refuses each value. It
    does not cut a fraction, drop a field of a record or parse text. It does not give a zone to a time, except UTC
    within records and lists, where INT96 has no zone."""
    try:
        own = held(found)
    except NoType:
        return False
    if found == kind or (types.is_timestamp(found) and types.is_timestamp(kind) and not found.tz and in_utc):
        return True
    return can_hold(found, kind, SAFE_CAST) and (own == kind or can_hold(found, kind, WIDENED))


def in_kind(array: pa.Array, column: pa.Field, offsets: pa.Array, by_ordinal: bool, path: str) -> pa.Array:
    """A column of a file in the type of a column of the batch. UnsupportedFormat, with the value and its place, where
    the type does not hold it. `offsets` has the place of each value: the row in the file if `by_ordinal`, else the
    byte."""
    name, kind = column.name, column.type
    try:
        return conform(array, kind)
    except (Unfit, pa.ArrowException) as error:
        check_memory(error)
        place = next((i for i in range(len(array) - 1) if not _is_kept(array.slice(i, 1), kind)), len(array) - 1)
    value, offset = to_json(python_values(array.slice(place, 1))[0]), offsets[place].as_py()
    where = f"column {name}, row {offset}" if by_ordinal else f"column {name}"
    raise UnsupportedFormat(f"{where}: {kind} does not hold {value}", path, None if by_ordinal else offset)


def _is_kept(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        conform(array, kind)
    except (Unfit, pa.ArrowException) as error:
        check_memory(error)
        return False
    return True


def csv_columns(names: Sequence[str], wanted: Mapping[str, pa.DataType], known: Mapping[str, str]) -> pa.Schema:
    """The types of the fields of CSV files: the source's types that can be parsed from text, else text. `known` has
    Arrow's names of the types in the source's files."""
    return pa.schema([(name, _as_text(pa.string(), wanted.get(name), known.get(name, ""), True)) for name in names])


def json_columns(
    found: pa.Schema, wanted: Mapping[str, pa.DataType], known: Mapping[str, str], absent: Sequence[str]
) -> pa.Schema:
    """The types of the members of JSON rows: the source's types, or the `found` types where the source's records lack
    fields of the rows. The columns `absent`, which no row has, are null."""
    read = [one.with_type(_as_text(one.type, wanted.get(one.name), known.get(one.name, ""))) for one in found]
    return pa.schema([*read, *(pa.field(name, pa.null()) for name in absent)])


def _as_text(found: pa.DataType, wanted: pa.DataType | None, known: str, flat: bool = False) -> pa.DataType:
    """The type in which a column of a text file is read. `flat`: its values are not nested."""
    if wanted is None or (types.is_binary(wanted) and known.startswith(EXTENSION)):
        return found
    try:
        to_ddl(pa.schema([("c", wanted)]))
        if flat and not (types.is_string(wanted) or types.is_binary(wanted)):
            converter(wanted)
    except (OptionError, TypeError):
        return found
    return found if _lacks(wanted, found) or _has_odd_keys(wanted) else wanted


def _lacks(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether a record in a type, maybe nested, lacks a field that was found."""
    if types.is_list(wanted) and types.is_list(found):
        return _lacks(wanted.value_type, found.value_type)
    if types.is_map(wanted) and types.is_struct(found):
        return any(_lacks(wanted.item_type, field.type) for field in found)
    if types.is_struct(wanted) and types.is_struct(found):
        known = {field.name: field.type for field in wanted}
        return any(field.name not in known or _lacks(known[field.name], field.type) for field in found)
    return False


def _has_odd_keys(kind: pa.DataType) -> bool:
    """Whether a map in a type has keys that JSON cannot have."""
    odd = types.is_map(kind) and not types.is_string(kind.key_type)
    return odd or any(_has_odd_keys(kind.field(i).type) for i in range(kind.num_fields))

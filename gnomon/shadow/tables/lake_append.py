"""Changes of a lake table: the form of its new files, and the one commit of the table that makes them live, and may
delete rows at the same time.

A table counts the commits of each **writer** (`TableCommit`). Delta keeps the count in an application transaction,
Iceberg in a property of the table that the same commit sets. A commit is planned with the next number. A program
compares this number with the table's count before it commits, so that several programs together commit only once."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import Action
from gnomon.shadow.errors import ConcurrentCommit, ShadowError, SourceError, StorageError, TableChanged, UsageError
from gnomon.shadow.storage import Readable, storage_at, words_of
from gnomon.shadow.tables.lake_source import format_module, place_of_name
from gnomon.shadow.tables.table_source import TableVersion
from gnomon.sources import open_source
from gnomon.sources.types import FIELD_ID

if TYPE_CHECKING:
    from pyroaring import BitMap64

COMMIT_ATTEMPTS = 20  # while other writers commit first
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds
WRITTEN_PARTITIONS = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date", "decimal")

_CHANCE = random.Random()
FolderOf = Callable[[Mapping[str, str | None]], str]


class NewFile(NamedTuple):
    """A data file to add: its path below the table's root, its bytes and rows, and its partition as folder names."""

    path: str
    size: int
    rows: int
    partition: str


@dataclass(frozen=True)
class PlannedChange:
    """The rows that a commit deletes: those with the keys in `key_files`, Parquet files below the table's root. The
    commit is refused where a key has several rows, unless it `replaces_all`, and where a row to add has a new key,
    unless it `inserts`."""

    key_files: tuple[str, ...]
    inserts: bool
    replaces_all: bool


@dataclass(frozen=True)
class TableCommit:
    """The planned commit of an append. `name` and `uuid` are those of the table, `writer` names the index in the table,
    `number` is the number of the writer's commit. `partitions` has the partition of each file, as folder names.
    `change` says which rows it deletes; None for an append."""

    name: str
    uuid: str
    writer: str
    number: int
    partitions: tuple[str, ...]
    change: PlannedChange | None = None


class Deleted(NamedTuple):
    """Rows to delete, all live at `version`: the ordinals of rows by the path of their data file, as
    `LakeContent.files` has it. `dropped` are locations of equality delete files that these rows replace."""

    version: TableVersion
    rows: "Mapping[str, BitMap64]"
    dropped: frozenset[str] = frozenset()


Look = Callable[[], Deleted]  # finds the rows at the table's newest version; called anew in each attempt


class Change(NamedTuple):
    """The numbers of a commit: deleted rows, data files that had them, and bytes of new files (vectors, position
    deletes, rewritten data files, manifests). `way` is the way of deletes, as `check_deletes` returns it."""

    rows: int
    files: int
    bytes: int
    way: str = ""


@dataclass(frozen=True)
class Split:
    """Partitions that are not partition columns of the index: each file holds rows of one partition value. `value_of`
    maps the arrays of some `columns` (n rows) to n texts, equal where the rows may share a file."""

    columns: tuple[str, ...]
    value_of: Callable[[Sequence[pa.Array]], pa.Array]


@dataclass(frozen=True)
class AppendTarget:
    """The form of new files of a table. `folder_of` is the folder of a partition's files, below the root, from the
    texts of its values by column, None for null. `fields` are the columns with field ids and nullability; `codec` is
    Parquet's name of the compression. `split` is None where the partition columns alone say which rows share a file."""

    uuid: str
    folder_of: FolderOf
    fields: pa.Schema
    codec: str
    split: Split | None


class _Appends(Protocol):
    """The interface of a module that appends to tables of one format."""

    def append_target(self, place: str, partitions: Mapping[str, str]) -> AppendTarget: ...

    def last_number(self, place: str, uuid: str, writer: str) -> int: ...

    def check_commit(self, place: str, planned: TableCommit, files: Sequence[NewFile]) -> None: ...

    def commit(self, place: str, planned: TableCommit, files: Sequence[NewFile]) -> None: ...


class _Changes(Protocol):
    """The interface of a module that deletes rows of tables of one format."""

    def check_deletes(self, place: str) -> str: ...

    def commit_change(
        self, place: str, planned: TableCommit, files: Sequence[NewFile], look: Look
    ) -> Change | None: ...

    def clear_attempts(self, place: str, planned: TableCommit) -> None: ...


def append_target(name: str, partitions: Mapping[str, str]) -> AppendTarget:
    """The form of new files of a table. `partitions` has the partition columns of its index with their types.
    UsageError, with the reason, for a table that Gnomon does not append to."""
    for column, kind in partitions.items():
        if kind.partition("(")[0] not in WRITTEN_PARTITIONS:
            refuse(
                f"its partition column {column} is {kind}, and only {', '.join(WRITTEN_PARTITIONS)} are written", name
            )
    return _appends(name).append_target(place_of_name(name), partitions)


def last_number(name: str, uuid: str, writer: str) -> int:
    """The number of a writer's last commit in a table; 0 where it has none. TableChanged where another table has the
    name."""
    return _appends(name).last_number(place_of_name(name), uuid, writer)


def check_commit(planned: TableCommit, files: Sequence[NewFile]) -> None:
    """Make the entries of files as a commit does, and write nothing. UsageError or TableChanged where their rows cannot
    become rows of the table. An append that is on record can be committed or given up, and blocks the appends after it
    until then, so that this comes before."""
    _appends(planned.name).check_commit(place_of_name(planned.name), planned, files)


def commit_to_table(planned: TableCommit, files: Sequence[NewFile]) -> None:
    """Add files to a table in one commit, unless this commit is done already. Several programs may call this at the
    same time. TableChanged where the files do not fit the table, or it refuses them; ConcurrentCommit where others keep
    committing first; StorageError where the store or the catalog failed, with the words whether the commit may have
    succeeded, which the next call finds out."""
    _appends(planned.name).commit(place_of_name(planned.name), planned, files)


def check_deletes(name: str) -> str:
    """How rows of a table are deleted: "deletion vectors", "position deletes" or "copy-on-write". UsageError, with the
    reason, for a table whose rows Gnomon does not delete."""
    return _changes(name).check_deletes(place_of_name(name))


def commit_change(planned: TableCommit, files: Sequence[NewFile], look: Look) -> Change | None:
    """Delete the rows that `look` finds and add files, in one commit; None where this commit is done already. Where the
    table changed since `look`, the rows are looked up again. Errors as in `commit_to_table`, and those of `look`."""
    try:
        return _changes(planned.name).commit_change(place_of_name(planned.name), planned, files, look)
    except Exception:
        # The program that did the commit has removed the files of other attempts, also of this one, that still ran.
        with suppress(ShadowError, OSError):
            if last_number(planned.name, planned.uuid, planned.writer) >= planned.number:
                return None
        raise


def clear_attempts(planned: TableCommit) -> None:
    """Remove the files of attempts at a commit that lost. Nothing is removed before the commit is in the table."""
    _changes(planned.name).clear_attempts(place_of_name(planned.name), planned)


def outcome(planned: TableCommit, last: Callable[[], int], error: Exception) -> StorageError | None:
    """None where a commit that ended with an error is in the table, of which `last` reads the writer's last number;
    else the error to raise."""
    shown = f"{type(error).__name__}: {words_of(error)}"
    try:
        number = last()
    except (ShadowError, OSError):
        what = f"it is unknown whether the commit succeeded ({shown})"
    else:
        if number >= planned.number:
            return None
        what = f"the commit failed, and is not in the table ({shown})"
    return StorageError(what, planned.name, action=Action.RUN_AGAIN)


def refuse(why: str, name: str) -> NoReturn:
    raise UsageError(f"no rows can be appended to this table: {why}; write to it with its own engine", name)


def changed(what: str, path: str) -> TableChanged:
    """The error for files that cannot become files of their table any more."""
    return TableChanged(what, path, action=Action.APPEND_BATCH_AGAIN)


def attempts(name: str) -> Iterator[None]:
    """Yield once for each attempt of a commit, with growing pauses between them. ConcurrentCommit after the last."""
    for attempt in range(COMMIT_ATTEMPTS):
        if attempt:
            time.sleep(_CHANCE.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)))
        yield
    raise ConcurrentCommit(f"{COMMIT_ATTEMPTS} other commits came first", name, action=Action.RUN_AGAIN)


def check_files(root: str, files: Iterable[NewFile], fields: pa.Schema) -> None:
    """Raise TableChanged unless all files are there, and have the columns of the table."""
    store = storage_at(root)
    for file in files:
        _check_file(store, f"{root}/{file.path}", file, fields)


def _check_file(store: Readable, where: str, file: NewFile, fields: pa.Schema) -> None:
    try:
        with store.open(file.path) as reader:
            size, source = reader.size, open_source(reader, "parquet", {})
    except FileNotFoundError:
        raise changed("this new file is gone: perhaps the table's clean-up of old files removed it", where) from None
    except SourceError as error:
        raise changed(f"this new file cannot be read ({error})", where) from None
    if (size, source.rows) != (file.size, file.rows):
        found = f"{size:,} bytes and {source.rows} rows"
        raise changed(f"this new file has {found}, expected {file.size:,} bytes and {file.rows} rows", where)
    known = {field.name: field for field in fields}
    for field in source.schema:
        if field.name not in known or shape_of(field) != shape_of(known[field.name]):
            found = str(known[field.name].type) if field.name in known else "no such column, or another one"
            raise changed(f"column {field.name} is {field.type} in this new file, the table has {found}", where)
    for field in fields:
        if not field.nullable and field.name not in source.schema.names:
            raise changed(f"the table's column {field.name} is required, and this new file lacks it", where)


def shape_of(field: pa.Field) -> object:
    """A column's type with its field ids, without nullability and the names of list items."""
    kind, number = field.type, (field.metadata or {}).get(FIELD_ID)
    if types.is_struct(kind):
        return (number, "struct", *((one.name, shape_of(one)) for one in kind))
    if types.is_map(kind):
        return (number, "map", shape_of(kind.key_field), shape_of(kind.item_field))
    if types.is_list(kind):
        return (number, "list", shape_of(kind.value_field))
    return (number, kind)


def _appends(name: str) -> _Appends:
    return cast(_Appends, format_module(name, "_append"))


def _changes(name: str) -> _Changes:
    return cast(_Changes, format_module(name, "_change"))

"""Hive-style partition folders: `dt=2026-01-01/country=de/part-0.parquet`. Values are text, as they stand; those of a
catalog table are of its types: they are compared in the stored form of keys (int 7 is found in a folder `n=007`)."""

import math
from collections.abc import Collection, Mapping
from itertools import dropwhile, takewhile
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from btree.keys import Stored, key_array, stored_values, to_stored
from btree.stored_arrays import stored_array
from shadow.errors import BTreeError, KeyTypeError, SourceNotFound, UsageError

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
TEXT = "string"
NO_TYPES: Mapping[str, str] = {}
ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}  # in folder names, by Hive


def partition_of(path: str) -> str:
    """The partition folders of a file's path, as they stand: "dt=2026-01-01"; "" where there are none.

    Folders without a = may lie above them (Iceberg's `data/`) and below them (as Hive's UNION makes)."""
    return "/".join(takewhile(_is_partition, dropwhile(lambda folder: not _is_partition(folder), _folders(path))))


def base_of(path: str) -> str:
    """The plain folders above a file's partition folders: "data"; "" where it has no partition folders."""
    above = list(takewhile(lambda folder: not _is_partition(folder), _folders(path)))
    return "/".join(above) if len(above) < len(_folders(path)) else ""


def _folders(path: str) -> list[str]:
    return path.split("/")[:-1]


def _is_partition(folder: str) -> bool:
    return "=" in folder


def partition_values(partition: str) -> dict[str, str | None]:
    """Column to value of a partition's folders; percent escapes undone once, Hive's null as None."""
    pairs = [folder.partition("=") for folder in partition.split("/") if folder]
    return {_unescaped(name): None if value == NULL_VALUE else _unescaped(value) for name, _, value in pairs}


def shown_part(partition: str, hidden: Collection[str]) -> str:
    """A partition's folders without those of the hidden columns."""
    folders = partition.split("/") if hidden else [partition]
    return "/".join(folder for folder in folders if _unescaped(folder.partition("=")[0]) not in hidden)


def partition_folders(values: Mapping[str, str]) -> str:
    """The folders of a partition whose values are these texts, as Hive and Spark name them."""
    return "/".join(f"{_escaped(name)}={_escaped(text) or NULL_VALUE}" for name, text in values.items())


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in text)


def stored_partition(partition: str, types: Mapping[str, str]) -> dict[str, Stored]:
    """Column to value of a partition's folders, in the stored form of the columns' types; of those without one, text.
    KeyTypeError where a value is not of its type."""
    values = partition_values(partition)
    return {name: as_partition_value(text, types.get(name, TEXT), name) for name, text in values.items()}


def partition_array(value: Stored, kind: str, rows: int) -> pa.Array:
    """So many rows of a partition column's value, in the Arrow type of its type."""
    one = stored_array([value], kind)
    return one if rows == 1 else one.take(pa.array(np.zeros(rows, np.int32)))


def _unescaped(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, encoding="latin-1")  # each escape a character, as Spark reads them


def partition_columns(paths: list[str], root: str) -> tuple[str, ...]:
    """The partition columns of a source, from the paths of its files. SourceNotFound where the files do not share the
    same ones, or the folders are not as they should be."""
    folders: dict[str, str] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], path)
    found: dict[tuple[str, ...], str] = {}
    bases: dict[str, str] = {}
    for folder, path in folders.items():
        found.setdefault(_columns_of(folder, f"{root}/{path}"), path)
        bases.setdefault(base_of(path), path)
    if len(found) > 1:
        shown = "; ".join(f"{'/'.join(columns) or 'none'} at {path}" for columns, path in list(found.items())[:3])
        raise SourceNotFound(f"{root}: its files do not share the same partition columns: {shown}")
    if len(bases) > 1:
        shown = "; ".join(list(bases.values())[:3])
        raise SourceNotFound(f"{root}: its partition folders lie below different folders ({shown}); name one of them")
    return next(iter(found), ())


def _columns_of(folder: str, where: str) -> tuple[str, ...]:
    partition = partition_of(f"{folder}/")
    columns = tuple(partition_values(partition))
    folders = len(partition.split("/")) if partition else 0
    if sum(map(_is_partition, folder.split("/"))) > folders:
        raise SourceNotFound(f"{where}: a plain folder between partition folders; expected the root of one table")
    if "" in columns or len(columns) != folders:
        raise SourceNotFound(f"{where}: expected partition folders that each name another column, like dt=2026-01-01")
    return columns


def matches(values: Mapping[str, Stored], where: Mapping[str, Stored]) -> bool:
    """Whether a partition has the values asked for."""
    return all((values.get(column),) == (value,) for column, value in where.items())


def as_partition_value(value: object, kind: str = TEXT, column: str = "") -> Stored:
    """A partition value asked for, or that of a folder, in stored form; Hive's name of null is null. Of a text column
    that is its text in a folder's name. KeyTypeError where it is not of the column's type."""
    if value is None or value == NULL_VALUE:
        return None
    if kind != TEXT:
        return _one_nan(to_stored(value, kind, column))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_nan(value: Stored) -> Stored:
    return value if value == value else math.nan  # one of them all, which tuples and dicts find


def asked_values(array: pa.Array, kind: str, column: str) -> list[Stored]:
    """The partition values of a column of a batch, in stored form. UsageError where they are not of the partition
    column's type."""
    if kind == TEXT:
        return [as_partition_value(text) for text in array.cast(pa.string()).to_pylist()]
    if pa.types.is_string(array.type):
        return [as_partition_value(text, kind, column) for text in array.to_pylist()]
    try:
        return [_one_nan(value) for value in stored_values(key_array(array, kind, column), kind)]
    except BTreeError as error:
        raise UsageError(str(error)) from None


def check_where(
    where: Mapping[str, object] | None, columns: tuple[str, ...], types: Mapping[str, str] = NO_TYPES
) -> dict[str, Stored]:
    """The partition values asked for, in stored form. UsageError for a column that is not a partition column, or a
    value that is not of its type."""
    checked: dict[str, Stored] = {}
    for column, value in (where or {}).items():
        if column not in columns:
            known = ", ".join(columns) or "none"
            raise UsageError(f"where: {column} is not a partition column (there are: {known})")
        try:
            checked[column] = as_partition_value(value, types.get(column, TEXT), column)
        except KeyTypeError as error:
            raise UsageError(f"where: {str(error).removeprefix('key ')}") from None
    return checked

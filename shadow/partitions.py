"""Hive-style partition folders: `dt=2026-01-01/country=de/part-0.parquet`. Values are text, as they stand."""

from collections.abc import Mapping
from itertools import dropwhile, takewhile
from urllib.parse import unquote

from shadow.errors import SourceNotFound, UsageError

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"


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


def matches(values: Mapping[str, str | None], where: Mapping[str, str | None]) -> bool:
    """Whether a partition has the values asked for."""
    return all(values.get(column) == value for column, value in where.items())


def as_partition_value(value: object) -> str | None:
    """A partition value asked for, as the text it has in a folder's name; Hive's name of null means null."""
    if value is None or value == NULL_VALUE:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_where(where: Mapping[str, object] | None, columns: tuple[str, ...]) -> dict[str, str | None]:
    """The partition values asked for, as text. UsageError for a column that is not a partition column."""
    checked: dict[str, str | None] = {}
    for column, value in (where or {}).items():
        if column not in columns:
            known = ", ".join(columns) or "none"
            raise UsageError(f"where: {column} is not a partition column (there are: {known})")
        checked[column] = as_partition_value(value)
    return checked

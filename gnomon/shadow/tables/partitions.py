"""Hive-style partition folders: `dt=2026-01-01/country=de/part-0.parquet`. Values are text, unchanged. Values of a
catalog table have the types that it declares, and are compared in the stored form of keys: int 7 matches a folder
`n=007`. Values of a lake table are typed by its metadata: `typed_folders` gives them the folders from which
`stored_partition` reads the same values."""

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from itertools import dropwhile, takewhile
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import key_array, stored_array, stored_values
from gnomon.shadow.errors import BTreeError, KeyTypeError, PartitionNotFound, SourceNotFound, UsageError

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
TEXT = "string"
MOST_LISTED = 10  # values of a partition column, in an error
SHOWN_CHARACTERS = 100  # of a value, in an error
AS_TEXT = NULL_VALUE.replace("_", "%5F", 1)  # the folder of a text that equals NULL_VALUE
FLOATS = ("float", "double")
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,100}(\.[0-9]{0,100})?([eE][+-]?[0-9]{1,3})?")
ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}  # in folder names, by Hive


def partition_of(path: str) -> str:
    """The partition folders of a file's path, unchanged: "dt=2026-01-01"; "" where there are none.

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
    """The values of a partition's folders by column; percent escapes decoded once, Hive's null as None."""
    pairs = [folder.partition("=") for folder in partition.split("/") if folder]
    return {_unescaped(name): None if value == NULL_VALUE else _unescaped(value) for name, _, value in pairs}


def shown_part(partition: str, hidden: Collection[str]) -> str:
    """A partition's folders without the folders of hidden columns."""
    folders = partition.split("/") if hidden else [partition]
    return "/".join(folder for folder in folders if _unescaped(folder.partition("=")[0]) not in hidden)


def partition_folders(values: Mapping[str, str]) -> str:
    """The folders of a partition with these values, in the naming of Hive and Spark."""
    return "/".join(f"{_escaped(name)}={_escaped(text) or NULL_VALUE}" for name, text in values.items())


def _exact(text: str | None) -> str:
    return NULL_VALUE if text is None else AS_TEXT if text == NULL_VALUE else _escaped(text)


def typed_folders(values: Mapping[str, Stored], types: Mapping[str, str]) -> str:
    """The folders of a partition with these values in stored form, of a lake table or a key-value folder, where an
    empty text is not a null, and the text of Hive's null is a text."""
    return "/".join(f"{_escaped(name)}={_exact(value_text(value, types[name]))}" for name, value in values.items())


def value_text(value: Stored, kind: str) -> str | None:
    """The text of a partition value in stored form, from which `as_partition_value` reads the same value; None for
    null."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(key_type(kind).to_json(value))


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in text)


def stored_partition(partition: str, types: Mapping[str, str]) -> dict[str, Stored]:
    """The values of a partition's folders by column, in the stored form of the column's type, or as text where it has
    no type. KeyTypeError where a value is not of its type."""
    values = partition_values(partition)
    return {name: None if text is None else _typed(text, types.get(name, TEXT), name) for name, text in values.items()}


def partition_array(value: Stored, kind: str, rows: int) -> pa.Array:
    """A partition column's value as `rows` rows, in the Arrow type of its type."""
    one = stored_array([value], kind)
    return one if rows == 1 else one.take(pa.array(np.zeros(rows, np.int32)))


def numbered(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], list[tuple[str | None, ...]]]:
    """Number the distinct combinations of values of some text columns. Returns the number of each row's combination,
    and the combinations by number."""
    values: list[tuple[str | None, ...]] = [()]
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        texts = encoded.dictionary.to_pylist()
        joint = codes * max(len(texts), 1) + encoded.indices.to_numpy().astype(np.int64)
        found, codes = np.unique(joint, return_inverse=True)
        values = [(*values[int(one) // len(texts)], texts[int(one) % len(texts)]) for one in found]
    return codes, values


def _unescaped(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, encoding="latin-1")  # each escape is one character, as in Spark


def partition_columns(paths: list[str], root: str) -> tuple[str, ...]:
    """The partition columns of a source, from the paths of its files. SourceNotFound where the files do not share the
    same ones, or their folders do not make a table."""
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
        raise SourceNotFound(f"its files do not share the same partition columns: {shown}", root)
    if len(bases) > 1:
        shown = "; ".join(list(bases.values())[:3])
        raise SourceNotFound(f"its partition folders lie below different folders ({shown}); name one of them", root)
    return next(iter(found), ())


def _columns_of(folder: str, where: str) -> tuple[str, ...]:
    partition = partition_of(f"{folder}/")
    columns = tuple(partition_values(partition))
    folders = len(partition.split("/")) if partition else 0
    if sum(map(_is_partition, folder.split("/"))) > folders:
        raise SourceNotFound("a plain folder between partition folders", where, expected="the root of one table")
    if "" in columns or len(columns) != folders:
        raise SourceNotFound("expected partition folders that each name another column, like dt=2026-01-01", where)
    return columns


def matches(values: Mapping[str, Stored], where: Mapping[str, Collection[Stored]]) -> bool:
    """Whether a partition has one of the requested values in each column."""
    return all(values.get(column) in named for column, named in where.items())


def as_partition_value(value: object, kind: str = TEXT, column: str = "") -> Stored:
    """The stored form of a partition value that a caller gave; -0.0 stays -0.0. Hive's name for null is null. In a text
    column it is a text, which names the null partition where no partition has this text. The stored form of a text
    column is the text in the folder's name. KeyTypeError where the value is not of the column's type."""
    if value is None or (isinstance(value, str) and value == NULL_VALUE and kind != TEXT):
        return None
    return _typed(value, kind, column)


def _typed(value: object, kind: str, column: str) -> Stored:
    if kind in FLOATS:
        return _float(key_type(kind).to_stored(value, column), value)
    if kind == "boolean" and isinstance(value, str):  # as engines read a folder's name
        return key_type(kind).to_stored(value.lower(), column)
    if kind != TEXT:
        return key_type(kind).to_stored(value, column)
    if not isinstance(value, (str, int, float, Decimal, dt.date, UUID, np.generic)) or isinstance(value, np.bytes_):
        raise KeyTypeError(column, "text, a number, a boolean, a date or a datetime", value)
    return str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)


def _float(number: Stored, value: Any) -> Stored:
    """A number in stored form, with the sign of a zero `value`. All NaNs become one object, which tuples and dicts
    find."""
    if number == 0:
        return math.copysign(0.0, float(value))
    return number if number == number else math.nan


def partition_stored(array: pa.Array, kind: str) -> list[Stored]:
    """The partition values in a column of a table's metadata, in stored form."""
    values = stored_values(array, kind)
    return list(map(_float, values, array.to_pylist())) if kind in FLOATS else values


def asked_values(array: pa.Array, kind: str, column: str) -> list[Stored]:
    """The partition values of a column of a batch, in stored form. Numbers are microseconds of a timestamp without a
    zone, as a join of Spark gives them. UsageError where the values are not of the partition column's type."""
    if kind == TEXT:
        return [as_partition_value(text) for text in array.cast(pa.string()).to_pylist()]
    if pa.types.is_string(array.type):
        return [as_partition_value(text, kind, column) for text in array.to_pylist()]
    if kind == "timestamp_ntz" and pa.types.is_int64(array.type):
        array = array.view(key_type(kind).arrow)
    try:
        return partition_stored(key_array(array, kind, column), kind)
    except BTreeError as error:
        raise UsageError(error.what, column=column, expected=error.expected, found=error.found) from None


def check_where(
    where: Mapping[str, object] | None,
    columns: tuple[str, ...],
    types: Mapping[str, str],
    there: Mapping[str, Collection[Stored]],
) -> dict[str, frozenset[Stored]]:
    """The values of partition columns that a `where` names, in stored form. `there` holds the existing values of each
    column. A list, tuple, set or array matches any of its values.

    In a text column a text names the folder of that text; where there is none, a whole number names the folders that
    write it otherwise (7: `07`). A number, boolean, date or datetime of Python names all folders whose text reads as
    it. UsageError for a column that is not a partition column and for a value that is not of its type;
    PartitionNotFound for a value that no partition has."""
    if where is not None and not isinstance(where, Mapping):
        raise UsageError(
            f"where: expected partition columns with their values, like {{'dt': '2026-01-01'}}, found {where!r}"
        )
    checked: dict[str, frozenset[Stored]] = {}
    for column, asked in (where or {}).items():
        if column not in columns:
            known = ", ".join(columns) or "none"
            raise UsageError(f"where: {column} is not a partition column (there are: {known})")
        kind, values = types.get(column, TEXT), np.atleast_1d(asked) if isinstance(asked, np.ndarray) else asked
        several = list(values) if isinstance(values, (list, tuple, set, frozenset, np.ndarray)) else [values]
        if not several:
            raise UsageError(f"where: {column} has an empty list of values; name one, or leave {column} out")
        found = [_values_named(value, kind, column, there[column]) for value in several]
        missing = [value for value, named in zip(several, found, strict=True) if not named]
        if missing:
            raise PartitionNotFound(_not_there(column, missing[0], kind, there[column]))
        checked[column] = frozenset().union(*found)
    return checked


def _values_named(value: object, kind: str, column: str, there: Collection[Stored]) -> set[Stored]:
    """The existing values (`there`) that a requested value names."""
    try:
        stored = as_partition_value(value, kind, column)
    except KeyTypeError as error:
        expected = f"{error.expected}{error.hint}"
        raise UsageError(f"where: column {column}", expected=expected, found=error.found) from None
    if stored in there and (kind != TEXT or value is None or isinstance(value, str)):
        return {stored}
    if stored == NULL_VALUE:
        return {None} if None in there else set()
    if kind != TEXT or value is None or (isinstance(value, str) and not _WHOLE.fullmatch(value)):
        return set()
    reads_as = _reading_of(int(value) if isinstance(value, str) else value)
    return {text for text in there if isinstance(text, str) and reads_as(text)}


def _reading_of(value: object) -> Callable[[str], bool]:
    """A function that says whether the text of a folder, read in the type of the value, equals the value."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")  # Python has values of this unit: finer ones become integers
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:  # NaT, which equals no folder
        return lambda _: False
    if isinstance(value, bool):
        return lambda text: text.lower() == str(value).lower()
    if isinstance(value, (int, float, Decimal)):
        as_number = float if isinstance(value, float) else Decimal
        return lambda text: _NUMBER.fullmatch(text) is not None and as_number(text) == value
    if isinstance(value, dt.date):
        moment = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
        return lambda text: _moment(text) == _in_utc(moment)
    return lambda text: text == str(value)


def _moment(text: str) -> dt.datetime | None:
    try:
        return _in_utc(dt.datetime.fromisoformat(text))
    except ValueError:
        return None


def _in_utc(moment: dt.datetime) -> dt.datetime:
    """A datetime without an offset is in UTC."""
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment


def _not_there(column: str, asked: object, kind: str, there: Collection[Stored]) -> str:
    known = sorted({text for value in there if (text := value_text(value, kind)) is not None})
    known += [NULL_VALUE] * (None in there)
    if len(known) > MOST_LISTED:
        values = f"{column} has {len(known):,} values, from {shortened(known[0])} to {shortened(known[-1])}"
    else:
        values = f"{column} has the values {', '.join(map(shortened, known))}" if known else "there are no partitions"
    value = NULL_VALUE if asked is None else str(asked)
    return f"where: no partition has {column}={shortened(value)}; {values}"


def shortened(text: str) -> str:
    """A text, shortened for an error."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."

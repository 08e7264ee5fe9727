"""The columns of a batch: their types, and their values in these types.

Types are those of an engine: Arrow's own (`ARROW`), or Spark's.

A column that the source has, too, gets the source's type if that type holds every value of the file's type: numbers are
widened. Other columns keep the type of the files. Values in text files have no type: they are parsed in the types of
the source's columns, and refused where they do not fit."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.jobs.dedup.batch_files import BatchFile
from gnomon.shadow import to_json
from gnomon.shadow.errors import OptionError, UnsupportedFormat, UsageError
from gnomon.shadow.values import python_values
from gnomon.sources.types import SAFE_CAST, WIDENED, Unfit, can_hold, conform, converter, to_ddl

EXTENSION = "extension<"  # prefix of Arrow's names of extension types, like UUID


class NoType(Exception):
    """No type of an engine holds all values of a column."""


class EngineTypes(Protocol):
    """The types of an engine, and the Arrow types with their values."""

    name: str
    text: Any  # its type of text

    def own(self, found: pa.DataType) -> Any:
        """The type of a column of a file. NoType where there is none."""
        ...

    def exact(self, kind: Any) -> pa.DataType:
        """The Arrow type with exactly the values of a type. NoType where Python cannot get the type."""
        ...

    def shown(self, kind: Any) -> str:
        """A type in messages."""
        ...


class _ArrowTypes:
    """Arrow's types, as the files have them."""

    name, text = "Arrow", pa.string()

    def own(self, found: pa.DataType) -> pa.DataType:
        if types.is_union(found):
            raise NoType
        return found

    def exact(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def shown(self, kind: pa.DataType) -> str:
        return str(kind)


ARROW: EngineTypes = _ArrowTypes()


class BatchColumn(NamedTuple):
    """A column of a batch. `exact` is the Arrow type with exactly the values of the column's type in the engine,
    `shown` the name of that type in messages, `target` the Arrow type in which the engine takes the values."""

    name: str
    exact: pa.DataType
    shown: str
    target: pa.DataType


def column_kinds(
    files: Sequence[BatchFile], wanted: Mapping[str, Any], in_utc: bool, engine: EngineTypes = ARROW
) -> dict[str, Any]:
    """The type of each column of some files, without partition columns: `wanted`, the source's type, if it holds the
    types of all files, else one of the files' types. With `in_utc` a timestamp without a zone is an instant. UsageError
    where no type of the engine holds a column, or no file's type holds the types of the other files."""
    found: dict[str, dict[pa.DataType, str]] = {}
    for file in files:
        for field in file.schema:
            if field.name not in file.values:
                found.setdefault(field.name, {}).setdefault(field.type, file.info.path)
    return {name: _kind(name, kinds, wanted.get(name), in_utc, engine) for name, kinds in found.items()}


def _kind(name: str, found: Mapping[pa.DataType, str], wanted: Any, in_utc: bool, engine: EngineTypes) -> Any:
    """The type of a column that has these types in files, each with its first file."""
    if wanted is not None and all(_fits(kind, wanted, in_utc, engine) for kind in found):
        return wanted
    own: dict[str, Any] = {}
    for kind, path in found.items():
        if types.is_null(kind):
            continue
        try:
            own[path] = engine.own(kind)
        except NoType:
            text = f"column {name} of type {kind} has no {engine.name} type; leave it out"
            raise UsageError(text, path) from None
    for one in own.values():
        if all(_fits(kind, one, False, engine) for kind in found):
            return one
    if own:
        shown = ", ".join(f"{engine.shown(one)} in {path}" for path, one in list(own.items())[:3])
        raise UsageError(f"batch: column {name} is {shown}; expected one type in all of its files")
    return engine.text


def _fits(found: pa.DataType, kind: Any, in_utc: bool, engine: EngineTypes) -> bool:
    """Whether a column of a file may be cast to a type of the engine: the cast keeps or refuses each value. It does not
    cut a fraction, drop a field of a record or parse text. It does not give a zone to a time, except UTC within records
    and lists, where INT96 has no zone."""
    try:
        exact, own = engine.exact(kind), engine.own(found)
    except NoType:
        return False
    if found == exact or (types.is_timestamp(found) and types.is_timestamp(exact) and not found.tz and in_utc):
        return True
    return can_hold(found, exact, SAFE_CAST) and (own == kind or can_hold(found, exact, WIDENED))


def in_kind(array: pa.Array, column: BatchColumn, offsets: pa.Array, by_ordinal: bool, path: str) -> pa.Array:
    """A column of a file in the type of a column of the batch. UnsupportedFormat, with the value and its place, where
    the type does not hold it. `offsets` has the place of each value: the row in the file if `by_ordinal`, else the
    byte."""
    name, exact, shown, target = column
    try:
        return conform(array, exact).cast(target)
    except (Unfit, pa.ArrowException) as error:
        check_memory(error)
        place = next((i for i in range(len(array) - 1) if not _is_kept(array.slice(i, 1), exact)), len(array) - 1)
    value, offset = to_json(python_values(array.slice(place, 1))[0]), offsets[place].as_py()
    where = f"column {name}, row {offset}" if by_ordinal else f"column {name}"
    raise UnsupportedFormat(f"{where}: {shown} does not hold {value}", path, None if by_ordinal else offset)


def _is_kept(array: pa.Array, exact: pa.DataType) -> bool:
    try:
        conform(array, exact)
    except (Unfit, pa.ArrowException) as error:
        check_memory(error)
        return False
    return True


def csv_columns(names: Sequence[str], wanted: Mapping[str, pa.DataType | None], known: Mapping[str, str]) -> pa.Schema:
    """The types of the fields of CSV files: the source's types that can be parsed from text, else text. `known` has
    Arrow's names of the types in the source's files."""
    return pa.schema([(name, _as_text(pa.string(), wanted.get(name), known.get(name, ""), True)) for name in names])


def json_columns(found: pa.Schema, wanted: Mapping[str, pa.DataType | None], known: Mapping[str, str]) -> pa.Schema:
    """The types of the members of JSON rows: the source's types, or the `found` types where the source's records lack
    fields of the rows. Columns without any value are null."""
    read = [one.with_type(_as_text(one.type, wanted.get(one.name), known.get(one.name, ""))) for one in found]
    return pa.schema([*read, *(pa.field(name, pa.null()) for name in wanted if name not in found.names)])


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

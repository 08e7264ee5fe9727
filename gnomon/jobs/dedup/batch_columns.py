"""The columns of a batch: their types, and their values in these types.

Types are Arrow's, as an engine holds them: this process as the files have them, Spark in `common_type`.

A column that the source has, too, gets the source's type if that type holds every value of the file's type: numbers are
widened. Other columns keep the type of the files. Values in text files have no type: they are parsed in the types of
the source's columns, and refused where they do not fit."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.jobs.dedup.batch_files import BatchFile
from gnomon.jobs.load import NoType
from gnomon.shadow import to_json
from gnomon.shadow.errors import OptionError, UnsupportedFormat, UsageError
from gnomon.shadow.values import python_values
from gnomon.sources.types import SAFE_CAST, WIDENED, Unfit, can_hold, conform, converter, to_ddl

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
    if wanted is not None and all(_fits(kind, wanted, in_utc, held) for kind in found):
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
        if all(_fits(kind, one, False, held) for kind in found):
            return one
    if own:
        shown = ", ".join(f"{one} in {path}" for path, one in list(own.items())[:3])
        raise UsageError(f"batch: column {name} is {shown}; expected one type in all of its files")
    return pa.string()


def _fits(found: pa.DataType, kind: pa.DataType, in_utc: bool, held: Held) -> bool:
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

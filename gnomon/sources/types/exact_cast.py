"""Casts that keep each value exactly: which type holds the values of another, and the cast.

`can_hold` compares two types by one of three sets of rules:

- `WIDENED`    a file is read in the types that a table declares: each value of the type is one of the other. Numbers
               are widened, bytes are read as text, a date as its midnight, a timestamp without a zone as UTC. Struct
               fields match without regard to case; fields that the file lacks are null.
- `SAME_KIND`  a file is written in the types of another one: some values of the type may be values of the other.
- `SAFE_CAST`  Arrow's own safe cast keeps each value or refuses it. Between other types it truncates, rounds, reads
               text or leaves fields out.

`conform` casts by WIDENED, `fit` by SAME_KIND. Both raise Unfit for a value that the type does not hold.

`plan_columns` gives the columns of a new file that is written like another one of its source.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.errors import check_memory
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.types.arrays import (
    UNITS,
    all_valid,
    first_difference,
    is_bytes,
    is_list,
    is_number,
    is_text,
    is_text_or_bytes,
    is_uuid,
    map_parts,
    nulls,
    plain,
)
from gnomon.sources.types.ddl import default_array, has_records, matching

Places = npt.NDArray[np.int64]
MOST_ITEMS = 2**31 - 1  # in all lists of an array together
EXACT_BITS = {16: 11, 32: 24, 64: 53}  # bits of a floating number: bits of the integers that it holds exactly
UNIVERSAL = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


class Unfit(Exception):
    """A value does not fit the type."""


IsKind = Callable[[pa.DataType], bool]
Holds = Callable[[pa.DataType, pa.DataType, bool], bool]  # the type found, the type wanted, whether they are nested
Pairs = Iterator[tuple[pa.DataType, pa.DataType]]


class Rules(NamedTuple):
    """A set of rules: which type holds the values of another.

    `plain` gives the type of the values of dictionaries and extension types; with `unwrap` these may be nested. With
    `equal_types` equal types need no rule. `fields` pairs the fields of two structs, None where they do not match.
    `flat` has the rules for types that are not nested."""

    plain: Callable[[pa.DataType], pa.DataType]
    unwrap: bool
    equal_types: bool
    fields: Callable[[pa.StructType, pa.StructType], Pairs | None]
    flat: tuple[tuple[IsKind, Holds], ...]


def can_hold(found: pa.DataType, wanted: pa.DataType, rules: Rules, nested: bool = False) -> bool:
    """Whether `wanted` holds values of `found`, by a set of rules. The cast may still refuse single values."""
    if rules.unwrap:
        found, wanted = rules.plain(found), rules.plain(wanted)
    if rules.equal_types and found == wanted and not has_records(wanted):
        return True
    if is_list(found):
        return is_list(wanted) and can_hold(found.value_type, wanted.value_type, rules, True)
    if types.is_map(found):
        keys = types.is_map(wanted) and can_hold(found.key_type, wanted.key_type, rules, True)
        return keys and can_hold(found.item_type, wanted.item_type, rules, True)
    if types.is_struct(found):
        pairs = rules.fields(found, wanted) if types.is_struct(wanted) else None
        return pairs is not None and all(can_hold(one, other, rules, True) for one, other in pairs)
    found = rules.plain(found)
    return any(is_kind(found) and holds(found, wanted, nested) for is_kind, holds in rules.flat)


def _cast_plain(kind: pa.DataType) -> pa.DataType:
    if types.is_run_end_encoded(kind):
        return _cast_plain(kind.value_type)
    return pa.bool_() if isinstance(kind, pa.Bool8Type) else plain(kind)


def _integer(found: pa.DataType, wanted: pa.DataType, _: bool) -> bool:
    bits = found.bit_width - (1 if types.is_signed_integer(found) else 0)  # without the sign
    if types.is_signed_integer(wanted):
        return bool(bits <= wanted.bit_width - 1)
    if types.is_decimal(wanted):
        return bool(len(str(2**bits)) <= wanted.precision - wanted.scale)
    return bool(types.is_floating(wanted) and bits <= EXACT_BITS[wanted.bit_width])


def _decimal(found: pa.DataType, wanted: pa.DataType, _: bool) -> bool:
    if not types.is_decimal(wanted):
        return False
    before = found.precision - found.scale
    return bool(found.scale <= wanted.scale and before <= wanted.precision - wanted.scale)


def _wider(found: pa.DataType, wanted: pa.DataType, _: bool) -> bool:
    return bool(types.is_floating(wanted) and found.bit_width <= wanted.bit_width)


def _timestamp(found: pa.DataType, wanted: pa.DataType, _: bool) -> bool:
    """A declared type may have fewer digits: the cast refuses a value that has more."""
    return bool(types.is_timestamp(wanted) and (wanted.tz or not found.tz))


def _same_moments(found: pa.DataType, wanted: pa.DataType, _: bool) -> bool:
    """With another zone, a value may mean the wall clock or the instant."""
    if not types.is_timestamp(wanted):
        return False
    zones = (found.tz, wanted.tz)
    return all(zones) or not any(zones) or (found.tz or wanted.tz) in UNIVERSAL


def _cast_moments(found: pa.DataType, wanted: pa.DataType, nested: bool) -> bool:
    """Nested INT96 has no zone."""
    return bool(types.is_timestamp(wanted) and (bool(found.tz) == bool(wanted.tz) or (nested and not found.tz)))


def _to(*kinds: IsKind) -> Holds:
    """The rule that the wanted type is of one of these kinds."""
    return lambda _found, wanted, _nested: any(is_kind(wanted) for is_kind in kinds)


def _fields_by_letters(found: pa.StructType, wanted: pa.StructType) -> Pairs | None:
    """Pairs of matching fields; None where two match the same one."""
    fields = list(found)
    pairs = matching(fields, wanted)
    if any(len(places) > 1 for _, places in pairs):
        return None
    return ((fields[place].type, field.type) for field, places in pairs for place in places)


def _fields_in_order(found: pa.StructType, wanted: pa.StructType) -> Pairs | None:
    names = [field.name for field in found]
    if len(set(names)) < len(names) or names != [field.name for field in wanted]:
        return None
    return ((one.type, other.type) for one, other in zip(found, wanted, strict=True))


def _fields_by_name(found: pa.StructType, wanted: pa.StructType) -> Pairs | None:
    """Pairs of fields with the same name. `wanted` may have further fields."""
    names, known = [field.name for field in found], {field.name: field.type for field in wanted}
    if len(set(names)) < len(names) or not set(names) <= set(known):
        return None
    return ((field.type, known[field.name]) for field in found)


WIDENED = Rules(
    plain,
    unwrap=False,
    equal_types=True,
    fields=_fields_by_letters,
    flat=(
        (types.is_null, lambda *_: True),
        (types.is_integer, _integer),
        (types.is_decimal, _decimal),
        (types.is_floating, _wider),
        (types.is_timestamp, _timestamp),
        (types.is_date, lambda _, wanted, __: types.is_date(wanted) or (types.is_timestamp(wanted) and not wanted.tz)),
        (types.is_time, lambda found, wanted, _: wanted == (pa.int32() if found.bit_width == 32 else pa.int64())),
        (is_text_or_bytes, _to(is_text, types.is_binary)),  # text has to be UTF-8
        (types.is_boolean, _to(types.is_boolean)),
    ),
)
SAME_KIND = Rules(
    plain,
    unwrap=True,
    equal_types=True,
    fields=_fields_in_order,
    flat=(
        (types.is_timestamp, _same_moments),
        (is_number, _to(is_number)),
        (types.is_date, _to(types.is_date)),
        (types.is_time, _to(types.is_time)),
        (is_text_or_bytes, _to(is_text_or_bytes)),
    ),
)
SAFE_CAST = Rules(
    _cast_plain,
    unwrap=False,
    equal_types=False,
    fields=_fields_by_name,
    flat=(
        (types.is_null, lambda *_: True),
        (types.is_timestamp, _cast_moments),
        (types.is_integer, _to(types.is_integer, types.is_decimal, types.is_floating)),
        (types.is_int64, _to(types.is_duration)),  # Spark's own files of intervals
        (types.is_decimal, _to(types.is_decimal, types.is_string)),
        (types.is_floating, _wider),
        (types.is_boolean, _to(types.is_boolean)),
        (types.is_date, _to(types.is_date)),
        (types.is_time, _to(types.is_time)),
        (types.is_duration, _to(types.is_duration)),
        (is_text, _to(is_text)),
        (is_bytes, _to(is_bytes, is_text)),  # text has to be UTF-8
    ),
)


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast a column to a type that holds it by WIDENED. Raises Unfit for a value that the type does not hold."""
    if array.type == wanted and not has_records(wanted):
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if is_list(wanted):
        return _lists(array, wanted)
    if types.is_map(wanted):
        offsets, pairs = _cut(array.offsets)
        parts = ((array.keys, wanted.key_type), (array.items, wanted.item_type))
        keys, items = (conform(part.slice(*pairs), kind) for part, kind in parts)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=array.is_null())
    if types.is_struct(wanted):
        return _records(array, wanted)
    if isinstance(array.type, pa.UuidType):
        if types.is_string(wanted):
            return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()], wanted)
        array = array.storage
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        return array.cast(wanted)
    except pa.ArrowException as error:
        check_memory(error)
        raise Unfit(str(error).partition("\n")[0]) from None


def _lists(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast lists of any kind. The offsets are made here because Arrow's own casts ignore the begin of a slice of
    records with a column without a type. They then crash the process, or give other rows."""
    if types.is_list(array.type) or types.is_large_list(array.type):
        offsets, items = _cut(array.offsets)
        values = array.values.slice(*items)
    else:
        begins, sizes = _begins_and_sizes(array)
        ends = np.cumsum(sizes)
        offsets = _offsets(np.concatenate([[0], ends]))
        places = np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
        values = array.values.take(pa.array(places, pa.int64()))
    return pa.ListArray.from_arrays(
        offsets, conform(values, wanted.value_type), type=wanted, mask=array.is_null() if array.null_count else None
    )


def _begins_and_sizes(array: pa.Array) -> tuple[Places, Places]:
    """Begin and length of each list, for lists that may lie in any order. A null has length 0."""
    if types.is_fixed_size_list(array.type):
        sizes = np.full(len(array), array.type.list_size, np.int64)
        begins = (np.arange(len(array)) + array.offset) * array.type.list_size
    else:
        begins, sizes = (part.to_numpy().astype(np.int64) for part in (array.offsets, array.sizes))
    return begins, np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)


def _cut(offsets: pa.Array) -> tuple[pa.Array, tuple[int, int]]:
    """The offsets counted from 0, and `(begin, length)` of the values that they cover."""
    places = offsets.to_numpy()
    begin, end = (int(places[0]), int(places[-1])) if len(places) else (0, 0)
    return _offsets(places - begin), (begin, end - begin)


def _offsets(places: Places) -> pa.Array:
    if len(places) and places[-1] > MOST_ITEMS:
        raise Unfit(f"lists of {places[-1]} values in one batch, the limit is {MOST_ITEMS}")
    return pa.array(places.astype(np.int32), pa.int32())


def _records(array: pa.StructArray, wanted: pa.StructType) -> pa.Array:
    pairs = matching(list(array.type), wanted)
    columns = [
        conform(array.field(places[0]), field.type) if places else default_array(field, len(array))
        for field, places in pairs
    ]
    if not columns:
        return array
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())


def fit(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast to another type of the same kind: numbers, timestamps, text or bytes, and nested types of these.

    Raises Unfit where a value would change."""
    if array.type == wanted:
        return array
    if types.is_null(array.type) or array.null_count == len(array):
        return nulls(len(array), wanted)
    if not can_hold(array.type, wanted, SAME_KIND):
        raise Unfit(f"expected {wanted}, found {array.type}")
    if shape(array.type) == shape(wanted):
        return _cast(array, wanted)
    try:
        made = _cast(array, wanted)
        back = _cast(made, array.type)
    except (pa.ArrowException, ValueError) as error:
        check_memory(error)
        raise Unfit(f"expected {wanted}, found {array.type}: {str(error).partition(chr(10))[0]}") from None
    row = first_difference(array, back)
    if row is not None:
        raise Unfit(f"expected {wanted}, found {array.type}, with a value that {wanted} cannot hold exactly")
    return made


def kept_type(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type for writing values of `wanted` where an existing file of the source has `found`. It is `found`, where
    that holds as many values and differs only in how it stores them; else `wanted`."""
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return found if UNITS.index(found.unit) >= UNITS.index(wanted.unit) else wanted
    if shape(found) == shape(wanted):
        return found
    same = (
        is_text_or_bytes(plain(found))
        and is_text_or_bytes(plain(wanted))
        and not types.is_fixed_size_binary(plain(found))
    )
    return found if same or (is_uuid(found) and is_text_or_bytes(wanted)) else wanted


def shape(kind: pa.DataType) -> object:
    """A type without the names of list items and without nullability, to compare types by."""
    if types.is_struct(kind):
        return ("struct", *((field.name, shape(field.type)) for field in kind))
    if types.is_map(kind):
        return ("map", shape(kind.key_type), shape(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return (kind.id, shape(kind.value_type))
    return kind


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast an array. Nested types are cast here: Arrow's own casts refuse types that differ in nullability."""
    found = array.type
    mask = array.is_null() if array.null_count else None
    if types.is_struct(found) and types.is_struct(wanted) and len(wanted):
        columns = [_member(column, field, array) for column, field in zip(array.flatten(), wanted, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
    if types.is_map(found) and types.is_map(wanted):
        lengths, keys, items = map_parts(array)
        offsets = _list_offsets(array, lengths)
        keys, items = _cast(keys, wanted.key_type), _cast(items, wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask)
    if is_list(found) and (types.is_list(wanted) or types.is_large_list(wanted)):
        offsets = _list_offsets(array, pc.list_value_length(array).drop_null())
        made = pa.ListArray if types.is_list(wanted) else pa.LargeListArray
        offsets = offsets.cast(pa.int32() if types.is_list(wanted) else pa.int64())
        return made.from_arrays(offsets, _cast(array.flatten(), wanted.value_type), type=wanted, mask=mask)
    return _cast_flat(array, wanted)


def _member(column: pa.Array, field: pa.Field, within: pa.StructArray) -> pa.Array:
    """A field of records, cast to the wanted type. Where the record is null, a required field has any value, another
    one null. Unfit for another null in a required field."""
    made = _cast(column, field.type)
    if field.nullable or not made.null_count:
        return made
    if made.null_count > within.null_count:
        raise Unfit(f"field {field.name} is required, found a null")
    return all_valid(made)


def _list_offsets(array: pa.Array, lengths: pa.Array) -> pa.Array:
    """The offset of each list among all values, and the end, from the lengths of the lists that are not null."""
    all_lengths = np.zeros(len(array), np.int64)
    all_lengths[array.is_valid().to_numpy(zero_copy_only=False)] = lengths.to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(all_lengths)]), pa.int32())


def _cast_flat(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        if is_uuid(array.type) and is_text(wanted):
            texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in array.storage.to_pylist()]
            return pa.array(texts, pa.string()).cast(wanted)
        return _cast_flat(array.storage, wanted)
    if is_uuid(wanted) and is_text(array.type):
        values = [None if text is None else uuid.UUID(text).bytes for text in array.cast(pa.string()).to_pylist()]
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16)))
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, _cast_flat(array, wanted.storage_type))
    return array.cast(wanted)


class Column(NamedTuple):
    """A column of the new file. `field`: its name and type. `given`: the rows have the column, otherwise it is null.
    `kept`: its type is that of the existing file."""

    field: pa.Field
    given: bool
    kept: bool


def plan_columns(
    fields: pa.Schema, schema: pa.Schema, natural: Callable[[pa.DataType], pa.DataType], path: str
) -> list[Column]:
    """The columns of the existing file in its order, then those that `schema` adds, in the format's `natural` type.
    UnsupportedFormat where `natural` has none, or a required column is missing."""
    columns = []
    for field in fields:
        if field.name not in schema.names:
            if not field.nullable:
                what = "required in the source's files, and the rows have no such column"
                raise UnsupportedFormat(what, path, column=field.name)
            columns.append(Column(field, False, True))
            continue
        wanted = schema.field(field.name).type
        kept = kept_type(field.type, wanted) == field.type
        columns.append(
            Column(field if kept else field.with_type(_natural_type(natural, wanted, field.name, path)), True, kept)
        )
    for field in schema:
        if field.name not in fields.names:
            kind = _natural_type(natural, field.type, field.name, path)
            columns.append(Column(pa.field(field.name, kind), True, False))
    return columns


def _natural_type(
    natural: Callable[[pa.DataType], pa.DataType], kind: pa.DataType, name: str, path: str
) -> pa.DataType:
    try:
        return natural(kind)
    except TypeError as error:
        raise UnsupportedFormat(f"{kind}: {error}", path, column=name) from None


def arrays_of(columns: Sequence[Column], batch: pa.RecordBatch, path: str) -> list[pa.Array]:
    """The columns of some rows, cast to the types of the file."""
    arrays = []
    for field, given, _ in columns:
        if not given:
            arrays.append(nulls(batch.num_rows, field.type))
            continue
        array = batch.column(field.name)
        if not field.nullable and array.null_count:
            raise UnsupportedFormat("required in the source's files", path, column=field.name, found="a null")
        try:
            arrays.append(fit(array, field.type))
        except Unfit as error:
            raise UnsupportedFormat(str(error), path, column=field.name) from None
    return arrays

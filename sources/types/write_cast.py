"""Casts columns to the types of a file that is written, and compares them with what is read back.

`fit` keeps every value exactly, or raises Unfit. `first_difference` treats NaN as equal to NaN, and 0.0 as different
from -0.0. Neither makes a Python object for a value, except for UUIDs.
"""

import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.sources.types.read_cast import Unfit

UNITS = ("s", "ms", "us", "ns")
UNIVERSAL = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
TEXT = (types.is_string, types.is_large_string, types.is_string_view)
BYTES = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)


def fit(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast to another type of the same kind: numbers, timestamps, text or bytes, and nested types of these. Unfit where
    a value would change."""
    if array.type == wanted:
        return array
    if types.is_null(array.type) or array.null_count == len(array):
        return nulls(len(array), wanted)
    if not alike(array.type, wanted):
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
        raise Unfit(f"expected {wanted}, found {array.type}, which has a value that it does not hold exactly")
    return made


def alike(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether two types are of one kind, so that values of one may be values of the other."""
    one, two = _plain(one), _plain(two)
    if one == two:
        return True
    if types.is_timestamp(one) and types.is_timestamp(
        two
    ):  # of another zone the wall clock may be meant, or the instant
        zones = (one.tz, two.tz)
        return all(zones) or not any(zones) or (one.tz or two.tz) in UNIVERSAL
    if _is_list(one) and _is_list(two):
        return alike(one.value_type, two.value_type)
    if types.is_map(one) and types.is_map(two):
        return alike(one.key_type, two.key_type) and alike(one.item_type, two.item_type)
    if types.is_struct(one) and types.is_struct(two):
        names = [field.name for field in one]
        same = len(set(names)) == len(names) and names == [field.name for field in two]
        return same and all(alike(a.type, b.type) for a, b in zip(one, two, strict=True))
    return any(kind(one) and kind(two) for kind in (_is_number, types.is_date, types.is_time)) or (
        _is_text(one) and _is_text(two)
    )


def kept_type(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type in which values of `wanted` are written where an existing file of the source has `found`: `found`, where
    it holds as many values and differs only in how it stores them; else `wanted`."""
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return found if UNITS.index(found.unit) >= UNITS.index(wanted.unit) else wanted
    if shape(found) == shape(wanted):
        return found
    same = _is_text(_plain(found)) and _is_text(_plain(wanted)) and not types.is_fixed_size_binary(_plain(found))
    return found if same or (_is_uuid(found) and _is_text(wanted)) else wanted


def shape(kind: pa.DataType) -> object:
    """What remains of a type without the names of list items and without nullability."""
    if types.is_struct(kind):
        return ("struct", *((field.name, shape(field.type)) for field in kind))
    if types.is_map(kind):
        return ("map", shape(kind.key_type), shape(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return (kind.id, shape(kind.value_type))
    return kind


def first_difference(one: pa.Array, two: pa.Array) -> int | None:
    """The first row in which two arrays of one type and length differ; None if they are equal."""
    if _same(one, two):
        return None
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        differs = not _same(one.slice(low, middle - low), two.slice(low, middle - low))
        low, high = (low, middle) if differs else (middle, high)
    return low


def _same(one: pa.Array, two: pa.Array) -> bool:
    if not _has_floats(one.type):
        return bool(one.equals(two))
    if types.is_floating(one.type):
        return bool(_bits(one).equals(_bits(two)))
    if len(one) != len(two) or not one.is_null().equals(two.is_null()):
        return False
    if types.is_struct(one.type):
        return all(_same(a, b) for a, b in zip(one.flatten(), two.flatten(), strict=True))
    if types.is_map(one.type):
        pairs = [_pairs(each) for each in (one, two)]
        return bool(pairs[0][0].equals(pairs[1][0])) and all(_same(*each) for each in zip(*pairs, strict=True))
    if _is_list(one.type):
        lengths = [pc.list_value_length(each) for each in (one, two)]
        return bool(lengths[0].equals(lengths[1])) and _same(one.flatten(), two.flatten())
    return bool(one.equals(two))


def _bits(array: pa.Array) -> pa.Array:
    """The bits of numbers, all NaN alike."""
    kind = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[array.type.bit_width]
    nan = pc.is_nan(array.cast(pa.float32()) if types.is_float16(array.type) else array)
    return pc.if_else(nan, pa.scalar(1, kind), array.view(kind))


def _pairs(array: pa.MapArray) -> list[pa.Array]:
    """The number of entries of each map, their keys and their values."""
    array = array.drop_null() if array.null_count else array
    offsets = array.offsets.to_numpy()
    begin, length = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(offsets) else (0, 0)
    return [pa.array(np.diff(offsets)), array.keys.slice(begin, length), array.items.slice(begin, length)]


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Nested ones by hand: Arrow's own casts refuse what may be null in one type and not in the other."""
    found = array.type
    mask = array.is_null() if array.null_count else None
    if types.is_struct(found) and types.is_struct(wanted) and len(wanted):
        columns = [_member(column, field, array) for column, field in zip(array.flatten(), wanted, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
    if types.is_map(found) and types.is_map(wanted):
        lengths, keys, items = _pairs(array)
        offsets = _offsets(array, lengths)
        keys, items = _cast(keys, wanted.key_type), _cast(items, wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask)
    if _is_list(found) and (types.is_list(wanted) or types.is_large_list(wanted)):
        offsets = _offsets(array, pc.list_value_length(array).drop_null())
        made = pa.ListArray if types.is_list(wanted) else pa.LargeListArray
        offsets = offsets.cast(pa.int32() if types.is_list(wanted) else pa.int64())
        return made.from_arrays(offsets, _cast(array.flatten(), wanted.value_type), type=wanted, mask=mask)
    return _cast_flat(array, wanted)


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls. Required fields within them have some value, as Arrow's readers of the type expect."""
    if not types.is_struct(kind) or not len(kind):
        return pa.nulls(length, kind)
    mask = pa.array(np.ones(length, np.bool_))
    members = [nulls(length, field.type) for field in kind]
    members = [one if field.nullable else _all_valid(one) for one, field in zip(members, kind, strict=True)]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def _member(column: pa.Array, field: pa.Field, within: pa.StructArray) -> pa.Array:
    """A field of records in the type that is wanted; null where they are, or, of one that is required, anything."""
    made = _cast(column, field.type)
    if field.nullable or not made.null_count:
        return made
    if made.null_count > within.null_count:
        raise Unfit(f"field {field.name} is required, found a null")
    return _all_valid(made)


def _all_valid(array: pa.Array) -> pa.Array:
    """The array with what lies below its nulls in place of them."""
    kind = array.type
    if types.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(i) for i in range(len(kind))], fields=list(kind))
    if types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return type(array).from_arrays(array.offsets, array.values, type=kind)
    storage = array.storage if isinstance(kind, pa.BaseExtensionType) else array
    buffers = [None, *storage.buffers()[1:]]
    made = pa.Array.from_buffers(storage.type, len(array), buffers, null_count=0, offset=storage.offset)
    return pa.ExtensionArray.from_storage(kind, made) if storage is not array else made


def _offsets(array: pa.Array, lengths: pa.Array) -> pa.Array:
    """Where each begins among the values of all, from the lengths of those that are not null."""
    all_lengths = np.zeros(len(array), np.int64)
    all_lengths[array.is_valid().to_numpy(zero_copy_only=False)] = lengths.to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(all_lengths)]), pa.int32())


def _cast_flat(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        if _is_uuid(array.type) and _is_spelled(wanted):
            texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in array.storage.to_pylist()]
            return pa.array(texts, pa.string()).cast(wanted)
        return _cast_flat(array.storage, wanted)
    if _is_uuid(wanted) and _is_spelled(array.type):
        values = [None if text is None else uuid.UUID(text).bytes for text in array.cast(pa.string()).to_pylist()]
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16)))
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, _cast_flat(array, wanted.storage_type))
    return array.cast(wanted)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves."""
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Text, or the bytes that it may be written as."""
    return any(is_kind(kind) for is_kind in (*TEXT, *BYTES))


def _is_spelled(kind: pa.DataType) -> bool:
    """Text, and not bytes."""
    return any(is_kind(kind) for is_kind in TEXT)


def _is_list(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in LISTS)


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def _has_floats(kind: pa.DataType) -> bool:
    return bool(types.is_floating(kind)) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of the values within a column that are not nested themselves."""
    kind = array.type
    if types.is_struct(kind):
        for column in array.flatten():
            yield from leaves(column)
    elif types.is_map(kind):
        for column in _pairs(array)[1:]:
            yield from leaves(column)
    elif _is_list(kind):
        yield from leaves(array.flatten())
    else:
        yield array

"""Casts columns of a file to the types that a table declares: each value exactly, or not at all.

Numbers are widened, bytes are read as text, a timestamp without a zone is UTC. Struct fields match whatever their case;
fields that the file lacks are null.
"""

import uuid
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory

Places = npt.NDArray[np.int64]
MOST_ITEMS = 2**31 - 1  # of all lists of an array
EXACT_BITS = {16: 11, 32: 24, 64: 53}  # of an integer that a floating number of so many bits holds


class Unfit(Exception):
    """A value does not fit the declared type."""


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type in a file can be cast to the declared type. `conform` may still refuse single values."""
    if found == wanted or types.is_null(found):
        return True
    if _is_list(found) or _is_list(wanted):
        return _is_list(found) and _is_list(wanted) and fits(found.value_type, wanted.value_type)
    if types.is_map(found) or types.is_map(wanted):
        both = types.is_map(found) and types.is_map(wanted)
        return both and fits(found.key_type, wanted.key_type) and fits(found.item_type, wanted.item_type)
    if types.is_struct(found) or types.is_struct(wanted):
        if not (types.is_struct(found) and types.is_struct(wanted)):
            return False
        pairs = _pairs(found, wanted)
        return all(len(alike) <= 1 and all(fits(one.type, field.type) for one in alike) for field, alike in pairs)
    return any(is_from(_plain(found)) and holds(_plain(found), wanted) for is_from, holds in _HOLDS)


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast a column for which `fits` holds to the declared type. Unfit for a value that the type does not hold."""
    if array.type == wanted:
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if _is_list(wanted):
        return _lists(array, wanted)
    if types.is_map(wanted):
        offsets, pairs = _cut(array.offsets)
        keys, items = (conform(part.slice(*pairs), kind) for part, kind in _of_map(array, wanted))
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
    """Lists of any kind, whose offsets are made here: Arrow's own casts ignore where a slice of records begins that
    have a column without a type, and end the process, or give other rows."""
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
    """Begin and length of each list, for lists that may lie in any order; length 0 for null."""
    if types.is_fixed_size_list(array.type):
        sizes = np.full(len(array), array.type.list_size, np.int64)
        begins = (np.arange(len(array)) + array.offset) * array.type.list_size
    else:
        begins, sizes = (part.to_numpy().astype(np.int64) for part in (array.offsets, array.sizes))
    return begins, np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)


def _cut(offsets: pa.Array) -> tuple[pa.Array, tuple[int, int]]:
    """Offsets that begin with 0, and `(begin, length)` of the values that they cover."""
    places = offsets.to_numpy()
    begin, end = (int(places[0]), int(places[-1])) if len(places) else (0, 0)
    return _offsets(places - begin), (begin, end - begin)


def _offsets(places: Places) -> pa.Array:
    if len(places) and places[-1] > MOST_ITEMS:
        raise Unfit(f"lists of {places[-1]} values in one batch; more than {MOST_ITEMS} are not held")
    return pa.array(places.astype(np.int32), pa.int32())


def _of_map(array: pa.MapArray, wanted: pa.MapType) -> list[tuple[pa.Array, pa.DataType]]:
    return [(array.keys, wanted.key_type), (array.items, wanted.item_type)]


def _records(array: pa.StructArray, wanted: pa.StructType) -> pa.Array:
    columns = []
    for field, found in _pairs(array.type, wanted):
        place = [array.type.field(i) for i in range(array.type.num_fields)].index(found[0]) if found else -1
        columns.append(conform(array.field(place), field.type) if found else pa.nulls(len(array), field.type))
    if not columns:
        return array
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())


def _pairs(found: pa.StructType, wanted: pa.StructType) -> list[tuple[pa.Field, list[pa.Field]]]:
    """Each declared field, with the fields of the file whose names match."""
    alike: dict[str, list[pa.Field]] = {}
    for i in range(found.num_fields):
        alike.setdefault(found.field(i).name.lower(), []).append(found.field(i))
    return [(field, alike.get(field.name.lower(), [])) for field in wanted]


def _is_list(kind: pa.DataType) -> bool:
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_kind(kind) for is_kind in lists)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary or extension type."""
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _integer(found: pa.DataType, wanted: pa.DataType) -> bool:
    bits = found.bit_width - (1 if types.is_signed_integer(found) else 0)  # of the value
    if types.is_signed_integer(wanted):
        return bool(bits <= wanted.bit_width - 1)
    if types.is_decimal(wanted):
        return bool(len(str(2**bits)) <= wanted.precision - wanted.scale)
    return bool(types.is_floating(wanted) and bits <= EXACT_BITS[wanted.bit_width])


def _decimal(found: pa.DataType, wanted: pa.DataType) -> bool:
    if not types.is_decimal(wanted):
        return False
    before = found.precision - found.scale
    return bool(found.scale <= wanted.scale and before <= wanted.precision - wanted.scale)


def _timestamp(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Finer digits than the declared type's are refused where a value has them."""
    return bool(types.is_timestamp(wanted) and (wanted.tz or not found.tz))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(plain or types.is_fixed_size_binary(kind))


_HOLDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]], ...] = (
    (types.is_integer, _integer),
    (types.is_decimal, _decimal),
    (types.is_floating, lambda found, wanted: types.is_floating(wanted) and found.bit_width <= wanted.bit_width),
    (types.is_timestamp, _timestamp),
    (types.is_date, lambda _, wanted: types.is_date(wanted)),
    (types.is_time, lambda found, wanted: wanted == (pa.int32() if found.bit_width == 32 else pa.int64())),
    (_is_text, lambda _, wanted: _is_text(wanted) or types.is_binary(wanted)),
    (_is_bytes, lambda _, wanted: _is_text(wanted) or types.is_binary(wanted)),  # text has to be UTF-8
    (types.is_boolean, lambda _, wanted: types.is_boolean(wanted)),
)

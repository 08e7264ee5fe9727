"""Arrow's types and arrays: kinds of types, exact comparison, parts of nested arrays, nulls, arrays of numpy integers.
No Python object is made for a value.

Timestamps that differ between files have a common type, as in Spark, DuckDB and Polars. Where one file has a zone, the
others' wall clocks count as UTC. Zones that differ become UTC, the unit is the finest. A value beyond the range of that
unit has to be refused.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from gnomon.base.arrow import compute as pc

LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
UNITS = ("s", "ms", "us", "ns")
_NAME = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([^\]]+))?\]")


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's five kinds of lists."""
    return any(is_kind(kind) for is_kind in LISTS)


def is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(plain or types.is_fixed_size_binary(kind))


def is_text_or_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind)


def is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary or extension type."""
    if types.is_dictionary(kind):
        return plain(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def holds(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one within it, is of a kind."""
    return bool(is_kind(kind)) or any(holds(kind.field(i).type, is_kind) for i in range(kind.num_fields))


def rebuilt(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with each innermost type changed. All lists become plain ones."""
    if types.is_struct(kind):
        return pa.struct([field.with_type(rebuilt(field.type, change)) for field in kind])
    if types.is_map(kind):
        return pa.map_(rebuilt(kind.key_type, change), rebuilt(kind.item_type, change))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(rebuilt(kind.value_type, change))
    return change(kind)


def first_difference(one: pa.Array, two: pa.Array) -> int | None:
    """The first row in which two arrays of one type and length differ; None if they are equal.

    NaN equals NaN, and 0.0 differs from -0.0."""
    if _same(one, two):
        return None
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        differs = not _same(one.slice(low, middle - low), two.slice(low, middle - low))
        low, high = (low, middle) if differs else (middle, high)
    return low


def _same(one: pa.Array, two: pa.Array) -> bool:
    if not holds(one.type, types.is_floating):
        return bool(one.equals(two))
    if types.is_floating(one.type):
        return bool(_bits(one).equals(_bits(two)))
    if len(one) != len(two) or not one.is_null().equals(two.is_null()):
        return False
    if types.is_struct(one.type):
        return all(_same(a, b) for a, b in zip(one.flatten(), two.flatten(), strict=True))
    if types.is_map(one.type):
        pairs = [map_parts(each) for each in (one, two)]
        return bool(pairs[0][0].equals(pairs[1][0])) and all(_same(*each) for each in zip(*pairs, strict=True))
    if is_list(one.type):
        lengths = [pc.list_value_length(each) for each in (one, two)]
        return bool(lengths[0].equals(lengths[1])) and _same(one.flatten(), two.flatten())
    return bool(one.equals(two))


def _bits(array: pa.Array) -> pa.Array:
    """The bits of numbers; all NaN have the same bits."""
    kind = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[array.type.bit_width]
    nan = pc.is_nan(array.cast(pa.float32()) if types.is_float16(array.type) else array)
    return pc.if_else(nan, pa.scalar(1, kind), array.view(kind))


def map_parts(array: pa.MapArray) -> list[pa.Array]:
    """The number of entries of each map, their keys and their values."""
    array = array.drop_null() if array.null_count else array
    offsets = array.offsets.to_numpy()
    begin, length = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(offsets) else (0, 0)
    return [pa.array(np.diff(offsets)), array.keys.slice(begin, length), array.items.slice(begin, length)]


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The innermost arrays of a nested column, which are not nested themselves."""
    kind = array.type
    if types.is_struct(kind):
        for column in array.flatten():
            yield from leaves(column)
    elif types.is_map(kind):
        for column in map_parts(array)[1:]:
            yield from leaves(column)
    elif is_list(kind):
        yield from leaves(array.flatten())
    else:
        yield array


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls. Required fields within them have some value, since Arrow's readers of the type expect one."""
    if not types.is_struct(kind) or not len(kind):
        return pa.nulls(length, kind)
    mask = pa.array(np.ones(length, np.bool_))
    members = [nulls(length, field.type) for field in kind]
    members = [one if field.nullable else all_valid(one) for one, field in zip(members, kind, strict=True)]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def all_valid(array: pa.Array) -> pa.Array:
    """The array without its nulls: each null becomes the value that is stored below it."""
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


def narrowed(field: pa.Field, path: Sequence[str]) -> pa.Field:
    """A column with the field of a path alone; `path` begins below it. KeyError where it has no such field."""
    if not path:
        return field
    place = field.type.get_field_index(path[0]) if types.is_struct(field.type) else -1
    if place < 0:
        raise KeyError(path[0])
    return field.with_type(pa.struct([narrowed(field.type.field(place), path[1:])]))


def int64s(values: NDArray[np.int64]) -> pa.Array:
    """The integers as an array, without a copy. `pa.array` would import pandas, if installed: a third of a second in
    the first fetch of a process."""
    return _wrapped(pa.int64(), np.ascontiguousarray(values, dtype=np.int64))


def int32s(values: NDArray[np.int32]) -> pa.Array:
    return _wrapped(pa.int32(), np.ascontiguousarray(values, dtype=np.int32))


def _wrapped(kind: pa.DataType, values: NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def common_moments(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type `one`, in which each timestamp, maybe nested, has the common type with that of `other`."""
    if types.is_timestamp(one) and types.is_timestamp(other):
        zones = {kind.tz for kind in (one, other)}
        return pa.timestamp(max(one.unit, other.unit, key=UNITS.index), zones.pop() if len(zones) == 1 else "UTC")
    if types.is_struct(one) and types.is_struct(other):
        there = {field.name: field.type for field in other}
        fields = [(field, there.get(field.name, field.type)) for field in one]
        return pa.struct([field.with_type(common_moments(field.type, kind)) for field, kind in fields])
    if types.is_map(one) and types.is_map(other):
        kinds = common_moments(one.key_type, other.key_type), common_moments(one.item_type, other.item_type)
        return one if kinds == (one.key_type, one.item_type) else pa.map_(*kinds)
    if types.is_list(one) and is_list(other):
        return pa.list_(one.value_field.with_type(common_moments(one.value_type, other.value_type)))
    return one


def common_moments_named(one: str, other: str) -> str | None:
    """The name in Arrow of the type `common_moments`, from two names. None where they differ in more than the types of
    timestamps, or have none."""
    if not _NAME.search(one) or _NAME.sub("", one) != _NAME.sub("", other):
        return None
    found = map(common_moments, _moments_in(one), _moments_in(other))
    return _NAME.sub(lambda _: str(next(found)), one)


def with_moments_named(kind: pa.DataType, name: str) -> pa.DataType:
    """A type with the timestamps that a name of `common_moments_named` has."""
    return _with_moments(kind, _moments_in(name))


def _moments_in(name: str) -> Iterator[pa.DataType]:
    return (pa.timestamp(match[1], match[2]) for match in _NAME.finditer(name))


def _with_moments(kind: pa.DataType, moments: Iterator[pa.DataType]) -> pa.DataType:
    if types.is_timestamp(kind):
        return next(moments)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_moments(field.type, moments)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_with_moments(kind.key_type, moments), _with_moments(kind.item_type, moments))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_moments(kind.value_type, moments)))
    return kind

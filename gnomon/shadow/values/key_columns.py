"""Keys in columns, in the types of an index.

Text is read as on the command line. Values of another type are compared by their value: the integer 5 and the float 5.0
are one key. A value that no value of the index's type equals has no row."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.base.errors import check_memory
from gnomon.base.json_forms import DIGITS
from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored, is_number_of_units, key_type, mean_the_same, source_type, value_type
from gnomon.btree.keys import key_array, stored_array, type_of_arrow
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn, other_delimiter
from gnomon.shadow.values.key_formats import has_form, read_key, shown_key

PLAIN_INTEGERS = r"^-?[0-9]{1,18}$"  # texts that Arrow's cast reads as `read_key` does
KEY_PREFIX = "__gnomon_key_"
MOMENTS = ("timestamp", "timestamp_ntz")

Flags = npt.NDArray[np.bool_]


def typed_keys(
    keys: pa.RecordBatch, spec: IndexSpec, what: str, all_held: bool = False
) -> tuple[list[pa.Array], Flags]:
    """The key columns of a sample in the types of the index, in key order, and a flag for each row. A flag is false
    where the index's type does not hold a value of the row: the value is null here, and no row of the source has it.

    UsageError as in `typed_key`."""
    arrays, held = [], np.ones(keys.num_rows, bool)
    for key in spec.keys:
        given = key.values_in(keys)
        array = typed_key(given, key, what, all_held)
        lost = array.null_count - given.null_count
        if lost:
            held &= ~(_flags(array.is_null()) & _flags(given.is_valid()))
        arrays.append(array)
    return arrays, held


def sample_types(keys: pa.Schema, spec: IndexSpec, what: str) -> pa.Schema:
    """The columns of a sample as a load returns them: text key columns in the source's types. Times of day and
    nanoseconds stay text. UsageError where the sample lacks a key column."""
    if missing := missing_keys(keys, spec):
        there = ", ".join(keys.names) + other_delimiter(keys.names)
        raise UsageError(f"{what}: the key column {', '.join(missing)} is missing; it has {there}")
    read = {
        key.name: key_type(key.type).arrow
        for key in spec.keys
        if key.name in keys.names
        and is_text(value_type(keys.field(key.name).type))
        and not is_number_of_units(key.source_type)
    }
    return pa.schema([field.with_type(read.get(field.name, field.type)) for field in keys])


def missing_keys(given: pa.Schema, spec: IndexSpec) -> list[str]:
    """The names of the key columns that given rows lack. A key in a struct is there as a column of its name, or within
    the struct."""
    return [key.name for key in spec.keys if key.given_in(given) is None]


def as_returned(keys: pa.RecordBatch, typed: Sequence[pa.Array], sample: pa.Schema, spec: IndexSpec) -> pa.RecordBatch:
    """The columns of a sample in the types `sample` (`sample_types`). `typed` has its key columns in the types of the
    index."""
    by_name = {key.name: array for key, array in zip(spec.keys, typed, strict=True)}
    arrays = [
        array if array.type == field.type else by_name[field.name]
        for array, field in zip(keys.columns, sample, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=sample)


def typed_key(given: pa.Array, key: KeyColumn, what: str, all_held: bool = False, shown: object = None) -> pa.Array:
    """A key column of a sample in the type of the index, null where this type does not hold a value.

    UsageError for a text that is no value of the type, with `all_held` for any value that it does not hold, and for a
    column whose values cannot be compared with it. This last error names the column's type, or `shown`; it also comes
    for an array without values."""
    array = _in_key_type(given, key, what, given.type if shown is None else shown)
    if all_held and array.null_count > given.null_count:
        row = int(np.flatnonzero(_flags(array.is_null()) & _flags(given.is_valid()))[0])
        raise _not_held(given[row].as_py(), key, what)
    return array


def _in_key_type(given: pa.Array, key: KeyColumn, what: str, shown: object) -> pa.Array:
    target, found = key_type(key.type).arrow, value_type(given.type)
    if pa.types.is_null(found):
        return pa.nulls(len(given), target)
    if is_text(found):
        return _from_text(plain_values(given), key, what)
    if type_of_arrow(given.type) == key.type and mean_the_same(source_type(given.type), key.source_type):
        return key_array(given, key.type, key.name)
    if is_number_of_units(key.source_type) and _has_units(found, str(key.source_type)):
        return _in_units(plain_values(given), str(key.source_type).partition("(")[2].removesuffix(")"))
    if _is_moment(found) and key.type in MOMENTS and (found.tz or key.type == "timestamp_ntz"):
        return _in_units(plain_values(given), "us").cast(target)
    if _is_number(found) and _is_number(target):
        return _equal_numbers(plain_values(given), key)
    if key.type == "string" and (pa.types.is_date(found) or pa.types.is_integer(found)):  # a folder's text
        return plain_values(given).cast(target)
    stored = f"{key.source_type}, stored as {key.type}" if key.source_type else key.type
    raise UsageError(f"{what}: the {_named(key)} is {shown}, the index's is {stored}; cast it")


def _named(key: KeyColumn) -> str:
    return f"{'partition' if key.partition else 'key'} column {key.name}"


def _from_text(given: pa.Array, key: KeyColumn, what: str) -> pa.Array:
    target = key_type(key.type).arrow
    if pa.types.is_string(target) and not has_form(key):
        return given.cast(target)
    are_integers = pa.types.is_integer(target) and not has_form(key)
    if are_integers and pc.all(pc.match_substring_regex(given, PLAIN_INTEGERS)).as_py() is not False:
        with suppress(pa.ArrowInvalid):  # one exceeds the type: `read_key` says which
            return given.cast(pa.int64()).cast(target)
    distinct = given.dictionary_encode()
    values = [_read(text, key, what) for text in distinct.dictionary.to_pylist()]
    return stored_array(values, key.type).take(distinct.indices)


def _read(text: str, key: KeyColumn, what: str) -> Stored:
    try:
        return read_key(text, key)
    except KeyTypeError:
        raise _not_held(text, key, what) from None


def _not_held(value: object, key: KeyColumn, what: str) -> UsageError:
    return UsageError(f"{what}: {_named(key)}", expected=key.source_type or key.type, found=repr(value))


def _equal_numbers(given: pa.Array, key: KeyColumn) -> pa.Array:
    """The numbers of the index's type that equal the given ones, null where none does."""
    target = key_type(key.type).arrow
    try:
        read = given.cast(target)
        if pc.all(pc.equal(read.cast(given.type), given)).as_py() is not False:
            return read
    except pa.ArrowException as error:  # the type does not hold one of the values
        check_memory(error)
    numbers = given.to_pylist()
    if pa.types.is_decimal(target) and pa.types.is_floating(given.type):  # 0.1 is the decimal with these digits
        numbers = [None if text is None else Decimal(text) for text in given.cast(pa.string()).to_pylist()]
    return pa.array([_equal_number(number, key) for number in numbers], target)


def _equal_number(value: Any, key: KeyColumn) -> Any:
    try:
        number = Decimal(value)
        is_whole = pa.types.is_integer(key_type(key.type).arrow) and number == number.to_integral_value()
        found = shown_key(key_type(key.type).to_stored(int(number) if is_whole else value, key.name), key)
    except (KeyTypeError, TypeError, ValueError, ArithmeticError):
        return None
    return found if found == value or (found != found and value != value) else None


def _has_units(found: pa.DataType, source: str) -> bool:
    """Whether a column of times or moments can be converted to the units of a key's source type."""
    if source.startswith("time("):
        return bool(pa.types.is_time(found))
    return _is_moment(found) and (bool(found.tz) or source.startswith("timestamp_ntz"))


def _in_units(given: pa.Array, unit: str) -> pa.Array:
    """Times or moments as numbers of a unit; null where it is not a whole number, or is too large."""
    ticks = given.view(pa.int32() if given.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    shift = DIGITS[unit] - DIGITS[given.type.unit]
    if shift <= 0:
        step = 10**-shift
        whole = pc.divide(ticks, step)
        return pc.if_else(pc.equal(pc.multiply(whole, step), ticks), whole, None)
    limit = (2**63 - 1) // 10**shift
    fits = pc.and_(pc.less_equal(ticks, limit), pc.greater_equal(ticks, -limit))
    return pc.multiply(pc.if_else(fits, ticks, None), 10**shift)


def plain_values(given: pa.Array) -> pa.Array:
    """The values of a dictionary, of run-end encoding or of an extension type."""
    if isinstance(given.type, pa.BaseExtensionType):
        return plain_values(given.storage)
    if pa.types.is_dictionary(given.type):
        return plain_values(given.dictionary_decode())
    if pa.types.is_run_end_encoded(given.type):
        return plain_values(pc.run_end_decode(given))
    return given.cast(pa.string()) if is_text(given.type) else given


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's three kinds of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags


def key_names(spec: IndexSpec) -> list[str]:
    """The names of the columns with the keys of a sample, in the types of the index, in key order."""
    return [f"{KEY_PREFIX}{i}" for i in range(len(spec.keys))]


def stored_keys(batch: pa.RecordBatch, spec: IndexSpec) -> pa.RecordBatch:
    """The stored key columns of a batch with the columns `key_names`, in key order and in the types of the index."""
    names = dict(zip(spec.keys, key_names(spec), strict=True))
    arrays = [batch.column(names[key]).cast(key_type(key.type).arrow) for key in spec.stored_keys]
    return pa.RecordBatch.from_arrays(arrays, [names[key] for key in spec.stored_keys])


def narrowing(batch: pa.RecordBatch, spec: IndexSpec, within: Sequence[str] = ()) -> dict[str, pa.Array]:
    """The partition values to which the look-up of each row is limited, from its key and from the named columns."""
    names = {key.name: name for key, name in zip(spec.keys, key_names(spec), strict=True) if key.partition}
    names |= {name: name for name in within if name not in names}
    return {column: batch.column(name) for column, name in names.items()}


def key_batch(keys: pa.Array, spec: IndexSpec) -> pa.RecordBatch:
    """The key columns of an array of `given_keys`. UsageError where one is missing, or is there twice."""
    if pa.types.is_struct(keys.type):
        batch = pa.RecordBatch.from_arrays(keys.flatten(), keys.type.names)
    elif len(spec.keys) == 1:
        batch = pa.RecordBatch.from_arrays([keys], [spec.keys[0].name])
    else:
        names = ", ".join(column.name for column in spec.keys)
        raise UsageError("keys", expected=f"a table with the columns {names}", found=f"an array of {keys.type}")
    check_key_columns(batch.schema, spec)
    return batch


def check_key_columns(given: pa.Schema, spec: IndexSpec) -> None:
    """Raise UsageError where given keys lack a key column, or have it twice."""
    if missing := missing_keys(given, spec):
        there = ", ".join(given.names) + other_delimiter(given.names)
        raise UsageError(f"keys: the key column {', '.join(missing)} is missing; it has {there}")
    if twice := [key.name for key in spec.keys if given.names.count(key.name) > 1]:
        raise UsageError(f"keys: the key column {', '.join(twice)} is there more than once")


NOT_KEYS = (str, bytes, bytearray, memoryview, Mapping, set, frozenset)


def given_keys(keys: object) -> list[object] | tuple[object, ...] | pa.Array:
    """Keys as a caller gives them: a list of keys, or what yields them; an array of Arrow, numpy, pandas or Polars with
    the values of one column; or a table of theirs with the key columns, which becomes an array of structs. UsageError
    for another object."""
    if isinstance(keys, (list, tuple)):
        return keys
    try:
        if hasattr(keys, "__arrow_c_stream__"):
            return pa.chunked_array(keys).combine_chunks()
        if hasattr(keys, "__arrow_c_array__") or hasattr(keys, "__array__"):
            return pa.array(keys)
    except (TypeError, ValueError, pa.ArrowException) as error:  # objects of several types, or of none that Arrow has
        check_memory(error)
        if getattr(keys, "ndim", 1) == 1 and hasattr(keys, "tolist"):
            return list(keys.tolist())
    else:
        if isinstance(keys, Iterable) and not isinstance(keys, NOT_KEYS):
            return list(keys)
    raise UsageError("keys", expected="a list of keys, or a table or an array of them", found=repr(keys))

"""Source types that Spark does not accept as keys, and the key type that stores each without loss.

The *source type* is the name of such a type in an index's spec. Dictionaries, run-end encoding, views and extension
types count as the type of their values; they have no name of their own. The rules are in docs/reference/key-types.md.
"""

import pyarrow as pa
import pyarrow.compute as pc

LONGEST_UNSIGNED = 20  # digits of 64 bits
MAPPED: dict[str, pa.DataType] = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(LONGEST_UNSIGNED, 0),
    "half": pa.float32(),
    "bool8": pa.bool_(),
    "fixed": pa.binary(),
    "uuid": pa.binary(),
    "time(s)": pa.int64(),
    "time(ms)": pa.int64(),
    "time(us)": pa.int64(),
    "time(ns)": pa.int64(),
    "timestamp(ns)": pa.int64(),
    "timestamp_ntz(ns)": pa.int64(),
}


def source_type(arrow: pa.DataType) -> str | None:
    """The name in MAPPED of an Arrow type; None for a type that is not mapped."""
    if isinstance(arrow, pa.UuidType):
        return "uuid"
    if isinstance(arrow, pa.Bool8Type):
        return "bool8"
    arrow = value_type(arrow)
    if pa.types.is_unsigned_integer(arrow):
        return f"uint{arrow.bit_width}"
    if pa.types.is_float16(arrow):
        return "half"
    if pa.types.is_fixed_size_binary(arrow):
        return "fixed"
    if pa.types.is_time(arrow):
        return f"time({arrow.unit})"
    if pa.types.is_timestamp(arrow) and arrow.unit == "ns":
        return "timestamp(ns)" if arrow.tz else "timestamp_ntz(ns)"
    return None


def value_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, of run-end encoding or of an extension type; other types unchanged."""
    if isinstance(arrow, pa.BaseExtensionType):
        return value_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return value_type(arrow.value_type)
    return arrow


def mapped(array: pa.Array) -> pa.Array:
    """The column in the type that MAPPED gives to its source type. Times and timestamps become numbers of their units.
    A column of a type that is not mapped keeps the type of its values."""
    arrow = array.type
    if pa.types.is_dictionary(arrow):
        return mapped(array.dictionary_decode())
    if pa.types.is_run_end_encoded(arrow):
        return mapped(pc.run_end_decode(array))
    name = source_type(arrow)
    if isinstance(arrow, pa.BaseExtensionType):
        array = array.storage
        if name is None:
            return mapped(array)
    if name is None:
        return array
    if is_number_of_units(name):
        array = array.view(pa.int32() if arrow.bit_width == 32 else pa.int64())
    return array.cast(MAPPED[name])


def is_number_of_units(name: str | None) -> bool:
    """Whether the values of a source type are stored as a number of its units, which has no meaning without the
    unit."""
    return name is not None and name.startswith(("time(", "timestamp"))


def mean_the_same(one: str | None, other: str | None) -> bool:
    """Whether files with these two source types may hold the same column, if both types are stored as one key type.
    None stands for a type that is not mapped."""
    return one == other or not (is_number_of_units(one) or is_number_of_units(other))

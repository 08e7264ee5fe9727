"""The types of the columns of a load, and the values of source files in these types."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.btree.key_types import LONGEST_DECIMAL, key_type
from gnomon.btree.source_types import MAPPED, is_number_of_units, source_type, value_type
from gnomon.shadow import Index, to_json
from gnomon.shadow.commit import wider
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.values import python_values
from gnomon.sources.types import (
    SAFE_CAST,
    can_hold,
    common_moments,
    common_moments_named,
    is_list,
    parse_ddl,
    with_moments_named,
)

PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


class NoType(Exception):
    """No type of an engine holds all values of a column."""


def common_type(kind: pa.DataType) -> pa.DataType:
    """The type in which both engines can hold a column of a source file: unsigned integers in the next wider type (64
    bits: `decimal(20,0)`), half floats in `float`, UUIDs in `binary`, moments and durations in microseconds, decimals
    of more than 38 digits, JSON and nulls in `string`; the same within lists, maps and structs. NoType where there is
    none."""
    if is_list(kind):
        return pa.list_(common_type(kind.value_type))
    if types.is_map(kind):
        return pa.map_(common_type(kind.key_type), common_type(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, common_type(field.type)) for field in kind])
    name, kind = source_type(kind), value_type(kind)
    if name is not None and not is_number_of_units(name):
        return MAPPED[name]
    if types.is_time(kind):
        return pa.time64("ns" if kind.unit == "ns" else "us")
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_null(kind) or (types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= LONGEST_DECIMAL):
        return pa.string()
    if types.is_union(kind) or types.is_interval(kind):
        raise NoType
    return pa.decimal128(kind.precision, kind.scale) if types.is_decimal(kind) else PLAIN.get(kind, kind)


def source_columns(index: Index, names: Sequence[str]) -> pa.Schema:
    """Columns of the source, in the types of its files: that of the newest file, for numbers the widest that a build
    has seen, for timestamps the common type of those that it has seen. Columns of a catalog table have the declared
    types; a column without any value has the type null. SourceError as in `Index.schemas`."""
    spec = index.spec
    found = {name: key_type(spec.partition_type(name)).arrow for name in spec.partitions}
    if spec.table or spec.holds_values:
        found = {field.name: field.type for field in parse_ddl(spec.schema)} | found
    else:
        found |= columns_in_files(index, [name for name in names if name not in found])
    return pa.schema([pa.field(name, found.get(name, pa.null())) for name in names])


def columns_in_files(index: Index, names: Sequence[str]) -> dict[str, pa.DataType]:
    """The types of columns in the source's files, without columns that no file gives a type."""
    found: dict[str, pa.DataType] = {}
    for _, schema in index.schemas(names):
        for one in schema:
            if one.name in names and one.name not in found and not pa.types.is_null(one.type):
                widest = wider(index.view.snapshot.columns.get(one.name, ""), str(one.type))
                found[one.name] = widest_type(widest, one.type)
    return found


def widest_type(widest: str, found: pa.DataType) -> pa.DataType:
    """The type with the name `widest` that `wider` gave for a file's type."""
    kind = with_moments_named(found, widest) if common_moments_named(widest, str(found)) == widest else found
    return kind if str(kind) == widest else pa.type_for_alias(widest)


def in_type(array: pa.Array, kind: pa.DataType, shown: str, name: str, rows: pa.Array, path: str) -> pa.Array:
    """A column of a source file in another type, which errors name `shown`. UnsupportedFormat, with the value and its
    row, where the type does not hold it. `rows` has the row of each value."""
    if array.type == kind:
        return array
    if not can_hold(common_moments(array.type, kind), kind, SAFE_CAST):
        raise UnsupportedFormat(
            f"column {name} is {array.type} here and {shown} in newer files, which cannot be one column; "
            "load other columns",
            path,
        )
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        check_memory(error)
        place, value = first_refused(array, kind)
        raise UnsupportedFormat(
            f"column {name}, row {rows[place]}: {shown} does not hold {value}; load other columns", path
        ) from None


def first_refused(array: pa.Array, kind: pa.DataType) -> tuple[int, str]:
    """The place of the first value that a type does not hold, and the value as JSON. There must be one."""
    place = 0
    while place < len(array) - 1:
        try:
            array.take(pa.array([place])).cast(kind)  # a cast of a slice of lists would cast all values
        except pa.ArrowException as error:
            check_memory(error)
            break
        place += 1
    return place, to_json(python_values(array.slice(place, 1))[0])

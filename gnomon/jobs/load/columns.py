"""The columns of a load: the arguments that name them, their types, and the values of source files in these types."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.btree.key_types import LONGEST_DECIMAL, MAPPED, is_number_of_units, key_type, source_type, value_type
from gnomon.jobs.load.row_reader import ERROR, OURS
from gnomon.shadow import OpenIndex, UsageError, to_json
from gnomon.shadow.commit import wider
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.metadata import check_names, no_column
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

HOWS = ("inner", "left")
UNREADABLE = ("fail", "report")


PANDAS, UNNAMED_INDEX = b"pandas", "__index_level_"  # of a table that Arrow made of a frame of pandas


def reader_of(given: object, what: str, expected: str = "an Arrow table with the key columns") -> pa.RecordBatchReader:
    """The rows of an Arrow table, of a reader of batches, or of a frame of pandas or Polars; an index of pandas without
    a name is no column. UsageError for another object."""
    if isinstance(given, pa.RecordBatchReader):
        return given
    try:
        table = pa.table(given)
    except pa.ArrowException as error:  # a column of objects that Arrow has no type for
        check_memory(error)
        raise UsageError(f"{what}: {'; '.join(map(str, error.args))}") from None
    except (TypeError, ValueError):  # of pyarrow, for an object that is no table
        raise UsageError(what, expected=expected, found=type(given).__name__) from None
    if PANDAS in (table.schema.metadata or {}):
        table = table.drop_columns([name for name in table.column_names if name.startswith(UNNAMED_INDEX)])
    return table.to_reader()


def check_given(names: Sequence[str], what: str) -> None:
    """Raise UsageError for columns of a sample that share a name, or have a name with the prefix of Gnomon's temporary
    columns."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{what}: it has more than one column {twice[0]}; rename one")
    ours = [name for name in names if name.startswith(OURS)]
    if ours:
        raise UsageError(f"{what}: names that begin with {OURS} are taken; rename {', '.join(ours)}")


def check_sample(names: Sequence[str], how: str) -> None:
    """Raise UsageError for a sample with these columns, or arguments, that cannot be joined with an index."""
    if how not in HOWS:
        raise UsageError(f"how: expected {' or '.join(HOWS)}, found {how!r}")
    check_given(names, "keys")


def check_unreadable(unreadable: str, names: Sequence[str]) -> None:
    """Raise UsageError for an unknown `unreadable`, or where the answer has a column of the name of the errors."""
    if unreadable not in UNREADABLE:
        raise UsageError(f"unreadable: expected {' or '.join(UNREADABLE)}, found {unreadable!r}")
    if unreadable == "report" and ERROR in names:
        raise UsageError(f"there is a column {ERROR} already; rename it, or do not ask for it")


def payload_columns(index: OpenIndex, sample: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """The source's columns to read. Only key columns may be in the sample, too: other columns would be ambiguous.
    UsageError for a key-value folder, which has no source."""
    index.spec.entries.check_source(
        "a key-value folder has no source to load from (write_btree made it); join_with_index returns its rows"
    )
    check_names("columns", columns)
    known, keys = index.view.columns, {key.name for key in index.spec.keys}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UsageError(no_column(unknown, known))
    wanted = [name for name in dict.fromkeys(known if columns is None else columns) if name not in keys]
    both = [name for name in wanted if name in sample]
    if both:
        raise UsageError(f"keys: the source has a column {', '.join(both)}, too; rename it, or do not ask for it")
    return wanted


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


def source_columns(index: OpenIndex, names: Sequence[str]) -> pa.Schema:
    """Columns of the source, in the types of its files: that of the newest file, for numbers the widest that a build
    has seen, for timestamps the common type of those that it has seen. Columns of a catalog table have the declared
    types; a column without any value has the type null. SourceError as in `Index.schemas`."""
    spec = index.spec
    found = {name: key_type(spec.partition_type(name)).arrow for name in spec.partitions}
    if spec.is_of_table or spec.holds_values:
        found = {field.name: field.type for field in parse_ddl(spec.schema)} | found
    else:
        found |= columns_in_files(index, [name for name in names if name not in found])
    return pa.schema([pa.field(name, found.get(name, pa.null())) for name in names])


def columns_in_files(index: OpenIndex, names: Sequence[str]) -> dict[str, pa.DataType]:
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

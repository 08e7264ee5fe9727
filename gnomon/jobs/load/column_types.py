"""The types of the columns of a load, and the values of source files in these types."""

from collections.abc import Sequence

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.btree.key_types import key_type
from gnomon.shadow import Index, to_json
from gnomon.shadow.commit import wider
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.values import python_values
from gnomon.sources.types import (
    SAFE_CAST,
    can_hold,
    common_moments,
    common_moments_named,
    parse_ddl,
    with_moments_named,
)


def source_columns(index: Index, names: Sequence[str]) -> pa.Schema:
    """Columns of the source, in the types of its files: that of the newest file, for numbers the widest that a build
    has seen, for timestamps the common type of those that it has seen. Columns of a catalog table have the declared
    types; a column without any value has the type null. SourceError as in `Index.schemas`."""
    spec = index.spec
    found = {name: key_type(spec.partition_type(name)).arrow for name in spec.partitions}
    if spec.table:
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

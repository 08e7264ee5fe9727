"""Types and values that all formats share: DDL and exact casts.

- `ddl`            Spark's DDL to an Arrow schema, and back; which field of a file is a field of a table
- `arrays`         kinds of types, arrays compared exactly, numpy integers as arrays, the common type of timestamps
- `exact_cast`     which type holds the values of another, casts that keep each value exactly, columns of new files
"""

from gnomon.sources.types.arrays import (
    common_moments,
    common_moments_named,
    first_difference,
    holds,
    int32s,
    int64s,
    is_list,
    leaves,
    narrowed,
    rebuilt,
    with_moments_named,
)
from gnomon.sources.types.ddl import (
    COMMENT,
    DEPTH_LIMIT,
    FIELD_ID,
    default_array,
    default_of,
    field_id,
    has_field_ids,
    lacks_names,
    matching,
    parse_ddl,
    record_of,
    to_ddl,
)
from gnomon.sources.types.exact_cast import (
    SAFE_CAST,
    WIDENED,
    Column,
    Unfit,
    arrays_of,
    can_hold,
    conform,
    fit,
    plan_columns,
)

__all__ = [
    "COMMENT",
    "DEPTH_LIMIT",
    "FIELD_ID",
    "SAFE_CAST",
    "WIDENED",
    "Column",
    "Unfit",
    "arrays_of",
    "can_hold",
    "common_moments",
    "common_moments_named",
    "conform",
    "default_array",
    "default_of",
    "field_id",
    "first_difference",
    "fit",
    "has_field_ids",
    "holds",
    "int32s",
    "int64s",
    "is_list",
    "lacks_names",
    "leaves",
    "matching",
    "narrowed",
    "parse_ddl",
    "plan_columns",
    "rebuilt",
    "record_of",
    "to_ddl",
    "with_moments_named",
]

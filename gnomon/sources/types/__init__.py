"""Types and values that all formats share: DDL, exact casts, text and JSON values.

- `ddl`            Spark's DDL to an Arrow schema, and back; which field of a file is a field of a table
- `arrays`         kinds of types, arrays compared exactly, numpy integers as arrays, the common type of timestamps
- `exact_cast`     which type holds the values of another, casts that keep each value exactly, columns of new files
- `text_values`    text to values of a type, and values to text
- `json_values`    JSON texts to columns of a schema
- `inference`      the types of JSON rows and of CSV columns
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
from gnomon.sources.types.inference import (
    NOTHING,
    Shape,
    TooManyNames,
    Values,
    infer_rows,
    merge_schemas,
    schema_of,
    values_of,
)
from gnomon.sources.types.json_values import NOT_JSON, SPACES, WHOLE, WHOLE_LINE, JsonColumns, decode_object, one_value
from gnomon.sources.types.text_values import RefusedValue, converter, from_text, texts_of

__all__ = [
    "COMMENT",
    "FIELD_ID",
    "NOTHING",
    "NOT_JSON",
    "SAFE_CAST",
    "SPACES",
    "WHOLE",
    "WHOLE_LINE",
    "WIDENED",
    "Column",
    "JsonColumns",
    "RefusedValue",
    "Shape",
    "TooManyNames",
    "Unfit",
    "Values",
    "arrays_of",
    "can_hold",
    "common_moments",
    "common_moments_named",
    "conform",
    "converter",
    "decode_object",
    "default_array",
    "default_of",
    "field_id",
    "first_difference",
    "fit",
    "from_text",
    "has_field_ids",
    "holds",
    "infer_rows",
    "int32s",
    "int64s",
    "is_list",
    "lacks_names",
    "leaves",
    "matching",
    "merge_schemas",
    "narrowed",
    "one_value",
    "parse_ddl",
    "plan_columns",
    "rebuilt",
    "record_of",
    "schema_of",
    "texts_of",
    "to_ddl",
    "values_of",
    "with_moments_named",
]

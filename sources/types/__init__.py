"""Types and values that all formats share: DDL, exact casts, text and JSON values.

- `ddl`            Spark's DDL to an Arrow schema, and back
- `read_cast`      columns of a file, cast to the types that a table declares
- `write_cast`     columns cast to the types of a file that is written, and compared with what is read back
- `column_plan`    the columns of a file that is written like another one of its source
- `text_values`    text to values of a type
- `text_format`    values of a type to text
- `json_values`    JSON texts to columns of a schema
- `json_schema`    the schema of JSON rows
- `arrow_numbers`  numpy integers as Arrow arrays, without a copy
"""

from gnomon.sources.types.arrow_numbers import int32s, int64s
from gnomon.sources.types.column_plan import Column, arrays_of, plan_columns
from gnomon.sources.types.ddl import COMMENT, parse_ddl, to_ddl
from gnomon.sources.types.json_schema import (
    DIGITS_LIMIT,
    LONGS,
    NOTHING,
    SEEN,
    Shape,
    TooManyNames,
    comes_back,
    infer_rows,
    merge_schemas,
    schema_of,
    seen_in,
)
from gnomon.sources.types.json_values import NOT_JSON, SPACES, WHOLE, WHOLE_LINE, JsonColumns, decode_object, one_value
from gnomon.sources.types.read_cast import Unfit, conform, fits
from gnomon.sources.types.text_format import texts_of
from gnomon.sources.types.text_values import NUMBER, SPECIAL, RefusedValue, converter, from_text
from gnomon.sources.types.write_cast import first_difference, fit, leaves

__all__ = [
    "COMMENT",
    "DIGITS_LIMIT",
    "LONGS",
    "NOTHING",
    "NOT_JSON",
    "NUMBER",
    "SEEN",
    "SPACES",
    "SPECIAL",
    "WHOLE",
    "WHOLE_LINE",
    "Column",
    "JsonColumns",
    "RefusedValue",
    "Shape",
    "TooManyNames",
    "Unfit",
    "arrays_of",
    "comes_back",
    "conform",
    "converter",
    "decode_object",
    "first_difference",
    "fit",
    "fits",
    "from_text",
    "infer_rows",
    "int32s",
    "int64s",
    "leaves",
    "merge_schemas",
    "one_value",
    "parse_ddl",
    "plan_columns",
    "schema_of",
    "seen_in",
    "texts_of",
    "to_ddl",
]

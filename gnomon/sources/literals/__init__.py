"""Values as text: JSON, and the cells of CSV.

- `text_values`    text to values of a type, and values to text
- `json_values`    JSON texts to columns of a schema
- `inference`      the types of JSON rows and of CSV columns
"""

from gnomon.sources.literals.inference import (
    NOTHING,
    Shape,
    TooManyNames,
    Values,
    infer_rows,
    merge_schemas,
    schema_of,
    values_of,
)
from gnomon.sources.literals.json_values import (
    NOT_JSON,
    SPACES,
    WHOLE,
    WHOLE_LINE,
    JsonColumns,
    decode_object,
    one_value,
)
from gnomon.sources.literals.text_values import RefusedValue, converter, from_text, texts_of

__all__ = [
    "NOTHING",
    "NOT_JSON",
    "SPACES",
    "WHOLE",
    "WHOLE_LINE",
    "JsonColumns",
    "RefusedValue",
    "Shape",
    "TooManyNames",
    "Values",
    "converter",
    "decode_object",
    "from_text",
    "infer_rows",
    "merge_schemas",
    "one_value",
    "schema_of",
    "texts_of",
    "values_of",
]

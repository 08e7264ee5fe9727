"""Values of rows and keys in Python, JSON and text.

- `row_values`   Arrow values as Python and JSON values
- `key_formats`  keys in text and JSON
- `key_columns`  keys in columns, in the types of an index
- `spark_sql`    keys as a condition of Spark SQL
"""

from gnomon.shadow.values.key_columns import (
    KEY_PREFIX,
    as_returned,
    check_key_columns,
    given_keys,
    is_text,
    key_batch,
    key_names,
    missing_keys,
    narrowing,
    plain_values,
    sample_types,
    stored_keys,
    typed_key,
    typed_keys,
)
from gnomon.shadow.values.key_formats import has_form, read_key, shown_key
from gnomon.shadow.values.row_values import csv_fields, json_value, of_plain, python_values, to_json
from gnomon.shadow.values.spark_sql import key_filter

__all__ = [
    "KEY_PREFIX",
    "as_returned",
    "check_key_columns",
    "csv_fields",
    "given_keys",
    "has_form",
    "is_text",
    "json_value",
    "key_batch",
    "key_filter",
    "key_names",
    "missing_keys",
    "narrowing",
    "of_plain",
    "plain_values",
    "python_values",
    "read_key",
    "sample_types",
    "shown_key",
    "stored_keys",
    "to_json",
    "typed_key",
    "typed_keys",
]

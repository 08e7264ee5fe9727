"""Values of rows and keys in Python, JSON and text.

- `row_values`   Arrow values as Python and JSON values
- `key_formats`  keys in text and JSON
- `spark_sql`    keys as a condition of Spark SQL
"""

from gnomon.shadow.values.key_formats import has_form, read_key, shown_key
from gnomon.shadow.values.row_values import python_values, to_json
from gnomon.shadow.values.spark_sql import key_filter

__all__ = [
    "has_form",
    "key_filter",
    "python_values",
    "read_key",
    "shown_key",
    "to_json",
]

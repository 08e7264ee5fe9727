"""Values of rows and keys in Python, JSON and text.

- `row_values`   Arrow values as Python and JSON values
- `key_formats`  keys in text and JSON; dates and times as ISO 8601 text
"""

from gnomon.shadow.values.key_formats import DIGITS, has_form, read_key, shown_key
from gnomon.shadow.values.row_values import python_values, to_json

__all__ = [
    "DIGITS",
    "has_form",
    "python_values",
    "read_key",
    "shown_key",
    "to_json",
]

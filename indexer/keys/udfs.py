"""Conversion of key columns that Spark's casts do not read, by the rules of `gnomon.shadow.values`, in Arrow tasks."""

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import DataType, StringType

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.source_types import is_number_of_units
from gnomon.indexer.spark import HAS_ARROW_UDF, arrow_udf, key_spark_type, text_udf
from gnomon.shadow.errors import KeyTypeError
from gnomon.shadow.metadata import KeyColumn
from gnomon.shadow.values import DIGITS, has_form, read_key, shown_key

TEXT, TIME, MOMENT, LOCAL_MOMENT = "string", "time", "timestamp", "timestamp_ntz"
TAKEN = {"time": (TIME,), "timestamp": (MOMENT,), "timestamp_ntz": (LOCAL_MOMENT, MOMENT)}  # by kind of source type


def read_by_udf(given: Column, kind: DataType, key: KeyColumn) -> Column | None:
    """A column in the stored type of a key, null where a value does not fit; None for columns that Spark's casts
    read."""
    found = kind.simpleString().partition("(")[0]
    if isinstance(kind, StringType) and (has_form(key) or key_type(key.type).decimal):
        return text_udf(lambda array: _from_text(array, key), key_spark_type(key.type))(given)
    source = (key.source_type or "").removesuffix(")")
    name, _, unit = source.partition("(")
    if is_number_of_units(key.source_type) and found in TAKEN[name] and HAS_ARROW_UDF:
        return arrow_udf(lambda array: _from_units(array, unit), key_spark_type(key.type))(given)
    return None


def _from_text(array: pa.Array, key: KeyColumn) -> pa.Array:
    values = [_read(text, key) for text in array.to_pylist()]
    if key_type(key.type).decimal:
        return pa.array([shown_key(value, key) for value in values], key_type(key.type).arrow)
    return pa.array(values, key_type(key.type).arrow)


def _read(text: str | None, key: KeyColumn) -> Stored:
    try:
        return read_key(text, key)
    except KeyTypeError:  # the caller reports the null
        return None


def _from_units(array: pa.Array, unit: str) -> pa.Array:
    """A time or a moment as a number of units; null where it is not a whole number, or is too large."""
    given, wanted = DIGITS[array.type.unit], DIGITS[unit]
    ticks = array.view(pa.int64()).to_pylist()
    scaled = [None if tick is None else divmod(tick * 10**wanted, 10**given) for tick in ticks]
    return pa.array([pair[0] if pair and not pair[1] and -(2**63) <= pair[0] < 2**63 else None for pair in scaled])

"""Formats values as text, a column at once. `text_values` reads the text back to the same values."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

WHOLE = r"^-?[0-9]+$"
SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # Arrow's spelling: the readers' spelling


def texts_of(array: pa.Array) -> pa.Array:
    """The values as strings; nulls stay null. TypeError for a type without a text form, ValueError for bytes that are
    not UTF-8."""
    kind = array.type
    if types.is_string(kind):
        return array
    if types.is_binary(kind):
        return _utf8(array)
    if types.is_floating(kind):
        return _floats(array)
    if types.is_decimal(kind):
        return _decimals(array)
    if types.is_timestamp(kind):
        return _moments(array)
    if types.is_date32(kind) or types.is_time(kind) or types.is_signed_integer(kind) or types.is_boolean(kind):
        return array.cast(pa.string())
    if types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    raise TypeError(f"values of type {kind} have no text form")


def _utf8(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError("expected bytes that are valid UTF-8, found others") from None


def _floats(array: pa.Array) -> pa.Array:
    """The shortest text that gives the number back. A whole number has a point, which also keeps the sign of zero."""
    texts = array.cast(pa.string())
    for found, spelled in SPECIAL.items():
        texts = pc.if_else(pc.equal(texts, found), spelled, texts)
    return pc.if_else(pc.match_substring_regex(texts, WHOLE), pc.binary_join_element_wise(texts, ".0", ""), texts)


def _decimals(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return pa.array([None if text is None else f"{Decimal(text):f}" for text in texts.to_pylist()], pa.string())
    return texts


def _moments(array: pa.Array) -> pa.Array:
    """`2020-01-31T23:59:59.500000Z`, without the Z where the type has no zone. A fraction has six digits, or is left
    out."""
    kind = array.type
    texts = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T")
    whole = pc.ends_with(texts, ".000000")
    texts = pc.if_else(whole, pc.utf8_slice_codeunits(texts, 0, -7), texts)
    return pc.binary_join_element_wise(texts, "Z", "") if kind.tz else texts

"""A digest of the rows of a batch: the sum of their hashes, and their number. It does not depend on their order. It
shows whether a batch with a known name has the same rows again.

The hash of a row is Spark's xxhash64 over its columns in the order of their names, with the places of nulls, which that
hash ignores. Each column is hashed in its `hashed_type`, so that a batch has one digest whichever engine reads it, and
also if the source's column was widened between two runs: numbers in the widest type of their kind; decimals, times and
nested values as text; partition columns as the text of their folders, if that text is the same for each type."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.json_forms import MICROS
from gnomon.btree.hashing import xxhash64_columns
from gnomon.jobs.dedup.source_cast import form_of
from gnomon.jobs.load import NoType, common_type
from gnomon.shadow import to_json
from gnomon.shadow.values import plain_values, python_values
from gnomon.sources.types import conform

WORD = 1 << 64
TRAILING_ZEROS = r"\.?0+$"


def digest_of(rows: int, total: int) -> str:
    """The digest from the number of rows and the sum of their hashes."""
    return f"{rows:x}-{total % WORD:016x}"


def row_count(digest: str) -> int:
    """The number of rows in a digest."""
    return int(digest.partition("-")[0], 16)


def hashed_type(field: pa.Field, partitions: Collection[str]) -> pa.DataType:
    """The type in which a column is hashed. Where it is text, `hashed_text` makes it from values that are no text."""
    kind = _common(field.type)
    if field.name in partitions and form_of(kind) is not None:
        return pa.string()
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    alike = types.is_boolean(kind) or types.is_date32(kind) or types.is_timestamp(kind) or types.is_binary(kind)
    return kind if alike else pa.string()


def hashed_text(array: pa.Array) -> pa.Array:
    """The texts of a column that is hashed as text."""
    values = conform(plain_values(array), _common(array.type))
    kind = values.type
    if types.is_decimal(kind):
        return _plain_decimals(values)
    if types.is_time(kind):
        return values.cast(pa.time64("ns")).cast(pa.string())
    if form_of(kind) is not None:
        return values.cast(pa.string())
    return pa.array([None if one is None else to_json(one) for one in python_values(values)], pa.string())


def row_hashes(batch: pa.RecordBatch, partitions: Collection[str]) -> npt.NDArray[np.int64]:
    """The hash of each row. Spark's columns of the same hash: `with_hash` in `gnomon.indexer.dedup.append`."""
    fields = sorted(batch.schema, key=lambda field: field.name)
    names = "\0".join(field.name for field in fields).encode()
    columns = [pa.repeat(pa.scalar(names, pa.large_binary()), batch.num_rows)]
    for field in fields:
        value = batch.column(field.name)
        columns += [value.is_null().cast(pa.int32()), *_hashed(value, hashed_type(field, partitions))]
    return xxhash64_columns(columns)


def total_of(hashes: npt.NDArray[np.int64]) -> int:
    """The sum of hashes, modulo 2**64."""
    return int(np.add.reduce(hashes))


def _common(kind: pa.DataType) -> pa.DataType:
    try:
        return common_type(kind)
    except NoType:  # this process alone reads such a column
        return kind


def _hashed(value: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """A column in the type in which it is hashed, in the form of a plain column of `btree.hashing`. Nanoseconds
    below a microsecond follow in a column of their own: the hash ignores its nulls."""
    if types.is_string(kind):
        return [hashed_text(value).cast(pa.large_binary())]
    value = plain_values(value)
    if types.is_timestamp(kind):
        ticks = value.cast(pa.timestamp(value.type.unit)).view(pa.int64())
        if value.type.unit != "ns":
            return [pc.multiply(ticks, MICROS[value.type.unit])]
        whole = pc.divide(ticks, 1000)
        rest = pc.subtract(ticks, pc.multiply(whole, 1000))
        return [whole, pc.if_else(pc.equal(rest, 0), None, rest)]
    if types.is_boolean(kind):
        return [value.cast(pa.bool_()).cast(pa.int32())]
    if types.is_date32(kind):
        return [value.cast(kind).view(pa.int32())]
    return [value.cast(pa.large_binary() if types.is_binary(kind) else kind)]


def _plain_decimals(value: pa.Array) -> pa.Array:
    """Decimals as text without trailing zeros of the fraction."""
    texts = pa.array([None if one is None else format(one, "f") for one in value.to_pylist()], pa.string())
    is_fraction = pc.match_substring(texts, ".")
    return pc.if_else(is_fraction, pc.replace_substring_regex(texts, TRAILING_ZEROS, ""), texts)

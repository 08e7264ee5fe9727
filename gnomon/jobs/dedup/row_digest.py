"""A digest of the rows of a batch: the sum of their hashes, and their number. It does not depend on their order. It
shows whether a batch with a known name has the same rows again.

The hash of a row is Spark's xxhash64 over its columns in the order of their names, with the places of nulls, which that
hash ignores. Partition columns are hashed as the text of their folders, if all engines write their values alike.
Numbers are hashed in the widest type of their kind, since the source's column may be widened between two runs. If a
batch has nested columns, or columns of types that Spark lacks, its digest in this process differs from Spark's, and
ends with `MARK`."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.btree.hash_columns import xxhash64_columns
from gnomon.jobs.dedup.partition_text import form_of
from gnomon.shadow import to_json
from gnomon.shadow.values import python_values

WORD = 1 << 64
MARK = ".arrow"
TRAILING_ZEROS = r"\.?0+$"


def digest_of(rows: int, total: int, mark: str = "") -> str:
    """The digest from the number of rows and the sum of their hashes."""
    return f"{rows:x}-{total % WORD:016x}{mark}"


def rows_of(digest: str) -> int:
    """The number of rows in a digest."""
    return int(digest.partition("-")[0], 16)


def are_of_one_kind(one: str, other: str) -> bool:
    """Whether two digests can be compared."""
    return one.endswith(MARK) == other.endswith(MARK)


def mark_of(schema: pa.Schema, partitions: Collection[str]) -> str:
    """MARK for a batch to which this process and Spark give different digests; else empty."""
    is_alike = all(_is_text(field, partitions) or _is_of_spark(field.type) for field in schema)
    return "" if is_alike else MARK


def row_hashes(batch: pa.RecordBatch, partitions: Collection[str]) -> npt.NDArray[np.int64]:
    """The hash of each row."""
    fields = sorted(batch.schema, key=lambda field: field.name)
    names = "\0".join(field.name for field in fields).encode()
    columns = [pa.repeat(pa.scalar(names, pa.large_binary()), batch.num_rows)]
    for field in fields:
        value = batch.column(field.name)
        columns += [
            value.is_null().cast(pa.int32()),
            _text(value) if _is_text(field, partitions) else _hashable(value),
        ]
    return xxhash64_columns(columns)


def total_of(hashes: npt.NDArray[np.int64]) -> int:
    """The sum of hashes, modulo 2**64."""
    return int(np.add.reduce(hashes))


def _is_text(field: pa.Field, partitions: Collection[str]) -> bool:
    """Whether a column is hashed as the text of folders."""
    return field.name in partitions and form_of(field.type) is not None


def _is_of_spark(kind: pa.DataType) -> bool:
    """Whether Spark has the same type, so that both engines hash its values alike."""
    if types.is_timestamp(kind):
        return bool(kind.unit == "us")
    tests = (
        types.is_signed_integer,
        types.is_float32,
        types.is_float64,
        types.is_boolean,
        types.is_date32,
        types.is_string,
        types.is_binary,
        types.is_decimal128,
        types.is_null,
    )
    return any(is_kind(kind) for is_kind in tests)


def _hashable(value: pa.Array) -> pa.Array:
    """A column in the form of a plain column of `btree.hash_columns`."""
    kind = value.type
    if types.is_boolean(kind):
        return value.cast(pa.int32())
    if types.is_date32(kind):
        return value.view(pa.int32())
    if types.is_timestamp(kind) and kind.unit == "us":
        return value.view(pa.int64())
    if types.is_signed_integer(kind):
        return value.cast(pa.int64())
    if types.is_float32(kind) or types.is_float64(kind):
        return value.cast(pa.float64())
    if types.is_decimal128(kind):
        return _text(_plain_decimals(value))
    if types.is_binary(kind):
        return value.cast(pa.large_binary())
    if types.is_string(kind) or types.is_null(kind):
        return _text(value)
    return _text(pa.array([None if one is None else to_json(one) for one in python_values(value)], pa.string()))


def _plain_decimals(value: pa.Array) -> pa.Array:
    """Decimals as text without trailing zeros of the fraction."""
    texts = pa.array([None if one is None else format(one, "f") for one in value.to_pylist()], pa.string())
    is_fraction = pc.match_substring(texts, ".")
    return pc.if_else(is_fraction, pc.replace_substring_regex(texts, TRAILING_ZEROS, ""), texts)


def _text(value: pa.Array) -> pa.Array:
    return value.cast(pa.string()).cast(pa.large_binary())

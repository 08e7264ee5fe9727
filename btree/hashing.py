"""Spark's own hashes of keys: Murmur3 `hash`, which gives the bucket, and `xxhash64`, which the filters use.

The rules follow Spark (HashExpression, Murmur3_x86_32, XXH64). The columns are folded from the left: the hash of one is
the seed of the next, and a null leaves it unchanged. Each value is hashed as bytes: a number as 4 or 8 little-endian
bytes, text and binary unchanged, a decimal of more than 18 digits as the shortest big-endian two's complement.

Many keys are hashed column by column, by the loops of `base.kernel`. A key column is first made *plain*: an
Arrow column of int32, int64, float32, float64 or large_binary, the form that the hashes use for its type.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.arrow import compute as pc
from gnomon.base.hashes_python import MASK, SEED, WORD, unscaled_bytes
from gnomon.base.kernel import murmur3
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, stored_array

HASH_NAME = "spark-murmur3"
FILTER_HASH_NAME = "spark-xxhash64"
_PLAIN = {"<i": pa.int32(), "<q": pa.int64(), "<f": pa.float32(), "<d": pa.float64(), None: pa.large_binary()}

Words = npt.NDArray[np.unsignedinteger[Any]]


# -- one key -----------------------------------------------------------------------------------------------------------


def hash_int(value: int, seed: int) -> int:
    """Murmur3 of a 32-bit integer, as an unsigned 32-bit number."""
    return murmur3((value & MASK).to_bytes(WORD, "little"), seed)


def spark_hash(key: Key, types: Sequence[str]) -> int:
    """Spark's `hash(col1, col2, ...)` of a key in stored form: a signed 32-bit number."""
    return kernel.hash_key(key, _forms(tuple(types)))[0]


def xxhash64(key: Key, types: Sequence[str]) -> int:
    """Spark's `xxhash64(col1, col2, ...)` of a key in stored form: a signed 64-bit number."""
    return kernel.hash_key(key, _forms(tuple(types)))[1]


@lru_cache(1024)
def _forms(types: tuple[str, ...]) -> bytes:
    """The forms of `kernel.hash_key`."""
    return "".join([(key_type(name).hash_format or "<n")[1] for name in types]).encode()


def bucket_of(key: Key, types: Sequence[str], buckets: int) -> int:
    """The bucket of a key: `pmod(hash(key...), buckets)`, as Spark's bucketBy and repartition compute it."""
    return spark_hash(key, types) % buckets


# -- plain columns -----------------------------------------------------------------------------------------------------


def plain_column(array: pa.Array | pa.ChunkedArray, type_name: str) -> pa.Array:
    """An Arrow column of a key type (one that `type_of_arrow` maps to it) in plain form."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = key_type(type_name)
    target = _PLAIN[kind.hash_format]
    array = array.cast(kind.arrow)
    if kind.decimal:
        raw = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
        valid = _valid(array)
        if kind.hash_format:
            return pa.array(raw[:, 0], target, mask=None if valid is None else ~valid)
        numbers = [int.from_bytes(row, "little", signed=True) for row in np.ascontiguousarray(raw)]
        return pa.array([unscaled_bytes(n) for n in numbers], target, mask=None if valid is None else ~valid)
    if pa.types.is_temporal(array.type):
        return array.view(target)
    return array.cast(target)


def plain_keys(keys: Sequence[Key], types: Sequence[str]) -> list[pa.Array]:
    """The plain columns of keys in stored form."""
    return [
        plain_column(stored_array([key[i] for key in keys], type_name), type_name) for i, type_name in enumerate(types)
    ]


# -- columns -----------------------------------------------------------------------------------------------------------


def spark_hash_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """Spark's `hash` of each row of plain columns."""
    state = np.full(len(columns[0]), SEED, np.uint32)
    for column in columns:
        _fold(column, state, kernel.murmur3_words, kernel.murmur3_texts)
    return state.view(np.int32)


def xxhash64_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Spark's `xxhash64` of each row of plain columns."""
    state = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        _fold(column, state, kernel.xxh64_words, kernel.xxh64_texts)
    return state.view(np.int64)


def _fold(column: pa.Array, state: Words, of_words: Callable[..., None], of_texts: Callable[..., None]) -> None:
    """Replace the state of each row by the hash of its value, but for a null."""
    valid = _valid(column)
    before = state if valid is None else state.copy()
    if column.type == pa.large_binary():
        of_texts(*_bytes_of(column), state)
    else:
        of_words(_words(column).view(np.uint8), state)
    if valid is not None:
        np.copyto(state, before, where=~valid)


def buckets_of(columns: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int64]:
    """The bucket of each row of plain columns, as by `bucket_of`."""
    return spark_hash_columns(columns).astype(np.int64) % buckets


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _words(column: pa.Array) -> npt.NDArray[Any]:
    """A column of numbers as they are hashed; a null has any number. `fill_null` and `to_numpy` are not used: they
    import pandas, if installed."""
    kind = np.dtype(column.type.to_pandas_dtype())
    values: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1] or b"", kind, len(column), column.offset * kind.itemsize
    )
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values) + 0  # one NaN; -0.0 + 0 is 0.0
    return values


def _bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of all values, and where each begins and ends in them. A null has none."""
    column = pc.fill_null(column, b"") if column.null_count else column
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    used = memoryview(data)[edges[0] : edges[-1]] if data is not None else b""
    return np.frombuffer(used, np.uint8), edges - edges[0]

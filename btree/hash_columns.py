"""The hashes of `hashing` for many keys at once, column by column: numpy for numbers and for Murmur3 of text.

A key column is first made *plain*: an Arrow column of int32, int64, float32, float64 or large_binary, the form that the
hashes use for its type. XXH64 of text uses the C package, value by value: 0.1 us each, which numpy does not improve
much.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from gnomon.base.kernel import murmur3
from gnomon.btree.hashing import SEED, WORD, unscaled_bytes
from gnomon.btree.key_arrays import stored_array
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, stored_values

_PLAIN = {"<i": pa.int32(), "<q": pa.int64(), "<f": pa.float32(), "<d": pa.float64(), None: pa.large_binary()}
_FEW = 48  # rows that, hashed one by one, cost as much as one step of Murmur3 over all rows

Words = npt.NDArray[np.unsignedinteger[Any]]
Hashes32 = npt.NDArray[np.uint32]
Hashes64 = npt.NDArray[np.uint64]


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


# -- hashes ------------------------------------------------------------------------------------------------------------


def spark_hash_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """Spark's `hash` of each row of plain columns."""
    state = np.full(len(columns[0]), SEED, np.uint32)
    for column in columns:
        if column.type == pa.large_binary():
            hashed = _murmur3_binary(column, state)
        else:
            hashed = _murmur3_words(_words(column), state)
        valid = _valid(column)
        state = hashed if valid is None else np.where(valid, hashed, state)
    return state.view(np.int32)


def xxhash64_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Spark's `xxhash64` of each row of plain columns."""
    state = np.full(len(columns[0]), SEED, np.uint64)
    for i, column in enumerate(columns):
        if column.type == pa.large_binary():
            state = _xxh64_binary(column, state if i else None)
            continue
        hashed = _xxh64_words(_words(column), state)
        valid = _valid(column)
        state = hashed if valid is None else np.where(valid, hashed, state)
    return state.view(np.int64)


def iceberg_hashes(array: pa.Array, type_name: str) -> npt.NDArray[np.int32]:
    """Iceberg's 32-bit hash of each value of a key column: Murmur3, as published, with the seed 0. Integers, dates and
    timestamps are hashed as int64, decimals as the bytes of their unscaled value. A null has any hash."""
    column, seeds = plain_column(array, type_name), np.zeros(len(array), np.uint32)
    if key_type(type_name).decimal:
        numbers = [int(value or 0) for value in stored_values(array, type_name)]
        column = pa.array([unscaled_bytes(n) for n in numbers], pa.large_binary())
    if column.type == pa.large_binary():
        return _murmur3_binary(column, seeds, as_spark=False).view(np.int32)
    return _murmur3_words(_words(column.cast(pa.int64())), seeds).view(np.int32)


def buckets_of(columns: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int64]:
    """The bucket of each row of plain columns, as by `hashing.bucket_of`."""
    return spark_hash_columns(columns).astype(np.int64) % buckets


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _words(column: pa.Array) -> Words:
    """A column of numbers as the unsigned words to hash; a null has any word."""
    values: npt.NDArray[Any] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values) + 0  # one NaN; -0.0 + 0 is 0.0
    return values.view(f"<u{values.itemsize}")


# -- Murmur3 -----------------------------------------------------------------------------------------------------------


def _mix(state: Hashes32, word: Hashes32) -> Hashes32:
    mixed: Hashes32 = _rotated(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _scrambled(word: Hashes32) -> Hashes32:
    scrambled: Hashes32 = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return scrambled


def _finish(state: Hashes32, length: Hashes32 | np.uint32) -> Hashes32:
    state = state ^ length
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    finished: Hashes32 = state ^ state >> np.uint32(16)
    return finished


def _rotated(word: Any, bits: int) -> Any:
    kind, width = word.dtype.type, 8 * word.itemsize
    return word << kind(bits) | word >> kind(width - bits)


def _murmur3_words(words: Words, state: Hashes32) -> Hashes32:
    size = words.itemsize
    for part in words.view(np.uint32).reshape(-1, size // WORD).T:  # the low word first
        state = _mix(state, part)
    return _finish(state, np.uint32(size))


def _murmur3_binary(column: pa.Array, seeds: Hashes32, as_spark: bool = True) -> Hashes32:
    """Murmur3 of each value, one word of all rows at a time, longest rows first. A few much longer rows are hashed one
    by one, so that one value of a megabyte does not take a quarter of a million steps.

    Spark mixes each of the last 1 to 3 bytes as a word of its own; Murmur3 as published mixes them as one word."""
    starts, lengths, data = _bytes_of(column)
    words = lengths // WORD
    order = np.argsort(-words, kind="stable")
    most = int(words[order[_FEW]]) if len(order) > _FEW else 0
    if not as_spark:
        most = int(words.max(initial=0))
    state, begins, descending = seeds[order], starts[order], words[order]
    active = len(order) - np.searchsorted(descending[::-1], np.arange(most), side="right")
    at_byte = np.ndarray((len(data) - WORD + 1,), "<u4", data, strides=(1,))  # the word that begins at each byte
    for step, rows in enumerate(active.tolist()):
        state[:rows] = _mix(state[:rows], at_byte[begins[:rows] + step * WORD])
    tails, tail_starts = (lengths % WORD)[order], begins + descending * WORD
    if not as_spark:
        tail = np.zeros(len(order), np.uint32)
        for step in range(WORD - 1):
            has = np.flatnonzero(tails > step)
            tail[has] |= data[tail_starts[has] + step].astype(np.uint32) << np.uint32(8 * step)
        state = state ^ _scrambled(tail)  # the scrambled word of no bytes is 0
    for step in range(WORD - 1 if as_spark else 0):
        has = np.flatnonzero(tails > step)
        state[has] = _mix(state[has], data[tail_starts[has] + step].astype(np.int8).astype(np.int32).view(np.uint32))
    hashed = np.empty_like(seeds)
    hashed[order] = _finish(state, lengths[order].astype(np.uint32))
    for row in order[: int(np.searchsorted(-descending, -most))].tolist():
        begin = int(starts[row])
        hashed[row] = murmur3(data[begin : begin + int(lengths[row])].tobytes(), int(seeds[row]))
    return hashed


def _bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The begin of each value, its length (0 for a null), and the bytes, with some padding after them."""
    column = pc.fill_null(column, b"")
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    used = memoryview(data)[edges[0] : edges[-1]] if data is not None else b""
    padded = np.frombuffer(b"".join([used, bytes(WORD)]), np.uint8)
    return edges[:-1] - edges[0], np.diff(edges), padded


# -- XXH64 -------------------------------------------------------------------------------------------------------------

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


def _xxh64_words(words: Words, seeds: Hashes64) -> Hashes64:
    """XXH64 of 4 or of 8 bytes each."""
    state = seeds + _P5 + np.uint64(words.itemsize)
    if words.itemsize == WORD:
        state = _rotated(state ^ words.astype(np.uint64) * _P1, 23) * _P2 + _P3
    else:
        state = _rotated(state ^ _rotated(words * _P2, 31) * _P1, 27) * _P1 + _P4
    state = (state ^ state >> np.uint64(33)) * _P2
    state = (state ^ state >> np.uint64(29)) * _P3
    hashed: Hashes64 = state ^ state >> np.uint64(32)
    return hashed


def _xxh64_binary(column: pa.Array, seeds: Hashes64 | None) -> Hashes64:
    """XXH64 of each value; the seed where it is null."""
    values, digest = column.to_pylist(), xxh64_intdigest
    if seeds is None:
        found = [digest(v, SEED) if v is not None else SEED for v in values]
    else:
        found = [digest(v, s) if v is not None else s for v, s in zip(values, seeds.tolist(), strict=True)]
    return np.array(found, np.uint64)

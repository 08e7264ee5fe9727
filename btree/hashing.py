"""Spark's own hashes of one key: Murmur3 `hash`, which gives the bucket, and `xxhash64`, which the filters use.

The rules follow Spark (HashExpression, Murmur3_x86_32, XXH64). The columns are folded from the left: the hash of one is
the seed of the next, and a null leaves it unchanged. Each value is hashed as bytes: a number as 4 or 8 little-endian
bytes, text and binary unchanged, a decimal of more than 18 digits as the shortest big-endian two's complement. For
many keys, use `hash_columns`.
"""

import struct
from collections.abc import Sequence

from xxhash import xxh64_intdigest

from gnomon.base.kernel import murmur3
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key

HASH_NAME = "spark-murmur3"
FILTER_HASH_NAME = "spark-xxhash64"
SEED = 42  # seed of both hashes
MASK = 0xFFFFFFFF
NAN = float("nan")  # bits 7fc00000 and 7ff8000000000000, Java's
WORD = 4  # bytes


def hashed_bytes(value: Stored, type_name: str) -> bytes:
    """The bytes that both hashes use for a value that is not null."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    form = key_type(type_name).hash_format
    if isinstance(value, float):
        value = NAN if value != value else value + 0.0  # one NaN; -0.0 + 0.0 is 0.0
        return struct.pack(form or "<d", value)
    return struct.pack(form, int(value or 0)) if form else unscaled_bytes(int(value or 0))


def unscaled_bytes(number: int) -> bytes:
    """The shortest big-endian two's complement of an integer (java.math.BigInteger.toByteArray)."""
    bits = (~number if number < 0 else number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def hash_int(value: int, seed: int) -> int:
    """Murmur3 of a 32-bit integer, as an unsigned 32-bit number."""
    return murmur3((value & MASK).to_bytes(WORD, "little"), seed)


def spark_hash(key: Key, types: Sequence[str]) -> int:
    """Spark's `hash(col1, col2, ...)` of a key in stored form: a signed 32-bit number."""
    state = SEED
    for value, type_name in zip(key, types, strict=True):
        if value is not None:
            state = murmur3(hashed_bytes(value, type_name), state)
    return state - (1 << 32) if state >> 31 else state


def xxhash64(key: Key, types: Sequence[str]) -> int:
    """Spark's `xxhash64(col1, col2, ...)` of a key in stored form: a signed 64-bit number."""
    state = SEED
    for value, type_name in zip(key, types, strict=True):
        if value is not None:
            state = xxh64_intdigest(hashed_bytes(value, type_name), state)
    return state - (1 << 64) if state >> 63 else state


def bucket_of(key: Key, types: Sequence[str], buckets: int) -> int:
    """The bucket of a key: `pmod(hash(key...), buckets)`, as Spark's bucketBy and repartition compute it."""
    return spark_hash(key, types) % buckets

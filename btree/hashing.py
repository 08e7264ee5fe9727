"""Spark's own Murmur3 `hash` of a key, and the bucket it names.

Rules read off Spark's `hash` function (HashExpression, Murmur3_x86_32): the columns are folded from the left, the
hash of one is the seed of the next; a null leaves it as it is; text and bytes are taken in little-endian words of
four bytes and then byte by byte, each tail byte a word of its own (signed).
"""

import struct
from collections.abc import Sequence

from btree.keys import Key, Stored, decimal_type

HASH_NAME = "spark-murmur3"
SEED = 42
MASK = 0xFFFFFFFF
C1, C2 = 0xCC9E2D51, 0x1B873593
NAN = float("nan")  # bits 7fc00000 and 7ff8000000000000, Java's
WORD, LONG_DIGITS = 4, 18  # a decimal of up to 18 digits is hashed as a long


def _mix(state: int, word: int) -> int:
    word = word * C1 & MASK
    word = (word << 15 | word >> 17) * C2 & MASK
    state ^= word
    return ((state << 13 | state >> 19) * 5 + 0xE6546B64) & MASK


def _finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


def hash_int(value: int, seed: int) -> int:
    """Hash of a 32-bit integer, as an unsigned 32-bit number."""
    return _finish(_mix(seed, value & MASK), WORD)


def hash_long(value: int, seed: int) -> int:
    """Hash of a 64-bit integer: its low word, then its high word."""
    return _finish(_mix(_mix(seed, value & MASK), value >> 32 & MASK), 2 * WORD)


def hash_bytes(data: bytes, seed: int) -> int:
    """Hash of text (its UTF-8 bytes) or of binary."""
    state = seed
    words = len(data) // WORD
    for word in struct.unpack_from(f"<{words}I", data):
        state = _mix(state, word)
    for byte in data[words * WORD :]:
        state = _mix(state, (byte - 256 if byte > 127 else byte) & MASK)
    return _finish(state, len(data))


def _hash_stored(value: Stored, type_name: str, seed: int) -> int:
    if isinstance(value, str):
        return hash_bytes(value.encode(), seed)
    if isinstance(value, bytes):
        return hash_bytes(value, seed)
    if isinstance(value, float):
        value = NAN if value != value else value + 0.0  # one NaN; -0.0 + 0.0 is 0.0
        if type_name == "float":
            return hash_int(int.from_bytes(struct.pack("<f", value), "little"), seed)
        return hash_long(int.from_bytes(struct.pack("<d", value), "little"), seed)
    number = int(value or 0)
    kind = decimal_type(type_name)
    if kind and kind.precision > LONG_DIGITS:
        return hash_bytes(unscaled_bytes(number), seed)
    if kind or type_name in ("bigint", "timestamp", "timestamp_ntz"):
        return hash_long(number, seed)
    return hash_int(number, seed)


def unscaled_bytes(number: int) -> bytes:
    """The shortest big-endian two's complement of an integer (java.math.BigInteger.toByteArray)."""
    bits = (~number if number < 0 else number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def spark_hash(key: Key, types: Sequence[str]) -> int:
    """Spark's `hash(col1, col2, ...)` of a key in stored form: a signed 32-bit number."""
    state = SEED
    for value, type_name in zip(key, types, strict=True):
        if value is not None:
            state = _hash_stored(value, type_name, state)
    return state - (1 << 32) if state >> 31 else state


def bucket_of(key: Key, types: Sequence[str], buckets: int) -> int:
    """The bucket of a key: `pmod(hash(key...), buckets)`, as Spark's bucketBy and repartition compute it."""
    return spark_hash(key, types) % buckets

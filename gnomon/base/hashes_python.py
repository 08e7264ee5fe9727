"""The loops of `gnomon.base.kernel` that hash keys, in Python. They are the reference of the compiled ones.

Murmur3 is Spark's (Murmur3_x86_32.hashUnsafeBytes): it takes words of four bytes, and then each byte of the tail as a
word of its own, signed. XXH64 is as published (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

VERSION = 4  # of the functions here: a compiled module of another version is not used
MASK = 0xFFFFFFFF
WORD = 4  # bytes
SEED = 42  # of both hashes of a key
NAN = float("nan")  # bits 7fc00000 and 7ff8000000000000, Java's
BLOCK_BYTES = 32  # of a Bloom filter
MOST_BLOCKS = 1 << 31
SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_FEW = 48  # rows that, hashed one by one, cost as much as one step of Murmur3 over all rows

Hashes32 = npt.NDArray[np.uint32]
Hashes64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def hash_key(key: tuple[Any, ...], forms: bytes) -> tuple[int, int]:
    """Spark's `hash` and `xxhash64` of a key in stored form: signed numbers of 32 and of 64 bits. `forms` has the form
    in which the numbers of each column are hashed: the letter of `struct` for a little-endian one, or "n" for the
    shortest big-endian two's complement."""
    short = long = SEED
    for value, form in zip(key, forms, strict=True):
        if value is not None:
            data = _hashed_bytes(value, chr(form))
            short, long = murmur3(data, short), xxh64_intdigest(data, long)
    return short - (short >> 31 << 32), long - (long >> 63 << 64)


def _hashed_bytes(value: Any, form: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if form == "n":
        return unscaled_bytes(value)
    if isinstance(value, float):
        value = NAN if value != value else value + 0.0  # one NaN; -0.0 + 0.0 is 0.0
    return struct.pack(f"<{form}", value)


def unscaled_bytes(number: int) -> bytes:
    """The shortest big-endian two's complement of an integer (java.math.BigInteger.toByteArray)."""
    bits = (~number if number < 0 else number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def may_hold(blocks: bytes, first: int, count: int, key_hash: int) -> bool:
    """Whether a Bloom filter of `count` blocks has all bits of the key with this `xxhash64`. `blocks` are some of them,
    from block `first` on. ValueError or IndexError unless the key's block is one of them."""
    if not 0 < count <= MOST_BLOCKS:
        raise ValueError(f"a filter of {count} blocks")
    place = ((key_hash >> 32 & MASK) * count >> 32) - first
    if first < 0 or not 0 <= place < len(blocks) // BLOCK_BYTES:
        raise IndexError(f"block {place} of {len(blocks)} bytes")
    mask = _mask(key_hash & MASK)
    return int.from_bytes(blocks[place * BLOCK_BYTES : (place + 1) * BLOCK_BYTES], "little") & mask == mask


@lru_cache(4096)
def _mask(low: int) -> int:
    """The bits of a key in its block, as one number with the first word lowest."""
    return sum(1 << 32 * i + ((low * salt & MASK) >> 27) for i, salt in enumerate(SALTS))


def murmur3(data: bytes, seed: int) -> int:
    """Murmur3 of some bytes, as Spark computes it: an unsigned 32-bit number."""
    state = seed
    words = len(data) // WORD
    tail = ((byte - 256 if byte > 127 else byte) & MASK for byte in data[words * WORD :])
    for word in (*struct.unpack_from(f"<{words}I", data), *tail):
        word = word * 0xCC9E2D51 & MASK
        word = (word << 15 | word >> 17) * 0x1B873593 & MASK
        state ^= word
        state = ((state << 13 | state >> 19) * 5 + 0xE6546B64) & MASK
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


def murmur3_words(data: Bytes, hashes: Hashes32) -> None:
    """Replace each of `hashes`, which are seeds, by the Murmur3 of a number: `data` has 4 bytes of each, or 8.
    ValueError for another number of bytes."""
    words, state = _words(data, len(hashes)), hashes
    for part in words.view(np.uint32).reshape(-1, words.itemsize // WORD).T:  # the low word first
        state = mix(state, part)
    hashes[:] = finish(state, np.uint32(words.itemsize))


def xxh64_words(data: Bytes, hashes: Hashes64) -> None:
    """As `murmur3_words`, with XXH64."""
    words = _words(data, len(hashes))
    state = hashes + _P5 + np.uint64(words.itemsize)
    if words.itemsize == WORD:
        state = rotated(state ^ words.astype(np.uint64) * _P1, 23) * _P2 + _P3
    else:
        state = rotated(state ^ rotated(words * _P2, 31) * _P1, 27) * _P1 + _P4
    state = (state ^ state >> np.uint64(33)) * _P2
    state = (state ^ state >> np.uint64(29)) * _P3
    hashes[:] = state ^ state >> np.uint64(32)


def _words(data: Bytes, rows: int) -> Any:
    if len(data) not in (4 * rows, 8 * rows):
        raise ValueError(f"{len(data)} bytes for {rows} numbers")
    return data.view(f"<u{4 if len(data) == 4 * rows else 8}")


def murmur3_texts(data: Bytes, offsets: Ints, hashes: Hashes32) -> None:
    """Replace each of `hashes`, which are seeds, by the Murmur3 of a value. Value i is the bytes from `offsets[i]` to
    `offsets[i + 1]`.

    One word of all rows is mixed at a time, longest rows first. A few much longer rows are hashed one by one, so that
    one value of a megabyte does not take a quarter of a million steps. ValueError unless the offsets ascend within the
    data."""
    _check(data, offsets, len(hashes))
    data = np.concatenate([data, np.zeros(WORD, np.uint8)])
    starts, lengths = offsets[:-1], np.diff(offsets)
    words = lengths // WORD
    order = np.argsort(-words, kind="stable")
    most = int(words[order[_FEW]]) if len(order) > _FEW else 0
    state, begins, descending = hashes[order], starts[order], words[order]
    active = len(order) - np.searchsorted(descending[::-1], np.arange(most), side="right")
    at_byte = np.ndarray((len(data) - WORD + 1,), "<u4", data, strides=(1,))  # the word that begins at each byte
    for step, rows in enumerate(active.tolist()):
        state[:rows] = mix(state[:rows], at_byte[begins[:rows] + step * WORD])
    tails, tail_starts = (lengths % WORD)[order], begins + descending * WORD
    for step in range(WORD - 1):
        has = np.flatnonzero(tails > step)
        state[has] = mix(state[has], data[tail_starts[has] + step].astype(np.int8).astype(np.int32).view(np.uint32))
    seeds = hashes.copy()
    hashes[order] = finish(state, lengths[order].astype(np.uint32))
    for row in order[: int(np.searchsorted(-descending, -most))].tolist():
        begin = int(starts[row])
        hashes[row] = murmur3(data[begin : begin + int(lengths[row])].tobytes(), int(seeds[row]))


def xxh64_texts(data: Bytes, offsets: Ints, hashes: Hashes64) -> None:
    """Replace each of `hashes`, which are seeds, by the XXH64 of a value. Values are as in `murmur3_texts`."""
    _check(data, offsets, len(hashes))
    whole, edges = data.tobytes(), offsets.tolist()
    for row, seed in enumerate(hashes.tolist()):
        hashes[row] = xxh64_intdigest(whole[edges[row] : edges[row + 1]], seed)


def _check(data: Bytes, offsets: Ints, rows: int) -> None:
    if len(offsets) != rows + 1 or offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{len(offsets)} offsets for {rows} values in {len(data)} bytes")


# -- steps of Murmur3 over many rows -----------------------------------------------------------------------------------


def mix(state: Hashes32, word: Hashes32) -> Hashes32:
    """The state after one more word."""
    mixed: Hashes32 = rotated(state ^ scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def scrambled(word: Hashes32) -> Hashes32:
    """A word as it goes into the state."""
    found: Hashes32 = rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return found


def finish(state: Hashes32, length: Hashes32 | np.uint32) -> Hashes32:
    """The hash, from the state after all bytes and their number."""
    state = state ^ length
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    finished: Hashes32 = state ^ state >> np.uint32(16)
    return finished


def rotated(word: Any, bits: int) -> Any:
    """Words whose bits are rotated to the left."""
    kind, width = word.dtype.type, 8 * word.itemsize
    return word << kind(bits) | word >> kind(width - bits)

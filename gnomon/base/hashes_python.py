"""The loops of `gnomon.base.kernel` that hash keys, in Python. They are the reference of the compiled ones.

Murmur3 is Spark's (Murmur3_x86_32.hashUnsafeBytes): it takes words of four bytes, and then each byte of the tail as a
word of its own, signed. XXH64 is as published (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

VERSION = 2  # of the functions here: a compiled module of another version is not used
MASK = 0xFFFFFFFF
WORD = 4  # bytes
_FEW = 48  # rows that, hashed one by one, cost as much as one step of Murmur3 over all rows

Hashes32 = npt.NDArray[np.uint32]
Hashes64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


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

"""Bit-packed numbers decoded many at a time."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


def unpack(data: bytes, width: int) -> Words:
    """Numbers of `width` bits, most significant bit first. `data`: blocks of eight numbers, `width` bytes each."""
    if width in (8, 16, 32, 64):
        return np.frombuffer(data, f">u{width // 8}").astype(np.uint64)
    columns = np.frombuffer(data, np.uint8).reshape(-1, width).T.astype(np.uint64)
    out = np.empty((columns.shape[1], 8), np.uint64)
    for slot in range(8):
        begin, end = slot * width, (slot + 1) * width
        first, last = begin >> 3, (end - 1) >> 3
        value = columns[first] & np.uint64(0xFF >> (begin & 7))
        for each in range(first + 1, last + 1):
            value <<= np.uint64(8)
            value |= columns[each]
        value >>= np.uint64(8 * (last + 1) - end)
        out[:, slot] = value
    return out.ravel()


def spread(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1 ... for each run; the runs are concatenated."""
    before = np.cumsum(lengths) - lengths
    spread: Ints = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
    return spread


def linear(bases: Ints, steps: Ints, lengths: Ints) -> Ints:
    """base, base + step, base + 2 * step ... for each run, in 64 bits that wrap."""
    out = np.repeat(bases, lengths)
    moving = np.flatnonzero(steps)
    if len(moving):
        firsts = np.cumsum(lengths) - lengths
        places = spread(firsts[moving], lengths[moving])
        out[places] += np.repeat(steps[moving], lengths[moving]) * (places - np.repeat(firsts[moving], lengths[moving]))
    return out

"""Bit-packed numbers and varints, decoded many at a time."""

import numpy as np
from numpy.typing import NDArray

from gnomon.sources.orc.errors import Damage

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

LOW_SEVEN = np.uint64(0x7F)
ONE = np.uint64(1)
WORD_GROUPS = 9  # groups of seven bits that a 64-bit word holds whole
LONGEST_WORD = 10  # bytes of a varint of 64 bits
LONGEST_WIDE = 19  # of 128 bits


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


def zigzag(values: Words) -> Ints:
    """Signed numbers from unsigned ones: 0, -1, 1, -2 ..."""
    signed: Ints = ((values >> ONE) ^ (np.uint64(0) - (values & ONE))).view(np.int64)
    return signed


def varints(data: NDArray[np.uint8], starts: Ints, ends: Ints) -> Words:
    """Varints of 64 bits in `data[start:end]` each."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > LONGEST_WORD:
        raise Damage("a number longer than 64 bits")
    return _groups(data, starts, lengths, 0, longest)


def wide_varints(data: NDArray[np.uint8], starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """`(low, high)` words of signed 128-bit numbers that stand as zigzag varints."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > LONGEST_WIDE:
        raise Damage("a decimal longer than 128 bits")
    low = _groups(data, starts, lengths, 0, min(longest, WORD_GROUPS))
    high = np.zeros(len(starts), np.uint64)
    if longest > WORD_GROUPS:
        middle = _groups(data, starts, lengths, WORD_GROUPS, min(longest, 2 * WORD_GROUPS))
        low |= middle << np.uint64(63)
        high = middle >> ONE
        if longest > 2 * WORD_GROUPS:
            high |= _groups(data, starts, lengths, 2 * WORD_GROUPS, longest) << np.uint64(62)
    sign = np.uint64(0) - (low & ONE)
    low = (low >> ONE | high << np.uint64(63)) ^ sign
    return low.view(np.int64), ((high >> ONE) ^ sign).view(np.int64)


def _groups(data: NDArray[np.uint8], starts: Ints, lengths: Ints, first: int, last: int) -> Words:
    """The groups of seven bits from `first` to `last` of each varint, as one word."""
    out = np.zeros(len(starts), np.uint64)
    for group in range(first, last):
        if group == 0:
            out |= data[starts] & LOW_SEVEN
            continue
        longer = np.flatnonzero(lengths > group)
        out[longer] |= (data[starts[longer] + group] & LOW_SEVEN) << np.uint64(7 * (group - first))
    return out


def spread(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1 ... for each run, one run after the other."""
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

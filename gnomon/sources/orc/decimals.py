"""Decimals: varints of up to 128 bits, each with its own scale."""

import numpy as np

from gnomon.base.varints import LONGEST_WIDE, OverlongVarint, decode_wide_array
from gnomon.sources.orc.bit_packing import Ints
from gnomon.sources.orc.errors import Damage
from gnomon.sources.orc.streams import ByteStream

MOST_DIGITS = 38
WORD_DIGITS = 18
LARGEST = 10**MOST_DIGITS
MASK = (1 << 64) - 1


def read_varints(source: ByteStream, count: int) -> tuple[Ints, Ints]:
    """`(low, high)` words of the next `count` numbers."""
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    octets, ends = _next(source, count)
    starts = np.concatenate((ends[:1] * 0, ends[:-1]))
    source.position += int(ends[-1])
    try:
        return decode_wide_array(octets, starts, ends)
    except OverlongVarint as error:
        raise Damage(str(error)) from None


def skip_varints(source: ByteStream, count: int) -> None:
    """Skip the next `count` numbers."""
    if count:
        _, ends = _next(source, count)  # a call of `_next` may move the position
        source.position += int(ends[-1])


def _next(source: ByteStream, count: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Ints]:
    """`(bytes, ends)` of the next `count` varints."""
    while True:
        octets = np.frombuffer(source.data, np.uint8, -1, source.position)
        ends = np.flatnonzero(octets[: count * LONGEST_WIDE] < 0x80)[:count] + 1
        if len(ends) == count:
            return octets, ends
        if len(octets) >= count * LONGEST_WIDE:
            raise Damage("a decimal longer than 128 bits")
        if not source.fill():
            raise Damage(f"a stream ends {count - len(ends)} decimals early")


def at_scale(low: Ints, high: Ints, scales: Ints, scale: int) -> tuple[Ints, Ints]:
    """The numbers, each with its own scale in `scales`, at one common scale."""
    shifts = scale - scales
    if len(shifts) and not -MOST_DIGITS <= int(shifts.min()) <= int(shifts.max()) <= MOST_DIGITS:
        raise Damage(f"a decimal of scale {int(scales.max())}, its type has {scale}")
    low, high = low.copy(), high.copy()
    for shift in np.unique(shifts[shifts != 0]).tolist():
        places = np.flatnonzero(shifts == shift)
        if 0 < shift <= WORD_DIGITS:
            most = ((1 << 63) - 1) // 10**shift
            fits = (high[places] == low[places] >> 63) & (low[places] <= most) & (low[places] >= -most)
            quick, places = places[fits], places[~fits]
            low[quick] *= 10**shift
            high[quick] = low[quick] >> 63
        for place in places.tolist():  # few: those that need more than 64 bits, or lose digits
            value = (int(high[place]) << 64) | (int(low[place]) & MASK)
            value = value * 10**shift if shift > 0 else _cut(value, 10**-shift)
            if abs(value) >= LARGEST:
                raise Damage(f"a decimal of more than {MOST_DIGITS} digits")
            low[place], high[place] = _signed(value & MASK), _signed(value >> 64 & MASK)
    return low, high


def check_digits(low: Ints, high: Ints) -> None:
    """Damage if a number has more than 38 digits."""
    top = LARGEST >> 64
    for place in np.flatnonzero((high >= top) | (high < -top)).tolist():
        if abs((int(high[place]) << 64) | (int(low[place]) & MASK)) >= LARGEST:
            raise Damage(f"a decimal of more than {MOST_DIGITS} digits")


def _cut(value: int, divisor: int) -> int:
    """The quotient, truncated: digits beyond the type's scale are dropped, as in ORC's C++ reader."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

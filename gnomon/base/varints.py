"""Variable-length integers: seven bits in a byte, the low ones first. The high bit says that another byte follows.

Avro, Thrift, Protocol Buffers, ORC and Parquet store integers in this form. *Signed* integers are stored in zigzag
order: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... An integer has at most 64 bits, so at most LONGEST_VARINT bytes.

The functions for one integer return it with the position after it. They raise IndexError where the bytes end inside the
integer, and OverlongVarint. The functions for arrays take one cursor per integer, and advance it past the integer.
Generated decoders (`base.records_python`, `sources.avro.codegen`) have their own code: a call for each value would take
longer than the value.
"""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

LONGEST_VARINT = 10  # bytes of an integer of 64 bits
LONGEST_WIDE = 19  # bytes of an integer of 128 bits
WORD_GROUPS = 9  # whole groups of seven bits in a word of 64 bits
LOW_SEVEN, ONE = np.uint64(0x7F), np.uint64(1)
OVERLONG = "a varint of more than 64 bits"
ONE_BYTE = [bytes([value]) for value in range(0x80)]


class OverlongVarint(ValueError):
    """An integer has more bits than its form allows."""


def decode_unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The unsigned integer at `at`, and the position after it."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while shift < 7 * LONGEST_VARINT:
        byte = data[at]
        at += 1
        if byte < 0x80:
            if shift == 63 and byte > 1:
                break
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    raise OverlongVarint(OVERLONG)


def decode_signed(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The signed integer at `at`, and the position after it."""
    value, at = decode_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def from_zigzag(value: int) -> int:
    """The signed integer that `value` is in zigzag order."""
    return (value >> 1) ^ -(value & 1)


def encode_unsigned(value: int) -> bytes:
    """The bytes of a non-negative integer."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_signed(value: int) -> bytes:
    """The bytes of an integer in zigzag order."""
    return encode_unsigned(value << 1 if value >= 0 else ~value << 1 | 1)


def decode_unsigned_array(data: Bytes, cursors: Ints) -> Words:
    """The unsigned integer at each cursor. Advances the cursors."""
    byte = data.take(cursors)
    cursors += 1
    values = (byte & 0x7F).astype(np.uint64)
    more = byte > 0x7F
    shift = 0
    while more.any():
        shift += 7
        byte = np.where(more, _next_bytes(data, cursors, more), np.uint8(0))
        if shift == 7 * (LONGEST_VARINT - 1) and (byte > 1).any():
            raise OverlongVarint(OVERLONG)
        values |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        cursors += more
        more = byte > 0x7F
    return values


def decode_signed_array(data: Bytes, cursors: Ints) -> Ints:
    """The signed integer at each cursor. Advances the cursors."""
    return from_zigzag_array(decode_unsigned_array(data, cursors))


def from_zigzag_array(values: Words) -> Ints:
    """The signed integers that `values` are in zigzag order."""
    return (values >> ONE).view(np.int64) ^ -(values & ONE).view(np.int64)


def skip_array(data: Bytes, cursors: Ints) -> None:
    """Advance each cursor past its integer. Checks only the length of the integer."""
    more = data.take(cursors) > 0x7F
    cursors += 1
    for _ in range(1, LONGEST_VARINT):
        if not more.any():
            return
        again = more & (_next_bytes(data, cursors, more) > 0x7F)
        cursors += more
        more = again
    if more.any():
        raise OverlongVarint(OVERLONG)


def _next_bytes(data: Bytes, cursors: Ints, more: NDArray[np.bool_]) -> Bytes:
    """The byte at each cursor; any byte where `more` is false."""
    if int(cursors.max()) < len(data):
        return data.take(cursors)
    if (more & (cursors >= len(data))).any():
        raise IndexError("the bytes end inside an integer")
    return data.take(cursors, mode="clip")


def decode_wide_array(data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The signed integers of 128 bits in each `data[start:end]`, as their low and high words."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > LONGEST_WIDE:
        raise OverlongVarint("a varint of more than 128 bits")
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


def _groups(data: Bytes, starts: Ints, lengths: Ints, first: int, last: int) -> Words:
    """The groups of seven bits from `first` to `last` of each integer, as one word."""
    out = np.zeros(len(starts), np.uint64)
    for group in range(first, last):
        longer = np.flatnonzero(lengths > group)
        out[longer] |= (data[starts[longer] + group] & LOW_SEVEN) << np.uint64(7 * (group - first))
    return out


def encode_signed_array(values: Ints) -> tuple[Bytes, Ints]:
    """The bytes of all integers in zigzag order, concatenated, and the n + 1 offsets between them."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = _lengths(rest)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    if not len(values):
        return out, offsets
    at, least = offsets[:-1], int(lengths.min())
    for place in range(int(lengths.max())):
        low = (rest & LOW_SEVEN).astype(np.uint8)
        if place + 1 < least:
            out[at] = low | np.uint8(0x80)
            at, rest = at + 1, rest >> np.uint64(7)
            continue
        more = lengths > place + 1
        out[at] = low | np.where(more, 0x80, 0).astype(np.uint8)
        at, rest, lengths = at[more] + 1, rest[more] >> np.uint64(7), lengths[more]
    return out, offsets


def _lengths(values: Words) -> Ints:
    """The length of each unsigned integer, in bytes."""
    lengths = np.ones(len(values), np.int64)
    for bits in range(7, 64, 7):
        longer = values >> np.uint64(bits) > 0
        if not longer.any():
            break
        lengths += longer
    return lengths

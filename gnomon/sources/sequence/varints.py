"""Hadoop's variable-length numbers (`WritableUtils.writeVLong`), of one to nine bytes.

A first byte of -112 or more is the number itself. Otherwise it gives sign and length: for -113 to -120 one to eight
bytes follow, big-endian; for -121 to -128 the same, with all bits of the number inverted.
"""

import numpy as np
from numpy.typing import NDArray

LONGEST = 9  # bytes

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]


def _size(first: int) -> int:
    """The length of a number in bytes, including its first byte, which states the length."""
    signed = first - 256 if first > 127 else first
    return 1 if signed >= -112 else -111 - signed if signed >= -120 else -119 - signed


_SIZE_OF = bytes(_size(first) for first in range(256))
SIZES = np.frombuffer(_SIZE_OF, dtype=np.uint8)


def one_vint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number at `at`, and its size in bytes; None where the data ends inside it."""
    if at >= len(data) or at + (size := _SIZE_OF[data[at]]) > len(data):
        return None
    if size == 1:
        return data[at] - (256 if data[at] > 127 else 0), 1
    number = int.from_bytes(data[at + 1 : at + size], "big")
    number -= (1 << 64) if number >> 63 else 0  # as Java's long
    return (~number if data[at] <= 0x87 else number), size  # 0x80 to 0x87 are -128 to -121


def vints_at(data: Bytes, starts: Longs) -> Longs:
    """The numbers that begin at `starts`, all of them within the data."""
    first = data[starts]
    numbers = first.view(np.int8).astype(np.int64)
    longer = np.flatnonzero(SIZES[first] > 1)
    if not len(longer):
        return numbers
    sizes, places = SIZES[first[longer]], starts[longer]
    value = np.zeros(len(longer), dtype=np.int64)
    for following in range(1, int(sizes.max())):
        has = sizes > following
        value[has] = value[has] << 8 | data[places[has] + following]
    numbers[longer] = np.where(first[longer] <= 0x87, ~value, value)
    return numbers


def all_vints(data: bytes) -> Longs | None:
    """The numbers that fill a buffer, one after the other; None where it ends inside one."""
    held = np.frombuffer(data, dtype=np.uint8)
    sizes = data.translate(_SIZE_OF)
    if sizes.count(1) == len(sizes):
        return held.view(np.int8).astype(np.int64)
    starts: list[int] = []
    add, at, length = starts.append, 0, len(sizes)
    while at < length:
        add(at)
        at += sizes[at]
    return vints_at(held, np.array(starts, dtype=np.int64)) if at == length else None

"""Avro's variable-length numbers: 7 bits in a byte, low bits first, signed numbers in zigzag form (Avro 1.12,
"Primitive Types").

A generated decoder handles numbers of one byte inline and calls these functions for longer ones.
"""

from gnomon.sources.avro.errors import Malformed

MOST_BITS = 64


def longer(data: bytes, position: int, first: int) -> tuple[int, int]:
    """A number whose first byte, already read, says that more follow: as it is written (zigzag), and the position
    after it."""
    value, shift = first & 127, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> MOST_BITS:
                raise Malformed("a number of more than 64 bits")
            return value, position
        shift += 7
        if shift >= MOST_BITS:
            raise Malformed("a number of more than 10 bytes")


def unsigned(data: bytes, position: int) -> tuple[int, int]:
    """A number as it is written, and the position after it. IndexError where the data ends before it does."""
    first = data[position]
    return (first, position + 1) if first < 128 else longer(data, position + 1, first)


def signed(data: bytes, position: int) -> tuple[int, int]:
    """An Avro int or long, and the position after it. IndexError where the data ends before it does."""
    value, position = unsigned(data, position)
    return (value >> 1) ^ -(value & 1), position


def length(data: bytes, position: int, first: int) -> tuple[int, int]:
    """As `longer`, also of one byte, for the length of a string or of bytes: it must lie in the data."""
    value = first
    if first > 127:
        value, position = longer(data, position, first)
    if value & 1:
        raise Malformed("a length below 0")
    if value >> 1 > len(data) - position:
        raise Malformed(f"a length of {value >> 1} bytes where {len(data) - position} are left")
    return value, position

"""Protocol Buffers' wire format: the bytes of ORC's postscript, footers and row indexes.

A message is read field by field; unknown fields are skipped. Every length is checked against the bytes left. So hostile
bytes raise `Damage`, and never hang or exhaust memory.
"""

from collections.abc import Iterator

from gnomon.base.varints import OverlongVarint, decode_unsigned, from_zigzag
from gnomon.sources.orc.errors import Damage

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Value = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """`(field number, value)` of each field: an integer (varint and fixed, unsigned), or bytes."""
    position, end = 0, len(data)
    while position < end:
        key, position = varint(data, position)
        wire = key & 7
        if wire == VARINT:
            number, position = varint(data, position)
            yield key >> 3, number
            continue
        if wire == BYTES:
            length, position = varint(data, position)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise Damage(f"unknown wire type {wire} of field {key >> 3}")
        if length > end - position:
            raise Damage(f"field {key >> 3} claims {length} bytes, {end - position} are left")
        value = data[position : position + length]
        position += length
        yield key >> 3, value if wire == BYTES else int.from_bytes(value, "little")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """`(unsigned number, position after it)`."""
    try:
        return decode_unsigned(data, position)
    except OverlongVarint as error:
        raise Damage(str(error)) from None
    except IndexError:
        raise Damage("the bytes end inside a number") from None


def number(value: Value) -> int:
    """A field that has to be an unsigned integer."""
    if isinstance(value, int):
        return value
    raise Damage("bytes where a number belongs")


def signed(value: Value) -> int:
    """A field that has to be an sint64 (zigzag)."""
    return from_zigzag(number(value))


def message(value: Value) -> bytes:
    """A field that has to be a message, a text or bytes."""
    if isinstance(value, bytes):
        return value
    raise Damage("a number where bytes belong")


def text(value: Value) -> str:
    """A field that has to be text. Bytes that are not UTF-8 are replaced."""
    return message(value).decode(errors="replace")


def numbers(value: Value) -> list[int]:
    """An entry of a repeated integer field: one, or several packed."""
    if isinstance(value, int):
        return [value]
    found, position = [], 0
    while position < len(value):
        each, position = varint(value, position)
        found.append(each)
    return found

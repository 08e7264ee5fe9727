"""Thrift's compact protocol: the bytes of a Parquet footer, page index and page headers.

A caller reads the fields that it knows and skips the others. Every count and length is checked against the bytes left
before memory is allocated, and nesting is limited. So hostile bytes raise `ThriftError`, and never hang or exhaust
memory.
"""

from collections.abc import Iterator, Sequence

from gnomon.base.varints import OverlongVarint, decode_unsigned, encode_signed, encode_unsigned

STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)
NESTING_LIMIT = 64
SIZES = {TRUE: 0, FALSE: 0, I8: 1, DOUBLE: 8, UUID: 16}  # bytes of a field's value, where that is fixed


class ThriftError(ValueError):
    """The bytes are not a compact-protocol struct."""


class CutShort(ThriftError):
    """The bytes end inside a value. More bytes may help."""


class Decoder:
    """Reads values from `data`, advancing `position`."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.data: bytes = data  # type: ignore[assignment]  # for a memoryview, callers read only numbers
        self.position = position

    def varint(self) -> int:
        data, position = self.data, self.position
        try:
            byte = data[position]
            if byte < 0x80:
                self.position = position + 1
                return byte
            value, self.position = decode_unsigned(data, position)
            return value
        except IndexError:
            raise CutShort(f"the bytes end inside a number at {len(data)}") from None
        except OverlongVarint:
            raise ThriftError(f"a number longer than 64 bits at {position}") from None

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)  # inlined: a footer has many integers

    def take(self, length: int) -> bytes:
        start, end = self.position, self.position + length
        if end > len(self.data):
            raise CutShort(f"{length} bytes claimed at {start}, {len(self.data) - start} are left")
        self.position = end
        return self.data[start:end]

    def fields(self) -> Iterator[tuple[int, int]]:
        """`(field id, wire type)` of each field of the struct at `position`. The caller consumes each value, or
        calls `skip`, before it continues."""
        field_id = 0
        while True:
            header = self._byte()
            if header == STOP:
                return
            field_id = field_id + (header >> 4) if header >> 4 else self.integer()
            yield field_id, header & 0x0F

    def list_header(self) -> tuple[int, int]:
        """`(wire type of the elements, count)`. An element takes at least one byte, so a count beyond the bytes left is
        refused."""
        header = self._byte()
        count = self.varint() if header >> 4 == 15 else header >> 4
        if count > len(self.data) - self.position:
            raise CutShort(f"a list of {count} claimed at {self.position}, beyond the bytes left")
        return header & 0x0F, count

    def texts(self) -> dict[int, bytes]:
        """The fields of a struct that are bytes, by id. The others are skipped."""
        return {field_id: self.text(wire) for field_id, wire in self.fields() if self.optional(wire, BINARY)}

    def field_ids(self) -> list[int]:
        """The ids of the fields of a struct, whose values are skipped."""
        found = []
        for field_id, wire in self.fields():
            self.skip(wire)
            found.append(field_id)
        return found

    def optional(self, wire: int, expected: int) -> bool:
        """Whether a field has the expected wire type (I64: any integer). Skips the value of another type, as readers do
        that Thrift generates: the field counts as absent."""
        if wire == expected or (expected == I64 and I8 <= wire <= I64):
            return True
        self.skip(wire)
        return False

    def number(self, wire: int) -> int:
        """The value of a field that has to be an integer."""
        if not I8 <= wire <= I64:
            raise ThriftError(f"wire type {wire} where an integer belongs at {self.position}")
        return self.integer() if wire > I8 else int.from_bytes(self.take(1), "little", signed=True)

    def text(self, wire: int) -> bytes:
        """The value of a field that has to be bytes."""
        if wire != BINARY:
            raise ThriftError(f"wire type {wire} where bytes belong at {self.position}")
        return self.take(self.varint())

    def structs(self, wire: int) -> int:
        """The number of structs that follow, for a field that has to be a list of structs."""
        if wire != LIST:
            raise ThriftError(f"wire type {wire} where a list belongs at {self.position}")
        element, count = self.list_header()
        if count and element != STRUCT:
            raise ThriftError(f"a list of wire type {element} where structs belong at {self.position}")
        return count

    def skip(self, wire: int) -> None:
        """Advance past a value without decoding it: most of a footer is statistics."""
        try:
            position = _past(self.data, self.position, wire, 0)
        except IndexError:
            raise CutShort(f"the bytes end inside a value at {self.position}") from None
        if position > len(self.data):
            raise CutShort(f"a value at {self.position} runs beyond the bytes left")
        self.position = position

    def _byte(self) -> int:
        try:
            byte = self.data[self.position]
        except IndexError:
            raise CutShort(f"the bytes end at {self.position}") from None
        self.position += 1
        return byte


def _past(data: bytes, position: int, wire: int, depth: int) -> int:
    """The position after a value, which may be beyond the bytes. IndexError where the bytes end inside a number."""
    if depth > NESTING_LIMIT:
        raise ThriftError(f"nested deeper than {NESTING_LIMIT} at {position}")
    if I16 <= wire <= I64:
        while data[position] > 0x7F:
            position += 1
        return position + 1
    if wire == BINARY:
        length, position = _length(data, position)
        return position + length
    if wire == STRUCT:
        while header := data[position]:
            position += 1
            if header < 0x10:  # the field id is not a delta
                position = _past(data, position, I16, depth)
            field = header & 0x0F
            if field not in (TRUE, FALSE):
                position = _past(data, position, field, depth + 1)
        return position + 1
    if wire in (LIST, SET, MAP):
        return _past_elements(data, position, wire, depth)
    if wire in SIZES:
        return position + SIZES[wire]
    raise ThriftError(f"unknown wire type {wire} at {position}")


def _past_elements(data: bytes, position: int, wire: int, depth: int) -> int:
    if wire == MAP:
        count, position = _length(data, position)
        kinds: tuple[int, ...] = (data[position] >> 4, data[position] & 0x0F) if count else ()
        position += count > 0
    else:
        kinds, count = (data[position] & 0x0F,), data[position] >> 4
        position += 1
        if count == 15:
            count, position = _length(data, position)
    if count > len(data) - position:
        raise CutShort(f"{count} elements claimed at {position}, beyond the bytes left")
    for _ in range(count):
        for kind in kinds:
            position = position + 1 if kind in (TRUE, FALSE) else _past(data, position, kind, depth + 1)
    return position


def _length(data: bytes, position: int) -> tuple[int, int]:
    """`(number, position after it)`, for counts and lengths."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    decoder = Decoder(data, position)
    return decoder.varint(), decoder.position


def integer(value: int) -> bytes:
    """An encoded i16, i32 or i64."""
    return encode_signed(value)


def binary(value: bytes) -> bytes:
    return encode_unsigned(len(value)) + value


def array(wire: int, elements: Sequence[bytes]) -> bytes:
    """A list of encoded elements, all of one wire type."""
    count = len(elements)
    header = bytes([count << 4 | wire]) if count < 15 else bytes([0xF0 | wire]) + encode_unsigned(count)
    return header + b"".join(elements)


def struct(fields: Sequence[tuple[int, int, bytes]]) -> bytes:
    """A struct of `(field id, wire type, encoded value)`, ids ascending."""
    return open_struct(fields) + b"\0"


def open_struct(fields: Sequence[tuple[int, int, bytes]], after: int = 0) -> bytes:
    """The fields without the stop byte, for a struct that is concatenated from parts. `after` is the id of the field
    before them."""
    out = []
    for field_id, wire, value in fields:
        step = field_id - after
        out.append(bytes([step << 4 | wire]) if 0 < step < 16 else bytes([wire]) + integer(field_id))
        out.append(value)
        after = field_id
    return b"".join(out)

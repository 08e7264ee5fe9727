"""The loops of `gnomon.base.kernel` in Python. They are the reference of the compiled ones.

Snappy's encoders compress each 64 KB of content on their own: no element lies in two of these fragments, and no copy
reaches before its fragment. The format does not require it (github.com/google/snappy, format_description.txt), so
`unpack_snappy` proves it for each stream. A fragment can then be unpacked without the others."""

import struct
from collections.abc import Iterator, Sequence

from gnomon.base.varints import OverlongVarint, decode_unsigned

VERSION = 6  # of these functions: a compiled module of another version is not used
FRAGMENT = 1 << 16  # content bytes
ENDS_IN_RUN = "the bytes end inside a run of packed numbers"
BROKEN_RUN = "a run with a length or a value that {} bits do not give, or a truncated run"
LONGEST_RUN = 1 << 30  # numbers
MOST_GROWTH = 32  # content bytes that one byte of snappy gives at most: a copy of 64 takes at least 2
MOST_BITS = 32  # of a number of a hybrid
MOST_BYTES = (1 << 31) - 1  # positions are int32
TOO_MANY = -1  # begin and end of the last run that `_runs` gives where there are more

Run = tuple[int, int, int, int]  # first number, one after the last; the value of all, or -1; first byte if packed


def unpack_snappy(data: bytes | memoryview, at: int, size: int) -> tuple[bytes | None, bytes | None]:
    """`(content, starts)` of the snappy elements in `data` from `at` on, the position after the stream's length.

    `starts` has the position in `data` of each fragment, and `len(data)`, as int32 in the machine's order. It is None
    where a fragment needs another one. Both are None unless the elements give exactly `size` bytes."""
    if not _can_give(data, at, len(data), size):
        return None, None
    content = bytearray()
    starts: list[int] = []
    alone = True
    while at < len(data) and len(content) < size:
        if len(content) >= FRAGMENT * len(starts):
            alone = alone and len(content) == FRAGMENT * len(starts)
            starts.append(at)
        found = _element(data, at, content)
        if found is None:
            return None, None
        at, reach = found
        alone = alone and reach >= FRAGMENT * (len(starts) - 1)
    if at != len(data) or len(content) != size:
        return None, None
    alone = alone and len(starts) == -(-size // FRAGMENT)
    return bytes(content), struct.pack(f"={len(starts) + 1}i", *starts, len(data)) if alone else None


def unpack_fragments(data: bytes | memoryview, at: int, end: int, size: int) -> bytes | None:
    """The first `size` content bytes of the fragments in `data[at:end]`. None where the bytes do not give as many."""
    if not _can_give(data, at, end, size):
        return None
    content = bytearray()
    part = data[:end]
    while at < len(part) and len(content) < size:
        found = _element(part, at, content, size)
        if found is None:
            return None
        at = found[0]
    return bytes(content[:size]) if len(content) >= size else None


def _can_give(data: bytes | memoryview, at: int, end: int, size: int) -> bool:
    """Whether `data[at:end]` lies in the data, and may give `size` bytes."""
    return 0 <= at <= end <= len(data) <= MOST_BYTES and 0 <= size <= (end - at) * MOST_GROWTH


def byte_array_marks(data: bytes | memoryview, at: int, count: int) -> bytes | None:
    """Where values begin in PLAIN byte arrays: `count` of them, from `at` to the end of `data`.

    For each fragment, and for the end, two int32 in the machine's order: the number of the first value that begins in
    or after it, and that value's position. None unless the values end exactly with the data."""
    if not 0 <= at <= len(data) <= MOST_BYTES or not 0 <= count <= len(data):
        return None
    pieces = -(-len(data) // FRAGMENT)
    marks: list[int] = []
    for value in range(count + 1):
        while len(marks) <= 2 * pieces and len(marks) // 2 * FRAGMENT <= at:
            marks += (value, at)
        if value < count:
            if len(data) - at < 4:
                return None
            at += 4 + int.from_bytes(data[at : at + 4], "little")
            if at > len(data):
                return None
    if at != len(data):
        return None
    while len(marks) <= 2 * pieces:
        marks += (count, at)
    return struct.pack(f"={len(marks)}i", *marks)


def byte_arrays(data: bytes | memoryview, at: int, wanted: Sequence[int], count: int, end: int) -> list[bytes] | None:
    """Some PLAIN byte arrays, each with its length before it: those with the numbers `wanted`, which ascend, of the
    `count` that begin at `at`.

    None unless all `count` end exactly at `end`. The last may reach beyond the data if it is not wanted."""
    found: list[bytes] = []
    if not 0 <= at <= len(data):
        return None
    for number in range(count):
        begin, is_last = at, number == count - 1
        is_wanted = len(found) < len(wanted) and number == wanted[len(found)]
        if len(data) - at < 4:
            return found if is_last and at <= len(data) < end and len(found) == len(wanted) else None
        at += 4 + int.from_bytes(data[at : at + 4], "little")
        if at > len(data) and (is_wanted or not is_last):
            return None
        if is_wanted:
            found.append(bytes(data[begin:at]))
    return found if at == end and len(found) == len(wanted) else None


def _element(data: bytes | memoryview, at: int, content: bytearray, size: int | None = None) -> tuple[int, int] | None:
    """Append the content of the element at `at`. Return the position after the element, and the first content byte that
    it copies from; None where it is damaged. A literal may reach beyond the data if it is not needed to get `size`
    bytes."""
    tag, done = data[at], len(content)
    at += 1
    if tag & 3 == 0:
        length = (tag >> 2) + 1
        if length > 60:
            extra = length - 60
            if at + extra > len(data):
                return None
            length = int.from_bytes(data[at : at + extra], "little") + 1
            at += extra
        needed = length if size is None else min(length, size - done)
        if needed > len(data) - at:
            return None
        content += data[at : at + length]
        return at + length, done
    extra = (1, 2, 4)[(tag & 3) - 1]
    if at + extra > len(data):
        return None
    offset = int.from_bytes(data[at : at + extra], "little")
    length = (tag >> 2) + 1
    if extra == 1:
        offset, length = offset | tag >> 5 << 8, (tag >> 2 & 7) + 4
    if not 0 < offset <= done:
        return None
    pattern = content[done - offset : done - offset + length]
    content += (pattern * (length // len(pattern) + 1))[:length]
    return at + extra, done - offset


def hybrid_values(data: bytes | memoryview, width: int, positions: Sequence[int], runs: int) -> list[int] | None:
    """The numbers of `width` bits, at most 32, at ascending `positions` of an RLE / bit-packing hybrid (parquet-format,
    Encodings). None where they lie behind more than `runs` runs. ValueError where the bytes end before, or where there
    can be no such numbers."""
    _check(width, positions)
    if not width:
        return [0] * len(positions)
    found: list[int] = []
    mask = (1 << width) - 1
    wanted = positions[0]
    for first, stop, value, at in _runs(data, width, runs):
        while wanted < stop:
            if value < 0:
                bit = (wanted - first) * width
                begin, end = at + (bit >> 3), at + ((bit + width + 7) >> 3)
                if end > len(data):
                    raise ValueError(ENDS_IN_RUN)
                found.append(int.from_bytes(data[begin:end], "little") >> (bit & 7) & mask)
            else:
                found.append(value)
            if len(found) == len(positions):
                return found
            wanted = positions[len(found)]
        if first == stop == TOO_MANY:
            return None
    raise ValueError(f"the runs end before number {wanted}")


def hybrid_flags(data: bytes | memoryview, positions: Sequence[int], runs: int) -> list[tuple[bool, int]] | None:
    """For a hybrid of one bit, at each of ascending `positions`: whether it is 1, and the number of ones before it.
    None and ValueError as `hybrid_values`."""
    _check(1, positions)
    found: list[tuple[bool, int]] = []
    ones = 0
    wanted = positions[0]
    for first, stop, value, at in _runs(data, 1, runs):
        if first == stop == TOO_MANY:
            return None
        bits = int.from_bytes(data[at : at + (stop - first >> 3)], "little") if value < 0 else 0
        while wanted < stop:
            within = wanted - first
            if value < 0:
                if at + (within >> 3) >= len(data):
                    raise ValueError(ENDS_IN_RUN)
                found.append((bool(bits >> within & 1), ones + (bits & (1 << within) - 1).bit_count()))
            else:
                found.append((value == 1, ones + within * value))
            if len(found) == len(positions):
                return found
            wanted = positions[len(found)]
        ones += bits.bit_count() if value < 0 else (stop - first) * value
    raise ValueError(f"the runs end before number {wanted}")


def _check(width: int, positions: Sequence[int]) -> None:
    """ValueError unless numbers of this width at these positions can be asked for."""
    if not 0 <= width <= MOST_BITS:
        raise ValueError(f"numbers of {width} bits, at most {MOST_BITS} are possible")
    before = 0
    for position in positions:
        if position < before:
            raise ValueError(f"number {position} after number {before}")
        before = position


def _runs(data: bytes | memoryview, width: int, runs: int) -> Iterator[Run]:
    """The runs: varint(count << 1) and a value in whole bytes, or varint(groups << 1 | 1) and groups of 8 numbers of
    `width` bits, lowest bit first."""
    first, at, value_bytes = 0, 0, (width + 7) >> 3
    for _ in range(runs):
        if at >= len(data):
            return
        try:
            header, at = decode_unsigned(data, at)
        except IndexError:
            raise ValueError("the bytes end inside the length of a run") from None
        except OverlongVarint:
            raise ValueError(BROKEN_RUN.format(width)) from None
        if header & 1:
            yield first, first + (header >> 1) * 8, -1, at
            first, at = first + (header >> 1) * 8, at + (header >> 1) * width
        else:
            value = int.from_bytes(data[at : at + value_bytes], "little")
            at += value_bytes
            if at > len(data) or value >= 1 << width:
                raise ValueError(BROKEN_RUN.format(width))
            yield first, first + (header >> 1), value, at
            first += header >> 1
    if at < len(data):
        yield TOO_MANY, TOO_MANY, 0, 0


def hybrid_marks(data: bytes | memoryview, at: int, width: int, count: int, step: int) -> bytes | None:
    """Where numbers of 1 to 32 bits lie in a hybrid of at least `count` of them, from `at` to the end of `data`.

    For each `step` bytes of the data, and for the end, three int32 in the machine's order. They describe the first run,
    or group of 8 packed numbers, that begins in or after these bytes: the numbers before it, its position, and the
    numbers up to the end of the packed run that the group belongs to; for a run, the numbers before it again. None
    unless the run of the number `count - 1` ends exactly with the data."""
    if not 0 <= at <= len(data) <= MOST_BYTES or not 0 < width <= MOST_BITS or step <= 0:
        return None
    pieces = -(-len(data) // step)
    marks: list[int] = []
    first, value_bytes = 0, (width + 7) >> 3
    while True:
        while len(marks) <= 3 * pieces and (len(marks) // 3 * step <= at or first >= count):
            marks += (first, at, first)
        if first >= count:
            return struct.pack(f"={len(marks)}i", *marks) if at == len(data) else None
        try:
            header, at = decode_unsigned(data, at)
        except (IndexError, OverlongVarint):
            return None
        packed = header & 1
        stop = first + (header >> 1) * (8 if packed else 1)
        end = at + ((header >> 1) * width if packed else value_bytes)
        if end > len(data) or stop > LONGEST_RUN:
            return None
        if not packed and int.from_bytes(data[at:end], "little") >= 1 << width:
            return None
        while packed and len(marks) <= 3 * pieces:
            group = -(-max(len(marks) // 3 * step - at, 0) // width)
            if at + group * width >= end:
                break
            marks += (first + 8 * group, at + group * width, stop)
        first, at = stop, end

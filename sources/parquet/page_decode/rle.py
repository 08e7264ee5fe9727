"""Single numbers of the RLE / bit-packing hybrid (parquet-format, Encodings), without decoding the others.

run of one value     varint(count << 1), the value in whole bytes
run of packed ones   varint(groups << 1 | 1), groups of 8 numbers, `width` bits each, lowest bit first
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gnomon.sources.parquet.synthetic_file import decode_hybrid
from gnomon.sources.parquet.thrift import Decoder, ThriftError

RUNS = 64  # runs decoded here; for a page of more, pyarrow is faster than a loop of Python
WIDTH_LIMIT = 32  # bits


Run = tuple[int, int, int, int]  # first number, one after the last; the value of all, or -1; first byte if packed


class TooManyRuns(Exception):
    """More runs than `RUNS`."""


def values_at(data: memoryview, width: int, positions: Sequence[int], limit: int) -> list[int]:
    """The numbers at ascending `positions`. ThriftError where the bytes end before them, or for a number that is not
    below `limit`; ArrowException where pyarrow finds such an error."""
    if not positions:
        return []
    try:
        found = _find_values(data, width, positions)
    except TooManyRuns:
        found = decode_hybrid(data, width, positions[-1] + 1, limit)[np.array(positions)].tolist()
    if max(found) >= limit:
        raise ThriftError(f"index {max(found)} where there are {limit}")
    return found


def flags_at(data: memoryview, positions: Sequence[int]) -> list[tuple[bool, int]]:
    """For numbers of one bit, at each of ascending `positions`: whether it is 1, and the number of ones before it."""
    try:
        return _find_flags(data, positions)
    except TooManyRuns:
        flags = decode_hybrid(data, 1, positions[-1] + 1, 2)
        return [(bool(flags[p]), int(np.count_nonzero(flags[:p]))) for p in positions]


def _find_values(data: memoryview, width: int, positions: Sequence[int]) -> list[int]:
    if width == 0:
        return [0] * len(positions)
    found: list[int] = []
    mask = (1 << width) - 1
    wanted = positions[0]
    for first, stop, value, at in _runs(data, width):
        while wanted < stop:
            if value < 0:
                bit = (wanted - first) * width
                begin, end = at + (bit >> 3), at + ((bit + width + 7) >> 3)
                if end > len(data):
                    raise ThriftError("the bytes end inside a run of packed numbers")
                found.append(int.from_bytes(data[begin:end], "little") >> (bit & 7) & mask)
            else:
                found.append(value)
            if len(found) == len(positions):
                return found
            wanted = positions[len(found)]
    raise ThriftError(f"the runs end before number {positions[len(found)]}")


def _find_flags(data: memoryview, positions: Sequence[int]) -> list[tuple[bool, int]]:
    found: list[tuple[bool, int]] = []
    ones = 0
    wanted = positions[0]
    for first, stop, value, at in _runs(data, 1):
        bits = int.from_bytes(data[at : at + (stop - first >> 3)], "little") if value < 0 else 0
        while wanted < stop:
            within = wanted - first
            if value < 0:
                if at + (within >> 3) >= len(data):
                    raise ThriftError("the bytes end inside a run of packed levels")
                found.append((bool(bits >> within & 1), ones + (bits & (1 << within) - 1).bit_count()))
            else:
                found.append((value == 1, ones + within * value))
            if len(found) == len(positions):
                return found
            wanted = positions[len(found)]
        ones += bits.bit_count() if value < 0 else (stop - first) * value
    raise ThriftError(f"the runs end before level {positions[len(found)]}")


def _runs(data: memoryview, width: int) -> Iterator[Run]:
    decoder = Decoder(data)
    first, value_bytes, limit = 0, (width + 7) >> 3, 1 << width
    for _ in range(RUNS):
        if decoder.position >= len(data):
            return
        header = decoder.varint()
        at = decoder.position
        if header & 1:
            decoder.position = at + (header >> 1) * width
            stop, value = first + (header >> 1) * 8, -1
        else:
            decoder.position = at + value_bytes
            stop, value = first + (header >> 1), int.from_bytes(data[at : at + value_bytes], "little")
            if decoder.position > len(data) or value >= limit:
                raise ThriftError(f"a run of {value} in {width} bits, or a truncated run")
        yield first, stop, value, at
        first = stop
    raise TooManyRuns

"""Run-length encodings (ORC specification v1, "Run Length Encoding"): bytes, booleans, integers of version 1.

Headers are read one by one, since each gives the position of the next; then the values of all runs are made together.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.base.varints import LONGEST_VARINT, OverlongVarint, decode_unsigned_array, from_zigzag_array
from gnomon.sources.orc.bit_packing import Ints, linear, spread
from gnomon.sources.orc.errors import Damage
from gnomon.sources.orc.streams import ByteStream

WINDOW = 64 << 10  # values skipped at a time
LOG = 256  # windows whose runs are remembered: far more than a pending run takes, before which a row index may point
SHORTEST_REPEAT = 3  # values
MOST_LITERALS = 128  # in a run
LITERALS = 128  # the first header of literals; lower ones are of repeats

Values = NDArray[Any]


class RunTable(NamedTuple):
    """Runs of an encoding: the kind, start and number of values of each, and the position after the last."""

    runs: list[Any]
    starts: list[int]
    lengths: list[int]
    after: int


class Encoding(Protocol):
    """A run-length encoding."""

    empty: Values

    def walk(self, data: bytes, position: int, wanted: int) -> RunTable:
        """The whole runs from `position` on, until they have `wanted` values or the data ends."""

    def decode(self, data: bytes, runs: Sequence[Any], lengths: Sequence[int]) -> Values:
        """The values of runs."""


class Runs:
    """The values of a run-length encoded stream, in order."""

    def __init__(self, source: ByteStream, encoding: Encoding, skip: int = 0) -> None:
        """`skip`: values to skip at the start, from a position of the row index within runs."""
        self.source = source
        self._encoding = encoding
        self._held = encoding.empty  # decoded, but not yet returned
        self._log: deque[tuple[Ints, Ints]] = deque(maxlen=LOG)  # coordinates of runs, ordinals of their first values
        self.given = self._found = -skip  # values returned, and values of all runs found
        self.skip(skip)

    def read(self, count: int) -> Values:
        """The next `count` values."""
        parts, have = [self._held], len(self._held)
        while have < count:
            parts.append(self._window(count - have, 0))
            have += len(parts[-1])
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._held = values[count:]
        self.given += count
        return values[:count]

    def skip(self, count: int) -> None:
        """Skip the next `count` values. Whole runs among them are not decoded."""
        target = self.given + count
        passed = min(count, len(self._held))
        self._held = self._held[passed:]
        self.given += passed
        while self.given < target:
            missing = target - self.given
            self._held = self._window(min(missing, WINDOW), missing)
            passed = min(target - self.given, len(self._held))
            self._held = self._held[passed:]
            self.given += passed

    def first_value_of(self, coordinate: int) -> int:
        """The ordinal of the first value of the run that begins at `coordinate`; -1 if none begins there."""
        if coordinate == self.source.coordinate:
            return self._found
        for coordinates, firsts in reversed(self._log):
            slot = int(np.searchsorted(coordinates, coordinate))
            if slot < len(coordinates) and coordinates[slot] == coordinate:
                return int(firsts[slot])
        return -1

    def _window(self, wanted: int, unwanted: int) -> Values:
        """More values. Whole runs among the first `unwanted` ones are skipped and counted as returned."""
        source = self.source
        walked = self._encoding.walk(source.data, source.position, wanted)
        while not walked.runs:
            if not source.fill():
                raise Damage(f"a stream ends {wanted} values early")
            walked = self._encoding.walk(source.data, source.position, wanted)
        runs, starts, lengths, after = walked
        if source.tracked:
            coordinates = np.array(starts, dtype=np.int64) + (source.coordinate - source.position)
            counts = np.array(lengths, dtype=np.int64)
            self._log.append((coordinates, np.cumsum(counts) - counts + self._found))
        self._found += sum(lengths)
        whole = 0
        while whole < len(runs) and lengths[whole] <= unwanted:
            unwanted -= lengths[whole]
            self.given += lengths[whole]
            whole += 1
        values = self._encoding.decode(source.data, runs[whole:], lengths[whole:])
        source.position = after
        return values


class ByteRuns:
    """Bytes: a repeated byte, or literals."""

    empty: Values = np.empty(0, np.uint8)

    def walk(self, data: bytes, position: int, wanted: int) -> RunTable:
        runs: list[tuple[bool, int]] = []
        starts, lengths, total, end = [], [], 0, len(data)
        while total < wanted and position < end:
            header = data[position]
            literal = header >= LITERALS
            length = 256 - header if literal else header + SHORTEST_REPEAT
            after = position + 1 + (length if literal else 1)
            if after > end:
                break
            runs.append((literal, position + 1))
            starts.append(position)
            lengths.append(length)
            total += length
            position = after
        return RunTable(runs, starts, lengths, position)

    def decode(self, data: bytes, runs: Sequence[tuple[bool, int]], lengths: Sequence[int]) -> Values:
        parts = [
            data[at : at + length] if literal else data[at : at + 1] * length
            for (literal, at), length in zip(runs, lengths, strict=True)
        ]
        return np.frombuffer(b"".join(parts), np.uint8)


class Booleans:
    """Booleans: eight in a byte of `ByteRuns`, the first in the highest bit."""

    def __init__(self, source: ByteStream, skip_bytes: int = 0, skip_bits: int = 0) -> None:
        self.source = source
        self.bytes = Runs(source, ByteRuns(), skip_bytes)
        self._spare: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.given = -skip_bits
        self.skip(skip_bits)

    def read(self, count: int) -> NDArray[np.bool_]:
        """The next `count` values."""
        self.given += count
        spare = self._spare
        if count > len(spare):
            more = np.unpackbits(self.bytes.read((count - len(spare) + 7) // 8)).view(np.bool_)
            spare = np.concatenate((spare, more)) if len(spare) else more
        self._spare = spare[count:]
        return spare[:count]

    def skip(self, count: int) -> None:
        """Skip the next `count` values."""
        whole = max(count - len(self._spare), 0) // 8
        if whole:
            count -= len(self._spare) + 8 * whole
            self.given += len(self._spare) + 8 * whole
            self._spare = self._spare[:0]
            self.bytes.skip(whole)
        while count:
            self.read(min(count, WINDOW))
            count -= min(count, WINDOW)

    def first_value_of(self, coordinate: int, skip_bytes: int) -> int:
        """The ordinal of the value in the highest bit of the byte that lies `skip_bytes` after a run's first."""
        before = self.bytes.first_value_of(coordinate)
        return -1 if before < 0 else (before + skip_bytes) * 8


class IntegersV1:
    """Integers of version 1: a first value and a step, or literal varints."""

    empty: Values = np.empty(0, np.int64)

    def __init__(self, signed: bool) -> None:
        self._signed = signed

    def walk(self, data: bytes, position: int, wanted: int) -> RunTable:
        end = min(len(data), position + (wanted + MOST_LITERALS) * (LONGEST_VARINT + 1))
        last_bytes = np.flatnonzero(np.frombuffer(data, np.uint8, end - position, position) < 0x80) + position
        find = last_bytes.searchsorted
        # last bytes of all varints; then of the run: how many, last one, start
        runs: list[tuple[Ints, int, int, int]] = []
        starts, lengths, total = [], [], 0
        while total < wanted and position < end:
            header = data[position]
            literal = header >= LITERALS
            length = 256 - header if literal else header + SHORTEST_REPEAT
            own = length if literal else 1
            begin = position + (1 if literal else 2)
            slot = int(find(begin)) + own - 1
            if slot >= len(last_bytes):
                break
            runs.append((last_bytes, own, slot, begin))
            starts.append(position)
            lengths.append(length)
            total += length
            position = int(last_bytes[slot]) + 1
        return RunTable(runs, starts, lengths, position)

    def decode(self, data: bytes, runs: Sequence[tuple[Ints, int, int, int]], lengths: Sequence[int]) -> Values:
        if not runs:
            return self.empty
        octets = np.frombuffer(data, np.uint8)
        last_bytes = runs[0][0]
        own, slots, begins = (np.array(each, dtype=np.int64) for each in zip(*(run[1:] for run in runs), strict=True))
        places = spread(slots - own + 1, own)
        starts = last_bytes[places - 1] + 1
        starts[np.cumsum(own) - own] = begins
        try:
            found = decode_unsigned_array(octets, starts)
        except OverlongVarint as error:
            raise Damage(str(error)) from None
        bases = from_zigzag_array(found) if self._signed else found.view(np.int64)
        # A run of n literals counts as n runs of one value.
        repeats = np.array(lengths, dtype=np.int64) != own
        steps, counts = np.zeros(len(bases), np.int64), np.ones(len(bases), np.int64)
        repeated = (np.cumsum(own) - own)[repeats]
        steps[repeated] = octets[begins[repeats] - 1].view(np.int8)
        counts[repeated] = np.array(lengths, dtype=np.int64)[repeats]
        return linear(bases, steps, counts)

"""Run-length encodings of bytes, booleans and integers of both versions (ORC specification v1, "Run Length Encoding").

Headers are read one by one, since each gives the position of the next; then the values of all runs are made together.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.base.varints import (
    LONGEST_VARINT,
    OverlongVarint,
    decode_unsigned,
    decode_unsigned_array,
    from_zigzag,
    from_zigzag_array,
)
from gnomon.sources.orc.streams import ByteStream, Damage

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
WINDOW = 64 << 10  # values skipped at a time
LOG = 256  # windows whose runs are remembered: far more than a pending run takes, before which a row index may point
SHORTEST_REPEAT = 3  # values
MOST_LITERALS = 128  # in a run
LITERALS = 128  # the first header of literals; lower ones are of repeats

Values = NDArray[Any]
SHORT_REPEAT, DIRECT, PATCHED_BASE, DELTA = range(4)  # the two highest bits of a header
WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # bits of a number, by the five bits that encode them
PATCH_WIDTHS = [next(width for width in WIDTHS if width >= bits) for bits in range(1, 65)]
MASK = (1 << 64) - 1


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


def spread(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1 ... for each run; the runs are concatenated."""
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


class Run(NamedTuple):
    """Numbers of `width` bits from `begin` on. For a short repeat and a delta: the first value and the step."""

    kind: int
    width: int
    begin: int
    base: int = 0
    step: int = 0
    patch_width: int = 0
    gap_width: int = 0
    patches: int = 0


class IntegersV2:
    """Integers of version 2: short repeats, direct, patched and delta runs."""

    empty: Values = np.empty(0, np.int64)

    def __init__(self, signed: bool) -> None:
        self._signed = signed

    def walk(self, data: bytes, position: int, wanted: int) -> RunTable:
        runs: list[Run] = []
        starts, lengths, total = [], [], 0
        try:
            while total < wanted:
                header = data[position]
                kind = header >> 6
                if kind == SHORT_REPEAT:
                    width = (header >> 3 & 7) + 1
                    length = (header & 7) + 3
                    begin, after = position + 1, position + 1 + width
                    run = Run(kind, 0, begin, self._number(data[begin:after]))
                else:
                    length = ((header & 1) << 8 | data[position + 1]) + 1
                    width = WIDTHS[header >> 1 & 31]
                    if kind == DIRECT:
                        begin = position + 2
                        run, after = Run(kind, width, begin), begin + (length * width + 7 >> 3)
                    elif kind == DELTA:
                        run, after = self._delta(data, position, width if header >> 1 & 31 else 0, length)
                    else:
                        run, after = _patched(data, position, width, length)
                if after > len(data):
                    break
                runs.append(run)
                starts.append(position)
                lengths.append(length)
                total += length
                position = after
        except IndexError:  # the data ends inside a header
            pass
        except OverlongVarint as error:
            raise Damage(str(error)) from None
        return RunTable(runs, starts, lengths, position)

    def _number(self, data: bytes) -> int:
        raw = int.from_bytes(data, "big")
        return _int64(from_zigzag(raw)) if self._signed else _int64(raw)

    def _delta(self, data: bytes, position: int, width: int, length: int) -> tuple[Run, int]:
        raw, at = decode_unsigned(data, position + 2)
        step, at = decode_unsigned(data, at)
        base = from_zigzag(raw) if self._signed else raw
        run = Run(DELTA, width, at, _int64(base), from_zigzag(step))
        return run, at + (max(length - 2, 0) * width + 7 >> 3)

    def decode(self, data: bytes, runs: Sequence[Run], lengths: Sequence[int]) -> Values:
        counts = np.array(lengths, dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        out = np.empty(int(counts.sum()), np.int64)
        shares: dict[tuple[int, int], list[int]] = defaultdict(list)  # slots of runs by kind and width
        for slot, run in enumerate(runs):
            shares[(DELTA if run.kind == SHORT_REPEAT else run.kind), run.width].append(slot)
        for (kind, _), slots in shares.items():
            share = [runs[slot] for slot in slots]
            own = counts[slots]
            if kind == PATCHED_BASE:
                pairs = zip(share, own.tolist(), strict=True)
                values = np.concatenate([_patch(data, run, length) for run, length in pairs])
            elif kind == DIRECT:
                bits = _unpacked(data, share, own)
                values = from_zigzag_array(bits) if self._signed else bits.view(np.int64)
            else:
                values = _deltas(data, share, own)
            if len(shares) == 1:
                return values
            out[spread(firsts[slots], own)] = values
        return out


def _deltas(data: bytes, runs: Sequence[Run], lengths: Ints) -> Ints:
    bases = np.array([run.base for run in runs], dtype=np.int64)
    steps = np.array([run.step for run in runs], dtype=np.int64)
    if runs[0].width == 0:
        return linear(bases, steps, lengths)
    # A run has the first value, the step to the second, then steps without a sign: their sign is that of the first
    # step. One sum over all runs, in 64 bits that wrap, minus the sum before each run.
    firsts = np.cumsum(lengths) - lengths
    moves = np.empty(int(lengths.sum()), np.int64)
    packed = np.maximum(lengths - 2, 0)
    sizes = _unpacked(data, runs, packed).view(np.int64)
    moves[spread(firsts + 2, packed)] = np.where(np.repeat(steps < 0, packed), -sizes, sizes)
    longer = lengths > 1
    moves[firsts[longer] + 1] = steps[longer]
    moves[firsts] = 0
    sums = np.cumsum(moves)
    values: Ints = sums + np.repeat(bases - sums[firsts], lengths)
    return values


def _unpacked(data: bytes, runs: Sequence[Run], lengths: Ints) -> Words:
    """The numbers of runs of one width, of `lengths` numbers each."""
    width = runs[0].width
    parts = []
    for run, length in zip(runs, lengths.tolist(), strict=True):
        size = length * width + 7 >> 3
        part = data[run.begin : run.begin + size]
        blocks = length + 7 >> 3  # blocks of eight numbers, each of `width` bytes
        parts.append(part if blocks * width == size else part + bytes(blocks * width - size))
    numbers = unpack(b"".join(parts), width)
    padded = lengths + 7 & ~7
    if int(padded.sum()) == int(lengths.sum()):
        return numbers
    return numbers[spread(np.cumsum(padded) - padded, lengths)]


def _patched(data: bytes, position: int, width: int, length: int) -> tuple[Run, int]:
    third, fourth = data[position + 2], data[position + 3]
    begin = position + 4 + (third >> 5) + 1
    raw = int.from_bytes(data[position + 4 : begin], "big")
    top = 1 << 8 * (begin - position - 4) - 1  # the highest bit is the sign, the rest the magnitude
    base = -(raw - top) if raw & top else raw
    run = Run(
        PATCHED_BASE,
        width,
        begin,
        base,
        patch_width=WIDTHS[third & 31],
        gap_width=(fourth >> 5) + 1,
        patches=fourth & 31,
    )
    return run, begin + (length * width + 7 >> 3) + (run.patches * _entry_width(run) + 7 >> 3)


def _entry_width(run: Run) -> int:
    """Bits of an entry of the patch list: a gap and a patch."""
    bits = run.patch_width + run.gap_width
    if bits > 64:
        raise Damage(f"patches of {bits} bits")
    return int(PATCH_WIDTHS[bits - 1])


def _patch(data: bytes, run: Run, length: int) -> Ints:
    values = _unpacked(data, [run], np.array([length]))
    entry, begin = _entry_width(run), run.begin + (length * run.width + 7 >> 3)
    size = run.patches * entry + 7 >> 3
    bits = int.from_bytes(data[begin : begin + size], "big") >> 8 * size - run.patches * entry
    at = 0
    for left in range(run.patches - 1, -1, -1):
        both = bits >> left * entry & (1 << entry) - 1
        at += both >> run.patch_width
        if at >= length:
            raise Damage(f"a patch of value {at} of a run of {length}")
        values[at] |= np.uint64((both & (1 << run.patch_width) - 1) << run.width & MASK)
    return values.view(np.int64) + np.int64(run.base)


def _int64(value: int) -> int:
    """The number in 64 bits that wrap."""
    return ((value + (1 << 63)) & MASK) - (1 << 63)

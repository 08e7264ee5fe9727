"""Integers of run-length encoding version 2 (ORC specification v1, "Integer Run Length Encoding, version 2")."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gnomon.base.varints import OverlongVarint, decode_unsigned, from_zigzag, from_zigzag_array
from gnomon.sources.orc.bit_packing import Ints, Words, linear, spread, unpack
from gnomon.sources.orc.errors import Damage
from gnomon.sources.orc.rle_v1 import RunTable, Values

SHORT_REPEAT, DIRECT, PATCHED_BASE, DELTA = range(4)  # the two highest bits of a header
WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # bits of a number, by the five bits that encode them
PATCH_WIDTHS = [next(width for width in WIDTHS if width >= bits) for bits in range(1, 65)]
MASK = (1 << 64) - 1


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

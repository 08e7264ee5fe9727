"""Calls each compiled loop with sound and with damaged bytes and numbers, and compares it with its twin in Python.

`deploy/fuzz-kernel.sh SECONDS SEED` runs it with the loops compiled for AddressSanitizer and UBSan; so it imports
nothing of the tests. It ends with exit code 1 where a loop and its twin differ."""

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import cramjam
import numpy as np

from gnomon.base import hashes_python, kernel_python, records_python
from gnomon.base.varints import encode_signed, encode_unsigned

try:
    from gnomon.base import _hashes, _kernel, _records
except ImportError:  # no C compiler
    _hashes = _kernel = _records = None  # type: ignore[assignment]

Call = tuple[str, tuple[Any, ...]]  # name of a function and its arguments
REFUSED = (ValueError, IndexError, OverflowError, TypeError, struct.error)
ODD = (-(1 << 63), -(1 << 31), -65536, -3, -1, 0, 1, 3, 40, 65, 255, 65536, 1 << 31, 1 << 40, (1 << 63) - 1)
OUTPUTS = {0: np.int64, 1: np.int64, 2: np.uint8, 3: np.float32, 4: np.float64}  # arrays of the kinds of fields


def damaged(dice: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
        if not out:
            break
        at, way = dice.randrange(len(out)), dice.random()
        if way < 0.5:
            out[at] ^= 1 << dice.randrange(8)
        elif way < 0.7:
            out[at] = dice.choice((0, 255, 254, 0xFC, 0xF0, 0xF4, dice.randrange(256)))
        elif way < 0.8:
            del out[at:]
        elif way < 0.9:
            del out[at : at + dice.choice((1, 2, 5))]
        else:
            out[at:at] = dice.randbytes(dice.choice((1, 4)))
    return bytes(out)


def odd(dice: random.Random, number: int) -> int:
    """A number as a file may claim it."""
    return number if dice.random() < 0.8 else dice.choice((*ODD, number + 1, number - 1, dice.randint(0, 200_000)))


def content(dice: random.Random) -> bytes:
    few = dice.random() < 0.95
    size = dice.choice((0, 1, 5, 100, 1000, 3000) if few else (65535, 65536, 65537, 140_000))
    if dice.random() < 0.4:
        pattern = dice.randbytes(dice.choice((1, 3, 9, 17, 100, 1 << 17)))
        return (pattern * (size // len(pattern) + 1))[:size]
    out = bytearray()
    while len(out) < size:
        back = dice.randint(1, 70_000)
        out += dice.choice((dice.randbytes(dice.randint(0, 300)), b"a" * dice.randint(0, 500), out[-back:][:100]))
    return bytes(out[:size])


def hybrid(dice: random.Random, width: int) -> tuple[bytes, int]:
    """Runs, and the count of their numbers."""
    out, total = b"", 0
    for _ in range(dice.choice((1, 2, 5, 30))):
        if dice.random() < 0.5:
            count = dice.choice((1, 3, 8, 100, 5000))
            out += encode_unsigned(count << 1) + dice.getrandbits(width or 1).to_bytes((width + 7) // 8 or 1, "little")
            total += count
        else:
            groups = dice.choice((1, 2, 10, 40))
            out += encode_unsigned(groups << 1 | 1) + dice.randbytes(groups * width)
            total += 8 * groups
    return out, total


def snappy_calls(dice: random.Random) -> Iterator[Call]:
    whole = content(dice)
    data = damaged(dice, bytes(cramjam.snappy.compress_raw(whole)))
    at = odd(dice, len(encode_unsigned(len(whole))))
    yield "unpack_snappy", (data, at, odd(dice, len(whole)))
    end = dice.choice((len(data), odd(dice, dice.randint(0, len(data)))))
    yield "unpack_fragments", (data, at, end, odd(dice, dice.choice((len(whole), dice.randint(0, len(whole) + 1)))))


def array_calls(dice: random.Random) -> Iterator[Call]:
    large = 70_000 if dice.random() < 0.02 else 4
    sizes = [dice.choice((0, 1, 9, 300, large)) for _ in range(dice.choice((0, 1, 5, 60)))]
    lead = dice.choice((0, 0, 5))
    whole = dice.randbytes(lead) + b"".join(struct.pack("<I", size) + dice.randbytes(size) for size in sizes)
    data, count = damaged(dice, whole), odd(dice, len(sizes))
    yield "byte_array_marks", (data, odd(dice, lead), count)
    few = min(count, 1 << 20)  # a loop over more takes long in Python
    numbers = sorted(dice.sample(range(len(sizes)), dice.randint(0, len(sizes))))
    wanted = [odd(dice, number) for number in numbers]
    yield "byte_arrays", (data, odd(dice, lead), wanted, few, odd(dice, len(whole)))


def hybrid_calls(dice: random.Random) -> Iterator[Call]:
    width = dice.choice((0, 1, 1, 2, 3, 7, 8, 9, 13, 17, 24, 31, 32))
    whole, total = hybrid(dice, width)
    data, runs = damaged(dice, whole), dice.choice((1 << 30, 64, 2, 0))
    positions = sorted(dice.randint(0, total + dice.choice((0, 0, 20))) for _ in range(dice.choice((1, 2, 9))))
    if dice.random() < 0.1:
        positions = [odd(dice, position) for position in positions]
    yield "hybrid_values", (data, odd(dice, width), positions, runs)
    yield "hybrid_flags", (data, positions, runs)
    step = dice.choice((4096, 65536, odd(dice, 4096) % (1 << 31)))
    lead = dice.randint(0, 20)
    yield "hybrid_marks", (dice.randbytes(lead) + data, odd(dice, lead), odd(dice, width), odd(dice, total), step)


def hash_calls(dice: random.Random) -> Iterator[Call]:
    yield "murmur3", (dice.randbytes(dice.choice((0, 1, 3, 4, 31, 33))), dice.getrandbits(32))
    sizes = [dice.choice((0, 1, 7, 8, 31, 32, 65)) for _ in range(dice.choice((0, 1, 5)))]
    data = np.frombuffer(dice.randbytes(sum(sizes)), np.uint8)
    offsets = np.array([0, *np.cumsum(sizes)], np.int64)
    if dice.random() < 0.2:
        offsets[dice.randrange(len(offsets))] = dice.choice(ODD)
    yield "murmur3_texts", (data, offsets, np.full(len(sizes), 42, np.uint32))
    yield "xxh64_texts", (data, offsets, np.full(len(sizes), 42, np.uint64))
    rows = dice.choice((0, 1, 5))
    words = np.frombuffer(dice.randbytes(rows * dice.choice((4, 8)) + dice.choice((0, 0, 3))), np.uint8)
    yield "murmur3_words", (words, np.full(rows, 42, np.uint32))
    yield "xxh64_words", (words, np.full(rows, 42, np.uint64))
    forms = bytes(dice.choices(b"iqfdn", k=dice.choice((0, 1, 1, 3))))
    yield "hash_key", (tuple(_stored(dice, form) for form in forms), forms + b"q" * (dice.random() < 0.1))
    blocks, bits = dice.choice((1, 3, 200)), dice.choice((dice.randbytes, lambda size: b"\xff" * size))
    first = dice.choice((0, 0, 1, 100))
    data = bits(32 * dice.choice((max(blocks - first, 0), blocks, 1)))
    yield "may_hold", (data, odd(dice, first), odd(dice, blocks), dice.getrandbits(64) - (1 << 63))


def _stored(dice: random.Random, form: int) -> object:
    if dice.random() < 0.4:
        return dice.choice((None, "", "\u00e9", "k" * 40, b"", dice.randbytes(33), True))
    if form in b"fd":
        return dice.choice((0.0, -0.0, 0.5, -1.0, float("nan"), -float("inf")))
    least = {ord("i"): -(1 << 31), ord("q"): -(1 << 63)}.get(form, -(1 << 120))
    return dice.choice((least, -1 - least, -1, 0, 127, 128, dice.randint(least, -1 - least)))


def records(dice: random.Random) -> tuple[bytes, int, bytes, int]:
    """Records of random fields and their number, the plan of the fields, and the number of columns."""
    columns = dice.randint(1, 4)
    kinds, nones = dice.choices(range(6), k=columns), dice.choices((255, 0, 1), k=columns)
    plan = bytes(x for place, (kind, none) in enumerate(zip(kinds, nones, strict=True)) for x in (kind, none, place))
    out, rows = b"", dice.choice((0, 1, 2, 30))
    for _ in range(rows):
        for kind, none in zip(kinds, nones, strict=True):
            if none != 255:
                is_null = dice.random() < 0.2
                out += bytes([2 * none if is_null else 2 - 2 * none])
                if is_null:
                    continue
            if kind == 0:
                out += encode_signed(dice.choice((*ODD, dice.randint(-1000, 1000))))
            elif kind in (1, 5):
                size = dice.choice((0, 1, 9, 20))
                out += encode_signed(size) + dice.randbytes(size)
            else:
                out += {2: bytes([dice.randrange(2)]), 3: struct.pack("<f", 0.5), 4: struct.pack("<d", -1.0)}[kind]
        out += b"\0" if dice.random() < 0.5 else b"\2" + encode_signed(dice.choice(ODD))
    return out, rows, plan + bytes((6, 0, 255)), columns


def frame_calls(dice: random.Random) -> Iterator[Call]:
    sync, data, offsets, begin = dice.randbytes(4), b"", list[int](), dice.choice((0, 7))
    for _ in range(dice.randrange(4)):
        offsets.append(begin + len(data))
        payload = dice.randbytes(dice.choice((1, 3, 200)))
        data += encode_signed(dice.choice((1, 5, 300))) + encode_signed(len(payload)) + payload + sync
    if dice.random() < 0.3:
        offsets.insert(dice.randint(0, len(offsets)), dice.randint(0, len(data) + 20))
    limits = dice.choice(((1 << 20, 1 << 26), (5, 100)))
    yield "block_frames", (damaged(dice, data), begin, sync, offsets, dice.choice((0, 0, 1)), *limits)


def record_calls(dice: random.Random) -> Iterator[Call]:
    whole, rows, plan, columns = records(dice)
    data, rows = damaged(dice, whole), min(odd(dice, rows), 300)
    yield "locate", (data, rows, 0, dice.random() < 0.7, plan, columns)
    stored = bytes({0: 8, 1: 7}.get(x, x) if place % 3 == 0 else x for place, x in enumerate(plan))
    yield "locate", (data, rows, 0, dice.random() < 0.7, stored, columns)
    if rows >= 0 and 5 not in plan[::3]:
        counts, sizes = np.full(1, rows, np.int64), np.full(1, odd(dice, len(data)), np.int64)
        if 0 <= sizes[0] <= len(data):  # the twin, which keeps to its cursors, has no use for others
            yield "record_columns", (data, counts, sizes, plan, _outputs(plan, rows), np.zeros(1, np.uint8))


def _outputs(plan: bytes, rows: int) -> list[records_python.Output | None]:
    return [
        records_python.Output(
            np.zeros(rows, OUTPUTS[kind]), np.zeros(rows, np.int64) if kind == 1 else None, np.ones(rows, np.uint8)
        )
        for kind in plan[:-3:3]
    ] + [None]


def walk(dice: random.Random) -> None:
    """Use all of `RecordKeys`, which has no twin: no more than that it stays within its bytes."""
    whole, rows, plan, columns = records(dice)
    try:
        keys = _records.RecordKeys(damaged(dice, whole), odd(dice, rows), plan, columns)
    except REFUSED:
        return
    keys.is_sorted()
    if keys.count:
        keys.next_link(0)
        keys.is_ordered(0, keys, keys.count - 1)
        [keys.link(record) for record in range(keys.count)]
        _descend(dice, keys, whole, rows, plan, columns)
    _match(dice, keys, whole, rows, plan, columns)


def _match(dice: random.Random, keys: Any, whole: bytes, rows: int, plan: bytes, columns: int) -> None:
    """Keys of any bytes, in no order, in leaves of any bytes."""
    leaves, count = list[Any](), dice.randrange(1, 4)
    for _ in range(count):
        leaves.append(damaged(dice, whole))
        with suppress(*REFUSED):
            leaves[-1] = _records.RecordKeys(leaves[-1], rows, plan, columns)
    ends = np.array([dice.choice((0, 1, keys.count, odd(dice, rows))) for _ in leaves])
    counts = np.array([odd(dice, rows) for _ in leaves])
    spans = (np.minimum(ends, dice.randrange(3)), ends)
    fences = dice.choice((keys, _records.RecordKeys(b"", 0, plan, columns)))
    below, hits = np.array([dice.randrange(-1, 3) for _ in leaves]), np.zeros(count, np.int64)
    limits = dice.choice((None, keys))
    for _ in range(2):  # the second time, leaves are known
        with suppress(*REFUSED):
            found = keys.match(leaves, counts, plan, *spans, fences, below, dice.random() < 0.5, limits, hits)
            assert found is None or len(found[0]) == 8 * hits.sum()
        with suppress(*REFUSED):
            keys.places(fences, np.zeros(keys.count, np.int64), np.zeros(dice.choice((0, keys.count)), np.int64))


def _descend(dice: random.Random, root: Any, whole: bytes, rows: int, plan: bytes, columns: int) -> None:
    """A path through nodes of any bytes, at any offsets."""
    size, blocks = dice.choice((10, 1000, 1 << 40)), list[Any]()
    for _ in range(3):
        with suppress(*REFUSED):
            keys = _records.RecordKeys(damaged(dice, whole), rows, plan, columns)
            blocks.append(SimpleNamespace(node=SimpleNamespace(keys=keys), end=dice.choice((0, 5, 900, 1 << 30))))
    first = SimpleNamespace(node=SimpleNamespace(keys=root), end=0)
    key = tuple(dice.choice((None, 0, -1, 1 << 70, 0.5, b"", b"a", "\u00e9")) for _ in range(columns))
    sizes = (size, dice.random() < 0.5, dice.choice((0, 5000, 1 << 40)), dice.choice((0, 10, 1 << 40)))
    with suppress(*REFUSED, AttributeError):  # a key of other types
        root.descend(key, first, {}, lambda *_: dice.choice([*blocks, first]), SimpleNamespace(nodes=0), *sizes)


def ended(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The result of a call as text, with the arrays that it filled; "refused" for an error about its arguments."""
    own = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    outputs: list[records_python.Output | None] = []
    if function.__name__ == "record_columns":
        outputs = own[4] = _outputs(own[3], int(own[1][0]))
    try:
        found = function(*own)
    except REFUSED:
        return "refused"
    if found is False:
        return "False"  # some of the arrays are filled
    parts = [part for output in outputs if output is not None for part in output if part is not None]
    return repr((found, [array.tolist() for array in (*own, *parts) if isinstance(array, np.ndarray)]))


CALLS = (snappy_calls, array_calls, hybrid_calls, hash_calls, frame_calls, record_calls)


def fuzz(seconds: float, seed: int, rounds: int | None = None) -> tuple[Counter[str], list[str]]:
    """`(calls by function, differences)`"""
    dice, end, tried, wrong = random.Random(seed), time.monotonic() + seconds, Counter[str](), list[str]()
    pairs = ((_kernel, kernel_python), (_hashes, hashes_python), (_records, records_python))
    while time.monotonic() < end and (rounds is None or tried["rounds"] < rounds):
        tried["rounds"] += 1
        walk(dice)
        for make in CALLS:
            for name, arguments in make(dice):
                compiled, twin = next((one, two) for one, two in pairs if hasattr(one, name))
                found, expected = ended(getattr(compiled, name), arguments), ended(getattr(twin, name), arguments)
                tried[name] += 1
                # "False" sends the caller to the careful reader. The twin lets varints of more than 64 bits pass.
                if found != expected and found != "False":
                    wrong.append(f"{name}: {found[:200]}, in Python {expected[:200]}; {repr(arguments)[:400]}")
    return tried, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    chosen = parser.parse_args()
    print(_kernel.__file__, flush=True)
    calls, differences = fuzz(chosen.seconds, chosen.seed)
    print(*differences[:10], ", ".join(f"{count:,} {name}" for name, count in calls.items()), sep="\n")
    sys.exit(1 if differences else 0)

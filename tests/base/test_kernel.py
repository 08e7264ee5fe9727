"""The loops of the kernel: compiled or in Python, the answers are the same, for sound and for damaged bytes."""

import os
import random
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh64_intdigest

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.base.varints import decode_unsigned, encode_unsigned
from tests.base.kernel_fuzz import fuzz
from tests.loops import WAYS, loops_of
from tests.profiles import examples

COMPILER = shutil.which("gcc") or shutil.which("cc")
HEADERS = Path(sysconfig.get_path("include"), "Python.h").is_file()
SNAPPY = pa.Codec("snappy")


def compiled() -> SimpleNamespace:
    return loops_of("compiled")


@pytest.fixture(params=WAYS)
def loops(request: pytest.FixtureRequest) -> SimpleNamespace:
    return loops_of(request.param)


def content_of(dice: random.Random, size: int) -> bytes:
    """Bytes that snappy packs with literals and with copies of all kinds."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < size:
        kinds = (dice.randbytes(dice.randint(1, 100)), bytes(dice.randint(1, 300)), b"abcd" * dice.randint(1, 40))
        parts.append(dice.choice([*kinds, dice.choice(parts or [b"x"])]))
    return b"".join(parts)[:size]


def packed(content: bytes) -> tuple[bytes, int]:
    """`(stream, position after its length)`."""
    stream = SNAPPY.compress(content, asbytes=True)
    return stream, decode_unsigned(stream, 0)[1]


def literal(data: bytes) -> bytes:
    return bytes([62 << 2]) + (len(data) - 1).to_bytes(3, "little") + data


def copy(offset: int, length: int) -> bytes:
    return bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little")


@pytest.mark.skipif(not (COMPILER and HEADERS), reason="needs a C compiler and Python's headers")
def test_where_there_is_a_compiler_the_loops_are_compiled() -> None:
    assert kernel.COMPILED or os.environ.get(kernel.VARIABLE) == "python"


def test_both_have_the_same_functions_in_the_same_version() -> None:
    for name, twin in kernel.TWINS.items():
        assert pytest.importorskip(name).VERSION == twin.VERSION
    for name in kernel.NAMES:
        assert callable(getattr(loops_of("python"), name))
        assert callable(getattr(compiled(), name))


@pytest.mark.process
def test_a_variable_chooses_python() -> None:
    program = "from gnomon.base import kernel; assert not kernel.COMPILED; print(kernel.unpack_snappy.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, kernel.VARIABLE: "python"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "gnomon.base.kernel_python"


@pytest.mark.parametrize("size", [0, 1, 100, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 3 * FRAGMENT + 5])
def test_a_stream_gives_its_content_and_each_fragment_alone(loops: SimpleNamespace, size: int) -> None:
    content = content_of(random.Random(size), size)
    stream, at = packed(content)
    found, starts = loops.unpack_snappy(stream, at, size)
    assert found == content
    bounds = struct.unpack(f"={len(starts) // 4}i", starts)
    assert (len(bounds), bounds[-1]) == (-(-size // FRAGMENT) + 1, len(stream))
    for number, (begin, end) in enumerate(pairwise(bounds)):
        part = content[number * FRAGMENT : (number + 1) * FRAGMENT]
        assert loops.unpack_fragments(stream, begin, end, len(part)) == part
        assert loops.unpack_fragments(stream, begin, end, len(part) // 3) == part[: len(part) // 3]
        assert loops.unpack_fragments(stream, begin, end, len(part) + 1) is None
        assert loops.unpack_fragments(stream, begin, len(stream), len(content) - number * FRAGMENT) is not None


def test_a_copy_from_before_its_fragment_leaves_no_fragments(loops: SimpleNamespace) -> None:
    head = bytes(range(256)) * 256
    for offset, alone in ((100, True), (101, False)):
        stream = literal(head) + literal(b"x" * 100) + copy(offset, 10)
        content, starts = loops.unpack_snappy(stream, 0, FRAGMENT + 110)
        assert content == head + b"x" * 100 + (head + b"x" * 100)[-offset:][:10]
        assert (starts is not None) == alone


def test_an_element_in_two_fragments_leaves_no_fragments(loops: SimpleNamespace) -> None:
    for tail in (b"", literal(b"y" * 10)):
        data = bytes(FRAGMENT + 1)
        content, starts = loops.unpack_snappy(literal(data) + tail, 0, len(data) + 10 * bool(tail))
        assert content == data + b"y" * 10 * bool(tail)
        assert starts is None


def test_damaged_streams_give_the_same_answers_both_ways() -> None:
    both, dice, sound = (loops_of("python"), compiled()), random.Random(7), 0
    for _ in range(examples(2000)):
        content = content_of(dice, dice.choice([3, 40, 500, 5000, FRAGMENT + 300]))
        stream, at = packed(content)
        data, size = bytearray(stream), len(content)
        for _ in range(dice.randint(0, 3)):
            data[dice.randrange(at, len(data))] = dice.randrange(256)
        if dice.random() < 0.2:
            size += dice.randint(-3, FRAGMENT)
        found, other = (one.unpack_snappy(bytes(data), at, size) for one in both)
        assert found == other
        sound += found[0] is not None
        begin, end = sorted((dice.randint(0, len(data)), dice.randint(0, len(data))))
        wanted = dice.randint(0, size)
        part, other_part = (one.unpack_fragments(bytes(data), begin, end, wanted) for one in both)
        assert part == other_part
    assert 0 < sound < examples(2000)


def byte_arrays(dice: random.Random, count: int, longest: int) -> list[bytes]:
    values = [dice.randbytes(dice.randint(0, longest)) for _ in range(count)]
    return [len(value).to_bytes(4, "little") + value for value in values]


@pytest.mark.parametrize(("count", "longest"), [(0, 0), (1, 5), (5000, 60), (40, 9000), (4, 200_000), (70_000, 0)])
def test_marks_show_where_byte_arrays_begin(loops: SimpleNamespace, count: int, longest: int) -> None:
    values = byte_arrays(random.Random(count), count, longest)
    lead = b"levels"
    data = lead + b"".join(values)
    starts = [len(lead)]
    for value in values:
        starts.append(starts[-1] + len(value))
    marks = loops.byte_array_marks(data, len(lead), count)
    numbers = struct.unpack(f"={len(marks) // 4}i", marks)
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(pairs) == -(-len(data) // FRAGMENT) + 1
    for piece, (first, at) in enumerate(pairs):
        assert starts[first] == at
        assert at >= min(piece * FRAGMENT, len(data))
        assert first == 0 or starts[first - 1] < piece * FRAGMENT
    for wrong in (count - 1, count + 1):
        assert wrong < 0 or loops.byte_array_marks(data, len(lead), wrong) is None
    assert not values or loops.byte_array_marks(data[:-1], len(lead), count) is None
    for wanted in ([], [0], sorted({0, count // 2, count - 1}), list(range(count))) if count else ([],):
        assert loops.byte_arrays(data, len(lead), wanted, count, len(data)) == [values[number] for number in wanted]
        assert loops.byte_arrays(data, len(lead), wanted, count, len(data) + 1) is None
        assert loops.byte_arrays(data, len(lead), [*wanted, count], count, len(data)) is None


def test_a_changed_length_among_byte_arrays_is_noticed_both_ways() -> None:
    both, dice = (loops_of("python"), compiled()), random.Random(9)
    for _ in range(examples(2000)):
        count = dice.randint(1, 20)
        values = byte_arrays(dice, count, dice.choice([0, 3, 300]))
        data, wanted = bytearray(b"".join(values)), sorted(dice.sample(range(count), dice.randint(1, count)))
        changed = dice.randrange(count)
        at = len(b"".join(values[:changed])) + dice.choice([0, 0, 0, 1, 3])
        before = data[at]
        data[at] = dice.randrange(256)
        cut = len(data) - dice.choice([0, 0, dice.randint(0, len(values[-1]))])
        answers = [one.byte_arrays(bytes(data[:cut]), 0, wanted, count, len(data)) for one in both]
        assert answers[0] == answers[1]
        marks = [one.byte_array_marks(bytes(data), 0, count) for one in both]
        assert marks[0] == marks[1]
        if data[at] != before and cut == len(data):
            assert answers[0] is None
            assert marks[0] is None


def hybrid(dice: random.Random, width: int) -> tuple[bytes, list[int]]:
    """Bytes of the RLE / bit-packing hybrid, and their numbers."""
    parts, numbers = [], []
    for _ in range(dice.randint(0, 8)):
        count = dice.randint(0, 9)
        if dice.random() < 0.5:
            packed_ones = [dice.randrange(1 << width) for _ in range(8 * count)]
            bits = sum(number << (width * place) for place, number in enumerate(packed_ones))
            parts.append(encode_unsigned(count << 1 | 1) + bits.to_bytes(count * width, "little"))
            numbers += packed_ones
        else:
            number = dice.randrange(1 << width)
            parts.append(encode_unsigned(count << 1) + number.to_bytes((width + 7) // 8, "little"))
            numbers += [number] * count
    return b"".join(parts), numbers


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 17, 31, 32])
def test_numbers_of_a_hybrid_are_found_at_their_positions(loops: SimpleNamespace, width: int) -> None:
    dice = random.Random(width)
    for _ in range(examples(300)):
        data, numbers = hybrid(dice, width)
        positions = sorted(dice.sample(range(len(numbers)), min(len(numbers), dice.randint(1, 6))))
        if positions:
            assert loops.hybrid_values(data, width, positions, 100) == [numbers[at] for at in positions]
            if width == 1:
                flags = [(numbers[at] == 1, sum(numbers[:at])) for at in positions]
                assert loops.hybrid_flags(data, positions, 100) == flags
        with pytest.raises(ValueError, match=f"the runs end before number {len(numbers)}"):
            loops.hybrid_values(data, width, [len(numbers)], 100)
    assert loops.hybrid_values(b"", 0, [5, 6], 0) == [0, 0]
    assert loops.hybrid_values(b"\x02\x00\x02\x00\x02\x00" if width < 9 else b"\x02" + bytes(9), width, [2], 1) is None


def answer(loop: Callable[..., object], *given: object) -> object:
    try:
        return loop(*given)
    except ValueError as error:
        return str(error)


def test_a_damaged_hybrid_gives_the_same_answer_both_ways() -> None:
    both, dice, refused = (loops_of("python"), compiled()), random.Random(8), 0
    for _ in range(examples(10_000)):
        width = dice.choice([1, 1, 3, 8, 9, 32])
        data = bytearray(hybrid(dice, width)[0]) or bytearray(1)
        for _ in range(dice.randint(0, 2)):
            data[dice.randrange(len(data))] = dice.choice([dice.randrange(256), 0x80, 0xFF])
        part = bytes(data[: dice.randint(0, len(data))])
        positions = sorted(dice.sample(range(80), 3))
        runs = dice.choice([2, 64])
        found = [answer(one.hybrid_values, part, width, positions, runs) for one in both]
        assert found[0] == found[1]
        refused += isinstance(found[0], str)
        flags = [answer(one.hybrid_flags, part, positions, runs) for one in both]
        assert flags[0] == flags[1]
    assert refused > 0


def test_both_hash_alike() -> None:
    dice = random.Random(3)
    for size in range(examples(200)):
        data, seed = dice.randbytes(size), dice.getrandbits(32)
        assert loops_of("python").murmur3(data, seed) == compiled().murmur3(data, seed)


def test_both_hash_columns_alike() -> None:
    dice = random.Random(4)
    for _ in range(examples(60)):
        lengths = [dice.choice([0, 1, 3, 4, 7, 8, 31, 32, 33, 100, 1000]) for _ in range(dice.randint(0, 100))]
        data = np.frombuffer(dice.randbytes(sum(lengths) + 3), np.uint8)
        offsets = np.concatenate([[3], 3 + np.cumsum(lengths)]).astype(np.int64)
        seeds = np.array([dice.getrandbits(32) for _ in lengths], np.uint32)
        ours, theirs = seeds.copy(), seeds.copy()
        loops_of("python").murmur3_texts(data, offsets, ours)
        compiled().murmur3_texts(data, offsets, theirs)
        assert ours.tolist() == theirs.tolist()
        wide = np.array([dice.getrandbits(64) for _ in lengths], np.uint64)
        ours, theirs = wide.copy(), wide.copy()
        loops_of("python").xxh64_texts(data, offsets, ours)
        compiled().xxh64_texts(data, offsets, theirs)
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("width", [4, 8])
def test_a_column_of_numbers_is_hashed_as_the_bytes_of_each(loops: SimpleNamespace, width: int) -> None:
    dice = random.Random(width)
    for rows in (0, 1, 2, 50):
        data = dice.randbytes(width * rows)
        each = [data[i * width : (i + 1) * width] for i in range(rows)]
        short = np.array([dice.getrandbits(32) for _ in each], np.uint32)
        long = np.array([dice.getrandbits(64) for _ in each], np.uint64)
        expected = [loops.murmur3(one, seed) for one, seed in zip(each, short.tolist(), strict=True)]
        of_xxh64 = [xxh64_intdigest(one, seed) for one, seed in zip(each, long.tolist(), strict=True)]
        loops.murmur3_words(np.frombuffer(data, np.uint8), short)
        loops.xxh64_words(np.frombuffer(data, np.uint8), long)
        assert short.tolist() == expected
        assert long.tolist() == of_xxh64
    for size in (1, 7, 12, 17):
        with pytest.raises(ValueError, match=f"{size} bytes for 2 numbers"):
            loops.murmur3_words(np.zeros(size, np.uint8), np.zeros(2, np.uint32))
        with pytest.raises(ValueError, match=f"{size} bytes for 2 numbers"):
            loops.xxh64_words(np.zeros(size, np.uint8), np.zeros(2, np.uint64))


def test_offsets_outside_of_the_data_are_refused() -> None:
    data, hashes = np.zeros(10, np.uint8), np.zeros(2, np.uint64)
    for offsets in ([0, 5, 11], [-1, 5, 10], [0, 6, 5], [0, 10]):
        with pytest.raises(ValueError, match="offsets"):
            compiled().xxh64_texts(data, np.array(offsets, np.int64), hashes)


@pytest.mark.parametrize("step", [64, 4096])
@pytest.mark.parametrize("width", [1, 7, 17, 32])
def test_marks_show_where_numbers_of_a_hybrid_lie(loops: SimpleNamespace, width: int, step: int) -> None:
    dice = random.Random(width)
    for _ in range(examples(200)):
        pieces = [hybrid(dice, width) for _ in range(dice.choice([1, 5, 40]))]
        lead = dice.randbytes(dice.randint(0, 5))
        data = lead + b"".join(piece for piece, _ in pieces)
        numbers = [number for _, found in pieces for number in found]
        marks = loops.hybrid_marks(data, len(lead), width, len(numbers), step)
        if marks is None:  # runs of no numbers at the end
            assert len(data) > len(lead)
            continue
        triples = list(zip(*[iter(struct.unpack(f"={len(marks) // 4}i", marks))] * 3, strict=True))
        assert len(triples) == -(-len(data) // step) + 1
        assert triples[-1] == (len(numbers), len(data), len(numbers))
        for piece, (first, at, stop) in enumerate(triples):
            assert at >= min(piece * step, len(data))
            if stop > first:
                bits = int.from_bytes(data[at : at + (stop - first) // 8 * width], "little")
                assert [bits >> (width * i) & (1 << width) - 1 for i in range(stop - first)] == numbers[first:stop]
            after = data[at + (stop - first) // 8 * width :]
            positions = list(range(min(len(numbers) - stop, 20)))
            assert not positions or loops.hybrid_values(after, width, positions, 1000) == numbers[stop:][:20]
        assert loops.hybrid_marks(data, len(lead), width, len(numbers) + 1, step) is None
        assert not numbers or loops.hybrid_marks(data[:-1], len(lead), width, len(numbers), step) is None


def test_marks_of_a_damaged_hybrid_are_the_same_both_ways() -> None:
    both, dice, refused = (loops_of("python"), compiled()), random.Random(8), 0
    tried = examples(5000)
    for _ in range(tried):
        width = dice.choice([1, 3, 8, 9, 32])
        found = [hybrid(dice, width) for _ in range(dice.choice([1, 10]))]
        data = bytearray(b"".join(part for part, _ in found)) or bytearray(1)
        for _ in range(dice.randint(0, 2)):
            data[dice.randrange(len(data))] = dice.choice([dice.randrange(256), 0x80, 0xFF])
        count = max(sum(len(numbers) for _, numbers in found) - dice.choice([0, 0, 0, 3]), 0)
        given = (bytes(data), dice.choice([0, 0, 1]), width, count, dice.choice([16, 100]))
        marks = [one.hybrid_marks(*given) for one in both]
        assert marks[0] == marks[1]
        refused += marks[0] is None
    assert 0 < refused < tried


@pytest.mark.skipif(not kernel.COMPILED, reason="the loops are not compiled")
@pytest.mark.parametrize("seed", range(4))
def test_compiled_loops_and_their_twins_agree_on_any_bytes_and_numbers(seed: int) -> None:
    """`deploy/fuzz-kernel.sh` tries this for longer, under sanitizers."""
    tried, wrong = fuzz(float("inf"), seed, examples(100))
    assert wrong == []
    assert min(tried.values()) >= examples(100) // 4

"""Variable-length integers, one by one and as arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.base.varints import (
    LONGEST_WIDE,
    OverlongVarint,
    decode_signed,
    decode_signed_array,
    decode_unsigned,
    decode_unsigned_array,
    decode_wide_array,
    encode_signed,
    encode_signed_array,
    encode_unsigned,
    from_zigzag,
    skip_array,
)

EDGES = [0, 1, -1, 63, 64, -64, -65, 127, 128, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
LONGS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
UNSIGNED = st.one_of(st.sampled_from([0, 127, 128, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
TOO_LONG = [b"\xff" * 10 + b"\x01", b"\x80" * 9 + b"\x02", b"\xff" * 1000]


@given(LONGS, st.binary(max_size=3))
def test_a_signed_integer_reads_back(value: int, rest: bytes) -> None:
    data = encode_signed(value)
    assert decode_signed(data + rest, 0) == (value, len(data))
    assert from_zigzag(decode_unsigned(data, 0)[0]) == value


@given(UNSIGNED, st.binary(max_size=3))
def test_an_unsigned_integer_reads_back(value: int, rest: bytes) -> None:
    data = encode_unsigned(value)
    assert decode_unsigned(rest + data, len(rest)) == (value, len(rest) + len(data))


def test_signed_integers_are_avros() -> None:
    assert [encode_signed(v).hex() for v in (0, -1, 1, -64, 64)] == ["00", "01", "02", "7f", "8001"]


@given(st.lists(LONGS, max_size=50))
def test_an_array_equals_one_by_one(values: list[int]) -> None:
    data, offsets = encode_signed_array(np.array(values, np.int64))
    assert data.tobytes() == b"".join(map(encode_signed, values))
    assert np.diff(offsets).tolist() == [len(encode_signed(v)) for v in values]
    read, passed = offsets[:-1].copy(), offsets[:-1].copy()
    assert decode_signed_array(data, read).tolist() == values
    skip_array(data, passed)
    assert read.tolist() == passed.tolist() == offsets[1:].tolist()


@given(st.lists(UNSIGNED, min_size=1, max_size=50))
def test_an_array_of_unsigned_integers_equals_one_by_one(values: list[int]) -> None:
    parts = [encode_unsigned(value) for value in values]
    cursors = np.cumsum([0, *map(len, parts[:-1])])
    assert decode_unsigned_array(np.frombuffer(b"".join(parts), np.uint8), cursors).tolist() == values


@given(st.lists(st.one_of(LONGS, st.integers(-(2**127), 2**127 - 1)), min_size=1, max_size=20))
def test_integers_of_128_bits_read_back(values: list[int]) -> None:
    parts = [encode_signed(value) for value in values]
    ends = np.cumsum([len(part) for part in parts])
    low, high = decode_wide_array(np.frombuffer(b"".join(parts), np.uint8), np.append(0, ends[:-1]), ends)
    assert [(int(h) << 64) + (int(w) & (1 << 64) - 1) for w, h in zip(low, high, strict=True)] == values


@pytest.mark.parametrize("data", TOO_LONG)
def test_an_integer_of_more_than_64_bits_is_refused(data: bytes) -> None:
    with pytest.raises(OverlongVarint, match="more than 64 bits"):
        decode_unsigned(data, 0)
    with pytest.raises(OverlongVarint, match="more than 64 bits"):
        decode_unsigned_array(np.frombuffer(data, np.uint8), np.zeros(3, np.int64))


def test_an_array_with_an_integer_of_more_than_10_bytes_is_refused() -> None:
    with pytest.raises(OverlongVarint, match="more than 64 bits"):
        skip_array(np.frombuffer(b"\xff" * 20, np.uint8), np.zeros(1, np.int64))
    with pytest.raises(OverlongVarint, match="more than 128 bits"):
        decode_wide_array(np.full(40, 0xFF, np.uint8), np.zeros(1, np.int64), np.array([LONGEST_WIDE + 1]))


def test_bytes_that_end_in_an_integer_are_an_index_error() -> None:
    for length in range(9):
        with pytest.raises(IndexError):
            decode_signed(b"\xff" * length, 0)
        with pytest.raises(IndexError):
            decode_signed_array(np.full(length, 0xFF, np.uint8), np.zeros(1, np.int64))
        with pytest.raises(IndexError):
            skip_array(np.full(length, 0xFF, np.uint8), np.zeros(1, np.int64))

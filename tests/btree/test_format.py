"""Byte rules: header, block frame."""

import pytest

from gnomon.base.varints import encode_signed
from gnomon.btree import DamagedIndexFile
from gnomon.btree import format as fmt
from tests.btree.files import NAME, SYNC
from tests.profiles import positions

METADATA = {"avro.schema": b"{}", "data_bytes": b"0"}


def test_a_header_reads_back_and_a_cut_one_asks_for_more() -> None:
    data = fmt.encode_header(METADATA, SYNC)
    assert fmt.decode_header(data + b"more", NAME) == fmt.Header(METADATA, SYNC, len(data))
    for length in positions(range(len(data))):
        assert fmt.decode_header(data[:length], NAME) is None


def test_a_header_map_may_come_in_blocks_that_say_their_size() -> None:
    pair = b"\x02a\x04xy"
    data = fmt.MAGIC + b"\x01" + encode_signed(len(pair)) + pair + b"\x02\x02b\x00" + b"\x00" + SYNC
    assert fmt.decode_header(data, NAME) == fmt.Header({"a": b"xy", "b": b""}, SYNC, len(data))


@pytest.mark.parametrize(
    ("damaged", "offset"),
    [
        (b"PAR1", 0),
        (fmt.MAGIC + encode_signed(2**62), 4),
        (fmt.MAGIC + encode_signed(1) + encode_signed(-5), 5),
        (fmt.MAGIC + encode_signed(1) + encode_signed(2**40), 5),
        (fmt.MAGIC + encode_signed(1) + b"\x02\xff\x00", 5),
        (fmt.MAGIC + b"\xff" * 11, 4),
    ],
    ids=["magic", "count", "negative length", "length", "utf8", "varint"],
)
def test_a_damaged_header_is_refused_with_its_offset(damaged: bytes, offset: int) -> None:
    with pytest.raises(DamagedIndexFile) as error:
        fmt.decode_header(damaged, NAME)
    assert (error.value.path, error.value.offset) == (NAME, offset)


@pytest.mark.parametrize("text", [b"-1", b"+1", b" 1", b"1_0", b"", b"0x1", "١".encode(), b"9" * 19])
def test_a_number_in_the_header_is_plain_decimal_text(text: bytes) -> None:
    with pytest.raises(ValueError, match="decimal number"):
        fmt.Header({"n": text}, SYNC, 0).number("n")


def test_a_block_frame_reads_back() -> None:
    block = fmt.encode_block(3, b"payload", SYNC)
    assert fmt.decode_block_frame(block, 100, 1000, NAME) == fmt.BlockFrame(3, 102, 7, 100 + len(block))


@pytest.mark.parametrize(
    ("count", "length"),
    [(0, 5), (-1, 5), (fmt.NODE_RECORDS + 1, 5), (1, 0), (1, -1), (1, 2**50), (1, fmt.PAYLOAD_LIMIT + 1)],
)
def test_a_block_frame_that_cannot_be_is_refused(count: int, length: int) -> None:
    head = encode_signed(count) + encode_signed(length)
    with pytest.raises(DamagedIndexFile) as error:
        fmt.decode_block_frame(head, 7, 2**60, NAME)
    assert error.value.offset == 7


def test_a_block_that_ends_after_its_file_is_refused() -> None:
    block = fmt.encode_block(1, b"payload", SYNC)
    fmt.decode_block_frame(block, 0, len(block), NAME)
    with pytest.raises(DamagedIndexFile):
        fmt.decode_block_frame(block, 0, len(block) - 1, NAME)


@pytest.mark.parametrize("text", [b"", b"k", b"k|", b"|v", b"\xff|v"[1:]])
def test_the_key_value_text_names_both_sides(text: bytes) -> None:
    with pytest.raises(DamagedIndexFile, match=r"btree\.spec\.kv"):
        fmt.decode_key_value_spec(text, NAME)
    assert fmt.decode_key_value_spec(b"a,b|c", NAME) == (["a", "b"], ["c"])
    assert fmt.encode_key_value_spec(["a", "b"], ["c"]) == b"a,b|c"


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b"{", b"\xff", b"[" * 100_000])
def test_a_schema_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedIndexFile, match=r"avro\.schema"):
        fmt.decode_schema(text, NAME)

"""Compression of blocks."""

import bz2
import lzma
import zlib

import pytest

from btree import BTreeError
from btree.codecs import COMPRESSORS, DECOMPRESSORS, DecompressionError, compressor, decompress

DATA = b"0123456789" * 500
LIMIT = len(DATA)
PACKED = {name: pack(DATA) for name, pack in COMPRESSORS.items()} | {
    "bzip2": bz2.compress(DATA),
    "xz": lzma.compress(DATA),
}


@pytest.mark.parametrize("codec", DECOMPRESSORS)
def test_a_codec_reads_back_up_to_its_limit(codec: str) -> None:
    assert decompress(codec, PACKED[codec], LIMIT) == DATA
    with pytest.raises(DecompressionError, match="more than"):
        decompress(codec, PACKED[codec], LIMIT - 1)


@pytest.mark.parametrize("codec", [codec for codec in DECOMPRESSORS if codec != "null"])
def test_a_cut_payload_is_refused(codec: str) -> None:
    for length in range(1, len(PACKED[codec]), 7):
        with pytest.raises(DecompressionError):
            decompress(codec, PACKED[codec][:length], LIMIT)


def test_deflate_is_raw_rfc_1951() -> None:
    assert zlib.decompress(PACKED["deflate"], -15) == DATA


def test_snappy_ends_in_a_crc_that_is_checked() -> None:
    assert PACKED["snappy"][-4:] == zlib.crc32(DATA).to_bytes(4, "big")
    for at in range(len(PACKED["snappy"])):
        damaged = bytearray(PACKED["snappy"])
        damaged[at] ^= 0x10
        with pytest.raises(DecompressionError):
            decompress("snappy", bytes(damaged), LIMIT)


def test_a_claim_of_more_than_the_limit_sets_nothing_aside() -> None:
    huge = b"\xff\xff\xff\xff\x0f" + b"x" * 20 + b"\0\0\0\0"  # snappy: 4 GiB
    with pytest.raises(DecompressionError, match="more than"):
        decompress("snappy", huge, LIMIT)


def test_a_codec_that_cannot_be_written_is_named_with_those_that_can() -> None:
    with pytest.raises(BTreeError, match=r"'lzo'.*null, deflate, snappy, zstandard"):
        compressor("lzo")

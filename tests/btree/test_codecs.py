"""Compression of blocks."""

import bz2
import lzma
import zlib

import pytest

from gnomon.base.compression import DecompressionError, zstd
from gnomon.base.varints import encode_signed
from gnomon.btree import BTreeError
from gnomon.btree.codecs import CHECKSUMS, COMPRESSORS, DECOMPRESSORS, compressor, decompress
from tests.profiles import positions

DATA = b"0123456789" * 500
LIMIT = len(DATA)
PACKED = {name: compressor(name)(DATA) for name in COMPRESSORS} | {
    "bzip2": bz2.compress(DATA),
    "xz": lzma.compress(DATA, preset=9),
}


@pytest.mark.parametrize("codec", DECOMPRESSORS)
def test_a_codec_reads_back_up_to_its_limit(codec: str) -> None:
    assert decompress(codec, PACKED[codec], LIMIT) == DATA
    with pytest.raises(DecompressionError, match="more than"):
        decompress(codec, PACKED[codec], LIMIT - 1)


@pytest.mark.parametrize("codec", [codec for codec in DECOMPRESSORS if codec != "null"])
def test_a_cut_payload_is_refused(codec: str) -> None:
    for length in positions(range(1, len(PACKED[codec]), 7)):
        with pytest.raises(DecompressionError):
            decompress(codec, PACKED[codec][:length], LIMIT, checked=codec in CHECKSUMS)


def test_deflate_is_raw_rfc_1951_and_a_crc() -> None:
    stream = zlib.decompressobj(-15)
    assert stream.decompress(PACKED["deflate"]) == DATA
    assert stream.unused_data == zlib.crc32(DATA).to_bytes(4, "big")


def test_snappy_ends_in_a_crc() -> None:
    assert PACKED["snappy"][-4:] == zlib.crc32(DATA).to_bytes(4, "big")


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_a_flip_of_any_bit_is_refused_or_changes_nothing(codec: str) -> None:
    for at in positions(range(len(PACKED[codec]))):
        for bit in range(8):
            damaged = bytearray(PACKED[codec])
            damaged[at] ^= 1 << bit
            try:
                assert decompress(codec, bytes(damaged), 2 * LIMIT, checked=True) == DATA
            except DecompressionError:
                continue


@pytest.mark.parametrize("codec", CHECKSUMS)
def test_a_checksum_is_demanded_where_it_is_promised_only(codec: str) -> None:
    plain = {"deflate": PACKED["deflate"][:-4], "zstandard": zstd.compress(DATA)}[codec]
    assert decompress(codec, plain, LIMIT) == DATA
    with pytest.raises(DecompressionError, match=r"CRC|checksum"):
        decompress(codec, plain, LIMIT, checked=True)
    with pytest.raises(DecompressionError):
        decompress(codec, PACKED[codec] + b"x", LIMIT, checked=True)


def test_a_zstandard_frame_that_asks_for_much_memory_is_refused() -> None:
    head = (0xFD2FB528).to_bytes(4, "little")
    for window in (b"\x00" + bytes([(28 - 10) << 3]), b"\xe0" + (1 << 40).to_bytes(8, "little")):
        with pytest.raises(DecompressionError):
            decompress("zstandard", head + window + b"\x01\x00\x00", LIMIT)


def test_a_claim_of_more_than_the_limit_sets_nothing_aside() -> None:
    huge = b"\xff\xff\xff\xff\x0f" + b"x" * 20 + b"\0\0\0\0"  # snappy: 4 GiB
    with pytest.raises(DecompressionError, match="more than"):
        decompress("snappy", huge, LIMIT)


def test_a_codec_that_cannot_be_written_is_named_with_those_that_can() -> None:
    with pytest.raises(BTreeError, match=r"'lzo'.*null, deflate, snappy, zstandard"):
        compressor("lzo")


def test_a_claim_that_snappy_cannot_keep_sets_nothing_aside() -> None:
    with pytest.raises(DecompressionError, match="claimed by 24"):
        decompress("snappy", encode_signed(30 << 20) + b"x" * 20 + b"\0\0\0\0", 64 << 20)
    most = bytes(1 << 20)  # the best compression of snappy
    assert decompress("snappy", compressor("snappy")(most), len(most)) == most


@pytest.mark.slow
def test_a_frame_of_the_highest_zstandard_level_is_read() -> None:
    packer = zstd.ZstdCompressor(22)
    packed = packer.compress(b"record") + packer.flush()  # a stream of unknown length asks for the widest window
    assert decompress("zstandard", packed, LIMIT) == b"record"

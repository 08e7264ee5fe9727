"""Bounded decompression: never more than the bound, never content of damaged bytes, never memory for a mere claim."""

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lzallright
import pyarrow as pa
import pytest

from gnomon.base.compression import (
    SLICE,
    STREAMS,
    BoundExceeded,
    CorruptData,
    DecompressionError,
    PieceDecompressor,
    decompress_begin,
    decompress_brotli,
    decompress_by_slices,
    decompress_lz4,
    decompress_lzo,
    decompress_snappy,
    decompress_stream,
    decompress_streams,
    zstd,
)
from tests.profiles import positions

ROOT = Path(__file__).parents[2]
DATA = random.Random(7).randbytes(500) * 20
LIMIT = len(DATA)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def checked_zstandard(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "deflate": raw_deflate,
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "gzip or zlib": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": checked_zstandard,
}
BLOCKS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    "snappy": (lambda data: pa.Codec("snappy").compress(data, asbytes=True), decompress_snappy),
    "lz4": (lambda data: pa.Codec("lz4_raw").compress(data, asbytes=True), decompress_lz4),
    "lzo": (lambda data: bytes(lzallright.LZOCompressor().compress(data)), decompress_lzo),
    "brotli": (lambda data: bytes(cramjam.brotli.compress(data)), decompress_brotli),
}


def test_every_stream_codec_is_tested() -> None:
    assert COMPRESS.keys() == STREAMS.keys()


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_stream_of_the_bound_is_content_and_one_byte_more_exceeds_it(codec: str) -> None:
    packed = COMPRESS[codec](DATA)
    assert decompress_stream(codec, packed, LIMIT) == (DATA, b"")
    assert decompress_stream(codec, memoryview(packed), LIMIT) == (DATA, b"")
    with pytest.raises(BoundExceeded, match=f"more than {LIMIT - 1} bytes"):
        decompress_stream(codec, packed, LIMIT - 1)


@pytest.mark.parametrize("codec", COMPRESS)
def test_the_bytes_after_a_stream_are_given_back(codec: str) -> None:
    assert decompress_stream(codec, COMPRESS[codec](DATA) + b"rest", LIMIT) == (DATA, b"rest")


@pytest.mark.parametrize("codec", COMPRESS)
def test_streams_that_follow_each_other_are_one_content_under_one_bound(codec: str) -> None:
    packed = COMPRESS[codec](DATA) + COMPRESS[codec](b"") + COMPRESS[codec](DATA)
    assert decompress_streams(codec, packed, 2 * LIMIT) == DATA + DATA
    with pytest.raises(BoundExceeded, match=f"more than {2 * LIMIT - 1} bytes"):
        decompress_streams(codec, packed, 2 * LIMIT - 1)
    with pytest.raises(CorruptData):
        decompress_streams(codec, packed + b"\xff\xff\xff", 2 * LIMIT)


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_cut_stream_is_corrupt_unless_its_end_is_not_required(codec: str) -> None:
    packed = COMPRESS[codec](DATA)
    for length in positions(range(len(packed))):
        with pytest.raises(CorruptData):
            decompress_stream(codec, packed[:length], LIMIT)
    content, _ = decompress_stream(codec, packed[:-1], LIMIT, end_required=False)
    assert DATA.startswith(content)


@pytest.mark.parametrize("codec", [codec for codec in COMPRESS if codec != "deflate"])  # deflate has no checksum
def test_a_flip_of_any_byte_is_refused_or_changes_nothing(codec: str) -> None:
    packed = COMPRESS[codec](DATA)
    for at in positions(range(len(packed))):
        damaged = bytearray(packed)
        damaged[at] ^= 0x41
        try:
            assert decompress_stream(codec, bytes(damaged), 2 * LIMIT)[0] == DATA
        except DecompressionError:
            continue


@pytest.mark.parametrize("codec", COMPRESS)
def test_empty_content_is_no_bytes_and_empty_input_is_corrupt(codec: str) -> None:
    assert decompress_stream(codec, COMPRESS[codec](b""), 0) == (b"", b"")
    with pytest.raises(CorruptData):
        decompress_stream(codec, b"", LIMIT)


@pytest.mark.parametrize("codec", BLOCKS)
def test_a_block_of_the_bound_is_content_and_a_larger_one_is_refused(codec: str) -> None:
    compress, decompress = BLOCKS[codec]
    assert decompress(compress(DATA), LIMIT) == DATA
    assert decompress(compress(DATA), 2 * LIMIT) == DATA  # no byte more than the content has
    assert decompress(compress(b""), LIMIT) == b""
    with pytest.raises(DecompressionError):
        decompress(compress(DATA), LIMIT - 1)


@pytest.mark.parametrize("codec", BLOCKS)
def test_a_cut_block_is_corrupt(codec: str) -> None:
    compress, decompress = BLOCKS[codec]
    packed = compress(DATA)
    for length in positions(range(len(packed))):
        try:
            assert len(decompress(packed[:length], LIMIT)) < LIMIT  # LZ4 may end after any of its sequences
            assert codec == "lz4"
        except CorruptData:
            continue


@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_the_most_that_a_block_codec_can_compress_is_read(codec: str) -> None:
    compress, decompress = BLOCKS[codec]
    zeros = bytes(4 << 20)
    assert decompress(compress(zeros), len(zeros)) == zeros


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff\xff\xff\xff\x0f" + bytes(20), BoundExceeded),  # claims 4 GiB
        (b"\x80\x80\x80\x40" + bytes(20), CorruptData),  # claims 128 MiB, less than the bound
        (b"\xff" * 9 + b"\x01", CorruptData),  # more than snappy can state
        (b"\x80", CorruptData),
        (b"", CorruptData),
    ],
)
def test_a_length_that_a_snappy_block_cannot_have_takes_no_memory(data: bytes, error: type[Exception]) -> None:
    assert peak_bytes(lambda: decompress_snappy(data, 512 << 20), error) < 1 << 20


def test_an_lz4_block_takes_memory_by_its_own_size() -> None:
    assert peak_bytes(lambda: decompress_lz4(b"\xf0" + b"\xff" * 100, 512 << 20), CorruptData) < 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESS)
def test_a_stream_of_much_content_takes_memory_by_the_bound(codec: str) -> None:
    packed = COMPRESS[codec](bytes(64 << 20))
    assert peak_bytes(lambda: decompress_stream(codec, packed, 1 << 20), BoundExceeded) < 16 << 20  # xz: 8 of window


def peak_bytes(call: Callable[[], object], error: type[Exception]) -> int:
    """Bytes that Python allocated at most while `call` raised `error`."""
    tracemalloc.start()
    try:
        with pytest.raises(error):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_zstandard_window_beyond_128_mib_is_corrupt() -> None:
    head = (0xFD2FB528).to_bytes(4, "little") + b"\x00" + bytes([(28 - 10) << 3])
    with pytest.raises(CorruptData):
        decompress_stream("zstandard", head + b"\x01\x00\x00", LIMIT)


# Decompresses under ever tighter limits of the address space, and prints the outcome of each.
UNDER_LIMITS = """
import resource
from tests.base.test_compression import BLOCKS, COMPRESS, PieceDecompressor, decompress_stream

zeros = bytes(64 << 20)
calls = {}
for codec, compress in COMPRESS.items():
    packed = compress(zeros)
    calls[codec] = lambda codec=codec, packed=packed: decompress_stream(codec, packed, len(zeros))
    calls[codec + " pieces"] = lambda codec=codec, packed=packed: list(PieceDecompressor(codec, 4 << 20).pieces(packed))
for codec in ("snappy", "lz4"):
    packed = BLOCKS[codec][0](zeros)
    calls[codec] = lambda codec=codec, packed=packed: BLOCKS[codec][1](packed, len(zeros))
del zeros
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for name, call in calls.items():
    for megabytes in (400, 100, 30, 10, 3, 1):
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20), hard))
        try:
            call()
            outcome = "content"
        except MemoryError:
            outcome = "memory"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        print(f"{name}: {outcome}")
"""


@pytest.mark.process
def test_sound_data_is_never_called_corrupt_for_want_of_memory() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", UNDER_LIMITS.replace("len(zeros)", str(64 << 20))]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    names = [*COMPRESS, *(f"{codec} pieces" for codec in COMPRESS), "snappy", "lz4"]
    assert set(done.stdout.splitlines()) == {
        f"{name}: {outcome}" for name in names for outcome in ("content", "memory")
    }


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize(("given", "taken"), [(1, 1000), (37, 7), (1000, 997), (1 << 20, 1 << 20)])
def test_pieces_of_any_size_make_the_whole_content_of_all_streams(codec: str, given: int, taken: int) -> None:
    packed = COMPRESS[codec](DATA) + COMPRESS[codec](b"") + COMPRESS[codec](DATA[:777])
    decompressor = PieceDecompressor(codec, taken)
    pieces = [piece for at in range(0, len(packed), given) for piece in decompressor.pieces(packed[at : at + given])]
    assert b"".join(pieces) == DATA + DATA[:777]
    assert max(map(len, pieces)) <= taken
    assert decompressor.at_end


@pytest.mark.parametrize("codec", COMPRESS)
def test_pieces_of_a_cut_stream_do_not_come_to_the_end(codec: str) -> None:
    packed = COMPRESS[codec](DATA)
    decompressor = PieceDecompressor(codec, 1000)
    assert decompressor.at_end
    assert DATA.startswith(b"".join(decompressor.pieces(packed[:-1])))
    assert not decompressor.at_end


@pytest.mark.parametrize("codec", COMPRESS)
def test_pieces_of_damaged_bytes_are_refused_with_the_bytes_unread(codec: str) -> None:
    sound, damaged = COMPRESS[codec](DATA), b"\xff" * 40
    decompressor = PieceDecompressor(codec, LIMIT)
    with pytest.raises(CorruptData):
        list(decompressor.pieces(sound + damaged))
    assert decompressor.unread == len(damaged)


def test_zero_bytes_after_a_gzip_stream_are_padding_wherever_the_input_is_split() -> None:
    packed = gzip.compress(DATA) + bytes(100) + gzip.compress(b"tail") + bytes(9)
    for given in (1, 50, len(packed)):
        decompressor = PieceDecompressor("gzip", LIMIT)
        pieces = [
            piece for at in range(0, len(packed), given) for piece in decompressor.pieces(packed[at : at + given])
        ]
        assert b"".join(pieces) == DATA + b"tail"
        assert decompressor.at_end


SLICED = {"zstandard": "zstd", "gzip or zlib": "gzip"}  # with the names that pyarrow gives them


def text(dice: random.Random, size: int) -> bytes:
    words = [dice.randbytes(dice.randint(2, 20)) for _ in range(300)]
    return b" ".join(dice.choices(words, k=size // 4))[:size]


@pytest.mark.parametrize("codec", SLICED)
def test_each_slice_of_a_stream_and_all_before_it_give_the_content_that_is_told_of_them(codec: str) -> None:
    dice = random.Random(codec)
    for size in (1, 5000, SLICE, 70_000, 400_000, 1_100_000):
        content = text(dice, size)
        data = pa.compress(content, SLICED[codec], asbytes=True)
        unpacked, ends = decompress_by_slices(codec, data, len(content))
        assert bytes(unpacked) == content
        assert (len(ends), ends[-1]) == (-(-len(data) // SLICE), len(content))
        assert list(ends) == sorted(ends)
        for place, end in enumerate(ends):
            begin = data[: (place + 1) * SLICE]
            for wanted in {end, end // 2}:
                assert bytes(decompress_begin(codec, begin, wanted)) == content[:wanted]


@pytest.mark.parametrize("codec", SLICED)
def test_slices_are_told_of_one_whole_stream_of_the_given_size_alone(codec: str) -> None:
    content = text(random.Random(1), 200_000)
    data = pa.compress(content, SLICED[codec], asbytes=True)
    for given, size in (
        *((data, size) for size in (0, 1, len(content) - 1, len(content) + 1)),
        *((data[:cut], len(content)) for cut in (0, 1, SLICE, len(data) // 2, len(data) - 9)),
        (data + b"\1", len(content)),
        (data + b"\0" * SLICE, len(content)),
    ):
        with pytest.raises(CorruptData):
            decompress_by_slices(codec, given, size)
    with pytest.raises(CorruptData):
        decompress_begin(codec, data[: len(data) // 2], len(content))


def test_two_deflate_streams_are_not_told_in_slices() -> None:
    content = text(random.Random(2), 100_000)
    data = pa.compress(content, "gzip", asbytes=True)
    with pytest.raises(CorruptData):
        decompress_by_slices("gzip or zlib", data + data, 2 * len(content))


def test_two_zstandard_streams_are_one_content_or_refused() -> None:
    content = text(random.Random(2), 100_000)
    data = pa.compress(content, "zstd", asbytes=True)
    try:
        unpacked, _ = decompress_by_slices("zstandard", data + data, 2 * len(content))
    except CorruptData:
        return
    assert bytes(unpacked) == 2 * content
    assert bytes(decompress_begin("zstandard", data + data, 150_000)) == (2 * content)[:150_000]

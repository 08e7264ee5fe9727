"""The mutations of the fuzzer: of bytes, or of content with corrected checksums."""

import bz2
import hashlib
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from gnomon.base.varints import encode_signed
from gnomon.btree import format as fmt
from gnomon.btree.codecs import compressor, decompress
from gnomon.btree.keys import Key
from tests.btree.files import NAME, header_of, opened, write
from tests.btree.small_files import CODECS, SHAPES
from tests.btree.vectors import SOUND, read_vector

MOST_SEED_BYTES = 6000
BOMB_BYTES = [1 << 16, 1 << 20, 60 << 20, 70 << 20]
NUMBERS = [0, 1, 2, 127, 128, 255, 1 << 31, (1 << 31) - 1, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)]


@dataclass(frozen=True)
class Seed:
    """A sound file."""

    name: str
    data: bytes
    entries: list[tuple[Key, Key]]
    is_checked: bool  # a checksum covers each byte


def _seeds() -> list[Seed]:
    seeds = []
    for shape, (schema, entries, options) in SHAPES.items():
        for codec in CODECS:
            name = f"{''.join(word[:4] for word in shape.replace(',', '').split())}-{codec}"
            sync = hashlib.md5(name.encode()).digest()  # different for each file, as in real files
            data = write(schema, entries, codec=codec, **options, sync=sync)
            seeds.append(Seed(name, data, entries, codec != "null"))
    for codec, pack in (("bzip2", bz2.compress), ("xz", lzma.compress)):
        plain = seeds[0].data
        header, blocks = header_of(plain), blocks_of(plain)
        metadata = {**header.metadata, fmt.CODEC_KEY: codec.encode()}
        packed = [(count, pack(records)) for count, records in blocks]
        seeds.append(Seed(f"one-{codec}", _file(metadata, header.sync, packed), seeds[0].entries, False))
    for name in SOUND:
        data = read_vector(name)
        if len(data) <= MOST_SEED_BYTES:
            entries = list(opened(data).scan())
            seeds.append(Seed(f"dione-{name.split('/')[-1].split('.')[0]}", data, entries, False))
    return seeds


def blocks_of(data: bytes) -> list[tuple[int, bytes]]:
    """Record count and records of each block."""
    header = header_of(data)
    codec = header.metadata.get(fmt.CODEC_KEY, b"null").decode()
    at, found = header.end, []
    while at < len(data):
        frame = fmt.decode_block_frame(data[at : at + fmt.BLOCK_HEAD_BYTES], at, len(data), NAME)
        payload = data[frame.payload : frame.payload + frame.payload_bytes]
        found.append((frame.count, decompress(codec, payload, fmt.NODE_LIMIT)))
        at = frame.end
    return found


def _file(metadata: dict[str, bytes], sync: bytes, blocks: list[tuple[int, bytes]]) -> bytes:
    """A file of these payloads with valid lengths and header checksum."""
    body = b"".join(fmt.encode_block(count, payload, sync) for count, payload in blocks)
    numbers = {fmt.DATA_BYTES_KEY: b"%d" % len(body)}
    upper = metadata.get(fmt.UPPER_BYTES_KEY, b"")
    numbers[fmt.UPPER_CRC_KEY] = fmt.crc_text(body[: int(upper)] if fmt.DECIMAL_TEXT.fullmatch(upper) else b"")
    metadata = {**metadata, **{key: value for key, value in numbers.items() if key in metadata}}
    if fmt.HEADER_CRC_KEY in metadata:
        metadata = fmt.sealed(metadata, sync)
    return fmt.encode_header(metadata, sync) + body


# -- bytes ---------------------------------------------------------------------------------------------------------


def _flip(rnd: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rnd.choice([1, 1, 1, 2, 4])):
        out[rnd.randrange(len(out))] ^= 1 << rnd.randrange(8)
    return bytes(out)


def _set(rnd: Random, data: bytes) -> bytes:
    at = rnd.randrange(len(data))
    new = rnd.choice(
        [b"\x00", b"\xff", b"\x01", b"\x7f", b"\x80", rnd.randbytes(1), encode_signed(rnd.choice(NUMBERS))]
    )
    return data[:at] + new + data[at + len(new) :]


def _insert(rnd: Random, data: bytes) -> bytes:
    at = rnd.randrange(len(data) + 1)
    return data[:at] + rnd.randbytes(rnd.choice([1, 2, 16, 100])) + data[at:]


def _delete(rnd: Random, data: bytes) -> bytes:
    at = rnd.randrange(len(data))
    return data[:at] + data[at + rnd.choice([1, 2, 16, 100]) :]


def _repeat(rnd: Random, data: bytes) -> bytes:
    at, end = sorted(rnd.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[at:end] + data[end:]


def _cut(rnd: Random, data: bytes) -> bytes:
    return data[: rnd.randrange(len(data))]


def _copy_within(rnd: Random, data: bytes) -> bytes:
    """Copy bytes over other bytes; the length stays."""
    size = rnd.choice([1, 4, 16, 64])
    a, b = (rnd.randrange(len(data)) for _ in range(2))
    piece = data[a : a + size][: len(data) - b]
    return data[:b] + piece + data[b + len(piece) :]


ON_BYTES: list[Callable[[Random, bytes], bytes]] = [_flip, _flip, _set, _insert, _delete, _repeat, _cut, _copy_within]


def mutate_bytes(rnd: Random, origin: Seed) -> tuple[bytes, list[Seed]]:
    """The file with some bytes changed, and the other file of a splice, if any."""
    if rnd.random() < 0.1:
        other = rnd.choice(SEEDS)
        at = rnd.randrange(len(origin.data))
        back = rnd.choice([at, rnd.randrange(len(other.data)), max(0, len(other.data) - (len(origin.data) - at))])
        return origin.data[:at] + other.data[back:], [other]
    data = origin.data
    for _ in range(rnd.choice([1, 1, 1, 2, 3])):
        data = rnd.choice(ON_BYTES)(rnd, data) if data else data
    return data, []


# -- content with corrected checksums --------------------------------------------------------------------------------


def mutate_behind_checksums(rnd: Random, origin: Seed) -> bytes:
    """The file with other records, counts, blocks or header values, with valid lengths and checksums."""
    header = header_of(origin.data)
    metadata, blocks = dict(header.metadata), blocks_of(origin.data)
    for _ in range(rnd.choice([1, 1, 2, 3])):
        if not blocks or rnd.random() < 0.3:
            _change_header(rnd, metadata)
        else:
            _change_blocks(rnd, blocks)
    codec = header.metadata.get(fmt.CODEC_KEY, b"null").decode()
    pack = _PACKERS[codec] if codec in _PACKERS else compressor(codec)
    payloads = [(count, pack(records)) for count, records in blocks]
    if rnd.random() < 0.05 and payloads:
        at = rnd.randrange(len(payloads))
        payloads[at] = (payloads[at][0], _flip(rnd, payloads[at][1]) if payloads[at][1] else b"")
    return _file(metadata, header.sync, payloads)


_PACKERS: dict[str, Callable[[bytes], bytes]] = {"bzip2": bz2.compress, "xz": lzma.compress}
_WORDS = [b'"long"', b'"int"', b'"string"', b'"bytes"', b'"null"', b'"double"', b'"float"', b'"boolean"', b'"decimal"']
_WORDS += [b'"date"', b'"timestamp-micros"', b'"metadata"', b'"record"', b'"fixed"', b'"array"', b'["null","long"]']
_VALUES = [b"", b"null", b"deflate", b"snappy", b"zstandard", b"bzip2", b"xz", b"crc32", b"xxh64", b"0", b"1", b"2"]
_VALUES += [b"9" * 18, b"-1", b"url|row", b"|", b"{}", b"[" * 2000, b'{"type":"record","name":"r","fields":[]}']


def _change_header(rnd: Random, metadata: dict[str, bytes]) -> None:
    key = rnd.choice(sorted(metadata))
    value = metadata[key]
    kind = rnd.random()
    if kind < 0.1:
        del metadata[key]
    elif kind < 0.3:
        metadata[key] = rnd.choice(_VALUES)
    elif kind < 0.5 and value.isdigit():
        metadata[key] = b"%d" % max(0, int(value) + rnd.choice([-1, 1, -16, 16, 1000]))
    elif kind < 0.8 and key == fmt.SCHEMA_KEY:
        old, new = rnd.choice(_WORDS), rnd.choice(_WORDS)
        metadata[key] = value.replace(old, new, rnd.choice([1, 1, -1]))
    else:
        metadata[key] = rnd.choice(ON_BYTES)(rnd, value) if value else rnd.randbytes(3)


def _change_blocks(rnd: Random, blocks: list[tuple[int, bytes]]) -> None:
    a, b = (rnd.randrange(len(blocks)) for _ in range(2))
    count, records = blocks[a]
    kind = rnd.random()
    if kind < 0.08:
        blocks[a], blocks[b] = blocks[b], blocks[a]
    elif kind < 0.14:
        blocks.insert(b, blocks[a])
    elif kind < 0.2:
        del blocks[a]
    elif kind < 0.3:
        blocks[a] = (rnd.choice([count + 1, count - 1, len(records), rnd.choice(NUMBERS)]), records)
    elif kind < 0.302:
        size = rnd.choice(BOMB_BYTES)
        blocks[a] = (rnd.choice([size, size // 3, size // 5, count]), bytes(size))
    elif records:
        blocks[a] = (count, rnd.choice(ON_BYTES)(rnd, records))


SEEDS: list[Seed] = _seeds()

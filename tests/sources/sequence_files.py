"""Our SequenceFiles, in the layout of Hadoop's own writer."""

import bz2
import gzip
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import cramjam

from gnomon.base.compression import zstd
from tests.sources.corpora import files_of, reader_of

HADOOP = "org.apache.hadoop.io."
COMPRESS = "org.apache.hadoop.io.compress."
SYNC = bytes.fromhex("00112233445566778899aabbccddeeff")
MARKER = b"\xff" * 4 + SYNC
RAW_CLASS = "com.example.Point"


def vint(number: int) -> bytes:
    if -112 <= number <= 127:
        return struct.pack("b", number)
    first, bits = (-120, ~number) if number < 0 else (-112, number)
    body = bits.to_bytes((bits.bit_length() + 7) // 8, "big")
    return struct.pack("b", first - len(body)) + body


def sized(data: bytes) -> bytes:
    return vint(len(data)) + data


def text(value: str | bytes) -> bytes:
    return sized(value if isinstance(value, bytes) else value.encode())


WRITABLES: dict[str, Callable[[Any], bytes]] = {
    HADOOP + "Text": text,
    HADOOP + "BytesWritable": lambda value: struct.pack(">i", len(value)) + value,
    HADOOP + "NullWritable": lambda value: b"",
    HADOOP + "BooleanWritable": lambda value: b"\x01" if value else b"\x00",
    HADOOP + "ByteWritable": struct.Struct(">b").pack,
    HADOOP + "ShortWritable": struct.Struct(">h").pack,
    HADOOP + "IntWritable": struct.Struct(">i").pack,
    HADOOP + "LongWritable": struct.Struct(">q").pack,
    HADOOP + "FloatWritable": struct.Struct(">f").pack,
    HADOOP + "DoubleWritable": struct.Struct(">d").pack,
    HADOOP + "VIntWritable": vint,
    HADOOP + "VLongWritable": vint,
    RAW_CLASS: lambda value: value,
}


def framed(compress: Callable[[bytes], bytes], chunk: int = 1 << 16) -> Callable[[bytes], bytes]:
    """Hadoop's frames, with several chunks in one, as its codecs write data that exceeds their buffer."""

    def compressed(data: bytes) -> bytes:
        pieces = [compress(data[i : i + chunk]) for i in range(0, len(data), chunk)]
        return struct.pack(">i", len(data)) + b"".join(struct.pack(">i", len(piece)) + piece for piece in pieces)

    return compressed


CODECS: dict[str, Callable[[bytes], bytes]] = {
    COMPRESS + "DefaultCodec": zlib.compress,
    COMPRESS + "DeflateCodec": zlib.compress,
    COMPRESS + "GzipCodec": lambda data: gzip.compress(data, mtime=0),
    COMPRESS + "BZip2Codec": bz2.compress,
    COMPRESS + "SnappyCodec": framed(lambda data: bytes(cramjam.snappy.compress_raw(data))),
    COMPRESS + "Lz4Codec": framed(lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False))),
    COMPRESS + "ZStandardCodec": zstd.compress,
}


def header(
    key: str,
    value: str,
    codec: str | None = None,
    blocks: bool = False,
    version: int = 6,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    parts = [b"SEQ", bytes([version]), text(key), text(value), bytes([codec is not None, blocks])]
    if codec is not None and version >= 5:
        parts.append(text(codec))
    if version >= 6:
        pairs = metadata or {}
        parts.append(struct.pack(">i", len(pairs)))
        parts += [text(name) + text(item) for name, item in pairs.items()]
    return b"".join([*parts, SYNC])


def record(key: bytes, value: bytes) -> bytes:
    return struct.pack(">ii", len(key) + len(value), len(key)) + key + value


def block(keys: Sequence[bytes], values: Sequence[bytes], compress: Callable[[bytes], bytes]) -> bytes:
    buffers = [
        b"".join(vint(len(key)) for key in keys),
        b"".join(keys),
        b"".join(vint(len(value)) for value in values),
        b"".join(values),
    ]
    return MARKER + vint(len(keys)) + b"".join(sized(compress(buffer)) for buffer in buffers)


def written(
    rows: Sequence[tuple[Any, Any]],
    key: str = "Text",
    value: str = "Text",
    codec: str | None = None,
    blocks: bool = False,
    version: int = 6,
    every: int = 7,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A file with these classes of key and value and this codec class, and a sync marker or a block after `every`
    rows."""
    key_class, value_class = (name if "." in name else HADOOP + name for name in (key, value))
    codec_class = None if codec is None else COMPRESS + codec
    parts = [header(key_class, value_class, codec_class, blocks, version, metadata)]
    keys = [WRITABLES[key_class](k) for k, _ in rows]
    values = [WRITABLES[value_class](v) for _, v in rows]
    if blocks:
        compress = CODECS[codec_class or ""]
        parts += [block(keys[i : i + every], values[i : i + every], compress) for i in range(0, len(rows), every)]
        return b"".join(parts)
    for i, (k, v) in enumerate(zip(keys, values, strict=True)):
        marker = MARKER if i and i % every == 0 else b""
        parts.append(marker + record(k, v if codec_class is None else CODECS[codec_class](v)))
    return b"".join(parts)


@cache
def sequence_seeds() -> list[tuple[bytes, Mapping[str, str]]]:
    """Sound files of every layout, codec and class for the fuzzer, and small ones of other writers, if present."""
    texts = [(f"key {i}", f"value {i} " * (i % 9)) for i in range(40)]
    found: list[tuple[bytes, Mapping[str, str]]] = [(written(texts, metadata={"a": "b"}), {})]
    for name in CODECS:
        codec = name.removeprefix(COMPRESS)
        found += [(written(texts, codec=codec), {}), (written(texts, codec=codec, blocks=True), {})]
    numbers = [(i * 7919 - 9000, i) for i in range(30)]
    for key in ("IntWritable", "LongWritable", "VIntWritable", "VLongWritable"):
        found += [(written(numbers, key, "DoubleWritable"), {})]
        found += [(written(numbers, "BooleanWritable", key, "Lz4Codec", blocks=True), {})]
    raw = [(b"key %d" % i, b"value" * i) for i in range(30)]
    found += [(written(raw, RAW_CLASS, RAW_CLASS), {}), (written(raw, "BytesWritable", RAW_CLASS, "SnappyCodec"), {})]
    nulls = [(None, f"{i}|x{i}|1\x022") for i in range(30)]
    parsed = {"value_format": "delimited", "schema": "a int, b string, c array<int>", "delimiter": "|"}
    found += [(written(nulls, "NullWritable"), parsed)]
    json = [(i % 100, f'{{"a": {i}, "b": ["x"]}}') for i in range(30)]
    found += [(written(json, "ByteWritable"), {"value_format": "json", "schema": "a int, b array<string>"})]
    readers = [reader_of(param.values[0]) for param in files_of("seq", "good")]
    return found + [(reader.data, {}) for reader in readers if reader.size < 40_000]

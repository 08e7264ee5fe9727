"""Bytes that pyarrow decodes without a schema of the file: one column of one physical type, no nulls, in a Parquet
file in memory. One C call for what would be a loop over the values of a page."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sources.parquet import thrift
from sources.parquet.footer import MAGIC, Footer
from sources.parquet.page_header import DATA, DICTIONARY, PLAIN
from sources.parquet.schema import BINARY, FIXED_BYTES, Column, Leaf
from sources.parquet.thrift import I32
from sources.parquet.wrap import Template, WrittenChunk

INT32 = 1  # physical type
RLE_DICTIONARY = 8  # Encoding
UNCOMPRESSED = 0  # CompressionCodec


# What stands before, between and after the numbers of a page header (PageHeader in parquet.thrift, compact protocol).
_HEADS = {
    DATA: (b"\x15\x00\x15", b"\x2c\x15", b"\x15\x06\x15\x06\x00\x00"),  # both kinds of levels RLE
    DICTIONARY: (b"\x15\x04\x15", b"\x4c\x15", b"\x00\x00"),
}


def page_head(kind: int, values: int, encoding: int, compressed: int, uncompressed: int) -> bytes:
    """The header of a page: a data page of version 1 or a dictionary page."""
    before, own, end = _HEADS[kind]
    sizes = before + thrift.integer(uncompressed) + b"\x15" + thrift.integer(compressed)
    return sizes + own + thrift.integer(values) + b"\x15" + thrift.integer(encoding) + end


def binaries(body: memoryview, count: int) -> pa.BinaryArray:
    """The first `count` values of a PLAIN BYTE_ARRAY page; what follows them is not looked at."""
    head = page_head(DATA, count, PLAIN, len(body), len(body))
    return _decoded(BINARY, 0, count, UNCOMPRESSED, [head, body])


def hybrid_values(body: memoryview, width: int, count: int, limit: int) -> NDArray[np.int32]:
    """`count` numbers of `width` bits in the RLE / bit-packing hybrid (parquet-format, Encodings), all below `limit`:
    pyarrow takes them as indices into a dictionary that holds 0, 1, 2, ..."""
    numbers = np.arange(limit, dtype=np.int32).tobytes()
    dictionary = page_head(DICTIONARY, limit, PLAIN, len(numbers), len(numbers))
    size = 1 + len(body)
    head = page_head(DATA, count, RLE_DICTIONARY, size, size)
    parts: list[bytes | memoryview] = [dictionary, numbers, head, bytes([width]), body]
    array = _decoded(INT32, 0, count, UNCOMPRESSED, parts, lead=len(dictionary) + len(numbers))
    return np.frombuffer(array.buffers()[1], np.int32, count, 4 * array.offset)


def unpacked(body: memoryview, size: int, codec: int) -> memoryview:
    """What a page's bytes unpack to, which has to be `size` bytes exactly: one value of that length."""
    head = page_head(DATA, 1, PLAIN, len(body), size)
    return memoryview(_decoded(FIXED_BYTES, size, 1, codec, [head, body]).buffers()[1]).cast("B")[:size]


def _decoded(
    kind: int, width: int, count: int, codec: int, parts: Sequence[bytes | memoryview], lead: int = 0
) -> pa.Array:
    total = sum(map(len, parts))
    chunk = WrittenChunk(codec, count, total, total, len(MAGIC), len(MAGIC) + lead)
    file = _template(kind, width).open(count, [chunk], parts, verify=False)
    (array,) = file.read_row_group(0, use_threads=False).column(0).chunks
    if len(array) != count:
        raise pa.ArrowInvalid(f"{len(array)} values of the {count} that should be there")
    return array


def _template(kind: int, width: int) -> Template:
    return _fixed(width) if kind == FIXED_BYTES else _bare(kind)


@cache
def _bare(kind: int) -> Template:
    return _made(kind, [])


def _fixed(width: int) -> Template:
    return _made(FIXED_BYTES, [(2, I32, thrift.integer(width))])


def _made(kind: int, length: list[tuple[int, int, bytes]]) -> Template:
    fields = [(1, I32, thrift.integer(kind)), *length, (3, I32, thrift.integer(0))]  # 0: required
    element = thrift.struct([*fields, (4, thrift.BINARY, thrift.binary(b"v"))])
    column = Column(0, "v", (element,), (Leaf(0, kind, (b"v",), 0, 0, 0),), flat=True, padded_decimal=False)
    return Template(Footer(1, (column,), (), 0, None, b"", old_calendar=False), [column], None)

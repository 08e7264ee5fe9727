"""Decompresses pages. The size must be exactly the one in the page's header: buffer bytes that a codec leaves unwritten
would be read as data.
"""

from typing import NamedTuple

import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.compression import DecompressionError, decompress_stream
from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.page_header import PageHeader
from gnomon.sources.parquet.synthetic_file import decompress_with_pyarrow
from gnomon.sources.parquet.thrift import Decoder


class Unpacked(NamedTuple):
    """The decompressed content of a page, without the levels of version 2.

    `body` is the position in the page where this content begins; None where parts of it cannot be decompressed alone.
    `starts` are the positions of its snappy fragments, counted from `body`; None where it is not compressed."""

    content: memoryview
    body: int | None = None
    starts: bytes | None = None


def decompress(body: memoryview, size: int, place: ChunkPlace, offset: int, at: int) -> Unpacked:
    """Decompress `body`, which begins at `at` of the page, with the codec of its chunk. `offset` is the page's, for
    errors. Raises DamagedSource, or ArrowException, OSError or ValueError of the codec."""
    name = CODECS[place.chunk.codec]
    if name == "UNCOMPRESSED" or not size:
        return Unpacked(body[: None if size else 0], at)
    if name == "SNAPPY":
        return _unpack_snappy(body, size, place, offset, at)
    if name == "ZSTD":  # pyarrow raises on fewer bytes
        return Unpacked(memoryview(pa.Codec("zstd").decompress(body, size)).cast("B"))
    if name == "GZIP":
        data = _inflate(body, size)
        if len(data) == size:
            return Unpacked(memoryview(data))
    return Unpacked(decompress_with_pyarrow(body, size, place.chunk.codec))


def _unpack_snappy(body: memoryview, size: int, place: ChunkPlace, offset: int, at: int) -> Unpacked:
    decoder = Decoder(body[:10])
    claimed = decoder.varint()  # a snappy stream begins with its length
    if claimed != size:
        raise place.damaged(f"page unpacks to {claimed} bytes, its header says {size}", offset)
    if not kernel.COMPILED:  # pyarrow is faster than Python
        return Unpacked(memoryview(pa.Codec("snappy").decompress(body, size)).cast("B"))
    content, starts = kernel.unpack_snappy(body, decoder.position, size)
    if content is None:
        raise place.damaged("corrupt snappy data", offset)
    return Unpacked(memoryview(content), at if starts else None, starts)


def _inflate(body: memoryview, size: int) -> bytes:
    """Decompress a gzip or zlib stream to at most `size` bytes; empty where that fails. It is faster than pyarrow, but
    reads only one stream, while some writers make several."""
    try:
        return decompress_stream("gzip or zlib", body, size, end_required=False)[0]
    except DecompressionError:
        return b""


def decompress_page(page: bytes, header: PageHeader, place: ChunkPlace, offset: int) -> tuple[memoryview, Unpacked]:
    """`(levels, values)` of a checked page of version 2, both decompressed. For version 1 and a dictionary page: no
    levels, and the whole content."""
    body = memoryview(page)[header.length :]
    if not header.is_v2:
        return body[:0], decompress(body, header.uncompressed, place, offset, header.length)
    lead = header.definition_bytes + header.repetition_bytes
    if min(header.definition_bytes, header.repetition_bytes) < 0 or lead > min(len(body), header.uncompressed):
        raise place.damaged(f"levels of {lead} bytes in a page of {len(body)}", offset)
    if not header.values_compressed and not place.compressed_throughout:
        return body[:lead], Unpacked(body[lead:], header.length + lead)
    return body[:lead], decompress(body[lead:], header.uncompressed - lead, place, offset, header.length + lead)

"""Decompresses pages. The size must be exactly the one in the page's header: buffer bytes that a codec leaves unwritten
would be read as data.
"""

from array import array
from typing import NamedTuple

import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.compression import DecompressionError, decompress_by_slices, decompress_stream
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.page_header import PageHeader
from gnomon.sources.parquet.synthetic_file import decompress_with_pyarrow
from gnomon.sources.parquet.thrift import Decoder

STREAMS_OF = {"ZSTD": "zstandard", "GZIP": "gzip or zlib"}  # codecs of Parquet that are streams
LEAST_SLICED = FRAGMENT  # content bytes of a stream that is decompressed slice by slice


class Unpacked(NamedTuple):
    """The decompressed content of a page, without the levels of version 2.

    `body` is the position in the page where this content begins; None where it can only be decompressed as a whole.
    `starts` are the positions of its snappy fragments, counted from `body`; None where it is not compressed. `stream`
    is the codec of a stream that was decompressed slice by slice, with the content bytes after each slice."""

    content: memoryview
    body: int | None = None
    starts: bytes | None = None
    stream: tuple[str, "array[int]"] | None = None


def decompress(body: memoryview, size: int, place: ChunkPlace, offset: int, at: int, by_slices: bool) -> Unpacked:
    """Decompress `body`, which begins at `at` of the page, with the codec of its chunk. `offset` is the page's, for
    errors. `by_slices`: note which slices of a stream give which content. Raises DamagedSource, or ArrowException,
    OSError or ValueError of the codec."""
    name = CODECS[place.chunk.codec]
    if name == "UNCOMPRESSED" or not size:
        return Unpacked(body[: None if size else 0], at)
    if name == "SNAPPY":
        return _unpack_snappy(body, size, place, offset, at)
    if by_slices and name in STREAMS_OF and size > LEAST_SLICED:
        try:
            content, ends = decompress_by_slices(STREAMS_OF[name], body, size)
            return Unpacked(content, at, None, (STREAMS_OF[name], ends))
        except DecompressionError:
            pass  # several streams, or a damaged one: see below
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


def decompress_page(
    page: bytes, header: PageHeader, place: ChunkPlace, offset: int, by_slices: bool = False
) -> tuple[memoryview, Unpacked]:
    """`(levels, values)` of a checked page of version 2, both decompressed. For version 1 and a dictionary page: no
    levels, and the whole content. `by_slices`: see `decompress`."""
    body = memoryview(page)[header.length :]
    if not header.is_v2:
        return body[:0], decompress(body, header.uncompressed, place, offset, header.length, by_slices)
    lead = header.definition_bytes + header.repetition_bytes
    if min(header.definition_bytes, header.repetition_bytes) < 0 or lead > min(len(body), header.uncompressed):
        raise place.damaged(f"levels of {lead} bytes in a page of {len(body)}", offset)
    if not header.values_compressed and not place.compressed_throughout:
        return body[:lead], Unpacked(body[lead:], header.length + lead)
    size, at = header.uncompressed - lead, header.length + lead
    return body[:lead], decompress(body[lead:], size, place, offset, at, by_slices)

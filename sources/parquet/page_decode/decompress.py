"""Decompresses pages. The size must be exactly the one in the page's header: buffer bytes that a codec leaves unwritten
would be read as data.
"""

import pyarrow as pa

from gnomon.base.compression import DecompressionError, decompress_stream
from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.page_header import PageHeader
from gnomon.sources.parquet.synthetic_file import decompress_with_pyarrow
from gnomon.sources.parquet.thrift import Decoder


def decompress(body: memoryview, size: int, place: ChunkPlace, offset: int) -> memoryview:
    """Decompress `body` with the codec of its chunk. `offset` is the page's, for errors. Raises DamagedSource, or
    ArrowException, OSError or ValueError of the codec."""
    name = CODECS[place.chunk.codec]
    if name == "UNCOMPRESSED" or not size:
        return body[: None if size else 0]
    if name == "SNAPPY":
        claimed = Decoder(body[:10]).varint()  # a snappy stream begins with its length
        if claimed != size:
            raise place.damaged(f"page unpacks to {claimed} bytes, its header says {size}", offset)
        return memoryview(pa.Codec("snappy").decompress(body, size)).cast("B")
    if name == "ZSTD":  # pyarrow raises on fewer bytes
        return memoryview(pa.Codec("zstd").decompress(body, size)).cast("B")
    if name == "GZIP":
        data = _inflate(body, size)
        if len(data) == size:
            return memoryview(data)
    return decompress_with_pyarrow(body, size, place.chunk.codec)


def _inflate(body: memoryview, size: int) -> bytes:
    """Decompress a gzip or zlib stream to at most `size` bytes; empty where that fails. It is faster than pyarrow, but
    reads only one stream, while some writers make several."""
    try:
        return decompress_stream("gzip or zlib", body, size, end_required=False)[0]
    except DecompressionError:
        return b""


def decompress_page(page: bytes, header: PageHeader, place: ChunkPlace, offset: int) -> tuple[memoryview, memoryview]:
    """`(levels, values)` of a checked page of version 2, both decompressed. For version 1 and a dictionary page: no
    levels, and the whole content."""
    body = memoryview(page)[header.length :]
    if not header.is_v2:
        return body[:0], decompress(body, header.uncompressed, place, offset)
    lead = header.definition_bytes + header.repetition_bytes
    if min(header.definition_bytes, header.repetition_bytes) < 0 or lead > min(len(body), header.uncompressed):
        raise place.damaged(f"levels of {lead} bytes in a page of {len(body)}", offset)
    if not header.values_compressed and not place.compressed_throughout:
        return body[:lead], body[lead:]
    return body[:lead], decompress(body[lead:], header.uncompressed - lead, place, offset)

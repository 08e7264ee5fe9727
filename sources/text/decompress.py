"""Decompresses text from its begin, in pieces, never the whole at once."""

import bz2
import sys
import zlib
from collections.abc import Iterator
from typing import Any

from base.actions import Action
from sources.errors import DamagedSource, check_memory
from sources.readers import PlainReader, name_of, size_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED_BYTES = 256 << 10  # read at a time
PIECE_BYTES = 4 << 20  # unpacked at a time
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"x\x9c": "deflate", b"x\xda": "deflate"}
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # the first block, or the end of an empty file: text may begin with BZh
NOT_PACKED = (zlib.error, OSError, EOFError, ValueError, zstd.ZstdError)


def compression_of(head: bytes) -> str | None:
    """The compression of a file, from its first bytes; None without one."""
    for magic, name in MAGIC.items():
        if head.startswith(magic) and (name != "bzip2" or head[4:10] in BZIP2_BLOCKS):
            return name
    return None


def decompress_pieces(reader: PlainReader, packed: str) -> Iterator[bytes]:
    """The text in pieces of at most 4 MB. Concatenated streams are one text."""
    path, size = name_of(reader), size_of(reader)
    stream: Any = _stream(packed)
    given = 0  # bytes of the file
    held = b""
    begun = False  # whether the stream has been given anything
    while held or given < size:
        if not held:
            held = reader.read_range(given, min(PACKED_BYTES, size - given))
            given += len(held)
        while held or begun:
            piece, held, stream, begun = _step(stream, packed, held, path, given)
            if piece:
                yield piece
            elif not held:
                break
    if begun:
        raise DamagedSource(f"ends within its {packed} data: it is cut short", path, size, action=Action.RESTORE)


def _step(stream: Any, packed: str, held: bytes, path: str, given: int) -> tuple[bytes, bytes, Any, bool]:
    """Give the stream what is held: `(piece, what is held now, the stream that goes on, whether it has begun)`."""
    try:
        if packed in ("gzip", "deflate"):
            piece = stream.decompress(held, PIECE_BYTES)
            held = stream.unconsumed_tail
        else:
            piece = stream.decompress(held, PIECE_BYTES)
            held = b""
    except NOT_PACKED as error:
        check_memory(error)
        raise DamagedSource(f"its {packed} data cannot be unpacked: {error}", path, given - len(held)) from None
    if not stream.eof:
        return piece, held, stream, True
    return piece, stream.unused_data.lstrip(b"\0") if packed == "gzip" else stream.unused_data, _stream(packed), False


def _stream(packed: str) -> Any:
    if packed == "bzip2":
        return bz2.BZ2Decompressor()
    return zstd.ZstdDecompressor() if packed == "zstd" else zlib.decompressobj(wbits=31 if packed == "gzip" else 15)

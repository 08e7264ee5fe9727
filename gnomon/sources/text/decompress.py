"""Decompresses text from its beginning, in pieces, never the whole at once."""

from collections.abc import Iterator

from gnomon.base.actions import Action
from gnomon.base.compression import CorruptData, PieceDecompressor
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource

PACKED_BYTES = 256 << 10  # compressed bytes read at a time
PIECE_BYTES = 4 << 20  # decompressed bytes at a time
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"x\x9c": "deflate", b"x\xda": "deflate"}
# the first block, or the end of an empty file: text, too, may begin with BZh
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
STREAMS = {"deflate": "zlib", "zstd": "zstandard"}  # the names in `gnomon.base.compression`, where they differ


def compression_of(head: bytes) -> str | None:
    """The compression of a file, from its first bytes; None if not compressed."""
    for magic, name in MAGIC.items():
        if head.startswith(magic) and (name != "bzip2" or head[4:10] in BZIP2_BLOCKS):
            return name
    return None


def decompress_pieces(reader: RangeReader, packed: str) -> Iterator[bytes]:
    """The text in pieces of at most 4 MB. Concatenated streams are one text."""
    path, size = reader.name, reader.size
    decompressor = PieceDecompressor(STREAMS.get(packed, packed), PIECE_BYTES)
    given = 0  # bytes of the file already passed on
    while given < size:
        held = reader.read_range(given, min(PACKED_BYTES, size - given))
        given += len(held)
        try:
            yield from decompressor.pieces(held)
        except CorruptData as error:
            at = given - decompressor.unread
            raise DamagedSource(f"its {packed} data cannot be unpacked: {error}", path, at) from None
    if not decompressor.at_end:
        raise DamagedSource(f"ends inside its {packed} data: it is truncated", path, size, action=Action.RESTORE)

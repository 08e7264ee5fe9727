"""Opens text files: encoding, compression, and the digest of both ends. Compressed text is decompressed from its
beginning, in pieces, never the whole at once.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gnomon.base.actions import Action
from gnomon.base.compression import CorruptData, PieceDecompressor
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import DamagedSource, OptionError, UnsupportedFormat

PACKED_BYTES = 256 << 10  # compressed bytes read at a time
PIECE_BYTES = 4 << 20  # decompressed bytes at a time
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"x\x9c": "deflate", b"x\xda": "deflate"}
# the first block, or the end of an empty file: text, too, may begin with BZh
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
STREAMS = {"deflate": "zlib", "zstd": "zstandard"}  # the names in `gnomon.base.compression`, where they differ
END_BYTES = 64 << 10  # bytes at each end of the file that the digest covers
BOM = b"\xef\xbb\xbf"
WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
WHOLE_FILE = "whole_file"
ENCODING = "encoding"
OPTIONS: Mapping[str, str] = {
    ENCODING: "UTF-8, the only supported encoding",
    WHOLE_FILE: "true: read compressed files, each fetch from their beginning",
}
UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")


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


class Opened(NamedTuple):
    """A file whose ends were read. `head` is the begin of the text, the whole text if `complete`. `first`: offset after
    a byte-order mark. `packed`: the compression, or None. In a compressed file all offsets are those of the
    decompressed text."""

    path: str
    size: int
    digest: str
    packed: str | None
    head: bytes
    complete: bool
    first: int


def read_ends(reader: RangeReader, options: Options, head_bytes: int) -> Opened:
    """Read both ends of the file in one round of reads, and check encoding and compression."""
    if options.get(ENCODING, UTF8[0]).lower() not in UTF8:
        raise OptionError(f"option {ENCODING}", expected="UTF-8", found=options[ENCODING])
    whole = flag(options, WHOLE_FILE, False)
    path, size = reader.name, reader.size
    held = min(size, max(head_bytes, END_BYTES))
    end = min(size, END_BYTES)
    head, tail = reader.read_ranges([(0, held), (size - end, end)])
    digest = hashlib.blake2b(size.to_bytes(8, "little") + head[:END_BYTES] + tail, digest_size=16).hexdigest()
    packed, complete = compression_of(head), held == size
    if packed is not None:
        if not whole:
            raise UnsupportedFormat(
                f"compressed with {packed}, which cannot be read from the middle: a fetch would unpack the file from "
                "its beginning",
                path,
                0,
                action=Action.UNPACK,
            )
        head, complete = _decompressed_head(reader, packed, head_bytes)
    if head.startswith(WIDE_BOMS):
        raise UnsupportedFormat("text in UTF-16 or UTF-32; only UTF-8 is supported", path, 0)
    first = len(BOM) if head.startswith(BOM) else 0
    return Opened(path, size, digest, packed, head, complete, first)


def _decompressed_head(reader: RangeReader, packed: str, length: int) -> tuple[bytes, bool]:
    head = bytearray()
    for piece in decompress_pieces(reader, packed):
        head += piece
        if len(head) > length:
            return bytes(head[:length]), False
    return bytes(head), True


def flag(options: Options, name: str, default: bool) -> bool:
    """The value of an option that is true or false. OptionError for another text."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}", expected="true or false", found=repr(options[name]))
    return text == "true"

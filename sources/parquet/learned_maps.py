"""What fetches learned about the pages of a file, as bytes: page maps and value maps. A later process takes them over.

    GLM1 | byte order | digest of the footer, 16 bytes | length of the page maps, 4 bytes | page maps (`page_map_codec`)
         | number of value maps, 4 bytes | numbers of each, 8 bytes | the parts of each

Numbers are in the machine's order, since maps hold arrays of them. The bytes have no checksum of all: who keeps them
has to make sure that they are the ones that were given out."""

import struct
import sys
from collections.abc import Mapping

from gnomon.sources.parquet.page_decode import MappedPage, Stored, restored
from gnomon.sources.parquet.page_map import PageMap
from gnomon.sources.parquet.page_map_codec import DamagedMaps, Key, RecordedMaps, encode_maps

MAGIC = b"GLM1" + sys.byteorder[:1].encode()  # the last digit is the version
DIGEST_BYTES = 16
KEY, NUMBERS, PARTS = 4, 8, 5  # numbers of a map: of its key, its own, lengths of its parts
OF_A_MAP = struct.Struct(f"={KEY + NUMBERS + PARTS}q")
LENGTH = struct.Struct("=I")
NO_PART = -1

PageKey = tuple[int, int, int, int]  # row group, leaf, offset and length of the page


def encode_learned(pages: Mapping[Key, PageMap | None], maps: Mapping[PageKey, MappedPage], digest: str) -> bytes:
    """The maps as bytes. `digest` is that of the file's footer, in hex."""
    recorded = encode_maps(pages, digest)
    heads, parts = [], []
    for key, map in maps.items():
        stored = map.stored()
        lengths = [NO_PART if part is None else len(part) for part in stored.parts]
        heads.append(OF_A_MAP.pack(*key, *stored.numbers, *lengths))
        parts += [part for part in stored.parts if part]
    lead = (MAGIC, bytes.fromhex(digest), LENGTH.pack(len(recorded)), recorded, LENGTH.pack(len(heads)))
    return b"".join([*lead, *heads, *parts])


def decode_learned(data: bytes, digest: str) -> tuple[RecordedMaps, dict[PageKey, MappedPage]]:
    """Page maps, and value maps by their pages. DamagedMaps for bytes of another version, machine or file."""
    head = MAGIC + bytes.fromhex(digest)
    if data[: len(head)] != head:
        raise DamagedMaps("learned maps of another version, or of another file")
    try:
        return _decoded(data, len(head), digest)
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedMaps(f"learned maps cannot be read: {error}") from None


def _decoded(data: bytes, at: int, digest: str) -> tuple[RecordedMaps, dict[PageKey, MappedPage]]:
    [length] = LENGTH.unpack_from(data, at)
    at += LENGTH.size + length
    recorded = RecordedMaps(data[at - length : at], digest)
    [count] = LENGTH.unpack_from(data, at)
    heads = at + LENGTH.size
    at = heads + count * OF_A_MAP.size
    maps: dict[PageKey, MappedPage] = {}
    for begin in range(heads, at, OF_A_MAP.size):
        numbers = OF_A_MAP.unpack_from(data, begin)
        parts: list[bytes | None] = []
        for size in numbers[KEY + NUMBERS :]:
            if size > len(data) - at:
                raise DamagedMaps("learned maps are cut short")
            parts.append(None if size == NO_PART else data[at : at + size])
            at += max(size, 0)
        row_group, leaf, offset, length = numbers[:KEY]
        maps[row_group, leaf, offset, length] = restored(Stored(numbers[KEY : KEY + NUMBERS], tuple(parts)))
    if at != len(data):
        raise DamagedMaps(f"{len(data) - at} bytes after the learned maps")
    return recorded, maps

"""Pages that pyarrow misreads or refuses, written again as pages that it reads.

- pyarrow takes levels of the deprecated encoding BIT_PACKED from the lowest bit of each byte on, which gives other
  rows. Impala alone wrote them so; the format begins with the highest bit.
- It refuses some pages without entries, and a list that goes on after one.
- It gives other values where a dictionary has a value twice and is asked for as a dictionary.
- It refuses DELTA_BINARY_PACKED where a packed difference is wider than the type, as DuckDB writes INT32 columns. The
  lengths of the other two DELTA encodings are packed in the same way.

The new pages are not compressed, of version 1, with PLAIN values in place of DELTA ones."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gnomon.sources.parquet.footer import MAGIC, ChunkPlace
from gnomon.sources.parquet.page_decode import decoding, decompress_page, encode_levels, level_section
from gnomon.sources.parquet.page_header import (
    BIT_PACKED,
    DATA,
    DICTIONARY,
    PLAIN,
    PageHeader,
    check_sizes,
    check_sum,
    read_header,
)
from gnomon.sources.parquet.schema import BINARY, Leaf
from gnomon.sources.parquet.synthetic_file import UNCOMPRESSED, ChunkEntry, FooterTemplate, encode_page_header
from gnomon.sources.parquet.thrift import Decoder, ThriftError

DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 5, 6, 7
DELTAS = (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY)
INT32 = 1  # physical type
WORD = 1 << 64
WIDEST = 64  # bits of a packed difference
LONGEST_BLOCK = 1 << 20  # numbers
LENGTH_BYTES = 4
MOST_BYTES = (1 << 31) - 1  # of the values of a page


class Coded(NamedTuple):
    """Pages of one chunk: their bytes, which begin at `offset` in the file, and how many values they hold."""

    place: ChunkPlace
    data: bytes
    offset: int
    values: int

    @classmethod
    def of_chunk(cls, place: ChunkPlace, data: bytes) -> "Coded":
        """A whole chunk."""
        return cls(place, data, place.chunk.start, place.chunk.values)


def open_recoded(template: FooterTemplate, rows: int, chunks: Sequence[Coded]) -> pq.ParquetFile:
    """A file of pyarrow with these chunks of the template's leaves, written again. DamagedSource where they cannot be
    decoded."""
    parts, entries, start = [], [], len(MAGIC)
    for chunk in chunks:
        data, lead = _recoded(chunk)
        entries.append(ChunkEntry(UNCOMPRESSED, chunk.values, len(data), len(data), start, start + lead))
        parts.append(data)
        start += len(data)
    return template.open(rows, entries, parts)


def _recoded(chunk: Coded) -> tuple[bytes, int]:
    """`(pages, bytes before the first data page)`"""
    place, data, pages, lead, at, left = chunk.place, chunk.data, [], 0, 0, chunk.values
    with decoding(place, chunk.offset):
        while left > 0 and at < len(data):
            header, offset = read_header(data, at), chunk.offset + at
            check_sizes(header, place, offset)
            page = data[at : at + header.length + header.compressed]
            check_sum(page, header, place, offset)
            if header.is_data and header.values:
                left -= header.values
                pages.append(_data_page(page, header, place, offset))
            elif header.kind == DICTIONARY:
                content = decompress_page(page, header, place, offset)[1].content
                pages.append(encode_page_header(DICTIONARY, header.values, PLAIN, len(content), len(content)) + content)
                lead += len(pages[-1])
            at += len(page)
    return b"".join(pages), lead


def _data_page(page: bytes, header: PageHeader, place: ChunkPlace, offset: int) -> bytes:
    leaf = place.leaf
    assert leaf is not None
    levels, unpacked = decompress_page(page, header, place, offset)
    body = unpacked.content
    sections: list[bytes | memoryview] = []
    if header.is_v2:
        at = header.repetition_bytes
        for highest, section in ((leaf.repetitions, levels[:at]), (leaf.definitions, levels[at:])):
            sections += [len(section).to_bytes(LENGTH_BYTES, "little"), section] if highest else []
    else:
        for highest, encoding in (
            (leaf.repetitions, header.repetition_encoding),
            (leaf.definitions, header.definition_encoding),
        ):
            if not highest:
                continue
            if encoding == BIT_PACKED:
                found, body = _bit_packed(body, highest, header.values, place.packed_upwards)
                sections.append(encode_levels(found, highest))
            else:
                section, rest = level_section(body)
                sections.append(body[: LENGTH_BYTES + len(section)])
                body = rest
    encoding = header.encoding
    if encoding in DELTAS:
        body, encoding = memoryview(_plain(body, encoding, leaf, header.values)), PLAIN
    content = b"".join([*sections, body])
    return encode_page_header(DATA, header.values, encoding, len(content), len(content)) + content


def _bit_packed(body: memoryview, highest: int, count: int, upwards: bool) -> tuple[bytes, memoryview]:
    """`(levels, bytes after them)`: packed from the highest bit of each byte on, or `upwards`, without a length."""
    width = highest.bit_length()
    end = (count * width + 7) >> 3
    if end > len(body) or width > 8:
        raise ThriftError(f"{count} levels of {width} bits in a page of {len(body)} bytes")
    bits = np.unpackbits(np.frombuffer(body[:end], np.uint8), bitorder="little" if upwards else "big")
    places = np.arange(width, dtype=np.uint8) if upwards else np.arange(width - 1, -1, -1, dtype=np.uint8)
    levels = (bits[: count * width].reshape(count, width) << places).sum(axis=1, dtype=np.uint8)
    if count and int(levels.max()) > highest:
        raise ThriftError(f"a level of {levels.max()}, the highest is {highest}")
    return levels.tobytes(), body[end:]


def _plain(body: memoryview, encoding: int, leaf: Leaf, most: int) -> bytes:
    """At most `most` values of a DELTA encoding, in PLAIN."""
    if not len(body):
        return b""  # a page of nulls
    if encoding == DELTA_BINARY_PACKED:
        numbers, _ = _numbers(body, most)
        return numbers.astype("<u4" if leaf.kind == INT32 else "<u8").tobytes()
    prefixes = None
    if encoding == DELTA_BYTE_ARRAY:
        prefixes, body = _lengths(body, most)
    lengths, body = _lengths(body, most)
    if prefixes is not None and len(prefixes) != len(lengths):
        raise ThriftError(f"{len(prefixes)} lengths of prefixes, {len(lengths)} of suffixes")
    if sum(lengths) > len(body) or sum(lengths) + sum(prefixes or ()) > MOST_BYTES:
        raise ThriftError(f"values of {sum(lengths)} bytes in {len(body)}")
    out: list[bytes] = []
    before, at = b"", 0
    for value, length in enumerate(lengths):
        before = (before[: prefixes[value]] if prefixes else b"") + bytes(body[at : at + length])
        if len(before) != length + (prefixes[value] if prefixes else 0):
            raise ThriftError(f"the prefix of value {value} is longer than the value before it")
        at += length
        out += (len(before).to_bytes(LENGTH_BYTES, "little"), before) if leaf.kind == BINARY else (before,)
    return b"".join(out)


def _lengths(body: memoryview, most: int) -> tuple[list[int], memoryview]:
    """`(lengths, bytes after them)`"""
    numbers, end = _numbers(body, most)
    lengths = numbers.astype(np.uint32).view(np.int32)
    if len(lengths) and int(lengths.min()) < 0:
        raise ThriftError(f"a length of {lengths.min()}")
    return lengths.tolist(), body[end:]


def _numbers(body: memoryview, most: int) -> tuple[NDArray[np.uint64], int]:
    """`(numbers, their end)` of DELTA_BINARY_PACKED (parquet-format, Encodings). Sums wrap at 64 bits."""
    decoder = Decoder(body)
    block, pieces, count, first = decoder.varint(), decoder.varint(), decoder.varint(), decoder.integer()
    if count > most or not 0 < pieces <= block <= LONGEST_BLOCK or block % pieces or block // pieces % 8:
        raise ThriftError(f"{count} differences in blocks of {block} with {pieces} pieces, the page has {most} values")
    steps = np.zeros(count, np.uint64)
    steps[:1] = first % WORD
    done, in_piece = 1, block // pieces
    while done < count:
        least = np.uint64(decoder.integer() % WORD)
        for width in bytes(decoder.take(pieces)):
            share = min(in_piece, count - done)
            if share <= 0:
                break
            end = decoder.position + in_piece * width // 8
            packed = decoder.take((share * width + 7) >> 3)  # some writers cut the last piece
            if width > WIDEST:
                raise ThriftError(f"differences of {width} bits")
            bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")[: share * width]
            weights = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64))
            steps[done : done + share] = bits.reshape(share, width).astype(np.uint64) @ weights + least
            decoder.position = min(end, len(body))
            done += share
    return np.cumsum(steps, dtype=np.uint64), decoder.position

"""ORC files of one column of texts or blobs, with a row index and with chunks that end at given places."""

import zlib
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, takewhile
from typing import NamedTuple

import pyarrow as pa

from gnomon.sources.orc.metadata import DATA, LENGTH, ROW_INDEX, parse_footer, parse_postscript
from gnomon.sources.orc.schema import fields, message, number, numbers
from tests.sources.orc_files import encoded, varint, written

ZLIB = 1  # a CompressionKind


class Packed(NamedTuple):
    """A stream in chunks: the coordinates of their first bytes, their begins, and the whole stream."""

    coordinates: list[int]
    begins: list[int]
    data: bytes

    def position(self, byte: int) -> tuple[int, int]:
        slot = bisect_right(self.coordinates, byte) - 1
        return self.begins[slot], byte - self.coordinates[slot]


def packed(content: bytes, sizes: Iterable[int]) -> Packed:
    """Content in chunks of these sizes, as far as there are bytes."""
    ends = list(takewhile(len(content).__gt__, accumulate(sizes)))
    chunks = []
    for begin, end in zip([0, *ends], [*ends, len(content)], strict=True):
        part = content[begin:end]
        stream = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = stream.compress(part) + stream.flush()
        stands = len(body) >= len(part)
        chunks.append(varying(part if stands else body, stands))
    return Packed([0, *ends], list(accumulate(map(len, chunks), initial=0))[:-1], b"".join(chunks))


def varying(body: bytes, stands: bool) -> bytes:
    """A chunk: its header and its bytes, packed or plain."""
    return (len(body) << 1 | stands).to_bytes(3, "little") + body


def in_chunks(texts: pa.Array, stride: int, block: int, sizes: Iterable[int], spare: bytes = b"") -> bytes:
    """One stripe of texts without nulls, as column `text`. `sizes` are the sizes of the chunks of their bytes, `spare`
    comes after them. `block` is the declared block size."""
    table = pa.table({"text": texts})
    plain = written(table, compression="uncompressed", row_index_stride=stride, dictionary_key_size_threshold=0.0)
    postscript = parse_postscript(plain[-1 - plain[-1] : -1])
    end = len(plain) - 1 - plain[-1]
    tail = plain[end - postscript.footer_length : end]
    (place,) = parse_footer(tail, postscript, end - postscript.footer_length).stripes
    streams, encodings, at = [], [], place.offset
    for key, value in fields(plain[place.footer_offset : place.footer_offset + place.footer_length]):
        if key == 1:
            found = {1: 0} | {each: number(what) for each, what in fields(message(value))}
            streams.append((found, plain[at : at + found[3]]))
            at += found[3]
        else:
            encodings.append((key, value))
    parts = {
        found[1]: packed(content + spare, sizes) if found[1] == DATA else packed(content, [1 << 20])
        for found, content in streams
        if found[1] in (DATA, LENGTH)
    }
    body, index_length, footer = bytearray(), 0, []
    for found, content in streams:
        if found[1] == ROW_INDEX:
            new = packed(_index(content, parts) if found[2] else content, [1 << 20]).data
            index_length += len(new)
        else:
            new = parts[found[1]].data
        body += new
        footer.append((1, encoded([(1, found[1]), (2, found[2]), (3, len(new))])))
    stripe_footer = packed(encoded([*footer, *encodings]), [1 << 20]).data  # type: ignore[list-item]
    stripe = [(1, 3), (2, index_length), (3, len(body) - index_length), (4, len(stripe_footer)), (5, place.rows)]
    whole = [(key, encoded(stripe) if key == 3 else value) for key, value in fields(tail) if key not in (1, 2, 7)]
    file_footer = packed(encoded(whole), [1 << 20]).data  # type: ignore[arg-type]
    script = [(1, len(file_footer)), (2, ZLIB), (3, block), (4, 0), (4, 12), (5, 0), (6, 9), (8000, b"ORC")]
    ending = encoded(script)  # type: ignore[arg-type]
    return b"ORC" + bytes(body) + stripe_footer + file_footer + ending + bytes([len(ending)])


def _index(content: bytes, parts: dict[int, Packed]) -> bytes:
    """The row index of the texts, with positions in the chunks."""
    entries = []
    for _, value in fields(content):
        found = [one for key, what in fields(message(value)) if key == 1 for one in numbers(what)]
        data, length, skip = found[-3:]
        places = [*parts[DATA].position(data), *parts[LENGTH].position(length), skip]
        entries.append((1, encoded([(1, b"".join(map(varint, places)))])))
    return encoded(entries)

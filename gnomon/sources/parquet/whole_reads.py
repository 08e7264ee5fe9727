"""Reads that pyarrow decodes, and scans of row groups.

`PageRead` reads pages of a flat column, `GroupRead` all chunks of a column in a row group. In a scan pyarrow streams
the real chunks, with a generated footer that has only the requested columns.

Pages that pyarrow misreads or refuses are written again, not compressed, of version 1, with PLAIN values in place of
DELTA ones:

- pyarrow takes levels of the deprecated encoding BIT_PACKED from the lowest bit of each byte on, which gives other
  rows. Impala alone wrote them so; the format begins with the highest bit.
- It refuses some pages without entries, and a list that goes on after one.
- It gives other values where a dictionary has a value twice and is asked for as a dictionary.
- It refuses DELTA_BINARY_PACKED where a packed difference is wider than the type, as DuckDB writes INT32 columns. The
  lengths of the other two DELTA encodings are packed in the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.arrow import compute as pc
from gnomon.base.arrow import parquet as pq
from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.footer import BINARY, MAGIC, ChunkPlace, Leaf, RowGroup
from gnomon.sources.parquet.page_header import (
    BIT_PACKED,
    DATA,
    DICTIONARY,
    PLAIN,
    ChunkCheck,
    NeedsRecoding,
    PageCheckingFile,
    PageHeader,
    check_leaf_lengths,
    check_page,
    check_sizes,
    check_sum,
    decode_errors,
    misreads_levels,
    read_header,
)
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.page_values import LENGTH_BYTES, decoding, decompress_page, level_section
from gnomon.sources.parquet.synthetic_file import (
    INT32,
    UNCOMPRESSED,
    ChunkEntry,
    FooterTemplate,
    encode_levels,
    encode_page_header,
    open_with_pyarrow,
)
from gnomon.sources.parquet.thrift import Decoder, ThriftError
from gnomon.sources.pointers import batch_without_columns, with_ordinals
from gnomon.sources.types import int64s

DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 5, 6, 7
DELTAS = (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY)
WORD = 1 << 64
WIDEST = 64  # bits of a packed difference
LONGEST_BLOCK = 1 << 20  # numbers
MOST_BYTES = (1 << 31) - 1  # of the values of a page
Rows = NDArray[np.int64]  # ordinals in the row group, ascending
# Types whose pages pyarrow can give as indices into their dictionary. So one wanted row of a page with half a million
# strings makes one string.
DICTIONARY_READABLE = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
GROUP_BATCH = 8192  # rows decoded at a time from a whole row group, few of which are wanted
BATCH, BATCH_BYTES = 64 << 10, 64 << 20  # rows, and bytes of rows, decoded at a time
BUFFER = 4 << 20  # bytes of each column held at a time


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


def open_recoded(template: FooterTemplate, rows: int, chunks: Sequence[Coded]) -> "pq.ParquetFile":
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


class Read(Protocol):
    """`column` is the column's position in the requested columns."""

    column: int
    ranges: list[Range]

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        """The wanted rows, from the bytes of `ranges`."""


class PageRead:
    """Pages of a flat column chunk that hold wanted rows."""

    def __init__(
        self,
        column: int,
        place: ChunkPlace,
        template: FooterTemplate,
        kind: pa.DataType,
        pages: PageMap,
        rows: Rows,
    ) -> None:
        """`kind`: the Arrow type of the column."""
        self.column = column
        self._place = place
        self._template = template
        self._kind = kind
        chosen, begins = pages.holding(rows)
        counts = pages.first_rows[chosen + 1] - pages.first_rows[chosen]
        self._counts: list[int] = counts.tolist()
        skipped = pages.first_rows[chosen] - (np.cumsum(counts) - counts)  # rows of other pages before each page
        self._positions = rows - np.repeat(skipped, np.diff(begins))
        self.ranges: list[Range] = list(
            zip(pages.offsets[chosen].tolist(), pages.lengths[chosen].tolist(), strict=True)
        )
        needed = pages.needs_dictionary is None or bool(pages.needs_dictionary[chosen].any())
        self._dictionary = pages.dictionary if needed else None
        if self._dictionary is not None:
            self.ranges.insert(0, self._dictionary)

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        """The wanted rows. Decodes pages to their end, past the last wanted row, to find damage there."""
        headers = self._check(parts)
        if not any(misreads_levels(header, self._place) for header in headers):
            try:
                entries = headers[0].values if self._dictionary is not None else 0
                return self._decoded(self._file(parts, headers), entries)
            except NeedsRecoding:
                pass
            except DamagedSource:
                if not any(header.encoding in DELTAS for header in headers if header.is_data):
                    raise
        total = sum(self._counts)
        coded = Coded(self._place, b"".join(parts), self.ranges[0][0], total)
        return self._decoded(lambda: open_recoded(self._template, total, [coded]))

    def _file(self, parts: Sequence[bytes], headers: Sequence[PageHeader]) -> Callable[[], "pq.ParquetFile"]:
        """Opens the pages as they are."""
        in_dictionary = all(header.in_dictionary for header in headers if header.is_data)
        indices = in_dictionary and self._kind in DICTIONARY_READABLE
        lead = len(parts[0]) if self._dictionary is not None else 0
        length, total = sum(map(len, parts)), sum(self._counts)
        chunk = ChunkEntry(self._place.chunk.codec, total, length, length, len(MAGIC), len(MAGIC) + lead)
        return partial(self._template.open, total, [chunk], parts, as_dictionary=indices, verify=False)

    def _decoded(self, opened: Callable[[], "pq.ParquetFile"], entries: int = 0) -> pa.ChunkedArray:
        """The wanted rows of a file with the pages. NeedsRecoding where pyarrow gives them as indices into fewer than
        the `entries` of the dictionary: it drops an entry that repeats another, and not its index."""
        total = sum(self._counts)
        with decode_errors(self._place, self.ranges[0][0]):
            values = opened().read_row_group(0, use_threads=False).column(0)
            if len(values) != total:
                raise pa.ArrowInvalid(f"{len(values)} rows, expected {total}")
            if pa.types.is_dictionary(values.type) and any(len(one.dictionary) < entries for one in values.chunks):
                raise NeedsRecoding
            taken = pc.take(values, int64s(self._positions))
            return taken if taken.type == self._kind else taken.cast(self._kind)

    def _check(self, parts: Sequence[bytes]) -> list[PageHeader]:
        """Check that every page is whole and agrees with the page map. Returns their headers."""
        counts = [None, *self._counts] if self._dictionary is not None else self._counts
        return [
            check_page(part, self._place, offset, count)
            for (offset, _), part, count in zip(self.ranges, parts, counts, strict=True)
        ]


class GroupRead:
    """All chunks of a column in one row group, for nested columns."""

    def __init__(
        self, column: int, places: Sequence[ChunkPlace], template: FooterTemplate, slack: int, rows: Rows
    ) -> None:
        """`slack`: bytes to read beyond each chunk (`legacy_slack`)."""
        self.column = column
        self._places = places
        self._template = template
        self._rows = rows
        self.ranges: list[Range] = [(place.chunk.start, place.chunk.compressed + slack) for place in places]

    def rows(self, parts: Sequence[bytes]) -> pa.ChunkedArray:
        try:
            for each, part in zip(self._places, parts, strict=True):
                ChunkCheck(each).check(part)
            return self._decoded(lambda: self._file(parts))
        except NeedsRecoding:
            pass
        except DamagedSource:
            if all(place.chunk.decodable for place in self._places):
                raise
        coded = [Coded.of_chunk(place, part) for place, part in zip(self._places, parts, strict=True)]
        return self._decoded(lambda: open_recoded(self._template, self._places[0].rows, coded))

    def _file(self, parts: Sequence[bytes]) -> "pq.ParquetFile":
        """The chunks as they are."""
        chunks, start = [], len(MAGIC)
        for each, part in zip(self._places, parts, strict=True):
            chunk = each.chunk
            lead = chunk.data_offset - chunk.start
            chunks.append(ChunkEntry(chunk.codec, chunk.values, chunk.uncompressed, len(part), start, start + lead))
            start += len(part)
        return self._template.open(self._places[0].rows, chunks, parts)

    def _decoded(self, opened: Callable[[], "pq.ParquetFile"]) -> pa.ChunkedArray:
        """The wanted rows of a file with the chunks."""
        place = self._places[0]
        with decode_errors(place, place.chunk.start):
            pieces, seen = [], 0
            for batch in opened().iter_batches(GROUP_BATCH, use_threads=False):
                check_leaf_lengths(batch)
                low, high = np.searchsorted(self._rows, (seen, seen + len(batch)))
                if low < high:
                    pieces.append(pc.take(batch.column(0), int64s(self._rows[low:high] - seen)))
                seen += len(batch)
                if seen > self._rows[-1]:
                    return pa.chunked_array(pieces)
            raise pa.ArrowInvalid(f"{seen} rows, the row group has {place.rows}")


def split_pages(pages: PageMap, rows: Rows, limit: int) -> list[Rows]:
    """The `rows`, in parts whose pages take about `limit` bytes."""
    chosen, begins = pages.holding(rows)
    share_of = np.cumsum(pages.lengths[chosen]) // limit
    return np.split(rows, begins[np.flatnonzero(np.diff(share_of)) + 1])


def scan_group(
    reader: RangeReader, group: RowGroup, template: FooterTemplate, places: Sequence[ChunkPlace], row_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, in batches. `places`: the chunks of the template's columns, checked against the file."""
    seen = 0
    for batch in _exact(reader, group, template, places):
        first = group.first_row + seen
        seen += batch.num_rows
        if seen > group.rows:
            break
        yield with_ordinals(batch, first, row_bytes)
    if seen != group.rows:
        raise places[0].damaged(f"{seen} rows read, the row group has {group.rows}")


def _exact(
    reader: RangeReader, group: RowGroup, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, with an error if the leaves of a repeated column contradict each other.

    Of repeated columns one row too many is requested, since pyarrow reports the contradiction only then. Otherwise
    values of other leaves, or those after damaged levels, would get into the wrong rows. Some files cannot be decoded
    beyond their last row."""
    seen = 0
    if any(place.repeated for place in places):
        try:
            for batch in _batches(reader, group.rows + 1, template, places):
                seen += batch.num_rows
                yield batch
        except DamagedSource as error:
            if not isinstance(error.__cause__, OSError):  # pyarrow decoded the rows, and they contradict each other
                raise
        else:
            return
    yield from _after(seen, _batches(reader, group.rows, template, places))


def _after(seen: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the batches without the first `seen`."""
    for batch in batches:
        known = min(seen, batch.num_rows)
        seen -= known
        if known < batch.num_rows:
            yield batch.slice(known)


def _batches(
    reader: RangeReader, rows: int, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    if not places:
        for first in range(0, rows, BATCH):
            yield batch_without_columns(min(BATCH, rows - first))
        return
    try:
        seen = 0
        for batch in _streamed(reader, rows, template, places):
            seen += batch.num_rows
            yield batch
        return
    except NeedsRecoding:
        pass
    except DamagedSource:
        if all(place.chunk.decodable for place in places):
            raise
    parts = reader.read_ranges([(place.chunk.start, place.chunk.compressed) for place in places])
    coded = [Coded.of_chunk(place, part) for place, part in zip(places, parts, strict=True)]
    with _scan_errors(places):
        yield from _after(seen, _checked(open_recoded(template, rows, coded), rows, places))


def _streamed(
    reader: RangeReader, rows: int, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    """The rows as pyarrow reads them from the file."""
    chunks = []
    for place in places:
        chunk = place.chunk
        chunks.append(
            ChunkEntry(chunk.codec, chunk.values, chunk.uncompressed, chunk.compressed, chunk.start, chunk.data_offset)
        )
    with PageCheckingFile(reader, template.footer(rows, chunks), places) as file, _scan_errors(places, file):
        yield from _checked(open_with_pyarrow(file, BUFFER), rows, places)


def _checked(file: "pq.ParquetFile", rows: int, places: Sequence[ChunkPlace]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, decoded fewer at a time if they are long."""
    total = sum(max(place.chunk.uncompressed, 0) for place in places)
    for batch in file.iter_batches(max(min(BATCH, BATCH_BYTES * rows // max(total, 1)), 1), use_threads=False):
        check_leaf_lengths(batch)
        yield batch


@contextmanager
def _scan_errors(places: Sequence[ChunkPlace], file: PageCheckingFile | None = None) -> Iterator[None]:
    """Turn errors of pyarrow into DamagedSource or UnsupportedFormat, or the error that the file kept."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if file is not None and file.failure is not None:  # the store's error, or the error of a page
            raise file.failure from None
        check_memory(error)
        where = f"row group {places[0].row_group}, columns {', '.join(sorted({p.column for p in places}))}"
        offset = min(place.chunk.start for place in places)
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedFormat(f"{where}: {error}", places[0].path, offset) from error
        raise DamagedSource(f"{where}: cannot be decoded: {error}", places[0].path, offset) from error

"""A text file as a `SourceFile`: scanned in blocks of whole records, fetched record by record.

A grammar (`csv`, `jsonl`) finds the ends of records and parses their columns. Text has no checksum: a change that
leaves a valid row is not detected.

A file is opened with its encoding, compression, and the digest of both ends. Compressed text is decompressed from its
beginning, in pieces, never the whole at once.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.compression import CorruptData, PieceDecompressor
from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Numbers, Options, Pointers, Split
from gnomon.sources.errors import DamagedSource, OptionError, StalePointer, UnsupportedFormat, check_column
from gnomon.sources.literals import RefusedValue
from gnomon.sources.pointers import even_splits, in_pointer_order, pointer_pairs, table_without_columns, with_pointers
from gnomon.sources.types import arrays_of, int32s, int64s, plan_columns

PACKED_BYTES = 256 << 10  # compressed bytes read at a time
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
Positions = NDArray[np.int64]
BATCH_ROWS = 64 << 10
# values of a batch: bounds batches of rows with thousands of columns, even if most values are null
BATCH_VALUES = 4 << 20
PIECE_BYTES = 4 << 20  # bytes per read of a scan, or decompressed at a time
RECORD_LIMIT = 64 << 20  # bytes: a longer record is damage (a quote that is never closed)
GUESS_BYTES = 4 << 10  # fewest bytes that a fetch reads for a row
GUESS_ROWS = 4  # or this multiple of the mean length
GUESS_GROWTH = 8
ROUND_BYTES = 32 << 20  # bytes of a fetch's reads at once
LINE_BYTES = 64 << 10  # read at a time in search of a line end
Records = tuple[Positions, list[bytes]]  # offsets, and the records at them


def compression_of(head: bytes) -> str | None:
    """The compression of a file, from its first bytes; None if not compressed."""
    for magic, name in MAGIC.items():
        if head.startswith(magic) and (name != "bzip2" or head[4:10] in BZIP2_BLOCKS):
            return name
    return None


def decompress_pieces(reader: RangeReader, packed: str) -> Iterator[bytes]:
    """The text in pieces of at most 4 MB. Concatenated streams are one text."""
    return (piece for piece, _ in _counted_pieces(reader, packed))


def _counted_pieces(reader: RangeReader, packed: str) -> Iterator[tuple[bytes, int]]:
    """The text in pieces, each with the bytes of the file that were read so far."""
    path, size = reader.name, reader.size
    decompressor = PieceDecompressor(STREAMS.get(packed, packed), PIECE_BYTES)
    given = 0  # bytes of the file already passed on
    while given < size:
        held = reader.read_range(given, min(PACKED_BYTES, size - given))
        given += len(held)
        try:
            for piece in decompressor.pieces(held):
                yield piece, given
        except CorruptData as error:
            at = given - decompressor.unread
            raise DamagedSource(f"its {packed} data cannot be unpacked: {error}", path, at) from None
    if not decompressor.at_end:
        raise DamagedSource(f"ends inside its {packed} data: it is truncated", path, size, action=Action.RESTORE)


class Opened(NamedTuple):
    """A file whose ends were read. `head` is the begin of the text, the whole text if `complete`. `first`: offset after
    a byte-order mark. `packed`: the compression, or None. In a compressed file all offsets are those of the
    decompressed text. `packing`: bytes of the file for a byte of text, from the head; 1 if not compressed."""

    path: str
    size: int
    digest: str
    packed: str | None
    head: bytes
    complete: bool
    first: int
    packing: float = 1.0


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
    packed, complete, packing = compression_of(head), held == size, 1.0
    if packed is not None:
        if not whole:
            raise UnsupportedFormat(
                f"compressed with {packed}, which cannot be read from the middle: a fetch would unpack the file from "
                "its beginning",
                path,
                0,
                action=Action.UNPACK,
            )
        head, complete, packing = _decompressed_head(reader, packed, head_bytes)
    if head.startswith(WIDE_BOMS):
        raise UnsupportedFormat("text in UTF-16 or UTF-32; only UTF-8 is supported", path, 0)
    first = len(BOM) if head.startswith(BOM) else 0
    return Opened(path, size, digest, packed, head, complete, first, packing)


def _decompressed_head(reader: RangeReader, packed: str, length: int) -> tuple[bytes, bool, float]:
    """The first bytes of the text, whether they are all, and the bytes of the file for each byte of text so far."""
    head = bytearray()
    for piece, read in _counted_pieces(reader, packed):
        head += piece
        if len(head) > length:
            return bytes(head[:length]), False, read / len(head)
    return bytes(head), True, reader.size / max(len(head), 1)


def flag(options: Options, name: str, default: bool) -> bool:
    """The value of an option that is true or false. OptionError for another text."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}", expected="true or false", found=repr(options[name]))
    return text == "true"


class Block(Protocol):
    """Whole records, found in some bytes: the begin and end of each (without its line end), without blank ones.
    `consumed` bytes are parsed; the rest is the beginning of another record."""

    data: bytes
    starts: Positions
    ends: Positions
    consumed: int

    def texts(self, begin: int, end: int) -> list[bytes]:
        """The bytes of records. `RefusedValue` for the first that is not UTF-8."""
        starts, ends = self.starts[begin:end], self.ends[begin:end]
        check_utf8(self.data, starts, ends)
        return [self.data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def ragged(self, rows: int) -> int:
        """The number of the first `rows` records that have another number of fields than the others (CSV)."""
        return 0

    @abstractmethod
    def read(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        """The records from ordinal `begin` to `end`. `RefusedValue` counts from `begin`."""


class Grammar(Protocol):
    @property
    def schema(self) -> pa.Schema: ...

    @property
    def splittable(self) -> bool:
        """Whether each line end ends a record."""

    def find(self, data: bytes, final: bool) -> Block:
        """The records in `data`, which begins with one. `final`: the text ends with `data`, and so does the last
        record. The index of `RefusedValue` is a byte."""

    def end_of(self, data: bytes, begin: int, final: bool) -> int | None:
        """The end of the record at `begin`; None if it is not within `data`."""

    def next_line(self, data: bytes) -> int | None:
        """The position after the first line end; None if there is none, or if the next byte may belong to it."""

    def parts(self, before: int, after: int) -> bool:
        """Whether a record may begin between these two bytes."""


def check_utf8(data: bytes, starts: Positions, ends: Positions) -> None:
    """`RefusedValue` for the first record that is not UTF-8."""
    if not len(starts):
        return
    begin, end = int(starts[0]), int(ends[-1])
    text = data[begin:end]
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        at = begin + error.start
        record = int(np.searchsorted(starts, at, side="right")) - 1
        found = f"{data[at]:#04x} at its byte {at - int(starts[record])}"
        raise RefusedValue(record, f"a record that is not UTF-8: {found}") from None


def mean_bytes(block: Block) -> int:
    """Mean length of the records of a block with their line ends, at least 1."""
    return max(block.consumed // max(len(block.starts), 1), 1)


class TextFile:
    """One text file. `first` is the position of its first row, `row_bytes` the mean length of the rows of its text."""

    rows = None  # only a scan can count them

    def __init__(self, opened: Opened, grammar: Grammar, first: int, row_bytes: int) -> None:
        self._size, self.digest, self._packed = opened.size, opened.digest, opened.packed
        self._grammar, self._first = grammar, first
        self.row_bytes = max(round(row_bytes * opened.packing), 1)
        self.schema = grammar.schema
        self.cache_bytes = 2000 + 500 * len(grammar.schema)
        self.ragged = 0

    def scan_bytes(self, columns: Sequence[str]) -> int:
        return self._size if set(self.schema.names).intersection(columns) else 0

    def splits(self, target: int) -> list[Split]:
        whole = self._packed is not None or not self._grammar.splittable
        return [(0, self._size)] if whole else even_splits(self._size, target)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        path = reader.name
        self._check(columns, path)
        begin, end = split or (0, self._size)
        values = sum(_values(self.schema.field(name).type) for name in columns)
        together = min(BATCH_ROWS, max(BATCH_VALUES // max(values, 1), 1))
        for base, block in self.blocks(reader, begin, end):
            rows = len(block.starts) if self._packed else int(np.searchsorted(block.starts, end - base))
            self.ragged += block.ragged(rows)
            for low in range(0, rows, together):
                yield from _rows(block, base, low, min(low + together, rows), columns, path)

    def blocks(self, reader: RangeReader, begin: int, end: int) -> Iterator[tuple[int, Block]]:
        """`(position, block)` of the records that begin in a range of the file, and of some after it."""
        path = reader.name
        if self._packed is not None:
            base, pieces = self._first, _ended(_without(self._first, decompress_pieces(reader, self._packed)))
        else:
            base = self._first_in(reader, begin, end)
            pieces = self._pieces(reader, base, end)
        data, enough = b"", 0
        for piece, final in pieces:
            data += piece
            if len(data) < enough and len(data) <= RECORD_LIMIT and not final:
                continue
            try:
                block = self._grammar.find(data, final)
            except RefusedValue as error:
                yield base, self._grammar.find(data[: error.index], True)
                raise DamagedSource(str(error), path, base + error.index) from None
            yield base, block
            enough = 0 if block.consumed else 2 * len(data)  # a long record is parsed from its begin each time
            base, data = base + block.consumed, data[block.consumed :]
            if self._packed is None and base >= end:
                return
            if len(data) > RECORD_LIMIT:
                raise DamagedSource(f"a record that does not end within {RECORD_LIMIT} bytes", path, base)

    def _first_in(self, reader: RangeReader, begin: int, end: int) -> int:
        """The position of the first record that begins in a range of the file. If none does: `end`, or a byte after
        it."""
        if begin <= self._first:
            return self._first
        position = begin - 1
        while position < end:
            length = min(LINE_BYTES, self._size - position)
            found = self._grammar.next_line(reader.read_range(position, length))
            if found is not None:
                return position + found
            if position + length == self._size:
                return self._size
            position += length - 1  # the last byte may be half of a line end
        return end

    def _pieces(self, reader: RangeReader, begin: int, end: int) -> Iterator[tuple[bytes, bool]]:
        """The file in pieces, each with whether it is the last. The pieces go up to `end`, then grow as long as the
        caller continues."""
        position, length = begin, LINE_BYTES
        while position < self._size and begin < end:
            inside = min(end, self._size) - position
            length = min(inside, PIECE_BYTES) if inside > 0 else min(2 * length, PIECE_BYTES, self._size - position)
            yield reader.read_range(position, length), position + length == self._size
            position += length

    def units(self, offsets: Numbers) -> Numbers:
        """The offsets, since each row is read by itself. Zeros for a compressed file, which is read from its begin."""
        return offsets if self._packed is None else np.zeros_like(offsets)

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        path = reader.name
        self._check(columns, path)
        requested = pointer_pairs(pointers, path)
        beyond = (requested[:, 0] >= self._size) & (self._packed is None)
        wrong = np.flatnonzero((requested[:, 1] != 0) | (requested[:, 0] < self._first) | beyond)
        if len(wrong):
            offset, sub_offset = requested[wrong[0]].tolist()
            raise StalePointer(
                f"no row begins there (sub-offset {sub_offset})", path, offset, action=Action.BUILD_AGAIN
            )
        offsets, back = np.unique(requested[:, 0], return_inverse=True)
        found = self._unpacked_records if self._packed is not None else self._records
        batches = [self._decoded(at, records, columns, path) for at, records in found(reader, offsets, path)]
        if not columns:
            return table_without_columns(len(back))
        schema = pa.schema([self.schema.field(name) for name in columns])
        return in_pointer_order(pa.Table.from_batches(batches, schema), back)

    def _records(self, reader: RangeReader, offsets: Positions, path: str) -> Iterator[Records]:
        """The records at some offsets, as many at a time as one round of reads may hold."""
        guess = max(GUESS_BYTES, GUESS_ROWS * self.row_bytes)
        together = max(ROUND_BYTES // guess, 1)
        for low in range(0, len(offsets), together):
            waiting, length = offsets[low : low + together].tolist(), guess
            records: dict[int, bytes] = {}
            while waiting:
                # Fewer at a time once the reads have grown, so that memory stays bounded.
                several = max(ROUND_BYTES // length, 1)
                records.update(self._ended_within(reader, waiting[:several], length, path))
                missing = [offset for offset in waiting[:several] if offset not in records]
                waiting = missing + waiting[several:]
                if missing and length > RECORD_LIMIT:
                    raise DamagedSource(f"a record that does not end within {RECORD_LIMIT} bytes", path, missing[0])
                length = min(length * GUESS_GROWTH, RECORD_LIMIT + 2 * PIECE_BYTES) if missing else length
            yield offsets[low : low + together], [records[offset] for offset in offsets[low : low + together].tolist()]

    def _ended_within(self, reader: RangeReader, offsets: list[int], length: int, path: str) -> dict[int, bytes]:
        """The records that end within `length` bytes of their beginning, from one round of reads."""
        spans: list[tuple[int, int]] = []
        for offset in offsets:  # each with the byte before it; overlapping ranges are read once
            begin, end = max(offset - 1, 0), min(offset + length, self._size)
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
        parts = reader.read_ranges([(begin, end - begin) for begin, end in spans])
        ended, at = {}, 0
        for offset in offsets:
            while offset >= spans[at][1]:
                at += 1
            part, local, final = parts[at], offset - spans[at][0], spans[at][1] == self._size
            if offset > self._first and not self._grammar.parts(part[local - 1], part[local]):
                raise StalePointer(
                    "no row begins there: no row ends before it",
                    path,
                    offset,
                    action=Action.BUILD_AGAIN,
                )
            try:
                end_at = self._grammar.end_of(part, local, final)
            except RefusedValue as error:
                raise DamagedSource(str(error), path, offset) from None
            if end_at is not None:
                ended[offset] = part[local:end_at]
            elif final:
                raise DamagedSource("a quote that does not close before the file ends", path, offset)
        return ended

    def _unpacked_records(self, reader: RangeReader, offsets: Positions, path: str) -> Iterator[Records]:
        """The records of a compressed file, read from its begin to the last wanted record."""
        if not len(offsets):
            return
        for base, block in self.blocks(reader, 0, self._size):
            wanted = offsets[(offsets >= base) & (offsets < base + block.consumed)]
            rows = np.searchsorted(block.starts, wanted - base)
            exists = rows < len(block.starts)
            exists[exists] = block.starts[rows[exists]] == wanted[exists] - base
            if not exists.all():
                raise StalePointer("no row begins there", path, int(wanted[~exists][0]), action=Action.BUILD_AGAIN)
            if len(wanted):
                yield wanted, [block.data[block.starts[row] : block.ends[row]] for row in rows.tolist()]
            if base + block.consumed > offsets[-1]:
                return
        raise StalePointer("the text ends before it", path, int(offsets[-1]), action=Action.BUILD_AGAIN)

    def _decoded(self, offsets: Positions, records: list[bytes], columns: Sequence[str], path: str) -> pa.RecordBatch:
        data = b"\n".join(records)
        starts = np.cumsum([0, *(len(record) + 1 for record in records)])[:-1]
        try:
            block = self._grammar.find(data, True)
        except RefusedValue as error:
            at = int(np.searchsorted(starts, error.index, side="right")) - 1
            raise DamagedSource(str(error), path, int(offsets[at])) from None
        if not np.array_equal(block.starts, starts):
            lost = np.flatnonzero(~np.isin(starts, block.starts))
            at = int(lost[0]) if len(lost) else 0
            raise StalePointer("no row begins there", path, int(offsets[at]), action=Action.BUILD_AGAIN)
        try:
            return block.read(0, len(records), columns)
        except RefusedValue as error:
            raise DamagedSource(str(error), path, int(offsets[error.index])) from None

    def _check(self, columns: Sequence[str], path: str) -> None:
        known = dict.fromkeys(self.schema.names)  # `names` makes a list at each use
        for name in columns:
            check_column(name, known, path)


class TextWriter(ABC):
    """A `Writer` of records as text, from the texts of whole columns."""

    def __init__(
        self, fields: pa.Schema, schema: pa.Schema, natural: Callable[[pa.DataType], pa.DataType], path: str
    ) -> None:
        self._path = path
        self._columns = plan_columns(fields, schema, natural, path)
        self._out: list[bytes] = []
        self.size = 0

    @abstractmethod
    def _texts(self, array: pa.Array, column: str) -> Any:
        """The texts of the values of a column. ValueError for a value without a text."""

    @abstractmethod
    def _records(self, columns: Sequence[Any]) -> str:
        """The records with these columns, which `_texts` made."""

    def write(self, batch: pa.RecordBatch) -> None:
        columns = []
        for column, array in zip(self._columns, arrays_of(self._columns, batch, self._path), strict=True):
            try:
                columns.append(self._texts(array, column.field.name))
            except ValueError as error:
                raise UnsupportedFormat(str(error), self._path, column=column.field.name) from None
        self._append(self._records(columns))

    def _append(self, text: str) -> None:
        data = text.encode()
        self._out.append(data)
        self.size += len(data)

    def finish(self) -> bytes:
        return b"".join(self._out)


def _values(kind: pa.DataType) -> int:
    """The least number of values of a type in a row."""
    return 1 + sum(_values(kind.field(i).type) for i in range(kind.num_fields))


def _rows(block: Block, base: int, low: int, high: int, columns: Sequence[str], path: str) -> Iterator[pa.RecordBatch]:
    """Some rows of a block with their pointers. If one is refused, the rows before it come before the error."""
    refused = None
    while low < high:
        try:
            batch = block.read(low, high, columns)
        except RefusedValue as error:
            high = low + error.index
            refused = DamagedSource(str(error), path, base + int(block.starts[high]))
            continue
        starts, ends = block.starts[low:high], block.ends[low:high]
        zeros = np.zeros(high - low, dtype=np.int32)
        yield with_pointers(batch, int64s(base + starts), int32s(zeros), int32s((ends - starts).astype(np.int32)))
        break
    if refused is not None:
        raise refused


def _without(length: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces without the first `length` bytes."""
    for piece in pieces:
        yield piece[length:]
        length = max(length - len(piece), 0)


def _ended(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The pieces, each with whether it is the last."""
    piece = next(pieces, None)
    while piece is not None:
        ahead = next(pieces, None)
        yield piece, ahead is None
        piece = ahead

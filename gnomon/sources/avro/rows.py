"""The rows of a file: all rows of a file or a split with their pointers, or the rows at pointers.

The blocks of a fetch take one round of reads if their lengths are known or well estimated, else two.

Decoders are made of generated source, compiled once for each choice of columns. A compiled decoder takes about half the
time of fastavro for a row. It skips columns that are not requested, and limits memory and stack: fastavro crashes the
process on deep recursion.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action, check_memory
from gnomon.base.readers import RangeReader
from gnomon.base.varints import OverlongVarint, decode_unsigned
from gnomon.sources.avro.columns import Column, ColumnFactory, Program, arrow_field, wrong_branch
from gnomon.sources.avro.container import (
    BLOCK_LIMIT,
    HEAD_BYTES,
    SYNC_BYTES,
    Block,
    Header,
    LimitExceeded,
    Malformed,
    ReadAheadBuffer,
    block_at,
    check_block,
    check_sync,
    first_block,
    parse_block,
    payload_of,
    unpack,
)
from gnomon.sources.avro.recursive_json import Budget, read_length
from gnomon.sources.avro.schema import Record, parse_schema
from gnomon.sources.contract import Numbers, Pointers, Split
from gnomon.sources.errors import DamagedSource, SourceError, StalePointer, UnsupportedFormat
from gnomon.sources.pointers import distinct_pairs, in_pointer_order, in_rounds, table_without_columns, with_pointers
from gnomon.sources.types import int32s, int64s

VALUE = "value"  # the only column of rows that are not records
KEPT_DECODERS = 16  # decoders of one schema
KEPT_SCHEMAS = 32  # schemas of a process: the files of a table share one
LONGEST_KEPT = 256 << 10  # bytes of a schema's text
CELLS = 1 << 22  # rows times columns of a batch
END = sys.maxsize

Reading = Callable[[bytes, int, int, int], tuple[int, int]]
Skipping = Callable[[bytes, int, int], int]
ROWS_WITHOUT_BYTES = 1 << 24  # most rows of a block whose rows take no bytes: no byte count bounds their number
BATCH_ROWS = 64 << 10
# bytes of records: as Python objects, before they are Arrow arrays, they may take 40 times as much
BATCH_BYTES = 4 << 20
SHORTEST_GUESS = 64 << 10  # bytes read of a block of unknown length: Java's writer ends a block at this size
LONGEST_GUESS = 1 << 20
TOGETHER = 64 << 20  # bytes requested, and held, at once
KEPT_LENGTHS = 1 << 16
LENGTH_BYTES = 150  # memory of one recorded length


class RowSchema:
    """The columns of a file's rows. Files with the same schema text share it, and so do threads."""

    def __init__(self, text: bytes, of_iceberg: bool = False) -> None:
        root, columns = parse_schema(text, of_iceberg), ColumnFactory()
        if isinstance(root, Record):
            fields = [(name, columns.column(node, (root,))) for name, node in root.fields]
            self.arrow = pa.schema([arrow_field(root, name, column) for name, column in fields])
        else:
            fields = [(VALUE, columns.column(root))]
            self.arrow = pa.schema([pa.field(name, column.type) for name, column in fields])
        self.least = sum(column.least for _, column in fields)  # bytes of the shortest row
        self.text_bytes = len(text)
        self._fields = fields
        self._places: dict[str, int] = {}
        for place, (name, _) in enumerate(fields):  # if fields share a name, it means the first of them
            self._places.setdefault(name, place)
        self._decoders: dict[tuple[int, ...], Decoder] = {}
        self._lock = threading.Lock()

    def decoder(self, names: Sequence[str]) -> "Decoder":
        """The decoder of these columns. KeyError for an unknown column."""
        places = tuple(self._places[name] for name in names)
        with self._lock:
            found = self._decoders.pop(places, None)
            if found is None:
                found = Decoder([column for _, column in self._fields], places, self.arrow)
                if len(self._decoders) >= KEPT_DECODERS:
                    self._decoders.pop(next(iter(self._decoders)))
            self._decoders[places] = found
        return found


def row_schema(text: bytes, of_iceberg: bool = False) -> RowSchema:
    """The schema of this text. `of_iceberg` as in `parse_schema`. Raises Malformed and LimitExceeded."""
    return _kept_schema(text, of_iceberg) if len(text) <= LONGEST_KEPT else RowSchema(text, of_iceberg)


_kept_schema = lru_cache(KEPT_SCHEMAS)(RowSchema)


class Decoder:
    """Reads some columns of a schema. Safe to share between threads: the values read go to a `Batch`."""

    def __init__(self, columns: Sequence[Column], places: Sequence[int], schema: pa.Schema) -> None:
        self.schema = pa.schema([schema.field(place) for place in places])
        self.columns = [columns[place] for place in places]
        self.most_rows = max(CELLS // max(sum(column.leaves for column in self.columns), 1), 1)  # rows of a batch
        program = Program()
        wanted = set(places)
        with program.function("b, p, n, stop") as reads:
            with program.block("for i in range(1, n + 1):"):
                for place, column in enumerate(columns):
                    (column.read if place in wanted else column.skip)(program)
                program.line("if p > stop: return p, i")
            program.line("return p, n")
        with program.function("b, p, n") as skips:
            with program.block("for _ in range(n):"):
                for column in columns:
                    column.skip(program)
            program.line("return p")
        self.lists = program.lists
        self._constants = program.constants
        names: dict[str, Any] = {}
        exec(compile(program.text(f"{reads}, {skips}"), "<decoder of Avro rows>", "exec"), names)
        self._make = names["make"]

    def functions(self, lists: dict[int, list[Any]]) -> tuple[Reading, Skipping]:
        """The function that reads rows into these lists, and the function that skips rows."""
        made = self._make(lists, self._constants, decode_unsigned, read_length, wrong_branch, Budget())
        return cast(tuple[Reading, Skipping], made)


class Batch:
    """Rows that are read and become Arrow arrays."""

    def __init__(self, decoder: Decoder) -> None:
        self.rows = 0
        self.bytes = 0  # bytes of records read
        self._decoder = decoder
        self._lists: dict[int, list[Any]] = {number: [] for number in decoder.lists}
        self._read, self._skip = decoder.functions(self._lists)

    def read(self, records: bytes, position: int, rows: int, stop: int = END) -> tuple[int, int]:
        """Read `rows` rows, or fewer, up to and with the first row that ends after `stop`. Returns the position after
        them and their number."""
        try:
            end, done = self._read(records, position, rows, stop)
        except IndexError:
            end, done = len(records) + 1, 0
        except OverlongVarint as error:
            raise Malformed(str(error)) from None
        if end > len(records):
            raise Malformed("the records end inside the last one")
        self.rows += done
        self.bytes += end - position
        return end, done

    def skip(self, records: bytes, position: int, rows: int) -> int:
        """Skip rows; returns the position after them."""
        try:
            return self._skip(records, position, rows)
        except IndexError:
            raise Malformed("the records end inside the last one") from None
        except OverlongVarint as error:
            raise Malformed(str(error)) from None

    def arrays(self) -> list[pa.Array]:
        """The columns read. Malformed, with the column's name, for a value that its type does not have."""
        made: dict[Column, pa.Array] = {}
        for field, column in zip(self._decoder.schema, self._decoder.columns, strict=True):
            if column in made:
                continue
            try:
                made[column] = column.build(self._lists, self.rows)
            except (ValueError, OverflowError, pa.ArrowException) as error:
                check_memory(error)
                raise Malformed(f"column {field.name!r}: {error}") from error
        return [made[column] for column in self._decoder.columns]


@contextmanager
def block_errors(path: str, offset: int) -> Iterator[None]:
    """Convert Malformed and LimitExceeded to errors with path and offset of the block."""
    try:
        yield
    except Malformed as error:
        raise DamagedSource(f"the block cannot be decoded: {error}", path, offset) from error
    except LimitExceeded as error:
        raise UnsupportedFormat(f"the block exceeds a limit: {error}", path, offset) from error


class Request(NamedTuple):
    """The columns of a file that are read, by `decoder`. `least`: bytes of the shortest possible row."""

    header: Header
    codec: str
    least: int
    decoder: Decoder

    def records(self, block: Block, payload: bytes, path: str) -> bytes:
        """Decompress the records of a block, and check them against its header."""
        with block_errors(path, block.offset):
            records = unpack(self.codec, payload, BLOCK_LIMIT)
            if block.rows * self.least > len(records):
                raise Malformed(f"{block.rows} rows in {len(records)} bytes")
            if block.rows > max(ROWS_WITHOUT_BYTES, len(records)):
                raise LimitExceeded(f"{block.rows} rows in {len(records)} bytes")
            if not block.rows and records:
                raise Malformed(f"no rows in {len(records)} bytes")
        return records

    def batch(self, rows: Batch, path: str, offset: int) -> pa.RecordBatch:
        """The rows read. `offset`: of their first block, for errors."""
        with block_errors(path, offset):
            return pa.RecordBatch.from_arrays(rows.arrays(), schema=self.decoder.schema)


def check_end(block: Block, records: bytes, position: int, path: str) -> None:
    """DamagedSource if bytes follow the last row of a block."""
    if position != len(records):
        message = f"{len(records) - position} bytes follow the last of the block's {block.rows} rows"
        raise DamagedSource(message, path, block.offset)


def scan_rows(reader: RangeReader, request: Request, split: Split) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in batches. Rows before damage come before the error."""
    scan = _Scan(ReadAheadBuffer(reader, split[1]), request)
    offset, row = first_block(scan.reads, request.header, split[0]), 0
    if offset >= split[1]:
        return
    try:
        for batch in scan.batches(offset):
            last_offset, last_row, _ = (column[-1].as_py() for column in batch.columns[-3:])
            offset, row = last_offset, last_row + 1
            yield batch
    except SourceError:
        yield from scan.sound(offset, row)
        raise


class _Scan:
    def __init__(self, reads: ReadAheadBuffer, request: Request) -> None:
        self.reads = reads
        self._request = request
        self._most = min(BATCH_ROWS, request.decoder.most_rows)

    def _blocks(self, offset: int) -> Iterator[tuple[Block, bytes]]:
        """The blocks from `offset` on that begin in the split, with their records. Also checks the first block after
        the split."""
        reads, sync = self.reads, self._request.header.sync
        while offset < min(reads.end, reads.size):
            block = block_at(reads, offset)
            yield block, self._request.records(block, payload_of(reads, block, sync), reads.path)
            offset = block.end
        if offset < reads.size:
            check_block(reads, offset, sync)

    def batches(self, offset: int) -> Iterator[pa.RecordBatch]:
        """The rows from the block at `offset` on."""
        pending = _Pending(self._request, self.reads.path)
        for block, records in self._blocks(offset):
            position = row = 0
            while row < block.rows:
                position, row = pending.read(block, records, position, row, self._most)
                if pending.rows >= self._most or pending.record_bytes >= BATCH_BYTES:
                    yield pending.to_batch()
                    pending = _Pending(self._request, self.reads.path)
            check_end(block, records, position, self.reads.path)
        if pending.rows:
            yield pending.to_batch()

    def sound(self, offset: int, row: int) -> Iterator[pa.RecordBatch]:
        """The rows from row `row` of the block at `offset` up to the damage. Reads a block at a time; after a failure,
        half as many rows."""
        with suppress(SourceError):
            for block, records in self._blocks(offset):
                with block_errors(self.reads.path, block.offset):
                    position = Batch(self._request.decoder).skip(records, 0, row)
                step = self._most
                while row < block.rows:
                    pending = _Pending(self._request, self.reads.path)
                    try:
                        end, following = pending.read(block, records, position, row, step)
                        batch = pending.to_batch()
                    except SourceError:
                        step = min(step, block.rows - row) // 2
                        if not step:
                            raise
                        continue
                    yield batch
                    position, row = end, following
                check_end(block, records, position, self.reads.path)
                row = 0


class _Pending:
    """Rows that will be a batch, and the blocks that they come from."""

    def __init__(self, request: Request, path: str) -> None:
        self._request = request
        self._path = path
        self._batch = Batch(request.decoder)
        self._parts: list[tuple[Block, int, int]] = []  # block, first row, rows

    @property
    def rows(self) -> int:
        return self._batch.rows

    @property
    def record_bytes(self) -> int:
        return self._batch.bytes

    def read(self, block: Block, records: bytes, position: int, row: int, most: int) -> tuple[int, int]:
        """Read rows of a block until it ends or the batch is full. Returns the position and number of the next row."""
        stop = position + BATCH_BYTES - self.record_bytes
        with block_errors(self._path, block.offset):
            position, done = self._batch.read(records, position, min(block.rows - row, most - self.rows), stop)
        self._parts.append((block, row, done))
        return position, row + done

    def to_batch(self) -> pa.RecordBatch:
        """The rows, with their pointers."""
        columns = self._request.batch(self._batch, self._path, self._parts[0][0].offset)
        counts = [rows for _, _, rows in self._parts]
        offsets = np.repeat(np.array([block.offset for block, _, _ in self._parts], dtype=np.int64), counts)
        sizes = np.repeat(np.array([block.row_bytes for block, _, _ in self._parts], dtype=np.int32), counts)
        ordinals = np.concatenate([np.arange(row, row + rows, dtype=np.int32) for _, row, rows in self._parts])
        return with_pointers(columns, int64s(offsets), int32s(ordinals), int32s(sizes))


class BlockLengths:
    """The known lengths of a file's blocks, in bytes. Safe to share: lengths are added, never changed."""

    def __init__(self, first: Block | None) -> None:
        self._longest = first.end - first.offset if first else 0
        self._known: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def cache_bytes(self) -> int:
        return LENGTH_BYTES * len(self._known)

    def of(self, offset: int) -> int:
        """The length of the block at an offset, or an estimate."""
        guess = min(max(self._longest + self._longest // 8, SHORTEST_GUESS), LONGEST_GUESS)
        return self._known.get(offset, guess)

    def learn(self, block: Block) -> None:
        length = block.end - block.offset
        with self._lock:
            self._longest = max(self._longest, length)
            if len(self._known) < KEPT_LENGTHS:
                self._known[block.offset] = length


def fetch_rows(reader: RangeReader, request: Request, lengths: BlockLengths, pointers: Pointers) -> pa.Table:
    """The rows at the pointers, in the order of the pointers."""
    path, header, decoder = reader.name, request.header, request.decoder
    offsets, rows, places = distinct_pairs(pointers, path)
    wrong = np.flatnonzero((offsets < header.end) | (offsets >= reader.size) | (rows < 0))
    if len(wrong):
        pointer = (int(offsets[wrong[0]]), int(rows[wrong[0]]))
        raise StalePointer(f"no row at pointer {pointer}", path, action=Action.BUILD_AGAIN)
    blocks, starts = np.unique(offsets, return_index=True)
    # zip ends early for no pointers: they give one empty share
    rows_of = dict(zip(blocks.tolist(), np.split(rows, starts[1:]), strict=False))
    made: list[pa.RecordBatch] = []
    batch, first = Batch(decoder), header.end
    for block, payload in _blocks(reader, header, lengths, list(rows_of)):
        if batch.bytes >= TOGETHER:
            made.append(request.batch(batch, path, first))
            batch, first = Batch(decoder), block.offset
        _read(batch, block, request.records(block, payload, path), rows_of[block.offset], path)
    made.append(request.batch(batch, path, first))
    if not decoder.columns:
        return table_without_columns(len(places))
    return in_pointer_order(pa.Table.from_batches(made), places)


def _read(batch: Batch, block: Block, records: bytes, rows: Numbers, path: str) -> None:
    """Read these rows of a block, ascending, and skip the rows between them."""
    if rows[-1] >= block.rows:
        message = f"no row {rows[-1]} in the block, which has {block.rows}"
        raise StalePointer(message, path, block.offset, action=Action.BUILD_AGAIN)
    position = reached = 0
    with block_errors(path, block.offset):
        for row, count in _runs(rows):
            position = batch.skip(records, position, row - reached)
            position, _ = batch.read(records, position, count)
            reached = row + count
    if reached == block.rows:
        check_end(block, records, position, path)


def _runs(rows: Numbers) -> Iterator[tuple[int, int]]:
    """`(first, count)` of runs of consecutive rows."""
    if len(rows) == 1:
        return iter([(int(rows[0]), 1)])
    starts = np.flatnonzero(np.diff(rows) != 1) + 1
    first = np.append(0, starts)
    counts = np.append(starts, len(rows)) - first
    return zip(rows[first].tolist(), counts.tolist(), strict=True)


def _blocks(
    reader: RangeReader, header: Header, lengths: BlockLengths, offsets: Sequence[int]
) -> Iterator[tuple[Block, bytes]]:
    """The blocks at these ascending offsets, with their payloads."""
    path, size = reader.name, reader.size
    ends = [*offsets, size][1:]
    # Each span begins with the sync marker before the block, which a wrong pointer lacks. It ends before the next
    # block.
    spans = [
        (at - SYNC_BYTES, SYNC_BYTES + min(lengths.of(at), end - at)) for at, end in zip(offsets, ends, strict=True)
    ]
    for requested in in_rounds(spans, lambda span: span[1], TOGETHER):
        heads = reader.read_ranges(requested)
        pieces = [
            _piece(head, begin + SYNC_BYTES, header, size, path)
            for (begin, _), head in zip(requested, heads, strict=True)
        ]
        for share in in_rounds(pieces, lambda piece: piece.missing, TOGETHER):
            short = [(piece.block.end - piece.missing, piece.missing) for piece in share if piece.missing]
            rests = iter(reader.read_ranges(short) if short else [])
            for piece in share:
                block, body = piece.block, piece.body + (next(rests) if piece.missing else b"")
                check_sync(body[block.end - SYNC_BYTES - block.offset :][:SYNC_BYTES], header.sync, block, path)
                lengths.learn(block)
                yield block, body[block.payload - block.offset : block.payload - block.offset + block.length]


class _Piece(NamedTuple):
    """A block, and some of its bytes from the begin on, perhaps with more bytes after it."""

    block: Block
    body: bytes

    @property
    def missing(self) -> int:
        """Bytes of the block that are still to be read."""
        return max(self.block.end - self.block.offset - len(self.body), 0)


def _piece(head: bytes, offset: int, header: Header, size: int, path: str) -> _Piece:
    """A block, of whose bytes `head` has the sync marker before it and the first ones."""
    if head[:SYNC_BYTES] != header.sync:
        raise StalePointer("no block begins at this position", path, offset, action=Action.BUILD_AGAIN)
    body = head[SYNC_BYTES:]
    with block_errors(path, offset):
        return _Piece(parse_block(body[:HEAD_BYTES], offset, size), body)

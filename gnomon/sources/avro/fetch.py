"""Reads the rows at pointers. Their blocks take one round of reads if their lengths are known or well estimated, else
two.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.avro.block_records import block_errors, check_end, unpack_records
from gnomon.sources.avro.container import HEAD_BYTES, SYNC_BYTES, Block, Header, check_sync, parse_block
from gnomon.sources.avro.decoder import Batch, Decoder
from gnomon.sources.contract import Numbers, Pointers
from gnomon.sources.errors import StalePointer
from gnomon.sources.pointers import distinct_pairs, in_pointer_order, table_without_columns

SHORTEST_GUESS = 64 << 10  # bytes read of a block of unknown length: Java's writer ends a block at this size
LONGEST_GUESS = 1 << 20
TOGETHER = 64 << 20  # bytes requested, and held, at once
KEPT_LENGTHS = 1 << 16
LENGTH_BYTES = 150  # memory of one recorded length

Item = TypeVar("Item")


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


def fetch_rows(
    reader: RangeReader,
    header: Header,
    codec: str,
    least: int,
    decoder: Decoder,
    lengths: BlockLengths,
    pointers: Pointers,
) -> pa.Table:
    """The rows at the pointers, in the order of the pointers. `least`: bytes of the shortest possible row."""
    path = reader.name
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
            made.append(_as_batch(batch, decoder, path, first))
            batch, first = Batch(decoder), block.offset
        records = unpack_records(codec, block, payload, least, path)
        _read(batch, block, records, rows_of[block.offset], path)
    made.append(_as_batch(batch, decoder, path, first))
    if not decoder.columns:
        return table_without_columns(len(places))
    return in_pointer_order(pa.Table.from_batches(made), places)


def _as_batch(batch: Batch, decoder: Decoder, path: str, offset: int) -> pa.RecordBatch:
    with block_errors(path, offset):
        return pa.RecordBatch.from_arrays(batch.arrays(), schema=decoder.schema)


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
    for requested in _together(spans, lambda span: span[1]):
        heads = reader.read_ranges(requested)
        pieces = [
            _piece(head, begin + SYNC_BYTES, header, size, path)
            for (begin, _), head in zip(requested, heads, strict=True)
        ]
        for share in _together(pieces, lambda piece: piece.missing):
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


def _together(items: Sequence[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in batches of about `TOGETHER` bytes."""
    batch: list[Item] = []
    held = 0
    for item in items:
        if batch and held + size(item) > TOGETHER:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size(item)
    if batch:
        yield batch

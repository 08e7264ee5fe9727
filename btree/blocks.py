"""An open index file as blocks: its header, its length, and the node at an offset. Nothing here knows the tree."""

from dataclasses import dataclass
from typing import NoReturn, Protocol

from btree import format as fmt
from btree.codecs import DECOMPRESSORS, DecompressionError, decompress
from btree.errors import BTreeError, DamagedIndexFile
from btree.node import Node, NodeDecoder
from btree.schema import FileSchema, file_schema

FIRST_READ_BYTES = 32 * 1024  # header and, in most files, all upper levels
UPPER_READ_BYTES = 4 * 1024 * 1024  # upper levels up to this size come in one read and stay in memory
NODE_READ_BYTES = 8 * 1024  # first guess at a node whose length neither a link nor the header tells
LONGEST_GUESS_BYTES = 64 * 1024
DECODED_BYTES = 64 * 1024 * 1024  # of decoded nodes that one file keeps
BARE_BYTES = 4096  # memory of an open file without its nodes, roughly


class RangeReader(Protocol):
    """An open file. Whoever opened it closes it. A `name`, where it has one, is what errors call it."""

    @property
    def size(self) -> int: ...

    def read_range(self, offset: int, length: int) -> bytes: ...


@dataclass
class LookupStats:
    """What look-ups cost: nodes visited, ranged reads made, bytes read."""

    nodes: int = 0
    reads: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Block:
    """A node and the bytes of the file it takes."""

    node: Node
    offset: int
    end: int


class BlockFile:
    """The blocks of an open index file. Every error names path and offset."""

    def __init__(self, reader: RangeReader, stats: LookupStats) -> None:
        self._reader = reader
        self.path = str(getattr(reader, "name", "<memory>"))
        self.size = reader.size
        head, header = self._read_header(stats)
        self.start = header.end  # offset of the first block, the root
        self.metadata = header.metadata
        self._sync = header.sync
        self.codec = header.metadata.get(fmt.CODEC_KEY, b"null").decode(errors="replace")
        if self.codec not in DECOMPRESSORS:
            self._refuse_header(f"unknown codec {self.codec[:80]!r}")
        self.entries = self._number(header, fmt.ENTRIES_KEY)  # None in a file that does not say: Dione's
        self.upper_bytes = self._number(header, fmt.UPPER_BYTES_KEY) or 0
        self._guess = min(self._number(header, fmt.NODE_BYTES_KEY) or NODE_READ_BYTES, LONGEST_GUESS_BYTES)
        self._check_length(header)
        self.schema = self._read_schema()
        self.decoder = NodeDecoder(self.schema, signed_bytes=self.entries is None)
        self._memory = self._load_upper(head, stats)  # the file's bytes from `start` on
        self._kept: dict[int, Block] = {}
        self._kept_bytes = 0

    # -- opening ---------------------------------------------------------------------------------------------------

    def _read_header(self, stats: LookupStats) -> tuple[bytes, fmt.Header]:
        head = self.read(0, min(FIRST_READ_BYTES, self.size), stats)
        while (header := fmt.decode_header(head, self.path)) is None:
            have = len(head)
            if have >= min(self.size, fmt.HEADER_LIMIT):
                raise DamagedIndexFile(f"expected a header, found none in the first {have} bytes", self.path, have)
            head += self.read(have, min(have, self.size - have), stats)
        return head, header

    def _refuse_header(self, message: str) -> NoReturn:
        raise DamagedIndexFile(message, self.path, 0)

    def _number(self, header: fmt.Header, key: str) -> int | None:
        try:
            return header.number(key)
        except ValueError as error:
            self._refuse_header(str(error))

    def _check_length(self, header: fmt.Header) -> None:
        data_bytes = self._number(header, fmt.DATA_BYTES_KEY)
        if data_bytes is None:
            self._refuse_header(f"{fmt.DATA_BYTES_KEY} is missing from the header")
        expected = header.end + data_bytes
        if expected != self.size:
            raise DamagedIndexFile(f"expected {expected} bytes, found {self.size}", self.path, self.size)
        if self.upper_bytes > data_bytes:
            self._refuse_header(f"{fmt.UPPER_BYTES_KEY} is larger than the file")

    def _read_schema(self) -> FileSchema:
        avro = fmt.decode_schema(self.metadata.get(fmt.SCHEMA_KEY, b""), self.path)
        names = fmt.decode_key_value_spec(self.metadata.get(fmt.KEY_VALUE_KEY, b""), self.path)
        try:
            return file_schema(avro, *names)
        except BTreeError as error:
            self._refuse_header(f"unusable schema ({error})")

    def _load_upper(self, head: bytes, stats: LookupStats) -> memoryview:
        """The upper levels, or where the file has none or does not say, what came with the header."""
        have = head[self.start :]
        if not 0 < self.upper_bytes <= UPPER_READ_BYTES:
            return memoryview(have)
        if len(have) < self.upper_bytes:
            have += self.read(len(head), self.upper_bytes - len(have), stats)
        return memoryview(have)[: self.upper_bytes]

    @property
    def cache_bytes(self) -> int:
        """Memory this file keeps: bytes read ahead, decoded nodes."""
        return BARE_BYTES + len(self._memory) + self._kept_bytes

    # -- blocks ----------------------------------------------------------------------------------------------------

    def block(self, offset: int, stats: LookupStats, length: int | None = None) -> Block:
        """The block at `offset`; `length` is a guess at its size. Upper nodes and the root are kept decoded."""
        kept = self._kept.get(offset)
        if kept is not None:
            return kept
        data, frame = self._bytes_of(offset, length, stats)
        if data[-fmt.SYNC_BYTES :] != self._sync:
            raise DamagedIndexFile("no sync marker after the block", self.path, frame.end - fmt.SYNC_BYTES)
        node = self._decode(offset, frame.count, data[frame.payload - offset : -fmt.SYNC_BYTES])
        block = Block(node, offset, frame.end)
        if offset < self.start + max(self.upper_bytes, 1) and self._kept_bytes + node.cache_bytes <= DECODED_BYTES:
            self._kept[offset] = block
            self._kept_bytes += node.cache_bytes
        return block

    def _bytes_of(self, offset: int, length: int | None, stats: LookupStats) -> tuple[bytes, fmt.BlockFrame]:
        have = self._memory[offset - self.start :]
        if len(have) < min(fmt.BLOCK_HEAD_BYTES, self.size - offset):
            guess = length if length is not None and 0 < length <= LONGEST_GUESS_BYTES else self._guess
            most = min(max(guess, fmt.BLOCK_HEAD_BYTES), self.size - offset)
            have = memoryview(self.read(offset, most, stats))
        frame = fmt.decode_block_frame(bytes(have[: fmt.BLOCK_HEAD_BYTES]), offset, self.size, self.path)
        data = bytes(have[: frame.end - offset])
        if len(data) < frame.end - offset:
            data += self.read(offset + len(data), frame.end - offset - len(data), stats)
        return data, frame

    def _decode(self, offset: int, count: int, payload: bytes) -> Node:
        try:
            records = decompress(self.codec, payload, fmt.NODE_LIMIT)
            if count > len(records):
                raise ValueError(f"{count} records in {len(records)} bytes")
            node = self.decoder.decode(fmt.encode_long(count), records)
        except (DecompressionError, ValueError, EOFError, IndexError, OverflowError, TypeError) as error:
            why = str(error) or type(error).__name__
            raise DamagedIndexFile(f"the block cannot be decoded ({why})", self.path, offset) from None
        if not node.is_sorted():
            raise DamagedIndexFile("the keys of a node are not in order", self.path, offset)
        return node

    def read(self, offset: int, length: int, stats: LookupStats) -> bytes:
        """Bytes of the file, as many as asked for."""
        stats.reads += 1
        stats.bytes += length
        data = self._reader.read_range(offset, length)
        if len(data) != length:
            raise DamagedIndexFile(f"expected {length} bytes, read {len(data)}", self.path, offset)
        return data

"""An open index file as blocks: its header, its length, and the node at an offset. This module does not know the shape
of the tree."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol

from gnomon.base import kernel
from gnomon.base.compression import DecompressionError
from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader, looking_again
from gnomon.btree import format as fmt
from gnomon.btree.codecs import CHECKSUMS, DECOMPRESSORS, decompress
from gnomon.btree.errors import BTreeError, DamagedIndexFile, Irregular, TooMany
from gnomon.btree.geometry import head_guess
from gnomon.btree.node import UNREADABLE, DioneDecoder, Node, NodeDecoder
from gnomon.btree.schema import FileSchema, file_schema

FIRST_READ_BYTES = 32 * 1024  # at least; `head_guess` estimates the rest for a large file
UPPER_READ_BYTES = 16 * 1024 * 1024  # upper levels up to this size come in one read and stay in memory
NODE_READ_BYTES = 8 * 1024  # first guess at the length of a node that neither a link nor the header gives
LONGEST_GUESS_BYTES = 256 * 1024
LONG_READ_BYTES = 4 * 1024 * 1024  # bytes per read of a scan
DECODED_BYTES = 64 * 1024 * 1024  # bytes of decoded nodes that one file caches
MOST_KEPT = 1 << 14  # records of a leaf that a batch adds to the cache
BARE_BYTES = 4096  # approximate memory of an open file without its nodes


class Visit(NamedTuple):
    """A node that a look-up visited: its offset in the file, its level (the root's is 0), the number of its records,
    the reads and bytes that it cost, and the begin and end of the visit (nanoseconds of `time.perf_counter_ns`)."""

    offset: int
    level: int
    records: int
    reads: int
    bytes: int
    begin_ns: int
    end_ns: int


@dataclass
class LookupStats:
    """The cost of look-ups: visited nodes, ranged reads, bytes read, the bytes of Bloom filters among them, and the
    keys checked against a filter. `visits`, if it is a list, receives each visited node."""

    nodes: int = 0
    reads: int = 0
    bytes: int = 0
    filter_checks: int = 0
    filter_bytes: int = 0
    visits: list[Visit] | None = field(default=None, repr=False, compare=False)

    def add(self, other: "LookupStats") -> None:
        """Add the cost of another look-up, without its visits."""
        self.nodes += other.nodes
        self.reads += other.reads
        self.bytes += other.bytes
        self.filter_checks += other.filter_checks
        self.filter_bytes += other.filter_bytes


@dataclass(frozen=True, slots=True)
class Block:
    """A node and its range of bytes in the file."""

    node: Node
    offset: int
    end: int

    @property
    def cache_bytes(self) -> int:
        """Memory of the node, in bytes."""
        return self.node.cache_bytes


class Leaves(Protocol):
    """A cache of decoded leaves of a file, by their offsets."""

    def get(self, offset: int) -> Block | None: ...

    def put(self, offset: int, leaf: Block) -> None: ...

    def get_many(self, offsets: Sequence[int]) -> Sequence[Block | None]: ...

    def room(self) -> int:
        """The bytes of leaves that can be added without dropping one."""

    def add(self, offset: int, leaf: Block) -> None:
        """As `put`, for a leaf that is dropped first, and only if there is room."""


class Window:
    """Bytes of a file that a scan has read: those of a leaf that it needed, and `ahead` bytes of leaves that it will
    need, twice as many each time. The bytes from `begin` to `end` are read for the next leaf that is not among them."""

    def __init__(self, ahead: int) -> None:
        self.ahead = min(ahead, LONGEST_GUESS_BYTES)
        self.begin = self.end = 0
        self._offset, self._data = 0, b""

    def at(self, offset: int) -> memoryview:
        """The bytes from an offset on, or none."""
        place = offset - self._offset
        return memoryview(self._data)[place if place >= 0 else len(self._data) :]

    def fill(self, file: "BlockFile", stats: LookupStats) -> None:
        self._offset, self._data = self.begin, file.read(self.begin, self.end - self.begin, stats)
        self.ahead = min(2 * self.ahead, LONGEST_GUESS_BYTES)


class BlockFile:
    """The blocks of an open index file. Every error names path and offset."""

    def __init__(
        self,
        reader: RangeReader,
        stats: LookupStats,
        head_bytes: int | None = None,
        leaves: Leaves | None = None,
        action: Action = Action.BUILD_FULL,
    ) -> None:
        self._reader = reader
        self._action = action
        self._leaves = leaves
        self.path = reader.name
        self.size = reader.size
        first = head_bytes if head_bytes is not None else max(FIRST_READ_BYTES, head_guess(self.size))
        head, header = self._read_header(min(max(first, 1), UPPER_READ_BYTES), stats)
        self.start = header.end  # offset of the first block, the root
        self.metadata = header.metadata
        self._sync = header.sync
        self.codec = header.metadata.get(fmt.CODEC_KEY, b"null").decode(errors="replace")
        if self.codec not in DECOMPRESSORS:
            self._refuse_header(f"unknown codec {self.codec[:80]!r}")
        checksum = header.metadata.get(fmt.CHECKSUM_KEY)
        if checksum not in (None, CHECKSUMS.get(self.codec)):
            self._refuse_header(f"unknown checksum {checksum[:80]!r} of codec {self.codec}")
        self._checked = checksum is not None
        self.entries = self._number(header, fmt.ENTRIES_KEY)  # None in a Dione file
        self.upper_bytes = self._number(header, fmt.UPPER_BYTES_KEY) or 0
        self.has_whole_runs = self._number(header, fmt.SPLIT_RUNS_KEY) == 0  # no node ends between two equal keys
        self._guess = min(self._number(header, fmt.NODE_BYTES_KEY) or NODE_READ_BYTES, LONGEST_GUESS_BYTES)
        self._check_length(header)
        self.schema = self._read_schema()
        self.decoder = NodeDecoder(self.schema) if self.is_gnomon_file else DioneDecoder(self.schema)
        self._whole = head_bytes is not None and head_bytes >= self.size == len(head)
        self._memory = self._load_upper(head, stats)  # the file's bytes from `start` on
        self.kept: dict[int, Block] = {}  # the root and upper nodes, decoded, by their offsets
        self._kept_bytes = 0

    @property
    def is_gnomon_file(self) -> bool:
        """Whether Gnomon's writer made the file. If not, it is a Dione file, made by Dione or by `DioneWriter`."""
        return self.entries is not None

    @property
    def is_remote(self) -> bool:
        """Whether each read waits for a remote store."""
        return self._reader.is_remote

    @property
    def entry_bytes(self) -> int:
        """About the bytes of an entry in a leaf, rounded up."""
        return -(-(self.size - self.start - self.upper_bytes) // max(self.entries or 0, 1))

    @property
    def is_empty(self) -> bool:
        """Whether the file has no entries."""
        return self.start == self.size

    # -- opening ---------------------------------------------------------------------------------------------------

    def _read_header(self, first: int, stats: LookupStats) -> tuple[bytes, fmt.Header]:
        head = self.read(0, min(first, self.size), stats)
        while (header := fmt.decode_header(head[: fmt.HEADER_LIMIT], self.path, self._action)) is None:
            have = min(len(head), fmt.HEADER_LIMIT)
            if have >= min(self.size, fmt.HEADER_LIMIT):
                raise self.damaged("", have, expected="a header", found=f"none in the first {have} bytes")
            head += self.read(have, min(have, self.size - have), stats)
        return head, header

    def damaged(
        self,
        what: str,
        offset: int,
        *,
        column: str | None = None,
        expected: object = None,
        found: object = None,
    ) -> DamagedIndexFile:
        """The error for damage in this file. The caller raises it."""
        return DamagedIndexFile(
            what, self.path, offset, column=column, expected=expected, found=found, action=self._action
        )

    def irregular(self, what: str, offset: int) -> Irregular:
        """The error for an irregular tree in this file. The caller raises it."""
        return Irregular(what, self.path, offset, action=self._action)

    def _refuse_header(self, what: str) -> NoReturn:
        raise self.damaged(what, 0)

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
            raise self.damaged("", self.size, expected=f"{expected} bytes", found=str(self.size))
        if self.upper_bytes > data_bytes:
            self._refuse_header(f"{fmt.UPPER_BYTES_KEY} is larger than the file")

    def _read_schema(self) -> FileSchema:
        avro = fmt.decode_schema(self.metadata.get(fmt.SCHEMA_KEY, b""), self.path, self._action)
        names = fmt.decode_key_value_spec(self.metadata.get(fmt.KEY_VALUE_KEY, b""), self.path, self._action)
        try:
            schema = file_schema(avro, *names)
        except BTreeError as error:
            self._refuse_header(f"unusable schema ({error})")
        if self.is_gnomon_file and any(schema.nulls_last):
            self._refuse_header("unusable schema (null is not the first branch of a key's union)")
        return schema

    def _load_upper(self, head: bytes, stats: LookupStats) -> memoryview:
        """The bytes after the header that stay in memory: the upper levels. If the file was read whole, has no upper
        levels or very long ones, or does not state their length, these are the bytes that were read with the header."""
        have = head[self.start :]
        if not 0 < self.upper_bytes <= UPPER_READ_BYTES:
            return memoryview(have)
        if self._whole:
            self._compare_upper(memoryview(have)[: self.upper_bytes])
            return memoryview(have)
        if len(have) < self.upper_bytes:
            have += self.read(len(head), self.upper_bytes - len(have), stats)
        upper = memoryview(have[: self.upper_bytes])
        self._compare_upper(upper)
        return upper

    @property
    def is_whole(self) -> bool:
        """Whether all of the file is in memory."""
        return len(self._memory) == self.size - self.start

    def forget_leaves(self) -> None:
        """Keep only the upper levels of a file that was read whole."""
        if self._whole and 0 < self.upper_bytes <= UPPER_READ_BYTES:
            self._memory = memoryview(bytes(self._memory[: self.upper_bytes]))

    def check_upper(self, stats: LookupStats) -> None:
        """Check the checksum of upper levels that were too long to be read when the file was opened."""
        if self.upper_bytes <= UPPER_READ_BYTES or fmt.UPPER_CRC_KEY not in self.metadata:
            return
        end = self.start + self.upper_bytes
        begins = range(self.start, end, LONG_READ_BYTES)
        self._compare_upper(*(self.read(begin, min(LONG_READ_BYTES, end - begin), stats) for begin in begins))

    def _compare_upper(self, *parts: bytes | memoryview) -> None:
        if self.metadata.get(fmt.UPPER_CRC_KEY) not in (None, fmt.crc_text(*parts)):
            raise self.damaged(f"the levels above the leaves do not match {fmt.UPPER_CRC_KEY}", self.start)

    @property
    def cache_bytes(self) -> int:
        """Memory that this file holds: bytes read ahead and decoded nodes."""
        return BARE_BYTES + len(self._memory) + self._kept_bytes

    # -- blocks ----------------------------------------------------------------------------------------------------

    def block(
        self,
        offset: int,
        stats: LookupStats,
        length: int | None = None,
        most: int | None = None,
        window: Window | None = None,
    ) -> Block:
        """The block at `offset`; `length` is a guess at its size. Upper nodes and the root are cached decoded. TooMany
        where the block has more than `most` records; they are then not decoded. A scan has a `window`."""
        kept = self.kept.get(offset)
        if kept is None and self._leaves is not None and offset >= self.start + max(self.upper_bytes, 1):
            kept = self._leaves.get(offset)
        if kept is not None:
            if most is not None and len(kept.node.keys) > most:
                raise TooMany(offset)
            return kept
        try:
            block = self._read_block(offset, stats, length, most, window)
        except DamagedIndexFile:
            if not self.is_remote:
                raise
            with looking_again():
                block = self._read_block(offset, stats, length, most, None)
        if offset >= self.start + max(self.upper_bytes, 1):
            if self._leaves is not None:
                self._leaves.put(offset, block)
        elif self._kept_bytes + block.cache_bytes <= DECODED_BYTES:
            self.kept[offset] = block
            self._kept_bytes += block.cache_bytes
        return block

    def _read_block(
        self, offset: int, stats: LookupStats, length: int | None, most: int | None, window: Window | None
    ) -> Block:
        data, frame = self._bytes_of(offset, length, stats, window)
        if most is not None and frame.count > most:
            raise TooMany(offset)
        return Block(self.decode(offset, frame.count, self._unpack(offset, frame, data)), offset, frame.end)

    def is_leaf(self, offset: int) -> bool:
        """Whether the header proves that the block at `offset` is a leaf: the header states the length of the upper
        levels, and the block lies after them."""
        return fmt.UPPER_BYTES_KEY in self.metadata and offset >= self.start + self.upper_bytes

    def _bytes_of(
        self, offset: int, length: int | None, stats: LookupStats, window: Window | None
    ) -> tuple[bytes, fmt.BlockFrame]:
        have = self._memory[offset - self.start :]
        least = min(fmt.BLOCK_HEAD_BYTES, self.size - offset)
        if len(have) < least and window is not None:
            have = window.at(offset)
            if len(have) < max(least, length or 0):
                window.fill(self, stats)
                have = window.at(offset)
        if len(have) < least:
            guess = length if length is not None and 0 < length <= LONGEST_GUESS_BYTES else self._guess
            most = min(max(guess, fmt.BLOCK_HEAD_BYTES), self.size - offset)
            have = memoryview(self.read(offset, most, stats))
        frame = fmt.decode_block_frame(bytes(have[: fmt.BLOCK_HEAD_BYTES]), offset, self.size, self.path, self._action)
        data = bytes(have[: frame.end - offset])
        if len(data) < frame.end - offset:
            data += self.read(offset + len(data), frame.end - offset - len(data), stats)
        return data, frame

    def unpacked(self, offsets: Sequence[int], stats: LookupStats) -> Iterator[tuple[int, int, bytes]]:
        """The number of records, the end in the file, and the records, not decoded, of the blocks at these ascending
        offsets. Blocks close together are read in long ranges."""
        begin, have = self.start, self._memory
        frames, first = list[tuple[int, int, int]](), 0  # of sound blocks in these bytes, from the offset `first` on
        for i, offset in enumerate(offsets):
            if i - first >= len(frames):
                if not begin <= offset <= begin + len(have) - fmt.BLOCK_HEAD_BYTES:
                    begin, have = offset, memoryview(self.read(offset, self._long_read(offsets, i), stats))
                limits = (fmt.NODE_RECORDS, fmt.PAYLOAD_LIMIT)
                frames, first = kernel.block_frames(have, begin, self._sync, offsets, i, *limits), i
            records = b""
            if frames:
                count, payload, end = frames[i - first]
                with suppress(DecompressionError):
                    records = decompress(self.codec, bytes(have[payload:end]), fmt.NODE_LIMIT, self._checked)
                if len(records) >= count:
                    yield count, begin + end + fmt.SYNC_BYTES, records
                    continue
            begin, have, frame, records = self._unpack_one(offset, begin, have, stats)
            frames, first = [], i + 1
            yield frame.count, frame.end, records

    def _unpack_one(
        self, offset: int, begin: int, have: memoryview, stats: LookupStats
    ) -> tuple[int, memoryview, fmt.BlockFrame, bytes]:
        """The frame and the records of a block that begins in the bytes that lie at `begin`, after these bytes, which
        may be replaced by more. Finds the damage, if any."""
        try:
            head = bytes(have[offset - begin : offset - begin + fmt.BLOCK_HEAD_BYTES])
            frame = fmt.decode_block_frame(head, offset, self.size, self.path, self._action)
            data = have[offset - begin : frame.end - begin]
            if len(data) < frame.end - offset:
                more = self.read(begin + len(have), frame.end - begin - len(have), stats)
                begin, have = offset, memoryview(b"".join([data, more]))
                data = have
            return begin, have, frame, self._unpack(offset, frame, data)
        except DamagedIndexFile:
            if not self.is_remote:
                raise
            with looking_again():
                again, frame = self._bytes_of(offset, None, stats, None)
                return begin, have, frame, self._unpack(offset, frame, again)

    def leaves(self, offsets: Sequence[int], stats: LookupStats) -> Iterator[tuple[int, Any]]:
        """The number of records of the leaves at these ascending offsets, and the records, not decoded, or their
        `kernel.RecordKeys`, if the cache of leaves has them. The cache receives those for which it has room, since a
        batch of many leaves must not drop the leaves of others."""
        is_cached = self._leaves is not None and self.decoder.is_compiled
        kept = self._leaves.get_many(offsets) if self._leaves is not None and is_cached else [None] * len(offsets)
        read = self.unpacked([offset for offset, block in zip(offsets, kept, strict=True) if block is None], stats)
        room = self._leaves.room() if self._leaves is not None and is_cached else 0
        for offset, block in zip(offsets, kept, strict=True):
            stats.nodes += 1
            if block is None:
                count, after, records = next(read)
                if self._leaves is None or len(records) > room or count > MOST_KEPT:
                    yield count, records
                    continue
                block = Block(self.decode(offset, count, records), offset, after)
                self._leaves.add(offset, block)
                room -= block.cache_bytes
            keys: Any = block.node.keys
            yield keys.count, keys

    def _long_read(self, offsets: Sequence[int], first: int) -> int:
        """The number of bytes to read from the block at `offsets[first]` on."""
        begin = end = offsets[first]
        for offset in islice(offsets, first + 1, None):
            if offset - end > LONGEST_GUESS_BYTES or offset - begin > LONG_READ_BYTES:
                break
            end = offset
        return min(end + max(self._guess, fmt.BLOCK_HEAD_BYTES), self.size) - begin

    def _unpack(self, offset: int, frame: fmt.BlockFrame, data: bytes | memoryview) -> bytes:
        """Check and decompress a block. Returns its records, not decoded."""
        if data[-fmt.SYNC_BYTES :] != self._sync:
            raise self.damaged("no sync marker after the block", frame.end - fmt.SYNC_BYTES)
        payload = bytes(data[frame.payload - offset : -fmt.SYNC_BYTES])
        try:
            records = decompress(self.codec, payload, fmt.NODE_LIMIT, self._checked)
        except DecompressionError as error:
            raise self._undecodable(offset, error) from None
        if frame.count > len(records):
            raise self._undecodable(offset, ValueError(f"{frame.count} records in {len(records)} bytes"))
        return records

    def _undecodable(self, offset: int, error: Exception) -> DamagedIndexFile:
        why = str(error) or type(error).__name__
        return self.damaged(f"the block cannot be decoded ({why})", offset)

    def decode(self, offset: int, count: int, records: bytes) -> Node:
        """The node whose block lies at `offset`, from its decompressed records."""
        try:
            node = self.decoder.node(count, records)
        except UNREADABLE as error:
            raise self._undecodable(offset, error) from None
        if not node.keys.is_sorted():
            raise self.damaged("the keys of a node are not in order", offset)
        return node

    def cut(self, offset: int, count: int, records: bytes, most: int) -> Iterator[tuple[int, bytes]]:
        """The records, not decoded, in pieces of at most `most`: `(count, bytes)`."""
        try:
            yield from self.decoder.cut(count, records, most)
        except UNREADABLE as error:
            raise self._undecodable(offset, error) from None

    def read(self, offset: int, length: int, stats: LookupStats) -> bytes:
        """Exactly `length` bytes of the file."""
        stats.reads += 1
        stats.bytes += length
        data = self._reader.read_range(offset, length)
        if len(data) != length:
            raise self.damaged("", offset, expected=f"{length} bytes", found=str(len(data)))
        return data

"""An Avro object container file as a `SourceFile`. The pointer of a row is its block's position and its ordinal in the
block (docs/internals/other-formats.md).

In an Avro file of an Iceberg table a pointer has one number, as in Parquet and ORC files, so that a mask can name
deleted rows: the position of the row's block times 2^20, plus the row's ordinal in the block. Iceberg counts rows of
the file instead: `numbers_of_rows`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.base.varints import OverlongVarint
from gnomon.sources.avro.container import (
    HEAD_BYTES,
    HEADER_LIMIT,
    MAGIC,
    SYNC_BYTES,
    UNPACKERS,
    Block,
    Header,
    LimitExceeded,
    Malformed,
    ReadAheadBuffer,
    check_block,
    parse_block,
    parse_header,
)
from gnomon.sources.avro.rows import BlockLengths, Request, RowSchema, fetch_rows, row_schema, scan_rows
from gnomon.sources.contract import Numbers, Options, Pointers, Split
from gnomon.sources.errors import DamagedSource, StalePointer, UnsupportedFormat
from gnomon.sources.pointers import even_splits, first_of_each, pointer_pairs, with_pointers
from gnomon.sources.types import int32s, int64s

FIRST_READ = 64 << 10  # bytes
DIGEST_TAIL = 1 << 10  # bytes at the end that count for the digest: the application may choose the sync marker
SCHEMA_GROWTH = 30  # approximate memory of a schema, as a multiple of its text
CODEC_KEY, SCHEMA_KEY = "avro.codec", "avro.schema"
ROW_BITS = 20
MOST_BLOCK_ROWS = 1 << ROW_BITS  # Iceberg ends a block at 64 KB of records
MOST_BYTES = 1 << (63 - ROW_BITS)  # of a file

File = TypeVar("File", bound="AvroFile")


def open_avro(reader: RangeReader, _options: Options | None = None) -> "AvroFile":
    """Open an Avro file, as `open_as` does."""
    return open_as(AvroFile, reader)


def open_as(kind: type[File], reader: RangeReader) -> File:
    """Open an Avro file. Reads the header, and the last bytes for the digest: one round of reads where the header is
    within the first 64 KB."""
    path, size = reader.name, reader.size
    if size < len(MAGIC) + SYNC_BYTES:
        raise DamagedSource(f"{size} bytes are too few for an Avro file", path, 0)
    tail_bytes = min(size, DIGEST_TAIL)
    head, tail = reader.read_ranges([(0, min(size, FIRST_READ)), (size - tail_bytes, tail_bytes)])
    if not head.startswith(MAGIC):
        _refuse_magic(head[: len(MAGIC)], path)
    try:
        header = header_of(reader, head, size)
        codec = header.metadata.get(CODEC_KEY, b"null").decode("utf-8", "replace")
        if codec not in UNPACKERS:
            raise LimitExceeded(f"codec {codec[:80]!r}, not one of {', '.join(UNPACKERS)}")
        if SCHEMA_KEY not in header.metadata:
            raise Malformed(f"the header has no {SCHEMA_KEY}")
        schema = row_schema(header.metadata[SCHEMA_KEY], kind.of_iceberg)
    except (Malformed, OverlongVarint) as error:
        raise DamagedSource(f"the header cannot be read: {error}", path, 0) from error
    except LimitExceeded as error:
        raise UnsupportedFormat(str(error), path, 0) from error
    digest = hashlib.blake2b(repr((sorted(header.metadata.items()), header.sync, size)).encode(), digest_size=16)
    digest.update(tail)
    first = _first_block(head[header.end : header.end + HEAD_BYTES], header.end, size)
    return kind(header, codec, schema, size, digest.hexdigest(), first)


def _refuse_magic(found: bytes, path: str) -> None:
    if found[:3] == MAGIC[:3]:
        raise UnsupportedFormat(f"an Avro file of version {found[3]}, not 1", path, 3)
    raise DamagedSource(f"begins with {found!r}, an Avro file begins with {MAGIC!r}", path, 0)


def header_of(reader: RangeReader, head: bytes, size: int) -> Header:
    """The header of a file that begins with `head`. Reads more, in growing steps, while the header is longer than
    that."""
    most = min(size, HEADER_LIMIT)
    while True:
        try:
            return parse_header(head[:most])
        except IndexError:
            if len(head) >= most:
                if most < size:
                    raise LimitExceeded(f"a header of more than {most} bytes") from None
                raise Malformed("the file ends inside the header") from None
        more = min(8 * len(head), most) - len(head)
        head += reader.read_range(len(head), more)


def _first_block(head: bytes, offset: int, size: int) -> Block | None:
    """The part of the first block's head that came with the header; None if too short. An estimate needs no more."""
    try:
        return parse_block(head, offset, size) if head else None
    except (Malformed, LimitExceeded):
        return None


class AvroFile:
    """One Avro file, with its header read. Safe to share between threads."""

    rows = None  # the header does not say
    ragged = 0
    of_iceberg = False  # how the schema is read

    def __init__(
        self, header: Header, codec: str, schema: RowSchema, size: int, digest: str, first: Block | None
    ) -> None:
        """`first` is the block after the header, if there is one."""
        self.header = header
        self._codec = codec
        self._schema = schema
        self._size = size
        self.digest = digest  # of the header, whose sync marker is usually random, and of the last KB
        self.row_bytes = first.row_bytes if first else 1  # mean of the first block
        self.schema = first_of_each(schema.arrow)
        self._lengths = BlockLengths(first)

    @property
    def cache_bytes(self) -> int:
        metadata = sum(len(key) + len(value) for key, value in self.header.metadata.items())
        return metadata + SCHEMA_GROWTH * self._schema.text_bytes + self._lengths.cache_bytes

    def scan_bytes(self, columns: Sequence[str]) -> int:
        """The size of the file: rows are stored one after the other."""
        return self._size

    def splits(self, target: int) -> list[Split]:
        """Ranges of about `target` bytes. Only one range where the sync marker repeats within itself (Polars writes 16
        bytes of 1): a search would take rows with the same bytes for blocks."""
        sync = self.header.sync
        return [(0, self._size)] if sync in (sync + sync)[1:-1] else even_splits(self._size, target)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows; for a split, the rows of the blocks that begin in it."""
        yield from scan_rows(reader, self._request(columns), split or (0, self._size))

    def blocks(self, reader: RangeReader) -> Iterator[Block]:
        """All blocks, in file order. Of a local file only their heads and sync markers are read, of a remote one all
        bytes, in long reads. DamagedSource where they do not reach to the end of the file."""
        reads = ReadAheadBuffer(reader, reader.size if reader.is_remote else 0)
        offset = self.header.end
        while offset < reader.size:
            block = check_block(reads, offset, self.header.sync)
            yield block
            offset = block.end

    def units(self, offsets: Numbers) -> Numbers:
        """The positions of blocks."""
        return offsets

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        return fetch_rows(reader, self._request(columns), self._lengths, pointers)

    def _request(self, columns: Sequence[str]) -> Request:
        return Request(self.header, self._codec, self._schema.least, self._schema.decoder(columns))


class IcebergAvroFile(AvroFile):
    """An Avro file whose pointers have one number. Its schema has Iceberg's types."""

    of_iceberg = True

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        count = len(columns)
        for batch in super().scan(reader, columns, split):
            blocks, rows, sizes = batch.columns[count:]
            numbers = _numbers(blocks.to_numpy(), rows.to_numpy(), reader.name)
            own = batch.select(range(count))
            yield with_pointers(own, int64s(numbers), int32s(np.zeros(len(numbers), np.int32)), sizes)

    def units(self, offsets: Numbers) -> Numbers:
        """The positions of blocks."""
        return offsets >> ROW_BITS

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        pairs = pointer_pairs(pointers, reader.name)
        wrong = np.flatnonzero(pairs[:, 1])
        if len(wrong):
            raise StalePointer(
                f"no row at pointer {tuple(pairs[wrong[0]].tolist())}", reader.name, action=Action.BUILD_AGAIN
            )
        numbers = pairs[:, 0]
        places = np.column_stack([numbers >> ROW_BITS, numbers & (MOST_BLOCK_ROWS - 1)])
        return super().fetch(reader, places, columns)


def open_iceberg_avro(reader: RangeReader) -> IcebergAvroFile:
    """Open an Avro file of an Iceberg table. Reads as `open_avro`."""
    return open_as(IcebergAvroFile, reader)


def numbers_of_rows(reader: RangeReader, rows: Numbers) -> Numbers:
    """The number in the pointer of each of these rows, which are ordinals in the file and ascend. Reads the heads of
    blocks up to the last row. DamagedSource where the file has fewer rows."""
    header, path = open_iceberg_avro(reader).header, reader.name
    reads = ReadAheadBuffer(reader, reader.size)
    found, offset, first, done = [], header.end, 0, 0
    while done < len(rows):
        if offset >= reader.size:
            raise DamagedSource(
                "a delete names a row that the file does not have",
                path,
                expected=f"a row below {first}",
                found=f"row {rows[done]}",
            )
        block = check_block(reads, offset, header.sync)
        end = int(np.searchsorted(rows, first + block.rows))
        if end > done:
            found.append(_numbers(np.int64(offset), rows[done:end] - first, path))
        offset, first, done = block.end, first + block.rows, end
    return np.concatenate([np.zeros(0, np.int64), *found])


def _numbers(blocks: Numbers | np.int64, rows: Numbers, path: str) -> Numbers:
    """The numbers of rows, by the positions of their blocks and their ordinals in these."""
    if len(rows) and (int(rows.max()) >= MOST_BLOCK_ROWS or int(np.max(blocks)) >= MOST_BYTES):
        raise UnsupportedFormat(
            f"a block of more than {MOST_BLOCK_ROWS:,} rows, or a file of more than {MOST_BYTES:,} bytes", path
        )
    numbers: Numbers = (blocks << ROW_BITS) + rows.astype(np.int64)
    return numbers

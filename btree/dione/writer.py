"""Index files byte for byte as Dione's own writer makes them, for users who keep Dione's readers.

This module has all differences from Gnomon's own files: fixed numbers of records per node; children before their
parents in memory, so the last child is first in the file; nulls greatest; zlib at level 6; a header without Gnomon's
keys. The files differ from Dione's in one point: a node never ends between two equal keys, so that Dione's reader loses
no duplicate.
"""

import bz2
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from gnomon.base.compression import RAW_DEFLATE, zstd
from gnomon.base.varints import encode_signed
from gnomon.btree import format as fmt
from gnomon.btree.codecs import compressor
from gnomon.btree.dione.rows import DioneRowEncoder
from gnomon.btree.errors import BTreeError
from gnomon.btree.geometry import IndexFile, node_block
from gnomon.btree.key_types import key_type
from gnomon.btree.rows import SortedRows
from gnomon.btree.schema import EntrySchema

RECORD_DOC = "doc"
DEFLATE_LEVEL, BZIP2_LEVEL, ZSTANDARD_LEVEL = 6, 9, 3  # the defaults of Avro's Java library


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, RAW_DEFLATE)
    return packer.compress(data) + packer.flush()


def _zstandard(data: bytes) -> bytes:
    packer = zstd.ZstdCompressor(ZSTANDARD_LEVEL)
    return packer.compress(data) + packer.flush()  # streaming: the frame then has no length


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": compressor("snappy"),
    "zstandard": _zstandard,
    "bzip2": lambda data: bz2.compress(data, BZIP2_LEVEL),
}


@dataclass
class _OpenNode:
    parts: list[bytes] = field(default_factory=list)  # records; in a node above the leaves one in each part
    records: int = 0

    def add(self, records: bytes, count: int) -> None:
        self.parts.append(records)
        self.records += count

    def add_child(self, link: int) -> None:
        """Link the last record to a child."""
        self.parts[-1] = self.parts[-1].removesuffix(fmt.NULL_LINK) + fmt.LINK_BRANCH + encode_signed(link)


class DioneWriter:
    """Collects sorted entries like `BTreeWriter`, but nulls are greatest. The tree has at most `height` levels with
    `interval` records per node (more in the root, and for a run of equal keys in a leaf)."""

    def __init__(
        self, schema: EntrySchema, interval: int, height: int, codec: str = "deflate", sync: bytes | None = None
    ) -> None:
        if interval < 1 or height < 1 or codec not in COMPRESSORS:
            raise BTreeError(f"Dione has no files of interval {interval}, height {height} and codec {codec!r}")
        for column in schema.keys:
            if column.type == "binary" or key_type(column.type).decimal:
                raise BTreeError(f"Dione orders {column.type} by signed bytes", column=column.name)
        self._schema = schema
        self._interval = interval
        self._height = height
        self._codec = codec
        self._sync = fmt.sync_marker(sync)
        self._rows = DioneRowEncoder(schema)
        self._open = [_OpenNode()]  # root first
        self._blocks: list[bytes] = []  # children before their parents
        self._total = 0  # bytes of the blocks
        self._levels = 1

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the entries of a batch."""
        rows = self._rows.encode(batch)
        if rows is None:
            return
        starts, data, row = rows.records.starts, rows.records.data, 0
        while row < len(rows):
            end = row + 1
            if len(self._open) == self._height:
                end = self._end_of_leaf(row, rows)
                if end == row:
                    self._close_full()
                    continue
            self._open[-1].add(bytes(data[starts[row] : starts[end]]), end - row)
            if len(self._open) < self._height:
                self._open.append(_OpenNode())
            row = end

    def _end_of_leaf(self, row: int, rows: SortedRows) -> int:
        """The end of the rows, from `row` on, that the open leaf takes."""
        if len(self._open) == 1:  # the root is the only node
            return len(rows)
        full = row + max(0, self._interval - self._open[-1].records)
        place = int(np.searchsorted(rows.changes, full))
        return int(rows.changes[place]) if place < len(rows.changes) else len(rows)

    def _close_full(self) -> None:
        while len(self._open) > 1 and self._open[-1].records >= self._interval:
            self._close()

    def _close(self) -> None:
        """Finish the lowest open node. A node without records makes no block and no link."""
        closed = self._open.pop()
        if not closed.records:
            return
        self._levels = max(self._levels, len(self._open) + 1)
        records = b"".join(closed.parts)
        self._blocks.append(node_block(closed.records, records, COMPRESSORS[self._codec], self._sync))
        self._total += len(self._blocks[-1])
        if self._open:
            self._open[-1].add_child(self._total)

    def finish(self) -> IndexFile:
        """Close all open nodes and lay out the file. The writer cannot be used afterwards."""
        while self._open:
            self._close()
        names = [[column.name for column in part] for part in (self._schema.keys, self._schema.values)]
        metadata = {
            fmt.SCHEMA_KEY: self._schema.to_json(RECORD_DOC, null_first=False),
            fmt.CODEC_KEY: self._codec.encode(),
            fmt.KEY_VALUE_KEY: fmt.encode_key_value_spec(*names),
            fmt.DATA_BYTES_KEY: str(self._total).encode(),
        }
        header = fmt.encode_header(metadata, self._sync)
        return IndexFile.of(header, self._blocks[::-1], self._rows.entries, self._levels)

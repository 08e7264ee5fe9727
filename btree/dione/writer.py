"""Index files byte for byte as Dione's own writer makes them, for users who keep Dione's readers.

This module has everything in which Dione differs from us: fixed numbers of records per node; children before their
parents in memory, so the last child is first in the file; nulls greatest; zlib at level 6; a header without our keys.
There is one difference from Dione: a node never ends between two equal keys, so that Dione's reader loses no duplicate.
"""

import bz2
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from gnomon.base.compression import RAW_DEFLATE, zstd
from gnomon.btree import format as fmt
from gnomon.btree.codecs import compressor
from gnomon.btree.dione.rows import DioneRowEncoder
from gnomon.btree.errors import BTreeError
from gnomon.btree.geometry import IndexFile, InnerNode, node_block
from gnomon.btree.key_types import key_type
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
    node: InnerNode = field(default_factory=InnerNode)
    links: list[int] = field(default_factory=list)  # links to its finished children


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
        starts, changes = rows.records.starts.tolist(), set(rows.changes.tolist())
        for row in range(len(rows)):
            record = bytes(rows.records.data[starts[row] : starts[row + 1] - len(fmt.NULL_LINK)])
            self._append(record, is_new_key=row in changes)

    def _append(self, record: bytes, is_new_key: bool) -> None:
        while is_new_key and len(self._open) > 1 and len(self._open[-1].node.records) >= self._interval:
            self._close()
        self._open[-1].node.add(record)
        if len(self._open) < self._height:
            self._open.append(_OpenNode())

    def _close(self) -> None:
        """Finish the lowest open node. A node without records makes no block and no link."""
        closed = self._open.pop()
        if not closed.node.records:
            return
        self._levels = max(self._levels, len(self._open) + 1)
        self._blocks.append(closed.node.encode(iter(closed.links), self._block))
        self._total += len(self._blocks[-1])
        if self._open:
            self._open[-1].node.parents[-1] = True
            self._open[-1].links.append(self._total)

    def _block(self, count: int, records: bytes) -> bytes:
        return node_block(count, records, COMPRESSORS[self._codec], self._sync)

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

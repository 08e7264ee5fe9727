"""Index files byte for byte as Dione's own writer makes them, for users who keep Dione's readers, and Dione's bucket.

The readers of all index files read Dione's, too: see `DioneDecoder` of `node`, and `DioneScan` of `scan`.

The bucket is MurmurHash3's `orderedHash` of Scala 2.12 over the texts of the key columns, each hashed by Java's
`String.hashCode`. All arithmetic is modulo 2^32.

The differences of the files from Gnomon's own: fixed numbers of records per node; children before their parents in
memory, so the last child is first in the file; nulls greatest; zlib at level 6; a header without Gnomon's keys. The
files differ from Dione's in one point: a node never ends between two equal keys, so that Dione's reader loses no
duplicate.
"""

import bz2
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.base.compression import RAW_DEFLATE, zstd
from gnomon.base.hashes_python import Hashes32, finish, mix
from gnomon.base.varints import encode_signed
from gnomon.btree import format as fmt
from gnomon.btree.codecs import compressor
from gnomon.btree.encode import RowEncoder, SortedRows, Union
from gnomon.btree.errors import BTreeError
from gnomon.btree.geometry import IndexFile, node_block
from gnomon.btree.key_types import key_type
from gnomon.btree.node import adjacent_nulls_last, total_order
from gnomon.btree.schema import Column, EntrySchema

# Dione's writer hashes the text that Spark makes of a value; its reader hashes the text that Java makes. The two texts
# are equal only for these types.
HASHED_TYPES = ("string", "boolean", "tinyint", "smallint", "int", "bigint")
SEED = 0xB592F7AE  # of `orderedHash`: its constant "symmetricSeed"
CODE_FACTOR = 31  # of `String.hashCode`
ASCII_END, FOUR_BYTES = 0x80, 0xF0  # UTF-8: the first byte that is not ASCII; the first of four bytes

NULL_LAST = Union(b"\x02", b"\x00")  # [T, "null"]
RECORD_DOC = "doc"
DEFLATE_LEVEL, BZIP2_LEVEL, ZSTANDARD_LEVEL = 6, 9, 3  # the defaults of Avro's Java library


# -- the hash ----------------------------------------------------------------------------------------------------------


def check_hashed(keys: Sequence[Column]) -> None:
    """Raise BTreeError for a key column of a type whose keys Dione's reader does not find."""
    for column in keys:
        if column.type not in HASHED_TYPES:
            raise BTreeError("Dione's reader does not find keys of this type", column=column.name, found=column.type)
        if column.type == "boolean" and len(keys) > 1:
            raise BTreeError("Dione has no composite keys with this type", column=column.name, found=column.type)


def dione_hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Dione's hash of each row of key columns of HASHED_TYPES. The bucket of a row is the hash modulo the number of
    buckets."""
    hashes = np.full(len(keys[0]), SEED, np.uint32)
    for key in keys:
        hashes = mix(hashes, _java_hashes(key))
    return finish(hashes, np.uint32(len(keys))).view(np.int32).astype(np.int64)


def _java_hashes(key: pa.Array) -> Hashes32:
    """`String.hashCode` of the text of each value; 0 for a null. The code units of a text are weighted with powers of
    CODE_FACTOR, the last one with 1."""
    texts = key.cast(pa.large_string()) if not pa.types.is_large_string(key.type) else key
    texts = pc.fill_null(texts, "")
    if len(texts) == 0:
        return np.empty(0, np.uint32)
    first = texts.offset
    ends = np.frombuffer(texts.buffers()[1], np.int64)[first : first + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    units, ends = _code_units(data, ends - ends[0])
    if not len(units):
        return np.zeros(len(texts), np.uint32)
    lengths = np.diff(ends)
    powers = np.cumprod(np.full(int(lengths.max()), CODE_FACTOR, np.uint32), dtype=np.uint32)
    powers = np.concatenate([np.ones(1, np.uint32), powers])
    weighted = units.astype(np.uint32) * powers[np.repeat(ends[1:], lengths) - 1 - np.arange(len(units))]
    sums = np.concatenate([np.zeros(1, np.uint32), np.cumsum(weighted, dtype=np.uint32)])
    hashes: Hashes32 = sums[ends[1:]] - sums[ends[:-1]]
    return hashes


def _code_units(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16] | npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The UTF-16 code units of UTF-8 texts, and where each text begins and ends among them."""
    if not len(data) or data.max() < ASCII_END:
        return data, ends
    units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), np.uint16)
    is_first = (data & 0xC0) != ASCII_END  # not a continuation byte
    before = np.concatenate([[0], np.cumsum(is_first.astype(np.int64) + (data >= FOUR_BYTES))])
    return units, before[ends]


# -- the file ----------------------------------------------------------------------------------------------------------


class DioneRowEncoder(RowEncoder):
    """Encodes one batch after the other. Keys must not decrease: nulls are greatest, and -0.0 is a different key,
    before 0.0."""

    UNION = NULL_LAST
    ONE_ZERO = False

    def _adjacent(self, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        return adjacent_nulls_last([total_order(key) for key in keys])


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

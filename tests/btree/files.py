"""Small index files for the tests: entries in stored form to bytes, and other readers of these."""

import decimal
import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa

from gnomon.btree import BTreeReader, BTreeWriter, Column, EntrySchema
from gnomon.btree import format as fmt
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key

NAME = "test.btree.avro"
SYNC = bytes(range(16))
Entry = tuple[Key, Key]

URL_SCHEMA = EntrySchema((Column("url", "string"),), (Column("file", "string"), Column("row", "bigint")))


class Bytes:
    """Bytes as an open file that counts reads."""

    is_remote = False

    def __init__(self, data: bytes) -> None:
        self.name = NAME
        self.data = data
        self.reads: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        return len(self.data)

    def read_range(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(*span) for span in ranges]


def opened(data: bytes) -> BTreeReader:
    return BTreeReader(Bytes(data))


def arrow_column(values: Sequence[Any], type_name: str) -> pa.Array:
    """Stored forms as an Arrow column."""
    kind = key_type(type_name).decimal
    if kind:
        with decimal.localcontext(prec=60):
            exact = [None if v is None else decimal.Decimal(v).scaleb(-kind.scale) for v in values]
        return pa.array(exact, key_type(type_name).arrow)
    if type_name in ("date", "timestamp", "timestamp_ntz"):
        width = pa.int32() if type_name == "date" else pa.int64()
        return pa.array(values, width).cast(key_type(type_name).arrow)
    return pa.array(values, key_type(type_name).arrow)


def batch(schema: EntrySchema, entries: Sequence[Entry]) -> pa.Table:
    """Entries as columns for a writer."""
    rows = [(*key, *value) for key, value in entries]
    columns = [arrow_column([row[i] for row in rows], column.type) for i, column in enumerate(schema.columns)]
    return pa.table(columns, names=[column.name for column in schema.columns])


def write(schema: EntrySchema, entries: Sequence[Entry], cuts: Sequence[int] = (), **options: Any) -> bytes:
    """The index file of sorted entries. The writer gets batches that end at `cuts`."""
    writer = BTreeWriter(schema, **{"sync": SYNC, **options})
    edges = [0, *sorted(cuts), len(entries)]
    for begin, end in pairwise(edges):
        writer.write(batch(schema, entries[begin:end]))
    return b"".join(writer.finish().chunks)


def url_entries(count: int, copies: int = 1) -> list[Entry]:
    """`count` sorted keys of `copies` entries each."""
    keys = [f"https://example.com/{number:06d}" for number in range(count)]
    return [((key,), (f"part-{i % 7:05d}.parquet", i)) for i, key in enumerate(k for k in keys for _ in range(copies))]


def avro_blocks(data: bytes) -> list[tuple[int, int, list[dict[str, Any]]]]:
    """(offset, length, records) of each block, from fastavro as a plain Avro file."""
    blocks = fastavro.block_reader(io.BytesIO(data))
    return [(block.offset, block.size, list(block)) for block in blocks]


def header_of(data: bytes) -> fmt.Header:
    header = fmt.decode_header(data, NAME)
    assert header is not None
    return header


def as_dione(data: bytes) -> bytes:
    """The blocks of a file of ours below a header with the keys of Dione's alone."""
    header = header_of(data)
    metadata = {key: value for key, value in header.metadata.items() if not key.startswith("gnomon.")}
    return fmt.encode_header(metadata, header.sync) + data[header.end :]


def dione_get(data: bytes, key: Key) -> list[dict[str, Any]]:
    """The answer of Dione's reader. It scans a node and goes down once, below the last record that is not greater.

    Python compares the keys, so only types with the same order in Avro are supported."""
    header = header_of(data)
    names = header.metadata[fmt.KEY_VALUE_KEY].decode().split("|")[0].split(",")
    blocks = {offset: records for offset, _, records in avro_blocks(data)}
    data_bytes = int(header.metadata[fmt.DATA_BYTES_KEY])
    found: list[dict[str, Any]] = []
    offset = header.end
    while True:
        last = None
        for record in blocks[offset]:
            here = tuple(record[name] for name in names)
            if here > key:
                break
            last = record
            if here == key:
                found.append(record)
        if last is None or last[fmt.LINK_FIELD] is None:
            return found
        offset = header.end + data_bytes - last[fmt.LINK_FIELD]

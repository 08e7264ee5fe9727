"""Rows of one leaf, taken out of their pages: levels, and values in their PLAIN encoding. Many leaves of them make a
Parquet file in memory, which pyarrow gives its types in one call."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sources.parquet import thrift
from sources.parquet.agreement import check_agreement
from sources.parquet.bare import UNCOMPRESSED, page_head
from sources.parquet.footer import MAGIC
from sources.parquet.page_header import DATA, PLAIN
from sources.parquet.schema import BOOLEAN, Leaf
from sources.parquet.values import LENGTH_BYTES
from sources.parquet.wrap import Template, WrittenChunk


class LeafRows(NamedTuple):
    """`entries`: values, and nulls and empty lists among them. A byte each: `repetitions`, `definitions`; empty where
    the leaf has none. `values`: those that are there."""

    entries: int
    repetitions: bytes
    definitions: bytes
    values: bytes


def joined(parts: Sequence[LeafRows]) -> LeafRows:
    if len(parts) == 1:
        return parts[0]
    return LeafRows(
        sum(part.entries for part in parts),
        b"".join([part.repetitions for part in parts]),
        b"".join([part.definitions for part in parts]),
        b"".join([part.values for part in parts]),
    )


def as_table(template: Template, leaves: Sequence[Leaf], columns: Sequence[LeafRows], rows: int) -> pa.Table:
    """The `rows` rows that `columns`, one for each leaf of the template, stand for."""
    parts: list[bytes] = []
    chunks, start = [], len(MAGIC)
    for leaf, column in zip(leaves, columns, strict=True):
        values = _packed(column.values) if leaf.kind == BOOLEAN else column.values
        repetitions = _section(column.repetitions, leaf.repetitions)
        definitions = _section(column.definitions, leaf.definitions)
        size = len(repetitions) + len(definitions) + len(values)
        head = page_head(DATA, column.entries, PLAIN, size, size)
        total = len(head) + size
        parts += (head, repetitions, definitions, values)
        chunks.append(WrittenChunk(UNCOMPRESSED, column.entries, total, total, start, start))
        start += total
    table = template.open(rows, chunks, parts, verify=False).read_row_group(0, use_threads=False)
    table.validate()
    for batch in table.to_batches():
        check_agreement(batch)
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{table.num_rows} rows of the {rows} that should be there")
    return table


def _section(levels: bytes, highest: int) -> bytes:
    """Levels in the RLE / bit-packing hybrid, after their length in bytes: one run."""
    if not highest:
        return b""
    width = highest.bit_length()
    if len(levels) == 0 or levels.count(levels[0]) == len(levels):
        run = thrift.varint(len(levels) << 1) + (levels[:1] or b"\0")
    else:
        groups = (len(levels) + 7) >> 3
        numbers = np.zeros(8 * groups, np.uint8)
        numbers[: len(levels)] = np.frombuffer(levels, np.uint8)
        bits = numbers[:, None] >> np.arange(width, dtype=np.uint8) & 1
        run = thrift.varint(groups << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()
    return len(run).to_bytes(LENGTH_BYTES, "little") + run


def _packed(booleans: bytes) -> bytes:
    return np.packbits(np.frombuffer(booleans, np.uint8), bitorder="little").tobytes()

"""Indexes in Dione's format over sources of the tests: its file layout, names, buckets and pointers."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from gnomon.btree.dione import DioneWriter
from gnomon.btree.keys import type_of_arrow
from gnomon.btree.node import JavaOrder
from gnomon.btree.schema import Column, EntrySchema
from gnomon.shadow.storage import storage_at
from gnomon.sources import POINTER_COLUMNS, open_source
from gnomon.sources.parquet import ParquetFile


def dione_index(source: Path, folder: Path, keys: Sequence[str], fields: Sequence[str], format: str) -> Path:
    """Write an index of each partition, with two buckets. The bucket of a row is of no matter to an import."""
    by_folder: dict[str, list[pa.Table]] = {}
    for info in storage_at(source).list():
        by_folder.setdefault(info.path.rpartition("/")[0], []).append(
            entries_of(source, info.path, keys, fields, format)
        )
    for number, (partition, tables) in enumerate(by_folder.items()):
        table = pa.concat_tables(tables)
        for bucket in range(2):
            part = table.take(np.arange(bucket, table.num_rows, 2))
            write_file(
                folder / partition / f"part-{2 * number + bucket:05d}-{uuid.uuid4()}.c000.btree.avro", part, keys
            )
    return folder


def entries_of(source: Path, path: str, keys: Sequence[str], fields: Sequence[str], format: str) -> pa.Table:
    """The entries of a file, with Dione's pointers."""
    with storage_at(source).open(path) as reader:
        file = open_source(reader, format, {})
        batches = list(file.scan(reader, [*keys, *fields]))
        table = pa.Table.from_batches(batches)
        offsets = table.column("data_offset").to_numpy()
        sub_offsets = table.column("data_sub_offset").to_numpy()
        if isinstance(file, ParquetFile):
            ends = np.cumsum(file.group_rows)
            groups = np.searchsorted(ends, offsets, side="right")
            offsets, sub_offsets = groups, offsets - (ends - file.group_rows)[groups]
    sizes = (
        table.column("data_size") if format in ("avro", "sequence") else pa.array(np.full(len(offsets), -1, np.int32))
    )
    names = pa.array([f"file:{source / path}"] * len(offsets))
    arrays = [names, pa.array(offsets, pa.int64()), pa.array(sub_offsets, pa.int32()), sizes]
    return pa.table(
        {
            **{name: table.column(name) for name in (*keys, *fields)},
            **dict(zip(POINTER_COLUMNS, arrays, strict=True)),
        }
    )


def write_file(path: Path, table: pa.Table, keys: Sequence[str]) -> None:
    """Write one index file, its keys in Dione's order: nulls last, -0.0 before 0.0."""
    columns = [Column(field.name, type_of_arrow(field.type) or "") for field in table.schema]
    schema = EntrySchema(tuple(columns[: len(keys)]), tuple(columns[len(keys) :]))
    order = JavaOrder([True] * len(keys), schema.key_types)
    rows = list(zip(*[table.column(key).to_pylist() for key in keys], strict=True))
    ordered = table.take(sorted(range(len(rows)), key=lambda row: order(rows[row])))
    writer = DioneWriter(schema, 7, 3)
    writer.write(ordered.combine_chunks())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(writer.finish().chunks))

"""The deleted rows of an Iceberg snapshot: deletion vectors of Puffin files, position deletes, and equality deletes.
The rules are those of https://iceberg.apache.org/spec/."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyroaring import BitMap64

from gnomon.base.errors import check_memory
from gnomon.base.readers import MemoryFile
from gnomon.shadow.errors import SourceError, SourceNotFound, UsageError
from gnomon.shadow.storage import in_order, source_storage, words_of
from gnomon.shadow.tables.iceberg_files import (
    AVRO,
    EQUALITY_DELETES,
    ORC,
    PARQUET,
    POSITION_DELETES,
    PUFFIN,
    ContentFile,
    LiveFiles,
    Paths,
    avro_records,
    read_file,
)
from gnomon.shadow.tables.lake_source import ddl_of
from gnomon.shadow.tables.table_source import EqualityDeletes
from gnomon.sources import DECLARED, open_source
from gnomon.sources.avro import numbers_of_rows

TABLES: Mapping[str, Callable[..., pa.Table]] = {PARQUET: pq.read_table, ORC: orc.read_table}
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"


def deleted_rows(source: FileIO, live: LiveFiles, paths: Paths, name: str) -> dict[str, BitMap64]:
    """The deleted rows of each data file, by its path. Rows are numbered as in pointers: ordinals in the file, except
    for Avro (`numbers_of_rows`). Each file of deletes is read once, several at a time."""
    uses: dict[str, list[tuple[ContentFile, ContentFile]]] = {}
    for data in live.data:
        for file in live.deletes.of(data):
            if file.content == POSITION_DELETES:
                uses.setdefault(file.path, []).append((data, file))
    deleted: dict[str, BitMap64] = {}
    avro = {data.path for pairs in uses.values() for data, _ in pairs if data.format == AVRO}
    reads = [partial(_deleted_by, source, name, pairs) for pairs in uses.values()]
    for found in in_order(reads, [pairs[0][1].size for pairs in uses.values()]):
        for location, rows in found:
            if len(rows):
                deleted[location] = deleted[location] | rows if location in deleted else rows
    numbers = [partial(pointer_numbers, paths, location, deleted[location]) for location in deleted if location in avro]
    ours = dict(zip((location for location in deleted if location in avro), in_order(numbers), strict=True))
    return {paths.path(location): ours.get(location, rows) for location, rows in deleted.items()}


def _deleted_by(
    source: FileIO, name: str, pairs: Sequence[tuple[ContentFile, ContentFile]]
) -> list[tuple[str, BitMap64]]:
    """The rows that one file of position deletes or deletion vectors deletes in some data files, by their location."""
    file = pairs[0][1]
    content = read_file(source, file.path, name)
    if file.format == PUFFIN:
        return [
            (data.path, deletion_vector(content, file.path, one.content_offset or 0, one.content_size or 0))
            for data, one in pairs
        ]
    found = {location: BitMap64(numbers) for location, numbers in position_deletes(content, file.path, file.format)}
    return [(data.path, found[data.path]) for data, _ in pairs if data.path in found]


def pointer_numbers(paths: Paths, location: str, rows: BitMap64) -> BitMap64:
    """The numbers of these rows of an Avro file, as pointers have them."""
    try:
        with source_storage(paths.root).open(paths.path(location)) as reader:
            return BitMap64(numbers_of_rows(reader, np.array(rows.to_array(), np.int64)).astype(np.uint64))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise SourceNotFound("gone, so that its deleted rows cannot be told", location) from None


def equality_deletes(
    table: Table, fields: Mapping[int, pa.Field], live: LiveFiles, paths: Paths, name: str
) -> list[EqualityDeletes]:
    """The equality deletes of a snapshot. `fields` has the columns of the table by their ids."""
    files: dict[str, set[str]] = {one.path: set() for one in live.deletes.files if one.content == EQUALITY_DELETES}
    for data in live.data if files else ():
        for one in live.deletes.of(data):
            if one.content == EQUALITY_DELETES:
                files[one.path].add(paths.path(data.path))
    deletes = []
    for file in live.deletes.files:
        if file.content != EQUALITY_DELETES:
            continue
        ids, where = file.equality_ids or (), file.path
        if any(number not in fields for number in ids):
            raise UsageError("equality deletes by a nested column, or by one that was dropped, are not read", where)
        rows = _deleted_values(MemoryFile(read_file(table.io, where, name), where), [fields[number] for number in ids])
        deletes.append(EqualityDeletes(where, rows, frozenset(files[where])))
    return deletes


def _deleted_values(reader: MemoryFile, columns: Sequence[pa.Field]) -> pa.Table:
    """The rows of a file of equality deletes, in the types of the table. The file is read as a data file is."""
    names = [column.name for column in columns]
    source = open_source(reader, "parquet", {DECLARED: ddl_of(columns, reader.name)})
    if missing := [name for name in names if name not in source.schema.names]:
        raise SourceError(
            "a file of equality deletes without their column", reader.name, expected=", ".join(missing), found="none"
        )
    batches = [batch.select(names) for batch in source.scan(reader, names)]
    return pa.Table.from_batches(batches, schema=pa.schema([source.schema.field(name) for name in names]))


def deletion_vector(data: bytes, where: str, offset: int, size: int) -> BitMap64:
    """A deletion vector, the blob deletion-vector-v1 of a Puffin file: the length of magic and bitmap, the magic, a
    64-bit Roaring bitmap in the portable form, and the CRC of magic and bitmap; the numbers are big-endian."""
    blob = data[offset : offset + size]
    content = blob[4:-4]
    if len(blob) != size or size < 12 or int.from_bytes(blob[:4], "big") != len(content):
        raise SourceError("", where, offset, expected=f"a deletion vector of {size} bytes", found=f"{len(blob)} bytes")
    crc, found = int.from_bytes(blob[-4:], "big"), zlib.crc32(content)
    if content[:4] != VECTOR_MAGIC or crc != found:
        raise SourceError("damaged deletion vector", where, offset, expected=f"CRC {crc:08x}", found=f"{found:08x}")
    return BitMap64.deserialize(content[4:])


def position_deletes(data: bytes, where: str, kind: str) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    """Yield each data file of a file of position deletes of format `kind`, with the numbers of its deleted rows."""
    if kind in TABLES:
        try:
            table = TABLES[kind](pa.BufferReader(data), columns=["file_path", "pos"])
        except (pa.ArrowException, OSError) as error:
            check_memory(error)
            raise SourceError(f"a damaged file of position deletes ({words_of(error)})", where) from None
        named, numbers = table.column("file_path"), table.column("pos").to_numpy()
    elif kind == AVRO:
        rows, _ = avro_records(data, where)
        named = pa.chunked_array([pa.array([row["file_path"] for row in rows], pa.string())])
        numbers = np.array([row["pos"] for row in rows], np.int64)
    else:
        raise UsageError(
            f"position deletes of format {kind} are not read", where, expected="Parquet, Avro, ORC or Puffin"
        )
    codes = named.combine_chunks().dictionary_encode()
    order = np.argsort(codes.indices.to_numpy(), kind="stable")
    cuts = np.flatnonzero(np.diff(codes.indices.to_numpy()[order])) + 1
    for share in np.split(order, cuts) if len(order) else ():
        yield codes.dictionary[int(codes.indices[int(share[0])].as_py())].as_py(), numbers[share].astype(np.uint64)

"""The deleted rows of an Iceberg snapshot: deletion vectors of Puffin files, position deletes, and equality deletes.
The rules are those of https://iceberg.apache.org/spec/."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyroaring import BitMap64

from gnomon.base.errors import check_memory
from gnomon.base.readers import MemoryFile
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import SourceError, SourceNotFound, UsageError
from gnomon.shadow.storage import source_storage, words_of
from gnomon.shadow.tables.iceberg_manifests import (
    AVRO,
    EQUALITY_DELETES,
    ORC,
    PARQUET,
    POSITION_DELETES,
    DeleteFile,
    Manifests,
    Paths,
    avro_records,
    comparable,
    read_file,
)
from gnomon.shadow.tables.lake_source import ddl_of
from gnomon.shadow.tables.table_source import EqualityDeletes
from gnomon.sources import DECLARED, open_source
from gnomon.sources.avro import numbers_of_rows

TABLES: Mapping[str, Callable[..., pa.Table]] = {PARQUET: pq.read_table, ORC: orc.read_table}
FILE_PATH_ID = 2147483546  # of the column file_path in a file of position deletes
BOUNDS = ("lower_bounds", "upper_bounds")
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"


def deleted_rows(source: FileIO, found: Manifests, paths: Paths, name: str) -> dict[str, BitMap64]:
    """The deleted rows of each data file. A deletion vector holds all position deletes of its data file, so that older
    files of position deletes no longer apply to this file. Rows are numbered as in pointers: ordinals in the file,
    except for Avro (`numbers_of_rows`)."""
    deleted: dict[str, BitMap64] = {}
    vectors: set[str] = set()

    def within(location: str, delete: DeleteFile) -> bool:
        return _one_data_file(delete.entry) == location or _is_in_partition(found, location, delete)

    for delete in found.deletes:
        file = delete.entry
        if file["content"] == POSITION_DELETES and file["file_format"].upper() == "PUFFIN":
            location = file["referenced_data_file"]
            if _applies(found, location, delete.sequence):
                deleted[location] = deletion_vector(read_file(source, file["file_path"], name), file)
                vectors.add(location)
    for delete in found.deletes:
        file = delete.entry
        if file["content"] == POSITION_DELETES and file["file_format"].upper() != "PUFFIN":
            for location, numbers in position_deletes(read_file(source, file["file_path"], name), file):
                if location not in vectors and _applies(found, location, delete.sequence) and within(location, delete):
                    deleted[location] = deleted.get(location, BitMap64()) | BitMap64(numbers)
    for location, rows in deleted.items():
        if found.data[location].format == AVRO:
            deleted[location] = pointer_numbers(paths, location, rows)
    return {paths.path(location): numbers for location, numbers in deleted.items() if len(numbers)}


def pointer_numbers(paths: Paths, location: str, rows: BitMap64) -> BitMap64:
    """The numbers of these rows of an Avro file, as pointers have them."""
    try:
        with source_storage(paths.root).open(paths.path(location)) as reader:
            return BitMap64(numbers_of_rows(reader, np.array(rows.to_array(), np.int64)).astype(np.uint64))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise SourceNotFound("gone, so that its deleted rows cannot be told", location) from None


def equality_deletes(
    table: Table, fields: Mapping[int, pa.Field], found: Manifests, paths: Paths, name: str
) -> list[EqualityDeletes]:
    """The equality deletes of a snapshot. `fields` has the columns of the table by their ids. A file of equality
    deletes applies to data files with a lower sequence number and, if its partition spec has fields that are not void,
    with the same spec and partition."""
    deletes = []
    for delete in found.deletes:
        file, where = delete.entry, delete.entry["file_path"]
        if file["content"] != EQUALITY_DELETES:
            continue
        if any(number not in fields for number in file["equality_ids"]):
            raise UsageError("equality deletes by a nested column, or by one that was dropped, are not read", where)
        columns = [fields[number] for number in file["equality_ids"]]
        rows = _deleted_values(MemoryFile(read_file(table.io, where, name), where), columns)
        everywhere = all(isinstance(one.transform, VoidTransform) for one in table.specs()[delete.spec].fields)
        files = frozenset(
            paths.path(location)
            for location, sequence in found.sequences.items()
            if sequence < delete.sequence and (everywhere or _is_in_partition(found, location, delete))
        )
        deletes.append(EqualityDeletes(where, rows, files))
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


def _is_in_partition(found: Manifests, location: str, delete: DeleteFile) -> bool:
    """Whether a data file has the partition spec and the partition of a file of deletes."""
    if found.specs[location] != delete.spec:
        return False
    of_file = found.data[location].partition
    # Most pairs of files end at the first comparison, which has -0.0 equal to 0.0.
    return of_file == delete.partition and _sorted(of_file) == _sorted(delete.partition)


def _sorted(partition: Mapping[int, Stored]) -> tuple[tuple[int, ...], object]:
    numbers = tuple(sorted(partition))
    return numbers, comparable(partition[number] for number in numbers)


def _one_data_file(entry: Mapping[str, Any]) -> str | None:
    """The one data file of a file of position deletes, as its entry or its bounds name it; None if it may have several.
    Its deletes apply whatever the partition is."""
    if entry.get("referenced_data_file") is not None:
        return str(entry["referenced_data_file"])
    least, most = (
        next((one["value"] for one in entry.get(name) or () if one["key"] == FILE_PATH_ID), None) for name in BOUNDS
    )
    return least.decode() if least is not None and least == most else None


def _applies(found: Manifests, location: str, sequence: int) -> bool:
    """Whether position deletes with this sequence number apply to this data file, and the file is live."""
    return location in found.sequences and found.sequences[location] <= sequence


def deletion_vector(data: bytes, file: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, the blob deletion-vector-v1 of a Puffin file: the length of magic and bitmap, the magic, a
    64-bit Roaring bitmap in the portable form, and the CRC of magic and bitmap; the numbers are big-endian."""
    offset, size, where = file["content_offset"], file["content_size_in_bytes"], file["file_path"]
    blob = data[offset : offset + size]
    content = blob[4:-4]
    if len(blob) != size or size < 12 or int.from_bytes(blob[:4], "big") != len(content):
        raise SourceError("", where, offset, expected=f"a deletion vector of {size} bytes", found=f"{len(blob)} bytes")
    crc, found = int.from_bytes(blob[-4:], "big"), zlib.crc32(content)
    if content[:4] != VECTOR_MAGIC or crc != found:
        raise SourceError("damaged deletion vector", where, offset, expected=f"CRC {crc:08x}", found=f"{found:08x}")
    return BitMap64.deserialize(content[4:])


def position_deletes(data: bytes, file: Mapping[str, Any]) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    """Yield each data file of a file of position deletes, with the numbers of its deleted rows."""
    where, kind = file["file_path"], file["file_format"].upper()
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

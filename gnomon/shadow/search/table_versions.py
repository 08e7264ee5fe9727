"""The files and the deleted rows of one version of a lake table, for the few rows that a search asks about; and which
files that no version lists may have rows."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.keys import as_bits, stored_array
from gnomon.shadow.errors import SourceError, SourceNotFound
from gnomon.shadow.lookup import ParsedKey
from gnomon.shadow.metadata import IndexSpec, View, masks_of
from gnomon.shadow.storage import ANY_TIME, FileInfo, OpenFile, SourceStorage, join
from gnomon.shadow.tables import EqualityDeletes, LakeContent, LakeFile, LakeSource, partition_array, stored_partition
from gnomon.sources import SourceFile, open_source

MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
HEAD_BYTES = max(map(len, MAGIC))
# Files without rows, by name and by their first bytes: deletion vectors, Iceberg's metadata, Puffin files, checksums.
NO_ROWS = re.compile(r"deletion_vector_[^/]*\.bin|[^/]*\.metadata\.json|version-hint\.text")
NO_ROWS_MAGIC = (b"PFA1", b"crc\x00")
DELTA_LOG = re.compile(r"_delta_log/(_[^/.]*|(.*/)?[^/]*\.(json|crc)|\d+\.checkpoint\.[^/]*|_sidecars/[^/]*)")
ICEBERG_METADATA = re.compile(r"[^/]*\.(avro|json|json\.gz|stats|puffin|text|crc)")
POSITION_DELETES, DELETED_ROW = {"file_path", "pos"}, "row"  # columns of a file of position deletes
MANIFESTS = ({"manifest_path"}, {"status", "data_file"})  # columns of Iceberg's own Avro files

Row = tuple[str, int]  # the path of a file, and a row number


class TableAt(NamedTuple):
    """A version to read: of the table, or, where its metadata is gone, of a kept snapshot of the index."""

    name: str
    source: LakeSource | None
    view: View | None = None


class Listing(NamedTuple):
    """A version's data files by path below the table's `root`, its columns as in `LakeContent` with the types of its
    partition columns, the folders outside the root in which its writers put new files, and a function that names its
    files of equality deletes. A version whose metadata is gone has files alone."""

    files: Mapping[str, LakeFile]
    columns: str = ""
    own_columns: str = ""
    types: Mapping[str, str] | None = None
    folders: tuple[str, ...] = ()
    equality_deletes: Callable[[], set[str]] = set
    root: str = ""


def listing_of(version: TableAt) -> Listing:
    """Read what a version lists. Errors as in `LakeSource.content`."""
    if version.view is not None:
        return Listing({path: LakeFile(file.size, file.partition) for path, file in version.view.covered.items()})
    content = _content(version)
    return Listing(
        content.files,
        content.columns,
        content.own_columns,
        content.types,
        content.folders,
        lambda: {one.location for one in content.equality_deletes()},
        content.root,
    )


class VersionReader:
    """Reads the deletes of versions. `spec` is that of the index, with its key."""

    def __init__(self, root: SourceStorage, spec: IndexSpec) -> None:
        self._root = root
        self._spec = spec

    @contextmanager
    def opened(self, path: str, size: int, spec: IndexSpec) -> Iterator[tuple[SourceFile, OpenFile]]:
        """A data file of this size, with the columns of the spec. Errors as in `opened_bytes`."""
        with self.opened_bytes(path, size) as reader:
            yield open_source(reader, spec.format, spec.read_options), reader

    def opened_bytes(self, path: str, size: int) -> OpenFile:
        """A file of this size, or of an unknown size where it is negative. FileNotFoundError where it is gone."""
        return self._root.open(path, known=FileInfo(path, size, ANY_TIME) if size >= 0 else None)

    def deleted(self, version: TableAt, rows: Mapping[Row, ParsedKey]) -> set[Row]:
        """The rows among `rows` that a version has deleted. `rows` maps each row to its key; the version lists the
        files of all rows. SourceNotFound where a delete is by other columns than the key, and the file with their
        values is gone; other errors as in `LakeSource.content` and in a fetch."""
        if version.view is not None:
            masks = masks_of(version.view.segments)
            return {(path, row) for path, row in rows if path in masks and masks[path].holds(row)}
        content = _content(version)
        by_position = content.deleted()
        found = {(path, row) for path, row in rows if row in by_position.get(path, ())}
        spec = replace(self._spec, schema=content.columns, partition_types=content.types)
        for deletes in content.equality_deletes():
            names = deletes.rows.column_names
            for (path, row), key in rows.items():
                if path in deletes.files and (path, row) not in found:
                    values = self._values((path, row), key, names, spec, content.files[path])
                    if _holds(deletes, values):
                        found.add((path, row))
        return found

    def _values(self, at: Row, key: ParsedKey, names: Sequence[str], spec: IndexSpec, file: LakeFile) -> list[pa.Array]:
        """The values of columns in a row, as arrays of one value: of the key, of the partition, or of the file."""
        path, row = at
        keys = {  # without floats: the key has no sign of a zero
            one.name: (one.type, value)
            for one, value in zip(spec.stored_keys, key.stored, strict=True)
            if one.type not in ("float", "double")
        }
        folders = stored_partition(file.partition, spec.partition_types)
        own = [name for name in names if name not in keys and name not in folders]
        read: dict[str, pa.Array] = {}
        if own:
            try:
                with self.opened(path, file.size, spec) as (source, reader):
                    there = [name for name in own if name in source.schema.names]
                    read = dict(zip(there, source.fetch(reader, [(row, 0)], there).columns, strict=True))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                what = f"gone, so that deletes by {', '.join(own)} cannot be told for row {row}"
                raise SourceNotFound(what, join(self._root.root, path)) from None
        known = {name: stored_array([value], kind) for name, (kind, value) in keys.items()}
        known |= {name: partition_array(value, spec.partition_type(name), 1) for name, value in folders.items()}
        return [known[name] if name in known else read.get(name, pa.nulls(1)) for name in names]


def _content(version: TableAt) -> LakeContent:
    """A version of the table, read again: the versions of a table do not fit into memory together."""
    assert version.source is not None
    return version.source.now().content


def equals(values: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> npt.NDArray[np.bool_]:
    """n flags: which of n values equal the one wanted value; null equals null, and NaN equals NaN."""
    one = wanted[0]
    if not one.is_valid:
        same = values.is_null()
    elif pa.types.is_floating(wanted.type) and math.isnan(one.as_py()):
        same = pc.is_nan(values)
    else:
        same = pc.equal(values, one)
    flags: npt.NDArray[np.bool_] = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return flags


def _holds(deletes: EqualityDeletes, values: Sequence[pa.Array | pa.ChunkedArray]) -> bool:
    """Whether equality deletes delete a row with these values."""
    same = np.ones(deletes.rows.num_rows, bool)
    for column, value in zip(deletes.rows.columns, values, strict=True):
        known = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
        known = pa.nulls(1, column.type) if pa.types.is_null(known.type) else known
        same &= equals(as_bits(column.combine_chunks().cast(known.type)), as_bits(known))
    return bool(same.any())


# -- files that no version lists ---------------------------------------------------------------------------------------


def is_metadata(path: str, is_delta: bool, folder: str) -> bool:
    """Whether a file is one of the table's metadata, which for Iceberg lie in `folder`. A data file may lie there by
    mistake."""
    if is_delta:
        return DELTA_LOG.fullmatch(path) is not None
    parent, _, name = path.rpartition("/")
    return f"{parent}/" == folder and ICEBERG_METADATA.fullmatch(name) is not None


def format_of(name: str, head: bytes) -> str | None:
    """The format of a file with this name and these first bytes: "parquet", "orc" or "avro", None for a file without
    rows, "" for any other."""
    if NO_ROWS.fullmatch(name) or head in NO_ROWS_MAGIC:
        return None
    by_magic = next((format for magic, format in MAGIC.items() if head.startswith(magic)), "")
    ending = name.rpartition(".")[2].lower()
    return by_magic or (ending if ending in MAGIC.values() else "")


def check_columns(where: str, names: Collection[str], key: Sequence[str]) -> None:
    """Raise SourceError for a file with these columns, none of which is one of the key, unless it has no rows of the
    table: position deletes without rows, and Iceberg's manifests."""
    if set(names) >= POSITION_DELETES:
        if DELETED_ROW in names:
            raise SourceError("position deletes that repeat the deleted rows are not searched; remove them", where)
    elif not any(columns <= set(names) for columns in MANIFESTS):
        what = "no version lists this file, and none of its columns is known as one of the key; remove it"
        raise SourceError(what, where, expected=", ".join(key), found=", ".join(sorted(names)))

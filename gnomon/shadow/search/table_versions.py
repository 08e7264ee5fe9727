"""The files and the deleted rows of one version of a lake table, for the few rows that a search asks about."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.keys import as_bits, stored_array
from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.lookup import ParsedKey
from gnomon.shadow.metadata import IndexSpec, View, masks_of
from gnomon.shadow.storage import ANY_TIME, FileInfo, OpenFile, SourceStorage, join
from gnomon.shadow.tables import EqualityDeletes, LakeContent, LakeFile, LakeSource, partition_array, stored_partition
from gnomon.sources import SourceFile, open_source

Row = tuple[str, int]  # the path of a file, and a row number


class TableAt(NamedTuple):
    """A version to read: of the table, or, where its metadata is gone, of a kept snapshot of the index."""

    name: str
    source: LakeSource | None
    view: View | None = None


def files_of(version: TableAt) -> Iterator[tuple[str, int, str]]:
    """Yield path, bytes and partition of each file of a version."""
    if version.view is not None:
        yield from ((path, file.size, file.partition) for path, file in version.view.covered.items())
    else:
        yield from ((path, file.size, file.partition) for path, file in _content(version).files.items())


def equality_files(version: TableAt) -> set[str]:
    """The locations of the files of equality deletes of a version."""
    return set() if version.view is not None else {one.location for one in _content(version).equality_deletes()}


class VersionReader:
    """Reads the deletes of versions. `spec` is that of the index, with its key."""

    def __init__(self, root: SourceStorage, spec: IndexSpec) -> None:
        self._root = root
        self._spec = spec

    @contextmanager
    def opened(self, path: str, size: int, spec: IndexSpec) -> Iterator[tuple[SourceFile, OpenFile]]:
        """A data file of this size, with the columns of the spec. FileNotFoundError where it is gone."""
        with self._root.open(path, known=FileInfo(path, size, ANY_TIME)) as reader:
            yield open_source(reader, spec.format, spec.read_options), reader

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

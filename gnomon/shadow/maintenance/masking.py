"""The rows of a lake table's live files that the table has deleted, as masks: deletes by position, and deletes by
values of the key, whose positions the index itself finds."""

import uuid
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from gnomon.base.arrow import compute as pc
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import as_bits, key_array, same_values
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup import Lookup, Matcher, MatchStats
from gnomon.shadow.metadata import IndexSpec, Mask, Masks, Segment, Snapshot, SourceFileEntry, View, rows_by_partition
from gnomon.shadow.storage import Storage, join, source_storage
from gnomon.shadow.tables import EqualityDeletes, LakeContent
from gnomon.sources import POINTER_COLUMNS, open_source
from gnomon.sources.avro import MOST_BLOCK_ROWS

Ints = npt.NDArray[np.int64]

CACHE_BYTES = 32 << 20  # of index files that are searched
FILE_NAME, OFFSET = POINTER_COLUMNS[:2]


def masks_at(storage: Storage, spec: IndexSpec, segments: Sequence[Segment], content: LakeContent) -> Masks:
    """The masks of a version of a table, whose live files are those of `segments`. DamagedMetadata where deleted rows
    are not rows of these files; UsageError for equality deletes by other columns than the key."""
    deleted = {path: rows.copy() for path, rows in content.deleted().items()}
    for deletes in content.equality_deletes():
        for path, rows in _positions(storage, content.root, spec, segments, deletes).items():
            deleted[path] = deleted.get(path, BitMap64()) | rows
    masks = {path: Mask.of(rows) for path, rows in deleted.items() if len(rows)}
    known = {path: file for segment in segments for path, file in segment.live.items()}
    for path, mask in masks.items():
        check_mask(mask, content, path, known.get(path))
    return masks


def check_mask(mask: Mask, content: LakeContent, path: str, file: SourceFileEntry | None) -> None:
    """Raise DamagedMetadata unless a mask has rows of this file, by its format in the table."""
    rows, size = (0, 0) if file is None else (file.rows, file.size)
    is_avro = path in content.files and content.files[path].format == "avro"
    mask.check(join(content.root, path), rows, size * MOST_BLOCK_ROWS if is_avro else rows)


def _positions(
    storage: Storage, root: str, spec: IndexSpec, segments: Sequence[Segment], deletes: EqualityDeletes
) -> dict[str, BitMap64]:
    """The rows that deletes by values delete, by the path of their file. The columns of the deletes are those of the
    key that the index stores, and any partition columns."""
    names, stored = deletes.rows.column_names, [column.name for column in spec.stored_keys]
    if sorted(stored) != sorted(name for name in names if name not in spec.partitions):
        raise UsageError(
            "equality deletes are read where their columns are the key of the index; rewrite them as position deletes "
            "or deletion vectors, or make the index with this key",
            deletes.location,
            expected=f"the columns {', '.join(column.name for column in spec.keys)}",
            found=", ".join(names),
        )
    keys = [_key(deletes.rows.column(column.name), column.type, column.name) for column in spec.stored_keys]
    folders = {
        name: _key(deletes.rows.column(name), spec.partition_type(name), name)
        for name in spec.partitions
        if name in names
    }
    unmasked = tuple(Segment(one.id, one.index_files, one.source_files, one.dead) for one in segments)
    snapshot = Snapshot(0, "", (), rows_by_partition(unmasked, {}), {}, spec, commit_id=uuid.uuid4().hex)
    matcher = Matcher(Lookup(storage, CACHE_BYTES), View(snapshot, unmasked), MatchStats())
    deleted: dict[str, BitMap64] = {}
    exact = _ExactFloats(root, spec, keys)
    for matches in matcher.pieces(keys, folders, null_safe=True):
        same = np.ones(len(matches.rows), bool)
        for name, values in folders.items():  # a look-up takes -0.0 for 0.0
            same &= same_values(as_bits(matches.entries.column(name)), as_bits(values.take(matches.rows)))
        named = matches.entries.column(FILE_NAME).dictionary_encode()
        codes, offsets = named.indices.to_numpy(), matches.entries.column(OFFSET).to_numpy()
        for code, path in enumerate(named.dictionary.to_pylist()):
            if path in deletes.files:
                here = np.flatnonzero(same & (codes == code))
                rows = exact.some(path, offsets[here], matches.rows.take(pa.array(here)))
                deleted[path] = deleted.get(path, BitMap64()) | BitMap64(rows.astype(np.uint64))
    return deleted


class _ExactFloats:
    """Chooses, of the rows that a look-up found for keys, those that Iceberg has equal: the index stores -0.0 as 0.0,
    so that the sign of a zero is read from the data file."""

    def __init__(self, root: str, spec: IndexSpec, keys: Sequence[pa.Array]) -> None:
        self._storage, self._spec = source_storage(root), spec
        floats = [(column.name, key) for column, key in zip(spec.stored_keys, keys, strict=True)]
        self._keys = {name: key for name, key in floats if pa.types.is_floating(key.type)}

    def some(self, path: str, offsets: Ints, keys: pa.Int64Array) -> Ints:
        """The offsets of the rows of a file that equal their keys, whose places are `keys`."""
        wanted = {name: key.take(keys) for name, key in self._keys.items()}
        zeros = [pc.fill_null(pc.equal(key, 0), False).to_numpy(zero_copy_only=False) for key in wanted.values()]
        zero_rows = np.flatnonzero(np.any(zeros, axis=0)) if zeros else np.array([], np.int64)
        if not len(zero_rows):
            return offsets
        with self._storage.open(path) as reader:
            source = open_source(reader, self._spec.format, self._spec.read_options)
            names = [name for name in wanted if name in source.schema.names]
            rows = source.fetch(reader, [(int(offset), 0) for offset in offsets[zero_rows]], names)
        same = np.ones(len(offsets), bool)
        for name in names:
            theirs = rows.column(name).combine_chunks().cast(wanted[name].type)
            same[zero_rows] &= same_values(as_bits(theirs), as_bits(wanted[name].take(pa.array(zero_rows))))
        return offsets[same]


def _key(column: pa.ChunkedArray, kind: str, name: str) -> pa.Array:
    """A column of deletes in the type of the key: the file may have a narrower one."""
    array = column.combine_chunks()  # with the sign of a zero, which key_array keeps
    wanted = key_type(kind).arrow
    is_narrower = pa.types.is_integer(array.type) and pa.types.is_integer(wanted)
    return key_array(array.cast(wanted) if is_narrower else array, kind, name)

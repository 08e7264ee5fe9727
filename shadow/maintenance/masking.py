"""The rows of a lake table's live files that the table has deleted, as masks: deletes by position, and deletes by
values of the key, whose positions the index itself finds."""

import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup import Lookup, Matcher, MatchStats
from gnomon.shadow.metadata import IndexSpec, Mask, Masks, Segment, Snapshot, SourceFileEntry, View, rows_by_partition
from gnomon.shadow.storage import Storage, join
from gnomon.shadow.tables import EqualityDeletes, LakeContent
from gnomon.sources import POINTER_COLUMNS
from gnomon.sources.avro import MOST_BLOCK_ROWS

CACHE_BYTES = 32 << 20  # of index files that are searched
FILE_NAME, OFFSET = POINTER_COLUMNS[:2]


def masks_at(storage: Storage, spec: IndexSpec, segments: Sequence[Segment], content: LakeContent) -> Masks:
    """The masks of a version of a table, whose live files are those of `segments`. DamagedMetadata where deleted rows
    are not rows of these files; UsageError for equality deletes by other columns than the key."""
    deleted = {path: rows.copy() for path, rows in content.deleted().items()}
    for deletes in content.equality_deletes():
        for path, rows in _positions(storage, spec, segments, deletes).items():
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
    storage: Storage, spec: IndexSpec, segments: Sequence[Segment], deletes: EqualityDeletes
) -> dict[str, BitMap64]:
    """The rows that deletes by values delete, by the path of their file."""
    names = [column.name for column in spec.keys]
    if sorted(names) != sorted(deletes.rows.column_names) or any(column.partition for column in spec.keys):
        raise UsageError(
            "equality deletes are read where their columns are the key of the index; rewrite them as position deletes "
            "or deletion vectors, or make the index with this key",
            deletes.location,
            expected=f"the columns {', '.join(names)}",
            found=", ".join(deletes.rows.column_names),
        )
    keys = [_key(deletes.rows.column(column.name), column.type, column.name) for column in spec.stored_keys]
    unmasked = tuple(Segment(one.id, one.index_files, one.source_files, one.dead) for one in segments)
    snapshot = Snapshot(0, "", (), rows_by_partition(unmasked, {}), {}, spec, commit_id=uuid.uuid4().hex)
    matcher = Matcher(Lookup(storage, CACHE_BYTES), View(snapshot, unmasked), MatchStats())
    found: dict[str, BitMap64] = {}
    for matches in matcher.pieces(keys, {}, null_safe=True):
        named = matches.entries.column(FILE_NAME).dictionary_encode()
        codes, offsets = named.indices.to_numpy(), matches.entries.column(OFFSET).to_numpy()
        for place, path in enumerate(named.dictionary.to_pylist()):
            if path in deletes.files:
                rows = BitMap64(offsets[codes == place].astype(np.uint64))
                found[path] = found.get(path, BitMap64()) | rows
    return found


def _key(column: pa.ChunkedArray, kind: str, name: str) -> pa.Array:
    """A column of deletes in the type of the key: the file may have a narrower one."""
    array = column.combine_chunks()
    wanted = key_type(kind).arrow
    is_narrower = pa.types.is_integer(array.type) and pa.types.is_integer(wanted)
    return key_array(array.cast(wanted) if is_narrower else array, kind, name)

"""A key-value folder, written through the write path of `shadow` without Spark."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from gnomon.btree.keys import type_of_arrow
from gnomon.shadow.commit.full_reindex import newest_number, publish_full
from gnomon.shadow.commit.publishing import Changes, new_segment_id
from gnomon.shadow.metadata.manifests import SourceFileEntry
from gnomon.shadow.metadata.snapshots import Snapshot
from gnomon.shadow.metadata.spec import VALUES, IndexSpec, KeyColumn
from gnomon.shadow.metadata.spec_file import create_first_spec
from gnomon.shadow.storage import storage_at
from tests.shadow.make_index import write_entries


def write_folder(folder: Path, table: pa.Table, keys: Sequence[str], buckets: int = 2) -> Snapshot:
    """The rows of a table as the newest snapshot."""
    storage = storage_at(str(folder))
    known = {field.name: KeyColumn(field.name, str(type_of_arrow(field.type))) for field in table.schema}
    values = [name for name in known if name not in keys]
    columns = tuple(known[name] for name in keys), tuple(known[name] for name in values)
    spec = IndexSpec("", False, VALUES, (), *columns, buckets)
    newest, segment = newest_number(storage), new_segment_id()
    folders = pa.array([""] * len(table), pa.string())
    entries = pa.table([folders, *(table.column(name) for name in [*keys, *values])], names=["", *keys, *values])
    files = write_entries(storage, spec, segment, [entries])
    if not newest:
        create_first_spec(storage, spec)
    listed = [SourceFileEntry(segment, "", len(table), 0, 0, "")]
    types = {field.name: str(field.type) for field in table.schema}
    return publish_full(storage, spec, newest, Changes("write", files, listed, {}, types), segment)

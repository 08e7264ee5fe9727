"""Live entries of an index as Arrow batches: all of an index file, or the entries of keys.

They have the columns and names of a plain table on the folder, and the types of the source."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from gnomon.btree.key_arrays import stored_array
from gnomon.btree.reader import LookupStats
from gnomon.shadow.lookup.batch import Matches
from gnomon.shadow.lookup.index_files import open_index_file
from gnomon.shadow.metadata import NOT_LIVE, POINTER_SCHEMA, IndexSpec, Liveness, SegmentFile
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import stored_partition
from gnomon.sources import POINTER_COLUMNS
from gnomon.sources.pointers import FILENAME, OFFSET

KEY, INCLUDED, POINTER, PARTITION = "key", "included", "pointer", "partition"


@dataclass(frozen=True)
class EntryColumn:
    """A column of entries: its name in batches and in the folder's plain table, its name in the source, its type, and
    its part in the entry."""

    name: str
    source: str
    type: str
    part: str


def entry_columns(spec: IndexSpec) -> tuple[EntryColumn, ...]:
    """Key columns, included columns, the pointer, then all partition columns."""
    names = spec.file_names
    keys = [EntryColumn(names[key.name], key.name, key.type, KEY) for key in spec.stored_keys]
    included = [EntryColumn(names[one.name], one.name, one.type, INCLUDED) for one in spec.include]
    pointer = [EntryColumn(one.name, one.name, one.type, POINTER) for one in POINTER_SCHEMA]
    folders = [
        EntryColumn(names.get(name, name), name, spec.partition_type(name), PARTITION) for name in spec.partitions
    ]
    return (*keys, *included, *pointer, *folders)


def scan_entries(
    storage: Storage,
    spec: IndexSpec,
    found: SegmentFile,
    columns: Sequence[EntryColumn],
    partitions: Collection[str],
    stats: LookupStats,
) -> Iterator[pa.RecordBatch]:
    """Yield the live entries of an index file in these partitions, in key order. DamagedIndexFile as from `check`,
    maybe after some batches."""
    segment, file = found
    liveness = Liveness(spec, segment, file, storage.root)
    there = segment.source_files_in if spec.flat else [file.partition]
    order = {name: place for place, name in enumerate(name for name in there if name in partitions)}
    tree = open_index_file(storage, found, spec, stats)
    names = [column.name for column in columns if column.part != PARTITION]
    types = {column.source: column.type for column in columns if column.part == PARTITION}
    values = [stored_partition(name, types) for name in order]
    folders = {
        column.name: stored_array([value.get(column.source) for value in values], column.type)
        for column in columns
        if column.part == PARTITION
    }
    pointers = [FILENAME, OFFSET] if segment.masks else [FILENAME]
    for batch in tree.scan_batches(list(dict.fromkeys([*names, *pointers])), stats):
        named = liveness.source_files(batch.column(FILENAME), batch.column(OFFSET) if segment.masks else None)
        partition = named.numbers(lambda source: order.get(source.partition, NOT_LIVE))
        counted = partition != NOT_LIVE
        kept, of_partition = batch.filter(pa.array(counted)), pa.array(partition[counted])
        arrays = [
            folders[column.name].take(of_partition) if column.part == PARTITION else kept.column(column.name)
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def matched_entries(
    spec: IndexSpec, keys: pa.RecordBatch, matches: Matches, columns: Sequence[EntryColumn]
) -> pa.RecordBatch:
    """The entries of `matches`, in their order, with the keys (the stored key columns, in key order)."""
    names = [*(one.name for one in spec.include), *spec.partitions, *POINTER_COLUMNS]
    places = {(part, name): i for i, (part, name) in enumerate(zip(_parts(spec), names, strict=True))}
    own = {key.name: i for i, key in enumerate(spec.stored_keys)}
    arrays = [
        keys.column(own[column.source]).take(matches.rows)
        if column.part == KEY
        else matches.entries.column(places[column.part, column.source])
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _parts(spec: IndexSpec) -> list[str]:
    """The parts of the columns that a match gives."""
    return [INCLUDED] * len(spec.include) + [PARTITION] * len(spec.partitions) + [POINTER] * len(POINTER_COLUMNS)

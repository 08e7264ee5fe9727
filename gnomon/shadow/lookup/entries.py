"""Entries as rows and as Arrow batches: the entries of keys, or all live entries of an index file. They have the
columns and names of a plain table on the folder, and the types of the source. In a key-value folder the entries are the
rows."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gnomon.btree import BTreeReader
from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import stored_array
from gnomon.shadow.errors import UnknownColumn
from gnomon.shadow.lookup.batch import Matches
from gnomon.shadow.lookup.index_files import open_index_file
from gnomon.shadow.lookup.plan import ParsedKey
from gnomon.shadow.lookup.point import Hit
from gnomon.shadow.lookup.ranges import Range
from gnomon.shadow.metadata import NOT_LIVE, POINTER_SCHEMA, IndexSpec, KeyColumn, Liveness, SegmentFile, View
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import stored_partition
from gnomon.shadow.values import has_form, python_values, shown_key
from gnomon.sources import POINTER_COLUMNS
from gnomon.sources.pointers import FILENAME, OFFSET


def value_columns(view: View) -> tuple[str, ...]:
    """The columns of `entry_rows`: the key, the included columns, the partition columns and the pointer. In a key-value
    folder, all columns in their order."""
    stored = [column.name for column in (*view.spec.stored_keys, *view.spec.include)]
    return view.spec.entries.row_columns(stored, view.spec.partitions, view.columns)


def entry_rows(
    view: View, wanted: Sequence[ParsedKey], found: Sequence[Sequence[Hit]], columns: Sequence[str] | None
) -> list[list[dict[str, Any]]]:
    """For each key, a row for each of its hits, with values as in a fetch. If the source has a column with the name of
    a pointer column, the row has the source's. UnknownColumn for a column that the entries do not have."""
    known = value_columns(view)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UnknownColumn(f"the entries have no column {', '.join(unknown)}; they have {', '.join(known)}")
    names = list(dict.fromkeys(known if columns is None else columns))
    if not names:
        return [[{} for _ in some] for some in found]
    hits = [(key, hit) for key, some in zip(wanted, found, strict=True) for hit in some]
    values = _columns(view.spec, hits, names)
    rows = iter([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)])
    return [[next(rows) for _ in some] for some in found]


def _columns(spec: IndexSpec, hits: Sequence[tuple[ParsedKey, Hit]], names: Sequence[str]) -> list[list[Any]]:
    made: dict[str, list[Any]] = {
        name: [hit.pointer[i] for _, hit in hits] for i, name in enumerate(POINTER_COLUMNS) if name in names
    }
    of_folders = [stored_partition(hit.file.partition, spec.partition_types) for _, hit in hits]
    for i, column in enumerate(spec.include):
        made[column.name] = shown_column([hit.included[i] for _, hit in hits], column)
    for i, column in enumerate(spec.stored_keys):
        made[column.name] = shown_column([key.stored[i] for key, _ in hits], column)
    for name in spec.partitions:
        column = KeyColumn(name, spec.partition_type(name))
        made[name] = shown_column([values.get(name) for values in of_folders], column)
    return [made[name] for name in names]


def shown_column(stored: Sequence[Stored], column: KeyColumn) -> list[Any]:
    """Stored values as rows of the source show them."""
    if has_form(column) or key_type(column.type).decimal:
        return [shown_key(value, column) for value in stored]
    return python_values(stored_array(stored, column.type))


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
    ranges: Sequence[Range] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the live entries of an index file in these partitions, in key order. DamagedIndexFile as from `check`,
    maybe after some batches. With `ranges`, which are apart, only their keys, in the order of the ranges: other leaves
    are not read."""
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
    pointers = [] if spec.holds_values else [FILENAME, OFFSET] if segment.masks else [FILENAME]
    wanted = list(dict.fromkeys([*names, *pointers])) or [spec.entry_schema.keys[0].name]
    batches = tree.scan_batches(wanted, stats) if ranges is None else _within(tree, wanted, ranges, stats)
    for batch in batches:
        kind = spec.entries
        files = batch.column(FILENAME) if pointers else kind.file_names(segment, file.partition, batch.columns)
        named = liveness.source_files(files, batch.column(OFFSET) if segment.masks else None)
        partition = named.numbers(lambda source: order.get(source.partition, NOT_LIVE))
        counted = partition != NOT_LIVE
        kept, of_partition = batch.filter(pa.array(counted)), pa.array(partition[counted])
        arrays = [
            folders[column.name].take(of_partition) if column.part == PARTITION else kept.column(column.name)
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _within(
    tree: BTreeReader, columns: Sequence[str], ranges: Sequence[Range], stats: LookupStats
) -> Iterator[pa.RecordBatch]:
    """The entries of some ranges of keys."""
    for one in ranges:
        for runs in tree.run_batches(one.low, one.high, BATCH_ROWS, stats):
            yield pa.RecordBatch.from_arrays(tree.decoded(runs, columns), columns)


BATCH_ROWS = 65_536


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

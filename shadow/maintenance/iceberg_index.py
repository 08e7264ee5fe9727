"""The entries of a snapshot in the leaf layout of the draft Iceberg index specification (format/index-spec.md of
https://github.com/apache/iceberg/pull/16961, at commit DRAFT).

Leaf files have the key columns, `source_file_path` and `source_file_pos`, sorted by the bucket of the first key column,
the key columns, the path and the position. Their ranges do not overlap. A tracking file lists them, and a JSON file
describes the index. The draft leaves the fields inside `content_stats` open; ours have no field ids."""

import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gnomon.btree.hash_columns import iceberg_hashes
from gnomon.btree.key_types import key_type
from gnomon.btree.reader import LookupStats
from gnomon.shadow.errors import BuildFailed, UsageError
from gnomon.shadow.lookup import KEY, PARTITION, EntryColumn, entry_columns, scan_entries
from gnomon.shadow.metadata import IndexSpec, SegmentFile, View
from gnomon.shadow.storage import Storage, join, patiently, source_storage
from gnomon.shadow.tables import LakeContent, LakeSource
from gnomon.sources.pointers import FILENAME, OFFSET
from gnomon.sources.types import FIELD_ID, parse_ddl, record_of

DRAFT = "08288d3cf6e22134695a32d20d9ff04d2ed64470"
BUCKETS = 256
LEAF_ROWS = 1_000_000
ROWS_AT_ONCE = 4_000_000  # entries that are sorted in memory
PATH_ID, POSITION_ID, SOURCE_PATH_ID, SOURCE_POSITION_ID = 2147483538, 2147483537, 2147483646, 2147483645
PATH, POSITION = "source_file_path", "source_file_pos"
CHECKED_FILES = 1  # files in which the physical type of a text key is read
BUCKET = ""  # a name that no key column has
NOTE = {"draft": "apache/iceberg pull 16961, format/index-spec.md", "draft-commit": DRAFT, "written-by": "gnomon"}
TYPES = {  # Iceberg's names of the key types that have a bucket
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


@dataclass(frozen=True)
class Exported:
    """The result of an export: the numbers of entries and of leaf files, and the location of the JSON file."""

    rows: int
    leafs: int
    metadata: str


@dataclass(frozen=True)
class _Leaf:
    """A leaf file as the tracking file lists it."""

    location: str
    rows: int
    size: int
    stats: Mapping[str, Any]


@patiently()
def export_iceberg_index(
    storage: Storage,
    view: View,
    out: Storage,
    buckets: int = BUCKETS,
    leaf_rows: int = LEAF_ROWS,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Exported:
    """Write the live entries of a snapshot to an empty folder. The JSON file comes last. At most about `rows_at_once`
    entries are in memory: for more, the index is scanned several times, each time for a range of the buckets.

    UsageError for an index that the draft cannot hold, or a folder with files; BuildFailed where
    the entries are not as many as the snapshot says; errors of index files as in a scan."""
    _check(view, out)
    table = view.snapshot.table
    assert table is not None
    content = LakeSource(view.spec.table, table, view.spec.partitions).content
    if content.version.uuid != table.uuid:
        raise UsageError("another table is there now", view.spec.table, expected=table.uuid, found=content.version.uuid)
    _check_no_uuid(view, content)
    _check_no_avro(view, content)
    schema = _leaf_schema(view.spec)
    passes = max(1, min(buckets, math.ceil(view.snapshot.rows / rows_at_once)))
    edges = [buckets * i // passes for i in range(passes + 1)]
    leafs: list[_Leaf] = []
    for begin, end in pairwise(edges):
        entries = _sorted(storage, view, content, buckets, range(begin, end))
        for start in range(0, entries.num_rows, leaf_rows):
            leafs.append(_write_leaf(out, len(leafs) + 1, entries.slice(start, leaf_rows), schema))
    rows = sum(leaf.rows for leaf in leafs)
    if rows != view.snapshot.rows:
        expected = f"{view.snapshot.rows} rows"
        raise BuildFailed("the leaf files are not whole", out.root, expected=expected, found=f"{rows} rows")
    tracking = f"metadata/tracking-00001-{uuid.uuid4()}.parquet"
    _put(out, tracking, _tracking(leafs, schema, view.spec))
    described = _described(view, out, join(out.root, tracking), schema, buckets)
    path = f"metadata/00001-{uuid.uuid4()}.metadata.json"
    out.put_new(path, [json.dumps(described, indent=2).encode()])
    return Exported(rows, len(leafs), join(out.root, path))


def _check(view: View, out: Storage) -> None:
    """Raise UsageError for an index that the draft cannot hold, or a folder that has files."""
    spec = view.spec
    if spec.holds_values:
        raise UsageError("a key-value folder has no pointers into the files of a table")
    if view.snapshot.table is None:
        raise UsageError("the draft is of tables", spec.source, expected="the index of an Iceberg or Delta table")
    for column in spec.keys:
        kind = spec.partition_type(column.name) if column.partition else column.type
        if kind not in TYPES and key_type(kind).decimal is None:
            raise UsageError("Iceberg has no bucket of this type", column=column.name, found=kind)
    if next(islice(out.list(hidden=True), 1), None) is not None:
        raise UsageError("the folder exists and has files; name a new one", out.root)


def _check_no_uuid(view: View, content: LakeContent) -> None:
    """Raise UsageError where a text key is a UUID in the table, whose bytes Iceberg hashes."""
    declared = parse_ddl(view.spec.schema)
    texts = [column.name for column in view.spec.stored_keys if column.type == "string"]
    ids = {name: record.id for name in texts if (record := record_of(declared.field(name))) and record.id is not None}
    source = source_storage(content.root)
    for path in islice(view.covered, CHECKED_FILES if ids else 0):
        with source.open(path) as reader:
            found = pq.read_schema(pa.BufferReader(reader.read_range(0, reader.size)))
        for field in found:
            number = int((field.metadata or {}).get(FIELD_ID, -1))
            if number in ids.values() and not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
                raise UsageError("a key of this type is not exported", column=field.name, found=str(field.type))


def _check_no_avro(view: View, content: LakeContent) -> None:
    """Raise UsageError for an Avro file: its pointers do not count rows, and the positions of the draft do."""
    for path in view.covered:
        if path in content.files and content.files[path].format == "avro":
            what = "the index has no row numbers of an Avro file; rewrite it as Parquet or ORC"
            raise UsageError(what, _location(path, content.locations(), content))


def _leaf_schema(spec: IndexSpec) -> pa.Schema:
    """The columns of leaf files with their field ids. A key column without an id in the table has none here."""
    declared = parse_ddl(spec.schema)
    fields = []
    for column in spec.keys:
        kind = spec.partition_type(column.name) if column.partition else column.type
        record = None if column.partition else record_of(declared.field(column.name))
        arrow = key_type(kind).arrow
        arrow = pa.int32() if pa.types.is_integer(arrow) and arrow.bit_width < 32 else arrow
        number = None if record is None else record.id
        fields.append(pa.field(column.name, arrow, metadata=None if number is None else _id(number)))
    fields.append(pa.field(PATH, pa.string(), nullable=False, metadata=_id(PATH_ID)))
    fields.append(pa.field(POSITION, pa.int64(), nullable=False, metadata=_id(POSITION_ID)))
    return pa.schema(fields)


def _id(number: int) -> dict[bytes, bytes]:
    return {FIELD_ID: str(number).encode()}


# -- leaf files --------------------------------------------------------------------------------------------------------


def _sorted(storage: Storage, view: View, content: LakeContent, buckets: int, within: range) -> pa.Table:
    """The live entries of some buckets in the order of the index: bucket, key columns, path, position. The first column
    is the bucket."""
    spec, locations = view.spec, content.locations()
    paths = sorted(view.covered, key=lambda path: _location(path, locations, content).encode())
    ranks = {path: rank for rank, path in enumerate(paths)}
    schema = _leaf_schema(spec)
    pieces = list(_entries(storage, view, ranks, buckets, within))
    names = [*schema.names[:-2], PATH, POSITION]
    if not pieces:
        types = [pa.int32(), *(field.type for field in schema)]
        return pa.table([pa.array([], kind) for kind in types], names=[BUCKET, *names])
    table = pa.concat_tables(pieces).combine_chunks()
    keys = [(str(i), "ascending", "at_start") for i in range(table.num_columns)]
    numbered = table.rename_columns([str(i) for i in range(table.num_columns)])
    table = table.take(pc.sort_indices(numbered, sort_keys=keys))
    texts = pa.array([_location(path, locations, content) for path in paths], pa.string())
    place = table.num_columns - 2
    named = pa.DictionaryArray.from_arrays(table.column(place).combine_chunks(), texts)
    return table.set_column(place, PATH, named)


def _location(path: str, locations: Mapping[str, str], content: LakeContent) -> str:
    return locations.get(path) or join(content.root, path)


def _entries(storage: Storage, view: View, ranks: Mapping[str, int], buckets: int, within: range) -> Iterator[pa.Table]:
    """Yield the live entries of some buckets: the bucket, the key columns, the rank of the path, the position."""
    spec = view.spec
    known = entry_columns(spec)
    by_source = {column.source: column for column in known if column.part in (KEY, PARTITION)}
    keys = [by_source[column.name] for column in spec.keys]
    pointer = [column for column in known if column.name in (FILENAME, OFFSET) and column.part not in (KEY, PARTITION)]
    partitions = set(view.partitions)
    for segment in view.segments:
        for file in segment.by_bucket.values():
            found = SegmentFile(segment, file)
            for batch in scan_entries(storage, spec, found, [*keys, *pointer], partitions, LookupStats()):
                yield _piece(batch, keys, ranks, buckets, within)


def _piece(
    batch: pa.RecordBatch, keys: Sequence[EntryColumn], ranks: Mapping[str, int], buckets: int, within: range
) -> pa.Table:
    first = batch.column(0)
    hashed = iceberg_hashes(first, keys[0].type) & np.int32(0x7FFFFFFF)
    bucket = hashed.astype(np.int64) % buckets
    kept = pa.array((bucket >= within.start) & (bucket < within.stop) | _null(first, within))
    of_file = batch.column(len(keys)).dictionary_encode()
    rank = np.array([ranks[name] for name in of_file.dictionary.to_pylist()], np.int32)[of_file.indices.to_numpy()]
    shown = pc.if_else(first.is_valid(), pa.array(bucket.astype(np.int32)), pa.scalar(None, pa.int32()))
    columns = [shown, *batch.columns[: len(keys)], pa.array(rank), batch.column(len(keys) + 1)]
    names = [BUCKET, *(column.source for column in keys), PATH, POSITION]
    return pa.table(columns, names=names).filter(kept)


def _null(column: pa.Array, within: range) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Flags of the nulls that belong to these buckets. Nulls have no bucket, and come with bucket 0."""
    nulls: np.ndarray[Any, np.dtype[np.bool_]] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls & (within.start == 0)


def _write_leaf(out: Storage, number: int, entries: pa.Table, schema: pa.Schema) -> _Leaf:
    path = f"data/leaf-{number:05d}.parquet"
    columns = [column.cast(field.type) for column, field in zip(entries.columns[1:], schema, strict=True)]
    rows = pa.table(columns, schema=schema)
    size = _put(out, path, rows)
    bounds = {name: pc.min_max(rows.column(name)).as_py() for name in schema.names}
    stats = {
        "lower_bounds": {name: bound["min"] for name, bound in bounds.items()},
        "upper_bounds": {name: bound["max"] for name, bound in bounds.items()},
        "index_key_upper_bound": {
            "bucket": entries.column(0)[-1].as_py(),
            **{name: rows.column(name)[-1].as_py() for name in schema.names[:-2]},
        },
    }
    return _Leaf(join(out.root, path), rows.num_rows, size, stats)


def _put(out: Storage, path: str, rows: pa.Table) -> int:
    """Write a Parquet file. Returns its bytes."""
    sink = pa.BufferOutputStream()
    note = {name.encode(): value.encode() for name, value in NOTE.items()}
    pq.write_table(rows.replace_schema_metadata(note), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    out.put_new(path, [data])
    return len(data)


# -- the description ---------------------------------------------------------------------------------------------------


def _tracking(leafs: Sequence[_Leaf], schema: pa.Schema, spec: IndexSpec) -> pa.Table:
    """The tracking file: an entry for each leaf, in the order of the index."""
    plain = [pa.field(field.name, field.type) for field in schema]
    key = pa.struct([pa.field("bucket", pa.int32()), *plain[: len(spec.keys)]])
    bounds = pa.struct(plain)
    stats = pa.struct({"lower_bounds": bounds, "upper_bounds": bounds, "index_key_upper_bound": key}.items())
    fields = pa.schema(
        [
            pa.field("location", pa.string(), nullable=False, metadata=_id(100)),
            pa.field("file_format", pa.string(), nullable=False, metadata=_id(101)),
            pa.field("record_count", pa.int64(), nullable=False, metadata=_id(103)),
            pa.field("file_size_in_bytes", pa.int64(), nullable=False, metadata=_id(104)),
            pa.field("content_stats", stats, nullable=False, metadata=_id(146)),
        ]
    )
    columns = [
        [leaf.location for leaf in leafs],
        ["parquet"] * len(leafs),
        [leaf.rows for leaf in leafs],
        [leaf.size for leaf in leafs],
        [leaf.stats for leaf in leafs],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    return pa.table(arrays, schema=fields)


def _described(view: View, out: Storage, tracking: str, schema: pa.Schema, buckets: int) -> dict[str, Any]:
    """The content of the JSON file. A key column without a field id is named, which the draft does not allow."""
    table, spec = view.snapshot.table, view.spec
    assert table is not None
    keys = [
        {"type": "reference", "id": int(field.metadata[FIELD_ID])}
        if field.metadata
        else {"type": "reference", "name": field.name}
        for field in islice(schema, len(spec.keys))
    ]
    fields = [
        {
            **({"id": int(field.metadata[FIELD_ID])} if field.metadata else {}),
            "name": field.name,
            "required": not field.nullable,
            "type": _iceberg_type(spec, field),
        }
        for field in schema
    ]
    pointer = [{"type": "reference", "id": number} for number in (SOURCE_PATH_ID, SOURCE_POSITION_ID)]
    bucket = {"type": "apply", "function": _function("bucket"), "arguments": [buckets, keys[0]]}
    return {
        "format-version": 1,
        "uuid": str(uuid.uuid4()),
        "table-uuid": table.uuid,
        "location": out.root,
        "type": "SCALAR",
        "index-values": {
            "type": "apply",
            "function": _function("struct"),
            "arguments": [*keys, *pointer],
            "result-type": {"type": "struct", "fields": fields},
        },
        "index-keys": {"type": "apply", "function": _function("struct"), "arguments": [bucket, *keys]},
        "properties": {**NOTE, "table": spec.table, "index-snapshot": str(view.snapshot.number)},
        "snapshots": [
            {
                "snapshot-id": 1,
                "source-table-snapshot-id": int(table.version or -1),
                "timestamp-ms": time.time_ns() // 1_000_000,
                "index-data": tracking,
            }
        ],
    }


def _function(name: str) -> dict[str, Any]:
    return {"catalog": "iceberg_functions", "identifier": [name]}


def _iceberg_type(spec: IndexSpec, field: pa.Field) -> str:
    if field.name in (PATH, POSITION) and field.name not in (column.name for column in spec.keys):
        return "string" if field.name == PATH else "long"
    column = next(column for column in spec.keys if column.name == field.name)
    kind = spec.partition_type(column.name) if column.partition else column.type
    return TYPES.get(kind) or f"decimal({field.type.precision}, {field.type.scale})"

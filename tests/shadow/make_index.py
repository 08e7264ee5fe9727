"""A small source and its index, written through the write path of `shadow` without Spark."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.btree.key_types import key_type, source_type
from gnomon.btree.keys import key_array, order_key, stored_values, type_of_arrow
from gnomon.shadow.commit.full_reindex import newest_number, publish_full, spec_on_record
from gnomon.shadow.commit.publishing import Changes, new_segment_id
from gnomon.shadow.errors import FilesGone
from gnomon.shadow.fetch.page_maps import page_maps_path, write_page_maps
from gnomon.shadow.lookup.index_files import write_index_file
from gnomon.shadow.maintenance.compaction import publish_build
from gnomon.shadow.metadata import source_named
from gnomon.shadow.metadata.manifests import IndexFileEntry, PageMapsEntry, SourceFileEntry
from gnomon.shadow.metadata.snapshot_view import newest_view
from gnomon.shadow.metadata.snapshots import Snapshot, put_back
from gnomon.shadow.metadata.source_files import SourceRoot, diff, source_root
from gnomon.shadow.metadata.spec import (
    DEEP,
    IndexSpec,
    KeyColumn,
    PageMapsSetting,
    check_columns,
    most_maps,
)
from gnomon.shadow.storage import FileInfo, Storage, storage_at
from gnomon.shadow.storage.contract import probe
from gnomon.shadow.tables import partition_of, partition_values
from gnomon.sources import SourceFile, open_mapped, open_source


def write_source(root: Path | Storage, tables: Mapping[str, pa.Table], **options: object) -> None:
    """Write Parquet files by their path below the root, in place of existing files."""
    for path, table in tables.items():
        if not isinstance(root, Path):
            out = io.BytesIO()
            pq.write_table(table, out, **options)
            root.delete(path)
            root.put_new(path, [out.getvalue()])
            continue
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target, **options)


def index_source(
    source: Path | SourceRoot,
    index: Path | Storage,
    keys: Sequence[str],
    buckets: int = 4,
    include: Sequence[str] = (),
    flat: bool = False,
    full: bool = False,
    page_maps: PageMapsSetting = False,
    format: str = "parquet",
) -> Snapshot:
    """Build the index of a source, or bring it up to date. Returns the newest snapshot."""
    return Build(source, index, keys, buckets, include, flat, full, page_maps, format).commit()


class Build:
    """A build that has written its index files, and not committed them."""

    def __init__(
        self,
        source: Path | SourceRoot,
        index: Path | Storage,
        keys: Sequence[str],
        buckets: int = 4,
        include: Sequence[str] = (),
        flat: bool = False,
        full: bool = False,
        page_maps: PageMapsSetting = False,
        format: str = "parquet",
    ) -> None:
        self.asked = (source, index, keys, buckets, include, flat, full, page_maps, format)
        root = self.root = source_root(str(source)) if isinstance(source, Path) else source
        self.storage = storage_at(str(index)) if isinstance(index, Path) else index
        self.newest = newest_number(self.storage) if full else None
        self.view = newest_view(self.storage) if self.newest is None else None
        probe(self.storage)
        if self.view is not None:
            put_back(self.storage, self.view.spec)
        files = root.list()
        self.difference = diff(files, self.view.segments if self.view else ())
        partitions = root.partitions(files)
        opened = [(info, _metadata(root, info, format)) for info in self.difference.to_index]
        known = self.view.spec if self.view else spec_on_record(self.storage) if self.newest else None
        spec = known or _spec(root, partitions, opened, keys, buckets, include, flat, format)
        self.spec = replace(spec, page_maps=most_maps(spec.page_maps, page_maps))
        self.segment = new_segment_id()
        self.columns = dict(self.view.snapshot.columns) if self.view else {}
        self.covered: list[SourceFileEntry] = []
        tables = []
        for info, data in opened:
            self.columns |= {field.name: str(field.type) for field in data.schema}
            partition = partition_of(info.path) if partitions else ""
            rows = _rows(root, info, data) if data.rows is None else data.rows
            entry = SourceFileEntry(
                info.path, partition, rows, info.size, info.mtime_ns, data.digest, info.etag, ctime_ns=info.ctime_ns
            )
            self.covered.append(entry)
            tables.append(_entries(root, self.spec, entry, data))
        self.index_files = write_entries(self.storage, self.spec, self.segment, tables) if tables else []
        if self.spec.page_maps and self.covered:
            made = write_maps(root, self.storage, self.segment, self.covered, self.spec.page_maps == DEEP)
            self.covered = [replace(file, page_maps=made[file]) for file in self.covered]

    def commit(self) -> Snapshot:
        """Commit. If a vacuum removed the written files, do the work again, as `gnomon.jobs.build.job` does."""
        try:
            return self._commit()
        except FilesGone:
            return Build(*self.asked)._commit()

    def _commit(self) -> Snapshot:
        if self.newest is not None:
            return publish_full(self.storage, self.spec, self.newest, self.changes, self.segment)
        return publish_build(self.storage, self.spec, self.view, self.changes, self.segment, self.root.list).snapshot

    @property
    def changes(self) -> Changes:
        return Changes("build", self.index_files, self.covered, self.difference.dead, self.columns)

    @property
    def parent(self) -> Snapshot | None:
        return self.view.snapshot if self.view else None


def write_maps(
    root: SourceRoot, index: Storage, segment: str, files: Sequence[SourceFileEntry], deep: bool = False
) -> dict[SourceFileEntry, PageMapsEntry]:
    """Write the page maps of source files into one file of the index."""
    blocks = []
    for file in files:
        with root.storage.open(file.path) as reader:
            blocks.append(open_mapped(reader, "parquet").export_maps(reader, deep))
    return dict(zip(files, write_page_maps(index, page_maps_path(segment, 0), blocks), strict=True))


def _metadata(root: SourceRoot, info: FileInfo, format: str) -> SourceFile:
    with root.storage.open(info.path) as reader:
        return open_source(reader, format)


def _rows(root: SourceRoot, info: FileInfo, data: SourceFile) -> int:
    with root.storage.open(info.path) as reader:
        return sum(batch.num_rows for batch in data.scan(reader, []))


def _spec(
    root: SourceRoot,
    partitions: tuple[str, ...],
    opened: Sequence[tuple[FileInfo, SourceFile]],
    keys: Sequence[str],
    buckets: int,
    include: Sequence[str],
    flat: bool,
    format: str,
) -> IndexSpec:
    fields = [field for _, data in reversed(opened) for field in data.schema if not pa.types.is_null(field.type)]
    known = {f.name: KeyColumn(f.name, str(type_of_arrow(f.type)), source_type=source_type(f.type)) for f in fields}
    columns = [KeyColumn(name, "string", partition=True) if name in partitions else known[name] for name in keys]
    included = tuple(known[name] for name in include)
    of = source_named(root.location, single_file=bool(root.source.file_name))
    spec = IndexSpec(of, format, partitions, tuple(columns), included, buckets, flat)
    check_columns(spec)
    return spec


def _entries(root: SourceRoot, spec: IndexSpec, file: SourceFileEntry, data: SourceFile) -> pa.Table:
    """The entries of one file, after a column with the folder of their index files."""
    columns = (*spec.stored_keys, *spec.include)
    there = [column.name for column in columns if column.name in data.schema.names]
    with root.storage.open(file.path) as reader:
        batches = list(data.scan(reader, there))
    rows = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in [*there, "a", "b", "c"]})
    arrays = [
        key_array(rows.column(there.index(column.name)), column.type, column.name)
        if column.name in there
        else pa.nulls(len(rows), key_type(column.type).arrow)
        for column in columns
    ]
    of_folder = partition_values(file.partition)
    arrays += [pa.array([of_folder[name]] * len(rows), pa.string()) for name in spec.stored_partitions]
    texts = [pa.array([text] * len(rows), pa.string()) for text in (spec.folder_of(file.partition), file.path)]
    numbers = [column.cast(kind) for column, kind in zip(rows.columns[-3:], POINTER_NUMBERS, strict=True)]
    names = [column.name for column in spec.entry_schema.columns]
    return pa.table([texts[0], *arrays, texts[1], *numbers], names=["", *names])


POINTER_NUMBERS = (pa.int64(), pa.int32(), pa.int32())


def write_entries(storage: Storage, spec: IndexSpec, segment: str, tables: Sequence[pa.Table]) -> list[IndexFileEntry]:
    """Sort entries into their index files, and write these."""
    entries = pa.concat_tables(tables)
    stored = [stored_values(entries.column(1 + i), key.type) for i, key in enumerate(spec.stored_keys)]
    keys = list(zip(*stored, strict=True))
    places: dict[tuple[str, int], list[int]] = {}
    for row, (partition, key) in enumerate(zip(entries.column(0).to_pylist(), keys, strict=True)):
        places.setdefault((partition, spec.bucketing.of(key)), []).append(row)
    written = []
    for (partition, bucket), rows in sorted(places.items()):
        rows.sort(key=lambda row: order_key(keys[row]))
        table = entries.drop_columns([""]).take(rows)
        written.append(write_index_file(storage, spec, segment, partition, bucket, [table]))
    return written

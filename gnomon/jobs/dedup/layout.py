"""The layout of new files of a source: format, columns, and the folders of partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored, key_type
from gnomon.jobs.load import source_columns
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.errors import StalePointer
from gnomon.shadow.metadata import IndexSpec, OneFile, SourceFileEntry, source_of
from gnomon.shadow.storage import host, join
from gnomon.shadow.tables import (
    AppendTarget,
    FolderOf,
    Split,
    Table,
    append_target,
    as_partition_value,
    base_of,
    partition_array,
    partition_folders,
    stored_partition,
)
from gnomon.sources import Style, open_writer, style_of, table_style
from gnomon.sources.types import parse_ddl

FILE_BYTES = 128 << 20  # approximate size of a data file, and of its rows in a task's memory


@dataclass(frozen=True)
class Layout:
    """`root` is the root of the source, `style` the style of its newest file, `columns` the columns of its files with
    their types in reads, `options` the options of reads. `folders` has the folder of each partition by its values in
    stored form, relative to the root or absolute; new folders are made below `base`. A file has about `file_bytes`.

    In a lake table, whose name is `table`, `folder_of` is the folder of a partition's files, some partition columns lie
    `in_files`, too, and `split` says which rows of a partition share a file."""

    @cached_property
    def written(self) -> pa.Schema:
        """The columns of a new file."""
        kinds = [pa.field(name, key_type(self.types[name]).arrow) for name in self.in_files]
        return pa.schema([*self.columns, *kinds])

    def in_file(self, rows: pa.RecordBatch, texts: Sequence[str | None]) -> pa.RecordBatch:
        """Rows of one partition, with the columns of a new file."""
        values = dict(zip(self.partitions, texts, strict=True))
        arrays = [
            partition_array(as_partition_value(values[name], self.types[name], name), self.types[name], rows.num_rows)
            for name in self.in_files
        ]
        return pa.RecordBatch.from_arrays([*rows.columns, *arrays], [*rows.schema.names, *self.in_files])

    root: str
    format: str
    style: Style
    options: Mapping[str, str]
    columns: pa.Schema
    partitions: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[tuple[Stored, ...], str] = field(default_factory=dict)
    base: str = ""
    file_bytes: int = FILE_BYTES
    in_files: tuple[str, ...] = ()
    folder_of: FolderOf | None = None
    split: Split | None = None
    table: str = ""

    def place_of(self, texts: Sequence[str | None]) -> tuple[str, str]:
        """The partition with these values, as folder names, and the folder of its files. UsageError for a partition
        that cannot exist."""
        named = dict(zip(self.partitions, texts, strict=True))
        values = tuple(as_partition_value(text, self.types.get(name, "string"), name) for name, text in named.items())
        partition = partition_folders({name: text or "" for name, text in named.items()})
        if self.folder_of is not None:
            return partition, self.folder_of({name: text or None for name, text in named.items()})
        if values in self.folders:
            return partition, self.folders[values]
        folder = "/".join(filter(None, [self.base, partition]))
        if "\0" in folder or folder in self.folders.values():
            what = "a NUL is in its name" if "\0" in folder else "another partition lies in its folder"
            raise UsageError(f"batch: there cannot be a partition {partition!r}: {what}; nothing was appended")
        return partition, folder


def layout_of(opened: OpenIndex, table: Table | None, batch: pa.Schema) -> Layout:
    """The layout of an index's source. `table` is its catalog table, if any; `batch` has the columns of the rows, which
    become the source's if it has no files. UsageError for a source that rows cannot be appended to, UnsupportedFormat
    where Gnomon cannot write files of its format."""
    spec, covered = opened.spec, opened.view.covered
    names = [name for name in opened.view.columns if name not in spec.partitions]
    newest = max(covered.values(), key=lambda file: (file.mtime_ns, file.path), default=None)
    columns = source_columns(opened, names)
    if newest is None:
        style = style_of(None, spec.format, spec.read_options)
        columns = columns if spec.is_of_table else _some(batch, names)
    else:
        root = source_of(spec).storage
        try:
            with root.open(newest.path, known=newest.info) as reader:
                style = style_of(reader, spec.format, spec.read_options)
        except (FileNotFoundError, NotADirectoryError):
            what = "the newest file of the source vanished; nothing was appended"
            raise StalePointer(what, join(root.root, newest.path), action=Action.RUN_AGAIN) from None
    folders = _folders(spec, table.folders if table is not None else _places(covered))
    bases = {base_of(path) for path in covered} if table is None and spec.partitions else set()
    return _checked(spec, style, columns, folders, next(iter(bases), ""))


def layout_of_lake(spec: IndexSpec, target: AppendTarget) -> Layout:
    """The layout of new files of a lake table."""
    style = table_style(target.fields, target.codec)
    layout = Layout(
        spec.source.location,
        spec.format,
        style,
        spec.read_options,
        parse_ddl(spec.schema),
        spec.partitions,
        spec.partition_types,
        file_bytes=FILE_BYTES,
        in_files=tuple(name for name in spec.partitions if name in target.fields.names),
        folder_of=target.folder_of,
        split=target.split,
        table=spec.source.table,
    )
    open_writer(style, layout.written, spec.source.location)  # raises UnsupportedFormat, as in `_checked`
    return layout


def keys_layout(spec: IndexSpec) -> Layout:
    """The layout for a change that writes no data file."""
    style = style_of(None, "parquet", {})
    return Layout(spec.source.location, spec.format, style, spec.read_options, pa.schema([]), table=spec.source.table)


def first_layout(spec: IndexSpec, batch: pa.Schema) -> Layout:
    """The layout of a source without files and without an index."""
    columns = _some(batch, [name for name in batch.names if name not in spec.partitions])
    return _checked(spec, style_of(None, spec.format, spec.read_options), columns, {}, "")


def _checked(
    spec: IndexSpec, style: Style, columns: pa.Schema, folders: Mapping[tuple[Stored, ...], str], base: str
) -> Layout:
    location = spec.source.location
    open_writer(style, columns, location)  # raises UnsupportedFormat for columns that it cannot write
    if elsewhere := [one for one in folders.values() if host(join(location, one)) != host(location)]:
        raise UsageError(f"{elsewhere[0]} lies on another store than {location}; move it there", spec.source.name)
    of_source = (location, spec.format, style, spec.read_options, columns)
    of_partitions = (spec.partitions, spec.partition_types, folders, base)
    return Layout(*of_source, *of_partitions, FILE_BYTES)


def check_appendable(index: str, spec: IndexSpec) -> None:
    """Raise UsageError for a source that rows cannot be appended to."""
    spec.entries.check_source("a key-value folder, which has no source to append to; expected an index", index)
    if isinstance(spec.source, OneFile):
        raise UsageError("a source of one file cannot be appended to; dedup needs a folder", spec.source.location)
    if spec.is_of_lake:
        append_target(spec.source.name, spec.partition_types)


def _some(batch: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns of a batch with these names."""
    return pa.schema([batch.field(name) for name in names if name in batch.names])


def _places(covered: Mapping[str, SourceFileEntry]) -> dict[str, str]:
    """The folders of partitions, by the partitions' names."""
    places: dict[str, str] = {}
    for path, file in covered.items():
        if file.partition:
            places.setdefault(file.partition, path.partition(file.partition)[0] + file.partition)
    return places


def _folders(spec: IndexSpec, places: Mapping[str, str]) -> dict[tuple[Stored, ...], str]:
    found: dict[tuple[Stored, ...], str] = {}
    for partition, folder in places.items():
        values = stored_partition(partition, spec.partition_types)
        found[tuple(values[name] for name in spec.partitions)] = folder
    return found

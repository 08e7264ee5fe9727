"""Rows at pointers, from the files that an index covers or from any files with whole names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.key_types import key_type
from gnomon.shadow.current_snapshot import CurrentSnapshot
from gnomon.shadow.errors import FileChanged, StalePointer
from gnomon.shadow.fetch import FetchReads
from gnomon.shadow.metadata import SourceFileEntry, source_of
from gnomon.shadow.storage import FileInfo, OpenFile, below, is_absolute, join, split, storage_at
from gnomon.sources import Numbers, Options, SourceFile, open_source, row_table
from gnomon.sources.pointers import POINTER_FIELDS

FILE_URL = "file:"
BY_ROW_GROUP = "parquet"  # the format for which Dione's pointers differ from Gnomon's


class RowsOfFiles(Protocol):
    """Reads rows of files. `path` is the name of a file in pointers; StalePointer where there is no such file or it is
    not the expected one. `format` is the format of all files; `key_types` are the Arrow types of the keys with which
    rows are compared."""

    @property
    def format(self) -> str: ...

    @property
    def key_types(self) -> Mapping[str, pa.DataType]: ...

    def location(self, path: str) -> str:
        """The whole name of a file."""

    def read(
        self, path: str, pointers: Numbers, keys: Mapping[str, pa.Array], columns: Sequence[str], stats: FetchReads
    ) -> pa.Table:
        """A row for each of `pointers` (offset and sub-offset), with the columns in the requested order. `keys` has the
        key that each row must hold, by column; columns missing there are not compared."""

    def units(self, path: str, offsets: Numbers, stats: FetchReads) -> Numbers:
        """The units in which rows are best read: `SourceFile.units`."""

    def check_file(self, path: str) -> None:
        """Raise SourceError where no row of a file can be read."""

    def row_bytes(self, path: str) -> int:
        """Mean bytes of a row of a file."""

    def from_dione(self, path: str, pointers: Numbers) -> Numbers:
        """Dione's pointers as pointers of Gnomon. The offset is NO_ROW for a pointer that leads to no row."""


class IndexedFiles:
    """The files that the current snapshot of an index covers, by the names of its pointers, or by whole names."""

    def __init__(self, current: CurrentSnapshot) -> None:
        self._current = current

    @property
    def format(self) -> str:
        return self._current.state.view.spec.format

    @property
    def key_types(self) -> Mapping[str, pa.DataType]:
        return {key.name: key_type(key.type).arrow for key in self._current.state.view.spec.stored_keys}

    def location(self, path: str) -> str:
        return join(source_of(self._current.state.view.spec).storage.root, path)

    def read(
        self, path: str, pointers: Numbers, keys: Mapping[str, pa.Array], columns: Sequence[str], stats: FetchReads
    ) -> pa.Table:
        return self._current.state.required_fetcher().table(self._file(path), pointers, keys, columns, stats)

    def scan(self, path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows of a file that the table has not deleted, with these columns, in the order of the file."""
        file, state = self._file(path), self._current.state
        fetcher = state.required_fetcher()
        covering = [one for one in state.view.segments if file.path in one.live]
        masks = [one.masks[file.path] for one in covering if file.path in one.masks]
        for batch in fetcher.scan(file, columns):
            values, offsets = batch.columns[: -len(POINTER_FIELDS)], batch.columns[-len(POINTER_FIELDS)]
            table = pa.Table.from_arrays(values, names=batch.schema.names[: len(values)])
            whole = fetcher.complete(table if values else pa.table({"": offsets}), file.partition, columns)
            for mask in masks:
                whole = whole.filter(pa.array(~mask.holds_each(offsets.to_numpy())))
            yield whole

    def units(self, path: str, offsets: Numbers, stats: FetchReads) -> Numbers:
        return self._current.state.required_fetcher().units(self._file(path), offsets, stats)

    def check_file(self, path: str) -> None:
        self._current.state.required_fetcher().files.check_file(self._file(path))

    def row_bytes(self, path: str) -> int:
        file = self._file(path)
        return max(1, file.size // max(file.rows, 1))

    def from_dione(self, path: str, pointers: Numbers) -> Numbers:
        with self._current.state.required_fetcher().files.opened(self._file(path), FetchReads()) as (reader, _):
            return _from_dione(reader, self.format, pointers)

    def _file(self, path: str) -> SourceFileEntry:
        state = self._current.state
        if path not in state.view.covered and (is_absolute(path) or path.startswith(FILE_URL)):
            path = below(source_of(state.view.spec).storage.root, storage_at(path).root)
        return state.covered(path)


class NamedFiles:
    """Files of one format by their whole names. StalePointer where a file changes while its rows are read. The metadata
    of the open file is kept, since its rows are read in several portions."""

    key_types: Mapping[str, pa.DataType] = {}

    def __init__(self, format: str, options: Options | None = None) -> None:
        self.format = format
        self._options = options or {}
        self._name = ""  # of the file that was opened most recently
        self._file: SourceFile
        self._info: FileInfo

    def location(self, path: str) -> str:
        return storage_at(path).root

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file."""
        with self._opened(path) as (_, file):
            return file.schema

    def read(
        self, path: str, pointers: Numbers, keys: Mapping[str, pa.Array], columns: Sequence[str], stats: FetchReads
    ) -> pa.Table:
        """`keys` must be empty."""
        with self._opened(path, stats) as (reader, file):
            there = [name for name in columns if name in file.schema.names]
            table = file.fetch(reader, pointers, there)
        arrays = [table.column(name) if name in there else pa.nulls(len(pointers)) for name in columns]
        return pa.Table.from_arrays(arrays, names=list(columns))

    def units(self, path: str, offsets: Numbers, stats: FetchReads) -> Numbers:
        with self._opened(path, stats) as (_, file):
            return file.units(offsets)

    def check_file(self, path: str) -> None:
        with self._opened(path):
            pass

    def row_bytes(self, path: str) -> int:
        if path != self._name:
            self.check_file(path)
        return self._file.row_bytes

    def from_dione(self, path: str, pointers: Numbers) -> Numbers:
        with self._opened(path) as (reader, _):
            return _from_dione(reader, self.format, pointers)

    @contextmanager
    def _opened(self, path: str, stats: FetchReads | None = None) -> Iterator[tuple[OpenFile, SourceFile]]:
        known = self._info if path == self._name else None
        with named_file(path, stats, known) as reader:
            if known is None:
                self._file = open_source(reader, self.format, self._options)
                name = split(self.location(path))[1]
                self._info = FileInfo(name, reader.size, reader.mtime_ns, reader.etag, reader.ctime_ns, reader.inode)
                self._name = path
            yield reader, self._file


@contextmanager
def named_file(path: str, stats: FetchReads | None = None, known: FileInfo | None = None) -> Iterator[OpenFile]:
    """Open a file by its whole name. StalePointer where the file does not exist, or is not the `known` one."""
    root, name = split(storage_at(path).root)
    try:
        with storage_at(root).open(name, stats, known) as reader:
            yield reader
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise StalePointer("there is no such file", path, action=Action.FRESH_POINTERS) from None
    except FileChanged as error:
        what = f"the file changed while it was read ({error.how})"
        raise StalePointer(what, path, action=Action.FRESH_POINTERS) from None


def _from_dione(reader: OpenFile, format: str, pointers: Numbers) -> Numbers:
    """Dione's pointers as pointers of Gnomon. Only pointers to Parquet rows differ."""
    if format != BY_ROW_GROUP:
        return pointers
    ordinals = row_table(open_source(reader, format, {}), reader).ordinals(pointers[:, 0], pointers[:, 1])
    return np.stack([ordinals, np.zeros_like(ordinals)], axis=1)

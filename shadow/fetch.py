"""Pointers to rows: only from files that are still what was indexed, and only rows that hold the key asked for.

A partition column's value is that of the folder, as text, also where the files have a column of that name (Spark does
so, too); a column that a file does not have is null in its rows."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from btree.errors import BTreeError
from btree.keys import Key, Stored, key_array, stored_values
from shadow.caches import ByteCache
from shadow.errors import FileChanged, StalePointer
from shadow.fingerprint import difference
from shadow.lookup import Hit
from shadow.page_maps import damaged, read_page_maps
from shadow.partitions import partition_values
from shadow.segments import SourceFileEntry
from shadow.spec import IndexSpec, KeyColumn
from shadow.storage import OpenFile, ReadStats, Storage
from shadow.values import python_values
from sources import DamagedMaps, SourceFile, open_mapped, open_source

REINDEX = "run gnomon build again"
TOUCH = "its size and time are the same, so touch it and run gnomon build again"


@dataclass(frozen=True)
class Located:
    """A row to read: where it lies, and the key it must hold (in stored form)."""

    hit: Hit
    key: Key


@dataclass
class FetchReads(ReadStats):
    """Reads of source files; `page_maps` are those of their recorded page maps, which lie in the index."""

    page_maps: ReadStats = field(default_factory=ReadStats)


class Fetcher:
    """Reads rows of one source. Parsed file metadata is kept in a cache bounded by bytes; files are opened for each
    fetch, so that a changed one is noticed. Recorded page maps are read from `index`; without it they are not used."""

    def __init__(self, storage: Storage, spec: IndexSpec, cache_bytes: int, index: Storage | None = None) -> None:
        self._storage = storage
        self._spec = spec
        self._index = index
        self._sources: ByteCache[SourceFile] = ByteCache(cache_bytes)

    def rows(self, wanted: Sequence[Located], columns: Sequence[str], stats: FetchReads) -> list[dict[str, Any]]:
        """The rows, one for each of `wanted` and in its order; each file is opened once."""
        by_file: dict[SourceFileEntry, list[int]] = {}
        for place, located in enumerate(wanted):
            by_file.setdefault(located.hit.file, []).append(place)
        answer: list[dict[str, Any]] = [{} for _ in wanted]
        for file, places in by_file.items():
            table = self._checked(file, [wanted[place] for place in places], columns, stats)
            there, of_folder = table.column_names, partition_values(file.partition)
            for name in columns:
                if name in self._spec.partitions or name not in there:
                    values: list[Any] = [of_folder.get(name)] * len(places)
                else:
                    values = python_values(table.column(name))
                for place, value in zip(places, values, strict=True):
                    answer[place][name] = value
        return answer

    def table(
        self, file: SourceFileEntry, wanted: Sequence[Located], columns: Sequence[str], stats: FetchReads
    ) -> pa.Table:
        """The rows that lie in one file, one for each of `wanted`, with the columns in the order asked."""
        return self._complete(self._checked(file, wanted, columns, stats), file.partition, columns, len(wanted))

    def _checked(
        self, file: SourceFileEntry, wanted: Sequence[Located], columns: Sequence[str], stats: FetchReads
    ) -> pa.Table:
        """Rows of one file with the columns that it has, and with its keys, which were compared."""
        with self._open(file, stats) as reader, self._source(file, reader, stats) as source:
            keys = [key.name for key in self._spec.stored_keys]
            there = set(source.schema.names) - set(self._spec.partitions)
            needed = [name for name in dict.fromkeys([*columns, *keys]) if name in there]
            pointers = [(one.hit.pointer.data_offset, one.hit.pointer.data_sub_offset) for one in wanted]
            table = source.fetch(reader, pointers, needed)
            if not needed:
                self._look(file)  # nothing was read that could have shown a change
        self._check_keys(table, wanted, reader.name)
        return table

    def metadata(self, file: SourceFileEntry) -> SourceFile:
        """What a source file says of itself."""
        stats = FetchReads()
        with self._open(file, stats) as reader, self._source(file, reader, stats) as source:
            return source

    def has_maps(self, file: SourceFileEntry, maps: bytes) -> bool:
        """Whether recorded page maps of a source file are those that it gives now."""
        with self._open(file, FetchReads()) as reader:
            found = open_mapped(reader, self._spec.format, self._spec.read_options)
            if found.digest != file.digest:
                raise StalePointer(f"the file is not the one that was indexed; {TOUCH}", reader.name)
            return found.has_maps(reader, maps)

    def scan(self, file: SourceFileEntry, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a source file: those of the columns that it has, then offset, sub-offset and size."""
        stats = FetchReads()
        with self._open(file, stats) as reader, self._source(file, reader, stats) as source:
            there = set(source.schema.names) - set(self._spec.partitions)
            yield from source.scan(reader, [name for name in columns if name in there])

    @contextmanager
    def _open(self, file: SourceFileEntry, stats: ReadStats) -> Iterator[OpenFile]:
        """A source file, open as long as it is the one that was indexed: at the first sign that it is not, in here or
        where it is read, StalePointer."""
        where = f"{self._storage.root}/{file.path}"
        try:
            with self._storage.open(file.path, stats, file.info) as reader:
                yield reader
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise StalePointer(f"the file is gone since it was indexed; {REINDEX}", where) from None
        except FileChanged as error:
            raise StalePointer(f"the file changed since it was indexed ({error.how}); {REINDEX}", where) from None

    def _look(self, file: SourceFileEntry) -> None:
        """Ask the store for a file. FileChanged, FileNotFoundError where it is not the one that was indexed."""
        with self._storage.open(file.path) as found:
            if how := difference(file, found):
                raise FileChanged(found.name, how, found.size)

    @contextmanager
    def _source(self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads) -> Iterator[SourceFile]:
        """The file, its metadata read. Metadata of another digest is of another file: size and time may be forged."""
        key = (*file.info, file.digest)
        with self._sources.use(key, lambda: self._opened(file, reader, stats)) as source:
            if source.digest != file.digest:
                raise StalePointer(f"the file is not the one that was indexed; {TOUCH}", reader.name)
            yield source

    def _opened(self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads) -> SourceFile:
        """The file's metadata, and at the same time its page maps where they were recorded."""
        index, entry, options = self._index, file.page_maps, self._spec.read_options
        if index is None or entry is None:
            return open_source(reader, self._spec.format, options)
        with ThreadPoolExecutor(1) as pool:
            maps = pool.submit(read_page_maps, index, entry, stats.page_maps)
            try:
                return open_mapped(reader, self._spec.format, options, maps.result)
            except DamagedMaps as error:
                found = open_source(reader, self._spec.format, options)
                if found.digest == file.digest:
                    raise damaged(index, entry, error) from None
                return found  # another file than the one indexed, which is the answer

    def _check_keys(self, table: pa.Table, wanted: Sequence[Located], where: str) -> None:
        """Compare the keys of the rows that were read with the keys asked for, both in stored form."""
        for i, key in enumerate(self._spec.stored_keys):
            if key.name in table.column_names:
                found = _stored(table.column(key.name), key, where)
            else:
                found = [None] * len(wanted)  # the file lacks the column: every row holds a null there
            for value, located in zip(found, wanted, strict=True):
                expected = located.key[i]
                if value != expected and (value == value or expected == expected):  # NaN is one value
                    raise StalePointer(
                        f"row {located.hit.pointer.data_offset} does not hold the key it was indexed under; {REINDEX}",
                        where,
                    )

    def _complete(self, table: pa.Table, partition: str, columns: Sequence[str], rows: int) -> pa.Table:
        """Add partition columns, as text, and nulls for columns that the file does not have."""
        values: Mapping[str, str | None] = partition_values(partition)
        arrays = []
        for name in columns:
            if name in self._spec.partitions:
                arrays.append(pa.array([values.get(name)] * rows, pa.string()))
            elif name in table.column_names:
                arrays.append(table.column(name))
            else:
                arrays.append(pa.nulls(rows))
        return pa.Table.from_arrays(arrays, names=list(columns))


def _stored(array: pa.ChunkedArray, key: KeyColumn, where: str) -> list[Stored]:
    try:
        return stored_values(key_array(array, key.type, key.name), key.type)
    except (BTreeError, ValueError) as error:  # another type, or text that is not UTF-8
        raise StalePointer(f"the key is not the {key.type} that was indexed ({error}); {REINDEX}", where) from None

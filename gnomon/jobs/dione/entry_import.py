"""The entries of an index of Dione as entries of Gnomon: pointers are translated, and compared with the source."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import BTreeError, BTreeReader
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key, key_array, stored_values
from gnomon.jobs.dione.dione_index import WHILE_READ, DioneFile, DioneIndex
from gnomon.jobs.files import Described, listed
from gnomon.shadow.errors import SourceError, StalePointer, StorageError, UsageError
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import join, storage_at
from gnomon.shadow.tables import partition_values
from gnomon.shadow.verify import entry_hashes
from gnomon.shadow.write import Entries, stored_columns
from gnomon.sources import NO_ROW, POINTER_COLUMNS, Pointer, RowTable, open_source, row_table

SAMPLES = 8  # entries of a source file whose rows are read
CACHE_BYTES = 64 << 20  # for metadata of source files
HASHES = 1 << 64
UNKNOWN = -1  # the number of a source file that is not to be indexed

Numbers = npt.NDArray[np.int32]  # of source files


class LeftOut(NamedTuple):
    """A source file whose entries were not imported, and why."""

    path: str
    reason: str


@dataclass
class _Tally:
    """The entries of one source file that were read so far."""

    rows: RowTable
    seen: npt.NDArray[np.bool_]  # by row
    entries: int = 0
    dangling: int = 0  # entries that lead to no row
    hashes: int = 0  # sum of the hashes of compared entries
    sample: list[tuple[Key, Pointer]] = field(default_factory=list)


class EntryImport:
    """Reads the entries of some source files. After `entries` is exhausted, `described` has the files with their
    numbers of rows, and `left_out` has the numbers of the files that failed a check, with the reason.

    `compare_all` compares all entries with a scan of the indexed columns, also of files that are older than the index.
    `moved` maps folders as the index names them to the folders where their files lie now."""

    def __init__(
        self,
        index: DioneIndex,
        root: SourceRoot,
        spec: IndexSpec,
        described: Sequence[Described],
        compare_all: bool,
        moved: Mapping[str, str],
    ) -> None:
        self._index = index
        self._root = root
        self._spec = spec
        self._compare_all = compare_all
        self._moved = sorted(((_plain(old), new) for old, new in moved.items()), reverse=True)  # longest first
        self._fetcher = Fetcher(root.storage, spec, CACHE_BYTES)
        self.described = list(described)
        self._numbers = {join(root.storage.root, one.entry.path): i for i, one in enumerate(described)}
        self._known: dict[str, int] = {}  # numbers by names as Dione writes them
        self._tallies: dict[int, _Tally] = {}
        self._verified: set[int] = set()
        self.left_out: dict[int, str] = {}

    def entries(self) -> Iterator[Entries]:
        """The entries of the files, partition by partition."""
        asked = [partition_values(one.entry.partition) for one in self.described]
        for values, files in self._index.files:
            of_partition = [i for i, one in enumerate(asked) if one == values]
            if files and (of_partition or any(one.keys() != values.keys() for one in asked)):
                yield from self._of_partition(of_partition, files)
        self._check_names()
        for number, one in enumerate(self.described):
            if number in self._verified or number in self.left_out:
                continue
            if one.is_counted and not one.entry.rows:
                self._verified.add(number)
            else:
                self.left_out[number] = "the index of Dione's has no entries of it"

    def _check_names(self) -> None:
        """Raise UsageError where no file that the index names is a file of the source."""
        if not self._known or any(number != UNKNOWN for number in self._known.values()):
            return
        there = {join(self._root.storage.root, info.path) for info in self._root.list()}
        if not any(self._place(name) in there for name in self._known):
            raise UsageError(
                f"no file that it names is a file of the source; it names {next(iter(self._known))}; if the files were "
                "moved, say so (--moved OLD=NEW)",
                self._index.name,
                expected=f"files of {self._root.name}",
            )

    def _of_partition(self, of_partition: Sequence[int], files: Sequence[DioneFile]) -> Iterator[Entries]:
        """Yield the entries in the index files of one partition. They should lead to the source files
        `of_partition`."""
        written = min(file.info.mtime_ns for file in files)
        try:
            for file in files:
                for batch in self._batches(file):
                    yield from self._translated(batch, written)
        except BTreeError as error:
            self._leave_out({*of_partition, *self._tallies}, f"a file of the index is damaged: {error}")
        except StalePointer as error:
            self._leave_out({*of_partition, *self._tallies}, str(error))
        for number, tally in self._tallies.items():
            self._check_file(number, tally, written)
        self._tallies.clear()

    def _leave_out(self, numbers: Collection[int], reason: str) -> None:
        self.left_out.update(dict.fromkeys(numbers, reason))
        self._tallies.clear()

    def _batches(self, file: DioneFile) -> Iterator[pa.RecordBatch]:
        """The entries of a file: key and included columns in the types of the spec, then the pointers."""
        columns = (*self._spec.stored_keys, *self._spec.include)
        with listed(file.storage, file.info, WHILE_READ) as reader:
            tree = BTreeReader(reader)
            there = [column.name for column in tree.schema.columns]
            missing = [column.name for column in columns if column.name not in there]
            if missing:
                raise UsageError(f"no column {', '.join(missing)}; it has {', '.join(there)}", file.name)
            for batch in tree.scan_batches([*(column.name for column in columns), *POINTER_COLUMNS]):
                try:
                    arrays = [key_array(batch.column(i), one.type, one.name) for i, one in enumerate(columns)]
                except BTreeError as error:
                    raise UsageError(
                        f"Dione wrote {error.found or 'values'} where the source has {error.expected}; a column of "
                        "another type cannot be taken over: name the more fields to keep (--include), or build anew",
                        file.name,
                        column=error.column,
                    ) from None
                names = [one.name for one in columns] + list(POINTER_COLUMNS)
                yield pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(columns) :]], names=names)

    def _translated(self, batch: pa.RecordBatch, written: int) -> Iterator[Entries]:
        """The entries of a batch that lead to rows of files to be indexed."""
        width = len(POINTER_COLUMNS)
        names, offsets, sub_offsets, _ = batch.columns[-width:]
        numbers = self._files_of(names)
        wanted = np.flatnonzero(numbers != UNKNOWN)
        if len(wanted) < len(numbers):
            batch, numbers = batch.take(pa.array(wanted)), numbers[wanted]
            offsets, sub_offsets = batch.columns[-width + 1 : -1]
        if not len(numbers):
            return
        ordinals = np.full(len(numbers), NO_ROW, np.int64)
        ours = [np.zeros(len(numbers), np.int64) for _ in range(3)]
        theirs = [column.fill_null(NO_ROW).to_numpy().astype(np.int64) for column in (offsets, sub_offsets)]
        order = np.argsort(numbers, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            tally = self._tally(int(numbers[places[0]]))
            if tally is None:
                continue
            found = tally.rows.ordinals(theirs[0][places], theirs[1][places])
            there = found != NO_ROW
            tally.entries += len(places)
            tally.dangling += int((~there).sum())
            tally.seen[found[there]] = True
            ordinals[places] = found
            for column, values in zip(ours, tally.rows.pointers(found[there]), strict=True):
                column[places[there]] = values
        leads = np.flatnonzero(ordinals != NO_ROW)
        if not len(leads):
            return
        batch, numbers = batch.take(pa.array(leads)), numbers[leads]
        types = (pa.int64(), pa.int32(), pa.int32())
        pointers = [pa.array(column[leads], kind) for column, kind in zip(ours, types, strict=True)]
        columns = [*batch.columns[:-width], *pointers]
        self._sample(columns, numbers)
        self._add_hashes(columns, numbers, written)
        yield Entries(columns, numbers)

    def _files_of(self, names: pa.Array) -> Numbers:
        """The number of the source file that each entry names; UNKNOWN for one that is not to be indexed."""
        coded = names.dictionary_encode(null_encoding="encode")
        numbers = [self._number_of(name) for name in coded.dictionary.to_pylist()]
        found: Numbers = np.array(numbers, np.int32)[coded.indices.to_numpy()]
        return found

    def _number_of(self, name: str | None) -> int:
        if name is None:
            return UNKNOWN
        if name not in self._known:
            self._known[name] = self._numbers.get(self._place(name), UNKNOWN)
        number = self._known[name]
        if number in self._verified:
            self._verified.remove(number)
            self.left_out[number] = "its entries lie in several partitions of the index"
        return UNKNOWN if number in self.left_out else number

    def _place(self, name: str) -> str:
        """The location of a file that the index names."""
        plain = _plain(name)
        for old, new in self._moved:
            if plain.startswith(f"{old}/"):
                return join(storage_at(new).root, plain.removeprefix(f"{old}/"))
        try:
            return storage_at(name).root
        except (StorageError, UsageError):  # a store that Gnomon does not know
            return name

    def _tally(self, number: int) -> _Tally | None:
        """The tally of a file, which is opened for it. None for a file that is left out."""
        if number in self._tallies:
            return self._tallies[number]
        if number in self.left_out:
            return None
        entry = self.described[number].entry
        try:
            with listed(self._root.storage, entry.info) as reader:
                rows = row_table(open_source(reader, self._spec.format, {}), reader)
        except SourceError as error:
            self.left_out[number] = str(error)
            return None
        self._tallies[number] = tally = _Tally(rows, np.zeros(rows.rows, np.bool_))
        self.described[number] = replace(self.described[number], entry=replace(entry, rows=rows.rows), is_counted=True)
        return tally

    # -- checks ------------------------------------------------------------------------------------------------------

    def _is_compared(self, number: int, written: int) -> bool:
        """Whether to compare all entries of a file with its rows: if the caller asks for it, or if the file was
        written after the index."""
        return self._compare_all or self.described[number].entry.mtime_ns > written

    def _sample(self, columns: Sequence[pa.Array], numbers: Numbers) -> None:
        """Keep one entry of each file in a batch."""
        keys = self._spec.stored_keys
        for number, row in zip(*np.unique(numbers, return_index=True), strict=True):
            tally = self._tallies[int(number)]
            if len(tally.sample) >= SAMPLES:
                continue
            one = [column.slice(int(row), 1) for column in columns]
            key: tuple[Stored, ...] = tuple(
                stored_values(value, column.type)[0] for value, column in zip(one, keys, strict=False)
            )
            place = [value[0].as_py() for value in one[-3:]]
            tally.sample.append((key, Pointer(self.described[int(number)].entry.path, *place)))

    def _add_hashes(self, columns: Sequence[pa.Array], numbers: Numbers, written: int) -> None:
        compared = [number for number in np.unique(numbers).tolist() if self._is_compared(number, written)]
        if not compared:
            return
        hashes = self._hashes(columns)
        for number in compared:
            tally = self._tallies[number]
            tally.hashes = (tally.hashes + int(hashes[numbers == number].sum())) % HASHES

    def _hashes(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
        types = [column.type for column in (*self._spec.stored_keys, *self._spec.include)]
        return entry_hashes(columns[:-3], types, columns[-3], columns[-2])

    def _check_file(self, number: int, tally: _Tally, written: int) -> None:
        """Compare the entries of a file with its rows, and record whether they are right."""
        reason = self._fault(number, tally, written)
        if reason:
            self.left_out[number] = reason
        else:
            self._verified.add(number)

    def _fault(self, number: int, tally: _Tally, written: int) -> str:
        rows, entry = tally.rows.rows, self.described[number].entry
        held = int(tally.seen.sum())
        if tally.dangling:
            return f"{tally.dangling:,} entries of {tally.entries:,} lead to no row: the file was rewritten"
        if held < rows:
            return f"{held:,} of its {rows:,} rows have entries"
        if tally.entries > rows:
            return f"{tally.entries:,} entries for its {rows:,} rows: it is indexed twice"
        try:
            for key, pointer in tally.sample:
                self._fetcher.check(entry, pointer, key)
            if self._is_compared(number, written) and self._scanned(number) != tally.hashes:
                return "its rows do not have the keys of their entries: the file was rewritten"
        except SourceError as error:
            return str(error)
        return ""

    def _scanned(self, number: int) -> int:
        """The sum of the hashes of all rows of a source file."""
        entry, total = self.described[number].entry, 0
        names = [column.name for column in (*self._spec.stored_keys, *self._spec.include)]
        where = join(self._root.storage.root, entry.path)
        for columns in stored_columns(self._spec, self._fetcher.scan(entry, names), where):
            total = (total + int(self._hashes(columns).sum())) % HASHES
        return total


def _plain(location: str) -> str:
    """A location as a text to compare: local ones without their scheme, none with a slash at its end."""
    local = location.removeprefix("file:")
    return (f"/{local.lstrip('/')}" if local != location else location).rstrip("/")

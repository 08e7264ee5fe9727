"""The files of an export, written as Dione's job writes them, and their folder, which has a record of the files of each
partition. One export at a time may write to it.

A record is a numbered file: `_gnomon-export.1.json`. An export writes a record when it begins, in which the partitions
that it changes have no files, and another record when it ends. Each record has the next number. Records are put
create-only, so one of two concurrent exports finds that its record is not the newest. It removes its own files and
fails. An export removes files by name, and so never removes a file of the other export.
"""

import json
import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter, dione_hashes
from gnomon.btree.schema import EntrySchema
from gnomon.jobs.dione.dione_index import SUFFIX
from gnomon.jobs.files import listed
from gnomon.shadow.errors import AlreadyExists, BuildFailed, ConcurrentCommit, UsageError
from gnomon.shadow.lookup import KEY, PARTITION, EntryColumn, entry_columns, scan_entries
from gnomon.shadow.metadata import SegmentFile, View, source_of
from gnomon.shadow.storage import STAGED, Storage, is_local, join
from gnomon.shadow.write import GROUP, MEMORY_BYTES, EntrySorter
from gnomon.sources import POINTER_COLUMNS, RowTable, open_source, row_table

PREFIX, JSON = "_gnomon-export.", ".json"  # engines skip names that begin with an underscore
KEPT = 20  # records: an export that began before a removed record could write its number again


class Partition(NamedTuple):
    """The files of a partition, by name. `digest` changes with its source files; "" is that of no files."""

    digest: str
    files: list[str]


class ExportFolder:
    """An export to a folder. Call `unchanged`, `begin`, `put` for each file, and `end`.

    UsageError where the folder has files, but no record of an export. ConcurrentCommit where another export has begun
    since: that export replaces the files of this one."""

    def __init__(self, out: Storage) -> None:
        self._out = out
        self._export = str(uuid.uuid4())
        self._written: list[str] = []  # paths
        records = self._records()
        self._number, self._before = max(records, default=0), records
        self.partitions = self._read() if records else {}  # of the newest record, by folder

    @property
    def root(self) -> str:
        return self._out.root

    def unchanged(self, digests: Mapping[str, str]) -> dict[str, Partition]:
        """The recorded partitions that still have these digests and all of their files. UsageError for files in a
        folder that is a partition neither in the record nor in `digests`."""
        there: dict[str, set[str]] = {}
        for info in self._out.list():
            folder, _, name = info.path.rpartition("/")
            there.setdefault(folder, set()).add(name)
        for folder in there:
            if folder and folder not in self.partitions and folder not in digests:
                raise UsageError("no export has written these files; remove them", join(self.root, folder))
        return {
            folder: partition
            for folder, partition in self.partitions.items()
            if digests.get(folder) == partition.digest and there.get(folder) == set(partition.files)
        }

    def begin(self, unchanged: Mapping[str, Partition], others: Iterable[str]) -> None:
        """Write the first record, and remove the files of the partitions `others`, which will change."""
        changed = {folder: Partition("", []) for folder in others}
        self._put_record({**unchanged, **changed})
        for folder in changed:
            self._remove_others(folder)
            self._out.delete_empty(folder)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of a partition."""
        self._check()
        self._written.append(path)
        self._out.put_new(path, chunks)
        self._check()

    def put_schema(self, path: str, text: str) -> None:
        """Write a file, unless it is there with the same text."""
        data = text.encode()
        try:
            if self._out.read(path) == data:
                return
        except FileNotFoundError:
            pass
        self._check()
        self._out.delete(path)
        try:
            self._out.put_new(path, [data])
        except AlreadyExists:
            self._give_up()
        self._check()

    def end(self, digests: Mapping[str, str], unchanged: Mapping[str, Partition]) -> None:
        """Record the files of all partitions."""
        now = {folder: Partition(digest, []) for folder, digest in digests.items()}
        for path in self._written:
            folder, _, name = path.rpartition("/")
            now[folder].files.append(name)
        for folder in now.keys() - unchanged.keys():
            self._remove_others(folder)
        self._put_record({**now, **unchanged})

    def remove_written(self) -> None:
        """Remove the files that this export wrote, because it fails."""
        for path in self._written:
            self._out.delete(path)
        self._written.clear()

    def _remove_others(self, folder: str) -> None:
        """Remove the files of a partition that this export did not write. An earlier export may have written them: it
        was killed, or has not noticed this one."""
        others = {info.path for info in self._out.list(folder)}.difference(self._written)
        if others:
            self._check()  # a later export writes files only after its record
        for path in others:
            self._out.delete(path)

    # -- records -------------------------------------------------------------------------------------------------------

    def _records(self) -> list[int]:
        """The numbers of the records. UsageError where the folder has only other files."""
        numbers, other = [], ""
        for info in self._out.list(hidden=True):
            number = info.path.removeprefix(PREFIX).removesuffix(JSON)
            if info.path == _path(number) and number.isdecimal():
                numbers.append(int(number))
            elif not info.path.startswith(STAGED):  # an unfinished file of an export that was killed
                other = info.path
        if other and not numbers:
            raise UsageError(f"there are files ({other}) and no export; name another folder", self.root)
        return numbers

    def _read(self) -> dict[str, Partition]:
        """The newest record. UsageError for a damaged record, and for one that names a folder that is not a partition:
        the export would remove files there."""
        path = _path(self._number)
        try:
            data = self._out.read(path)
        except FileNotFoundError:
            self._give_up()
        try:
            found = {folder: Partition(*one) for folder, one in json.loads(data)["partitions"].items()}
            if all(_is_partition(folder) and isinstance(one.files, list) for folder, one in found.items()):
                return found
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise UsageError("not the record of an export; remove the folder and export again", join(self.root, path))

    def _put_record(self, partitions: Mapping[str, Partition]) -> None:
        text = json.dumps({"export": self._export, "partitions": partitions}, indent=1)
        try:
            self._out.put_new(_path(self._number + 1), [text.encode()])
        except AlreadyExists:
            self._give_up()
        self._number += 1
        self._written.clear()  # the record has them: an error from here on does not remove them
        for number in self._before:
            if number <= self._number - KEPT:
                self._out.delete(_path(number))

    def _check(self) -> None:
        try:
            self._out.open(_path(self._number + 1)).close()
        except FileNotFoundError:
            return
        self._give_up()

    def _give_up(self) -> NoReturn:
        self.remove_written()
        raise ConcurrentCommit("another export to this folder has begun; run this one again after it", self.root)


def _path(number: int | str) -> str:
    return f"{PREFIX}{number}{JSON}"


def _is_partition(folder: str) -> bool:
    """Whether all parts of a path are a column and its value, as `dt=2026-01-01`."""
    return all(part.find("=") > 0 for part in folder.split("/"))


INTERVAL = 1000  # entries of a node, as in Dione's jobs
NODE_BYTES = 256 << 10  # approximate limit of a node: if INTERVAL entries are longer, a node has fewer
BUCKET_ENTRIES = 500_000  # far below 50 MB: Dione's join takes a larger file for several files
MOSTLY_ENOUGH = 4096  # entries among which each bucket has a key, unless keys repeat much
FILE = " "  # a name that no column has: the number of an entry's source file
NO_SIZE = -1  # Dione's `data_size` in Parquet and ORC
WITHOUT_SIZES = ("parquet", "orc")
ROW_GROUPS = "parquet"  # Dione's pointers into it name row groups; for other formats they equal Gnomon's
SCHEMES = {"s3": "s3a", "az": "abfs"}  # as Hadoop names them
WHILE_EXPORTED = "since it was indexed"

Numbers = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


class ExportedFiles:
    """Writes the files of some partitions. `folders` has the folder of each partition in the export."""

    def __init__(
        self,
        storage: Storage,
        view: View,
        schema: EntrySchema,
        out: ExportFolder,
        folders: Mapping[str, str],
        memory: int = MEMORY_BYTES,
    ) -> None:
        self._storage = storage
        self._view = view
        self._schema = schema
        self._out = out
        self._memory = memory
        self._partitions = list(folders)
        self._folders = folders
        self._source = source_of(view.spec).storage
        self._files = [file for file in view.covered.values() if file.partition in folders and file.rows]
        self._numbers = {file.path: number for number, file in enumerate(self._files)}
        self._tables: dict[int, RowTable] = {}
        rows = dict.fromkeys(self._partitions, 0)
        for file in self._files:
            rows[file.partition] += file.rows
        self._rows = rows
        places = {partition: place for place, partition in enumerate(self._partitions)}
        self._place_of_file = np.array([places[file.partition] for file in self._files], np.int64)
        self._buckets = self._with_keys([max(1, math.ceil(count / BUCKET_ENTRIES)) for count in rows.values()])
        self._first = np.concatenate([[0], np.cumsum(self._buckets)])  # the number of each partition's first file

    def write(self) -> int:
        """Write all files. Returns their number. BuildFailed where a partition has not as many entries as rows."""
        name, total = str(uuid.uuid4()), int(self._first[-1])
        written = dict.fromkeys(self._partitions, 0)
        with EntrySorter(0, range(total), self._memory) as sorter:
            for entries in self._entries():
                sorter.add(entries)
            for number, tables in sorter.groups():
                entries = pa.concat_tables(tables)  # the writer needs all of a file
                self._write(number, name, entries)
                written[self._partition_of(number)] += entries.num_rows
        for partition, rows in self._rows.items():
            if written[partition] != rows:
                where = join(self._out.root, self._folders[partition])
                raise BuildFailed("the export is not whole", where, expected=f"{rows} rows", found=written[partition])
        return total

    def _partition_of(self, number: int) -> str:
        return self._partitions[int(np.searchsorted(self._first, number, side="right")) - 1]

    def _entries(self) -> Iterator[pa.Table]:
        """Yield the live entries with Dione's pointers. Each has the number of its source file and of its exported
        file."""
        columns = [column for column in entry_columns(self._view.spec) if column.part != PARTITION]
        for batch in self._scanned(columns, set(self._partitions)):
            yield self._exported(batch)

    def _scanned(self, columns: Sequence[EntryColumn], wanted: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the live entries of the `wanted` partitions. The caller may remove partitions from `wanted` between two
        batches."""
        spec = self._view.spec
        for segment in self._view.segments:
            for file in segment.by_bucket.values():
                if not wanted or (not spec.flat and file.partition not in wanted):
                    continue
                found = SegmentFile(segment, file)
                for batch in scan_entries(self._storage, spec, found, columns, frozenset(wanted), LookupStats()):
                    if batch.num_rows:
                        yield batch

    def _with_keys(self, buckets: Sequence[int]) -> Offsets:
        """The number of buckets of each partition: the given number, or the largest number below it with which each
        bucket has a key. Dione takes the number of files for that of the buckets, and its join fails at a file without
        entries."""
        open_places = {partition: place for place, partition in enumerate(self._partitions) if buckets[place] > 1}
        hashes = {place: np.empty(0, np.int64) for place in open_places.values()}
        columns = [one for one in entry_columns(self._view.spec) if one.part == KEY or one.name == POINTER_COLUMNS[0]]
        wanted = set(open_places)
        for batch in self._scanned(columns, wanted):
            for some in (batch.slice(0, MOSTLY_ENOUGH), batch.slice(MOSTLY_ENOUGH)):
                if not wanted or not some.num_rows:
                    break
                found = dione_hashes(some.columns[:-1])
                place_of_row = self._place_of_file[self._numbers_of(some.columns[-1])]
                for place in np.unique(place_of_row).tolist():
                    hashes[place] = np.union1d(hashes[place], found[place_of_row == place])
                    if _is_filled(hashes[place], buckets[place]):
                        wanted.discard(self._partitions[place])
            if not wanted:
                break
        chosen = list(buckets)
        for partition in wanted:
            place = open_places[partition]
            chosen[place] = next(n for n in range(buckets[place], 0, -1) if _is_filled(hashes[place], n))
        return np.array(chosen, np.int64)

    def _numbers_of(self, names: pa.Array) -> Numbers:
        """The number of the source file of each entry."""
        coded = names.dictionary_encode()
        numbers = np.array([self._numbers[name] for name in coded.dictionary.to_pylist()], np.int32)
        found: Numbers = numbers[coded.indices.to_numpy()]
        return found

    def _exported(self, batch: pa.RecordBatch) -> pa.Table:
        width = len(POINTER_COLUMNS)
        names, offsets, sub_offsets, sizes = batch.columns[-width:]
        files = self._numbers_of(names)
        theirs = [offsets.to_numpy(), sub_offsets.to_numpy().astype(np.int64)]
        if self._view.spec.format == ROW_GROUPS:
            theirs = self._of_row_groups(files, *theirs)
        if self._view.spec.format in WITHOUT_SIZES:
            sizes = pa.array(np.full(len(files), NO_SIZE, np.int32))
        keys = [batch.column(i) for i in range(len(self._schema.keys))]
        place = self._place_of_file[files]
        buckets = dione_hashes(keys) % self._buckets[place]
        arrays = [
            *batch.columns[:-width],
            pa.array(files),
            pa.array(theirs[0], pa.int64()),
            pa.array(theirs[1].astype(np.int32)),
            sizes,
            pa.array((self._first[place] + buckets).astype(np.int32)),
        ]
        own = [column.name for column in self._schema.columns[:-width]]
        return pa.Table.from_arrays(arrays, names=[*own, FILE, *POINTER_COLUMNS[1:], GROUP])

    def _of_row_groups(self, files: Numbers, offsets: Offsets, sub_offsets: Offsets) -> list[Offsets]:
        """Translate Gnomon's pointers to rows of Parquet files into Dione's."""
        found = [offsets.copy(), sub_offsets.copy()]
        order = np.argsort(files, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(files[order])) + 1):
            table = self._table(int(files[places[0]]))
            for column, values in zip(found, table.of_dione(offsets[places], sub_offsets[places]), strict=True):
                column[places] = values
        return found

    def _table(self, number: int) -> RowTable:
        """The rows of a source file. StalePointer where it is not the file that was indexed."""
        if number not in self._tables:
            with listed(self._source, self._files[number].info, WHILE_EXPORTED) as reader:
                self._tables[number] = row_table(open_source(reader, self._view.spec.format, {}), reader)
        return self._tables[number]

    @cached_property
    def _names(self) -> pa.Array:
        """Dione's name of each source file."""
        root = hadoop_location(self._source.root)
        return pa.array([hadoop_location(join(root, file.path)) for file in self._files], pa.string())

    def _write(self, number: int, name: str, entries: pa.Table) -> None:
        """Write one file, whose keys have nulls last."""
        order = [(column.name, "ascending", "at_end") for column in self._schema.keys]
        order += [(column, "ascending", "at_end") for column in (FILE, *POINTER_COLUMNS[1:3])]
        held = entries.take(pc.sort_indices(entries, sort_keys=order)).combine_chunks()
        named = self._names.take(held.column(FILE).combine_chunks())
        held = held.set_column(held.column_names.index(FILE), POINTER_COLUMNS[0], named)
        interval = min(max(NODE_BYTES * held.num_rows // held.nbytes, 2), INTERVAL)
        height = max(1, math.ceil(math.log(held.num_rows, interval)))
        writer = DioneWriter(self._schema, interval, height)
        writer.write(held)
        folder = self._folders[self._partition_of(number)]
        self._out.put(f"{folder}/part-{number:05d}-{name}.c000{SUFFIX}", writer.finish().chunks)


def _is_filled(hashes: Offsets, buckets: int) -> bool:
    """Whether each bucket has a key."""
    return len(np.unique(hashes % buckets)) == buckets


def hadoop_location(root: str) -> str:
    """A location as Hadoop writes it."""
    if is_local(root):
        return f"file:{root}"
    scheme, colon, rest = root.partition("://")
    return f"{SCHEMES.get(scheme, scheme)}{colon}{rest}"

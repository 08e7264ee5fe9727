"""The files of an export: the entries of some partitions, sorted and written as Dione's job writes them."""

import math
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.dione import DioneWriter, dione_buckets
from gnomon.btree.reader import LookupStats
from gnomon.btree.schema import EntrySchema
from gnomon.jobs.dione.dione_index import SUFFIX
from gnomon.jobs.files import listed
from gnomon.shadow.errors import BuildFailed
from gnomon.shadow.lookup import PARTITION, entry_columns, scan_entries
from gnomon.shadow.maintenance import GROUP, MEMORY_BYTES, EntrySorter
from gnomon.shadow.metadata import SegmentFile, View, source_of
from gnomon.shadow.storage import Storage, is_local, join
from gnomon.sources import POINTER_COLUMNS, RowTable, open_source, row_table

INTERVAL = 1000  # entries of a node, as in Dione's jobs
NODE_BYTES = 256 << 10  # about the most bytes of a node: with more, it has fewer entries
BUCKET_ENTRIES = 500_000  # far below the 50 MB beyond which Dione's join takes one file for several
FILE = " "  # a name that no column has: the number of an entry's source file
NO_SIZE = -1  # Dione's `data_size` in Parquet and ORC
WITHOUT_SIZES = ("parquet", "orc")
ROW_GROUPS = "parquet"  # whose pointers of Dione's name row groups; other formats have equal pointers
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
        out: Storage,
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
        self._buckets = np.array([max(1, math.ceil(count / BUCKET_ENTRIES)) for count in rows.values()], np.int64)
        self._first = np.concatenate([[0], np.cumsum(self._buckets)])  # the number of each partition's first file
        places = {partition: place for place, partition in enumerate(self._partitions)}
        self._place_of_file = np.array([places[file.partition] for file in self._files], np.int64)

    def write(self) -> int:
        """Write all files, also those without entries: Dione takes their number for that of the buckets. Returns the
        number of files. BuildFailed where a partition has not as many entries as rows."""
        name, total = str(uuid.uuid4()), int(self._first[-1])
        written = dict.fromkeys(self._partitions, 0)
        empty = set(range(total))
        with EntrySorter(0, range(total), self._memory) as sorter:
            for entries in self._entries():
                sorter.add(entries)
            for number, entries in sorter.groups():
                self._write(number, name, entries)
                written[self._partition_of(number)] += entries.num_rows
                empty.discard(number)
        for number in empty:
            self._write(number, name, None)
        for partition, rows in self._rows.items():
            if written[partition] != rows:
                where = join(self._out.root, self._folders[partition])
                raise BuildFailed("the export is not whole", where, expected=f"{rows} rows", found=written[partition])
        return total

    def _partition_of(self, number: int) -> str:
        return self._partitions[int(np.searchsorted(self._first, number, side="right")) - 1]

    def _entries(self) -> Iterator[pa.Table]:
        """The live entries with Dione's pointers, the number of their source file, and of their file here."""
        spec, wanted = self._view.spec, set(self._partitions)
        columns = [column for column in entry_columns(spec) if column.part != PARTITION]
        for segment in self._view.segments:
            for file in segment.by_bucket.values():
                if not spec.flat and file.partition not in wanted:
                    continue
                found = SegmentFile(segment, file)
                for batch in scan_entries(self._storage, spec, found, columns, wanted, LookupStats()):
                    if batch.num_rows:
                        yield self._exported(batch)

    def _exported(self, batch: pa.RecordBatch) -> pa.Table:
        width = len(POINTER_COLUMNS)
        names, offsets, sub_offsets, sizes = batch.columns[-width:]
        coded = names.dictionary_encode()
        numbers = np.array([self._numbers[name] for name in coded.dictionary.to_pylist()], np.int32)
        files = numbers[coded.indices.to_numpy()]
        theirs = [offsets.to_numpy(), sub_offsets.to_numpy().astype(np.int64)]
        if self._view.spec.format == ROW_GROUPS:
            theirs = self._of_row_groups(files, *theirs)
        if self._view.spec.format in WITHOUT_SIZES:
            sizes = pa.array(np.full(len(files), NO_SIZE, np.int32))
        keys = [batch.column(i) for i in range(len(self._schema.keys))]
        place = self._place_of_file[files]
        hashes = np.zeros(len(files), np.int64)
        for buckets in np.unique(self._buckets[place]).tolist():
            some = np.flatnonzero(self._buckets[place] == buckets)
            hashes[some] = dione_buckets([key.take(pa.array(some)) for key in keys], buckets)
        arrays = [
            *batch.columns[:-width],
            pa.array(files),
            pa.array(theirs[0], pa.int64()),
            pa.array(theirs[1].astype(np.int32)),
            sizes,
            pa.array((self._first[place] + hashes).astype(np.int32)),
        ]
        own = [column.name for column in self._schema.columns[:-width]]
        return pa.Table.from_arrays(arrays, names=[*own, FILE, *POINTER_COLUMNS[1:], GROUP])

    def _of_row_groups(self, files: Numbers, offsets: Offsets, sub_offsets: Offsets) -> list[Offsets]:
        """Dione's pointers to rows of Parquet files."""
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

    def _write(self, number: int, name: str, entries: pa.Table | None) -> None:
        """Write one file, whose keys have nulls last."""
        interval, height, held = INTERVAL, 1, None
        if entries is not None:
            order = [(column.name, "ascending", "at_end") for column in self._schema.keys]
            order += [(column, "ascending", "at_end") for column in (FILE, *POINTER_COLUMNS[1:3])]
            held = entries.take(pc.sort_indices(entries, sort_keys=order)).combine_chunks()
            named = self._names.take(held.column(FILE).combine_chunks())
            held = held.set_column(held.column_names.index(FILE), POINTER_COLUMNS[0], named)
            interval = min(max(NODE_BYTES * held.num_rows // held.nbytes, 2), INTERVAL)
            height = max(1, math.ceil(math.log(held.num_rows, interval)))
        writer = DioneWriter(self._schema, interval, height)
        if held is not None:
            writer.write(held)
        folder = self._folders[self._partition_of(number)]
        self._out.put_new(f"{folder}/part-{number:05d}-{name}.c000{SUFFIX}", writer.finish().chunks)


def hadoop_location(root: str) -> str:
    """A location as Hadoop writes it."""
    if is_local(root):
        return f"file:{root}"
    scheme, colon, rest = root.partition("://")
    return f"{SCHEMES.get(scheme, scheme)}{colon}{rest}"

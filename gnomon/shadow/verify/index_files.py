"""Checks of the index files of one segment in one folder: they match their segment, and each entry lies where look-ups
search it. They count the entries of each source file and keep a sample, which `pointers` compares. Entries of one key
are ordered by source file, in the order of the segment's manifest, then by row, so answers always have the same order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.base.errors import Action
from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader
from gnomon.btree.bloom import BloomFilterReader
from gnomon.btree.hashing import plain_column, xxhash64_columns
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, adjacent, stable_order, stored_values
from gnomon.shadow.errors import DamagedIndexFile
from gnomon.shadow.lookup import covered_in, open_filter, read_index_file
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, Segment, SourceFileEntry, uncovered
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import partition_values
from gnomon.shadow.verify.report import FAILURES, Fault, Report, Samples, fault_of
from gnomon.sources import POINTER_COLUMNS, Pointer
from gnomon.sources.pointers import FILENAME, OFFSET, SIZE, SUB_OFFSET

Numbers = npt.NDArray[np.signedinteger[Any]]


class EqualKeys:
    """Checks the order of the entries of an index file, batch after batch."""

    def __init__(self) -> None:
        self._last: tuple[list[pa.Array], list[Numbers]] | None = None

    def disordered(self, keys: Sequence[pa.Array], places: Sequence[Numbers]) -> int:
        """The number of entries that come after one of the same key, but do not lie after it in the source. `keys` are
        the key columns of a batch, `places` the number of the source file (negative: unknown), offset and
        sub-offset."""
        rows = len(keys[0])
        if not rows:
            return 0
        count = _disordered(keys, places)
        if self._last is not None:
            keys_before, places_before = self._last
            joined = [pa.concat_arrays([a, b.slice(0, 1)]) for a, b in zip(keys_before, keys, strict=True)]
            count += _disordered(joined, [np.append(a, b[:1]) for a, b in zip(places_before, places, strict=True)])
        self._last = [key.slice(rows - 1) for key in keys], [column[-1:].copy() for column in places]
        return count


def _disordered(keys: Sequence[pa.Array], places: Sequence[Numbers]) -> int:
    files = places[0]
    behind = np.zeros(len(files) - 1, bool)
    same = ~behind
    for column in places:
        before, after = column[:-1], column[1:]
        behind |= same & (after > before)
        same &= after == before
    wrong = ~behind & (files[:-1] >= 0) & (files[1:] >= 0)
    return int((wrong & adjacent(keys)[0]).sum()) if wrong.any() else 0


HASHES = 1 << 64  # the number of hashes of entries

Hashes = npt.NDArray[np.uint64]


@dataclass
class Tally:
    """The entries of one source file in the index files: their number, the sum of their hashes modulo 2^64, and a
    sample. Entries of a dead file count, too; they are no fault."""

    file: SourceFileEntry
    is_live: bool
    entries: int = 0
    hashes: int = 0
    sample: list[tuple[Key, Pointer]] = field(default_factory=list)


def entry_hashes(columns: Sequence[pa.Array], types: Sequence[str], offsets: pa.Array, sub_offsets: pa.Array) -> Hashes:
    """The hash of each entry, over its pointer, its key and its included columns. The sum of the hashes of a set of
    entries does not depend on their order."""
    plain = [offsets.cast(pa.int64()), sub_offsets.cast(pa.int32())]
    for column, kind in zip(columns, types, strict=True):
        value = plain_column(column, kind)
        plain += [value, value.is_valid().cast(pa.int32())]  # the hash ignores nulls
    return xxhash64_columns(plain).view(np.uint64)


class Proved(NamedTuple):
    """The result of a proof of some index files. `tallies` has the number of entries, the sum of their hashes and the
    sample of each source file, and `rows` the first row of each kind that `Samples` wants. `is_whole`: every entry was
    seen."""

    tallies: Sequence[tuple[int, int, Sequence[tuple[Key, Pointer]]]]
    rows: Mapping[tuple[str, str], tuple[SourceFileEntry, Pointer]]
    is_whole: bool
    report: Report


class FolderProof:
    """Checks index files one by one, with only one in memory; faults go to the report."""

    def __init__(
        self,
        storage: Storage,
        spec: IndexSpec,
        segment: Segment,
        folder: str,
        report: Report,
        samples: Samples,
        index_files: Sequence[IndexFileEntry] | None = None,
    ) -> None:
        """`index_files` are some of those of the folder; None: all."""
        self._storage = storage
        self._samples = samples
        self._spec = spec
        self._report = report
        files = covered_in(spec, segment, folder)
        self.tallies = [Tally(file, segment.live.get(file.path) == file) for file in files]
        self._names = pa.array([file.path for file in files], pa.string())
        self.index_files = segment.index_files_in.get(folder, []) if index_files is None else index_files
        self.is_whole = True  # every entry was seen

    def run(self, sample: int) -> None:
        """Check the index files, and keep `sample` entries of each."""
        for entry in self.index_files:
            try:
                self._prove(entry, sample)
            except FAILURES as error:
                self.is_whole = False
                self._report.add(fault_of(error, self._where(entry)))

    @property
    def proved(self) -> Proved:
        """The result of `run`. Another process adds it to its proof of the whole folder by `take`."""
        tallies = [(tally.entries, tally.hashes, tally.sample) for tally in self.tallies]
        return Proved(tallies, self._samples.rows, self.is_whole, self._report)

    def take(self, part: Proved) -> None:
        """Add what a proof of some of the index files found. The parts come in the order of the index files."""
        for tally, (entries, hashes, sample) in zip(self.tallies, part.tallies, strict=True):
            tally.entries += entries
            tally.hashes = (tally.hashes + hashes) % HASHES
            tally.sample += sample
        for kind, row in part.rows.items():
            self._samples.rows.setdefault(kind, row)
        self.is_whole &= part.is_whole
        self._report.merge(part.report)

    def entries(self, number: int) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
        """Read the index files again, and yield the entries of one source file in batches, with their hashes."""
        for entry in self.index_files:
            for batch in self._batches(read_index_file(self._storage, self._spec, entry), entry):
                own = batch.filter(pc.equal(batch.column(FILENAME), self.tallies[number].file.path))
                yield own, self._hashes(own)

    def live_keys(self) -> Iterator[tuple[IndexFileEntry, pa.RecordBatch]]:
        """Read the index files again, and yield the keys of the live entries, with their index file."""
        for entry in self.index_files:
            for batch in self._batches(read_index_file(self._storage, self._spec, entry), entry):
                files, offsets = pc.index_in(batch.column(FILENAME), self._names), batch.column(OFFSET).to_numpy()
                numbers = pc.fill_null(files, -1).to_numpy()
                is_live = np.zeros(batch.num_rows, bool)
                for number in np.unique(numbers[numbers >= 0]).tolist():
                    own, mask = numbers == number, self._samples.masks.get(self.tallies[number].file.path)
                    if self.tallies[number].is_live:
                        is_live[own] = True if mask is None else ~mask.holds_each(offsets[own])
                keys = [column.name for column in self._spec.entry_schema.keys]
                yield entry, batch.filter(pa.array(is_live)).select(keys)

    def _prove(self, entry: IndexFileEntry, sample: int) -> None:
        faults = len(self._report.faults)
        unlike: DamagedIndexFile | None = None
        try:
            data = read_index_file(self._storage, self._spec, entry)
        except DamagedIndexFile as error:  # the structure of the file gives a better place
            unlike, data = error, self._storage.read(entry.path)
        self._report.index_files += 1
        self._report.bytes += len(data)
        seen = self._prove_entries(data, entry, _spread(entry.entries, sample))
        self._report.entries += seen
        if seen != entry.entries:
            self._fault(entry, f"expected {entry.entries} entries, found {seen}")
        if unlike is not None and len(self._report.faults) == faults:
            raise unlike

    def _prove_entries(self, data: bytes, entry: IndexFileEntry, picks: npt.NDArray[np.int64]) -> int:
        """Check that each entry is in its bucket, passes the Bloom filter, points to a file of its segment, and follows
        the entries of its key that precede it in the source. Returns the number of entries."""
        filter_ = self._open_filter(entry)
        equal_keys = EqualKeys()
        seen = misplaced = denied = elsewhere = disordered = weightless = 0
        strangers: list[str] = []
        for batch in self._batches(data, entry):
            keys = [plain_column(batch.column(i), kind) for i, kind in enumerate(self._spec.key_types)]
            misplaced += int((self._spec.bucketing.of_columns(batch.columns, keys) != entry.bucket).sum())
            if filter_ is not None:
                denied += self._denied(filter_, xxhash64_columns(keys))
            files = pc.fill_null(pc.index_in(batch.column(FILENAME), self._names), -1).to_numpy()
            elsewhere += self._in_other_partitions(batch, files)
            disordered += equal_keys.disordered(
                batch.columns[: len(keys)], [files, *(batch.column(name).to_numpy() for name in (OFFSET, SUB_OFFSET))]
            )
            weightless += int((batch.column(SIZE).to_numpy() < 1).sum())
            strangers += batch.column(FILENAME).filter(pa.array(files < 0)).unique().to_pylist()
            self._count(batch, files)
            self._sample_kinds(batch, files)
            self._sample(batch, files, picks[(picks >= seen) & (picks < seen + batch.num_rows)] - seen)
            seen += batch.num_rows
        self._report_keys(entry, filter_, misplaced, denied)
        if elsewhere:
            self._fault(entry, f"{elsewhere} of its entries name another partition than that of their source file")
        if disordered:
            self._fault(entry, f"{disordered} of its entries do not lie behind the one of the same key before them")
        if weightless:
            self._fault(entry, f"{weightless} of its entries have a {SIZE} below 1")
        for name in dict.fromkeys(strangers):
            self._fault(entry, uncovered(name))
        return seen

    def _report_keys(
        self, entry: IndexFileEntry, filter_: BloomFilterReader | None, misplaced: int, denied: int
    ) -> None:
        if misplaced:
            self._fault(entry, f"{misplaced} of its entries are not of bucket {entry.bucket}")
        if denied and filter_ is not None:
            self._report.add(
                Fault(
                    filter_.path,
                    0,
                    f"denies {denied} keys of {entry.path}, its index file",
                    Action.BUILD_FULL_OR_NO_FILTERS,
                )
            )

    def _in_other_partitions(self, batch: pa.RecordBatch, files: npt.NDArray[np.int32]) -> int:
        """The number of entries of a flat index whose partition is not the one of their source file."""
        wrong = np.zeros(len(files), bool)
        for name in self._spec.stored_partitions:
            right = pa.array([partition_values(tally.file.partition).get(name) for tally in self.tallies], pa.string())
            there = right.take(pa.array(files, mask=files < 0))
            said = batch.column(self._spec.file_names[name])
            same = pc.or_(pc.fill_null(pc.equal(said, there), False), pc.and_(said.is_null(), there.is_null()))
            wrong |= ~same.to_numpy(zero_copy_only=False)
        return int(wrong[files >= 0].sum())

    def _batches(self, data: bytes, entry: IndexFileEntry) -> Iterator[pa.RecordBatch]:
        tree = BTreeReader(MemoryFile(data, self._where(entry)), action=self._spec.remedy)
        columns = self._spec.entry_schema.columns
        if [key_type(one.type).avro for one in tree.schema.columns] != [key_type(one.type).avro for one in columns]:
            raise DamagedIndexFile(
                "its columns are not those of the index", self._where(entry), 0, action=self._spec.remedy
            )
        return tree.scan_batches([column.name for column in columns])

    def _open_filter(self, entry: IndexFileEntry) -> BloomFilterReader | None:
        if entry.filter is None:
            return None
        try:
            return open_filter(self._storage, entry.filter)
        except FAILURES as error:
            self._report.add(fault_of(error, f"{self._storage.root}/{entry.filter.path}"))
            return None

    def _denied(self, filter_: BloomFilterReader, hashes: npt.NDArray[np.int64]) -> int:
        try:
            return int((~filter_.may_contain_many(hashes)).sum())
        except FAILURES as error:
            self._report.add(fault_of(error, filter_.path))
            return 0

    def _hashes(self, batch: pa.RecordBatch) -> Hashes:
        stored = (*self._spec.stored_keys, *self._spec.include)
        columns = [batch.column(i) for i in range(len(stored))]
        types = [column.type for column in stored]
        return entry_hashes(columns, types, batch.column(OFFSET), batch.column(SUB_OFFSET))

    def _count(self, batch: pa.RecordBatch, files: npt.NDArray[np.int32]) -> None:
        order = stable_order(files)
        firsts = np.flatnonzero(np.diff(files[order], prepend=-2))
        counts = np.diff(np.append(firsts, len(files)))
        sums = np.add.reduceat(self._hashes(batch)[order], firsts)
        for number, count, total in zip(files[order[firsts]].tolist(), counts.tolist(), sums.tolist(), strict=True):
            if number >= 0:
                tally = self.tallies[number]
                tally.entries += count
                tally.hashes = (tally.hashes + total) % HASHES

    def _sample_kinds(self, batch: pa.RecordBatch, files: npt.NDArray[np.int32]) -> None:
        """Keep the rows that `Samples` wants of the live files."""
        live = np.array([tally.is_live for tally in self.tallies], bool)
        numbers = np.where((files >= 0) & live[files], files, -1)
        of_tallies = [tally.file for tally in self.tallies]
        for row, kind in self._samples.wanted(of_tallies, numbers, batch.column(OFFSET).to_numpy()).items():
            pointer = Pointer(*(batch.column(name)[row].as_py() for name in POINTER_COLUMNS))
            self._samples.rows[kind] = of_tallies[numbers[row]], pointer

    def _sample(self, batch: pa.RecordBatch, files: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> None:
        rows = rows[files[rows] >= 0]
        some = batch.take(pa.array(rows))
        stored = [stored_values(some.column(i), kind) for i, kind in enumerate(self._spec.key_types)]
        pointers = [some.column(name).to_pylist() for name in POINTER_COLUMNS]
        for number, key, pointer in zip(
            files[rows].tolist(), zip(*stored, strict=True), zip(*pointers, strict=True), strict=True
        ):
            self.tallies[number].sample.append((key, Pointer(*pointer)))

    def _where(self, entry: IndexFileEntry) -> str:
        return f"{self._storage.root}/{entry.path}"

    def _fault(self, entry: IndexFileEntry, what: str) -> None:
        self._report.add(Fault(self._where(entry), 0, what, self._spec.remedy))


def _spread(count: int, sample: int) -> npt.NDArray[np.int64]:
    """Up to `sample` row numbers, evenly spread, first and last included."""
    rows: npt.NDArray[np.int64] = np.unique(np.linspace(0, max(count - 1, 0), max(sample, 0)).astype(np.int64))
    return rows

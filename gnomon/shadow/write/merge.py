"""Merge of several index files: their live entries by folder and bucket, in the key order of the format.

A flag before a column puts nulls first and NaN last, whatever Arrow's own rule is. The sort is stable, so that
entries of one key keep the order of the parts, and within a part the order of the build: by source file, then by row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader, DamagedIndexFile
from gnomon.btree.keys import key_order
from gnomon.shadow.lookup import read_index_file
from gnomon.shadow.metadata import NOT_LIVE, IndexSpec, Liveness, Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import partition_values
from gnomon.sources import Numbers
from gnomon.sources.pointers import OFFSET, SUB_OFFSET
from gnomon.sources.types import int64s

BYTES_AT_ONCE = 16 * 1024 * 1024  # of index files whose entries are sorted together; URLs take 15 times that in memory
RELAID_AT_ONCE = 64 * 1024 * 1024  # the same where the layout changes: each pass reads the whole index
BATCH_ROWS, BATCH_BYTES = 65_536, 64 * 1024 * 1024  # of a batch for a writer
GROUP, FILE = "", " "  # names that no column of an index file has


class Merged(NamedTuple):
    """The entries of a new index file, in key order: the folder and the bucket of the file, and batches of its rows."""

    folder: str
    bucket: int
    batches: Iterator[pa.Table]


def merged(
    storage: Storage,
    spec: IndexSpec,
    parts: Sequence[SegmentFile],
    target: IndexSpec,
    only: int | None = None,
) -> Iterator[Merged]:
    """Yield the live entries of index files of `spec` for the index files of `target`, which differs only in the number
    of buckets and the layout. The entries of one bucket are in memory together, entries of several buckets up to
    `BYTES_AT_ONCE`. `only` limits the work to one of `shares_of_merge`.

    DamagedIndexFile or IndexFileGone where a part is missing or not the one that its segment names."""
    shares = range(shares_of_merge(spec, target)) if only is None else [only]
    return _Merge(storage, spec, parts, target).run(shares)


def shares_of_merge(spec: IndexSpec, target: IndexSpec) -> int:
    """The number of shares of a merge that read different index files."""
    # The entries of a hashed bucket come only from the old buckets with the same number modulo the common divisor.
    return gcd(spec.buckets, target.buckets) if spec.cuts == target.cuts else 1


def sort_order(keys: Sequence[pa.Array], before: pa.Array | None = None) -> Numbers:
    """The rows sorted by `before`, then by their key columns in the order of index files. The sort is stable."""
    columns = [] if before is None else [before]
    for key in keys:
        if key.null_count:
            columns.append(key.is_valid().cast(pa.int8()))
        if pa.types.is_floating(key.type):
            columns.append(pc.fill_null(pc.is_nan(key), False).cast(pa.int8()))
        columns.append(key)
    return key_order(columns)


@dataclass(frozen=True)
class _Merge:
    storage: Storage
    spec: IndexSpec
    parts: Sequence[SegmentFile]
    target: IndexSpec

    def run(self, shares: Iterable[int]) -> Iterator[Merged]:
        step = shares_of_merge(self.spec, self.target)
        for residue in shares:
            parts = [part for part in self.parts if part.file.bucket % step == residue]
            if parts:
                yield from self._merge(parts, range(residue, self.target.buckets, step))

    def _merge(self, parts: Sequence[SegmentFile], targets: range) -> Iterator[Merged]:
        """Merge parts into their buckets. Where the parts are large, there are several passes: each reads all parts,
        and merges some of the buckets. If the target gets partition folders, a pass may merge some of the folders
        only."""
        relaid = self.spec.flat != self.target.flat
        limit = RELAID_AT_ONCE if relaid or not self._are_alike else BYTES_AT_ONCE
        passes = -(-sum(part.file.size for part in parts) // limit) or 1
        buckets = list(_cut(targets, min(len(targets), passes)))
        folders = range(len(self._folders)) if relaid else range(1)
        for wanted in buckets:
            for places in _cut(folders, max(1, min(len(folders), passes // len(buckets)))):
                chosen = places if relaid else None
                pieces = [piece for part in parts for piece in self._live(part, wanted, chosen)]
                if pieces:
                    yield from self._sorted(pa.concat_tables(pieces).combine_chunks())

    def _sorted(self, entries: pa.Table) -> Iterator[Merged]:
        if self.spec.flat != self.target.flat:  # then the order of the parts is not the order of source files and rows
            entries = entries.sort_by([(name, "ascending") for name in (FILE, OFFSET, SUB_OFFSET)]).combine_chunks()
        arrays = [column.chunk(0) for column in entries.columns]  # combined, and not empty
        order = sort_order(arrays[: len(self.spec.stored_keys)], arrays[-1])
        numbers = arrays[-1].to_numpy()[order]
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(cuts):
            folder, bucket = divmod(int(numbers[begin]), self.target.buckets)
            yield Merged(self._folders[folder], bucket, self._batches(entries, order[begin:end]))

    def _batches(self, entries: pa.Table, order: Numbers) -> Iterator[pa.Table]:
        """Yield the rows of `order` in the entry schema of the target."""
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES * len(entries) // max(entries.nbytes, 1)))
        for begin in range(0, len(order), rows):
            table = entries.take(int64s(order[begin : begin + rows]))
            numbers = table.column(FILE).combine_chunks()
            by_file = {name: pa.DictionaryArray.from_arrays(numbers, texts) for name, texts in self._by_file.items()}
            names = [column.name for column in self.target.entry_schema.columns]
            yield pa.table({name: by_file[name] if name in by_file else table.column(name) for name in names})

    def _live(self, part: SegmentFile, wanted: range, folders: range | None) -> Iterator[pa.Table]:
        """Yield the live entries of a part for the wanted buckets and folders, under the target's names. The last
        columns are the number of the source file (FILE) and of the folder and bucket (GROUP). Texts have 64-bit
        offsets, so that no column exceeds the size of Arrow's arrays."""
        where = f"{self.storage.root}/{part.file.path}"
        tree = BTreeReader(
            MemoryFile(read_index_file(self.storage, self.spec, part.file), where), action=self.spec.remedy
        )
        liveness = Liveness(self.spec, part.segment, part.file, self.storage.root)
        for batch in self._read(tree, wanted):
            buckets = targets = self.spec.bucketing.of_columns(batch.columns)
            if (buckets != part.file.bucket).any():
                raise DamagedIndexFile("holds an entry of another bucket", where, 0, action=self.spec.remedy)
            if self.target.bucketing != self.spec.bucketing:
                targets = self.target.bucketing.of_columns(batch.columns)
            chosen = (targets >= wanted.start) & (targets < wanted.stop)
            columns = {name: _long(batch.column(place)) for name, place in self._taken.items()}
            # Entries of masked rows stay: an older version of the table, which a RESTORE may bring back, has the rows.
            named = liveness.source_files(
                self.spec.entries.file_names(part.segment, part.file.partition, batch.columns), None
            )
            files = named.numbers(lambda file: self._numbers[file.path]).astype(np.int32)
            chosen &= files != NOT_LIVE
            places = self._folder_of_file[files]
            targets = targets + places * self.target.buckets
            if folders is not None:
                chosen &= (places >= folders.start) & (places < folders.stop)
            if chosen.any():
                table = pa.table({**columns, FILE: pa.array(files), GROUP: pa.array(targets)})
                yield table.filter(pa.array(chosen))

    def _read(self, tree: BTreeReader, wanted: range) -> Iterator[pa.RecordBatch]:
        """The entries of an index file that may go to the wanted buckets."""
        names = [column.name for column in self.spec.entry_schema.columns]
        if self._are_alike or self.target.cuts is None:
            yield from tree.scan_batches(names)
            return
        cuts = (None, *self.target.cuts, None)  # those before and after each bucket
        low, high = cuts[wanted.start], cuts[wanted.stop]
        for runs in tree.run_batches(low, high, BATCH_ROWS):
            yield pa.RecordBatch.from_arrays(tree.decoded(runs, names), names)

    @cached_property
    def _are_alike(self) -> bool:
        """Whether the buckets of the target are those of the index, or both are hashed."""
        return self.spec.cuts == self.target.cuts

    @cached_property
    def _taken(self) -> dict[str, int]:
        """The columns to read, by their names in the target, with their places in the read files: all except the names
        of source files and, where the layout changes, the partition columns."""
        ours, theirs = self.spec.entry_schema.columns, self.target.entry_schema.columns
        dropped = {column.name for column in self.spec.entries.pointer_columns[:1]}
        if self.spec.flat != self.target.flat:
            dropped.update(self.spec.file_names[name] for name in self.spec.stored_partitions)
        places = [i for i, column in enumerate(ours) if column.name not in dropped]
        names = [column.name for column in theirs if column.name not in self._by_file]
        return dict(zip(names, places, strict=True))

    @cached_property
    def _by_file(self) -> dict[str, pa.Array]:
        """The columns of the target that are made from the number of the source file, with the text of each file: its
        path and, where the index becomes flat, its partition columns."""
        paths = pa.array([file.path for file in self._live_files], pa.string())
        made = {column.name: paths for column in self.target.entries.pointer_columns[:1]}
        if self.spec.flat or not self.target.flat:
            return made
        values = [partition_values(file.partition) for file in self._live_files]
        names = self.target.file_names
        return made | {
            names[name]: pa.array([one[name] for one in values], pa.string()) for name in self.target.partitions
        }

    @cached_property
    def _folders(self) -> list[str]:
        """The folders of the target's index files."""
        return sorted({self.target.folder_of(file.partition) for file in self._live_files})

    @cached_property
    def _folder_of_file(self) -> npt.NDArray[np.int64]:
        """The ordinal of each source file's folder, by the file's number. The last one, for NOT_LIVE, is arbitrary."""
        ordinals = {folder: i for i, folder in enumerate(self._folders)}
        found = [ordinals[self.target.folder_of(file.partition)] for file in self._live_files]
        return np.array([*found, 0], np.int64)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each live source file, by its path."""
        return {file.path: number for number, file in enumerate(self._live_files)}

    @cached_property
    def _covering(self) -> list[tuple[Segment, str]]:
        """The segments of the parts, with each folder that they have parts in."""
        there = {(part.segment.id, part.file.partition): part.segment for part in self.parts}
        return [(segment, folder) for (_, folder), segment in there.items()]

    @cached_property
    def _live_files(self) -> list[SourceFileEntry]:
        """The live source files, in the order of the segments. A path is live in one segment only."""
        covering = {(segment.id, folder) for segment, folder in self._covering}
        return [
            file
            for segment in {segment.id: segment for segment, _ in self._covering}.values()
            for file in segment.live.values()
            if (segment.id, self.spec.folder_of(file.partition)) in covering
        ]


def _cut(numbers: range, pieces: int) -> Iterator[range]:
    """Split a range into at most this many pieces of about the same length."""
    length = -(-len(numbers) // pieces) or 1
    for begin in range(0, len(numbers), length):
        yield numbers[begin : begin + length]


def _long(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary(array.type) else array

"""Several index files of a folder into sorted entries by bucket: those that count, in the key order of the format.

Arrow sorts: a flag before a column puts nulls first and NaN last, whatever Arrow's own rule is. The sort is stable, so
entries of one key stay in the order of the parts, and in each part as a build wrote them: by source file, then by row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from btree import BTreeReader, DamagedIndexFile
from btree.blocks import MemoryFile
from btree.hash_columns import plain_column, spark_hash_columns
from shadow.index_files import covered_in, read_index_file
from shadow.segments import IndexFileEntry, Segment
from shadow.spec import IndexSpec
from shadow.storage import Storage
from sources.pointer import FILENAME

BYTES_AT_ONCE = 16 * 1024 * 1024  # of index files whose entries are sorted together; of URLs 15 times that in memory
BATCH_ROWS, BATCH_BYTES = 65_536, 64 * 1024 * 1024  # of what a writer is handed at once
BUCKET = ""  # a name that no column of an index file has
NOT_LIVE = -1


class Part(NamedTuple):
    """An index file, and the segment that says which of its entries count."""

    segment: Segment
    file: IndexFileEntry


def merged(
    storage: Storage, spec: IndexSpec, parts: Sequence[Part], buckets: int
) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """The entries that count of index files of one folder, which have `spec.buckets` buckets, as they go into
    `buckets` buckets: each bucket that gets any, and its entries in key order. A bucket's entries are in memory
    together, those of several only up to `BYTES_AT_ONCE`.

    DamagedIndexFile or IndexFileGone where a part is not what its segment says."""
    return _Merge(storage, spec, parts, buckets).run()


def sort_order(keys: Sequence[pa.Array], before: pa.Array | None = None) -> pa.Array:
    """The rows in the order of index files by their key columns, `before` first; equal ones stay as they are."""
    columns = [] if before is None else [before]
    for key in keys:
        if key.null_count:
            columns.append(key.is_valid().cast(pa.int8()))
        if pa.types.is_floating(key.type):
            columns.append(pc.fill_null(pc.is_nan(key), False).cast(pa.int8()))
        columns.append(key)
    names = [str(i) for i in range(len(columns))]
    table = pa.Table.from_arrays(columns, names=names)
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


@dataclass(frozen=True)
class _Merge:
    storage: Storage
    spec: IndexSpec
    parts: Sequence[Part]
    buckets: int

    def run(self) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        # A bucket's entries come from the old buckets that are the same number modulo the common divisor, and no other.
        step = gcd(self.spec.buckets, self.buckets)
        for residue in range(step):
            parts = [part for part in self.parts if part.file.bucket % step == residue]
            if parts:
                yield from self._merge(parts, range(residue, self.buckets, step))

    def _merge(self, parts: Sequence[Part], targets: range) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        """Merge parts into their buckets; some at a time where they are large, each time reading all parts."""
        passes = min(len(targets), -(-sum(part.file.size for part in parts) // BYTES_AT_ONCE)) or 1
        at_once = -(-len(targets) // passes)
        for begin in range(0, len(targets), at_once):
            wanted = targets[begin : begin + at_once]
            pieces = [piece for part in parts for piece in self._live(part, wanted)]
            if pieces:
                yield from self._sorted(pa.concat_tables(pieces).combine_chunks())

    def _sorted(self, entries: pa.Table) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        arrays = [column.chunk(0) for column in entries.columns]  # combined, and not empty
        order = sort_order(arrays[: len(self.spec.stored_keys)], arrays[-1])
        numbers = arrays[-1].take(order).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(cuts):
            yield int(numbers[begin]), self._batches(entries, order.slice(begin, end - begin))

    def _batches(self, entries: pa.Table, order: pa.Array) -> Iterator[pa.Table]:
        """The rows named, as the entry schema has them."""
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES * len(entries) // max(entries.nbytes, 1)))
        for begin in range(0, len(order), rows):
            table = entries.take(order.slice(begin, rows)).drop_columns([BUCKET])
            if self.spec.holds_values:
                yield table
                continue
            at = table.schema.get_field_index(FILENAME)
            numbers = table.column(at).combine_chunks()
            named = pa.DictionaryArray.from_arrays(numbers, self._paths)
            yield table.set_column(at, FILENAME, named)

    def _live(self, part: Part, wanted: range) -> Iterator[pa.Table]:
        """The entries of a part that count and go to the buckets wanted, with their bucket as the last column; source
        files by number, and long offsets, so that no column outgrows Arrow's arrays."""
        where = f"{self.storage.root}/{part.file.path}"
        tree = BTreeReader(MemoryFile(read_index_file(self.storage, part.file), where))
        for batch in tree.scan_batches([column.name for column in self.spec.entry_schema.columns]):
            keys = [plain_column(batch.column(i), kind) for i, kind in enumerate(self.spec.key_types)]
            hashes = spark_hash_columns(keys).astype(np.int64)
            if (hashes % self.spec.buckets != part.file.bucket).any():
                raise DamagedIndexFile("holds an entry of another bucket", where, 0)
            targets = hashes % self.buckets
            chosen = (targets >= wanted.start) & (targets < wanted.stop)
            arrays = [_long(array) for array in batch.columns]
            if not self.spec.holds_values:
                files = self._numbers(part, batch.column(FILENAME), where)
                arrays[batch.schema.get_field_index(FILENAME)] = pa.array(files)
                chosen &= files != NOT_LIVE
            if chosen.any():
                arrays.append(pa.array(targets.astype(np.int32)))
                table = pa.Table.from_arrays(arrays, names=[*batch.schema.names, BUCKET])
                yield table.filter(pa.array(chosen))

    def _numbers(self, part: Part, names: pa.Array, where: str) -> npt.NDArray[np.int32]:
        """For each entry the number of its source file, or NOT_LIVE. DamagedIndexFile where its segment has no such
        file in this folder."""
        known, numbers = self._files[part.segment.id]
        ordinals = pc.index_in(names, known)
        if ordinals.null_count:
            stranger = names.filter(ordinals.is_null())[0].as_py()
            raise DamagedIndexFile(f"an entry names {stranger}, which its segment does not cover here", where, 0)
        found: npt.NDArray[np.int32] = numbers[ordinals.to_numpy()]
        return found

    @cached_property
    def _files(self) -> dict[str, tuple[pa.Array, npt.NDArray[np.int32]]]:
        """For each segment the source files that it covers in this folder, and their numbers."""
        place = {path: number for number, path in enumerate(self._live_paths)}
        files = {}
        for segment in self._segments:
            known = [file.path for file in covered_in(self.spec, segment, self._folder)]
            numbers = [place[path] if path in segment.live else NOT_LIVE for path in known]
            files[segment.id] = (pa.array(known, pa.string()), np.array(numbers, np.int32))
        return files

    @cached_property
    def _segments(self) -> list[Segment]:
        return list({part.segment.id: part.segment for part in self.parts}.values())

    @property
    def _folder(self) -> str:
        return self.parts[0].file.partition

    @cached_property
    def _live_paths(self) -> list[str]:
        """The source files that count. A path counts in one segment only."""
        return [
            file.path
            for segment in self._segments
            for file in covered_in(self.spec, segment, self._folder)
            if file.path in segment.live
        ]

    @cached_property
    def _paths(self) -> pa.Array:
        return pa.array(self._live_paths, pa.string())


def _long(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary(array.type) else array

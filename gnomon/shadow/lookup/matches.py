"""The result of a look-up of a key: the live entries that are kept, and the number of all."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import BTreeReader
from gnomon.btree.batch import Found
from gnomon.btree.blocks import LookupStats
from gnomon.btree.errors import TooMany
from gnomon.btree.keys import Key, KeyBatch, stored_array, stored_values
from gnomon.shadow.metadata import NOT_LIVE, IndexFileEntry, IndexSpec, Liveness, NamedFiles, Segment, SourceFileEntry
from gnomon.shadow.storage import check_deadline
from gnomon.sources import Pointer

MOST_OBJECTS = 50_000  # entries of an index file that become Python objects; more are counted in Arrow

Ints = npt.NDArray[np.int64]


class Hit(NamedTuple):
    """One row found: its pointer, its source file as it was indexed, and the included columns."""

    pointer: Pointer
    file: SourceFileEntry
    included: Key


class Hits(list[Hit]):
    """The first hits of a key. `matches` counts all hits. `too_large`: the first hits exceed the byte limit, so that
    some are missing. `failure` is the error of a failed look-up."""

    def __init__(self) -> None:
        super().__init__()
        self.matches = 0
        self.too_large = False
        self.failure: Exception | None = None

    def take(self, others: "Hits", most: int | None, flat: bool) -> None:
        """Append the hits of another index file."""
        self.matches += others.matches
        self.too_large |= others.too_large
        self.extend(others)
        if most is not None and len(self) > most:
            self.cut(most, flat)

    def cut(self, most: int | None, flat: bool) -> None:
        """Keep the first `most` hits only. In a flat index, whose files hold all partitions, they are sorted by
        partition first."""
        if flat:
            self.sort(key=_partition)
        if most is not None:
            del self[most:]


@dataclass(frozen=True)
class Bound:
    """The limits of the hits kept for each key: their number and, in a key-value folder, the bytes of their values.
    None is no limit."""

    hits: int | None = None
    bytes: int | None = None

    def entries(self, entry: IndexFileEntry, value_bytes: int | None) -> int | None:
        """The number of entries of an index file that may become Python objects; more are counted in Arrow. None is no
        limit."""
        if self.hits is None and self.bytes is None:
            return None
        if value_bytes is None:
            return MOST_OBJECTS
        mean = max(1, entry.size // max(entry.entries, 1))
        return max(1, min(MOST_OBJECTS, value_bytes // mean))


ALL = Bound()


class FileHits:
    """The hits of some keys in one index file."""

    def __init__(self, spec: IndexSpec, segment: Segment, entry: IndexFileEntry, root: str, bound: Bound) -> None:
        self._spec = spec
        self._segment = segment
        self._entry = entry
        self._where = f"{root}/{entry.path}"
        self._liveness = Liveness(spec, segment, entry, root)
        self._bound = bound
        self._value_bytes = spec.entries.value_bytes(bound.bytes)

    def find(
        self, tree: BTreeReader, keys: Sequence[Key], partitions: Sequence[Collection[str]], stats: LookupStats
    ) -> list[Hits]:
        """The hits of each key. `partitions` has the requested partitions of each key, by which a flat index is
        filtered."""
        most = self._bound.entries(self._entry, self._value_bytes)
        try:
            answers = tree.get_many(keys, stats, most)
        except TooMany:
            return self._counted(tree, keys, partitions, stats)
        found = []
        for values, names in zip(answers, partitions, strict=True):
            hits = Hits()
            found.append(hits)
            made = self._hits(values)
            if self._spec.flat:
                made = sorted((hit for hit in made if hit.file.partition in names), key=_partition)
            hits.matches = len(made)
            hits.extend(made)
            hits.cut(self._bound.hits, False)
        return found

    def _hits(self, values: Sequence[Key]) -> list[Hit]:
        """The hits of entries from their values in stored form."""
        hits = []
        kind, included = self._spec.entries, len(self._spec.include)
        for value in values:
            file = self._liveness.source_file(kind.file_name(self._segment, self._entry.partition, value))
            pointer = kind.pointer(value)
            if file is not None and not self._liveness.is_masked(file.path, pointer.data_offset):
                hits.append(Hit(pointer, file, value[:included]))
        return hits

    # -- a key of any number of entries --------------------------------------------------------------------------------

    def _counted(
        self, tree: BTreeReader, keys: Sequence[Key], partitions: Sequence[Collection[str]], stats: LookupStats
    ) -> list[Hits]:
        """The hits of each key, without Python objects for entries that are not kept."""
        types, columns = self._spec.key_types, tree.schema.values
        arrays = [stored_array([key[i] for key in keys], kind) for i, kind in enumerate(types)]
        batch = KeyBatch(arrays, types)
        asking: dict[int, list[int]] = {}  # the requested keys, by their place in the batch
        for rows, places in batch.spread(np.arange(len(batch.keys))):
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                asking.setdefault(place, []).append(row)
        found = [Hits() for _ in keys]
        sizes = [0] * len(keys)
        for piece in tree.match(batch.keys, [column.name for column in columns], stats):
            check_deadline(self._where)
            for place, rows, files in self._by_key(piece):
                for i in asking[place]:
                    kept = self._kept(found[i], rows, files, partitions[i])
                    sizes[i] += self._add(found[i], piece, kept, [column.type for column in columns], sizes[i])
        return found

    def _by_key(self, piece: Found) -> Iterator[tuple[int, Ints, NamedFiles]]:
        """Yield each key of a piece with its live rows, and the source files that the piece names."""
        kind = self._spec.entries
        names = kind.file_names(self._segment, self._entry.partition, piece.columns)
        files = self._liveness.source_files(names, kind.offsets(piece.columns))
        rows = np.flatnonzero(files.is_live)
        keys, starts = np.unique(piece.keys[rows], return_index=True)
        for key, share in zip(keys.tolist(), np.split(rows, starts[1:]), strict=bool(len(keys))):
            yield key, share, files

    def _kept(self, hits: Hits, rows: Ints, files: NamedFiles, partitions: Collection[str]) -> Ints:
        """Count rows of a key, and choose those that may be among its first hits."""
        if self._spec.flat:
            order = {name: place for place, name in enumerate(sorted(_partitions(files).intersection(partitions)))}
            of_row = files.numbers(lambda file: order.get(file.partition, NOT_LIVE))[rows]
            rows, of_row = rows[of_row >= 0], of_row[of_row >= 0]
            hits.matches += len(rows)
            return rows[np.argsort(of_row, kind="stable")][: self._bound.hits]
        hits.matches += len(rows)
        most = self._bound.hits
        return rows if most is None else rows[: max(most - len(hits), 0)]

    def _add(self, hits: Hits, piece: Found, rows: Ints, types: Sequence[str], size: int) -> int:
        """Keep rows of a piece. Returns the bytes of their values; `size` are the bytes of the rows kept before."""
        if hits.too_large or not len(rows):
            return 0
        columns = [column.take(pa.array(rows)) for column in piece.columns]
        taken = sum(int(column.nbytes) for column in columns)
        if self._value_bytes is not None and size + taken > self._value_bytes:
            hits.too_large = True
            hits.clear()
            return taken
        values: list[list[Any]] = [list(stored_values(c, kind)) for c, kind in zip(columns, types, strict=True)]
        hits.extend(self._hits(list(zip(*values, strict=True)) if values else [()] * len(rows)))
        if self._bound.hits is not None and len(hits) > self._bound.hits:
            hits.cut(self._bound.hits, self._spec.flat)
        return taken


def _partitions(files: NamedFiles) -> set[str]:
    """The partitions of the live files."""
    return {file.partition for file in files.files if file is not None}


def _partition(hit: Hit) -> str:
    return hit.file.partition

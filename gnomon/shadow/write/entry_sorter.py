"""Entries sorted by index file and key within a bound of memory.

Entries beyond the bound go to temporary files, one for each range of index files. Each range is then sorted by itself,
and divided again where it is beyond the bound, too: the entries of one index file into ranges of keys."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.btree.keys import same_values, stable_order
from gnomon.shadow.errors import StorageError
from gnomon.shadow.write.merge import sort_order
from gnomon.sources.types import int32s, int64s

GROUP = ""  # a name that no column of an index file has: the number of an entry's index file, an int32
MOST_FILES = 128  # open at the same time
HELD_SHARE = 4  # of the bound, a fourth is for unsorted entries: sorted ones and the index file are copies
HELD_BYTES = 1 << 30  # at most, so that the texts of a column have 32-bit offsets
SAMPLED = 10_000  # entries, of which keys are chosen that divide one index file
FOLDER = "gnomon-entries-"


class Spill(NamedTuple):
    """A temporary file with the entries of some index files, and the bytes of these entries in memory."""

    groups: range
    path: str
    bytes: int


class EntrySorter:
    """Sorts entries by the number of their index file (`GROUP`), which is in `groups`, then by their first `keys`
    columns, in the key order of index files. The sort is stable. A context manager, which removes the temporary files.

    StorageError where temporary files cannot be written."""

    def __init__(self, keys: int, groups: range, most_bytes: int, folder: str | None = None) -> None:
        self._keys = keys
        self._groups = groups
        self._most_bytes = most_bytes
        self._most_held = min(most_bytes // HELD_SHARE, HELD_BYTES)
        self._folder = folder
        self._inner: str | None = None  # for the temporary files of this sorter, and of the sorters within it
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._parts: list[_Part] = []
        self._opened = ExitStack()

    def __enter__(self) -> "EntrySorter":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, entries: pa.Table) -> None:
        """Add entries with their column GROUP."""
        self._held.append(entries)
        self._held_bytes += entries.nbytes
        if self._held_bytes > self._most_held:
            self._spill()

    def groups(self) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        """Yield each index file's number, and its entries in key order, in any number of tables without GROUP. The
        tables of one index file are taken before the next one."""
        if not self._parts:
            yield from ((group, iter([entries])) for group, entries in self._sorted())
            return
        self._spill()
        for part in self._parts:
            if len(part.groups) == 1:
                if part.bytes:
                    yield part.groups.start, self._by_key(part)
                continue
            with EntrySorter(self._keys, part.groups, self._most_bytes, self._inner) as within:
                for entries in part.read():
                    within.add(entries)
                part.remove()
                yield from within.groups()

    def _by_key(self, part: "_Part", is_sorted: bool = False) -> Iterator[pa.Table]:
        """The entries of one index file in key order, without GROUP. Removes the part."""
        if not self._keys or is_sorted:
            yield from (entries.drop_columns([GROUP]) for entries in part.read())
        elif part.bytes <= self._most_held:
            entries = pa.concat_tables(part.read()).combine_chunks().drop_columns([GROUP])
            yield entries.take(int64s(sort_order(_keys_of(entries, self._keys))))
        else:
            yield from self._by_ranges(part)
        part.remove()

    def _by_ranges(self, part: "_Part") -> Iterator[pa.Table]:
        """As `_by_key`, for entries beyond the bound: cut into ranges between some of their keys, and these keys."""
        count = min(-(-2 * part.bytes // self._most_held), (MOST_FILES - 1) // 2)
        cuts = _cuts(part, self._keys, count, self._most_held)
        with ExitStack() as opened:
            folder = temporary_folder(opened, self._inner)
            ranges = [_Part(Path(folder, str(i)), part.groups) for i in range(2 * len(cuts[0]) + 1)]
            for entries in part.read():
                for number, rows in _by_range(_keys_of(entries, self._keys), cuts):
                    ranges[number].write(entries.take(pa.array(rows)))
            for number, one in enumerate(ranges):
                if one.bytes:
                    yield from self._by_key(one, is_sorted=number % 2 == 1)

    def spilled(self) -> list[Spill]:
        """Write all entries to temporary files, unsorted, for another sorter. The caller removes them. For a sorter
        with a `folder`, and without keys."""
        self._spill()
        self._opened.pop_all()
        return [part.closed() for part in self._parts if part.bytes]

    def _sorted(self) -> Iterator[tuple[int, pa.Table]]:
        if not self._held:
            return
        held, numbers = self._taken()
        for group, places in by_number(numbers):
            if self._keys:
                keys = [key.take(int64s(places)) for key in _keys_of(held, self._keys)]
                places = places[sort_order(keys)]
            yield group, held.take(int64s(places))

    def _spill(self) -> None:
        """Write the held entries to the temporary files of their ranges."""
        if not self._held:
            return
        length = -(-len(self._groups) // MOST_FILES)
        if not self._parts:
            folder = self._inner = temporary_folder(self._opened, self._folder)
            cuts = [self._groups[at : at + length] for at in range(0, len(self._groups), length)]
            self._parts = [_Part(Path(folder, str(i)), groups) for i, groups in enumerate(cuts)]
        held, numbers = self._taken()
        held = held.append_column(GROUP, int32s(numbers))
        for number, places in by_number((numbers - self._groups.start) // (self._groups.step * length)):
            self._parts[number].write(held.take(int64s(places)))

    def _taken(self) -> tuple[pa.Table, npt.NDArray[np.int32]]:
        """Remove and return the held entries, and the numbers of their index files."""
        held = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        return held.drop_columns([GROUP]), held.column(GROUP).to_numpy()


class _Part:
    """The entries of a range of index files, in a temporary file in Arrow's stream format."""

    def __init__(self, path: Path, groups: range) -> None:
        self.groups = groups
        self.bytes = self.rows = 0
        self._path = path
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, entries: pa.Table) -> None:
        with writing_temporary_files():
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self._path), entries.schema)
            self._writer.write_table(entries)
        self.bytes += entries.nbytes
        self.rows += entries.num_rows

    def closed(self) -> Spill:
        """The file, complete. Nothing more is written."""
        if self._writer is not None:
            with writing_temporary_files():
                self._writer.close()  # closes the file, too
            self._writer = None
        return Spill(self.groups, str(self._path), self.bytes)

    def read(self) -> Iterator[pa.Table]:
        if self.bytes:
            yield from read_spill(self.closed().path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def read_spill(path: str) -> Iterator[pa.Table]:
    """Yield the entries of a temporary file, with their column GROUP."""
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def temporary_folder(opened: ExitStack, below: str | None = None) -> str:
    """Make a folder for temporary files, which the end of `opened` removes. StorageError where it cannot be made."""
    with writing_temporary_files():
        folder = mkdtemp(prefix=FOLDER, dir=below)
    opened.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def writing_temporary_files() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        check_memory(error)
        raise StorageError(
            f"entries beyond the memory of this job cannot be written to a temporary file ({error}); "
            "set TMPDIR to a folder with room for the keys, or give the job more memory"
        ) from error


def _keys_of(entries: pa.Table, keys: int) -> list[pa.Array]:
    """The first columns of entries whose columns have one chunk each."""
    return [entries.column(i).chunk(0) for i in range(keys)]


def _cuts(part: _Part, keys: int, count: int, most_bytes: int) -> list[pa.Array]:
    """The columns of up to `count` different keys of a part, ascending, between which there are about as many
    entries. They are chosen from a sample of about `most_bytes` or less: the keys may be long."""
    step = -(-part.rows // max(1, min(SAMPLED, part.rows * most_bytes // part.bytes)))
    sample, first = list[pa.Table](), 0  # of the next entries: they come in pieces that may be shorter than a step
    for entries in part.read():
        rows = np.arange(first, entries.num_rows, step)
        first = (first - entries.num_rows) % step
        sample.append(entries.select(range(keys)).take(pa.array(rows)))
    columns = _keys_of(pa.concat_tables(sample).combine_chunks(), keys)
    order = sort_order(columns)
    chosen = pa.array(order[np.arange(1, count + 1) * len(order) // (count + 1)])
    columns = [column.take(chosen) for column in columns]
    same = np.logical_and.reduce([same_values(column[:-1], column[1:]) for column in columns])
    is_new = np.concatenate([[True], ~same])
    return [column.filter(pa.array(is_new)) for column in columns]


def _by_range(keys: Sequence[pa.Array], cuts: Sequence[pa.Array]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield the number of each range, and its rows in key order. Range 2 i + 1 has the rows with cut i; the ranges
    around it have the rows between two cuts."""
    count = len(cuts[0])
    # The sort is stable: one copy of each cut comes before the rows that equal it, and one after them.
    order = sort_order([pa.concat_arrays([cut, key, cut]) for cut, key in zip(cuts, keys, strict=True)])
    is_cut = (order < count) | (order >= count + len(keys[0]))
    numbers, rows = np.cumsum(is_cut)[~is_cut], order[~is_cut] - count
    for places in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(numbers)) + 1) if len(rows) else ():
        yield int(numbers[places[0]]), rows[places]


def by_number(numbers: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each distinct number, ascending, with the indexes at which it occurs, ascending."""
    order = stable_order(numbers)
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for places in np.split(order, cuts) if len(order) else ():
        yield int(numbers[places[0]]), places

"""Entries sorted by index file and key within a bound of memory.

Entries beyond the bound go to temporary files, one for each range of index files. Each range is then sorted by itself,
and divided again where it is beyond the bound, too."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.write.merge import sort_order

GROUP = ""  # a name that no column of an index file has: the number of an entry's index file, an int32
MOST_FILES = 128  # open at the same time
HELD_SHARE = 4  # of the bound, a fourth is for unsorted entries: sorted ones and the index file are copies
HELD_BYTES = 1 << 30  # at most, so that the texts of a column have 32-bit offsets
FOLDER = "gnomon-entries-"


class Spill(NamedTuple):
    """A temporary file with the entries of some index files, and the bytes of these entries in memory."""

    groups: range
    path: str
    bytes: int


class EntrySorter:
    """Sorts entries by the number of their index file (`GROUP`), then by their first `keys` columns, in the key order
    of index files. The sort is stable. A context manager, which removes the temporary files.

    UsageError where there are keys, and the entries of one index file exceed the bound; StorageError where temporary
    files cannot be written."""

    def __init__(self, keys: int, groups: range, most_bytes: int, folder: str | None = None) -> None:
        self._keys = keys
        self._groups = groups
        self._most_bytes = most_bytes
        self._folder = folder
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
        if self._held_bytes <= min(self._most_bytes // HELD_SHARE, HELD_BYTES):
            return
        if len(self._groups) == 1 and self._keys:
            raise UsageError(
                f"the entries of one bucket take more than {self._most_bytes / HELD_SHARE / 1e6:,.0f} MB, a fourth of "
                "the memory for this build; give the build more memory or the index more buckets, or build with Spark"
            )
        self._spill()

    def groups(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield each index file's number, and its entries in key order, without GROUP."""
        if not self._parts:
            yield from self._sorted()
            return
        self._spill()
        for part in self._parts:
            if len(part.groups) == 1 and not self._keys:  # its writer needs all of it
                self._held = list(part.read())
                part.remove()
                yield from self._sorted()
                continue
            with EntrySorter(self._keys, part.groups, self._most_bytes, self._folder) as within:
                for entries in part.read():
                    within.add(entries)
                part.remove()
                yield from within.groups()

    def streams(self) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        """Yield each index file's number, and its entries in the order in which they were added, in any number of
        tables without GROUP. For a sorter without keys: the entries of one index file may exceed the bound."""
        if not self._parts:
            yield from ((group, iter([entries])) for group, entries in self._sorted())
            return
        self._spill()
        for part in self._parts:
            if len(part.groups) == 1:
                yield part.groups.start, (entries.drop_columns([GROUP]) for entries in part.read())
                part.remove()
                continue
            with EntrySorter(self._keys, part.groups, self._most_bytes, self._folder) as within:
                for entries in part.read():
                    within.add(entries)
                part.remove()
                yield from within.streams()

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
        for group, places in _by_number(numbers):
            if self._keys:
                keys = [held.column(i).chunk(0).take(pa.array(places)) for i in range(self._keys)]
                places = places[sort_order(keys).to_numpy()]
            yield group, held.take(pa.array(places))

    def _spill(self) -> None:
        """Write the held entries to the temporary files of their ranges."""
        if not self._held:
            return
        length = -(-len(self._groups) // MOST_FILES)
        if not self._parts:
            folder = temporary_folder(self._opened, self._folder)
            cuts = [self._groups[at : at + length] for at in range(0, len(self._groups), length)]
            self._parts = [_Part(Path(folder, str(i)), groups) for i, groups in enumerate(cuts)]
        held, numbers = self._taken()
        held = held.append_column(GROUP, pa.array(numbers))
        for number, places in _by_number((numbers - self._groups.start) // length):
            self._parts[number].write(held.take(pa.array(places)))

    def _taken(self) -> tuple[pa.Table, npt.NDArray[np.int32]]:
        """Remove and return the held entries, and the numbers of their index files."""
        held = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        return held.drop_columns([GROUP]), held.column(GROUP).to_numpy()


class _Part:
    """The entries of a range of index files, in a temporary file in Arrow's stream format."""

    def __init__(self, path: Path, groups: range) -> None:
        self.groups = groups
        self.bytes = 0
        self._path = path
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, entries: pa.Table) -> None:
        with writing_temporary_files():
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self._path), entries.schema)
            self._writer.write_table(entries)
        self.bytes += entries.nbytes

    def closed(self) -> Spill:
        """The file, complete."""
        assert self._writer is not None
        with writing_temporary_files():
            self._writer.close()  # closes the file, too
        return Spill(self.groups, str(self._path), self.bytes)

    def read(self) -> Iterator[pa.Table]:
        if self._writer is not None:
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


def _by_number(numbers: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each distinct number, ascending, with the indexes at which it occurs, ascending."""
    small = numbers.astype(np.uint16) if len(numbers) and numbers.max() < 1 << 16 else numbers  # numpy sorts it faster
    order = np.argsort(small, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for places in np.split(order, cuts) if len(order) else ():
        yield int(numbers[places[0]]), places

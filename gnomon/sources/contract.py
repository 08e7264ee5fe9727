"""The interface of a source format: `SourceFile`, `Style`, `Writer`.

`shadow` opens files and passes them as a `RangeReader`; a format makes a `SourceFile` of it. `scan` makes pointers and
`fetch` reads the rows at them. Both belong to the format's package, because each format defines its own pointers
(docs/reference/formats-and-types.md). A `Style` writes new files of a source.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader

Options = Mapping[str, str]  # how to read a file where its bytes do not say: a CSV file's delimiter
Numbers = NDArray[np.int64]
Pointers = Sequence[tuple[int, int]] | Numbers  # data_offset and data_sub_offset of each; an array has two columns
Split = tuple[int, int]  # a range of bytes, (begin, end): the rows that begin in it
Maps = Callable[[], bytes]  # gives the recorded page maps of a file


class SourceFile(Protocol):
    """One data file, with its metadata read. It holds no open file: each call gets the reader. So a cached `SourceFile`
    costs memory only (`cache_bytes`), and the code that opens the file notices a change."""

    @property
    def rows(self) -> int | None:
        """Rows in the file, from its own metadata; None where only a scan can count them (Avro, SequenceFile, text)."""

    @property
    def row_bytes(self) -> int:
        """Mean bytes of a row in the file, at least 1: from its metadata, or from its first rows."""

    @property
    def ragged(self) -> int:
        """The records that scans found so far with fewer or more fields than the header (CSV); 0 in other formats."""

    @property
    def schema(self) -> pa.Schema:
        """The file's columns in file order, in the types that `fetch` returns."""

    @property
    def digest(self) -> str:
        """Hex digest of the file's own metadata, equal for a byte-identical copy. A Parquet file's is that of its
        footer; a text file has no metadata, so its first and last 64 KB are digested."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of memory that a cache counts for this object. May grow as pages are mapped."""

    def scan_bytes(self, columns: Sequence[str]) -> int:
        """Bytes of the file that a scan of these columns reads. A column that the file lacks counts nothing."""

    def splits(self, target: int) -> list[Split]:
        """Ranges of about `target` bytes, to be scanned separately: each row begins in exactly one of them. One range
        of the whole file where it cannot be split."""

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in file order (of a split: the rows that begin in it): the requested columns, then `data_offset`
        int64, `data_sub_offset` int32, `data_size` int32."""

    def units(self, offsets: Numbers) -> Numbers:
        """A number for each of these row offsets. Both ascend. Rows with the same number (in one block or row group)
        share much of the reading if they are fetched together."""

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        """The rows at `(data_offset, data_sub_offset)`, one for each pointer and in the given order (a repeated pointer
        gives a repeated row), with the columns in the requested order.

        Never called with a column that the file lacks: `shadow` fills it with nulls."""


@runtime_checkable
class NarrowFile(Protocol):
    """A file of a format that reads a field of a struct without the other fields."""

    def narrow(self, path: Sequence[str]) -> str:
        """A name by which all methods of the file take the column `path[0]` with the field of the path alone; `path[0]`
        where it is read as a whole. The schema has that field, and not the name. Called before the file is shared."""


class Sized(Protocol):
    """An object that knows its size in memory."""

    @property
    def cache_bytes(self) -> int: ...


class KeptPages(Protocol):
    """A cache of the decompressed pages of one file, for later fetches. Threads may share it."""

    def get(self, key: Hashable) -> Any:
        """The cached page; None where the cache does not hold it, or no longer does."""

    def put(self, key: Hashable, page: Sized) -> None:
        """Cache the page while there is room."""


class PlainValues(NamedTuple):
    """Rows of a file, column by column: the Arrow type of each column, and its values, one for each row. A moment is
    the number of its ticks; text that is not UTF-8 is bytes."""

    types: Sequence[pa.DataType]
    columns: Sequence[Sequence[Any]]


class MappedFile(SourceFile, Protocol):
    """A file of a format that keeps the rows of a column in pages."""

    def values(self, reader: RangeReader, rows: Sequence[int], columns: Sequence[str]) -> PlainValues | None:
        """The rows with these numbers (`data_offset`), as `fetch` has them, without Arrow. None where memory does not
        say where all of these values lie, or a value is in doubt: then `fetch` reads the rows."""

    def keep_in(self, pages: KeptPages) -> None:
        """Cache the pages that fetches decompress in `pages` from now on. Cached pages are not read again: if a fetch
        reads nothing, the caller has to check that the file is unchanged."""

    def export_maps(self, reader: RangeReader, deep: bool = False) -> bytes:
        """The page maps of the whole file, to be recorded: where each page lies and which rows it holds. With `deep`
        also where the values of the pages lie, for which all pages are read. `deep` has no effect if the loops
        (`base.kernel`) are not compiled."""

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        """Read the page locations that a fetch of these rows needs and that are not known yet."""

    @property
    def learned(self) -> int:
        """The number of maps that fetches made or `learn` received. It only grows."""

    def export_learned(self) -> bytes:
        """All that fetches learned about where pages and their values lie, for `learn` in a later process."""

    def learn(self, data: bytes) -> None:
        """Use bytes that `export_learned` made for the same file. DamagedMaps for bytes of another version or file.
        Damaged bytes may cause wrong rows, so the caller has to verify a checksum first."""

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        """Whether recorded page maps equal those that the file gives now. DamagedMaps as `check_maps`."""


class Writer(Protocol):
    """A file that is written in memory: about 128 MB, or as large as the caller lets `size` grow. No byte is available
    before `finish`."""

    @property
    def size(self) -> int:
        """Approximate bytes of the file so far."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows: the columns of the writer's schema by their names, in any order. UnsupportedFormat, with column,
        expected and found, for a value that the file cannot hold."""

    def finish(self) -> bytes:
        """The whole file. The writer cannot be used afterwards."""


class Style(Protocol):
    """How the files of a source are written. It can be pickled, since it is made once and used in many tasks."""

    @property
    def ending(self) -> str:
        """The ending of the names of new files, with its dot. Files must have it: a text file's ending says how it is
        read."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the file that the style was taken from, in their order; empty for a default style."""

    def open(self, schema: pa.Schema, path: str) -> Writer:
        """A writer of a file with these columns, `path` for its messages. UnsupportedFormat where the format, or the
        files of the source, cannot have such columns."""


class FileBehind(ABC):
    """A source file that shows the columns of another file, `_file`, in another way."""

    def __init__(self, file: SourceFile) -> None:
        self._file = cast(MappedFile, file)  # its page maps are asked for only where the format has some
        self.rows, self.row_bytes, self.digest = file.rows, file.row_bytes, file.digest

    @abstractmethod
    def _own(self, columns: Sequence[str]) -> list[str]:
        """The columns of the file behind that are read for these columns."""

    @property
    def ragged(self) -> int:
        return self._file.ragged

    @property
    def cache_bytes(self) -> int:
        return self._file.cache_bytes

    def scan_bytes(self, columns: Sequence[str]) -> int:
        return self._file.scan_bytes(self._own(columns))

    def splits(self, target: int) -> list[Split]:
        return self._file.splits(target)

    def units(self, offsets: Numbers) -> Numbers:
        return self._file.units(offsets)

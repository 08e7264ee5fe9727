"""What a source format implements: `SourceFile`, `Style`, `Writer`.

`shadow` opens files and passes them as a `RangeReader`; a format makes a `SourceFile` of it. `scan` makes pointers and
`fetch` reads the rows at them. Both belong to the package of a format, for the meaning of a pointer is the format's own
(docs/reference/formats-and-types.md). A `Style` writes new files of a source.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader

Options = Mapping[str, str]  # how a file is to be read where its bytes do not say: a CSV file's delimiter
Numbers = NDArray[np.int64]
Pointers = Sequence[tuple[int, int]] | Numbers  # data_offset and data_sub_offset of each; an array has two columns
Split = tuple[int, int]  # a range of bytes, from and to: the rows that begin in it
Maps = Callable[[], bytes]  # gives the page maps of a file as they were recorded


class SourceFile(Protocol):
    """One data file, its metadata read. Holds no open file: each call is handed the reader anew, so that a
    cached `SourceFile` costs memory only (`cache_bytes`) and a changed file is noticed where it is opened."""

    @property
    def rows(self) -> int | None:
        """Rows in the file, from its own metadata; None where only a scan can tell (Avro, SequenceFile, text)."""

    @property
    def row_bytes(self) -> int:
        """Mean bytes of a row in the file, at least 1: from its metadata, or from its first rows."""

    @property
    def schema(self) -> pa.Schema:
        """The file's columns in file order, in the types `fetch` returns them in."""

    @property
    def digest(self) -> str:
        """Hex digest of the file's own metadata (Parquet: the footer; text has none: its first and last 64 KB): equal
        for a byte-identical copy."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of memory this object is worth in a cache; may grow as pages are mapped."""

    def scan_bytes(self, columns: Sequence[str]) -> int:
        """Bytes of the file that a scan of these columns reads (a column it does not have counts nothing)."""

    def splits(self, target: int) -> list[Split]:
        """The file in ranges of about `target` bytes that can be scanned apart: each row begins in exactly one of them.
        The whole file where it cannot be split."""

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows (of a split: those that begin in it) in file order: the columns asked for, then `data_offset` int64,
        `data_sub_offset` int32, `data_size` int32."""

    def units(self, offsets: Numbers) -> Numbers:
        """For rows at these offsets, which rise, numbers that rise with them: of rows that share one (those of a block,
        of a row group) much is read once if they are fetched together."""

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        """The rows at `(data_offset, data_sub_offset)`, one for each pointer and in the order given
        (a repeated pointer gives a repeated row), with the columns in the order asked.

        A column the file does not have is not asked for here: `shadow` fills it with nulls."""


class Sized(Protocol):
    """Something that knows what it costs in memory."""

    @property
    def cache_bytes(self) -> int: ...


class KeptPages(Protocol):
    """Where pages of one file are kept, unpacked, for the next fetch. Threads may share it."""

    def get(self, key: Hashable) -> Any:
        """What was put there; None where it is not kept, or not any more."""

    def put(self, key: Hashable, page: Sized) -> None:
        """Keep it while there is room."""


class MappedFile(SourceFile, Protocol):
    """A file of a format that keeps the rows of a column in pages."""

    def keep_in(self, pages: KeptPages) -> None:
        """Keep the pages that fetches unpack in `pages` from now on. Kept pages are not read again: if a fetch reads
        nothing, the caller has to check that the file is still the same."""

    def export_maps(self, reader: RangeReader) -> bytes:
        """The page maps of the whole file, to be recorded: where each page lies and which rows it holds."""

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        """Read what a fetch of these rows needs to know of pages, and does not know yet."""

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        """Whether page maps that were recorded are those that the file gives now. DamagedMaps as `check_maps`."""


class Writer(Protocol):
    """A file being written, in memory: some 128 MB of it, or what the caller lets `size` grow to. Nothing is handed out
    before `finish`."""

    @property
    def size(self) -> int:
        """About how many bytes the file has so far."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows: the columns of the writer's schema by their names, in any order. UnsupportedFormat, with
        column, expected and found, for a value that the file cannot hold."""

    def finish(self) -> bytes:
        """The whole file. The writer is spent."""


class Style(Protocol):
    """How the files of a source are written. It can be pickled: it is made once, and used in many tasks."""

    @property
    def ending(self) -> str:
        """Of the names of the files, with its dot. They must have it: of text it says how it is read."""

    @property
    def columns(self) -> Sequence[str]:
        """Those of the file that it was taken from, in their order; none of a default."""

    def open(self, schema: pa.Schema, path: str) -> Writer:
        """A writer of a file with these columns, `path` for its messages. UnsupportedFormat where the format, or the
        files of the source, do not have such columns."""

"""The two kinds of index entries, and all their differences.

The entries of an index point to the rows of its source. The entries of a key-value folder are the rows: the folder has
no source, and each of its segments lists the rows that one write brought to a partition as one source file. Callers
use the methods of `IndexSpec.entries`, which both kinds have, and do not check the kind.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.keys import Key
from gnomon.btree.schema import Column
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.sources import POINTER_COLUMNS, Pointer

PARTITIONED, FLAT, VALUES = "partitioned", "flat", "values"  # layouts; VALUES is a format, too
PARTITIONED_VALUES = "values by partition"
POINTER_TYPES = ("string", "bigint", "int", "int")
POINTER_SCHEMA = tuple(Column(n, t, nullable=False) for n, t in zip(POINTER_COLUMNS, POINTER_TYPES, strict=True))
POINTER_LENGTH = len(POINTER_COLUMNS)
NO_POINTER = Pointer("", 0, 0, 0)
NO_VALUES = "a key-value folder needs a column beside the key; add one, a constant where there is none"


class PointerEntries:
    """Entries with a pointer to a row of the source."""

    remedy = Action.BUILD_FULL  # the advice for a damaged index file
    pointer_columns = POINTER_SCHEMA  # the last columns of an entry
    columns_may_change = False  # from one snapshot to the next

    def layout(self, flat: bool, partitions: Sequence[str]) -> str:
        """The layout of an index of these partition columns. A program that does not know it refuses the index."""
        return FLAT if flat else PARTITIONED

    def check_source(self, what: str, path: str = "") -> None:
        """Raise UsageError with this text where there is no source."""

    def check_included(self, included: Sequence[object]) -> None:
        """Raise UsageError for included columns that no entry can have."""

    def row_columns(self, stored: Sequence[str], partitions: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of an entry as a row, from its stored columns, the partition columns, and all columns of the
        source."""
        return tuple(dict.fromkeys((*stored, *partitions, *POINTER_COLUMNS)))

    def source_files(self, segment: Segment) -> Collection[SourceFileEntry]:
        """The live source files of a segment."""
        return segment.live.values()

    def pointer(self, values: Key) -> Pointer:
        """The pointer at the end of the value columns of an entry."""
        return Pointer._make(values[-POINTER_LENGTH:])

    def pointers(self, columns: Sequence[Sequence[Any]]) -> Iterable[Pointer]:
        """The pointers of n entries, from the values of their value columns."""
        return map(Pointer._make, zip(*columns[-POINTER_LENGTH:], strict=True))

    def file_name(self, segment: Segment, folder: str, values: Key) -> str:
        """The path of the source file of an entry in a folder of index files, as the segment lists it."""
        name = values[-POINTER_LENGTH]
        assert isinstance(name, str)
        return name

    def file_names(self, segment: Segment, folder: str, columns: Sequence[pa.Array]) -> pa.Array:
        """The paths of the source files of n entries in a folder, as n texts. `columns` ends with the value columns."""
        return columns[-POINTER_LENGTH]

    def offsets(self, columns: Sequence[pa.Array]) -> pa.Array | None:
        """The offsets of the pointers of n entries, as n integers. `columns` ends with the value columns."""
        return columns[1 - POINTER_LENGTH]

    def value_bytes(self, most: int | None) -> int | None:
        """The most bytes of a key's values that a look-up keeps. None is no limit."""
        return None


class ValueEntries:
    """Entries that are the rows of a key-value folder. All of them are live."""

    remedy = Action.WRITE_VALUES
    pointer_columns = ()
    columns_may_change = True  # an overwrite may bring other columns

    def layout(self, flat: bool, partitions: Sequence[str]) -> str:
        return PARTITIONED_VALUES if partitions else VALUES

    def check_source(self, what: str, path: str = "") -> None:
        raise UsageError(what, path)

    def check_included(self, included: Sequence[object]) -> None:
        if not included:
            raise UsageError(NO_VALUES)

    def row_columns(self, stored: Sequence[str], partitions: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(columns)

    def source_files(self, segment: Segment) -> Collection[SourceFileEntry]:
        return ()

    def pointer(self, values: Key) -> Pointer:
        return NO_POINTER

    def pointers(self, columns: Sequence[Sequence[Any]]) -> Iterable[Pointer]:
        return repeat(NO_POINTER, len(columns[0]))

    def file_name(self, segment: Segment, folder: str, values: Key) -> str:
        return segment.source_files_in[folder][0].path

    def file_names(self, segment: Segment, folder: str, columns: Sequence[pa.Array]) -> pa.Array:
        return pa.repeat(self.file_name(segment, folder, ()), len(columns[0]))

    def offsets(self, columns: Sequence[pa.Array]) -> pa.Array | None:
        return None

    def value_bytes(self, most: int | None) -> int | None:
        return most


POINTER_ENTRIES, VALUE_ENTRIES = PointerEntries(), ValueEntries()

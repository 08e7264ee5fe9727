"""Data files: `scan` makes a pointer for each row, `fetch` turns pointers back into rows.

contract   what a format answers (`SourceFile`) and what it is handed (`RangeReader`)
registry   format name to opener: `open_source`, `detect`
pointer    the pointer and its column names; docs/pointers.md says what it means in each format
errors     the three ways a data file fails
ranges     reads through any reader; `range_file` dresses one as a file
parquet    the formats, a module or folder each
"""

from sources.contract import RangeReader, SourceFile
from sources.errors import DamagedSource, SourceError, StalePointer, UnsupportedFormat
from sources.pointer import POINTER_COLUMNS, Pointer
from sources.registry import FORMATS, detect, open_source

__all__ = [
    "FORMATS",
    "POINTER_COLUMNS",
    "DamagedSource",
    "Pointer",
    "RangeReader",
    "SourceError",
    "SourceFile",
    "StalePointer",
    "UnsupportedFormat",
    "detect",
    "open_source",
]

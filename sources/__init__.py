"""Data files: `scan` makes a pointer for each row, `fetch` turns pointers back into rows.

contract   what a format answers (`SourceFile`) and what it is handed (`RangeReader`)
registry   format name to opener: `open_source`, `detect`, `open_mapped`
pointer    the pointer and its column names; docs/pointers.md says what it means in each format
errors     the three ways a data file fails
writing    further files of a source, as its others are: `style_of`, `open_writer`, `check_written`
ranges     reads through any reader; `range_file` dresses one as a file
parquet    the formats, a module or folder each; text: CSV and JSON lines
ddl        Spark's DDL, in which a schema is given; `text_values` and `json_values` read values by one, `json_infer`
           makes one of JSON rows
fitting    values on their way into a file, and compared with what is read back; `planned` the columns of the file
"""

from sources.contract import MappedFile, Maps, Numbers, Options, RangeReader, SourceFile, Split, Style, Writer
from sources.declared import DECLARED
from sources.errors import DamagedSource, NotReadBack, OptionError, SourceError, StalePointer, UnsupportedFormat
from sources.parquet import DamagedMaps
from sources.pointer import POINTER_COLUMNS, Pointer
from sources.registry import FORMATS, check_maps, check_options, detect, format_of_name, open_mapped, open_source
from sources.writing import check_written, open_writer, style_of

__all__ = [
    "DECLARED",
    "FORMATS",
    "POINTER_COLUMNS",
    "DamagedMaps",
    "DamagedSource",
    "MappedFile",
    "Maps",
    "NotReadBack",
    "Numbers",
    "OptionError",
    "Options",
    "Pointer",
    "RangeReader",
    "SourceError",
    "SourceFile",
    "Split",
    "StalePointer",
    "Style",
    "UnsupportedFormat",
    "Writer",
    "check_maps",
    "check_options",
    "check_written",
    "detect",
    "format_of_name",
    "open_mapped",
    "open_source",
    "open_writer",
    "style_of",
]

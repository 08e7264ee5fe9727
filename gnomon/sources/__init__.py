"""Data files of all formats: `scan` makes a pointer for each row, `fetch` reads the rows at pointers.

- `contract`         the interface of a format (`SourceFile`, `Style`, `Writer`)
- `registry`         the formats, by name: `open_source`, `detect`, `open_mapped`; new files: `style_of`, `open_writer`
- `errors`           the errors of data files
- `pointers`         pointers and their columns (docs/reference/formats-and-types.md says what a pointer means)
- `dione_pointers`   Dione's pointers as ordinals of rows, and as Gnomon's pointers
- `declared_schema`  a file read with the columns that a catalog's table declares
- `types`            DDL, exact casts
- `literals`         values as text: JSON, cells of CSV
- `parquet`, `avro`, `orc`, `sequence`, `text`: the formats
"""

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import MappedFile, Maps, Numbers, Options, SourceFile, Split, Style, Writer
from gnomon.sources.declared_schema import DECLARED
from gnomon.sources.dione_pointers import NO_ROW, RowTable, row_table
from gnomon.sources.errors import DamagedSource, NotReadBack, OptionError, SourceError, StalePointer, UnsupportedFormat
from gnomon.sources.parquet import DamagedMaps
from gnomon.sources.pointers import POINTER_COLUMNS, Pointer
from gnomon.sources.registry import (
    FORMATS,
    check_maps,
    check_options,
    check_written,
    detect,
    format_of_name,
    maps_have_values,
    open_mapped,
    open_source,
    open_writer,
    style_of,
    table_style,
)

__all__ = [
    "DECLARED",
    "FORMATS",
    "NO_ROW",
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
    "RowTable",
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
    "maps_have_values",
    "open_mapped",
    "open_source",
    "open_writer",
    "row_table",
    "style_of",
    "table_style",
]

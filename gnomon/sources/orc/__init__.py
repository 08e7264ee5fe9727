"""ORC, decoded column by column from the row groups that a fetch needs.

The pointer of a row is its ordinal in the file (docs/internals/other-formats.md). The libraries that read ORC crash the
process on some damaged files, so this package decodes the bytes itself.

- `reader`        the `SourceFile`: opens a file, scans, fetches
- `metadata`      postscript and footer; the footers and row indexes of stripes
- `schema`        the tree of types in the footer; Protocol Buffers' wire format
- `streams`       the bytes of one stream, and the compression of its chunks
- `rle`           run-length encodings, and bit-packed numbers
- `columns`       one class for each kind of column
- `values`        decimals; epochs, time zones and calendars of dates and timestamps
- `stripe_rows`   the rows of stripes: all in batches, or the ones at pointers
- `write`         ORC files written like another one of their source
"""

from gnomon.sources.orc.metadata import MAGIC
from gnomon.sources.orc.reader import OPTIONS, TIMESTAMP_UNIT, OrcFile, open_orc
from gnomon.sources.orc.write import orc_style

__all__ = [
    "MAGIC",
    "OPTIONS",
    "TIMESTAMP_UNIT",
    "OrcFile",
    "open_orc",
    "orc_style",
]

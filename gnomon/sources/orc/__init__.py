"""ORC, decoded column by column from the row groups that a fetch needs.

The pointer of a row is its ordinal in the file (docs/internals/other-formats.md). The libraries that read ORC crash the
process on some damaged files, so this package decodes the bytes itself.

- `reader`           the `SourceFile`: opens a file, scans, fetches
- `file_tail`        postscript and footer
- `schema`           the tree of types in the footer
- `stripe`           a stripe's footer and row indexes
- `stripe_metadata`  reads the footers and row indexes of stripes
- `streams`          the bytes of one stream
- `codecs`           compression of chunks
- `chunk_skipping`   finds the chunks that a fetch need not decompress
- `rle_v1`           run-length encodings of bytes, booleans, and integers of version 1
- `rle_v2`           run-length encoding of integers, version 2
- `bit_packing`      bit-packed numbers, many at a time
- `column_base`      streams, nulls and positions that all columns share
- `column_types`     one class for each kind of column
- `temporal`         epochs, time zones and calendars of dates and timestamps
- `decimals`         decimal values
- `scan`             the rows of one stripe, with their pointers
- `fetch`            rows at pointers
- `write`            ORC files written like another one of their source
- `protobuf`         Protocol Buffers' wire format
- `errors`           errors without file and column, which the reader adds
"""

from gnomon.sources.orc.file_tail import MAGIC
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

"""Hadoop SequenceFiles, versions 4 to 6.

The pointer of a row is the position of its record, or the position of its block and the row's place in it.

- `reader`         the `SourceFile`: opens a file, scans, fetches
- `header`         class names, codec and sync marker
- `codecs`         compression of records and blocks
- `records`        files of single records: scan
- `record_fetch`   files of single records: rows at pointers
- `blocks`         files of compressed blocks: scan
- `block_fetch`    files of compressed blocks: rows at pointers
- `row_layout`     the classes of keys and values, and their columns
- `writables`      Hadoop's value classes as Arrow columns
- `value_columns`  values that are delimited text or JSON, as columns
- `delimited`      escapes in delimited text
- `scan_buffer`    the part of a file that a scan holds; the search for sync markers
- `varints`        Hadoop's variable-length numbers
"""

from gnomon.sources.sequence.header import MAGIC
from gnomon.sources.sequence.reader import SequenceFile, open_sequence
from gnomon.sources.sequence.value_columns import OPTIONS, unnamed_values

__all__ = [
    "MAGIC",
    "OPTIONS",
    "SequenceFile",
    "open_sequence",
    "unnamed_values",
]

"""Hadoop SequenceFiles, versions 4 to 6.

The pointer of a row is the position of its record, or the position of its block and the row's place in it.

- `reader`         the `SourceFile`: opens a file, scans, fetches
- `layout`         header and codecs; the classes of keys and values, and their columns; the buffer of a scan
- `records`        files of single records: scan, and rows at pointers
- `blocks`         files of compressed blocks: scan, and rows at pointers
- `writables`      Hadoop's value classes as Arrow columns, and its variable-length numbers
- `value_columns`  values that are delimited text or JSON, as columns
"""

from gnomon.sources.sequence.layout import MAGIC
from gnomon.sources.sequence.reader import SequenceFile, open_sequence
from gnomon.sources.sequence.value_columns import OPTIONS, unnamed_values

__all__ = [
    "MAGIC",
    "OPTIONS",
    "SequenceFile",
    "open_sequence",
    "unnamed_values",
]

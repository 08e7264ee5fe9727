"""Hadoop SequenceFiles, versions 4 to 6. The pointer of a row is the position of its record, or of its block and its
place in it.

header     class names, codec and sync marker at the head of the file
codecs     what records and blocks are compressed with
vints      Hadoop's numbers of variable length, a whole buffer at a time
writables  Hadoop's value classes as Arrow columns
window     the piece of the file that a scan holds; sync markers and splits
records    files whose records stand alone
blocks     files whose records are compressed together
value_columns  values of delimited text or JSON as columns; escapes in them
reader     all of it as a `SourceFile`
"""

from sources.sequence.reader import open_sequence
from sources.sequence.value_columns import OPTIONS, unnamed_values

__all__ = ["OPTIONS", "open_sequence", "unnamed_values"]

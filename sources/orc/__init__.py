"""ORC: the pointer of a row is its ordinal in the file (docs/pointers.md). Decoded here, column by column, from the
bytes of the groups of rows that are wanted: the libraries there are end the process on some damaged files.

reader     `open_orc`, and the file as a `SourceFile`; load what it must know of stripes, scan and fetch their rows
tail       postscript and footer; schema the types in it; stripe the footer and row indexes of a stripe
streams    the bytes of a stream; codecs unpacks them
runs       run-length encodings; integers the second version of that of integers; bitpack numbers in bits
column     what the columns of a stripe have in common; columns their kinds, as Arrow arrays
temporal   what is special of dates and timestamps; decimals of those
write      further files as one of them is
protobuf   the wire format of the metadata
"""

from sources.orc.reader import OPTIONS, open_orc

__all__ = ["OPTIONS", "open_orc"]

"""The pointer: where one row of a source lies. Column names are Dione's; the meaning of the numbers belongs to
each format (docs/pointers.md)."""

from typing import NamedTuple

FILENAME = "data_filename"
OFFSET = "data_offset"
SUB_OFFSET = "data_sub_offset"
SIZE = "data_size"
POINTER_COLUMNS = (FILENAME, OFFSET, SUB_OFFSET, SIZE)


class Pointer(NamedTuple):
    """`data_filename` is relative to the source root where the file lies under it, else absolute.

    `data_size` is in bytes (for columnar formats the mean of the file's rows): a weight for splitting work,
    never a length to read."""

    data_filename: str
    data_offset: int
    data_sub_offset: int
    data_size: int

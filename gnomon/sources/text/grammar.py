"""The interface that CSV and JSON lines implement for `text_file`, and the common interface of blocks of records."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.sources.types import RefusedValue

Positions = NDArray[np.int64]


class Block(Protocol):
    """Whole records, found in some bytes: the begin and end of each (without its line end), without blank ones.
    `consumed` bytes are parsed; the rest is the beginning of another record."""

    data: bytes
    starts: Positions
    ends: Positions
    consumed: int

    def texts(self, begin: int, end: int) -> list[bytes]:
        """The bytes of records. `RefusedValue` for the first that is not UTF-8."""

    def ragged(self, rows: int) -> int:
        """The number of the first `rows` records that have another number of fields than the others."""

    def read(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        """The records from ordinal `begin` to `end`. `RefusedValue` counts from `begin`."""


class Grammar(Protocol):
    @property
    def schema(self) -> pa.Schema: ...

    @property
    def splittable(self) -> bool:
        """Whether each line end ends a record."""

    def find(self, data: bytes, final: bool) -> Block:
        """The records in `data`, which begins with one. `final`: the text ends with `data`, and so does the last
        record. The index of `RefusedValue` is a byte."""

    def end_of(self, data: bytes, begin: int, final: bool) -> int | None:
        """The end of the record at `begin`; None if it is not within `data`."""

    def next_line(self, data: bytes) -> int | None:
        """The position after the first line end; None if there is none, or if the next byte may belong to it."""

    def parts(self, before: int, after: int) -> bool:
        """Whether a record may begin between these two bytes."""


def check_utf8(data: bytes, starts: Positions, ends: Positions) -> None:
    """`RefusedValue` for the first record that is not UTF-8."""
    if not len(starts):
        return
    begin, end = int(starts[0]), int(ends[-1])
    text = data[begin:end]
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        at = begin + error.start
        record = int(np.searchsorted(starts, at, side="right")) - 1
        found = f"{data[at]:#04x} at its byte {at - int(starts[record])}"
        raise RefusedValue(record, f"a record that is not UTF-8: {found}") from None


def mean_bytes(block: Block) -> int:
    """Mean length of the records of a block with their line ends, at least 1."""
    return max(block.consumed // max(len(block.starts), 1), 1)

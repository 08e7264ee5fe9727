"""Limits of one answer, and the errors of answers beyond them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.keys import Key
from gnomon.shadow.errors import BeyondBound

SHARE_BYTES = 16 << 20  # approximate size in memory of the rows that are read before they are counted
NUMBER_BYTES = 8  # of a value that is neither text nor bytes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Limits of a whole answer: rows, and bytes of their values in memory. None is no limit. `rows_before` and
    `bytes_before` count what the answer already has, if its keys are looked up in several queries."""

    rows: int | None = None
    bytes: int | None = None
    rows_before: int = 0
    bytes_before: int = 0

    def too_many_rows(self, matches: int, wanted: int, before: int) -> BeyondBound | None:
        """The error, if any, of adding a key to an answer. `matches` are the key's rows, `wanted` the requested ones,
        `before` the rows already in the answer."""
        most = self.rows
        if most is None or before + wanted <= most:
            return None
        if wanted > most:
            text = (
                f"the key has {matches:,} rows; an answer takes {most:,} at most: set a limit, or narrow it with where"
            )
        else:
            text = (
                f"the key has {matches:,} rows, and the keys before it {before:,}; an answer takes {most:,} at most: "
                "ask for fewer keys at a time"
            )
        return BeyondBound(text, "rows", most, matches)

    def too_many_bytes(self, matches: int, seen: tuple[int, int] | None = None) -> BeyondBound:
        """The error of a key whose rows alone exceed the limit. `seen` has the number of rows read, and their bytes."""
        most = self.bytes or 0
        some = f", {seen[0]:,} of which take {seen[1]:,} bytes" if seen is not None else ""
        text = (
            f"the key has {matches:,} rows{some}; an answer takes {most:,} bytes at most: ask for fewer columns, or "
            "set a limit"
        )
        return BeyondBound(text, "bytes", most, matches)

    def is_full(self, matches: int, held: int) -> BeyondBound:
        """The error of a key whose rows no longer fit into the answer."""
        most = self.bytes or 0
        text = (
            f"the rows of the keys before it take {held:,} bytes; an answer takes {most:,} at most: ask for fewer keys "
            "at a time"
        )
        return BeyondBound(text, "bytes", most, matches)


def bytes_of_rows(table: pa.Table) -> Ints:
    """The bytes that the values of each row take in memory."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        begin = 0
        for chunk in column.chunks:
            sizes[begin : begin + len(chunk)] += _sizes(chunk)
            begin += len(chunk)
    return sizes


def _sizes(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return NUMBER_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64) + NUMBER_BYTES
    return np.array([array.slice(row, 1).nbytes for row in range(len(array))], np.int64)


def bytes_of_key(values: Key) -> int:
    """The bytes that values in stored form take in memory."""
    return sum(len(value) if isinstance(value, (str, bytes)) else NUMBER_BYTES for value in values)

"""Sorted batches to Avro records, with the checks that each writer needs before it places them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.encode import NULL_FIRST, EncodedRows, encode_rows, normalise
from gnomon.btree.errors import BTreeError, UnsortedKeys
from gnomon.btree.format import ENTRY_LIMIT
from gnomon.btree.keys import adjacent
from gnomon.btree.schema import EntrySchema


class SortedRows(NamedTuple):
    """The records of a batch, and the rows whose key differs from the row before."""

    records: EncodedRows
    changes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.records.starts) - 1


class RowEncoder:
    """Encodes one batch after the other. Keys must not decrease, not even between batches."""

    UNION = NULL_FIRST  # of a nullable column
    ONE_ZERO = True  # whether -0.0 in a key becomes 0.0

    def __init__(self, schema: EntrySchema) -> None:
        self._schema = schema
        self._last: list[pa.Array] | None = None  # key of the last row, one-row arrays
        self.entries = 0  # so far

    def encode(self, batch: pa.RecordBatch | pa.Table) -> SortedRows | None:
        """The rows of a batch; None for an empty one. UnsortedKeys, or BTreeError for a value that its type does not
        have."""
        columns = self._schema.columns
        if batch.num_columns != len(columns):
            raise BTreeError("", expected=f"a batch of {len(columns)} columns", found=batch.num_columns)
        if batch.num_rows == 0:
            return None
        keys = len(self._schema.keys) if self.ONE_ZERO else 0
        arrays = [normalise(batch.column(i), column, one_zero=i < keys) for i, column in enumerate(columns)]
        changes = self._key_changes(arrays[: len(self._schema.keys)], batch.num_rows)
        records = encode_rows(arrays, self._schema, self.UNION)
        self._check_lengths(records)
        self.entries += batch.num_rows
        return SortedRows(records, changes)

    def _check_lengths(self, records: EncodedRows) -> None:
        lengths = np.diff(records.starts)
        longest = int(np.argmax(lengths))
        if lengths[longest] > ENTRY_LIMIT:
            raise BTreeError(
                f"row {self.entries + longest} makes an entry of {lengths[longest]} bytes, the limit is {ENTRY_LIMIT}; "
                "its key or its other columns are too long"
            )

    def _key_changes(self, keys: list[pa.Array], rows: int) -> npt.NDArray[np.int64]:
        keys = [key.dictionary_decode() if pa.types.is_dictionary(key.type) else key for key in keys]
        if self._last is None:
            joined = keys
        else:
            joined = [pa.concat_arrays([last, key]) for last, key in zip(self._last, keys, strict=True)]
        equal, sorted_ = self._adjacent(joined)
        if not sorted_.all():
            at = self.entries + int(np.argmin(sorted_)) + (0 if self._last is not None else 1)
            raise UnsortedKeys(f"the key of row {at} is less than the key before it; sort by the key columns")
        self._last = [key.slice(rows - 1) for key in keys]
        changed = ~equal if len(equal) == rows else np.concatenate([[True], ~equal])
        return np.flatnonzero(changed)

    def _adjacent(self, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        """Each row compared with the row before it, as `keys.adjacent` does."""
        return adjacent(keys)

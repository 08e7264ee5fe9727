"""Sorted batches to Avro records, with the checks that each writer needs before it places them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.encode import NULL_FIRST, NULL_LAST, EncodedRows, encode_rows, normalise
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
    """Encodes one batch after the other. Keys must not decrease, not even between batches. In the order of Dione's
    files nulls are greatest, and -0.0 is a different key, before 0.0."""

    def __init__(self, schema: EntrySchema, as_dione: bool = False) -> None:
        self._schema = schema
        self._as_dione = as_dione
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
        keys = 0 if self._as_dione else len(self._schema.keys)
        arrays = [normalise(batch.column(i), column, one_zero=i < keys) for i, column in enumerate(columns)]
        changes = self._key_changes(arrays[: len(self._schema.keys)], batch.num_rows)
        records = encode_rows(arrays, self._schema, NULL_LAST if self._as_dione else NULL_FIRST)
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
        if self._as_dione:
            keys = [_total_order(key) for key in keys]
        if self._last is None:
            joined = keys
        else:
            joined = [pa.concat_arrays([last, key]) for last, key in zip(self._last, keys, strict=True)]
        equal, sorted_ = adjacent(joined, nulls_last=self._as_dione)
        if not sorted_.all():
            at = self.entries + int(np.argmin(sorted_)) + (0 if self._last is not None else 1)
            raise UnsortedKeys(f"the key of row {at} is less than the key before it; sort by the key columns")
        self._last = [key.slice(rows - 1) for key in keys]
        changed = ~equal if len(equal) == rows else np.concatenate([[True], ~equal])
        return np.flatnonzero(changed)


def _total_order(key: pa.Array) -> pa.Array:
    """Floats as integers that compare as Java does: -0.0 before 0.0, and NaN last."""
    if not pa.types.is_floating(key.type):
        return key
    double = key.cast(pa.float64())
    bits = double.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    return pa.array(ordered, pa.int64(), mask=double.is_null().to_numpy(zero_copy_only=False))

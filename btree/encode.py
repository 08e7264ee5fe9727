"""Arrow columns to Avro records, a whole batch at a time, with the checks that each writer needs before it places them.

Each column becomes one Arrow binary column with the Avro bytes of its values; then one call joins the columns of each
row. No Python object is made for a row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.base.varints import encode_signed_array
from gnomon.btree.errors import BTreeError, UnsortedKeys
from gnomon.btree.format import ENTRY_LIMIT, NULL_LINK
from gnomon.btree.keys import DECIMAL_BYTES, adjacent, key_array
from gnomon.btree.schema import Column, EntrySchema


class Union(NamedTuple):
    """The bytes that select the two branches of a nullable column."""

    null: bytes
    value: bytes


NULL_FIRST = Union(b"\x00", b"\x02")  # ["null", T]: ours


class EncodedRows:
    """The Avro records of a batch, concatenated, each with a null link at its end.

    `data` holds the bytes; record i lies at `starts[i]` to `starts[i + 1]`."""

    def __init__(self, records: pa.LargeBinaryArray) -> None:
        _, offsets, data = records.buffers()
        starts: npt.NDArray[np.int64] = np.frombuffer(offsets, np.int64)
        self.starts = starts[records.offset : records.offset + len(records) + 1]
        self.data = memoryview(data) if data is not None else memoryview(b"")


def normalise(array: pa.Array | pa.ChunkedArray, column: Column, one_zero: bool = True) -> pa.Array:
    """A column in the Arrow type of its column type, with one NaN and one zero. Text may stay dictionary-encoded.

    BTreeError where the values are of another kind than the type, or one exceeds it, is not UTF-8, or is null in a
    column that allows no nulls."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    array = _cast(array, column)
    if column.type == "string":
        try:
            array.validate(full=True)  # Spark's text may hold any bytes
        except MemoryError:  # ArrowMemoryError, which says nothing about the values
            raise
        except pa.ArrowException as error:
            raise BTreeError(str(error), column=column.name, expected="string") from None
    if pa.types.is_floating(array.type):
        if one_zero:
            zero = pa.scalar(0.0, array.type)
            array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
    if array.null_count and not column.nullable:
        raise BTreeError("holds a null, but its schema allows none", column=column.name)
    return array


def _cast(array: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_dictionary(array.type) or column.type != "string":
        return key_array(array, column.type, column.name)
    words = key_array(array.dictionary, column.type, column.name)
    if words.null_count:  # the dictionary, too, may hold a null
        return words.take(array.indices)
    return pa.DictionaryArray.from_arrays(array.indices, words)


def encode_rows(arrays: list[pa.Array], schema: EntrySchema, union: Union = NULL_FIRST) -> EncodedRows:
    """The records of a batch, from its columns in schema order (as returned by `normalise`)."""
    columns = zip(arrays, schema.columns, strict=True)
    parts = [part for array, column in columns for part in _encode_column(array, column, union)]
    link = pa.scalar(NULL_LINK, pa.large_binary())
    return EncodedRows(pc.binary_join_element_wise(*parts, link, pa.scalar(b"", pa.large_binary())))


def encode_keys(arrays: Sequence[pa.Array], columns: Sequence[Column]) -> bytes:
    """The records of key columns alone, without links, one after the other."""
    parts = [p for array, one in zip(arrays, columns, strict=True) for p in _encode_column(array, one, NULL_FIRST)]
    rows = EncodedRows(_join([pa.array([b""] * len(arrays[0]), pa.large_binary()), *parts]))
    return bytes(rows.data[rows.starts[0] : rows.starts[-1]])


def _encode_column(array: pa.Array, column: Column, union: Union) -> list[pa.Array | pa.Scalar]:
    """The bytes of each value in one or two parts: the branch and length, and the value."""
    if pa.types.is_dictionary(array.type):
        words = _join(_encode_column(array.dictionary, Column(column.name, column.type, nullable=False), union))
        values = words.take(array.indices)
        if not column.nullable:
            return [values]
        return [_branches(array, union), pc.fill_null(values, b"")]
    parts = _encode_values(array)
    if not column.nullable:
        return parts
    if not array.null_count:
        return [pa.scalar(union.value, pa.large_binary()), *parts]
    valid = array.is_valid()
    nothing = pa.scalar(b"", pa.large_binary())
    return [_branches(array, union), *(pc.if_else(valid, part, nothing) for part in parts)]


def _branches(array: pa.Array, union: Union) -> pa.Array:
    value, null = pa.scalar(union.value, pa.large_binary()), pa.scalar(union.null, pa.large_binary())
    return pc.if_else(array.is_valid(), value, null)


def _join(parts: list[pa.Array | pa.Scalar]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _encode_values(array: pa.Array) -> list[pa.Array]:
    """The bytes of the values. For a null the bytes are undefined."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return [_longs(lengths.astype(np.int64)), pc.fill_null(array.cast(pa.large_binary()), b"")]
    if pa.types.is_boolean(kind):
        one, zero = pa.scalar(b"\x01", pa.large_binary()), pa.scalar(b"\x00", pa.large_binary())
        return [pc.if_else(pc.fill_null(array, False), one, zero)]
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_floating(kind):
        width = kind.bit_width // 8
        raw = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
        data = np.ascontiguousarray(raw, f"<f{width}").view(np.uint8)
        return [_fixed(data, width, len(array))]
    whole = array.view(pa.int32()) if pa.types.is_date32(kind) else array
    whole = array.view(pa.int64()) if pa.types.is_timestamp(kind) else whole
    return [_longs(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64))]


def _longs(values: npt.NDArray[np.int64]) -> pa.Array:
    data, offsets = encode_signed_array(values)
    return _binary(data, offsets)


def _binary(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _fixed(data: npt.NDArray[np.uint8], width: int, rows: int) -> pa.Array:
    return _binary(data, np.arange(0, (rows + 1) * width, width, dtype=np.int64)[: rows + 1])


def _decimals(array: pa.Array) -> list[pa.Array]:
    """Length and shortest big-endian two's complement of each unscaled value."""
    rows = len(array)
    raw = np.frombuffer(array.buffers()[1], np.uint8, rows * DECIMAL_BYTES, array.offset * DECIMAL_BYTES)
    big = raw.reshape(rows, DECIMAL_BYTES)[:, ::-1]
    sign = np.where(big[:, :1] > 0x7F, 0xFF, 0).astype(np.uint8)
    needed = big != sign  # bytes other than sign extension
    first = np.where(needed.any(axis=1), needed.argmax(axis=1), DECIMAL_BYTES)
    # the first byte kept must still show the sign
    at = np.minimum(first, DECIMAL_BYTES - 1)
    head = big[np.arange(rows), at]
    keep_sign = (first == DECIMAL_BYTES) | ((head ^ sign[:, 0]) > 0x7F)
    first = np.where(keep_sign, first - 1, first)
    lengths = (DECIMAL_BYTES - first).astype(np.int64)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = big[np.arange(DECIMAL_BYTES)[None, :] >= first[:, None]]
    return [_longs(lengths), _binary(np.ascontiguousarray(data), offsets)]


# -- sorted batches ----------------------------------------------------------------------------------------------------


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

"""The pointer's columns behind those of a scanned batch."""

import pyarrow as pa

from sources.pointer import OFFSET, SIZE, SUB_OFFSET

POINTER_FIELDS = (pa.field(OFFSET, pa.int64()), pa.field(SUB_OFFSET, pa.int32()), pa.field(SIZE, pa.int32()))


def with_pointers(columns: pa.RecordBatch, offsets: pa.Array, sub_offsets: pa.Array, sizes: pa.Array) -> pa.RecordBatch:
    """The batch with the three numbers of each row's pointer behind it."""
    arrays = [*columns.columns, offsets, sub_offsets, sizes]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*columns.schema, *POINTER_FIELDS]))

"""The columns of entries, from the columns of source files."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import partition_values
from gnomon.sources.pointers import POINTER_FIELDS


def stored_columns(spec: IndexSpec, batches: Iterable[pa.RecordBatch], where: str) -> Iterator[list[pa.Array]]:
    """For each batch of a scan of a source file: the stored key and the included columns in the types of the index,
    then the numbers of the rows' pointers, which are the last columns of a batch. A column that the file lacks is null.
    UnsupportedFormat, with the path `where`, for a value that cannot be stored."""
    columns = (*spec.stored_keys, *spec.include)
    for batch in batches:
        there = dict(zip(batch.schema.names[: -len(POINTER_FIELDS)], batch.columns, strict=False))
        try:
            values = [
                key_array(there[column.name], column.type, column.name)
                if column.name in there
                else pa.nulls(batch.num_rows, key_type(column.type).arrow)
                for column in columns
            ]
        except BTreeError as error:
            raise UnsupportedFormat(
                f"cannot be indexed: {error.what}" if error.what else "cannot be indexed",
                where,
                column=error.column,
                expected=error.expected,
                found=error.found,
            ) from None
        yield [*values, *batch.columns[-len(POINTER_FIELDS) :]]


def file_columns(spec: IndexSpec, paths: Sequence[str], partitions: Sequence[str], numbers: pa.Array) -> list[pa.Array]:
    """The columns of entries that name their source files: the partition columns of a flat index, then the path.
    `numbers` has the number of each entry's file, an int32, in `paths` and `partitions`."""
    values = [partition_values(partition) for partition in partitions] if spec.stored_partitions else []
    texts = [[one[name] for one in values] for name in spec.stored_partitions]
    return [pa.DictionaryArray.from_arrays(numbers, pa.array(text, pa.string())) for text in [*texts, paths]]

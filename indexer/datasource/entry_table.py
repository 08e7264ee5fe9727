"""The columns of an index as a Spark table, and rows of the source for its entries, read by their pointers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from gnomon.btree.key_types import key_type
from gnomon.indexer.spark import arrow_schema, as_spark, source_types, spark_type
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.fetch import FetchReads
from gnomon.shadow.lookup import POINTER, EntryColumn, entry_columns
from gnomon.shadow.metadata import source_of
from gnomon.shadow.selected_rows import in_files
from gnomon.shadow.storage import join
from gnomon.sources.pointers import FILENAME, OFFSET, SUB_OFFSET


@dataclass(frozen=True)
class EntryTable:
    """The columns to read, in the order of the schema: columns of the index, then of the source. `known` has all
    columns of the index by their names in Spark."""

    known: dict[str, EntryColumn]
    columns: tuple[str, ...]
    payload: tuple[str, ...]
    payload_types: StructType

    @cached_property
    def schema(self) -> StructType:
        fields = [StructField(name, spark_type(key_type(self.known[name].type).arrow)) for name in self.columns]
        return StructType([*fields, *self.payload_types])

    @cached_property
    def arrow(self) -> pa.Schema:
        return arrow_schema(self.schema)


def entry_table(index: OpenIndex, columns: Sequence[str] | None, payload: Sequence[str] | bool) -> EntryTable:
    """The columns to read: all of the index, or `columns`; and columns of the source: all that the index lacks (True),
    or the named ones. UnknownColumn or UsageError where there is no such column."""
    known = _named(entry_columns(index.spec))
    covered = {column.source for column in known.values() if column.part != POINTER}
    sources = index.view.columns
    if payload is True:
        wanted = [name for name in sources if name not in covered]
    else:
        wanted = [name for name in payload or () if name not in covered]
        _check("payload: the source", wanted, sources)
    both = [name for name in wanted if name.lower() in {other.lower() for other in known}]
    if both:
        raise UsageError(f"payload: the index has a column {', '.join(both)}, too; name other columns")
    if columns is not None:
        _check("columns: the index", columns, [*known, *wanted])
    types = source_types(index, wanted)
    kept = [name for name in known if columns is None or name in columns]
    kept_types = [field for field in types if columns is None or field.name in columns]
    if not kept and not kept_types:
        raise UsageError("columns: none is named; leave it out for all of them")
    return EntryTable(known, tuple(kept), tuple(field.name for field in kept_types), StructType(kept_types))


def _check(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"{what} has no column {', '.join(unknown)}; it has {', '.join(known)}")


def _named(columns: Sequence[EntryColumn]) -> dict[str, EntryColumn]:
    """The columns by their names in the source. A column whose name Spark cannot distinguish from another keeps its
    name in the folder's plain table."""
    taken = {column.name.lower() for column in columns if column.part == POINTER}
    names = {}
    for column in columns:
        name = column.source
        if column.part != POINTER:
            name = name if name.lower() not in taken else column.name
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
        names[name] = column
    return names


def with_payload(index: OpenIndex, entries: pa.RecordBatch, table: EntryTable) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a table for these entries, one source file after the other. StalePointer where a file is not
    the one that was indexed, or a row does not hold its key."""
    for path, rows in in_files(entries.select([FILENAME, OFFSET, SUB_OFFSET]), index.files.row_bytes):
        yield _read(index, path, entries.take(rows), table)


def _read(index: OpenIndex, path: str, entries: pa.RecordBatch, table: EntryTable) -> pa.RecordBatch:
    """The rows of one source file."""
    stored = {column.source: column for column in table.known.values()}
    keys = {key.name: entries.column(stored[key.name].name) for key in index.spec.stored_keys}
    offsets = entries.column(OFFSET)
    pointers = np.column_stack([offsets.to_numpy(), entries.column(SUB_OFFSET).to_numpy()]).astype(np.int64)
    rows = index.files.read(path, pointers, keys, table.payload, FetchReads())
    given = len(table.columns)
    arrays = [
        entries.column(table.known[name].name).cast(field.type)
        for name, field in zip(table.columns, table.arrow, strict=False)
    ]
    where = join(source_of(index.spec).storage.root, path)
    for field, target, column in zip(table.payload_types, table.arrow.types[given:], rows.columns, strict=True):
        values = column.combine_chunks()
        arrays.append(as_spark(values, field.dataType, target, field.name, offsets, where))
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow)

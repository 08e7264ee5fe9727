"""Casts of the columns of a batch to the columns of its source, in Arrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.jobs.dedup.batch_columns import Held
from gnomon.jobs.dedup.partition_text import PartitionText, partition_texts
from gnomon.jobs.load import KEY_PREFIX, source_columns
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import IndexSpec


@dataclass(frozen=True)
class SourceCast:
    """The cast of a batch to the columns of its source. `columns` has the source's columns and types; partition columns
    are text, which `texts` makes."""

    columns: pa.Schema
    texts: Mapping[str, PartitionText]

    def names(self, wanted: Sequence[str]) -> list[str]:
        """The `wanted` columns that the source has, in the source's order."""
        return [name for name in self.columns.names if name in wanted]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch that the source has, too. UsageError for the value of a partition column that cannot
        be the name of a partition."""
        names = self.names(batch.schema.names)
        arrays = [self._cast(batch.column(name), name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names)

    def _cast(self, array: pa.Array, name: str) -> pa.Array:
        return self.texts[name](array) if name in self.texts else self._in_type(array, name)

    def _in_type(self, array: pa.Array, name: str) -> pa.Array:
        kind = self.columns.field(name).type
        if array.type == kind:
            return array
        if types.is_null(kind) and array.null_count < len(array):
            why = "it has values, and in the files of the source only nulls, without a type"
            raise UsageError(f"batch: column {name}: {why}; nothing was appended")
        try:
            return pa.nulls(len(array)) if types.is_null(kind) else array.cast(kind)
        except pa.ArrowException as error:
            check_memory(error)
            raise UsageError(f"batch: column {name}: {error}; nothing was appended", expected=str(kind)) from None


def cast_to(index: Index, batch: pa.Schema, held: Held = lambda kind: kind) -> SourceCast:
    """The cast of a batch's columns to the source of an index, whose columns the engine of the batch has `held`.
    UsageError, with the differences, where they do not fit: a column may only differ as a narrower number."""
    spec, view = index.spec, index.view
    wanted = pa.schema([one.with_type(held(one.type)) for one in source_columns(index, view.columns)])
    problems = [f"{name} is not a column of the source" for name in batch.names if name not in wanted.names]
    for field in wanted:
        if field.name not in batch.names:
            problems.append(f"{field.name} is missing")
        elif field.name not in spec.partitions and not _fits(batch.field(field.name).type, field.type):
            problems.append(f"{field.name} is {batch.field(field.name).type}, expected {field.type}")
    _refuse(batch, problems)
    texts = partition_texts(batch, spec, view.partition_values.values())
    return SourceCast(_with_text(wanted, spec.partitions), texts)


def first_cast(batch: pa.Schema, spec: IndexSpec) -> SourceCast:
    """The cast for the first rows of a source without files."""
    _refuse(batch, [])
    names = [*(name for name in batch.names if name not in spec.partitions), *spec.partitions]
    columns = pa.schema([batch.field(name) for name in names])
    return SourceCast(_with_text(columns, spec.partitions), partition_texts(batch, spec, ()))


def _with_text(columns: pa.Schema, partitions: Sequence[str]) -> pa.Schema:
    return pa.schema([one.with_type(pa.string()) if one.name in partitions else one for one in columns])


def _refuse(batch: pa.Schema, problems: list[str]) -> None:
    twice = [name for name in dict.fromkeys(batch.names) if batch.names.count(name) > 1]
    problems = [*problems, *(f"{name} is there more than once" for name in twice)]
    problems += [f"the name {name} is taken" for name in batch.names if name.startswith(KEY_PREFIX)]
    if problems:
        raise UsageError(f"batch: its columns are not the source's: {'; '.join(problems)}; nothing was written")


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast to another type keeps each value."""
    if found == wanted or types.is_null(found) or (types.is_null(wanted) and types.is_string(found)):
        return True
    if types.is_signed_integer(found) and types.is_signed_integer(wanted):
        return bool(found.bit_width < wanted.bit_width)
    if types.is_timestamp(found) and types.is_timestamp(wanted):  # the cast refuses digits that would be lost
        return bool(found.tz) == bool(wanted.tz)
    if types.is_decimal(found) and types.is_decimal(wanted):
        return bool(found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale)
    return bool(types.is_float32(found) and types.is_float64(wanted))

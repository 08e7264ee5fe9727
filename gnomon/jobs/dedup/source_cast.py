"""Casts of the columns of a batch to the columns of its source, in Arrow. Partition columns become text: one text for
each value, whatever the engine and the session's time zone. Text is read as elsewhere; other values are compared by
value, as keys are."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import stored_array
from gnomon.jobs.dedup.batch_plan import Held
from gnomon.jobs.load import source_columns
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn, other_delimiter
from gnomon.shadow.tables import NULL_VALUE, TEXT, as_partition_value, partition_stored, value_text
from gnomon.shadow.values import KEY_PREFIX, is_text, typed_key

IsKind = Callable[[pa.DataType], bool]
# Types whose values have the same text in each engine, with the pattern of these texts.
WITH_TEXT: tuple[tuple[IsKind, re.Pattern[str]], ...] = (
    (types.is_integer, re.compile(r"-?[1-9]\d*|0")),
    (types.is_date32, re.compile(r"\d{4}-\d\d-\d\d")),
    (types.is_boolean, re.compile("true|false")),
    (is_text, re.compile(".*", re.DOTALL)),
    (types.is_null, re.compile(".*", re.DOTALL)),
)


def form_of(kind: pa.DataType) -> re.Pattern[str] | None:
    """The pattern of the texts of a type's values; None where engines write them differently."""
    return next((pattern for is_kind, pattern in WITH_TEXT if is_kind(kind)), None)


@dataclass(frozen=True)
class PartitionText:
    """The text of each value of a partition column. `kind` is the column's type, TEXT where a folder's name is the
    value. Hive's name of null and empty text are null; a lake table refuses them, since they would be written as null.
    It can be sent to tasks."""

    name: str
    kind: str
    in_lake: bool

    def __call__(self, given: pa.Array) -> pa.Array:
        """UsageError for a value that is not of the column's type."""
        if self.kind == TEXT or is_text(given.type):
            distinct = given.cast(pa.string()).dictionary_encode()
            texts = [self._text(text) for text in distinct.dictionary.to_pylist()]
        else:
            distinct = typed_key(given, self._column, "batch", all_held=True).dictionary_encode()
            texts = [value_text(value, self.kind) for value in partition_stored(distinct.dictionary, self.kind)]
        return pa.array(texts, pa.string()).take(distinct.indices)

    @property
    def _column(self) -> KeyColumn:
        return KeyColumn(self.name, self.kind, partition=True)

    def _text(self, text: str) -> str | None:
        if text in ("", NULL_VALUE):
            if not self.in_lake:
                return None
            expected = "a text that is not empty, or null"
            raise UsageError(f"batch: partition column {self.name}", expected=expected, found=repr(text))
        try:
            return value_text(as_partition_value(text, self.kind, self.name), self.kind)
        except KeyTypeError:
            raise UsageError(f"batch: partition column {self.name}", expected=self.kind, found=repr(text)) from None

    def typed(self, texts: pa.Array) -> pa.Array:
        """The values of these texts, in the type of the column."""
        distinct = texts.dictionary_encode()
        stored = [as_partition_value(text, self.kind, self.name) for text in distinct.dictionary.to_pylist()]
        return stored_array(stored, self.kind).take(distinct.indices)

    def check(self, kind: pa.DataType, there: Iterable[str]) -> None:
        """Raise UsageError for a batch's column of a type that has no text, or whose values cannot be compared with the
        column's; and where folders that are `there` write its values in another form (01, 20260101, True), so that a
        value may match several folders."""
        if self.kind != TEXT:
            if not is_text(kind):
                typed_key(pa.array([], kind), self._column, "batch")
            return
        form = form_of(kind)
        if form is None:
            raise UsageError(f"batch: the partition column {self.name} is {kind}; expected text")
        odd = [text for text in there if not form.fullmatch(text)]
        if odd:
            raise UsageError(f"batch: {self.name} is {kind}, the source has folders like {self.name}={odd[0]}")


def text_of(spec: IndexSpec, name: str) -> PartitionText:
    """The text of a partition column of an index."""
    return PartitionText(name, spec.partition_type(name), spec.is_of_lake)


def partition_texts(
    batch: pa.Schema, spec: IndexSpec, values: Iterable[Mapping[str, Stored]] = ()
) -> dict[str, PartitionText]:
    """The text of each partition column of an index that a batch has. `values` are those of the partitions that are
    there. UsageError as in `PartitionText.check`."""
    made = {name: text_of(spec, name) for name in spec.partitions if name in batch.names}
    for name, text in made.items():
        kind = batch.field(name).type
        known = [] if text.in_lake else {str(one[name]) for one in values if one.get(name) is not None}
        text.check(kind, known)
    return made


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


def cast_to(index: OpenIndex, batch: pa.Schema, held: Held = lambda kind: kind) -> SourceCast:
    """The cast of a batch's columns to the source of an index, whose columns the engine of the batch has `held`.
    UsageError, with the differences, where they do not fit: a column may only differ as a narrower number."""
    spec, view = index.spec, index.view
    wanted = pa.schema([one.with_type(held(one.type)) for one in source_columns(index, view.columns)])
    hint = other_delimiter(batch.names)
    problems = [f"{name} is not a column of the source{hint}" for name in batch.names if name not in wanted.names]
    for field in wanted:
        if field.name not in batch.names:
            problems.append(f"{field.name} is missing")
        elif field.name not in spec.partitions:  # one that is there more than once is refused below
            kinds = [batch.field(place).type for place in batch.get_all_field_indices(field.name)]
            odd = [kind for kind in kinds if not _is_widened_by(kind, field.type)]
            problems += [f"{field.name} is {kind}, expected {field.type}" for kind in odd]
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


def _is_widened_by(found: pa.DataType, wanted: pa.DataType) -> bool:
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

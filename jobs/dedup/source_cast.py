"""Casts of the columns of a batch to the columns of its source, in Arrow."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.btree.errors import KeyTypeError
from gnomon.jobs.load import KEY_PREFIX, source_columns
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn
from gnomon.shadow.tables import NULL_VALUE, TEXT, as_partition_value, is_lake
from gnomon.shadow.values import shown_key

IsKind = Callable[[pa.DataType], bool]
# Types whose values have the same text in each engine, with the pattern of these texts.
WITH_TEXT: tuple[tuple[IsKind, re.Pattern[str]], ...] = (
    (types.is_integer, re.compile(r"-?[1-9]\d*|0")),
    (types.is_date32, re.compile(r"\d{4}-\d\d-\d\d")),
    (types.is_boolean, re.compile("true|false")),
    (types.is_string, re.compile(".*", re.DOTALL)),
)
DECLARED = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")  # types with one text for each value


@dataclass(frozen=True)
class SourceCast:
    """The cast of a batch to the columns of its source. `columns` has the source's columns and types; partition columns
    are text. `declared` has the types of the partition columns of a lake table."""

    columns: pa.Schema
    partitions: tuple[str, ...]
    declared: dict[str, str]

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
        if name not in self.partitions:
            return self._in_type(array, name)
        text = array.cast(pa.string())
        if name not in self.declared:
            return no_null_text(text)
        return _declared_text(text, name, self.declared[name])

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


def cast_to(index: Index, batch: pa.Schema) -> SourceCast:
    """The cast of a batch's columns to the source of an index. UsageError, with the differences, where they do not fit:
    a column may only differ as a narrower number."""
    spec, view = index.spec, index.view
    wanted = source_columns(index, view.columns)
    problems = [f"{name} is not a column of the source" for name in batch.names if name not in wanted.names]
    for field in wanted:
        if field.name not in batch.names:
            problems.append(f"{field.name} is missing")
        elif field.name not in spec.partitions and not _fits(batch.field(field.name).type, field.type):
            problems.append(f"{field.name} is {batch.field(field.name).type}, expected {field.type}")
    _refuse(batch, problems)
    values = view.partition_values.values()
    for name in spec.partitions:
        if name not in spec.partition_types:
            there = [str(one[name]) for one in values if one.get(name) is not None]
            _check_folders(name, batch.field(name).type, there)
        elif spec.partition_types[name] not in DECLARED:
            kind = spec.partition_types[name]
            raise UsageError(f"the partition column {name} is {kind}; expected --engine spark", spec.source_name)
    declared = dict(spec.partition_types) if is_lake(spec.source_name) else {}
    return SourceCast(_with_text(wanted, spec.partitions), spec.partitions, declared)


def first_cast(batch: pa.Schema, spec: IndexSpec) -> SourceCast:
    """The cast for the first rows of a source without files."""
    _refuse(batch, [])
    for name in spec.partitions:
        _check_folders(name, batch.field(name).type, [])
    names = [*(name for name in batch.names if name not in spec.partitions), *spec.partitions]
    columns = pa.schema([batch.field(name) for name in names])
    return SourceCast(_with_text(columns, spec.partitions), spec.partitions, {})


def no_null_text(text: pa.Array) -> pa.Array:
    """The text of a folder, null for Hive's name of null."""
    return pc.if_else(pc.or_(pc.equal(text, ""), pc.equal(text, NULL_VALUE)), None, text)


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


def _check_folders(name: str, kind: pa.DataType, there: Sequence[str]) -> None:
    """Raise UsageError for a partition column of a type without a text, and where existing folders write its values in
    another form (01, 20260101, True), so that a value may match several folders."""
    form = next((pattern for is_kind, pattern in WITH_TEXT if is_kind(kind)), None)
    if form is None:
        raise UsageError(f"batch: the partition column {name} is {kind}; expected text")
    odd = [text for text in there if not form.fullmatch(text)]
    if odd:
        raise UsageError(f"batch: {name} is {kind}, the source has folders like {name}={odd[0]}")


def _declared_text(text: pa.Array, name: str, kind: str) -> pa.Array:
    """The one text of each value of a partition column's type. Empty text and Hive's name of null are refused: they
    would be written as null."""
    distinct = text.dictionary_encode()
    texts = [_one_text(one, name, kind) for one in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def _one_text(text: str, name: str, kind: str) -> str:
    if text in ("", NULL_VALUE):
        expected = "a text that is not empty, or null"
        raise UsageError(f"batch: partition column {name}", expected=expected, found=repr(text))
    if kind == TEXT:
        return text
    try:
        stored = as_partition_value(text.strip(), kind, name)
    except KeyTypeError:
        raise UsageError(f"batch: partition column {name}", expected=kind, found=repr(text)) from None
    shown = shown_key(stored, KeyColumn(name, kind))
    return str(shown).lower() if kind == "boolean" else str(shown)

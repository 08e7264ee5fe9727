"""The texts of the partition columns of a batch: one text for each value, whatever the engine and the session's time
zone. Text is read as elsewhere; other values are compared by value, as keys are."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_arrays import stored_array
from gnomon.btree.key_types import Stored
from gnomon.jobs.load import typed_key
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn
from gnomon.shadow.tables import NULL_VALUE, TEXT, as_partition_value, is_lake, partition_stored, value_text

IsKind = Callable[[pa.DataType], bool]
# Types whose values have the same text in each engine, with the pattern of these texts.
WITH_TEXT: tuple[tuple[IsKind, re.Pattern[str]], ...] = (
    (types.is_integer, re.compile(r"-?[1-9]\d*|0")),
    (types.is_date32, re.compile(r"\d{4}-\d\d-\d\d")),
    (types.is_boolean, re.compile("true|false")),
    (types.is_string, re.compile(".*", re.DOTALL)),
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
        if self.kind == TEXT or types.is_string(given.type):
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
            if not types.is_string(kind):
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
    return PartitionText(name, spec.partition_type(name), is_lake(spec.source_name))


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

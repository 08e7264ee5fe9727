"""The kinds of columns, each read from a row group on as Arrow arrays."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.sources.orc.bit_packing import Ints
from gnomon.sources.orc.column_base import INT32_MAX, MOST_ELEMENTS, Column, StripeStreams, binary, offsets_of, total_of
from gnomon.sources.orc.decimals import at_scale, check_digits, read_varints, skip_varints
from gnomon.sources.orc.errors import Damage, Unsupported
from gnomon.sources.orc.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INSTANT,
    INT,
    LIST,
    LONG,
    MAP,
    SHORT,
    STRUCT,
    TIMESTAMP,
    UNION,
    Type,
)
from gnomon.sources.orc.streams import ByteStream
from gnomon.sources.orc.stripe import (
    BLOBS,
    DATA,
    LENGTH,
    SECONDARY,
    TEXTS,
    as_integers,
    is_dictionary,
)
from gnomon.sources.orc.temporal import rebased, seconds_and_nanos, ticks
from gnomon.sources.types import int32s, int64s

BATCH_ELEMENTS = 1 << 22  # in the lists of several rows: beyond this, the caller reads fewer rows at once
BATCH_BYTES = 32 << 20  # in the texts of several rows: as above
INTEGERS: dict[int, type[np.signedinteger[Any]]] = {SHORT: np.int16, INT: np.int32, LONG: np.int64}
FLOATS = {FLOAT: "<f4", DOUBLE: "<f8"}


class BooleanColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        bits = np.packbits(self._values[DATA].read(count), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])


class IntegerColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        values = self._values[DATA].read(count)
        if self.tree.kind == BYTE:
            return _numbers(self.tree.arrow, values.view(np.int8))
        return _numbers(self.tree.arrow, _narrow(values, INTEGERS[self.tree.kind]))


class RawColumn(Column):
    """A column whose values are stored one after another, with lengths that are known without decoding them."""

    passed: int | None = None  # skipped bytes, for a column that only counts them and reads nothing

    @property
    def data(self) -> ByteStream:
        source: ByteStream = self._values[DATA]
        return source

    def _pass(self, count: int) -> None:
        size = self._size(count)
        if self.passed is None:
            self.data.skip(size)
        else:
            self.passed += size

    @abstractmethod
    def _size(self, count: int) -> int:
        """Bytes of the next `count` values."""


class FloatColumn(RawColumn):
    def _dense(self, count: int) -> pa.Array:
        kind = np.dtype(FLOATS[self.tree.kind])
        return _numbers(self.tree.arrow, np.frombuffer(self.data.take(self._size(count)), kind))

    def _size(self, count: int) -> int:
        return count * np.dtype(FLOATS[self.tree.kind]).itemsize


class DateColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        days = self._values[DATA].read(count)
        if self.streams.footer.hybrid_calendar:
            days = rebased(days)
        return _numbers(self.tree.arrow, _narrow(days, np.int32))


class TimestampColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        seconds, nanos = seconds_and_nanos(self._values[DATA].read(count), self._values[SECONDARY].read(count))
        zone = "" if self.tree.kind == INSTANT else self.streams.meta.zone
        footer, unit = self.streams.footer, self.tree.arrow.unit
        if footer.in_micros and len(nanos) and (nanos % 1000).any():
            raise Unsupported("a timestamp finer than a microsecond, while the option timestamp_unit is us")
        found = ticks(seconds, nanos, zone, footer.by_java, footer.hybrid_calendar, unit)
        return int64s(found).view(self.tree.arrow)


class DecimalColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        if as_integers(self.tree, self.streams.footer):
            low = self._values[DATA].read(count)
            high = low >> 63
        else:
            low, high = read_varints(self._values[DATA], count)
            low, high = at_scale(low, high, self._values[SECONDARY].read(count), self.tree.scale)
            check_digits(low, high)
        return pa.Array.from_buffers(self.tree.arrow, count, [None, pa.py_buffer(np.stack((low, high), axis=1))])

    def _pass(self, count: int) -> None:
        if as_integers(self.tree, self.streams.footer):
            self._values[DATA].skip(count)
        else:
            skip_varints(self._values[DATA], count)
            self._values[SECONDARY].skip(count)


class TextColumn(RawColumn):
    """Texts and blobs stored one after another."""

    def _dense(self, count: int) -> pa.Array:
        lengths = self._values[LENGTH].read(count)
        return binary(self.tree.arrow, lengths, self._total(lengths, INT32_MAX, BATCH_BYTES), self.data)

    def _size(self, count: int) -> int:
        return total_of(self._values[LENGTH].read(count), INT32_MAX)


class DictionaryColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        indices = self._values[DATA].read(count)
        if not count:
            return pa.array([], self.tree.arrow)
        dictionary = self.streams.dictionary(self.tree.column)
        if not 0 <= int(indices.min()) <= int(indices.max()) < len(dictionary):
            raise Damage(f"entry {int(indices.max())} of a dictionary of {len(dictionary)}")
        ends = np.frombuffer(dictionary.buffers()[1], np.int32, len(dictionary) + 1)
        self._total(ends[indices + 1] - ends[indices], INT32_MAX, BATCH_BYTES)
        return dictionary.take(int64s(indices))


class ListColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        lengths = self._values[LENGTH].read(count)
        total = self._total(lengths, MOST_ELEMENTS, BATCH_ELEMENTS)
        offsets = pa.py_buffer(offsets_of(lengths))
        children = [child.read(total) for child in self._children]
        if self.tree.kind == LIST:
            return pa.Array.from_buffers(self.tree.arrow, count, [None, offsets], children=children)
        if children[0].null_count:  # pyarrow crashes the process on one
            raise Unsupported("a map has a null key, which Arrow does not allow")
        pairs = pa.StructArray.from_arrays(children, fields=[self.tree.arrow.key_field, self.tree.arrow.item_field])
        return pa.Array.from_buffers(self.tree.arrow, count, [None, offsets], children=[pairs])

    def _pass(self, count: int) -> None:
        total = total_of(self._values[LENGTH].read(count), MOST_ELEMENTS)
        for child in self._children:
            child.skip(total)


class StructColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        if not self._children:
            return pa.Array.from_buffers(self.tree.arrow, count, [None])
        children = [child.read(count) for child in self._children]
        return pa.StructArray.from_arrays(children, fields=list(self.tree.arrow))

    def _pass(self, count: int) -> None:
        for child in self._children:
            child.skip(count)


class UnionColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        tags = self._tags(count)
        offsets = np.empty(count, np.int32)
        children = []
        for tag, child in enumerate(self._children):
            places = np.flatnonzero(tags == tag)
            offsets[places] = np.arange(len(places), dtype=np.int32)
            children.append(child.read(len(places)))
        kinds = pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(tags)])
        names = [each.name for each in self.tree.arrow]
        return pa.UnionArray.from_dense(kinds, int32s(offsets), children, names)

    def _pass(self, count: int) -> None:
        tags = self._tags(count)
        for tag, child in enumerate(self._children):
            child.skip(int(np.count_nonzero(tags == tag)))

    def _tags(self, count: int) -> NDArray[np.uint8]:
        tags: NDArray[np.uint8] = np.ascontiguousarray(self._values[DATA].read(count))
        if len(tags) and int(tags.max()) >= len(self._children):
            raise Damage(f"type {int(tags.max())} of a union of {len(self._children)}")
        return tags


COLUMNS: dict[int, Callable[..., Column]] = {
    BOOLEAN: BooleanColumn,
    **dict.fromkeys((BYTE, *INTEGERS), IntegerColumn),
    **dict.fromkeys(FLOATS, FloatColumn),
    **dict.fromkeys((*TEXTS, *BLOBS), TextColumn),
    **dict.fromkeys((TIMESTAMP, INSTANT), TimestampColumn),
    **dict.fromkeys((LIST, MAP), ListColumn),
    DATE: DateColumn,
    DECIMAL: DecimalColumn,
    STRUCT: StructColumn,
    UNION: UnionColumn,
}


def make_column(streams: StripeStreams, tree: Type, group: int = 0, tracked: bool = False) -> Column:
    """A column of a stripe, from a row group on."""
    make = DictionaryColumn if is_dictionary(tree, streams.meta) else COLUMNS[tree.kind]
    return make(streams, tree, group, tracked, make_column)


def _numbers(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _narrow(values: Ints, kind: type[np.signedinteger[Any]]) -> NDArray[Any]:
    limits = np.iinfo(kind)
    if len(values) and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise Damage(f"a number beyond {limits.bits} bits")
    return values.astype(kind, copy=False)

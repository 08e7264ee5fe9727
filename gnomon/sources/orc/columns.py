"""The columns of a stripe, each read from a row group on as Arrow arrays."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.metadata import (
    BITS,
    BLOBS,
    DATA,
    DICTIONARY_DATA,
    DICTIONARY_V2,
    DIRECT_V2,
    LENGTH,
    PRESENT,
    RAW,
    SECONDARY,
    TEXTS,
    StripeMeta,
    width,
)
from gnomon.sources.orc.rle import WINDOW, Booleans, ByteRuns, Encoding, IntegersV1, IntegersV2, Ints, Runs
from gnomon.sources.orc.schema import (
    Kind,
    Type,
)
from gnomon.sources.orc.streams import ByteStream, Damage, PackedStream, Unsupported
from gnomon.sources.orc.values import (
    at_scale,
    check_digits,
    read_varints,
    rebased,
    seconds_and_nanos,
    skip_varints,
    ticks,
)
from gnomon.sources.types import int32s, int64s

INT32_MAX = (1 << 31) - 1
MOST_ELEMENTS = 1 << 25  # in one list, map or dictionary: more is refused
# kinds whose integers have a sign in every stream
SIGNED = (Kind.SHORT, Kind.INT, Kind.LONG, Kind.DATE, Kind.DECIMAL)
BATCH_ELEMENTS = 1 << 22  # in the lists of several rows: beyond this, the caller reads fewer rows at once
BATCH_BYTES = 32 << 20  # in the texts of several rows: as above
INTEGERS: dict[int, type[np.signedinteger[Any]]] = {Kind.SHORT: np.int16, Kind.INT: np.int32, Kind.LONG: np.int64}
FLOATS: dict[int, str] = {Kind.FLOAT: "<f4", Kind.DOUBLE: "<f8"}


class BatchTooLarge(Exception):
    """The rows take too much memory together and must be read in smaller parts."""


class StripeStreams:
    """The streams of a stripe, opened at first use; readers at several positions share them."""

    def __init__(self, reader: RangeReader, meta: StripeMeta, piece: int, forward: bool) -> None:
        self.meta = meta
        self.footer = meta.footer
        self._reader = reader
        self._piece = piece
        self._forward = forward
        self._streams: dict[tuple[int, int], PackedStream] = {}
        self._dictionaries: dict[int, pa.Array] = {}
        self.limited = False  # whether several rows are read at once, which may raise `BatchTooLarge`

    def stream(self, column: int, kind: int) -> PackedStream:
        """A stream of the stripe. One that the stripe does not have is empty: a column of only nulls needs none."""
        key = column, kind
        if key not in self._streams:
            offset, length = self.meta.streams.get(key, (0, 0))
            codec = self.footer.codec
            self._streams[key] = PackedStream(self._reader, offset, length, codec, self._piece, self._forward)
        return self._streams[key]

    def dictionary(self, column: int) -> pa.Array:
        """The values of a dictionary-encoded column of texts."""
        if column not in self._dictionaries:
            encoding, entries = self.meta.encoding(column)
            if entries > MOST_ELEMENTS:
                raise Unsupported(f"a dictionary of {entries} entries, the limit is {MOST_ELEMENTS}")
            source = ByteStream(self.stream(column, LENGTH))
            lengths = Runs(source, integers(encoding == DICTIONARY_V2, signed=False)).read(entries)
            texts = ByteStream(self.stream(column, DICTIONARY_DATA))
            total = total_of(lengths, INT32_MAX)
            if total > INT32_MAX:
                raise Unsupported(f"a dictionary of {total} bytes, the limit is {INT32_MAX}")
            self._dictionaries[column] = binary(pa.string(), lengths, total, texts)
        return self._dictionaries[column]


class Column(ABC):
    """One column of a stripe, from a row group on. `read` and `skip` count values of the parent."""

    def __init__(self, streams: StripeStreams, tree: Type, group: int, tracked: bool) -> None:
        """Opens the column at the beginning of a row group. Positions are known for all groups but the first. `tracked`
        is for `check`."""
        self.tree = tree
        self.streams = streams
        self._opened: list[tuple[int, Any]] = []
        by_kind: dict[int, Any] = {}
        places = self._places(group) if group else None
        at = 0
        packs = streams.footer.codec.packed
        for kind, extra in streams.meta.layout(tree):
            place = [0] * 4 if places is None else places[at : at + width(extra, packs)]
            source = ByteStream(streams.stream(tree.column, kind), place[0], place[1] if packs else 0, tracked)
            beyond = place[2 if packs else 1 :]
            if extra == RAW:
                by_kind[kind] = source
            elif extra == BITS:
                by_kind[kind] = Booleans(source, beyond[0], beyond[1])
            else:
                by_kind[kind] = Runs(source, self._encoding(kind), beyond[0])
            self._opened.append((extra, by_kind[kind]))
            at += width(extra, packs)
        self._present: Booleans | None = by_kind.pop(PRESENT, None)
        self._values = by_kind
        self._children = [make_column(streams, child, group, tracked) for child in tree.children]

    def read(self, count: int) -> pa.Array:
        """The next `count` values."""
        if self._present is None:
            return self._dense(count)
        valid = self._present.read(count)
        present = int(np.count_nonzero(valid))
        dense = self._dense(present)
        return dense if present == count else _with_nulls(dense, valid)

    def skip(self, count: int) -> None:
        """Skip the next `count` values."""
        while count:
            some = min(count, WINDOW)
            present = some if self._present is None else int(np.count_nonzero(self._present.read(some)))
            if present:
                self._pass(present)
            count -= some

    def columns(self) -> Iterator["Column"]:
        """The column and all columns below it."""
        yield self
        for child in self._children:
            yield from child.columns()

    def check(self, group: int) -> bool:
        """Whether the row index of a group agrees with the positions of the streams after reading from the first row
        on."""
        places = self._places(group)
        packs = self.streams.footer.codec.packed
        at = 0
        for extra, values in self._opened:
            place = places[at : at + width(extra, packs)]
            at += width(extra, packs)
            source = values if extra == RAW else values.source
            coordinate = source.coordinate_of(place[0], place[1] if packs else 0)
            beyond = place[2 if packs else 1 :]
            if extra == RAW:
                right = coordinate == source.coordinate
            elif extra == BITS:
                first = values.first_value_of(coordinate, beyond[0])
                right = first >= 0 and first + beyond[1] == values.given
            else:
                first = values.first_value_of(coordinate)
                right = first >= 0 and first + beyond[0] == values.given
            if not right:
                return False
        return all(child.check(group) for child in self._children)

    def _places(self, group: int) -> list[int]:
        """The numbers of the position of a group."""
        places = self.streams.meta.positions.get(self.tree.column)
        return [] if places is None else places[group].tolist()

    def _total(self, lengths: NDArray[Any], most: int, together: int) -> int:
        """The sum of lengths whose values are held in memory. BatchTooLarge for more than `together`, Unsupported for
        more than `most`."""
        total = total_of(lengths, most)
        if self.streams.limited and total > together:
            raise BatchTooLarge
        if total > most:
            raise Unsupported(f"a length of {total} in one row, the limit is {most}")
        return total

    def _encoding(self, kind: int) -> Encoding:
        """The encoding of the runs of a stream."""
        if self.tree.kind in (Kind.BYTE, Kind.UNION):
            return ByteRuns()
        newer = self.streams.meta.encoding(self.tree.column)[0] in (DIRECT_V2, DICTIONARY_V2)
        if self.tree.kind == Kind.DECIMAL and self.streams.footer.as_integers(self.tree):
            newer = True  # whatever the footer states: Java states DIRECT
        timestamp = self.tree.kind in (Kind.TIMESTAMP, Kind.INSTANT)
        return integers(newer, self.tree.kind in SIGNED or (timestamp and kind == DATA))

    @abstractmethod
    def _dense(self, count: int) -> pa.Array:
        """The next `count` values that are not null."""

    def _pass(self, count: int) -> None:
        """Skip the next `count` values that are not null, at most `WINDOW`."""
        for _, values in self._opened:
            if values is not self._present:
                values.skip(count)


def integers(newer: bool, signed: bool) -> Encoding:
    return IntegersV2(signed) if newer else IntegersV1(signed)


def binary(kind: pa.DataType, lengths: Ints, total: int, source: ByteStream) -> pa.Array:
    """Byte strings of these lengths, whose sum is `total`, as an array."""
    data = pa.py_buffer(source.take(total))
    return pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(offsets_of(lengths)), data])


def total_of(lengths: NDArray[Any], most: int) -> int:
    """The sum of lengths, each at most `most`."""
    if not len(lengths):
        return 0
    longest = int(lengths.max())
    if int(lengths.min()) < 0:
        raise Damage("a negative length")
    if longest > most:
        raise Unsupported(f"a length of {longest}, the limit is {most}")
    return int(lengths.sum(dtype=np.int64))


def offsets_of(lengths: Ints) -> NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _with_nulls(dense: pa.Array, valid: NDArray[np.bool_]) -> pa.Array:
    """The values where `valid` is set, null elsewhere."""
    places = np.cumsum(valid, dtype=np.int64) - 1
    mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return dense.take(pa.Array.from_buffers(pa.int64(), len(valid), [mask, pa.py_buffer(places)]))


class BooleanColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        bits = np.packbits(self._values[DATA].read(count), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])


class IntegerColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        values = self._values[DATA].read(count)
        if self.tree.kind == Kind.BYTE:
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
        zone = "" if self.tree.kind == Kind.INSTANT else self.streams.meta.zone
        footer, unit = self.streams.footer, self.tree.arrow.unit
        if footer.in_micros and len(nanos) and (nanos % 1000).any():
            raise Unsupported("a timestamp finer than a microsecond, while the option timestamp_unit is us")
        found = ticks(seconds, nanos, zone, footer.by_java, footer.hybrid_calendar, unit)
        return int64s(found).view(self.tree.arrow)


class DecimalColumn(Column):
    def _dense(self, count: int) -> pa.Array:
        if self.streams.footer.as_integers(self.tree):
            low = self._values[DATA].read(count)
            high = low >> 63
        else:
            low, high = read_varints(self._values[DATA], count)
            low, high = at_scale(low, high, self._values[SECONDARY].read(count), self.tree.scale)
            check_digits(low, high)
        return pa.Array.from_buffers(self.tree.arrow, count, [None, pa.py_buffer(np.stack((low, high), axis=1))])

    def _pass(self, count: int) -> None:
        if self.streams.footer.as_integers(self.tree):
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
        if self.tree.kind == Kind.LIST:
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
    Kind.BOOLEAN: BooleanColumn,
    **dict.fromkeys((Kind.BYTE, *INTEGERS), IntegerColumn),
    **dict.fromkeys(FLOATS, FloatColumn),
    **dict.fromkeys((*TEXTS, *BLOBS), TextColumn),
    **dict.fromkeys((Kind.TIMESTAMP, Kind.INSTANT), TimestampColumn),
    **dict.fromkeys((Kind.LIST, Kind.MAP), ListColumn),
    Kind.DATE: DateColumn,
    Kind.DECIMAL: DecimalColumn,
    Kind.STRUCT: StructColumn,
    Kind.UNION: UnionColumn,
}


def make_column(streams: StripeStreams, tree: Type, group: int = 0, tracked: bool = False) -> Column:
    """A column of a stripe, from a row group on."""
    make = DictionaryColumn if streams.meta.is_dictionary(tree) else COLUMNS[tree.kind]
    return make(streams, tree, group, tracked)


def _numbers(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _narrow(values: Ints, kind: type[np.signedinteger[Any]]) -> NDArray[Any]:
    limits = np.iinfo(kind)
    if len(values) and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise Damage(f"a number beyond {limits.bits} bits")
    return values.astype(kind, copy=False)

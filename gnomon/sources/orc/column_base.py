"""The common part of all columns of a stripe: streams, nulls, and the positions of row groups."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.bit_packing import Ints
from gnomon.sources.orc.errors import Damage, Unsupported
from gnomon.sources.orc.file_tail import Footer
from gnomon.sources.orc.rle_v1 import WINDOW, Booleans, ByteRuns, Encoding, IntegersV1, Runs
from gnomon.sources.orc.rle_v2 import IntegersV2
from gnomon.sources.orc.schema import (
    BYTE,
    DATE,
    DECIMAL,
    INSTANT,
    INT,
    LONG,
    SHORT,
    TIMESTAMP,
    UNION,
    Type,
)
from gnomon.sources.orc.streams import ByteStream, PackedStream
from gnomon.sources.orc.stripe import (
    BITS,
    DATA,
    DICTIONARY_DATA,
    DICTIONARY_V2,
    DIRECT_V2,
    LENGTH,
    PRESENT,
    RAW,
    StripeMeta,
    as_integers,
    layout,
    width,
)

INT32_MAX = (1 << 31) - 1
MOST_ELEMENTS = 1 << 25  # in one list, map or dictionary: more is refused
SIGNED = (SHORT, INT, LONG, DATE, DECIMAL)  # kinds whose integers have a sign in every stream

Make = Callable[["StripeStreams", Type, int, bool], "Column"]


class BatchTooLarge(Exception):
    """The rows take too much memory together and must be read in smaller parts."""


class StripeStreams:
    """The streams of a stripe, opened at first use; readers at several positions share them."""

    def __init__(self, reader: RangeReader, meta: StripeMeta, footer: Footer, piece: int, forward: bool) -> None:
        self.meta = meta
        self.footer = footer
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

    def __init__(self, streams: StripeStreams, tree: Type, group: int, tracked: bool, make: Make) -> None:
        """Opens the column at the beginning of a row group. Positions are known for all groups but the first. `tracked`
        is for `check`. `make` makes the child columns."""
        self.tree = tree
        self.streams = streams
        self._opened: list[tuple[int, Any]] = []
        by_kind: dict[int, Any] = {}
        places = self._places(group) if group else None
        at = 0
        packs = streams.footer.codec.packed
        for kind, extra in layout(tree, streams.meta, streams.footer):
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
        self._children = [make(streams, child, group, tracked) for child in tree.children]

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
        if self.tree.kind in (BYTE, UNION):
            return ByteRuns()
        newer = self.streams.meta.encoding(self.tree.column)[0] in (DIRECT_V2, DICTIONARY_V2)
        if self.tree.kind == DECIMAL and as_integers(self.tree, self.streams.footer):
            newer = True  # whatever the footer states: Java states DIRECT
        timestamp = self.tree.kind in (TIMESTAMP, INSTANT)
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

"""The metadata of a file: its postscript and footer, the footers of its stripes with the places of streams, and the row
indexes with the position of each row group in the streams (ORC specification v1, "File Tail" and "Stripes").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.schema import (
    Kind,
    RawType,
    Type,
    columns_of,
    fields,
    message,
    number,
    numbers,
    numbers_in,
    read_type,
    signed,
    text,
)
from gnomon.sources.orc.streams import Codec, Damage, error_context

MAGIC = b"ORC"
FOOTER_LIMIT = 64 << 20  # bytes of a decompressed footer
MOST_ROWS = 1 << 31  # rows of a stripe: a writer holds a stripe in memory
PROLEPTIC = 2  # CalendarKind
JAVA = 0  # a writer: its dates are of the hybrid calendar where the footer names no calendar
DECIMALS_AS_INTEGERS = (1, 9999)  # the file version that writes decimals of 18 digits as integers
MILLIS_OF_NANOS = (-9_223_372_036_000, 9_223_372_036_000)  # the range of nanoseconds in 64 bits, in milliseconds
PRESENT, DATA, LENGTH, DICTIONARY_DATA, _, SECONDARY, ROW_INDEX = range(7)  # kinds of streams
DIRECT, DICTIONARY, DIRECT_V2, DICTIONARY_V2 = range(4)  # kinds of encodings
RAW, RUNS, BITS = range(3)  # kinds of positions: how many numbers follow the byte position
INTEGER_DIGITS = 18  # most digits of decimals that are written as integers
INDEX_LIMIT = 64 << 20  # bytes of a decompressed row index
RUN_SLACK = 5 << 10  # bytes: more than a run takes
FARTHEST = 1 << 62
TEXTS = (Kind.STRING, Kind.CHAR, Kind.VARCHAR)
BLOBS = (Kind.BINARY, Kind.GEOMETRY, Kind.GEOGRAPHY)

Positions = NDArray[np.int64]  # one row per row group, one column per number of the position
# streams of a column in the order of a position's numbers: kind, and RAW, RUNS or BITS
Layout = Sequence[tuple[int, int]]
INDEX_AT_ONCE = 1 << 20  # bytes of a stripe's indexes that are read together with its footer
ROUND = 16 << 20  # bytes of the indexes of all stripes that are read so


class PostScript(NamedTuple):
    footer_length: int
    codec: Codec
    version: tuple[int, ...]


class StripePlace(NamedTuple):
    """A stripe: its index, data and footer follow each other from `offset`. Lengths in bytes."""

    first_row: int
    rows: int
    offset: int
    index_length: int
    data_length: int
    footer_length: int

    @property
    def footer_offset(self) -> int:
        return self.offset + self.index_length + self.data_length


@dataclass(frozen=True, slots=True)
class Footer:
    """`stride`: rows of an entry of the row index, 0 where there is none. `in_micros`: timestamps finer than a
    microsecond are refused. `disk_bytes`: by column, where the footer has them."""

    columns: tuple[tuple[str, Type], ...]
    types: int
    stripes: tuple[StripePlace, ...]
    rows: int
    stride: int
    in_micros: bool
    by_java: bool
    hybrid_calendar: bool
    disk_bytes: tuple[int, ...]
    codec: Codec
    decimals_as_integers: bool

    def as_integers(self, tree: Type) -> bool:
        """Whether the decimals of a column are stored as integers of the type's scale."""
        return self.decimals_as_integers and tree.arrow.precision <= INTEGER_DIGITS


class Statistics(NamedTuple):
    """The used part of the file's statistics of a column: its bytes, and its earliest and latest instant in ms."""

    disk_bytes: int
    millis: tuple[int, ...]


def parse_postscript(data: bytes) -> PostScript:
    footer_length = kind = block = 0
    version: list[int] = []
    magic = MAGIC  # files of the first ORC writers have no magic here
    for field, value in fields(data):
        if field == 1:
            footer_length = number(value)
        elif field == 2:
            kind = number(value)
        elif field == 3:
            block = number(value)
        elif field == 4:
            version += numbers(value)
        elif field == 8000:
            magic = message(value)
    if magic != MAGIC:
        raise Damage(f"the postscript has {magic!r}, expected {MAGIC!r}")
    return PostScript(footer_length, Codec(kind, block), tuple(version))


def parse_footer(packed: bytes, postscript: PostScript, body_end: int, in_micros: bool = False) -> Footer:
    """Parse a footer. `packed`: the footer as stored in the file. `body_end`: the position of the metadata and footer,
    or a later one. `in_micros`: read all timestamps in microseconds."""
    raw_types: list[RawType] = []
    raw_stripes: list[bytes] = []
    statistics: list[Statistics] = []
    numbers_of = {6: 0, 8: 0, 9: JAVA, 11: 0}  # rows, stride, writer, calendar
    for field, value in fields(postscript.codec.unpack_all(packed, FOOTER_LIMIT)):
        if field == 3:
            raw_stripes.append(message(value))
        elif field == 4:
            raw_types.append(read_type(message(value)))
        elif field == 7:
            statistics.append(_statistics(message(value)))
        elif field in numbers_of:
            numbers_of[field] = number(value)
    stripes, first_row = [], 0
    for ordinal, raw in enumerate(raw_stripes):
        stripes.append(_stripe(raw, ordinal, first_row, body_end))
        first_row += stripes[-1].rows
    for before, after in pairwise(stripes):
        if after.offset < before.footer_offset + before.footer_length:
            raise Damage(f"stripes overlap at byte {after.offset}")
    if first_row != numbers_of[6]:
        raise Damage(f"the footer claims {numbers_of[6]} rows, its stripes {first_row}")
    low, high = MILLIS_OF_NANOS
    wide = frozenset(i for i, each in enumerate(statistics) if any(not low < one < high for one in each.millis))
    wide = frozenset(range(len(raw_types))) if in_micros else wide
    return Footer(
        columns=tuple(columns_of(raw_types, wide)),
        types=len(raw_types),
        stripes=tuple(stripes),
        rows=first_row,
        stride=numbers_of[8],
        in_micros=in_micros,
        by_java=numbers_of[9] == JAVA,
        hybrid_calendar=numbers_of[11] != PROLEPTIC and (numbers_of[11] > 0 or numbers_of[9] == JAVA),
        disk_bytes=tuple(each.disk_bytes for each in statistics),
        codec=postscript.codec,
        decimals_as_integers=postscript.version[:2] == DECIMALS_AS_INTEGERS,
    )


def _stripe(data: bytes, ordinal: int, first_row: int, body_end: int) -> StripePlace:
    rows, *places = numbers_in(data, 5, 1, 2, 3, 4)
    place = StripePlace(first_row, rows, *places)
    if place.offset < len(MAGIC) or place.footer_offset + place.footer_length > body_end:
        raise Damage(f"stripe {ordinal} at {place.offset}, its footer at {place.footer_offset}: beyond the file's body")
    if place.rows > MOST_ROWS:
        raise Damage(f"stripe {ordinal} claims {place.rows} rows, more than {MOST_ROWS}")
    return place


def _statistics(data: bytes) -> Statistics:
    disk_bytes, millis = 0, []
    for field, value in fields(data):
        if field == 11:
            disk_bytes = number(value)
        elif field == 9:
            millis = [signed(each) for key, each in fields(message(value)) if 1 <= key <= 4]
    return Statistics(disk_bytes, tuple(millis))


@dataclass(slots=True)
class StripeMeta:
    """The metadata of a stripe. `streams`: `(offset in the file, length)` by column and kind. `encodings`: `(kind,
    entries of the dictionary)` by column. `positions`, by column, grow as columns are requested: None where the index
    cannot be used."""

    footer: Footer
    place: StripePlace
    streams: Mapping[tuple[int, int], tuple[int, int]]
    encodings: Sequence[tuple[int, int]]
    zone: str
    positions: dict[int, Positions | None]

    @property
    def groups(self) -> int:
        """The number of row groups in the row index; 1 without an index."""
        return row_group_count(self.place, self.footer)

    @property
    def cache_bytes(self) -> int:
        held = sum(each.nbytes for each in list(self.positions.values()) if each is not None)
        return 500 + 250 * len(self.streams) + 80 * len(self.encodings) + held + 100 * len(self.positions)

    def encoding(self, column: int) -> tuple[int, int]:
        if column >= len(self.encodings):
            raise Damage(f"the stripe's footer has {len(self.encodings)} encodings, none for column {column}")
        kind, entries = self.encodings[column]
        if kind > DICTIONARY_V2:
            raise Damage(f"unknown encoding {kind} of column {column}")
        return kind, entries

    def layout(self, tree: Type) -> Layout:
        """The streams of a column in the order in which a position has their numbers; dictionaries have none."""
        kind = tree.kind
        if kind in TEXTS:
            dictionary = self.encoding(tree.column)[0] in (DICTIONARY, DICTIONARY_V2)
            own: Layout = ((DATA, RUNS),) if dictionary else ((DATA, RAW), (LENGTH, RUNS))
        elif kind in BLOBS:
            own = (DATA, RAW), (LENGTH, RUNS)
        elif kind == Kind.STRUCT:
            own = ()
        elif kind in (Kind.LIST, Kind.MAP):
            own = ((LENGTH, RUNS),)
        elif kind in (Kind.TIMESTAMP, Kind.INSTANT):
            own = (DATA, RUNS), (SECONDARY, RUNS)
        elif kind == Kind.DECIMAL and not self.footer.as_integers(tree):
            own = (DATA, RAW), (SECONDARY, RUNS)
        else:
            own = ((DATA, BITS if kind == Kind.BOOLEAN else RAW if kind in (Kind.FLOAT, Kind.DOUBLE) else RUNS),)
        return ((PRESENT, BITS), *own) if (tree.column, PRESENT) in self.streams else own

    def place_of(self, kind: int, tree: Type) -> int:
        """The index of the first number for a stream in a position."""
        packs, at = self.footer.codec.packed, 0
        for each, extra in self.layout(tree):
            if each == kind:
                break
            at += width(extra, packs)
        return at

    def seekable(self, tree: Type) -> bool:
        """Whether the positions of the column and all columns below it can be used."""
        return all(self.positions.get(each.column) is not None for each in tree.tree() if self.layout(each))

    def ranges_of(self, tree: Type, first: int, last: int, groups: int) -> Iterable[tuple[int, int, int, int]]:
        """`(column, kind, begin, end)` in each stream for the row groups from `first` to `last`. Their positions must
        be known where needed."""
        packs, block = self.footer.codec.packed, self.footer.codec.block_size
        for each in tree.tree():
            at = 0
            places = self.positions.get(each.column)
            for kind, extra in self.layout(each):
                length = self.streams.get((each.column, kind), (0, 0))[1]
                begin, end = 0, length
                if first:
                    assert places is not None
                    begin = int(places[first, at])
                if last + 1 < groups:
                    assert places is not None
                    end = int(places[last + 1, at])
                    if packs and places[last + 1, at + 1 : at + width(extra, packs)].any():
                        later = places[last + 2 :, at]
                        beyond = later[later > end]
                        end = min(end + 3 + block, int(beyond[0]) if len(beyond) else length)
                    elif not packs and extra and places[last + 1, at + 1 : at + width(extra, packs)].any():
                        end += RUN_SLACK
                at += width(extra, packs)
                yield each.column, kind, min(begin, length), min(end, length)
            for kind in (DICTIONARY_DATA, LENGTH) if self.is_dictionary(each) else ():
                yield each.column, kind, 0, self.streams.get((each.column, kind), (0, 0))[1]

    def is_dictionary(self, tree: Type) -> bool:
        return tree.kind in TEXTS and self.encoding(tree.column)[0] in (DICTIONARY, DICTIONARY_V2)


def width(extra: int, packed: bool) -> int:
    """The number of a position's numbers for a stream."""
    return (2 if packed else 1) + extra


def parse_stripe_footer(packed: bytes, place: StripePlace, footer: Footer) -> StripeMeta:
    """Parse the footer of a stripe. `packed`: the footer as stored in the file."""
    streams: dict[tuple[int, int], tuple[int, int]] = {}
    encodings: list[tuple[int, int]] = []
    zone, offset = "", place.offset
    for key, value in fields(footer.codec.unpack_all(packed, INDEX_LIMIT)):
        if key == 1:
            kind, column, length = numbers_in(message(value), 1, 2, 3)
            if offset + length > place.footer_offset:
                raise Damage(f"stream {kind} of column {column} runs beyond the stripe")
            if kind <= ROW_INDEX and streams.setdefault((column, kind), (offset, length)) != (offset, length):
                raise Damage(f"column {column} has two streams of kind {kind}")
            offset += length
        elif key == 2:
            encoding, entries = numbers_in(message(value), 1, 2)
            encodings.append((encoding, entries))
        elif key == 3:
            zone = text(value)
    return StripeMeta(footer, place, streams, encodings, zone, {})


def parse_row_index(packed: bytes, tree: Type, meta: StripeMeta) -> Positions | None:
    """The positions in a row index; None, so that the index is not used, where they are impossible for this stripe."""
    codec, entries = meta.footer.codec, list[list[int]]()
    try:
        for key, value in fields(codec.unpack_all(packed, INDEX_LIMIT)):
            if key == 1:
                found = [numbers(what) for each, what in fields(message(value)) if each == 1]
                entries.append([one for part in found for one in part])
    except Damage:
        return None
    packs = codec.packed
    wanted = sum(width(extra, packs) for _, extra in meta.layout(tree))
    # If no value is null, writers drop the PRESENT stream; some forget to drop its positions.
    dropped = width(BITS, packs) if (tree.column, PRESENT) not in meta.streams else 0
    # The first is where the streams begin: some leave it out.
    entries[:1] = [[0] * len(entries[1])] if len(entries) > 1 else []
    if len(entries) != meta.groups or len({len(entry) for entry in entries}) != 1:
        return None
    if len(entries[0]) not in (wanted, wanted + dropped) or max(max(each, default=0) for each in entries) > FARTHEST:
        return None
    table = np.array(entries, dtype=np.int64).reshape(meta.groups, -1)
    return table[:, table.shape[1] - wanted :]


def row_group_count(stripe: StripePlace, footer: Footer) -> int:
    """The number of row groups in the row index of a stripe; 1 without an index."""
    return max(-(-stripe.rows // footer.stride), 1) if footer.stride else 1


def load_stripes(
    reader: RangeReader,
    footer: Footer,
    known: Mapping[int, StripeMeta],
    ordinals: Sequence[int],
    requested: Sequence[tuple[str, Type]],
) -> dict[int, StripeMeta]:
    """The metadata of the stripes, with the positions of the requested columns. `known` ones are not read again."""
    found = {ordinal: known[ordinal] for ordinal in ordinals if ordinal in known}
    unknown = [ordinal for ordinal in ordinals if ordinal not in known]
    places = {ordinal: footer.stripes[ordinal] for ordinal in ordinals}
    indexes = {
        ordinal: places[ordinal].index_length for ordinal in unknown if row_group_count(places[ordinal], footer) > 1
    }
    indexes = {ordinal: length for ordinal, length in indexes.items() if length <= INDEX_AT_ONCE}
    if sum(indexes.values()) > ROUND:
        indexes = {}
    ranges = [(places[ordinal].footer_offset, places[ordinal].footer_length) for ordinal in unknown]
    ranges += [(places[ordinal].offset, length) for ordinal, length in indexes.items()]
    parts = reader.read_ranges(ranges) if ranges else []
    for ordinal, part in zip(unknown, parts, strict=False):
        offset = places[ordinal].footer_offset
        with error_context(f"the footer of stripe {ordinal}", offset):
            found[ordinal] = parse_stripe_footer(part, places[ordinal], footer)
    held = dict(zip(indexes, parts[len(unknown) :], strict=True))
    _load_indexes(reader, found, held, [tree for _, tree in requested])
    return found


def _load_indexes(
    reader: RangeReader, metas: Mapping[int, StripeMeta], held: Mapping[int, bytes], requested: Sequence[Type]
) -> None:
    """Add the positions of the columns. `held`: the index of a stripe, from its first byte on."""
    missing: list[tuple[StripeMeta, Type, int, int]] = []
    for ordinal, meta in metas.items():
        for tree in [each for top in requested for each in top.tree()] if meta.groups > 1 else []:
            if tree.column in meta.positions or not meta.layout(tree):
                continue
            offset, length = meta.streams.get((tree.column, ROW_INDEX), (meta.place.offset, 0))
            begin = offset - meta.place.offset
            if length == 0:
                meta.positions[tree.column] = None
            elif begin + length <= len(held.get(ordinal, b"")):
                packed = held[ordinal][begin : begin + length]
                meta.positions[tree.column] = parse_row_index(packed, tree, meta)
            else:
                missing.append((meta, tree, offset, length))
    parts = reader.read_ranges([(offset, length) for _, _, offset, length in missing]) if missing else []
    for (meta, tree, _, _), packed in zip(missing, parts, strict=True):
        meta.positions[tree.column] = parse_row_index(packed, tree, meta)

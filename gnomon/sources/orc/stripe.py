"""Parses the footer and the row indexes of a stripe: the places of its streams, and the position of each row group in
them (ORC specification v1, "Stripes").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnomon.sources.orc.errors import Damage
from gnomon.sources.orc.file_tail import Footer, StripePlace
from gnomon.sources.orc.protobuf import fields, message, number, numbers, text
from gnomon.sources.orc.schema import (
    BINARY,
    BOOLEAN,
    CHAR,
    DECIMAL,
    DOUBLE,
    FLOAT,
    GEOGRAPHY,
    GEOMETRY,
    INSTANT,
    LIST,
    MAP,
    STRING,
    STRUCT,
    TIMESTAMP,
    VARCHAR,
    Type,
)

PRESENT, DATA, LENGTH, DICTIONARY_DATA, _, SECONDARY, ROW_INDEX = range(7)  # kinds of streams
DIRECT, DICTIONARY, DIRECT_V2, DICTIONARY_V2 = range(4)  # kinds of encodings
RAW, RUNS, BITS = range(3)  # kinds of positions: how many numbers follow the byte position
INTEGER_DIGITS = 18  # most digits of decimals that are written as integers
INDEX_LIMIT = 64 << 20  # bytes of a decompressed row index
RUN_SLACK = 5 << 10  # bytes: more than a run takes
FARTHEST = 1 << 62
TEXTS = (STRING, CHAR, VARCHAR)
BLOBS = (BINARY, GEOMETRY, GEOGRAPHY)

Positions = NDArray[np.int64]  # one row per row group, one column per number of the position
# streams of a column in the order of a position's numbers: kind, and RAW, RUNS or BITS
Layout = Sequence[tuple[int, int]]


@dataclass(slots=True)
class StripeMeta:
    """`streams`: `(offset in the file, length)` by column and kind. `encodings`: `(kind, entries of the dictionary)` by
    column. `positions`, by column, grow as columns are requested: None where the index cannot be used."""

    streams: Mapping[tuple[int, int], tuple[int, int]]
    encodings: Sequence[tuple[int, int]]
    zone: str
    positions: dict[int, Positions | None] = field(default_factory=dict)

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


def parse_stripe_footer(packed: bytes, place: StripePlace, footer: Footer) -> StripeMeta:
    """Parse the footer of a stripe. `packed`: the footer as stored in the file."""
    streams: dict[tuple[int, int], tuple[int, int]] = {}
    encodings: list[tuple[int, int]] = []
    zone, offset = "", place.offset
    for key, value in fields(footer.codec.unpack_all(packed, INDEX_LIMIT)):
        if key == 1:
            found = {1: 0, 2: 0, 3: 0}
            found |= {each: number(what) for each, what in fields(message(value)) if each in found}
            kind, column, length = found.values()
            if offset + length > place.footer_offset:
                raise Damage(f"stream {kind} of column {column} runs beyond the stripe")
            if kind <= ROW_INDEX and streams.setdefault((column, kind), (offset, length)) != (offset, length):
                raise Damage(f"column {column} has two streams of kind {kind}")
            offset += length
        elif key == 2:
            of_column = {1: 0, 2: 0}
            of_column |= {each: number(what) for each, what in fields(message(value)) if each in of_column}
            encodings.append((of_column[1], of_column[2]))
        elif key == 3:
            zone = text(value)
    return StripeMeta(streams, encodings, zone)


def layout(tree: Type, meta: StripeMeta, footer: Footer) -> Layout:
    """The streams of a column in the order in which a position has their numbers; dictionaries have none."""
    kind = tree.kind
    if kind in TEXTS:
        dictionary = meta.encoding(tree.column)[0] in (DICTIONARY, DICTIONARY_V2)
        own: Layout = ((DATA, RUNS),) if dictionary else ((DATA, RAW), (LENGTH, RUNS))
    elif kind in BLOBS:
        own = (DATA, RAW), (LENGTH, RUNS)
    elif kind == STRUCT:
        own = ()
    elif kind in (LIST, MAP):
        own = ((LENGTH, RUNS),)
    elif kind in (TIMESTAMP, INSTANT):
        own = (DATA, RUNS), (SECONDARY, RUNS)
    elif kind == DECIMAL and not as_integers(tree, footer):
        own = (DATA, RAW), (SECONDARY, RUNS)
    else:
        own = ((DATA, BITS if kind == BOOLEAN else RAW if kind in (FLOAT, DOUBLE) else RUNS),)
    return ((PRESENT, BITS), *own) if (tree.column, PRESENT) in meta.streams else own


def as_integers(tree: Type, footer: Footer) -> bool:
    """Whether the decimals of a column are stored as integers of the type's scale."""
    return footer.decimals_as_integers and tree.arrow.precision <= INTEGER_DIGITS


def width(extra: int, packed: bool) -> int:
    """The number of a position's numbers for a stream."""
    return (2 if packed else 1) + extra


def place_of(kind: int, tree: Type, meta: StripeMeta, footer: Footer) -> int:
    """The index of the first number for a stream in a position."""
    packs, at = footer.codec.packed, 0
    for each, extra in layout(tree, meta, footer):
        if each == kind:
            break
        at += width(extra, packs)
    return at


def parse_row_index(packed: bytes, tree: Type, meta: StripeMeta, footer: Footer, groups: int) -> Positions | None:
    """The positions in a row index; None, so that the index is not used, where they are impossible for this stripe."""
    entries: list[list[int]] = []
    try:
        for key, value in fields(footer.codec.unpack_all(packed, INDEX_LIMIT)):
            if key == 1:
                found = [numbers(what) for each, what in fields(message(value)) if each == 1]
                entries.append([one for part in found for one in part])
    except Damage:
        return None
    packs = footer.codec.packed
    wanted = sum(width(extra, packs) for _, extra in layout(tree, meta, footer))
    # If no value is null, writers drop the PRESENT stream; some forget to drop its positions.
    dropped = width(BITS, packs) if (tree.column, PRESENT) not in meta.streams else 0
    entries[:1] = (
        [[0] * len(entries[1])] if len(entries) > 1 else []
    )  # the first is where the streams begin: some leave it out
    if len(entries) != groups or len({len(entry) for entry in entries}) != 1:
        return None
    if len(entries[0]) not in (wanted, wanted + dropped) or max(max(each, default=0) for each in entries) > FARTHEST:
        return None
    table = np.array(entries, dtype=np.int64).reshape(groups, -1)
    return table[:, table.shape[1] - wanted :]


def seekable(tree: Type, meta: StripeMeta, footer: Footer) -> bool:
    """Whether the positions of the column and all columns below it can be used."""
    return all(meta.positions.get(each.column) is not None for each in tree.tree() if layout(each, meta, footer))


def ranges_of(
    tree: Type, meta: StripeMeta, footer: Footer, first: int, last: int, groups: int
) -> Iterable[tuple[int, int, int, int]]:
    """`(column, kind, begin, end)` in each stream for the row groups from `first` to `last`. Their positions must be
    known where needed."""
    packs, block = footer.codec.packed, footer.codec.block_size
    for each in tree.tree():
        at = 0
        places = meta.positions.get(each.column)
        for kind, extra in layout(each, meta, footer):
            length = meta.streams.get((each.column, kind), (0, 0))[1]
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
        for kind in (DICTIONARY_DATA, LENGTH) if is_dictionary(each, meta) else ():
            yield each.column, kind, 0, meta.streams.get((each.column, kind), (0, 0))[1]


def is_dictionary(tree: Type, meta: StripeMeta) -> bool:
    return tree.kind in TEXTS and meta.encoding(tree.column)[0] in (DICTIONARY, DICTIONARY_V2)

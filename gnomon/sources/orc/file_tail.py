"""Parses the end of an ORC file, postscript and footer (ORC specification v1, "File Tail")."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gnomon.sources.orc.codecs import Codec
from gnomon.sources.orc.errors import Damage
from gnomon.sources.orc.protobuf import fields, message, number, numbers, signed
from gnomon.sources.orc.schema import RawType, Type, columns_of, read_type

MAGIC = b"ORC"
FOOTER_LIMIT = 64 << 20  # bytes of a decompressed footer
MOST_ROWS = 1 << 31  # rows of a stripe: a writer holds a stripe in memory
PROLEPTIC = 2  # CalendarKind
JAVA = 0  # a writer: its dates are of the hybrid calendar where the footer names no calendar
DECIMALS_AS_INTEGERS = (1, 9999)  # the file version that writes decimals of 18 digits as integers
MILLIS_OF_NANOS = (-9_223_372_036_000, 9_223_372_036_000)  # the range of nanoseconds in 64 bits, in milliseconds


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
    found = dict.fromkeys(range(1, 6), 0)
    for field, value in fields(data):
        if field in found:
            found[field] = number(value)
    place = StripePlace(first_row, found[5], *(found[i] for i in range(1, 5)))
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

"""Decimals, dates and timestamps: varints of up to 128 bits, each with its own scale; ORC's epochs, time zones and
calendars.
"""

import datetime as dt
import re
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from gnomon.base.varints import LONGEST_WIDE, OverlongVarint, decode_wide_array
from gnomon.sources.orc.rle import Ints
from gnomon.sources.orc.streams import ByteStream, Damage, Unsupported

MOST_DIGITS = 38
WORD_DIGITS = 18
LARGEST = 10**MOST_DIGITS
MASK = (1 << 64) - 1
EPOCH_2015 = 1_420_070_400  # seconds: the origin of timestamps, in the writer's time zone
DAY = 86_400  # seconds
CYCLE = 146_097 * DAY  # seconds of 400 years
FIRST_OF_PYTHON = -62_135_510_400  # 0001-01-02, a day after Python's first date, so that it exists in all zones
LAST_OF_PYTHON = 253_402_128_000
FIRST_GREGORIAN = -141_427  # 1582-10-15, in days
FIRST_OF_JAVA = -2_208_988_800  # 1900: before it, Java's time zones have only their standard time
RECENT = 2_114_380_800  # 2037-01-01
SECOND = 1_000_000_000  # nanoseconds
# nanoseconds: for larger fractions, writers rounded the seconds of instants before 1970 towards zero
SMALLEST_FRACTION = 999_999
FURTHEST = {"ns": 9_223_372_035, "us": 9_223_372_036_853}  # seconds either way
FIXED_OFFSET = re.compile(r"(?:GMT|UTC)([+-])(\d\d?):?(\d\d)?$")
UNIVERSAL = ("", "UTC", "GMT", "Etc/UTC", "Z")  # the empty one: writers before 2014 did not name a zone


def read_varints(source: ByteStream, count: int) -> tuple[Ints, Ints]:
    """`(low, high)` words of the next `count` numbers."""
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    octets, ends = _next(source, count)
    starts = np.concatenate((ends[:1] * 0, ends[:-1]))
    source.position += int(ends[-1])
    try:
        return decode_wide_array(octets, starts, ends)
    except OverlongVarint as error:
        raise Damage(str(error)) from None


def skip_varints(source: ByteStream, count: int) -> None:
    """Skip the next `count` numbers."""
    if count:
        _, ends = _next(source, count)  # a call of `_next` may move the position
        source.position += int(ends[-1])


def _next(source: ByteStream, count: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Ints]:
    """`(bytes, ends)` of the next `count` varints."""
    while True:
        octets = np.frombuffer(source.data, np.uint8, -1, source.position)
        ends = np.flatnonzero(octets[: count * LONGEST_WIDE] < 0x80)[:count] + 1
        if len(ends) == count:
            return octets, ends
        if len(octets) >= count * LONGEST_WIDE:
            raise Damage("a decimal longer than 128 bits")
        if not source.fill():
            raise Damage(f"a stream ends {count - len(ends)} decimals early")


def at_scale(low: Ints, high: Ints, scales: Ints, scale: int) -> tuple[Ints, Ints]:
    """The numbers, each with its own scale in `scales`, at one common scale."""
    shifts = scale - scales
    if len(shifts) and not -MOST_DIGITS <= int(shifts.min()) <= int(shifts.max()) <= MOST_DIGITS:
        raise Damage(f"a decimal of scale {int(scales.max())}, its type has {scale}")
    low, high = low.copy(), high.copy()
    for shift in np.unique(shifts[shifts != 0]).tolist():
        places = np.flatnonzero(shifts == shift)
        if 0 < shift <= WORD_DIGITS:
            most = ((1 << 63) - 1) // 10**shift
            fits = (high[places] == low[places] >> 63) & (low[places] <= most) & (low[places] >= -most)
            quick, places = places[fits], places[~fits]
            low[quick] *= 10**shift
            high[quick] = low[quick] >> 63
        for place in places.tolist():  # few: those that need more than 64 bits, or lose digits
            value = (int(high[place]) << 64) | (int(low[place]) & MASK)
            value = value * 10**shift if shift > 0 else _cut(value, 10**-shift)
            if abs(value) >= LARGEST:
                raise Damage(f"a decimal of more than {MOST_DIGITS} digits")
            low[place], high[place] = _signed(value & MASK), _signed(value >> 64 & MASK)
    return low, high


def check_digits(low: Ints, high: Ints) -> None:
    """Damage if a number has more than 38 digits."""
    top = LARGEST >> 64
    for place in np.flatnonzero((high >= top) | (high < -top)).tolist():
        if abs((int(high[place]) << 64) | (int(low[place]) & MASK)) >= LARGEST:
            raise Damage(f"a decimal of more than {MOST_DIGITS} digits")


def _cut(value: int, divisor: int) -> int:
    """The quotient, truncated: digits beyond the type's scale are dropped, as in ORC's C++ reader."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def rebased(days: Ints) -> Ints:
    """Days converted so that dates before 1582-10-15 of the Julian calendar are the same dates of the Gregorian one."""
    old = np.flatnonzero(days < FIRST_GREGORIAN)
    if not len(old):
        return days
    # The Julian date of a day, counted from 1 March of the year 0 in leap cycles of 1461 days.
    shifted = days[old] + 719_470
    cycle, rest = np.divmod(shifted, 1461)
    year_of_cycle = np.minimum(rest // 365, 3)
    day_of_year = rest - 365 * year_of_cycle
    year = 4 * cycle + year_of_cycle
    out = days.copy()
    out[old] = year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    return out


def seconds_and_nanos(data: Ints, fractions: Ints) -> tuple[Ints, Ints]:
    """`(seconds from 2015, nanoseconds)`. The lowest three bits of a fraction encode how many zeros were removed. For
    instants before 1970 pyarrow writes negative fractions."""
    zeros = fractions & 7
    nanos = fractions >> 3
    _check_fractions(nanos)
    nanos = nanos * np.where(zeros, 10 ** (zeros + 1), 1)
    _check_fractions(nanos)
    return data, nanos


def _check_fractions(nanos: Ints) -> None:
    if len(nanos) and not -SECOND < int(nanos.min()) <= int(nanos.max()) < SECOND:
        raise Damage("a fraction of a second or more")


def ticks(seconds: Ints, nanos: Ints, zone: str, by_java: bool, hybrid_calendar: bool, unit: str) -> Ints:
    """Timestamps in `unit`, of the wall clock in the writer's `zone`. `seconds` count from 2015 in that zone."""
    furthest = FURTHEST[unit]
    # a day of margin, since the zone is not applied yet
    low, high = -furthest - EPOCH_2015 - DAY, furthest - EPOCH_2015 + DAY
    if len(seconds) and not low < int(seconds.min()) <= int(seconds.max()) < high:
        raise _beyond(unit)
    instants = seconds + (EPOCH_2015 - _offset(zone, EPOCH_2015))
    instants = instants - ((instants < 0) & (nanos > SMALLEST_FRACTION))
    clock = _wall_clock(instants, zone)
    if by_java and zone not in UNIVERSAL and len(instants) and int(instants.min()) < FIRST_OF_JAVA:
        clock = np.where(instants < FIRST_OF_JAVA, instants + _standard(zone), clock)
    if hybrid_calendar and len(clock) and int(clock.min()) < FIRST_GREGORIAN * DAY:
        days = clock // DAY
        clock = clock + (rebased(days) - days) * DAY
    if len(clock) and not -furthest <= int(clock.min()) <= int(clock.max()) <= furthest:
        raise _beyond(unit)
    return clock * SECOND + nanos if unit == "ns" else clock * 1_000_000 + nanos // 1000


def _beyond(unit: str) -> Unsupported:
    cure = "; the option timestamp_unit=us may read it" if unit == "ns" else ""
    return Unsupported(f"a timestamp that exceeds 64 bits in {unit}{cure}")


def _offset(zone: str, instant: int) -> int:
    """Seconds that the zone is ahead of UTC."""
    return int(_wall_clock(np.array([instant], dtype=np.int64), zone)[0]) - instant


def _standard(zone: str) -> int:
    """Seconds that the zone's standard time of today is ahead of UTC."""
    return min(_offset(zone, RECENT), _offset(zone, RECENT + 182 * DAY))


def _wall_clock(instants: Ints, zone: str) -> Ints:
    """The time that a clock in the zone shows, in seconds from 1970 on that clock."""
    if zone in UNIVERSAL:
        return instants
    fixed = FIXED_OFFSET.match(zone)
    if fixed is not None:
        sign, hours, minutes = fixed.groups()
        return instants + int(f"{sign}1") * (int(hours) * 3600 + int(minutes or 0) * 60)
    days, day_of = np.unique(instants // DAY, return_inverse=True)
    begins = np.array([_offset_at(zone, day * DAY) for day in days.tolist()], dtype=np.int64)
    ends = np.array([_offset_at(zone, (day + 1) * DAY) for day in days.tolist()], dtype=np.int64)
    offsets = begins[day_of]
    for place in np.flatnonzero((begins != ends)[day_of]).tolist():  # on days with a change of the clock
        offsets[place] = _offset_at(zone, int(instants[place]))
    return instants + offsets


@lru_cache(maxsize=1 << 16)
def _offset_at(zone: str, instant: int) -> int:
    """Seconds that the zone is ahead of UTC. pyarrow's own conversion has no summer time after 2037."""
    if instant > LAST_OF_PYTHON:  # the calendar repeats every 400 years
        instant -= -(-(instant - LAST_OF_PYTHON) // CYCLE) * CYCLE
    try:
        found = dt.datetime.fromtimestamp(max(instant, FIRST_OF_PYTHON), ZoneInfo(zone)).utcoffset()
    except (KeyError, ValueError, OSError) as error:
        raise Unsupported(f"the writer's time zone {zone!r} is not in this machine's database") from error
    return 0 if found is None else found // dt.timedelta(seconds=1)

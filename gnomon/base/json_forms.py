"""Dates, times and floats in JSON.

Dates and times are ISO 8601 text of every value that a file can hold, even those that Python's datetime cannot:
proleptic Gregorian, years outside 0..9999 with a sign (-0044, +10000), fractions without trailing zeros."""

import math

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # of a fraction of a second in Arrow's units
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds in each unit
DAYS_TO_EPOCH = 719468  # from 0000-03-01 to 1970-01-01
ERA_YEARS, ERA_DAYS = 400, 146097  # the calendar repeats


def date_text(days: int) -> str:
    """The date of a day number (0 is 1970-01-01)."""
    # Years begin in March here, so that a leap day is the last day of its year.
    era, day = divmod(days + DAYS_TO_EPOCH, ERA_DAYS)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    march_month = (5 * day + 2) // 153
    day_of_month = day - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year += era * ERA_YEARS + (month <= 2)
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_month:02d}"


def time_text(ticks: int, unit: str, zeros: bool = False) -> str:
    """The time of day of a number of ticks (s, ms, us or ns) after midnight. Some writers write times outside a day:
    these have more than 24 hours, or negative ones. With `zeros` a fraction keeps its trailing zeros."""
    seconds, fraction = divmod(ticks, 10 ** DIGITS[unit])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f"{fraction:0{DIGITS[unit]}d}" if fraction else ""
    return f"{text}.{digits if zeros else digits.rstrip('0')}" if digits else text


def timestamp_text(ticks: int, unit: str, utc: bool, zeros: bool = False) -> str:
    """The instant (with Z) or local time of a number of ticks after 1970-01-01T00:00. `zeros`: as in `time_text`."""
    days, rest = divmod(ticks, 86400 * 10 ** DIGITS[unit])
    return f"{date_text(days)}T{time_text(rest, unit, zeros)}{'Z' if utc else ''}"


def json_float(number: float) -> float | str:
    """The number; NaN and the infinities, which JSON does not have, as text."""
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"

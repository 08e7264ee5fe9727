"""Dates, times and floats in JSON: as in Python if it holds them, and by the same rules if not."""

import datetime as dt
import json
import random

import pytest

from gnomon.base.json_forms import date_text, json_float, time_text, timestamp_text
from tests.profiles import examples

EPOCH = dt.date(1970, 1, 1)
FIRST, LAST = (dt.date.min - EPOCH).days, (dt.date.max - EPOCH).days


def test_dates_are_pythons_over_its_whole_range() -> None:
    days = [*range(FIRST, LAST + 1, 97), *range(FIRST, FIRST + 1500), *range(LAST - 1500, LAST + 1)]
    for day in days:
        assert date_text(day) == (EPOCH + dt.timedelta(days=day)).isoformat()


def test_every_day_of_four_centuries_is_pythons() -> None:
    begin = (dt.date(1800, 1, 1) - EPOCH).days
    for day in range(begin, begin + 146_097):
        assert date_text(day) == (EPOCH + dt.timedelta(days=day)).isoformat()


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (FIRST - 1, "0000-12-31"),
        (FIRST - 366, "0000-01-01"),  # year 0 is a leap year
        (FIRST - 307, "0000-02-29"),
        (FIRST - 367, "-0001-12-31"),
        (-735_525, "-0044-03-15"),
        (LAST + 1, "+10000-01-01"),
        (2_932_897 + 59, "+10000-02-29"),
        (2**31 - 1, "+5881580-07-11"),  # the limits of Arrow's date32, in the form of Java's LocalDate
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_days_python_does_not_have(day: int, text: str) -> None:
    assert date_text(day) == text


def test_neighbouring_days_differ_by_one_far_outside_of_python() -> None:
    shift = 400 * 10_000  # the calendar repeats every 400 years of 146,097 days
    rng = random.Random(1)
    for _ in range(examples(2000)):
        day = rng.randrange(FIRST, LAST + 1)
        inside = EPOCH + dt.timedelta(days=day)
        assert date_text(day + 146_097 * 10_000) == f"+{inside.year + shift}-{inside:%m-%d}"


@pytest.mark.parametrize(
    ("ticks", "unit", "text"),
    [
        (0, "s", "00:00:00"),
        (86_399, "s", "23:59:59"),
        (1, "ms", "00:00:00.001"),
        (1_500, "ms", "00:00:01.5"),
        (1, "us", "00:00:00.000001"),
        (3_600_000_000_000, "ns", "01:00:00"),
        (1, "ns", "00:00:00.000000001"),
        (86_399_999_999_999, "ns", "23:59:59.999999999"),
        (90_000_500, "ms", "25:00:00.5"),  # some writers write times outside a day
        (-1, "us", "-1:59:59.999999"),
    ],
)
def test_times_have_the_fraction_they_need(ticks: int, unit: str, text: str) -> None:
    assert time_text(ticks, unit) == text


def test_timestamps_are_pythons_at_random_instants() -> None:
    rng = random.Random(2)
    for _ in range(examples(5000)):
        micros = rng.randrange(FIRST * 86_400_000_000, (LAST + 1) * 86_400_000_000)
        python = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
        text = timestamp_text(micros, "us", utc=False)
        assert dt.datetime.fromisoformat(text) == python
        assert timestamp_text(micros, "us", utc=True) == text + "Z"
        assert timestamp_text(micros * 1000, "ns", utc=False) == text
        assert timestamp_text(micros, "us", utc=False, zeros=True) == python.isoformat()


@pytest.mark.parametrize(
    ("ticks", "unit", "text"),
    [
        (-1, "ns", "1969-12-31T23:59:59.999999999Z"),
        (-1, "s", "1969-12-31T23:59:59Z"),
        (2**63 - 1, "ns", "2262-04-11T23:47:16.854775807Z"),
        (-(2**63), "ns", "1677-09-21T00:12:43.145224192Z"),
        (2**63 - 1, "us", "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), "us", "-290308-12-21T19:59:05.224192Z"),
        (253_402_300_800, "s", "+10000-01-01T00:00:00Z"),
    ],
)
def test_timestamps_python_does_not_have(ticks: int, unit: str, text: str) -> None:
    assert timestamp_text(ticks, unit, utc=True) == text


@pytest.mark.parametrize("number", [0.0, -1.5, 1e300, float("nan"), float("inf"), float("-inf")])
def test_a_float_is_itself_or_a_text_that_gives_it_back(number: float) -> None:
    written = json.loads(json.dumps(json_float(number), allow_nan=False))
    assert repr(float(written)) == repr(number)

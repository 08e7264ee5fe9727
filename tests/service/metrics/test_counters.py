"""service/metrics/collectors.py: counters that requests increase."""

from gnomon.service.costs import Cost
from gnomon.service.metrics.collectors import BUCKETS, Tallies, Timing
from tests.service.metrics.test_exposition import of_collector


def test_a_time_on_a_bound_belongs_to_it() -> None:
    timing = Timing()
    for seconds in (0.0, BUCKETS[0], BUCKETS[0] * 1.01, BUCKETS[-1], 1e9):
        timing.add(seconds)
    assert (timing.counts[0], timing.counts[1], timing.counts[-2], timing.counts[-1]) == (2, 1, 1, 1)


def test_methods_that_nobody_knows_are_one() -> None:
    tallies = Tallies()
    for number in range(100):
        tallies.count(("other", f"M{number}", 405, ""), 0.1, Cost(), None)
    requests = {key: value for key, value in of_collector(tallies).items() if key[0] == "gnomon_requests_total"}
    labels = (("index", ""), ("method", "other"), ("route", "other"), ("status", "405"))
    assert requests == {("gnomon_requests_total", labels): 100}


def test_names_that_break_the_format_are_escaped() -> None:
    tallies, odd = Tallies(), 'a"b\\c\nd'
    tallies.count((odd, "GET", 200, "x"), 0.1, Cost(), odd)
    assert of_collector(tallies)["gnomon_rejected_total", (("reason", odd),)] == 1

"""service/access/guard.py: the rate limit of clients."""

import pytest

from gnomon.service.access import guard as module
from gnomon.service.access.guard import Rates
from gnomon.service.errors import TooManyRequests
from gnomon.service.settings.table import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock, per_second: float = 2.0, burst: int = 3, workers: int = 1) -> Rates:
    settings = Settings(indexes=["x"], requests_per_second=per_second, request_burst=burst, workers=workers)
    return Rates(settings, clock)


def taken(rates: Rates, client: str) -> int:
    """The number of requests that pass at once."""
    for count in range(1000):
        try:
            rates.take(client)
        except TooManyRequests:
            return count
    return 1000


def test_a_burst_passes_then_the_rate() -> None:
    clock = Clock()
    rates = make(clock)
    assert taken(rates, "a") == 3
    clock.now += 1
    assert taken(rates, "a") == 2
    clock.now += 100
    assert taken(rates, "a") == 3, "no more than the burst is saved up"


def test_one_client_does_not_use_up_anothers_requests() -> None:
    rates = make(Clock())
    assert (taken(rates, "a"), taken(rates, "b")) == (3, 3)


def test_a_refused_request_says_when_to_come_again_and_coming_then_is_enough() -> None:
    clock = Clock()
    rates = make(clock, per_second=0.25, burst=1)
    rates.take("a")
    for _ in range(50):  # refused requests cost nothing
        with pytest.raises(TooManyRequests) as raised:
            rates.take("a")
    assert raised.value.headers == {"retry-after": "4"}
    assert "more than 0.25 requests a second; come again in 4 s" in str(raised.value)
    clock.now += 4
    rates.take("a")


def test_keys_of_a_batch_count_beside_its_request_and_may_leave_less_than_nothing() -> None:
    clock = Clock()
    rates = make(clock, per_second=1.0, burst=3)
    rates.take("a")
    rates.charge_keys("a", 99)
    rates.charge_keys("a", 1050)
    with pytest.raises(TooManyRequests) as raised:
        rates.take("a")
    assert raised.value.headers == {"retry-after": "9"}, "3 - 1 - 10 = -8, and one is needed"
    clock.now += 9
    rates.take("a")


def test_workers_share_the_rate() -> None:
    clock = Clock()
    rates = make(clock, per_second=8.0, burst=12, workers=4)
    assert taken(rates, "a") == 3
    clock.now += 1
    assert taken(rates, "a") == 2
    assert taken(make(clock, burst=1, workers=8), "a") == 1, "a request at least passes"


def test_no_rate_counts_nothing() -> None:
    rates = make(Clock(), per_second=0)
    assert taken(rates, "a") == 1000
    rates.charge_keys("a", 10_000)
    assert len(rates) == 0


def test_as_many_clients_are_remembered_as_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLIENTS", 10)
    rates = make(Clock())
    for number in range(10):
        assert taken(rates, str(number)) == 3
    rates.charge_keys("0", 100)  # a second request, so that client 1 is the least recent
    rates.take("new")
    assert len(rates) == 10
    assert taken(rates, "0") == 0
    assert taken(rates, "1") == 3

"""The rate limit of each client: a bucket of requests, which fills at a constant rate ("token bucket")."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from gnomon.service.errors import TooManyRequests
from gnomon.service.settings import Settings

MOST_CLIENTS = 10_000  # clients that are remembered: the latest ones
KEYS_A_REQUEST = 100  # keys of a batch that count as one more request


class Rates:
    """The rates of all clients. Each worker counts alone, with an equal share of the service's rate. For the event loop
    only."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._told = settings.requests_per_second
        self._per_second = settings.requests_per_second / settings.workers
        self._burst = max(1.0, settings.request_burst / settings.workers)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left at a time, by client

    def __len__(self) -> int:
        return len(self._left)

    def take(self, client: str) -> None:
        """Count a request. TooManyRequests where the client has no request left; the refused request is not counted."""
        if not self._per_second:
            return
        left = self._now(client)
        if left < 1:
            raise self._refusal(1 - left)
        self._keep(client, left - 1)

    def charge_keys(self, client: str, keys: int) -> None:
        """Count the keys of a batch before it is answered. The number of requests left may become negative: the client
        then has to wait longer. TooManyRequests where it is negative already, because of other batches of the
        client."""
        if not self._per_second or keys < KEYS_A_REQUEST:
            return
        left = self._now(client)
        if left < 0:
            raise self._refusal(-left)
        self._keep(client, left - keys // KEYS_A_REQUEST)

    def _refusal(self, missing: float) -> TooManyRequests:
        wait = math.ceil(missing / self._per_second)
        return TooManyRequests(
            f"more than {self._told:g} requests a second; come again in {wait} s "
            "(settings requests_per_second and request_burst)",
            wait,
        )

    def _now(self, client: str) -> float:
        left, since = self._left.get(client, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - since) * self._per_second)

    def _keep(self, client: str, left: float) -> None:
        self._left[client] = left, self._clock()
        self._left.move_to_end(client)
        while len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)

"""How often a client may ask: a bucket of requests for each, which fills at a steady rate."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from gnomon.service.errors import TooManyRequests
from gnomon.service.settings import Settings

MOST_CLIENTS = 10_000  # that are remembered: those that asked last
KEYS_A_REQUEST = 100  # keys of a batch that count as a request more


class Rates:
    """The rate of a service is shared evenly by its workers, each of which counts alone. For the event loop only."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._told = settings.requests_per_second
        self._per_second = settings.requests_per_second / settings.workers
        self._burst = max(1.0, settings.request_burst / settings.workers)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was so

    def __len__(self) -> int:
        return len(self._left)

    def take(self, client: str) -> None:
        """Count a request. TooManyRequests where the client has none left; that is not counted."""
        if not self._per_second:
            return
        left = self._now(client)
        if left < 1:
            raise self._refusal(1 - left)
        self._keep(client, left - 1)

    def charge_keys(self, client: str, keys: int) -> None:
        """Count the keys of a batch before it is worked on. That may leave less than nothing: what the client asks next
        waits so much longer. TooManyRequests where other batches of the client have left less than nothing."""
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

"""Credentials that a catalog vends for the files of one table, for some minutes.

A source that is a table of a catalog names its root (`govern`), and how to ask its catalog. The first use of a file
there asks. The answer stays in the memory of this process: it is in no index, no task and no log, it cannot be pickled,
and its repr has no secret. Each process asks for itself. Files for which the catalog vends nothing are opened with the
credentials of the environment.

Credentials are renewed when two thirds of their life have passed, or a minute before their end, whichever comes later,
and once more when a store says that they have expired. A thread of its own asks; all others go on with the credentials
that they have, and wait where these have ended."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gnomon.base.errors import Action, GnomonError
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage.concurrency import threads
from gnomon.shadow.storage.locations import ALIASES, VENDED
from gnomon.shadow.storage.retries import Passing

LOG = logging.getLogger(__name__)
SHARE_OF_LIFE = 2 / 3
BEFORE_THE_END = 60.0  # seconds
LEAST_PAUSE = 1.0  # seconds between two renewals
PAUSE = 3.0  # seconds until a catalog that failed is asked again
PAUSE_WITHOUT = 30.0  # the same, while the credentials of the environment serve
ASK_SECONDS = 30.0


class Credential:
    """Credentials for the files of a table at or below `prefix`, "" for all of them. `scheme` is that of their store.
    `secrets` is what obstore takes from a provider of credentials, without their end; `options` are settings of the
    store, as its endpoint. `end` is in seconds since 1970, None where it is not known."""

    __slots__ = ("end", "options", "prefix", "scheme", "secrets")

    def __init__(
        self, scheme: str, prefix: str, secrets: Mapping[str, str], options: Mapping[str, Any], end: float | None
    ) -> None:
        self.scheme, self.prefix, self.end = scheme, prefix, end
        self.secrets, self.options = secrets, options

    def __repr__(self) -> str:
        return f"Credential({self.scheme!r}, {self.prefix!r}, end={self.end})"

    def __reduce__(self) -> Any:
        raise TypeError("credentials do not leave their process")

    def opens(self, location: str) -> bool:
        """Whether they are for this location. A prefix ends where a name ends: s3://b/t is no prefix of s3://b/t1."""
        scheme, _, rest = location.partition("://")
        if scheme != self.scheme:
            return False
        wanted, colon, below = self.prefix.partition("://")
        if not colon:  # "", "s3"
            return ALIASES.get(wanted, wanted) in ("", scheme)
        return ALIASES.get(wanted, wanted) == scheme and f"{rest}/".startswith(f"{below.rstrip('/')}/")


Ask = Callable[[], Sequence[Credential] | UsageError]
"""Asks the catalog. A UsageError is the reason why the table cannot be read at all. Raises other errors of Gnomon where
the catalog does not answer."""


class Vendor:
    """The credentials of one table, in this process. Threads may share it. `name` is the name of the table."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name
        self._ask = ask
        self.forget()

    def forget(self) -> None:
        """Ask again at the next use."""
        self._lock = threading.Lock()
        self._found: tuple[Credential, ...] = ()  # longest prefix first
        self._next, self._end = 0.0, math.inf  # when to ask again, and when the credentials have ended
        self._refusal: UsageError | None = None
        self.trouble = ""  # why the catalog could not be asked

    def vends(self, something: bool) -> None:
        """The catalog has just shown whether it vends credentials for the table."""
        if something and not self._found and self._next == math.inf:
            self._next = 0.0
        if not something:
            self._found, self._next, self._refusal, self.trouble = (), math.inf, None, ""

    def credential(self, location: str) -> Credential | None:
        """The credentials for a location of the table, which are asked for or renewed when it is time; None for those
        of the environment. UsageError for a table that cannot be read; Passing where the credentials have ended and the
        catalog does not answer."""
        now = time.time()
        if self._next <= now:
            if self._end > now and (self._found or self.trouble):
                if self._lock.acquire(blocking=False):
                    threads("gnomon-renew", 16).submit(self._renew_and_release)
            else:
                self._lock.acquire()
                self._renew_and_release()
        if self._refusal is not None:
            raise self._refusal
        if self._found and self._end <= time.time():
            raise self._ended()
        return next((one for one in self._found if one.opens(location)), None)

    def has_expired(self, used: Credential) -> None:
        """A store says that these credentials have expired: renew them, unless another thread has done so. Passing
        where the catalog does not answer."""
        with self._lock:
            if any(one is used for one in self._found):
                self._end = 0.0
                self._renew()
                if self._end <= time.time():
                    raise self._ended()

    def _ended(self) -> Passing:
        what = f"the credentials that the catalog vended have ended, and it vends no others: {self.trouble}"
        return Passing(what, self.name, action=Action.CHECK_CATALOG_RUNS)

    def _renew_and_release(self) -> None:
        """Renew the credentials, unless another thread has done so, and release the lock."""
        try:
            if self._next <= time.time():
                self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> None:
        """Ask the catalog. Where it does not answer, the credentials stay as they are until the next try."""
        began = time.time()
        try:
            found = _asked(self.name, self._ask)
        except GnomonError as error:
            if self.trouble != error.what:
                LOG.warning("%s: the catalog was asked for credentials in vain: %s", self.name, error.what)
            self.trouble = error.what
            self._next = time.time() + (PAUSE if self._found else PAUSE_WITHOUT)
            return
        self.trouble = ""
        if isinstance(found, UsageError):
            self._refusal, self._found, self._next = found, (), began + PAUSE_WITHOUT
            return
        # An end that has passed already says that the clocks differ: the store will tell when it has come.
        ends = [one.end for one in found if one.end is not None and one.end > began]
        self._refusal, self._end = None, min(ends, default=math.inf)
        due = max(began + SHARE_OF_LIFE * (self._end - began), self._end - BEFORE_THE_END)
        self._next = max(due, began + LEAST_PAUSE) if ends else math.inf
        self._found = tuple(sorted(found, key=lambda one: len(one.prefix), reverse=True))


def _asked(name: str, ask: Ask) -> Sequence[Credential] | UsageError:
    """The answer of a catalog. StorageError where it takes too long."""
    pool = threads("gnomon-vend", 16)
    future = pool.submit(ask)
    try:
        return future.result(ASK_SECONDS)
    except TimeoutError:
        if future.done():  # the call's own
            raise
        pool.leave(future)
        what = f"the catalog does not answer for {ASK_SECONDS:g} s"
        raise StorageError(what, name, action=Action.CHECK_CATALOG_RUNS) from None


_lock = threading.Lock()
_vendors: dict[str, Vendor] = {}  # by the name of the table
_roots: dict[str, Vendor] = {}


def govern(root: str, name: str, ask: Ask) -> Vendor:
    """Open files at or below a root with the credentials that the catalog of a table vends, from now on in this
    process. Nothing is asked yet."""
    with _lock:
        vendor = _vendors.setdefault(name, Vendor(name, ask))
        if root.partition("://")[0] in VENDED:
            _roots[root] = vendor
    return vendor


def vendor_of(place: str) -> Vendor | None:
    """The vendor of a table with this name, or of the nearest root at or above this location; None where there is
    none."""
    if not _roots or place in _vendors:
        return _vendors.get(place)
    while place and place not in _roots:
        place = place.rpartition("/")[0]
    return _roots.get(place)


def _in_child() -> None:
    """Asks anew in a fork, whose parent's threads may hold locks."""
    for vendor in _vendors.values():
        vendor.forget()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)

"""The indexes of a service, by name."""

import logging
import threading
import time
from collections.abc import Iterator

from gnomon.service.errors import NoSuchIndex
from gnomon.service.indexes.config import places
from gnomon.service.indexes.served import ServedIndex, may_pass
from gnomon.service.memory import Memory
from gnomon.service.redaction import Roots
from gnomon.service.settings import Settings
from gnomon.shadow.newest_version import check_has_versions

OPEN_SECONDS = 15.0  # how long the start waits for storage
logger = logging.getLogger("gnomon.service")

BODIES_SHARE = 4  # one part in four of the memory for requests is for their bodies and the batches in these


class Indexes:
    """All served indexes; the first is the default. Each has an equal share of the memory for caches. `memory` is the
    memory of running requests, `bodies` the memory of request bodies.

    The indexes are opened concurrently. An index whose storage does not answer stays closed until a later check opens
    it. Another failure (of `shadow.open_index`) is raised, unless the service is `patient`: a worker that replaces a
    dead one waits for its indexes. UsageError for invalid names."""

    def __init__(self, settings: Settings, patient: bool = False) -> None:
        found = places(settings)
        share = settings.cache_bytes // len(found)
        # Separate, so that bodies cannot take all the memory that running requests need to end.
        self.bodies = Memory(settings.memory_bytes // BODIES_SHARE)
        self.memory = Memory(settings.memory_bytes - self.bodies.most_bytes)
        self._by_name = {place.name: ServedIndex(settings, place, share, self.memory) for place in found}
        self._open(patient)
        if not patient:
            for served in self:
                if served.failure is not None and not may_pass(served.failure):
                    raise served.failure
            self._check_freshness(settings)

    def _check_freshness(self, settings: Settings) -> None:
        """Raise UsageError where `freshness` has no effect on any index; log the indexes on which it has none."""
        if settings.freshness != "newest":
            return
        plain = [one for one in self if one.is_open and one.index.view.snapshot.table is None]
        for served in plain:
            if len(plain) == len(self._by_name):
                check_has_versions(served.index.view, served.index.location)
            what = "its source has no versions, so that freshness has no effect"
            logger.warning("index %s: %s; it answers as of its snapshot", served.place.name, what)

    def _open(self, patient: bool) -> None:
        opening = [threading.Thread(target=served.refresh, args=(not patient,), daemon=True) for served in self]
        end = time.monotonic() + OPEN_SECONDS
        for thread in opening:
            thread.start()
        for thread in opening:
            thread.join(max(0.0, end - time.monotonic()))

    def __iter__(self) -> Iterator[ServedIndex]:
        return iter(self._by_name.values())

    @property
    def default(self) -> ServedIndex:
        return next(iter(self))

    def named(self, name: str | None) -> ServedIndex:
        """The index of that name, the default for None. NoSuchIndex where there is none."""
        if name is None:
            return self.default
        if name not in self._by_name:
            raise NoSuchIndex("there is no index of this name")
        return self._by_name[name]

    @property
    def roots(self) -> Roots:
        """The names that no answer may contain, of all indexes."""
        return sum((served.roots for served in self), Roots())

"""The indexes of a service, by name."""

import threading
import time
from collections.abc import Iterator

from gnomon.service.errors import NoSuchIndex
from gnomon.service.indexes.config import places
from gnomon.service.indexes.served import ServedIndex, may_pass
from gnomon.service.memory import Memory
from gnomon.service.redaction import Roots
from gnomon.service.settings import Settings

OPEN_SECONDS = 15.0  # how long the start waits for storage
BODIES_SHARE = 4  # one part in four of the memory for requests is for bodies that come in and for the batches in them


class Indexes:
    """All served indexes; the first is the default. They share the memory for caches evenly. `memory` is that of the
    requests that are worked on, `bodies` that of their bodies.

    They are opened side by side. One that cannot be, because its storage does not answer, stays closed, and is opened
    by a later look. Where it cannot be for another reason, that is raised (what `shadow.open_index` raises), unless the
    service is `patient`: one that ran before waits for its index. UsageError for names."""

    def __init__(self, settings: Settings, patient: bool = False) -> None:
        found = places(settings)
        share = settings.cache_bytes // len(found)
        # Apart, so that no body keeps memory from the work that would give it back.
        self.bodies = Memory(settings.memory_bytes // BODIES_SHARE)
        self.memory = Memory(settings.memory_bytes - self.bodies.most_bytes)
        self._by_name = {place.name: ServedIndex(settings, place, share, self.memory) for place in found}
        self._open(patient)
        if not patient:
            for served in self:
                if served.failure is not None and not may_pass(served.failure):
                    raise served.failure

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
        """What no answer may name, of all of them."""
        return sum((served.roots for served in self), Roots())

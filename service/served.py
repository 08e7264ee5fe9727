"""An index that is served: at its newest snapshot, followed without a restart, and at older ones when asked."""

import logging
import threading
import time
from collections import OrderedDict
from typing import NamedTuple

from service.errors import Roots
from service.places import Place
from service.redaction import redact
from service.settings import Settings
from shadow import Index, open_index

PINNED_SHARE = 4  # one part in four of the cache is for snapshots asked for by number

logger = logging.getLogger("gnomon.service")


class Coverage(NamedTuple):
    """How many of the source's files, as they are now, the snapshot does not cover."""

    snapshot: int
    new: int
    changed: int
    vanished: int


class ServedIndex:
    """Safe to share between threads. Opening it raises what `shadow.open_index` raises."""

    def __init__(self, settings: Settings, place: Place, cache_bytes: int) -> None:
        self._settings = settings
        self.place = place
        self.max_key_bytes = settings.max_key_bytes
        for_pinned = cache_bytes // PINNED_SHARE
        self._pinned_cache_bytes = for_pinned // settings.pinned_snapshots
        self.index = open_index(place.path, cache_bytes=cache_bytes - for_pinned)
        self.refused: str | None = None  # why the newest snapshot is not the one served
        self._pinned: OrderedDict[int, Index] = OrderedDict()
        self._pinning = threading.Lock()
        self._coverage: Coverage | None = None
        self._covered_at = 0.0
        self._covering = threading.Lock()

    @property
    def roots(self) -> Roots:
        """The folders no answer may name, and what to call them instead."""
        source = self.index.spec.source
        above = ((source.rpartition("/")[0], "the source"),) if self.index.spec.single_file else ()
        index = ((self.index.location, "the index"), (self.place.path, "the index"))
        elsewhere = ((folder, "the source") for folder in self.index.folders_elsewhere)
        return (*index, (source, "the source"), *above, *elsewhere)

    def at(self, snapshot: int | None) -> Index:
        """The index at a snapshot; the newest for None. SnapshotNotFound where it is gone."""
        if snapshot is None or snapshot == self.index.view.snapshot.number:
            return self.index
        return self.pinned(snapshot)

    def pinned(self, snapshot: int) -> Index:
        """The index at a snapshot it will never move from."""
        with self._pinning:
            if snapshot in self._pinned:
                self._pinned.move_to_end(snapshot)
                return self._pinned[snapshot]
        index = open_index(self.place.path, snapshot, self._pinned_cache_bytes)
        with self._pinning:
            index = self._pinned.setdefault(snapshot, index)
            while len(self._pinned) > self._settings.pinned_snapshots:
                self._pinned.popitem(last=False)
        return index

    def refresh(self) -> bool:
        """Move to the newest snapshot; whether there was a newer one. One that cannot be opened is refused, and the
        one before it served on."""
        try:
            moved = self.index.refresh()
        except Exception as error:
            why = redact(error, self.roots)
            if why != self.refused:  # once, not at every look
                logger.exception("index %s: the newest snapshot is refused, an older one served on", self.place.name)
            self.refused = why
            return False
        self.refused = None
        if moved:
            logger.info("index %s: snapshot %d is served", self.place.name, self.index.view.snapshot.number)
        return moved

    def coverage(self) -> Coverage:
        """The coverage of the snapshot that is served, at most `coverage_seconds` old. Lists the source."""
        with self._covering:
            known, age = self._coverage, time.monotonic() - self._covered_at
            number = self.index.view.snapshot.number
            if known is None or known.snapshot != number or age >= self._settings.coverage_seconds:
                diff = self.index.coverage()
                known = Coverage(number, len(diff.new), len(diff.changed), len(diff.vanished))
                self._coverage, self._covered_at = known, time.monotonic()
            return known

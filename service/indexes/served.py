"""The indexes of a service: each is served at its newest snapshot without a restart, and at older snapshots on request.

Storage may fail at any time. An open index stays open. The thread that looks for newer snapshots tries again to open
the others, at longer and longer intervals while it fails. No request waits for this thread. A cache keeps whole answers
to single keys, and gives one only while the source files of its rows are unchanged."""

import logging
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from gnomon.service.errors import NoSuchIndex, NotOpen, Roots, redact
from gnomon.service.indexes.places import Place, check_columns, hidden_keys, hidden_of, places
from gnomon.service.indexes.threads import RequestThreads
from gnomon.service.memory import Memory
from gnomon.service.settings import Settings
from gnomon.shadow import IndexNotFound, OpenIndex, SourceNotFound, open_index
from gnomon.shadow.current_snapshot import ReadSettings
from gnomon.shadow.errors import OutOfTime, ShadowError, StorageError, Unreachable
from gnomon.shadow.index_for_jobs import AtHand
from gnomon.shadow.metadata import UNCHANGING, OneFile, newest_good_view
from gnomon.shadow.newest_version import ReadThroughLimits, check_has_versions
from gnomon.shadow.storage import (
    ByteCache,
    CacheCounts,
    DiskCache,
    Identity,
    disk_cache,
    storage_at,
    through,
    within,
)

OBJECT_BYTES = 1000  # memory of an answer besides its bytes
LARGEST_SHARE = 16  # an answer takes at most one part in sixteen of the cache
ANSWERS_SHARE = 8  # one part in eight of the cache is for whole answers
PINNED_SHARE = 4  # one part in four of the cache is for snapshots asked for by number
LONGEST_PAUSE = 30.0  # most seconds between two failed checks, unless the settings ask for fewer checks
LOOK_SECONDS = 60.0  # for one look for a newer snapshot
LIST_SECONDS = 600.0  # for one listing of the source
_CHANCE = random.SystemRandom()  # callers may have seeded the module's own generator
FIRST_PAUSE = 1.0  # seconds after which an index that could not be opened is tried again
OPEN_SECONDS = 15.0  # how long the start waits for storage
BODIES_SHARE = 4  # one part in four of the memory for requests is for their bodies and the batches in these

logger = logging.getLogger("gnomon.service")


@dataclass(frozen=True)
class KeptAnswer:
    """The bytes of an answer, the number of rows that it counts, and the source files they come from, each with the
    identity that it had."""

    body: bytes
    count: int
    files: Mapping[str, Identity]

    @property
    def cache_bytes(self) -> int:
        """The memory of the answer."""
        return OBJECT_BYTES + len(self.body) + sum(map(len, self.files))


class AnswerCache:
    """Answers by a key that has the query and its snapshot. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._largest = limit // LARGEST_SHARE
        self._answers: ByteCache[KeptAnswer] = ByteCache(limit)

    @property
    def counts(self) -> CacheCounts:
        return self._answers.counts

    def get(self, asked: Hashable, index: OpenIndex) -> KeptAnswer | None:
        """The answer that the index would give now. StorageError where its source files cannot be looked at."""
        kept = self._answers.get(asked)
        if kept is None or index.is_unchanged(kept.files):
            return kept
        self._answers.discard(asked)
        return None

    def at_hand(self, asked: Hashable, index: AtHand, most_bytes: int) -> KeptAnswer | None:
        """A cached answer of at most `most_bytes` bytes, if memory alone shows that the index would give it now. None
        is not counted as a miss, since the caller then uses `get`."""
        kept = self._answers.peek(asked)
        if kept is None or len(kept.body) > most_bytes or not index.are_unchanged(kept.files):
            return None
        return self._answers.get(asked)

    def put(self, asked: Hashable, answer: KeptAnswer) -> None:
        """Keep an answer, unless it is large for the cache."""
        if answer.cache_bytes <= self._largest:
            self._answers.put(asked, answer)


class Coverage(NamedTuple):
    """How many of the source's files a snapshot does not cover, as they were at a time of `time.monotonic`.
    `lake_table` is the format of the table that the files belong to, if any: "Delta Lake table". `newer` is the newest
    version of an indexed lake table, where the snapshot covers an older one."""

    snapshot: int
    new: int
    changed: int
    vanished: int
    at: float
    lake_table: str | None = None
    newer: str | None = None

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.at


class ServedIndex:
    """One served index. `refresh` opens it; after `follow`, it moves to each newer snapshot. Safe to share between
    threads.

    The results of the last check are in memory: `failure`, why the index is not open; `refused`, why the newest
    snapshot is not served; `unreachable`, why the check failed; `coverage`, and `coverage_error`, why the coverage is
    not newer."""

    def __init__(
        self, settings: Settings, place: Place, cache_bytes: int, memory: Memory, disk: DiskCache | None = None
    ) -> None:
        self._disk = disk
        self._settings = settings
        self.place = place
        self.max_key_bytes = settings.max_key_bytes
        self.max_rows = settings.max_rows
        self.max_answer_bytes = settings.max_answer_bytes
        waiting, seconds = settings.max_waiting, settings.timeout_seconds
        self.threads = RequestThreads(place.name, settings.threads, waiting, seconds, memory)
        self.batch_threads = RequestThreads(place.name, settings.batch_threads, waiting, seconds, memory)
        self.answers = AnswerCache(cache_bytes // ANSWERS_SHARE)
        cache_bytes -= cache_bytes // ANSWERS_SHARE
        for_pinned = cache_bytes // PINNED_SHARE
        self._pinned_cache_bytes = for_pinned // settings.pinned_snapshots
        self._cache_bytes = cache_bytes - for_pinned
        limits = ReadThroughLimits(settings.freshness_files, settings.freshness_rows)
        self._limits = limits if settings.freshness == "newest" else None
        self._index: OpenIndex | None = None
        self.failure: Exception | None = None
        self.refused: str | None = None
        self.unreachable: str | None = None
        self.coverage: Coverage | None = None
        self.coverage_error: str | None = None
        self._looking = threading.Lock()
        self._pinned: OrderedDict[int, OpenIndex] = OrderedDict()
        self._pinning = threading.Lock()
        self._stopped = threading.Event()
        self._moved = threading.Event()

    @property
    def is_open(self) -> bool:
        return self._index is not None

    @property
    def index(self) -> OpenIndex:
        """The index at the newest valid snapshot; it moves to newer ones. NotOpen while it could not be opened."""
        if self._index is None:
            why = redact(self.failure, self.roots) if self.failure is not None else "storage has not answered yet"
            raise NotOpen(f"index {self.place.name} is not open yet, it is tried again and again: {why}")
        return self._index

    @property
    def roots(self) -> Roots:
        """The names that no answer may contain: folders, and hidden columns."""
        path = self.place.path
        place = path if "://" in path else os.path.abspath(path)  # as in errors; a relative path may be any word
        index = self._index
        if index is None:
            return Roots(((place, "the index"),))
        spec, source = index.spec, index.spec.source.location
        above = ((source.rpartition("/")[0], "the source"),) if isinstance(spec.source, OneFile) else ()
        elsewhere = ((folder, "the source") for folder in index.folders_elsewhere)
        of_index = ((index.location, "the index"), (place, "the index"), (spec.source.name, "the source"))
        payload = (name for name in index.view.columns if name not in spec.partitions)
        return Roots(
            (*of_index, (source, "the source"), *above, *elsewhere),
            hidden_of(self.place, spec.partitions),
            tuple(dict.fromkeys((*hidden_keys(self.place, spec.keys), *hidden_of(self.place, payload)))),
        )

    def now(self) -> OpenIndex:
        """The index pinned to its newest snapshot or, if the settings say so, to the newest version of its lake table.
        Errors as in `Index.at_newest_version`."""
        return self.index.at_newest_version()

    @property
    def at_hand(self) -> AtHand | None:
        """What memory alone knows of the newest snapshot; None where a look-up has to read from the store, or where
        none has been made yet."""
        if self._limits is not None or self._index is None:
            return None
        found = self._index.at_hand
        return found if found.is_ready else None

    def at(self, snapshot: int | None) -> OpenIndex:
        """The index pinned to a snapshot; for None the index at the newest snapshot, which moves. SnapshotNotFound
        where the snapshot is gone."""
        index = self.index
        if snapshot is None:
            return index
        here = index.here()
        return here if here.view.snapshot.number == snapshot else self.pinned(snapshot)

    def pinned(self, snapshot: int) -> OpenIndex:
        """The index pinned to a snapshot."""
        with self._pinning:
            if snapshot in self._pinned:
                self._pinned.move_to_end(snapshot)
                return self._pinned[snapshot]
        folder, limit = self._settings.cache_folder, self._settings.cache_folder_bytes
        opened = open_index(
            self.place.path, snapshot, self._pinned_cache_bytes, cache_folder=folder, cache_folder_bytes=limit
        )
        with self._pinning:
            index = self._pinned.setdefault(snapshot, OpenIndex.of(opened))
            while len(self._pinned) > self._settings.pinned_snapshots:
                self._pinned.popitem(last=False)
        return index

    def cache_counts(self) -> dict[str, CacheCounts]:
        """The hits, misses and bytes of each cache, of an open index."""
        return {**self.index.cache_counts(), "answers": self.answers.counts}

    def moved_from(self, number: int) -> bool:
        """Whether another snapshot than `number` is served now, for a request whose pointers were stale. Looks for a
        newer one, unless another thread has found it already; a failure of this check is ignored. SourceNotFound where
        there is none, and the source is gone, too."""
        index = self.index
        if index.view.snapshot.number == number:
            with suppress(ShadowError, OSError):
                index.refresh()
        if index.view.snapshot.number != number:
            return True
        if index.source_is_gone():
            raise SourceNotFound("nothing is there", index.spec.source.location, expected="the source of the index")
        return False

    # -- looks, which no request makes ---------------------------------------------------------------------------------

    def refresh(self, at_start: bool = False) -> bool:
        """Open the index, or move it to the newest snapshot. Returns whether there was a newer one. Raises nothing: a
        snapshot that cannot be opened is refused, and the one before stays served. With `at_start`, a permanent failure
        is not logged here, since the caller raises `failure`."""
        with self._looking:
            try:
                with within(LOOK_SECONDS):
                    moved = self._open() if self._index is None else self._move(self._index)
            except (StorageError, IndexNotFound, OSError) as error:
                self._could_not(error, at_start)
                return False
            except Exception as error:  # noqa: BLE001 it is kept as the failure; the next check may succeed
                if self._index is None:
                    self._could_not(error, at_start)
                else:
                    self._answers()
                    self._refuse(error)
                return False
            self._answers()
            if moved:
                self._moved.set()
                logger.info("index %s: snapshot %d is served", self.place.name, self.index.view.snapshot.number)
            return moved

    def _open(self) -> bool:
        storage = through(self._disk, storage_at(self.place.path), UNCHANGING)
        view, why_older = newest_good_view(storage)
        check_columns(self.place, view)
        settings = ReadSettings(self._cache_bytes, newest=self._limits, disk=self._disk)
        self._index, self.failure = OpenIndex(storage, view, False, settings), None
        if why_older is not None:
            self._refuse(why_older)
        return True

    def _move(self, index: OpenIndex) -> bool:
        moved = index.refresh()
        self.refused = None
        return moved

    def _answers(self) -> None:
        if self.unreachable is not None:
            logger.info("index %s: storage answers again", self.place.name)
        self.unreachable = None

    def _could_not(self, error: Exception, at_start: bool) -> None:
        if self._index is None:
            self.failure = error
        if at_start and not may_pass(error):
            return
        why = redact(error, self.roots)
        if why != self.unreachable:  # logged once, not after each check
            what = (
                "cannot be opened, it is tried again" if self._index is None else "the look for a newer snapshot failed"
            )
            logger.error("index %s: %s: %s: %s", self.place.name, what, type(error).__name__, error)
        self.unreachable = why

    def _refuse(self, error: Exception) -> None:
        why = redact(error, self.roots)
        if why != self.refused:
            logger.error("index %s: the newest snapshot is refused, an older one served on: %s", self.place.name, error)
        self.refused = why

    def cover(self) -> bool:
        """List the source and set `coverage`. Returns whether that was possible. Raises nothing."""
        if self._index is None:
            return False
        index = self._index.here()
        try:
            with within(LIST_SECONDS):
                diff = index.coverage()
        except Exception as error:  # noqa: BLE001 it is logged, and the next listing may succeed
            why = redact(error, self.roots)
            if why != self.coverage_error:
                logger.error("index %s: its source cannot be listed: %s", self.place.name, error)
            self.coverage_error = why
            return False
        number = index.view.snapshot.number
        lake_table = diff.lake_table.format if diff.lake_table is not None else None
        if lake_table and not index.spec.source.as_files and (self.coverage is None or not self.coverage.lake_table):
            logger.warning(
                "index %s: its source belongs to %s; rows that the table deleted or replaced are answered",
                self.place.name,
                diff.lake_table,
            )
        counts = (len(diff.new), len(diff.changed), len(diff.vanished))
        newer = diff.newer.version if diff.newer is not None else None
        self.coverage = Coverage(number, *counts, time.monotonic(), lake_table, newer)
        self.coverage_error = None
        return True

    def follow(self) -> None:
        """Look for newer snapshots and list the source until `stop`, each in its own thread. Reads of requests do not
        delay these threads, and a check that hangs delays nothing else."""
        self._stopped, self._moved = threading.Event(), threading.Event()
        for look in (self._look_on, self._cover_on):
            arguments = (self._stopped, self._moved)
            name = f"gnomon-{look.__name__.strip('_')}-{self.place.name}"
            threading.Thread(target=look, args=arguments, name=name, daemon=True).start()

    def stop(self) -> None:
        """Tell both threads to end, without waiting for them. Save what fetches learned about source pages."""
        self._stopped.set()
        self._moved.set()
        self._save_maps()

    def _look_on(self, stopped: threading.Event, moved: threading.Event) -> None:
        failed = 0
        while not stopped.wait(self._pause(failed)):
            self.refresh()
            self._save_maps(seldom=True)
            failed = failed + 1 if self.unreachable is not None else 0

    def _save_maps(self, seldom: bool = False) -> None:
        if self._index is not None:
            self._index.save_maps(seldom)

    def _pause(self, failed: int) -> float:
        """Seconds until the next check, with a random part, so that workers do not all read at once."""
        every = self._settings.refresh_seconds
        first = every if self.is_open else min(every, FIRST_PAUSE)
        return _backed_off(first, failed, every) * _CHANCE.uniform(0.8, 1.2)

    def _cover_on(self, stopped: threading.Event, moved: threading.Event) -> None:
        """List the source at intervals, and sooner after a move to a newer snapshot."""
        failed, every = 0, self._settings.coverage_seconds
        while not stopped.is_set():
            failed = 0 if self.cover() else failed + 1
            pause = _backed_off(every if self.is_open else min(every, FIRST_PAUSE), failed, every)
            if stopped.wait(pause / 10):
                return
            moved.wait(pause * 9 / 10)
            moved.clear()


def _backed_off(first: float, failed: int, every: float) -> float:
    return min(first * 2.0 ** min(failed, 16), max(every, LONGEST_PAUSE)) if failed else first


def may_pass(error: Exception) -> bool:
    """Whether an error of storage may pass without anyone's action."""
    return isinstance(error, (OSError, OutOfTime, Unreachable)) and not isinstance(error, PermissionError)


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
        disk = disk_cache(settings.cache_folder, settings.cache_folder_bytes)
        self._by_name = {place.name: ServedIndex(settings, place, share, self.memory, disk) for place in found}
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

"""One look-up in the index files that may hold its keys: Bloom filters first where that saves reads, remote files
concurrently."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key
from gnomon.shadow.errors import OF_ONE_FILE
from gnomon.shadow.lookup.bloom_filters import BloomFilters
from gnomon.shadow.lookup.index_files import IndexFileCache
from gnomon.shadow.lookup.matches import ALL, Bound, FileHits, Hits
from gnomon.shadow.metadata import IndexFileEntry, Segment, View
from gnomon.shadow.storage import Step, Trace, check_deadline, in_order, step_of

# Up to this number and total size, filters and index files are read together: a filter could save little.
FEW_FILES, FEW_BYTES = 8, 8 << 20


class InFile(NamedTuple):
    """An index file to search, and the places of its keys among the requested keys."""

    segment: Segment
    entry: IndexFileEntry
    places: Sequence[int]


class FileAnswer(NamedTuple):
    """The hits that an index file has for the keys at these places, and the cost."""

    places: Sequence[int]
    hits: Sequence[Hits]
    stats: LookupStats
    failure: Exception | None = None


@dataclass(frozen=True)
class LookupOptions:
    """Options of a look-up. `bound`: the limits of the hits kept for each key. `collect_errors`: the error of an index
    file becomes the answer for its keys, and is not raised. `trace` gets each step. `before_reads` is called with the
    remote index files before they are read."""

    bound: Bound = ALL
    collect_errors: bool = False
    trace: Trace | None = None
    before_reads: Callable[[Sequence[InFile]], None] | None = None


DEFAULTS = LookupOptions()


class Hashed(Protocol):
    """Keys in stored form, and their hashes for Bloom filters."""

    keys: list[Key]

    @property
    def hashes(self) -> npt.NDArray[np.int64] | list[int]: ...


class Search:
    """A look-up in one snapshot."""

    def __init__(
        self,
        view: View,
        index_files: IndexFileCache,
        filters: BloomFilters | None,
        hashed: Hashed,
        partitions: Sequence[Collection[str]],
        options: LookupOptions,
    ) -> None:
        """`partitions` has the partitions that may hold each key."""
        self._view = view
        self._index_files = index_files
        self._filters = filters
        self._keys = hashed.keys
        self._hashed = hashed
        self._partitions = partitions
        self._bound = options.bound
        self._collect_errors = options.collect_errors
        self._trace = options.trace

    def answers(self, files: Sequence[InFile]) -> Iterator[FileAnswer]:
        """The answer of each file, in the order of the files."""
        spread = sum([len(file.places) for file in files]) > len(self._keys)
        work = [(file, self._pays(file, spread)) for file in files]
        stats = self._counter()
        if len(self._keys) == 1 and self._trace is None:
            work = self._without_excluded(work, stats)
        few = len(work) <= FEW_FILES and sum([file.entry.size for file, _ in work]) <= FEW_BYTES
        calls = [partial(self._answer, file, filtered, few) for file, filtered in work]
        rounds = sum([not self._index_files.needs_no_round_trip(file.entry) for file, _ in work])
        yield FileAnswer([], [], stats)
        yield from in_order(calls) if rounds > 1 else (call() for call in calls)

    def _without_excluded(self, work: list[tuple[InFile, bool]], stats: LookupStats) -> list[tuple[InFile, bool]]:
        """The files without those that a filter in memory rules out for the only key. Each file has a flag: whether its
        filter is still to be checked. One call checks all filters in memory."""
        asked = [file.entry for file, filtered in work if filtered]
        if self._filters is None or not asked:
            return work
        answers = iter(self._filters.cached_answers(asked, int(self._hashed.hashes[0]), stats))
        told = [(file, next(answers) if filtered else True) for file, filtered in work]
        return [(file, answer is None) for file, answer in told if answer is not False]

    def _pays(self, file: InFile, spread: bool) -> bool:
        filters = self._filters
        return filters is not None and filters.pays(file.entry, len(file.places), spread, self._view.filter_bytes)

    def _answer(self, file: InFile, filtered: bool, few: bool) -> FileAnswer:
        check_deadline(f"{self._index_files.root}/{file.entry.path}")
        stats = self._counter()
        try:
            places = self._likely(file, filtered, few, stats)
            return FileAnswer(places, self._hits(file, places, stats) if places else [], stats)
        except OF_ONE_FILE as error:
            if not self._collect_errors:
                raise
            return FileAnswer(file.places, [Hits() for _ in file.places], stats, error)

    def _counter(self) -> LookupStats:
        return LookupStats(visits=None if self._trace is None else [])

    def _likely(self, file: InFile, filtered: bool, few: bool, stats: LookupStats) -> Sequence[int]:
        """The places of the keys that the file may hold."""
        if not filtered or self._filters is None:
            return file.places
        ask, entry = partial(self._pass, file, self._filters, stats), file.entry
        is_cold = not self._index_files.is_open(entry) and not self._filters.needs_no_round_trip(entry)
        if not (few and is_cold and self._index_files.reads_whole(entry)):
            return ask()
        opened = self._counter()
        places, _ = in_order([ask, partial(self._open, file, opened)])
        stats.add(opened)
        return places

    def _pass(self, file: InFile, filters: BloomFilters, stats: LookupStats) -> Sequence[int]:
        name = file.entry.filter.path if file.entry.filter is not None else None
        with step_of(self._trace, "filter", name, stats) as step:
            likely = filters.likely(file.entry, file.places, self._hashed.hashes, self._view.filter_bytes, stats)
            places = likely.tolist() if isinstance(likely, np.ndarray) else likely
            step.say(answer="perhaps" if places else "absent", keys=len(file.places), passed=len(places))
        return places

    def _open(self, file: InFile, stats: LookupStats) -> Sequence[int]:
        """Open the file, so that the cache has it. Returns all places."""
        with (
            step_of(self._trace, "index_file", file.entry.path, stats) as step,
            self._index_files.use(self._view, file.segment, file.entry, stats) as tree,
        ):
            step.say(entries=tree.entries)
        return file.places

    def _hits(self, file: InFile, places: Sequence[int], stats: LookupStats) -> list[Hits]:
        """The hits of the keys at some places."""
        entry = file.entry
        with ExitStack() as stack:
            with step_of(self._trace, "index_file", entry.path, stats) as step:
                tree = stack.enter_context(self._index_files.use(self._view, file.segment, entry, stats))
                step.say(entries=tree.entries)
            of_file = FileHits(self._view.spec, file.segment, entry, self._index_files.root, self._bound)
            keys, partitions = [self._keys[i] for i in places], [self._partitions[i] for i in places]
            begin, before = time.perf_counter_ns(), (stats.reads, stats.bytes, stats.nodes)
            try:
                found = of_file.find(tree, keys, partitions, stats)
            finally:
                if self._trace is not None:
                    self._trace_nodes(self._trace, entry, stats, before, begin)
        if self._filters is not None and not any(hits.matches for hits in found):
            self._filters.record_miss(entry)
        return found

    def _trace_nodes(
        self, trace: Trace, entry: IndexFileEntry, stats: LookupStats, before: tuple[int, int, int], begin_ns: int
    ) -> None:
        """Trace the nodes that were visited since the given counts. The many leaves of a key with very many entries,
        which are read in long ranges, are one step."""
        visits = stats.visits or []
        for visit in visits:
            own = {"level": visit.level, "entries": visit.records}
            cost = (visit.reads, visit.bytes, not visit.reads)
            trace.add(Step("node", entry.path, visit.offset, *cost, own=own), visit.begin_ns, visit.end_ns)
        reads = stats.reads - before[0] - sum(visit.reads for visit in visits)
        size = stats.bytes - before[1] - sum(visit.bytes for visit in visits)
        nodes = stats.nodes - before[2] - len(visits)
        if reads or nodes > 0:
            begin_ns = max((visit.end_ns for visit in visits), default=begin_ns)
            step = Step("node", entry.path, None, reads, size, not reads)
            step.say(level=None, entries=None, nodes=nodes)
            trace.add(step, begin_ns, time.perf_counter_ns())

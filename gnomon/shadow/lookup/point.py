"""The entries of one key or a few: one look-up in the index files that may hold them, Bloom filters first where that
saves reads, remote files concurrently. An entry is live only if its own segment still covers its file."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import BTreeReader
from gnomon.btree.batch import Found
from gnomon.btree.blocks import LookupStats
from gnomon.btree.errors import TooMany
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key, KeyBatch, stored_array, stored_values
from gnomon.shadow.errors import OF_ONE_FILE
from gnomon.shadow.lookup.plan import Group, Keys, Lookup, ParsedKey, Plan
from gnomon.shadow.metadata import NOT_LIVE, IndexFileEntry, Liveness, NamedFiles, Segment, SourceFileEntry, View
from gnomon.shadow.storage import Step, Trace, check_deadline, in_order, step_of
from gnomon.sources import Pointer

# Up to this number and total size, filters and index files are read together: a filter could save little.
FEW_FILES, FEW_BYTES = 8, 8 << 20
MANY = 100  # keys of an index file, from which they are searched leaf by leaf
MOST_OBJECTS = 50_000  # entries of an index file that become Python objects; more are counted in Arrow

Ints = npt.NDArray[np.int64]


class Hit(NamedTuple):
    """One row found: its pointer, its source file as it was indexed, and the included columns."""

    pointer: Pointer
    file: SourceFileEntry
    included: Key


class Hits(list[Hit]):
    """The first hits of a key. `matches` counts all hits. `too_large`: the first hits exceed the byte limit, so that
    some are missing. `failure` is the error of a failed look-up."""

    matches = 0
    too_large = False
    failure: Exception | None = None

    @classmethod
    def of(cls, failure: Exception) -> Self:
        """No hits, but an error."""
        hits = cls()
        hits.failure = failure
        return hits

    def take(self, others: "Hits", most: int | None, flat: bool) -> None:
        """Append the hits of another index file."""
        self.matches += others.matches
        self.too_large |= others.too_large
        self.failure = others.failure or self.failure
        self.extend(others)
        if most is not None and len(self) > most:
            self.cut(most, flat)

    def cut(self, most: int | None, flat: bool) -> None:
        """Keep the first `most` hits only. In a flat index, whose files hold all partitions, they are sorted by
        partition first."""
        if flat:
            self.sort(key=_partition)
        if most is not None:
            del self[most:]


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


class LookupOptions(NamedTuple):
    """Options of a look-up. `most_hits` and, in a key-value folder, `most_bytes` of their values limit the hits kept
    for each key; None is no limit. `collect_errors`: the error of an index file becomes the answer for its keys, and is
    not raised. `trace` gets each step. `before_reads` is called with the remote index files before they are read."""

    most_hits: int | None = None
    most_bytes: int | None = None
    collect_errors: bool = False
    trace: Trace | None = None
    before_reads: Callable[[Sequence[InFile]], None] | None = None


DEFAULTS = LookupOptions()
ONLY = (0,)  # the place of the only key


class Search:
    """A look-up of keys in one snapshot, in the partitions that a `where` names."""

    def __init__(
        self,
        lookup: Lookup,
        view: View,
        keys: Sequence[ParsedKey],
        where: Mapping[str, Collection[Stored]] | None = None,
        options: LookupOptions = DEFAULTS,
    ) -> None:
        self._lookup = lookup
        self._index_files = lookup.index_files
        self._view = view
        self._options = options
        self._trace = options.trace
        self._keys = [key.stored for key in keys]
        self._hashed = Keys(view.spec, self._keys)
        if options.trace is None:
            self._choose(keys, where or {})
            return
        with options.trace.step("key", None, None) as step:
            self._choose(keys, where or {})
            bucket = self._hashed.buckets[0] if len(keys) == 1 else None
            step.say(keys=len(keys), bucket=bucket, index_files=len(self._files))

    def _choose(self, keys: Sequence[ParsedKey], where: Mapping[str, Collection[Stored]]) -> None:
        """Choose the index files to search, and the partitions."""
        view = self._view
        if len(keys) == 1:
            partitions = view.partitions_of(where, keys[0].where)
            self._partitions = [partitions]
            self._plan = Plan(self._lookup, view, self._hashed, self._partitions, [0])
            found = view.files_in(partitions, self._hashed.buckets[0])
            self._files = [InFile(segment, entry, ONLY) for segment, entry in found]
            self._spread = len(found) > 1
            return
        chosen = {key.where: view.partitions_of(where, key.where) for key in keys}
        numbers = {one: number for number, one in enumerate(chosen)}
        self._partitions = [chosen[key.where] for key in keys]
        selections = [numbers[key.where] for key in keys]
        self._plan = Plan(self._lookup, view, self._hashed, list(chosen.values()), selections)
        groups = list(self._plan.groups())
        self._files = _files(groups)
        self._spread = any(len(group.files) > 1 for group in groups)

    def find(self, stats: LookupStats) -> list[Hits]:
        """The hits of each key, by partition, then by segment, then in the order of the index file."""
        if self._options.before_reads is not None and (
            remote := [file for file in self._files if not self._index_files.needs_no_round_trip(file.entry)]
        ):
            self._options.before_reads(remote)
        found: list[Hits | None] = [None] * len(self._keys)
        most, flat = self._options.most_hits, self._view.spec.flat
        for answer in self._answers(stats):
            stats.add(answer.stats)
            for number, hits in zip(answer.places, answer.hits, strict=True):
                before = found[number]
                if before is None:
                    found[number] = hits
                else:
                    before.take(hits, most, flat)
        hits_of_key = [Hits() if hits is None else hits for hits in found]
        for hits in hits_of_key if flat else ():
            hits.cut(most, flat)
        return hits_of_key

    def _answers(self, stats: LookupStats) -> Iterator[FileAnswer]:
        """The answer of each file, in the order of the files."""
        work = [(file, self._plan.filter_pays(file.entry, len(file.places), self._spread)) for file in self._files]
        if len(self._keys) == 1 and self._trace is None:
            work = self._without_excluded(work, stats)
        if not self._index_files.is_remote:
            return (self._answer(file, filtered, False) for file, filtered in work)
        few = len(work) <= FEW_FILES and sum([file.entry.size for file, _ in work]) <= FEW_BYTES
        calls = [partial(self._answer, file, filtered, few) for file, filtered in work]
        rounds = sum([not self._index_files.needs_no_round_trip(file.entry) for file, _ in work])
        return in_order(calls) if rounds > 1 else (call() for call in calls)

    def _without_excluded(self, work: list[tuple[InFile, bool]], stats: LookupStats) -> list[tuple[InFile, bool]]:
        """The files without those that a filter in memory rules out for the only key. Each file has a flag: whether its
        filter is still to be checked. One call checks all filters in memory."""
        filtered_entries = [file.entry for file, filtered in work if filtered]
        if not filtered_entries:
            return work
        answers, left = iter(self._plan.cached_answers(filtered_entries, stats)), []
        for file, filtered in work:
            answer = next(answers) if filtered else True
            if answer is not False:
                left.append((file, answer is None))
        return left

    def _answer(self, file: InFile, filtered: bool, few: bool) -> FileAnswer:
        check_deadline(f"{self._index_files.root}/{file.entry.path}")
        stats = self._counter()
        try:
            places = self._likely(file, few, stats) if filtered else file.places
            return FileAnswer(places, self._hits(file, places, stats) if places else [], stats)
        except OF_ONE_FILE as error:
            if not self._options.collect_errors:
                raise
            return FileAnswer(file.places, [Hits.of(error) for _ in file.places], stats)

    def _counter(self) -> LookupStats:
        return LookupStats(visits=None if self._trace is None else [])

    def _likely(self, file: InFile, few: bool, stats: LookupStats) -> Sequence[int]:
        """The places of the keys that pass the file's filter."""
        ask, entry = partial(self._pass, file, stats), file.entry
        is_cold = not self._index_files.is_open(entry) and not self._plan.filter_is_kept(entry)
        if not (few and is_cold and self._index_files.reads_whole(entry)):
            return ask()
        opened = self._counter()
        places, _ = in_order([ask, partial(self._open, file, opened)])
        stats.add(opened)
        return places

    def _pass(self, file: InFile, stats: LookupStats) -> Sequence[int]:
        name = file.entry.filter.path if file.entry.filter is not None else None
        with step_of(self._trace, "filter", name, stats) as step:
            places = list(compress(file.places, self._plan.passes(file.entry, file.places, stats)))
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
        entry, trace = file.entry, self._trace
        keys, partitions = self._keys, self._partitions
        if len(keys) > 1:
            keys, partitions = [keys[i] for i in places], [partitions[i] for i in places]
        of_file = FileHits(self._view, file.segment, entry, self._index_files.root, self._options)
        used = self._index_files.use(self._view, file.segment, entry, stats)
        if trace is None:
            with used as tree:
                found = of_file.find(tree, keys, partitions, stats)
        else:
            with ExitStack() as stack:
                with trace.step("index_file", entry.path, stats) as step:
                    tree = stack.enter_context(used)
                    step.say(entries=tree.entries)
                with self._traced_nodes(trace, entry, stats):
                    found = of_file.find(tree, keys, partitions, stats)
        for hits in found:
            if hits.matches:
                return found
        self._lookup.record_miss(entry)
        return found

    @contextmanager
    def _traced_nodes(self, trace: Trace, entry: IndexFileEntry, stats: LookupStats) -> Iterator[None]:
        """Trace the nodes that the block visits. The many leaves of a key with very many entries, which are read in
        long ranges, are one step."""
        begin_ns, before = time.perf_counter_ns(), (stats.reads, stats.bytes, stats.nodes)
        try:
            yield
        finally:
            self._trace_nodes(trace, entry, stats, before, begin_ns)

    def _trace_nodes(
        self, trace: Trace, entry: IndexFileEntry, stats: LookupStats, before: tuple[int, int, int], begin_ns: int
    ) -> None:
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


def _files(groups: Sequence[Group]) -> list[InFile]:
    """The index files of groups, each once, with the places of all its keys."""
    if len(groups) == 1:
        return [InFile(*found, list(groups[0].places)) for found in groups[0].files]
    files: dict[str, InFile] = {}
    for group in groups:
        for found in group.files:
            known = files.setdefault(found.file.path, InFile(*found, []))
            assert isinstance(known.places, list)
            known.places.extend(group.places)
    return sorted(files.values(), key=lambda file: (file.entry.partition, file.entry.bucket))


class FileHits:
    """The hits of some keys in one index file."""

    def __init__(self, view: View, segment: Segment, entry: IndexFileEntry, root: str, options: LookupOptions) -> None:
        self._spec = view.spec
        self._segment = segment
        self._entry = entry
        self._root = root
        self._liveness = Liveness(view.spec, segment, entry, root)
        self._most = options.most_hits
        self._most_bytes = options.most_bytes
        no_limit = options.most_bytes is None
        self._value_bytes = None if no_limit else view.spec.entries.value_bytes(options.most_bytes)

    def find(
        self, tree: BTreeReader, keys: Sequence[Key], partitions: Sequence[Collection[str]], stats: LookupStats
    ) -> list[Hits]:
        """The hits of each key. `partitions` has the requested partitions of each key, by which a flat index is
        filtered."""
        most = None if self._most is None and self._most_bytes is None else self._most_objects()
        try:
            if len(keys) < MANY:
                hits_by_key = [Hits(self._hits(values)) for values in tree.get_many(keys, stats, most)]
            else:
                hits_by_key = self._by_leaf(tree, keys, stats, most)
        except TooMany:
            return self._counted(tree, keys, partitions, stats)
        for hits, names in zip(hits_by_key, partitions, strict=True):
            if self._spec.flat:
                hits[:] = sorted((hit for hit in hits if hit.file.partition in names), key=_partition)
            hits.matches = len(hits)
            if self._most is not None:
                del hits[self._most :]
        return hits_by_key

    def _by_leaf(self, tree: BTreeReader, keys: Sequence[Key], stats: LookupStats, most: int | None) -> list[Hits]:
        """The hits of each of many keys: whole leaves are searched, and only found entries become objects."""
        types, columns = self._spec.key_types, tree.schema.values
        batch = KeyBatch([stored_array([key[i] for key in keys], kind) for i, kind in enumerate(types)], types)
        hits_by_key = [Hits() for _ in keys]
        count = 0
        for piece in tree.match(batch.keys, [column.name for column in columns], stats):
            count += len(piece.keys)
            if most is not None and count > most:
                raise TooMany(0)
            hits = self._hits_of(piece, [column.type for column in columns])
            for places, rows in batch.spread(piece.keys):
                for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                    hit = hits[row]
                    if hit is not None:
                        hits_by_key[place].append(hit)
        return hits_by_key

    def _hits_of(self, piece: Found, types: Sequence[str]) -> list[Hit | None]:
        """The hits of the entries of a piece, None for a dead one."""
        kind, included, files = self._spec.entries, len(self._spec.include), self._named(piece)
        values = [stored_values(array, name) for array, name in zip(piece.columns, types, strict=True)]
        rows = zip(*values[:included], strict=True) if included else repeat((), len(piece.keys))
        of_entry = map(files.files.__getitem__, files.codes.tolist())
        every = zip(kind.pointers(values), of_entry, rows, strict=True)
        return [None if file is None else Hit(pointer, file, row) for pointer, file, row in every]

    def _named(self, piece: Found) -> NamedFiles:
        """The source files that the entries of a piece name."""
        kind = self._spec.entries
        names = kind.file_names(self._segment, self._entry.partition, piece.columns)
        return self._liveness.source_files(names, kind.offsets(piece.columns))

    def _most_objects(self) -> int:
        """The number of entries that may become Python objects; more are counted in Arrow."""
        if self._value_bytes is None:
            return MOST_OBJECTS
        mean = max(1, self._entry.size // max(self._entry.entries, 1))
        return max(1, min(MOST_OBJECTS, self._value_bytes // mean))

    def _hits(self, values: Sequence[Key]) -> list[Hit]:
        """The hits of entries from their values in stored form."""
        hits: list[Hit] = []
        kind, included = self._spec.entries, len(self._spec.include)
        for value in values:
            file = self._liveness.source_file(kind.file_name(self._segment, self._entry.partition, value))
            pointer = kind.pointer(value)
            if file is not None and not self._liveness.is_masked(file.path, pointer.data_offset):
                hits.append(Hit(pointer, file, value[:included]))
        return hits

    # -- a key of any number of entries --------------------------------------------------------------------------------

    def _counted(
        self, tree: BTreeReader, keys: Sequence[Key], partitions: Sequence[Collection[str]], stats: LookupStats
    ) -> list[Hits]:
        """The hits of each key, without Python objects for entries that are not kept."""
        types, columns = self._spec.key_types, tree.schema.values
        arrays = [stored_array([key[i] for key in keys], kind) for i, kind in enumerate(types)]
        batch = KeyBatch(arrays, types)
        requests: dict[int, list[int]] = {}  # the requested keys, by their place in the batch
        for rows, places in batch.spread(np.arange(len(batch.keys))):
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                requests.setdefault(place, []).append(row)
        hits_by_key = [Hits() for _ in keys]
        sizes = [0] * len(keys)
        for piece in tree.match(batch.keys, [column.name for column in columns], stats):
            check_deadline(f"{self._root}/{self._entry.path}")
            for place, rows, files in self._by_key(piece):
                for i in requests[place]:
                    kept = self._kept(hits_by_key[i], rows, files, partitions[i])
                    sizes[i] += self._add(hits_by_key[i], piece, kept, [column.type for column in columns], sizes[i])
        return hits_by_key

    def _by_key(self, piece: Found) -> Iterator[tuple[int, Ints, NamedFiles]]:
        """Yield each key of a piece with its live rows, and the source files that the piece names."""
        files = self._named(piece)
        rows = np.flatnonzero(files.is_live)
        keys, starts = np.unique(piece.keys[rows], return_index=True)
        for key, share in zip(keys.tolist(), np.split(rows, starts[1:]), strict=bool(len(keys))):
            yield key, share, files

    def _kept(self, hits: Hits, rows: Ints, files: NamedFiles, partitions: Collection[str]) -> Ints:
        """Count rows of a key, and choose those that may be among its first hits."""
        if self._spec.flat:
            order = {name: place for place, name in enumerate(sorted(_partitions(files).intersection(partitions)))}
            of_row = files.numbers(lambda file: order.get(file.partition, NOT_LIVE))[rows]
            rows, of_row = rows[of_row >= 0], of_row[of_row >= 0]
            hits.matches += len(rows)
            return rows[np.argsort(of_row, kind="stable")][: self._most]
        hits.matches += len(rows)
        return rows if self._most is None else rows[: max(self._most - len(hits), 0)]

    def _add(self, hits: Hits, piece: Found, rows: Ints, types: Sequence[str], size: int) -> int:
        """Keep rows of a piece. Returns the bytes of their values; `size` are the bytes of the rows kept before."""
        if hits.too_large or not len(rows):
            return 0
        columns = [column.take(pa.array(rows)) for column in piece.columns]
        taken = sum(int(column.nbytes) for column in columns)
        if self._value_bytes is not None and size + taken > self._value_bytes:
            hits.too_large = True
            hits.clear()
            return taken
        values: list[list[Any]] = [list(stored_values(c, kind)) for c, kind in zip(columns, types, strict=True)]
        hits.extend(self._hits(list(zip(*values, strict=True)) if values else [()] * len(rows)))
        if self._most is not None and len(hits) > self._most:
            hits.cut(self._most, self._spec.flat)
        return taken


def _partitions(files: NamedFiles) -> set[str]:
    """The partitions of the live files."""
    return {file.partition for file in files.files if file is not None}


def _partition(hit: Hit) -> str:
    return hit.file.partition

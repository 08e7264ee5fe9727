"""One open index file: look-ups, scans and checks.

A look-up visits the root first, then seeks forward. A *probe* is a key in the form that the nodes of the file hold.

If the tree of a Dione file has a shape that Gnomon's writer does not make, or a key order that Arrow does not have,
`match` goes node by node: slower, with the same result."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.btree.batch import Batch, Found, InnerLevels, inner_levels_of
from gnomon.btree.blocks import Block, BlockFile, Leaves, LookupStats
from gnomon.btree.columns import BlockBatch, OutOfRange, RecordBlocks, Unclear, VectorColumns, decode, take
from gnomon.btree.errors import BTreeError, DamagedIndexFile, Irregular, TooMany
from gnomon.btree.keys import Key, SortedKeys, stored_array
from gnomon.btree.node import UNREADABLE, is_arrow_ordered
from gnomon.btree.scan import Census, DioneScan, Scan
from gnomon.btree.schema import EntrySchema
from gnomon.btree.traversal import LONG_BLOCK, Descent, Place, Traversal


class Run(NamedTuple):
    """Consecutive entries of one block: its offset, their number, and their bytes, not decoded."""

    offset: int
    entries: int
    records: bytes


_Wanted = list[tuple[Key, int]]  # in key order, each with the index of its result
_Steps = Iterator[tuple[int, _Wanted]]  # records whose children will be visited, and the keys wanted there
_Visit = Callable[[Place, _Wanted], _Steps]


class BTreeReader:
    """An open index file, which threads may share: a look-up changes only the cache of upper nodes.

    Each look-up checks the nodes that it visits: framing, sync markers, order, and that a node lies after its parent in
    the file and between its parent's keys in order. A block that two links reach is refused, so every look-up ends."""

    def __init__(
        self,
        reader: RangeReader,
        stats: LookupStats | None = None,
        head_bytes: int | None = None,
        leaves: Leaves | None = None,
        action: Action = Action.BUILD_FULL,
    ) -> None:
        """`head_bytes`, if known (`IndexFile.head_bytes`), is the length of header and upper levels: they come in one
        read. Otherwise it is guessed from the file's size. If that read gets the whole file, it stays in memory.
        `leaves` caches leaves that look-ups decode. `action` is the advice in errors about a damaged file."""
        stats = stats if stats is not None else LookupStats()
        self._file = BlockFile(reader, stats, head_bytes, leaves, action)
        self.path = self._file.path
        self.codec = self._file.codec
        self.schema: EntrySchema = self._file.schema.entry
        self.entries = self._file.entries  # None in a file that does not state it
        self._inner_levels: InnerLevels | None = None  # set by the first `match`
        schema = self._file.schema
        self._has_our_order = is_arrow_ordered(schema.entry.key_types) and not any(schema.nulls_last)  # a Dione file

    @property
    def cache_bytes(self) -> int:
        """Memory that this reader holds."""
        return self._file.cache_bytes + (self._inner_levels.cache_bytes if self._inner_levels else 0)

    @property
    def is_whole(self) -> bool:
        """Whether all of the file is in memory, so that look-ups read nothing."""
        return self._file.is_whole

    @property
    def waits(self) -> bool:
        """Whether a read of a leaf waits for a remote store."""
        return self._file.is_remote and not self.is_whole

    def forget_leaves(self) -> None:
        """Keep only the levels above the leaves of a file that was read whole."""
        self._file.forget_leaves()

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return self._file.size

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the header."""
        return dict(self._file.metadata)

    @property
    def header_bytes(self) -> int:
        """Length of the header."""
        return self._file.start

    @property
    def upper_bytes(self) -> int:
        """Length of the levels above the leaves; 0 in a file that does not state it, or has none."""
        return self._file.upper_bytes

    @property
    def has_inner_levels(self) -> bool:
        """Whether the levels above the leaves are cached in the form for `match`."""
        return self._inner_levels is not None

    # -- look-ups --------------------------------------------------------------------------------------------------

    def get(self, key: Key, stats: LookupStats | None = None) -> list[Key]:
        """The values of every entry with this key (in stored form), in file order."""
        return self.get_many([key], stats)[0]

    def get_many(
        self, keys: Sequence[Key], stats: LookupStats | None = None, most: int | None = None
    ) -> list[list[Key]]:
        """The values for each key, in the order of `keys`. Each node is read and decoded at most once; the file is read
        forward. TooMany where more than `most` values were found before the next node is visited, or where a node has
        more than `most` records; such a node is not decoded."""
        stats = stats or LookupStats()
        begin = self._descend(keys, stats, most)
        if begin is not None and begin.is_whole:
            return [self._values(begin.block, begin.first, begin.last)]
        probes = list(map(self._file.decoder.probes, keys))
        forms = list(chain(*probes))
        values: list[list[Key]] = [[] for _ in forms]

        def collect(place: Place, wanted: _Wanted) -> _Steps:
            if most is not None and sum(map(len, values)) > most:
                raise TooMany(place.block.offset)
            return self._collect(place, wanted, values)

        self._look_up(forms, collect, stats, most, begin)
        if len(values) == len(keys):
            return values
        answers = iter(values)
        return [list(chain(*islice(answers, len(key_probes)))) for key_probes in probes]

    def contains_many(
        self, keys: Sequence[Key], stats: LookupStats | None = None, most: int | None = None
    ) -> list[bool]:
        """For each key, in the order of `keys`, whether an entry exists. Visits nodes like `get_many`, but never below
        a found entry. TooMany where a node has more than `most` records."""
        stats = stats or LookupStats()
        begin = self._descend(keys, stats, most)
        if begin is not None and (begin.is_whole or begin.first < begin.last):
            return [begin.first < begin.last]
        probes = list(map(self._file.decoder.probes, keys))
        forms = list(chain(*probes))
        exists = [False] * len(forms)
        self._look_up(forms, lambda place, wanted: _mark(place, wanted, exists), stats, most, begin)
        if len(exists) == len(keys):
            return exists
        answers = iter(exists)
        return [any(list(islice(answers, len(key_probes)))) for key_probes in probes]

    def match(self, keys: SortedKeys, columns: Sequence[str], stats: LookupStats | None = None) -> Iterator[Found]:
        """The entries of many keys, with these of their value columns. Without columns, only the keys that exist (each
        at least once). Leaves are read in long ranges and decoded together, thousands for each piece of the result. The
        pieces together equal the result of `get_many`, in file order."""
        stats = stats or LookupStats()
        if self._file.is_gnomon_file:
            yield from self._match(keys, columns, stats)
            return
        if self._has_our_order:
            try:  # only the last leaf may show that the tree is irregular
                yield from list(self._match(keys, columns, stats))
                return
            except Irregular:
                pass
        yield self.match_each(keys, columns, stats)

    def _match(self, keys: SortedKeys, columns: Sequence[str], stats: LookupStats) -> Iterator[Found]:
        if self._file.is_empty or not len(keys):
            return
        if self._inner_levels is None:
            self._inner_levels = inner_levels_of(self._file, stats)
        yield from Batch(self._file, self._inner_levels, keys, columns, stats).pieces()

    def match_each(
        self, sorted_keys: SortedKeys, columns: Sequence[str], stats: LookupStats | None = None, most: int | None = None
    ) -> Found:
        """Like `match`, but key by key: faster for few keys. Memory holds the whole result. TooMany where more than
        `most` entries were found before the next node is visited, or where a node has more than `most` records."""
        keys = sorted_keys.stored()
        if not columns:
            return Found(np.flatnonzero(np.array(self.contains_many(keys, stats, most), bool)), [])
        answers = self.get_many(keys, stats, most)
        key_numbers = np.repeat(np.arange(len(keys)), [len(values) for values in answers])
        values = list(chain(*answers))
        place = {column.name: (i, column.type) for i, column in enumerate(self.schema.values)}
        arrays = [stored_array([value[i] for value in values], kind) for i, kind in map(place.__getitem__, columns)]
        return Found(key_numbers, arrays)

    def scan(self, stats: LookupStats | None = None) -> Iterator[tuple[Key, Key]]:
        """All entries in key order, as (key, value) in stored form."""
        for place, begin, end in Traversal(self._file, stats or LookupStats()).runs():
            try:
                entries = place.block.node.entries(begin, end)
            except UNREADABLE as error:
                raise self._unreadable(place.block, error) from None
            yield from entries

    def runs(
        self, begin: Key | None, end: Key | None, reverse: bool, stats: LookupStats, expected: int | None = None
    ) -> Iterator[Run]:
        """The entries from key `begin` to before key `end` (in stored form; None: an open end), in runs of consecutive
        entries in the key order of the file. With `reverse` the runs come in the opposite order. Nodes outside of the
        range are not read. `expected` is about the number of entries that the caller will take first: on a remote
        store, the leaves of these are read together, with one more."""
        low, high = (None if key is None else self._file.decoder.probes(key)[0] for key in (begin, end))
        for place, first, last in Traversal(self._file, stats, expected=expected).runs(low, high, reverse):
            block = place.block
            yield Run(block.offset, last - first, block.node.bytes(first, last))

    def run_batches(
        self, begin: Key | None, end: Key | None, entries: int, stats: LookupStats | None = None
    ) -> Iterator[list[Run]]:
        """As `runs`, some runs with about this number of entries at a time."""
        taken, count = list[Run](), 0
        for run in self.runs(begin, end, False, stats or LookupStats(), entries):
            taken.append(run)
            count += run.entries
            if count >= entries:
                yield taken
                taken, count = [], 0
        if taken:
            yield taken

    def decoded(self, runs: Sequence[Run], columns: Sequence[str]) -> list[pa.Array]:
        """These columns of the entries of some runs, one run after the other. DamagedIndexFile where a block is
        damaged."""
        blocks = BlockBatch()
        for run in runs:
            blocks.add_inner(run.offset, 0, run.entries, run.records)
        decoded = decode(self._file, blocks, columns)
        counts = np.array(blocks.counts)
        firsts = np.concatenate([[0], np.cumsum(counts)])
        order = np.repeat(decoded.first - firsts[:-1], counts) + np.arange(firsts[-1])
        pieces = RecordBlocks(blocks.offsets, firsts, [])
        return [take(self._file, decoded.columns, name, order, pieces) for name in columns]

    def scan_batches(
        self, columns: Sequence[str] | None = None, stats: LookupStats | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All entries in key order as Arrow batches of these columns, by default all, with the checks of `check`.

        DamagedIndexFile may come after some batches: these batches are sound, but the file is not."""
        names = [column.name for column in self.schema.columns]
        unknown = [name for name in columns or () if name not in names]
        if unknown:
            raise BTreeError(f"this file has no column {', '.join(unknown[:5])}; it has {', '.join(names)}")
        return self._scan(names if columns is None else columns, stats or LookupStats()).batches()

    def _scan(self, columns: Sequence[str], stats: LookupStats) -> Scan:
        return (Scan if self._file.is_gnomon_file else DioneScan)(self._file, columns, stats)

    def sample(self, count: int) -> list[tuple[Key, Key]]:
        """Up to `count` entries, spread over the root, as (key, value) in stored form."""
        if self._file.is_empty or count < 1:
            return []
        block = Traversal(self._file, LookupStats()).root_block()
        try:
            records = range(0, len(block.node), -(-len(block.node) // count))
            return [block.node.entries(record, record + 1)[0] for record in records]
        except UNREADABLE as error:
            raise self._unreadable(block, error) from None

    # -- proof -----------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """Read the whole file as a tree and return its number of entries. DamagedIndexFile as in `census`."""
        return self.census().entries

    def census(self) -> Census:
        """Read the whole file and count its parts. DamagedIndexFile for any fault: framing, order inside and across
        nodes, a wrong link, bytes that no link or two links reach, text that is not UTF-8, or a wrong number of
        entries."""
        scan = self._scan([column.name for column in self.schema.columns], LookupStats())
        for _ in scan.batches():
            pass
        return scan.census

    # -- steps of a look-up -------------------------------------------------------------------------------------------

    def _descend(self, keys: Sequence[Key], stats: LookupStats, most: int | None) -> Descent | None:
        """The path to the only key, where the nodes of the file are compiled; else None."""
        file = self._file
        if len(keys) != 1 or not file.decoder.is_compiled or file.start == file.size:
            return None
        file.decoder.check(keys[0])
        return Traversal(file, stats, most).descend(keys[0])

    def _look_up(
        self, probes: Sequence[Key], visit: _Visit, stats: LookupStats, most: int | None, begin: Descent | None
    ) -> None:
        """Visit each node that may hold some of the probes, once, from the end of the path to the only one or from the
        root. `visit` gets the node and the probes that it may hold, each with its index in `probes`."""
        wanted = [(probe, i) for i, probe in enumerate(probes)]
        if not wanted or self._file.is_empty:
            return
        if begin is not None:
            traversal, place = begin.traversal, begin.place
        else:
            traversal = Traversal(self._file, stats, most)
            place = traversal.root()
            stats.nodes += 1
            order = self._file.decoder.order
            wanted.sort(key=lambda one: order(one[0]))
        stack = [(place, visit(place, wanted))]  # an explicit stack, since a damaged file may be as deep as it is long
        while stack:
            place, steps = stack[-1]
            step = next(steps, None)
            if step is None:
                stack.pop()
                continue
            record, below = step
            child = traversal.child(place, record)
            stats.nodes += 1
            stack.append((child, visit(child, below)))

    def _collect(self, place: Place, wanted: _Wanted, values: list[list[Key]]) -> _Steps:
        """Add the values of wanted keys in a node. Yields each record whose child is to be visited next, and the keys
        to find there."""
        node = place.block.node
        find, link = node.keys.find, node.keys.link
        hits = [find(probe) for probe, _ in wanted]
        below: dict[int, list[int]] = {}
        for i, (first, last) in enumerate(hits):
            # A key may lie in the child of each record equal to it. It may also lie in the child of the record before
            # the first of them: a run of equal keys may begin at the end of that child, if runs may be split.
            begin = first if first < last and self._file.has_whole_runs else max(first - 1, 0)
            for record in range(begin, last):
                if link(record) is not None:
                    below.setdefault(record, []).append(i)
        done = [first for first, _ in hits]  # own records that are already in the result
        for record in sorted(below):
            for i in below[record]:  # in the tree's order a record comes before its child
                upto = min(record + 1, hits[i][1])
                if upto > done[i]:
                    values[wanted[i][1]] += self._values(place.block, done[i], upto)
                    done[i] = upto
            yield record, [wanted[i] for i in below[record]]
        for i, (_, last) in enumerate(hits):
            if last > done[i]:
                values[wanted[i][1]] += self._values(place.block, done[i], last)

    def _values(self, block: Block, first: int, last: int) -> list[Key]:
        try:
            return block.node.values(first, last)
        except UNREADABLE as error:
            raise self._unreadable(block, error) from None

    def _unreadable(self, block: Block, error: Exception) -> DamagedIndexFile:
        why = f"a record cannot be decoded ({error})"
        if isinstance(error, UnicodeDecodeError):
            why = f"text that is not UTF-8 ({error.reason})"
        return self._file.damaged(why, block.offset)


def decoded(parts: Sequence[tuple[BTreeReader, Sequence[Run]]], columns: Sequence[str]) -> list[pa.Array]:
    """These columns of the entries of some runs of some files, one run after the other: as `BTreeReader.decoded`, but
    files of one schema are decoded together."""
    schema = parts[0][0]._file.schema
    runs = [run for _, some in parts for run in some]
    if (
        len(parts) > 1
        and all(one._file.schema == schema for one, _ in parts)
        and all(r.entries <= LONG_BLOCK for r in runs)
    ):
        counts = np.array([run.entries for run in runs])
        try:
            together = VectorColumns(schema, counts, [run.records for run in runs], columns)
            return [together.take(name, np.arange(counts.sum())) for name in columns]
        except (Unclear, OutOfRange, pa.ArrowInvalid):
            pass  # file by file, so that an error names the file and the block
    each = [one.decoded(some, columns) for one, some in parts]
    return [pa.concat_arrays(arrays) for arrays in zip(*each, strict=True)]


def _mark(place: Place, wanted: _Wanted, exists: list[bool]) -> _Steps:
    """Mark the wanted keys that a node holds. Yields the records whose children may hold the others."""
    node = place.block.node
    below: dict[int, _Wanted] = {}
    for probe, i in wanted:
        first, last = node.keys.find(probe)
        if last > first:
            exists[i] = True
        elif first and node.keys.link(first - 1) is not None:
            below.setdefault(first - 1, []).append((probe, i))
    yield from below.items()

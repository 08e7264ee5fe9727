"""Live entries in key order: a merge of the index files of a snapshot, from a key on, in either direction.

Each index file is sorted. The merge reads the entries of each file in pieces, and gives those that are before the last
entry that it has of any file. Entries with one key have the order of their pointers, so that the order is the same in
each snapshot that has them."""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.btree import BTreeReader, Column
from gnomon.btree.blocks import LookupStats
from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, comparable, compare, stored_values
from gnomon.btree.reader import Run, decoded
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup.plan import Lookup, ParsedKey
from gnomon.shadow.lookup.point import Hit, Hits, InFile
from gnomon.shadow.lookup.ranges import Range, from_key, parse_range
from gnomon.shadow.metadata import IndexSpec, Liveness, Segment, SegmentFile, SourceFileEntry, View
from gnomon.shadow.storage import THREADS, check_deadline, in_order

MOST_AT_ONCE = 4096  # entries of an index file that a long merge reads at once
KEYS_AT_ONCE = 1 << 17  # of all files of a merge of keys alone
FILE_BYTES = (
    32 * 1024
)  # memory that a merge holds of one index file, at least: a leaf's entries, the next leaves' bytes
SOURCE = "source"  # the column with the number of an entry's index file
CODE = "code"  # the column with the place of its partition's values among `OrderedEntries.combinations`
ALL_KEYS = Range()
Result = TypeVar("Result")


class Cursor(NamedTuple):
    """The last row of a page: its key in stored form, and the path and position of the row. `text` and `of_text` are
    its form for callers."""

    key: Key
    file: str
    offset: int
    sub_offset: int

    def text(self, spec: IndexSpec) -> str:
        shown = [key_type(kind).to_json(value) for value, kind in zip(self.key, spec.key_types, strict=True)]
        data = json.dumps([shown, self.file, self.offset, self.sub_offset], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    @classmethod
    def of_text(cls, text: str, spec: IndexSpec) -> "Cursor":
        """UsageError for a text that no page of an index of this spec ended with."""
        try:
            shown, file, offset, sub_offset = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            pairs = zip(shown, spec.stored_keys, strict=True)
            key = tuple(key_type(column.type).to_stored(value, column.name) for value, column in pairs)
            return cls(key, str(file), int(offset), int(sub_offset))
        except (ValueError, TypeError, OverflowError, RecursionError, KeyTypeError):
            raise UsageError("after", expected="the cursor that a page ended with", found=repr(text[:80])) from None


@dataclass(frozen=True)
class RangeQuery:
    """A range of keys, as `parse_range` takes it, and the rows wanted of it: those of the partitions of `where`, the
    first `limit` ones, in key order or in `reverse`, `after` the cursor that a page ended with."""

    low: object = None
    high: object = None
    prefix: object = None
    inclusive: bool = False
    where: Mapping[str, object] | None = None
    reverse: bool = False
    limit: int | None = None
    after: str | None = None

    def entries(self, lookup: Lookup, view: View) -> "OrderedEntries":
        bounds = parse_range(view.spec, self.low, self.high, self.prefix, self.inclusive)
        cursor = None if self.after is None else Cursor.of_text(self.after, view.spec)
        return OrderedEntries(lookup, view, bounds, view.where(self.where), self.reverse, cursor)


class Source:
    """The entries of one index file in a range. `last` is the last entry that was read, `is_done` whether no other
    follows."""

    def __init__(self, merge: "OrderedEntries", number: int, place: SegmentFile, is_inside: bool) -> None:
        """`is_inside`: all keys of the file's bucket are in the range."""
        self._merge = merge
        self.number, self.place, self.is_inside = number, place, is_inside
        self._runs: Iterator[Run] | None = None
        self.last: list[pa.Array] | None = None
        self.is_done = False
        self.entries = 0  # that were read
        self.stats = LookupStats()
        self._liveness = Liveness(merge.view.spec, place.segment, place.file, merge.root)

    def pull(self, entries: int) -> "_Pulled":
        """The next runs, of about this number of entries."""
        merge = self._merge
        check_deadline(f"{merge.root}/{self.place.file.path}")
        with merge.lookup.index_files.use(merge.view, *self.place, self.stats) as tree:
            taken, count = [], 0
            for run in self._opened(tree, entries):
                taken.append(run)
                count += run.entries
                if count >= entries:
                    break
            else:
                self.is_done = True
        self.entries += count
        return _Pulled(self, tree, taken[::-1] if merge.reverse else taken, count)

    def file(self, values: Key) -> SourceFileEntry:
        """The source file of an entry with these values."""
        segment, entry = self.place
        found = self._liveness.source_file(self._merge.view.spec.entries.file_name(segment, entry.partition, values))
        assert found is not None
        return found

    def count(self) -> int:
        """The number of live entries. Nothing is decoded where all entries are live, and nothing read where all of the
        file are in the range, too."""
        merge, total = self._merge, 0
        if self.is_counted:
            return self.place.file.entries
        with merge.lookup.index_files.use(merge.view, *self.place, self.stats) as tree:
            for run in self._opened(tree, self.place.file.entries):
                one = _Pulled(self, tree, [run], run.entries)
                total += run.entries if self.all_live else merge.live([one]).num_rows
        return total

    @property
    def is_counted(self) -> bool:
        """Whether the metadata of the index says the number of its entries."""
        return self.all_live and self.is_inside

    @cached_property
    def all_live(self) -> bool:
        """Whether all its entries are live, and of the wanted partitions."""
        segment, file = self.place
        return self._merge.all_live(segment, None if self._merge.view.spec.flat else file.partition)

    def live(self, values: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Whether each entry with these value columns is live, and of the wanted partitions."""
        return self.numbers(values, self._merge.wanted) > 0

    def numbers(self, values: Sequence[pa.Array], of_partitions: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """The number of the partition of each entry with these value columns, if it is live; else 0 or less."""
        kind = self._merge.view.spec.entries
        files = kind.file_names(self.place.segment, self.place.file.partition, values)
        named = self._liveness.source_files(files, kind.offsets(values) if self.place.segment.masks else None)
        return named.numbers(lambda file: of_partitions.get(file.partition, 0))

    def _opened(self, tree: BTreeReader, entries: int) -> Iterator[Run]:
        if self._runs is None:
            bounds = self._merge.range
            self._runs = tree.runs(bounds.low, bounds.high, self._merge.reverse, self.stats, entries)
        return self._runs


class _Pulled(NamedTuple):
    """Some runs of an index file, in key order, and the number of their entries."""

    source: Source
    tree: BTreeReader
    runs: Sequence[Run]
    entries: int


class OrderedEntries:
    """The live entries of a snapshot in a range of keys and in some partitions, in key order, or with `reverse` in the
    opposite order. `of_keys`: their key columns alone, or with `included` also their included columns, so that those of
    one key have no order. If partition columns are in the key, CODE says their values: `combinations` has them, with
    the columns of the key in their places."""

    def __init__(
        self,
        lookup: Lookup,
        view: View,
        bounds: Range,
        where: Mapping[str, Collection[Stored]],
        reverse: bool,
        after: Cursor | None,
        of_keys: bool = False,
        included: bool = False,
    ) -> None:
        self.lookup, self.view, self.reverse, self.root = lookup, view, reverse, lookup.storage.root
        self._cursor, spec = after, view.spec
        if after is not None:  # its own key may have further rows
            bounds = from_key(spec, bounds, after.key, reverse)
            if after.file not in view.covered:  # its rows may be in other files: they come again, and none is missing
                self._cursor = None
        self.range = bounds
        partitions = view.partitions_of(where, bounds.where)
        self.wanted = dict.fromkeys(partitions, 1)
        self.sources, groups = list[Source](), dict[int, list[Source]]()
        for folder in spec.folders_of(partitions):  # hashed buckets are merged, ranges of keys follow each other
            buckets = spec.bucketing_in(folder).between(bounds.low, bounds.high)
            is_open = (bounds.low is None, bounds.high is None)
            for bucket in buckets:
                is_inside = all(is_open)
                if spec.cuts is not None:
                    is_inside = (is_open[0] or bucket > buckets[0]) and (is_open[1] or bucket < buckets[-1])
                for place in view.files_of(folder, bucket):
                    source = Source(self, len(self.sources), place, is_inside)
                    self.sources.append(source)
                    groups.setdefault(0 if spec.cuts is None else bucket, []).append(source)
        self._groups = [groups[number] for number in sorted(groups, reverse=reverse)]
        self._all_live: dict[tuple[str, str | None], bool] = {}  # by the id of a segment, and a partition of it
        self._of_keys, self.combinations, self._codes = of_keys, list[Key](), dict[str, int]()
        if of_keys and any(key.partition for key in spec.keys):
            self._number(spec)
        self._included = spec.include if included else ()
        values = len(self._included) if of_keys else len(spec.entry_schema.values)
        parts = {"key": len(spec.key_types), "value": values}
        self.columns = [f"{part}{i}" for part, count in parts.items() for i in range(count)] + [CODE] * bool(
            self._codes
        )

    def all_live(self, segment: Segment, partition: str | None) -> bool:
        """Whether all entries of a segment, or of one partition in it, are live and wanted."""
        key = segment.id, partition
        if key not in self._all_live:
            partitions = set(segment.source_files_in if partition is None else [partition])
            is_whole = not segment.masks and not segment.dead
            self._all_live[key] = is_whole and self.wanted.keys() >= partitions
        return self._all_live[key]

    def _number(self, spec: IndexSpec) -> None:
        """Number the values that partitions have of the columns of the key."""
        numbers: dict[Key, int] = {}
        for partition, values in self.view.partition_values.items():
            combination = tuple(values.get(key.name) if key.partition else None for key in spec.keys)
            self._codes[partition] = numbers.setdefault(combination, len(numbers))
        self.combinations = list(numbers)

    def count(self) -> int:
        """The number of entries, without their order."""
        read = [source for source in self.sources if not source.is_counted]
        known = sum(source.count() for source in self.sources if source.is_counted)
        return known + sum(self._each(read, [source.count for source in read]))

    def _each(self, sources: Sequence[Source], calls: Sequence[Callable[[], Result]]) -> Iterable[Result]:
        """The results of calls that read the files of these sources: side by side where they wait for a store."""
        files = self.lookup.index_files
        entries = [one.place.file for one in sources]
        if sum(not files.needs_no_round_trip(entry) for entry in entries) < 2:
            return (call() for call in calls)
        is_whole = [files.reads_whole(entry) and not files.is_open(entry) for entry in entries]
        sizes = [entry.size if whole else FILE_BYTES for entry, whole in zip(entries, is_whole, strict=True)]
        return in_order(calls, sizes, ahead=THREADS)

    def batches(self, wanted: int | None) -> Iterator[pa.Table]:
        """The entries in order, in tables. `wanted` is the number of entries that the caller will take, if it knows."""
        held, entries = list[Source](), 0
        for group in self._groups:  # those that are too few alone are read together
            held, entries = [*held, *group], entries + sum(source.place.file.entries for source in group)
            if entries >= (MOST_AT_ONCE if wanted is None else wanted):
                yield from self.merged(held, wanted)
                held, entries = [], 0
        yield from self.merged(held, wanted)

    def merged(self, group: Sequence[Source], wanted: int | None) -> Iterator[pa.Table]:
        most = max(MOST_AT_ONCE, KEYS_AT_ONCE // len(group)) if self._of_keys and group else MOST_AT_ONCE
        share = most if wanted is None else wanted // max(1, len(group)) + 1  # one is held back
        if self._of_keys and len(group) == 1:  # its entries are in order
            while not group[0].is_done:
                yield from (pa.Table.from_batches([one]) for one in self._refill(group, share) if one.num_rows)
            return
        pending: list[pa.RecordBatch] = []
        left, short = group, group  # the sources that have further entries, and those to read next
        while left or pending:
            pending = [one for one in (*pending, *self._refill(short, share)) if one.num_rows]
            left = [source for source in left if not source.is_done]
            if not pending:
                short = left
                continue
            held = pa.Table.from_batches(pending).combine_chunks()
            keys = [comparable(held.column(i), kind) for i, kind in enumerate(self.view.spec.key_types)]
            frontier = self._frontier(left)
            ready = np.ones(len(held), bool)
            if frontier is not None:
                bound = [array.take(pa.array(np.zeros(len(held), np.int64))) for array in frontier]
                equal, before = compare(keys, bound)
                ready = equal | before if self._of_keys else ~(equal | before) if self.reverse else before
            rows = np.flatnonzero(ready)
            if len(rows):
                yield from self._in_order(held.take(pa.array(rows)), [key.take(pa.array(rows)) for key in keys])
            rest = held.take(pa.array(np.flatnonzero(~ready)))
            pending = rest.to_batches()
            counts = np.bincount(rest.column(SOURCE).to_numpy(), minlength=len(self.sources))
            share = min(2 * share, most)
            short = [one for one in left if counts[one.number] < share or _equals(one.last, frontier)]

    def _refill(self, sources: Sequence[Source], share: int) -> list[pa.RecordBatch]:
        calls = [partial(source.pull, share) for source in sources]
        pulled = [one for one in self._each(sources, calls) if one.runs]
        return [self.live(pulled)] if pulled else []

    def live(self, pulled: Sequence[_Pulled]) -> pa.RecordBatch:
        """The live entries of some runs."""
        kinds, schema = self.view.spec.key_types, self.view.spec.entry_schema
        needs_values = not self._of_keys or self._codes or not all(one.source.all_live for one in pulled)
        wanted = schema.columns if needs_values else (*schema.keys, *schema.values[: len(self._included)])
        columns = decoded([(one.tree, one.runs) for one in pulled], _names(wanted))
        ends = np.cumsum([one.entries for one in pulled])
        begins = ends - [one.entries for one in pulled]
        of_last = pa.array(begins if self.reverse else ends - 1)
        lasts = [comparable(key.take(of_last), kind) for key, kind in zip(columns, kinds, strict=False)]
        kept, codes = np.ones(ends[-1], bool), np.zeros(ends[-1], np.int64)
        for place, (one, begin) in enumerate(zip(pulled, begins.tolist(), strict=True)):
            one.source.last = [key.slice(place, 1) for key in lasts]
            here, values = (
                slice(begin, begin + one.entries),
                [part.slice(begin, one.entries) for part in columns[len(kinds) :]],
            )
            if not one.source.all_live:
                kept[here] = one.source.live(values)
            if self._codes:
                codes[here] = one.source.numbers(values, self._codes)
        if self._of_keys:
            columns = columns[: len(kinds) + len(self._included)] + [pa.array(codes)] * bool(self._codes)
        columns.append(pa.array(np.repeat([one.source.number for one in pulled], [one.entries for one in pulled])))
        entries = pa.RecordBatch.from_arrays(columns, [*self.columns, SOURCE])
        return entries if kept.all() else entries.take(pa.array(np.flatnonzero(kept)))

    def _frontier(self, left: Sequence[Source]) -> list[pa.Array] | None:
        """The key up to which all entries are read: the first of the last keys of the files; None where all are."""
        if not left:
            return None
        lasts = [pa.concat_arrays(arrays) for arrays in zip(*(one.last for one in left if one.last), strict=True)]
        first = _order(lasts, self.reverse)[:1]
        return [array.take(first) for array in lasts]

    def _in_order(self, table: pa.Table, keys: list[pa.Array]) -> Iterator[pa.Table]:
        ties = [table.column(f"value{i}").combine_chunks() for i in self._ties()]
        table = table.take(_order([*keys, *ties], self.reverse))
        if self._cursor is not None:
            table = table.slice(self._upto_cursor(table))
        if len(table):
            yield table

    def _ties(self) -> Sequence[int]:
        """The places, among the value columns, of those that order entries of one key."""
        if self._of_keys:
            return range(0)
        values = len(self.view.spec.entry_schema.values)
        pointers = len(self.view.spec.entries.pointer_columns)
        return range(values - pointers, values - pointers + min(pointers, 3))

    def _upto_cursor(self, table: pa.Table) -> int:
        """The number of entries of the cursor's key up to the cursor."""
        ties, cursor, count = [table.column(f"value{i}") for i in self._ties()], self._cursor, 0
        assert cursor is not None
        types = self.view.spec.key_types
        for row in range(len(table)):
            key = tuple(stored_values(table.column(i).slice(row, 1), kind)[0] for i, kind in enumerate(types))
            if not _same(key, cursor.key):
                self._cursor = None
                break
            place = tuple(tie[row].as_py() for tie in ties)
            known = (cursor.file, cursor.offset, cursor.sub_offset)[: len(place)]
            if (place < known) if self.reverse else (place > known):
                self._cursor = None
                break
            count += 1
        return count

    def pages(self, limit: int | None, rows: int) -> Iterator[pa.Table]:
        """The first `limit` entries, in tables of `rows` entries; the last one may have fewer."""
        held: list[pa.Table] = []
        count, left = 0, limit
        for table in self.batches(rows if limit is None else min(rows, limit)):
            held.append(table if left is None else table.slice(0, left - count))
            count += len(held[-1])
            while count >= rows or (count and count == left):
                joined = pa.concat_tables(held)
                yield joined.slice(0, rows)
                held, count = [joined.slice(rows)], count - min(rows, count)
                left = None if left is None else left - min(rows, len(joined))
            if left == 0:
                return
        if count:
            yield pa.concat_tables(held)

    def hits(self, table: pa.Table) -> tuple[list[ParsedKey], list[Hits]]:
        """Entries in order as keys with their hits. Neighbours with one key are one."""
        spec = self.view.spec
        types = [*spec.key_types, *(column.type for column in spec.entry_schema.values)]
        columns = [stored_values(table.column(i), kind) for i, kind in enumerate(types)]
        rows = zip(*columns, table.column(SOURCE).to_pylist(), strict=True)
        wanted, found = list[ParsedKey](), list[Hits]()
        count, included = len(spec.key_types), len(spec.include)
        for row in rows:
            key, values = row[:count], row[count:-1]
            if not wanted or not _same(key, wanted[-1].stored):
                wanted.append(ParsedKey(key))
                found.append(Hits())
            found[-1].append(Hit(spec.entries.pointer(values), self.sources[row[-1]].file(values), values[:included]))
            found[-1].matches += 1
        return wanted, found

    def cursor(self, table: pa.Table) -> Cursor | None:
        """The cursor after the last entry of a table; None for a key-value folder, whose entries have no position."""
        types, ties = self.view.spec.key_types, self._ties()
        if not ties:
            return None
        key = tuple(stored_values(table.column(i).slice(len(table) - 1), kind)[0] for i, kind in enumerate(types))
        return Cursor(key, *(table.column(f"value{i}")[len(table) - 1].as_py() for i in ties))

    @property
    def files(self) -> list[InFile]:
        """The index files that may have entries in the range."""
        return [InFile(*source.place, []) for source in self.sources]

    @property
    def bytes_at_once(self) -> int:
        """About the memory of the entries that are held at a time."""
        return FILE_BYTES * len(self.sources)

    @property
    def cost(self) -> LookupStats:
        """The reads of index files so far: their number, bytes and nodes."""
        total = LookupStats()
        for source in self.sources:
            total.add(source.stats)
        return total


def _names(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def _order(columns: Sequence[pa.Array], reverse: bool) -> pa.Array:
    names = [str(i) for i in range(len(columns))]
    way, nulls = ("descending", "at_end") if reverse else ("ascending", "at_start")
    return pc.sort_indices(pa.RecordBatch.from_arrays(list(columns), names), sort_keys=[(n, way, nulls) for n in names])


def _equals(one: list[pa.Array] | None, other: list[pa.Array] | None) -> bool:
    return one is not None and other is not None and bool(compare(one, other)[0][0])


def _same(one: Key, other: Key) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))

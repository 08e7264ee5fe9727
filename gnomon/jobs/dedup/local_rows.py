"""The rows of a batch, checked and written in this process.

The rows are read twice. The first time only keys, partitions and the columns that order copies are read, sorted by key
within a bound of memory, and looked up: the outcome of each row is a byte. The second time the new rows are written."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.hashing import plain_column, xxhash64_columns
from gnomon.btree.key_types import value_type
from gnomon.btree.keys import adjacent, comparable, stable_order
from gnomon.jobs.build import Engine, LocalEngine
from gnomon.jobs.dedup.batch_plan import BatchFile, members_of, plan_batch, rows_of
from gnomon.jobs.dedup.check import (
    DELETES,
    STATUS,
    DeleteMarker,
    KeyCheck,
    check_within,
    columns_within,
    of_source,
    within_names,
)
from gnomon.jobs.dedup.layout import Layout
from gnomon.jobs.dedup.row_digest import digest_of, row_hashes, total_of
from gnomon.jobs.dedup.source_cast import SourceCast, cast_to, first_cast
from gnomon.jobs.dedup.staging import DIGEST, NULLS, Staged, Staging, StagingWriter, part_columns, staged_of
from gnomon.jobs.load import LookupCounters, NoType, gathered, joined, reader_of
from gnomon.jobs.stages import Stages
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import Place, ahead, storage_at
from gnomon.shadow.tables import numbered
from gnomon.shadow.values import key_names, typed_keys
from gnomon.shadow.write import GROUP, MEMORY_BYTES, EntrySorter, cores
from gnomon.sources import Options
from gnomon.sources.types import int32s, int64s

BATCH = "batch"
GROUPS = 1024  # of keys, which are sorted separately
CHUNK_ROWS, CHUNK_BYTES = 1_000_000, 64 << 20  # of keys that are looked up together
TASKS = 1
ORDER, PLACE = "order", "place"  # columns of the first reading

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
Outcomes = npt.NDArray[np.int8]


class LocalRows:
    """The rows of a batch for this process. `read` yields them, with the named columns, in the same order each time.
    `memory` is the number of bytes that sorting may take."""

    deletes: DeleteMarker | None = None

    def __init__(self, schema: pa.Schema, read: Read, memory: int = MEMORY_BYTES) -> None:
        self.schema = schema
        self.engine: Engine = LocalEngine(memory)
        self._read = read
        self._memory = memory
        self._counters = LookupCounters()

    @cached_property
    def columns(self) -> Mapping[str, str | None]:
        return {one.name: str(one.type) if pa.types.is_nested(one.type) else None for one in self.schema}

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows, with these columns."""
        yield from self._read(names)

    def check_columns(self, index: OpenIndex) -> None:
        cast_to(index, of_source(self.schema, self.deletes))

    def _cast(self, index: OpenIndex | None, spec: IndexSpec) -> SourceCast:
        columns = of_source(self.schema, self.deletes)
        return first_cast(columns, spec) if index is None else cast_to(index, columns)

    def as_source(self, index: OpenIndex | None, spec: IndexSpec) -> pa.Schema:
        return self._cast(index, spec).columns

    def reported(self, index: OpenIndex) -> pa.Schema:
        return cast_to(index, self.schema).columns

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        rows = total = 0
        with stages.stage("compare with the known batch"):
            for batch in self.batches(self.schema.names):
                rows, total = rows + batch.num_rows, total + total_of(row_hashes(batch, partitions))
        return digest_of(rows, total)

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        work = _Work(self, staging, self._cast(staging.index, staging.spec), self._counters, self._memory)
        with stages.stage("check"):
            outcomes = work.outcomes()
        with stages.stage("write"):
            return work.write(outcomes)

    @property
    def index_bytes_read(self) -> int:
        return self._counters.index_bytes


def as_rows(batch: Any, memory: int = MEMORY_BYTES) -> LocalRows:
    """The rows of a table of Arrow, pandas or Polars, or of `read_batch_locally`. UsageError for another object."""
    if isinstance(batch, LocalRows):
        return batch
    batch = reader_of(batch, BATCH, "a table of Arrow, pandas or Polars, or what read_batch gives").read_all()
    plain = pa.schema([one.with_type(_plain(one.type)) for one in batch.schema])
    columns = [pc.run_end_decode(one) if pa.types.is_run_end_encoded(one.type) else one for one in batch.columns]
    table = pa.table([one.cast(field.type) for one, field in zip(columns, plain, strict=True)], schema=plain)
    return LocalRows(plain, lambda names: table.select(list(names)).to_batches(), memory)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary or of run-end encoding. Large strings and string views become strings;
    binary types and lists likewise, also within structs, lists and maps."""
    kind = value_type(kind) if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type))
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def read_batch_locally(
    path: Place,
    index: OpenIndex | Place | None,
    format: str = "auto",
    options: Options | None = None,
    memory: int = MEMORY_BYTES,
) -> LocalRows:
    """The rows of a file, or of the files of a folder, on any store, as `gnomon.read_batch` without Spark."""
    plan = plan_batch(path, index, format, options, _Reading())
    opened, schema = plan.opened(), plan.schema

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        columns = pa.schema([schema.field(name) for name in names])
        for file, one in zip(plan.files, opened, strict=True):
            for split in file.splits:
                yield from rows_of(plan.root.storage, plan.format, one, split, columns)

    return LocalRows(schema, read, memory)


class _Reading:
    """This process as the engine that reads a batch."""

    name, tasks = "Arrow", TASKS

    def __init__(self) -> None:
        self.engine: Engine = LocalEngine()

    def held(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_union(kind):
            raise NoType
        return kind

    def names_in(self, root: SourceRoot, files: Sequence[BatchFile]) -> set[str | None]:
        names = set[str | None]()
        for file in files:
            for split in file.splits:
                names |= members_of(root.storage, file.info, file.options, split)
        return names

    def errors(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass
class _Work:
    """The check and the writing of a batch."""

    rows: LocalRows
    staging: Staging
    cast: SourceCast
    counters: LookupCounters
    memory: int

    def __post_init__(self) -> None:
        spec = self.staging.spec
        self.within = columns_within(spec, self.staging.check.scope)
        check_within(self.rows.schema.names, self.within)
        self.compared = [*key_names(spec), *within_names(self.within)]
        self.order = [(name, "descending" if down else "ascending") for name, down in self.staging.check.order]
        self.partitions: dict[tuple[str | None, ...], int] = {}

    # -- the first reading ---------------------------------------------------------------------------------------------

    def outcomes(self) -> Outcomes:
        """The outcome of each row, in the order of the batch. Notes the partitions of the rows."""
        spec, staging, rows = self.staging.spec, self.staging, 0
        split = staging.layout.split
        needed = {key.column for key in spec.keys} | {*spec.partitions, *(name for name, _ in self.order)}
        names = [name for name in self.rows.schema.names if name in needed | {*(split.columns if split else ())}]
        with EntrySorter(len(self.compared), range(GROUPS), self.memory) as sorter:
            for batch in ahead(self.rows.batches(names)):
                source = self.cast(batch)
                keys = self._keys(source)
                self._note(parts_of(source, staging.layout))
                places = int64s(np.arange(rows, rows + batch.num_rows))
                order = [batch.column(name) for name, _ in self.order]
                named = [*self.compared, *(f"{ORDER}{i}" for i in range(len(order))), PLACE, GROUP]
                sorter.add(pa.Table.from_arrays([*keys, *order, places, self._groups(keys)], named))
                rows += batch.num_rows
            index = staging.index
            check = KeyCheck(spec, None if index is None else lambda: index, staging.check, self.counters, cores())
            outcomes = np.empty(rows, np.int8)
            small = (batch for _, tables in sorter.groups() for some in tables for batch in some.to_batches())
            # Closed before the sorter, also after an error: the other thread may write temporary files.
            with closing(ahead(self._whole_runs(gathered(small, CHUNK_ROWS, CHUNK_BYTES)))) as whole:
                for entries in whole:
                    some = self._ordered(entries)
                    keys = [some.column(name) for name in self.compared]
                    outcomes[some.column(PLACE).to_numpy()] = check.outcomes(keys)
        return outcomes

    def _keys(self, source: pa.RecordBatch) -> list[pa.Array]:
        """The keys of rows in the types of the index, and the partition columns within which they are compared.
        UsageError for a key that the index cannot hold."""
        spec = self.staging.spec
        arrays, _ = typed_keys(source, spec, BATCH, all_held=True)
        return [*arrays, *(self.cast.texts[name].typed(source.column(name)) for name in self.within)]

    def _groups(self, keys: Sequence[pa.Array]) -> pa.Array:
        """The group of each key. Groups come in the order of the index's buckets, so that keys that are looked up
        together lie in few index files, and each file is read about once."""
        spec = self.staging.spec
        hashed = xxhash64_columns([plain_column(one, key.type) for one, key in zip(keys, spec.keys, strict=False)])
        number = (hashed.view(np.uint64) % GROUPS).astype(np.int64)
        if self.staging.index is not None:
            stored = [one for one, key in zip(keys, spec.keys, strict=False) if not key.partition]
            number = (spec.bucketing.of_columns(stored) * GROUPS + number) // spec.buckets
        return int32s(number.astype(np.int32))

    def _whole_runs(self, sorted_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sorted entries. Where copies have an order, all copies of a key are in one batch: the first may be anywhere
        among them."""
        if not self.order:
            yield from sorted_
            return
        held: list[pa.RecordBatch] = []  # the last run so far
        for entries in sorted_:
            last = [held[-1].slice(held[-1].num_rows - 1)] if held else []
            begins = np.flatnonzero(~self._are_copies(joined([*last, entries]))) + 1 - len(last)
            begin = int(begins[-1]) if len(begins) else 0
            if len(begins):
                yield joined([*held, entries.slice(0, begin)])
                held = []
            held.append(entries.slice(begin))
        if held:
            yield joined(held)

    def _are_copies(self, entries: pa.RecordBatch) -> np.ndarray:
        """Whether each entry but the first has the key of the one before."""
        spec = self.staging.spec
        kinds = [key.type for key in spec.keys] + [spec.partition_type(name) for name in self.within]
        pairs = zip(self.compared, kinds, strict=True)
        return adjacent([comparable(entries.column(name), kind) for name, kind in pairs])[0]

    def _ordered(self, entries: pa.RecordBatch) -> pa.RecordBatch:
        """Entries that are sorted by key, with the copies of a key in the requested order; nulls last."""
        if not self.order or entries.num_rows < 2:
            return entries
        runs = np.concatenate([[0], np.cumsum(~self._are_copies(entries))])
        ranks = np.empty(entries.num_rows, np.int64)
        ranks[self._by_order(entries).to_numpy()] = np.arange(entries.num_rows)
        return entries.take(int64s(stable_order(runs, ranks)))

    def _by_order(self, entries: pa.RecordBatch) -> pa.Array:
        """The entries sorted by the requested order. NaN is the greatest number, as in Spark."""
        columns: list[tuple[pa.Array, str]] = []
        for i, (_, direction) in enumerate(self.order):
            column = entries.column(f"{ORDER}{i}")
            if pa.types.is_floating(column.type):
                columns.append((pc.is_nan(column), direction))
            columns.append((column, direction))
        table = pa.table({str(i): column for i, (column, _) in enumerate(columns)})
        return pc.sort_indices(table, sort_keys=[(str(i), direction) for i, (_, direction) in enumerate(columns)])

    def _note(self, parts: Sequence[pa.Array]) -> None:
        """Give a number to each partition of these rows that has none."""
        if parts:
            for one in numbered(parts)[1]:
                self.partitions.setdefault(one, len(self.partitions))

    # -- the second reading --------------------------------------------------------------------------------------------

    def write(self, outcomes: Outcomes) -> Staged:
        """Write the new rows, and the others for the report."""
        staging = self.staging
        layout = staging.layout
        writer = StagingWriter(layout, staging.folder, staging.rejected, staging.keys)
        if not part_columns(layout):
            for batch in ahead(self._checked(outcomes)):
                writer.add(batch)
        else:
            with EntrySorter(0, range(max(len(self.partitions), 1)), self.memory) as sorter:
                for batch in ahead(self._checked(outcomes)):
                    table = pa.Table.from_batches([batch])
                    sorter.add(table.append_column(GROUP, self._numbers(batch)))
                for _, tables in sorter.groups():
                    for batch in (batch for table in tables for batch in table.to_batches()):
                        writer.add(batch)
        name = staging.name + layout.style.ending
        return staged_of(storage_at(layout.root), staging.folder, name, writer.end())

    def _checked(self, outcomes: Outcomes) -> Iterator[pa.RecordBatch]:
        """The rows in the source's columns, with STATUS, DIGEST, NULLS and their partitions; for a report also with the
        keys."""
        begin = 0
        for batch in self.rows.batches(self.rows.schema.names):
            source = self.cast(batch)
            keys = self._keys(source)
            status = outcomes[begin : begin + batch.num_rows].astype(np.int64)
            if len(status) != batch.num_rows:
                raise UsageError("batch: a second reading gives more rows than the first; nothing was appended")
            begin += batch.num_rows
            is_null = [np.asarray(one.is_null()) for one in keys[: len(self.staging.spec.keys)]]
            added = {
                STATUS: pa.array(status),
                NULLS: pa.array(np.logical_or.reduce(is_null)),
                DIGEST: pa.array(row_hashes(batch, self.staging.spec.partitions)),
                **dict(zip(part_columns(self.staging.layout), parts_of(source, self.staging.layout), strict=True)),
            }
            if (deletes := self.rows.deletes) is not None:
                added[DELETES] = deletes(batch.column(deletes.column))
            if self.staging.rejected is not None or self.staging.keys is not None:
                added |= dict(zip(self.compared, keys, strict=True))
            yield pa.RecordBatch.from_arrays([*source.columns, *added.values()], [*source.schema.names, *added])
        if begin != len(outcomes):
            raise UsageError("batch: a second reading gives fewer rows than the first; nothing was appended")

    def _numbers(self, batch: pa.RecordBatch) -> pa.Array:
        """The number of each row's partition."""
        parts = [batch.column(name) for name in part_columns(self.staging.layout)]
        codes, distinct = numbered(parts)
        numbers = np.array([self.partitions[one] for one in distinct], np.int32)
        return pa.array(numbers[codes] if len(distinct) else np.empty(0, np.int32))


def parts_of(source: pa.RecordBatch, layout: Layout) -> list[pa.Array]:
    """The columns `part_columns` of rows: the partitions, as text, and the `split`."""
    parts = [source.column(name) for name in layout.partitions]
    if layout.split is not None:
        parts.append(layout.split.value_of([source.column(name) for name in layout.split.columns]))
    return parts

"""The rows of many keys, in this process.

The keys are taken in portions. Each portion is looked up in the index; its pointers are sorted by file and place, and
the rows are read in that order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.keys import stable_order
from gnomon.jobs.load.batches import gathered
from gnomon.jobs.load.columns import check_sample, check_unreadable, in_type, payload_columns, reader_of, source_columns
from gnomon.jobs.load.row_reader import (
    ERROR,
    FILE,
    OFFSET,
    SIZE,
    SUB_OFFSET,
    LoadCounters,
    OutputColumns,
    RowReader,
)
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.storage import Place, patiently
from gnomon.shadow.values import as_returned, key_names, narrowing, sample_types, stored_keys, typed_keys
from gnomon.shadow.write import cores
from gnomon.sources.types import int64s

PORTION_ROWS, PORTION_BYTES = 4_000_000, 256 << 20  # of keys that are looked up together
RUN_ROWS = 1_000_000  # pointers into a file that a reader gets together
KEYS = "keys"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LoadRequest:
    """The arguments of `load`."""

    columns: Sequence[str] | None = None
    how: str = "inner"
    null_safe: bool = False
    unreadable: str = "fail"


@patiently()
def load(
    spark: None,
    index: Place,
    keys: pa.Table | pa.RecordBatchReader,
    columns: Sequence[str] | None = None,
    how: str = "inner",
    counters: LoadCounters | None = None,
    null_safe: bool = False,
    unreadable: str = "fail",
) -> pa.RecordBatchReader:
    """The rows of the source whose key is in `keys`, as `gnomon.load` without a session of Spark: a reader of Arrow
    batches, in which columns have the types of the source's files.

    The keys of a portion are held in memory, with their pointers; rows are yielded in batches of about 16 MB."""
    if spark is not None:
        raise UsageError("a session of Spark was given, and pyspark is not installed; pass None")
    request = LoadRequest(columns, how, null_safe, unreadable)
    given = reader_of(keys, KEYS)
    return load_locally(OpenIndex.of(index), given.schema, given, request, counters or LoadCounters())


def load_locally(
    index: OpenIndex, schema: pa.Schema, keys: Iterator[pa.RecordBatch], request: LoadRequest, counters: LoadCounters
) -> pa.RecordBatchReader:
    """The rows of the source for batches of keys with the columns of `schema`: these columns, then the requested ones
    of the source. Arguments and errors as in `load`."""
    check_sample(schema.names, request.how)
    sample = sample_types(schema, index.spec, KEYS)
    payload = payload_columns(index, schema.names, request.columns)
    check_unreadable(request.unreadable, [*schema.names, *payload])
    report = request.unreadable == "report"
    read = source_columns(index, payload)
    error = [pa.field(ERROR, pa.string())] if report else []
    answer = pa.schema([*(field.with_nullable(True) for field in [*sample, *read]), *error])

    def as_read(array: pa.Array, name: str, rows: pa.Array, path: str) -> pa.Array:
        kind = read.field(name).type
        return in_type(array, kind, str(kind), name, rows, path)

    names = zip(index.spec.keys, key_names(index.spec), strict=True)
    of_key = {key.name: name for key, name in names if not key.partition}
    output = OutputColumns(tuple(sample.names), tuple(payload), of_key, answer, report, as_read)
    reader = RowReader(index.files, output, counters)

    def rows() -> Iterator[pa.RecordBatch]:
        small = (one.slice(begin, PORTION_ROWS) for one in keys for begin in range(0, one.num_rows, PORTION_ROWS))
        for portion in gathered(small, PORTION_ROWS, PORTION_BYTES):
            yield from _rows(index, portion, sample, request, reader, counters)

    return pa.RecordBatchReader.from_batches(answer, rows())


def _rows(
    index: OpenIndex,
    keys: pa.RecordBatch,
    sample: pa.Schema,
    request: LoadRequest,
    reader: RowReader,
    counters: LoadCounters,
) -> Iterator[pa.RecordBatch]:
    """The rows of a portion."""
    typed, held = typed_keys(keys, index.spec, KEYS)
    given = as_returned(keys, typed, sample, index.spec)
    named = pa.RecordBatch.from_arrays(typed, key_names(index.spec))
    found = _look_up(index, named, np.flatnonzero(held), request.null_safe, counters)
    is_matched = np.zeros(keys.num_rows, bool)
    is_matched[found.rows] = True
    counters.keys += keys.num_rows
    counters.matched += int(np.count_nonzero(is_matched))
    counters.tasks += 1 if len(found.rows) else 0
    beside = pa.RecordBatch.from_arrays([*given.columns, *typed], [*given.schema.names, *named.schema.names])
    for run in found.runs(beside):
        yield from reader.rows(run)
    if request.how == "left":
        alone = np.flatnonzero(~is_matched)
        if len(alone):
            yield from reader.rows(_without_pointers(beside.take(int64s(alone))))


class _Found:
    """Pointers of keys. `rows` has the row in the portion of each pointer, `file` the index of its file in `files`."""

    def __init__(
        self, files: Sequence[str], rows: Ints, file: Ints, offset: Ints, sub_offset: Ints, size: Ints
    ) -> None:
        self.rows, self._files, self._file, self._columns = rows, files, file, (offset, sub_offset, size)

    def runs(self, given: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the portion that have pointers, each with its pointer, file by file and sorted by place:
        at most RUN_ROWS rows at a time, or a little more, since the pointers to one row stay together."""
        by_file = stable_order(self._file)
        ends = np.cumsum(np.bincount(self._file, minlength=len(self._files))).tolist()
        for name, first, last in zip(self._files, [0, *ends], ends, strict=False):
            of_file = by_file[first:last]  # a sort of the pointers of each file is faster than one of all
            of_file = of_file[stable_order(*(column[of_file] for column in self._columns[:2]))]
            offset, sub_offset, _ = numbers = [column[of_file] for column in self._columns]
            cuts = np.flatnonzero((np.diff(offset) != 0) | (np.diff(sub_offset) != 0)) + 1  # between two rows
            begin = 0
            while begin < len(of_file):
                after = int(np.searchsorted(cuts, begin + RUN_ROWS))
                end = int(cuts[after]) if after < len(cuts) else len(of_file)
                some = given.take(int64s(self.rows[of_file[begin:end]]))
                file = pa.repeat(pa.scalar(name), end - begin)
                yield _with_pointers(some, [file, *(int64s(column[begin:end]) for column in numbers)])
                begin = end


def _look_up(index: OpenIndex, typed: pa.RecordBatch, asked: Ints, null_safe: bool, counters: LoadCounters) -> _Found:
    """The pointers of the keys at these rows of a portion."""
    some = typed.take(int64s(asked))
    keys, narrow = stored_keys(some, index.spec), narrowing(some, index.spec)
    stats = MatchStats()
    numbers: dict[str, int] = {}
    parts: list[list[Ints]] = [[np.empty(0, np.int64)] * 5]
    for rows, entries in index.match_pieces(keys, narrow, stats, null_safe, cores()):
        file, *others = entries.columns[-4:]
        names = file.dictionary_encode()
        known = np.array([numbers.setdefault(name, len(numbers)) for name in names.dictionary.to_pylist()], np.int64)
        of_file = known[names.indices.to_numpy()] if len(known) else np.empty(0, np.int64)
        parts.append([asked[rows.to_numpy()], of_file, *(one.cast(pa.int64()).to_numpy() for one in others)])
    counters.add(stats)
    return _Found(list(numbers), *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _without_pointers(given: pa.RecordBatch) -> pa.RecordBatch:
    rows = given.num_rows
    return _with_pointers(given, [pa.nulls(rows, pa.string()), *(pa.nulls(rows, pa.int64()) for _ in range(3))])


def _with_pointers(given: pa.RecordBatch, pointers: Sequence[pa.Array]) -> pa.RecordBatch:
    names = [*given.schema.names, FILE, OFFSET, SUB_OFFSET, SIZE]
    return pa.RecordBatch.from_arrays([*given.columns, *pointers], names)

"""Rows in a key-value folder: B-Tree files of keys with their values, without a source.

The rules are here: columns, folders, buckets, the commit. An engine counts the rows of each partition, sorts them and
writes the index files: Spark's tasks (`gnomon.indexer.build`), or this process."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.hashing import plain_column, spark_hash_columns
from gnomon.btree.key_types import is_key_type, key_type, source_type
from gnomon.btree.keys import key_array, stored_values, type_of_arrow
from gnomon.jobs.build.specs import RESERVED
from gnomon.jobs.load import reader_of
from gnomon.shadow.commit import Changes, new_segment_id, publish, publish_full
from gnomon.shadow.errors import UnknownColumn, UsageError
from gnomon.shadow.maintenance import check_no_other_files
from gnomon.shadow.metadata import (
    ENTRIES_PER_BUCKET,
    MOST_BUCKETS,
    VALUES,
    IndexFileEntry,
    IndexSpec,
    KeyColumn,
    NoSource,
    Snapshot,
    SourceFileEntry,
    check_buckets,
    check_columns,
    check_names,
    check_same,
    create_first_spec,
    newest_snapshot,
    put_back,
)
from gnomon.shadow.storage import Place, Storage, patiently, probe, storage_at
from gnomon.shadow.tables import NULL_VALUE, as_partition_value, numbered, typed_folders, value_text
from gnomon.shadow.verify import sampled
from gnomon.shadow.write import GROUP, MEMORY_BYTES, EntrySorter, index_rows

ERROR, APPEND = "error", "append"
MODES = (ERROR, "overwrite", APPEND)
BYTES_PER_BUCKET = 128 * 1024 * 1024  # of entries: a task holds its file in memory
BYTES_PER_NUMBER = 8
MOST_PARTITIONS = 10_000
FOLDER_TYPES = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")  # their text is the value
NESTED = ("array", "fixed_size_list", "large_list", "list", "map", "struct", "variant")  # names of types begin so
BATCH_ROWS = 65_536  # whose keys are hashed together
HASH, PARTITION = " ", "  "  # names that no column of an index file has: a row's hash, the number of its partition

Columns = Sequence[tuple[str, str]]  # the name of each column, and its type by Spark's name
Texts = tuple[str | None, ...]


@dataclass(frozen=True)
class WriteResult:
    """The result of a write: rows, index files and their bytes; `total_rows` are all rows of the folder now."""

    snapshot: int
    rows: int
    total_rows: int
    index_files: int
    index_bytes: int
    buckets: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


class Measured(NamedTuple):
    """A partition of the rows: the texts of its columns, the number of its rows, the bytes of their texts and binaries,
    without the partition columns."""

    texts: Texts
    rows: int
    bytes: int


class Partition(NamedTuple):
    """The rows of a partition: its folder and the texts of its columns, the number of rows, the approximate bytes of
    their entries."""

    folder: str
    texts: Texts
    rows: int
    size: int


class HeldRows(Protocol):
    """The rows of a write, which may be read several times."""

    def measured(self, most: int) -> list[Measured]:
        """The partitions that have rows, with texts from which `as_partition_value` reads their values. Where there are
        more than `most`, at least one more than `most` of them."""
        ...

    def write(
        self, storage: Storage, spec: IndexSpec, segment: str, found: Sequence[Partition]
    ) -> list[IndexFileEntry]:
        """Write the index files of all partitions, and read them back. Rows of one key are sorted by their values."""
        ...


class ValueRows(Protocol):
    """The rows for a key-value folder, in an engine."""

    @property
    def columns(self) -> Columns:
        """The columns in order. A type that no index file has may have any name that is none of Spark's."""
        ...

    def held(self, spec: IndexSpec) -> AbstractContextManager[HeldRows]:
        """The rows, evaluated once until the end of the context, in which errors of Gnomon reach the caller. `spec` has
        any number of buckets."""
        ...


def write_btree(
    rows: pa.Table | pa.RecordBatchReader,
    path: Place,
    keys: Sequence[str],
    buckets: int | None = None,
    mode: str = ERROR,
    partitions: Sequence[str] = (),
) -> WriteResult:
    """Write the rows to the folder `path` in this process, as `write_rows`: those of an Arrow table, of a reader of
    batches, which is read once, or of a frame of pandas or Polars."""
    return write_rows(LocalValues(rows), path, keys, buckets, mode, partitions)


@patiently()
def write_rows(
    rows: ValueRows,
    path: Place,
    keys: Sequence[str],
    buckets: int | None = None,
    mode: str = ERROR,
    partitions: Sequence[str] = (),
) -> WriteResult:
    """Write rows to a key-value folder. Arguments and errors as in `gnomon.write_btree`."""
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    if buckets is not None:
        check_buckets(buckets)
    given = rows.columns
    spec = _spec(given, keys, partitions)
    storage = storage_at(path)
    newest = newest_snapshot(storage)
    before = newest if newest is not None and mode == APPEND else None
    _check_there(storage, newest, spec, buckets, mode)
    probe(storage)
    if before is not None:
        put_back(storage, before.spec)
    with rows.held(spec) as held:
        found = _partitions(spec, held.measured(MOST_PARTITIONS))
        spec = _with_buckets(spec, found, before, buckets)
        segment = new_segment_id()
        written = held.write(storage, spec, segment, found) if found else []
    for _ in sampled(storage, spec, written):
        pass
    listed = [SourceFileEntry(f"{one.folder}/{segment}".lstrip("/"), one.folder, one.rows, 0, 0, "") for one in found]
    columns = {name: str(key_type(kind).arrow) for name, kind in given}
    count = sum(one.rows for one in found)
    changes = Changes("write", written, listed, {}, columns, counts={"rows_written": count})
    if before is not None:
        snapshot = publish(storage, spec, before, changes, segment)
    else:
        if newest is None:
            create_first_spec(storage, spec)
        snapshot = publish_full(storage, spec, newest.number if newest else 0, changes, segment)
    return WriteResult(
        snapshot=snapshot.number,
        rows=count,
        total_rows=snapshot.rows,
        index_files=len(written),
        index_bytes=sum(file.size for file in written),
        buckets=spec.buckets,
        seconds=round(time.perf_counter() - begin, 3),
    )


# -- the rules ---------------------------------------------------------------------------------------------------------


def _spec(given: Columns, keys: Sequence[str], partitions: Sequence[str]) -> IndexSpec:
    """The spec for columns, with one bucket. UsageError with the column where they have no spec."""
    kinds = dict(given)
    check_names("keys", keys)
    check_names("partitions", partitions)
    if not [*keys]:
        raise UsageError(f"keys: expected a list of column names, found {keys!r}")
    if len(kinds) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in kinds if names.count(name) > 1)
        raise UsageError(f"column {twice}: there are several of this name; rename one")
    missing = [name for name in (*keys, *partitions) if name not in kinds]
    if missing:
        raise UnknownColumn(f"there is no column {', '.join(missing)}; there are {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not is_key_type(kind):
            raise UsageError(f"column {name} of type {kind} cannot be stored; {_cure(kind)}")
        if name.startswith(RESERVED):
            raise UsageError(f"column {name}: Spark or Gnomon uses this name; rename the column")
    for name in partitions:
        if kinds[name] not in FOLDER_TYPES and not kinds[name].startswith("decimal"):
            known = ", ".join(FOLDER_TYPES)
            raise UsageError(f"partitions: expected columns of type {known} or decimal, found {name} {kinds[name]}")
        if list(partitions).count(name) > 1:
            raise UsageError(f"partitions: {name} is named twice")
    columns = {name: KeyColumn(name, kind, partition=name in partitions) for name, kind in kinds.items()}
    values = tuple(column for name, column in columns.items() if name not in (*keys, *partitions))
    types = {name: kinds[name] for name in partitions}
    spec = IndexSpec(NoSource(), VALUES, tuple(partitions), tuple(columns[name] for name in keys), values, 1)
    spec = replace(spec, partition_types=types)
    check_columns(spec)
    return spec


def _cure(kind: str) -> str:
    if kind.startswith(NESTED):
        return "write it as text, with to_json"
    return "cast it to the type that it has without a collation" if " collate " in kind else "cast it to another type"


def _check_there(storage: Storage, newest: Snapshot | None, spec: IndexSpec, buckets: int | None, mode: str) -> None:
    """Raise UsageError where the folder's content does not allow the mode."""
    if newest is None:  # only files of a first write that was killed may be there
        check_no_other_files(storage)
        return
    if not newest.spec.holds_values:
        raise UsageError("the index of a source lies there; write to another folder", storage.root)
    if mode == ERROR:
        raise UsageError(
            f"{newest.rows} rows were written there before; say mode='overwrite' to replace them, or "
            "mode='append' to add to them",
            storage.root,
        )
    if mode == APPEND:
        number, of_folders = buckets or newest.spec.buckets, newest.spec.folder_buckets
        check_same(newest.spec, replace(spec, buckets=number, folder_buckets=of_folders), storage.root)


def _partitions(spec: IndexSpec, measured: Sequence[Measured]) -> list[Partition]:
    """The partitions with their folders, in the order of these. UsageError for a text that no folder has, and where
    there are too many."""
    if len(measured) > MOST_PARTITIONS:
        raise UsageError(f"partitions: expected at most {MOST_PARTITIONS:,} of them, found more; name other columns")
    numbers = [column for column in spec.entry_schema.columns if not is_measured(column.type)]
    per_row = BYTES_PER_NUMBER * len(numbers)
    return sorted(Partition(_folder(spec, texts), texts, rows, size + rows * per_row) for texts, rows, size in measured)


def is_measured(kind: str) -> bool:
    """Whether the values of a type have different lengths, which `HeldRows.measured` sums up."""
    return kind in ("string", "binary")


def _folder(spec: IndexSpec, texts: Texts) -> str:
    if NULL_VALUE in texts:
        raise UsageError(f"partitions: the text {NULL_VALUE} is the name of the folder of nulls; write another one")
    if any("\0" in text for text in texts if text is not None):
        raise UsageError("partitions: a text has the character U+0000, which no folder name has; write another one")
    values = zip(spec.partitions, texts, strict=True)
    stored = {name: as_partition_value(text, spec.partition_type(name), name) for name, text in values}
    return typed_folders(stored, spec.partition_types)


def _with_buckets(
    spec: IndexSpec, found: Sequence[Partition], before: Snapshot | None, buckets: int | None
) -> IndexSpec:
    """The spec with the number of buckets of each folder. A folder that is there keeps its number."""
    wanted = {one.folder: _buckets(one.rows, one.size) for one in found}
    largest = max(wanted.values(), default=1)
    if not spec.partitions:
        return replace(spec, buckets=before.spec.buckets if before is not None else buckets or largest)
    fewest = min(1 << (largest - 1).bit_length(), MOST_BUCKETS)
    number = before.spec.buckets if before is not None else buckets or fewest
    divisors = [one for one in range(1, number + 1) if number % one == 0]
    fitting = {folder: next((one for one in divisors if one >= most), number) for folder, most in wanted.items()}
    there = {*before.partitions, *before.spec.folder_buckets} if before is not None else ()
    kept = {folder: before.spec.buckets_in(folder) for folder in there} if before is not None else {}
    return replace(spec, buckets=number, folder_buckets=fitting | kept)


def _buckets(rows: int, size: int) -> int:
    return min(max(-(-rows // ENTRIES_PER_BUCKET), -(-size // BYTES_PER_BUCKET), 1), MOST_BUCKETS)


# -- this process ------------------------------------------------------------------------------------------------------


class LocalValues:
    """Rows for this process: `rows` as in `write_btree`. They are read once. About `memory` bytes are kept in memory,
    further rows in temporary files. UsageError where `rows` is another object."""

    def __init__(self, rows: object, memory: int = MEMORY_BYTES) -> None:
        self._rows = reader_of(rows, "rows", "an Arrow table, or a reader of batches")
        self._memory = memory

    @property
    def columns(self) -> Columns:
        return [(field.name, _type_name(field.type)) for field in self._rows.schema]

    @contextmanager
    def held(self, spec: IndexSpec) -> Iterator[HeldRows]:
        with EntrySorter(0, range(1), self._memory) as kept:
            yield _LocalRows(self._rows, spec, kept, self._memory)


def _type_name(arrow: pa.DataType) -> str:
    """The key type of a column; for types that Spark does not have, the name of the Arrow type."""
    found = type_of_arrow(arrow) if source_type(arrow) is None else None
    return str(arrow) if found is None else found


class _LocalRows:
    """Rows in the types of the index files, kept in `kept`, each with its hash and the number of its partition."""

    def __init__(self, rows: pa.RecordBatchReader, spec: IndexSpec, kept: EntrySorter, memory: int) -> None:
        self._rows, self._spec, self._kept, self._memory = rows, spec, kept, memory
        self._numbers: dict[Texts, int] = {}

    def measured(self, most: int) -> list[Measured]:
        rows, size = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for whole in self._rows:
            for begin in range(0, whole.num_rows if len(rows) <= most else 0, BATCH_ROWS):
                numbers, lengths = self._keep(whole.slice(begin, BATCH_ROWS))
                more = np.zeros(len(self._numbers) - len(rows), np.int64)
                rows, size = np.concatenate([rows, more]), np.concatenate([size, more])
                np.add.at(rows, numbers, 1)
                np.add.at(size, numbers, lengths)
        return [Measured(*one) for one in zip(self._numbers, rows.tolist(), size.tolist(), strict=True)]

    def _keep(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Keep some rows. Returns the number of each row's partition, and the bytes of its texts and binaries."""
        spec = self._spec
        columns = (*spec.stored_keys, *spec.include)
        arrays = [key_array(batch.column(one.name), one.type, one.name) for one in columns]
        hashes = spark_hash_columns([plain_column(*one) for one in zip(arrays, spec.key_types, strict=False)])
        numbers, lengths = np.zeros(batch.num_rows, np.int32), np.zeros(batch.num_rows, np.int64)
        if spec.partitions:
            types = [(name, spec.partition_type(name)) for name in spec.partitions]
            codes, distinct = numbered([_texts(batch.column(name), kind, name) for name, kind in types])
            numbers = np.array([self._number(one) for one in distinct], np.int32)[codes]
        else:
            self._number(())
        for array, one in zip(arrays, columns, strict=True):
            if is_measured(one.type):
                lengths += pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        names = [column.name for column in spec.entry_schema.columns]
        added = {HASH: pa.array(hashes), PARTITION: pa.array(numbers), GROUP: pa.array(np.zeros_like(numbers))}
        self._kept.add(pa.table([*arrays, *added.values()], [*names, *added]))
        return numbers, lengths

    def _number(self, texts: Texts) -> int:
        return self._numbers.setdefault(texts, len(self._numbers))

    def write(
        self, storage: Storage, spec: IndexSpec, segment: str, found: Sequence[Partition]
    ) -> list[IndexFileEntry]:
        places, buckets = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
        for place, one in enumerate(found):
            number = self._numbers[one.texts]
            places[number], buckets[number] = place, spec.buckets_in(one.folder)

        def placed() -> Iterator[pa.Table]:
            for _, tables in self._kept.groups():
                for table in tables:
                    numbers, hashes = (table.column(name).to_numpy() for name in (PARTITION, HASH))
                    groups = places[numbers] * spec.buckets + hashes.astype(np.int64) % buckets[numbers]
                    entries = table.drop_columns([PARTITION, HASH])
                    yield entries.append_column(GROUP, pa.array(groups.astype(np.int32)))

        return index_rows(storage, spec, segment, [one.folder for one in found], placed(), self._memory)


def _texts(array: pa.Array, kind: str, column: str) -> pa.Array:
    """The values of a partition column as the texts in the names of their folders."""
    encoded = key_array(array, kind, column).dictionary_encode()
    texts = [value_text(value, kind) for value in stored_values(encoded.dictionary, kind)]
    return pa.array(texts, pa.string()).take(encoded.indices)

"""`spark.read.format("gnomon")`: an index as a table for Spark queries.

A query reads one snapshot: the newest one when the table was named, or the requested one. Filters on the key become
look-ups, filters on partition columns leave partitions out (`pushdown`). The rest is scanned, some index files per
task.
"""

import json
import os
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from gnomon.base.errors import GnomonError
from gnomon.btree.keys import Key, order_key, stored_array
from gnomon.indexer.datasource.entry_table import EntryTable, entry_table, with_payload
from gnomon.indexer.datasource.pushdown import select
from gnomon.indexer.spark import (
    HAS_SOURCES,
    AtSnapshot,
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    check_sources,
    handing_over,
    hands_errors_over,
    keep_scans_apart,
    made_active,
    map_batches,
    open_in_worker,
    task_errors,
)
from gnomon.shadow import OpenIndex, UsageError, open_index
from gnomon.shadow.lookup import (
    KEY,
    MOST_KEYS,
    POINTER,
    EntryColumn,
    Matches,
    MatchStats,
    Selection,
    buckets_of_keys,
    chosen,
    matched_entries,
)
from gnomon.shadow.metadata import SegmentFile, check_names
from gnomon.shadow.storage import Place, as_location
from gnomon.sources import POINTER_COLUMNS

NAME = "gnomon"
OPTIONS = ("path", "snapshot", "columns", "payload", "pruning")
VIEW = f"CREATE TEMPORARY VIEW name USING {NAME} OPTIONS (path '/path/of/index')"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
REGISTERED = "spark.gnomon.registered"
TASK_BYTES = 16 * 1024 * 1024  # of index files that one task scans; a larger file has its own task
TASK_KEYS = 512  # that one task looks up
BATCH_ROWS = 65_536
NO_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # environment variable that a Spark worker checks when it reports an error


def register(spark: SparkSession) -> None:
    """Make `gnomon` a format of this session, for `spark.read.format("gnomon").load(index)` and `USING gnomon`.
    UsageError in Spark 3.5, which has no such sources."""
    check_sources()
    prunes = keep_scans_apart(spark, NAME)
    with made_active(spark):
        spark.dataSource.register(PruningSource if prunes else IndexSource)
    if prunes:
        spark.conf.set(PUSHDOWN, "true")
    spark.conf.set(REGISTERED, "true")


def read_index(
    spark: SparkSession,
    index: Place,
    snapshot: int | None = None,
    columns: Sequence[str] | None = None,
    payload: Sequence[str] | bool = False,
) -> DataFrame:
    """An index as a DataFrame: `spark.read.format("gnomon").load(index)` with these options. Spark 3.5, which has no
    such sources, scans all of the index, and applies conditions to its rows. Errors: as in `open_index`, and UsageError
    for an unknown column."""
    check_names("columns", columns)
    check_names("payload", None if isinstance(payload, bool) else payload)
    if not HAS_SOURCES:
        return _scan(spark, _opened(as_location(index), snapshot), columns, payload)
    if spark.conf.get(REGISTERED, None) is None:
        register(spark)
    reader = spark.read.format(NAME)
    if snapshot is not None:
        reader = reader.option("snapshot", str(snapshot))
    if columns is not None:
        reader = reader.option("columns", json.dumps(list(columns)))
    if payload:
        reader = reader.option("payload", "true" if payload is True else json.dumps(list(payload)))
    with task_errors():
        return reader.load(as_location(index))


def _opened(location: str, snapshot: int | None) -> OpenIndex:
    opened = OpenIndex.of(open_index(location, snapshot))
    opened.spec.entries.check_source("a key-value folder has no pointers; read its rows by get", opened.location)
    return opened


def _scan(
    spark: SparkSession, opened: OpenIndex, columns: Sequence[str] | None, payload: Sequence[str] | bool
) -> DataFrame:
    """The rows of an index, read by the tasks of an `IndexReader`, without Spark's API for Python sources."""
    table = entry_table(opened, columns, payload)
    reader = IndexReader(AtSnapshot.of(opened), table)
    tasks = reader.partitions()

    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from reader.read(tasks[number])

    return map_batches(spark.range(0, len(tasks), 1, max(len(tasks), 1)), scanned, table.schema)


class IndexSource(DataSource):
    """An index at one snapshot. Spark applies all filters."""

    prunes = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with _hidden_traceback():
            self._open(options)

    def _open(self, options: MutableMapping[str, str]) -> None:
        unknown = [name for name in options if name.lower() not in OPTIONS]
        if "provider" in unknown:  # Spark passes this option for tables of the catalog
            raise UsageError(f"Spark's catalog does not tell a Python source the path of a table; say {VIEW}")
        if unknown:
            raise UsageError(f"option {unknown[0]}: not known; {NAME} has {', '.join(OPTIONS)}")
        if not options.get("path"):
            raise UsageError(f"no path; say format('{NAME}').load('/path/of/index'), or {VIEW}")
        opened = _opened(options["path"], _snapshot(options.get("snapshot")))
        self.at = AtSnapshot.of(opened)
        self.columns = None if "columns" not in options else _names(options["columns"])
        payload = options.get("payload", "false")
        self.payload = _flag("payload", payload) if payload.lower() in ("true", "false") else _names(payload)
        self.pruning = _flag("pruning", options.get("pruning", "true")) and self.prunes

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with _hidden_traceback():
            raise UsageError(f"format {NAME} only reads; gnomon build makes an index, write_btree a key-value folder")

    def schema(self) -> StructType:
        return self._table().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        table = self._table()
        with _hidden_traceback():
            if _shape(schema) != _shape(table.schema):
                raise UsageError(
                    f"declared with the columns {_shape(schema)}; the index has "
                    f"{_shape(table.schema)}; leave the schema out",
                    self.at.location,
                )
        kind = PruningReader if self.pruning else IndexReader
        return kind(self.at, table)

    def _table(self) -> EntryTable:
        with _hidden_traceback():
            return entry_table(open_in_worker(self.at), self.columns, self.payload)


class PruningSource(IndexSource):
    """An `IndexSource` whose filters prune, for sessions in which each scan reads by its own filters."""

    prunes = True


@dataclass(frozen=True)
class Lookups(InputPartition):
    """A task that looks keys up."""

    keys: tuple[Key, ...]


@dataclass(frozen=True)
class IndexFiles(InputPartition):
    """A task that scans index files, each given by segment, folder and bucket."""

    places: tuple[tuple[str, str, int], ...]


class IndexReader(DataSourceReader):
    """Plans one scan in the driver, and reads its tasks in the workers. `stats` counts the reads of this object."""

    def __init__(self, at: AtSnapshot, table: EntryTable) -> None:
        self.at, self.table = at, table
        self.selection = Selection()
        self.stats = MatchStats()

    @hands_errors_over
    def partitions(self) -> Sequence[InputPartition]:
        index = open_in_worker(self.at)
        folders = set(chosen(index.view.partition_values, self.selection))
        if self.selection.keys is not None:
            return _lookups(index, self.selection.keys) if folders else []
        ranges = self.selection.ranges
        buckets = {
            folder: {bucket for one in ranges for bucket in index.spec.bucketing_in(folder).between(one.low, one.high)}
            for folder in ({""} if index.spec.flat else folders)
            if ranges is not None
        }
        tasks: list[InputPartition] = []
        places: list[tuple[str, str, int]] = []
        size = 0
        for segment in index.view.segments:
            for (folder, bucket), file in sorted(segment.by_bucket.items()):
                if not index.spec.flat and folder not in folders:
                    continue
                if ranges is not None and bucket not in buckets[folder]:
                    continue
                if places and size + file.size > TASK_BYTES:
                    tasks.append(IndexFiles(tuple(places)))
                    places, size = [], 0
                places.append((segment.id, folder, bucket))
                size += file.size
        return [*tasks, IndexFiles(tuple(places))] if places else tasks

    @hands_errors_over
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        index = open_in_worker(self.at)
        columns = self._needed()
        if isinstance(partition, Lookups):
            batches = self._found(index, partition.keys, columns)
        elif isinstance(partition, IndexFiles):
            batches = self._scanned(index, partition, columns)
        else:  # Spark's own partition, for a scan without tasks
            return
        for batch in batches:
            for begin in range(0, batch.num_rows, BATCH_ROWS):
                rows = batch.slice(begin, BATCH_ROWS)
                yield from with_payload(index, rows, self.table) if self.table.payload else [self._plain(rows)]

    def _needed(self) -> list[EntryColumn]:
        """The columns to read: the requested ones, and the pointer if rows of the source are read."""
        table = self.table
        asked = {table.known[name] for name in table.columns}
        parts = (KEY, POINTER) if table.payload else ()
        return [column for column in table.known.values() if column in asked or column.part in parts]

    def _found(self, index: OpenIndex, keys: Sequence[Key], columns: Sequence[EntryColumn]) -> Iterator[pa.RecordBatch]:
        spec, values = index.spec, index.view.partition_values
        folders = set(chosen(values, self.selection))
        # Each combination of values once: two folders may write the same values differently.
        named = dict.fromkeys(tuple(values[folder].values()) for folder in sorted(folders))
        narrow = self.selection.where and len(keys) * len(named) <= MOST_KEYS
        places = list(named) if narrow else [()]
        wanted = [key for key in keys for _ in places]
        columns_of_keys = [stored_array([key[i] for key in wanted], kind) for i, kind in enumerate(spec.key_types)]
        asked = pa.RecordBatch.from_arrays(columns_of_keys, names=[key.name for key in spec.stored_keys])
        within = {
            name: stored_array([place[i] for _ in keys for place in places], spec.partition_type(name))
            for i, name in enumerate(spec.partitions if narrow else ())
        }
        for matches in index.match_pieces(asked, within, self.stats, null_safe=True):
            yield matched_entries(spec, asked, _of_folders(index, matches, folders), columns)

    def _scanned(
        self, index: OpenIndex, partition: IndexFiles, columns: Sequence[EntryColumn]
    ) -> Iterator[pa.RecordBatch]:
        segments = {segment.id: segment for segment in index.view.segments}
        folders = set(chosen(index.view.partition_values, self.selection))
        for segment_id, folder, bucket in partition.places:
            segment = segments[segment_id]
            place = SegmentFile(segment, segment.by_bucket[folder, bucket])
            yield from index.scan(place, columns, folders, self.stats, self.selection.ranges)

    def _plain(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = [self.table.known[name].name for name in self.table.columns]
        arrays = [rows.column(name).cast(field.type) for name, field in zip(names, self.table.arrow, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.table.arrow)


class PruningReader(IndexReader):
    """A reader that takes filters."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        self.selection, left = select(filters, self.table.known)
        return left


@contextmanager
def _hidden_traceback() -> Iterator[None]:
    """Hide Python's traceback in an error of Gnomon. The worker process that plans for Spark ends with this error, so
    the setting affects no other error."""
    try:
        with handing_over():
            yield
    except GnomonError:
        os.environ[NO_TRACEBACK] = "1"
        raise


def _of_folders(index: OpenIndex, matches: Matches, folders: Collection[str]) -> Matches:
    """The matches in some partitions."""
    files = matches.entries.column(-len(POINTER_COLUMNS)).dictionary_encode()
    covered = index.view.covered
    kept = pa.array([covered[path].partition in folders for path in files.dictionary.to_pylist()], pa.bool_())
    mask = kept.take(files.indices)
    return Matches(matches.rows.filter(mask), matches.entries.filter(mask))


def _lookups(index: OpenIndex, keys: Sequence[Key]) -> list[InputPartition]:
    """The look-up tasks, with all keys of a bucket in one task."""
    buckets = dict(zip(keys, buckets_of_keys(keys, index.spec), strict=True))
    ordered = sorted(keys, key=lambda key: (buckets[key], order_key(key)))
    return [Lookups(tuple(ordered[i : i + TASK_KEYS])) for i in range(0, len(ordered), TASK_KEYS)]


def _shape(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def _snapshot(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not text.isascii():
        raise UsageError(f"option snapshot: expected a number, found {text!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"option {name}: expected true or false, found {text!r}")
    return text.lower() == "true"


def _names(text: str) -> list[str]:
    """Column names from a text, separated by commas or as a JSON list."""
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f'columns: expected names between commas, or a JSON list like ["a", "b"]; found {text}')
    return names

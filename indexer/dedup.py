"""Dedup: rows whose key was never loaded, and the load that appends them to the source and indexes them.

Which copy of a key wins within a batch is not ordered. Nulls equal nulls. Before the check the index is brought up to
date, so that whatever an earlier run appended before it died counts as loaded; a second load at the same time is not
guarded against.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import field as dataclass_field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, StringType

from btree.mapping import is_count
from indexer.build import build
from indexer.keys import (
    column,
    drop_keys,
    in_chunks,
    key_names,
    map_batches,
    narrowing,
    stored_keys,
    to_buckets,
    with_keys,
)
from indexer.progress import Progress, Stages
from indexer.stage import publish_staged, stage
from indexer.tables import source_types, writes_micros
from indexer.tasks import AtSnapshot, open_in_worker
from shadow import Index, UsageError, open_index
from shadow.errors import SnapshotNotFound
from shadow.match import MatchStats
from shadow.partitions import base_of
from shadow.snapshots import read_snapshot, snapshot_numbers
from shadow.spec import IndexSpec
from shadow.storage import is_local, storage_at

PLAIN_NUMBER = re.compile(r"-?[1-9]\d*|0")
SCOPES = ("table", "partition")


@dataclass(frozen=True)
class DedupResult:
    """What a dedup load did; rows, unless a name says otherwise."""

    batch_id: str
    known_batch: bool
    rows_read: int
    duplicates_in_batch: int
    already_loaded: int
    appended: int
    files: int
    snapshot: int
    seconds: float
    stage_seconds: dict[str, float] = dataclass_field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def filter_new(spark: SparkSession, index: str, batch: DataFrame, scope: str = "table") -> DataFrame:
    """The rows of `batch` whose key no covered row of the source has, one row for each key.

    With scope="partition" a key counts as loaded only where its own partition has it. Lazy."""
    if scope not in SCOPES:
        raise UsageError(f"scope: expected one of {', '.join(SCOPES)}, found {scope!r}")
    opened = open_index(index)
    within = opened.spec.partitions if scope == "partition" else ()
    missing = [name for name in within if name not in batch.columns]
    if missing:
        raise UsageError(f"batch: scope partition needs the column {', '.join(missing)}")
    rows = to_buckets(with_keys(batch, opened.spec, "batch", every_key_counts=True), opened.spec)
    # One shuffle serves both: rows with one key are in one task, and a task holds keys of one bucket.
    unknown = _unknown(AtSnapshot.of(opened), tuple(within))
    distinct = rows.dropDuplicates([*key_names(opened.spec), *within])
    return map_batches(distinct.sortWithinPartitions(*key_names(opened.spec)), unknown, batch.schema)


def _unknown(at: AtSnapshot, within: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def unknown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = open_in_worker(at)
        for batch in in_chunks(batches):
            narrow = {name: _folders(values) for name, values in narrowing(batch, index.spec, within).items()}
            held = index.holds(stored_keys(batch, index.spec), narrow, MatchStats())
            yield drop_keys(batch.filter(pc.invert(held)))

    return unknown


def _folders(values: pa.Array) -> pa.Array:
    """Partition values as folders hold them: empty text is Hive's null."""
    return pc.if_else(pc.equal(values, ""), None, values) if pa.types.is_string(values.type) else values


def append_new(
    spark: SparkSession,
    index: str,
    batch: DataFrame,
    batch_id: str,
    scope: str = "table",
    progress: Progress | None = None,
) -> DedupResult:
    """Append the rows of `batch` whose key was never loaded to the source, and index them.

    `batch_id` names the batch: once it is committed, running it again does nothing. UsageError when the batch's
    columns are not the source's, before anything is written. `progress` is told what is being done."""
    stages = Stages(progress)
    begin = time.perf_counter()
    known = _snapshot_of(index, batch_id)
    if known is not None:
        return DedupResult(batch_id, True, 0, 0, 0, 0, 0, known, round(time.perf_counter() - begin, 3))
    opened = open_index(index)
    spec = opened.spec
    _check_appendable(index, opened)

    def bring_up_to_date(batch_id: str | None = None) -> int:
        keys, include = [key.name for key in spec.keys], [column.name for column in spec.include]
        built = build(spark, spec.source, index, keys, include, spec.format, batch=batch_id, progress=progress)
        return built.snapshot

    with stages.stage("bring up to date"):
        bring_up_to_date()
    opened = open_index(index)
    rows = _in_source_schema(spark, batch, opened).persist()
    try:
        with stages.tasks(spark, "count"):
            read = rows.count()
            distinct = rows.select(*[column(name) for name in _identity(spec, scope)]).distinct().count()
        with stages.tasks(spark, "write new rows"):
            new = filter_new(spark, index, rows, scope)
            staged = stage(new, spec.source, spec.partitions, batch_id, writes_micros(opened, opened.view.columns))
        with stages.stage("append"):
            files, appended = publish_staged(storage_at(spec.source), staged)
    finally:
        rows.unpersist()
    with stages.stage("index"):
        snapshot = bring_up_to_date(batch_id)
    return DedupResult(
        batch_id=batch_id,
        known_batch=False,
        rows_read=read,
        duplicates_in_batch=read - distinct,
        already_loaded=distinct - appended,
        appended=appended,
        files=files,
        snapshot=snapshot,
        seconds=round(time.perf_counter() - begin, 3),
        stage_seconds=stages.seconds,
    )


def _check_appendable(index: str, opened: Index) -> None:
    """UsageError for a source that rows cannot be appended to."""
    spec = opened.spec
    if spec.holds_values:
        raise UsageError(f"{index}: a folder of values, which has no source to append to; expected an index")
    if spec.table:
        raise UsageError(
            f"{spec.source_name}: rows are appended to folders, not to a table of the catalog; insert them "
            "with Spark (filter_new tells which are new), then build"
        )
    if spec.single_file:
        raise UsageError(f"{spec.source}: a source of one file cannot be appended to; dedup needs a folder")
    if spec.format != "parquet":
        raise UsageError(f"{spec.source}: this version appends Parquet files only, the source is {spec.format}")
    if base := next(filter(None, map(base_of, opened.view.covered)), ""):
        raise UsageError(f"{spec.source}: its partition folders lie in {base}; index that folder to append to it")
    if not is_local(spec.source):
        raise UsageError(f"{spec.source}: this version appends to local disks only; name a source there")
    for one in (*spec.stored_keys, *spec.include):
        if is_count(one.source_type):
            raise UsageError(f"{spec.source}: column {one.name} is {one.source_type}, which Spark does not write")


def _identity(spec: IndexSpec, scope: str) -> list[str]:
    """The columns that make two rows the same one: the key, and in scope partition the partition, too."""
    within = spec.partitions if scope == "partition" else ()
    return list(dict.fromkeys([*(key.name for key in spec.keys), *within]))


def _in_source_schema(spark: SparkSession, batch: DataFrame, index: Index) -> DataFrame:
    """The batch with the source's columns in their order. UsageError, with the differences, where they do not fit."""
    wanted = source_types(spark, index, index.view.columns)
    found = {field.name: field.dataType for field in batch.schema}
    problems = [f"{name} is not a column of the source" for name in found if name not in wanted.names]
    for field in wanted:
        name = field.name
        if name not in found:
            problems.append(f"{name} is missing")
        elif name not in index.spec.partitions and found[name] != field.dataType:
            problems.append(f"{name} is {found[name].simpleString()}, expected {field.dataType.simpleString()}")
    if problems:
        raise UsageError(f"batch: its columns are not the source's: {'; '.join(problems)}; nothing was written")
    values = {name: _folder_value(name, found[name], index) for name in index.spec.partitions}
    return batch.select(*[values[name].alias(name) if name in values else column(name) for name in wanted.names])


def _folder_value(name: str, kind: DataType, index: Index) -> Column:
    """A partition column as the text of its folder; empty text is Hive's null. UsageError for a number where folders
    are not plain numbers (01): which of them is meant cannot be told."""
    existing = [index.view.partition_values[partition].get(name) for partition in index.view.partitions]
    if isinstance(kind, IntegralType):
        odd = [str(value) for value in existing if value is not None and not PLAIN_NUMBER.fullmatch(str(value))]
        if odd:
            raise UsageError(f"batch: {name} is {kind.simpleString()}, the source has folders like {name}={odd[0]}")
    elif not isinstance(kind, (StringType, DateType)):
        raise UsageError(f"batch: the partition column {name} is {kind.simpleString()}; expected text")
    text = column(name).cast("string")
    return F.when(text == "", F.lit(None)).otherwise(text)


def _snapshot_of(index: str, batch_id: str) -> int | None:
    """The snapshot that holds a batch; None where there is none."""
    storage = storage_at(index)
    for number in reversed(snapshot_numbers(storage)):
        with suppress(SnapshotNotFound):  # vacuumed just now
            if read_snapshot(storage, number).batch == batch_id:
                return number
    return None

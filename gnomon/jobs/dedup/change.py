"""Changes of a lake table by key: rows deleted, and rows of a batch in place of those with their key.

A change is an append (`gnomon.jobs.dedup.append`) whose commit also deletes rows. Its record names files with its keys.
Whoever commits it looks these keys up at the table's newest version, and again in each attempt, so that rows that came
meanwhile are found, too. One commit of the table adds the new rows and deletes the old ones."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from gnomon.btree.hashing import plain_column, xxhash64_columns
from gnomon.btree.keys import stored_array
from gnomon.jobs.build import Engine, LocalEngine
from gnomon.jobs.dedup.append import AppendRequest, Run
from gnomon.jobs.dedup.check import REFUSE, ChangeOptions, DeleteMarker
from gnomon.jobs.dedup.local_rows import LocalRows, as_rows
from gnomon.jobs.dedup.rejected import SideFilesAt
from gnomon.jobs.dedup.row_digest import digest_of, row_count
from gnomon.jobs.dedup.row_search import KEY_BYTES, KEY_ROWS, NothingFound, equality_deleted, rows_of_keys
from gnomon.jobs.dedup.staging import CHANGE_COUNTS, FILES, WRITTEN, BatchRows, Staged, Staging
from gnomon.jobs.dedup.target import Target, check_writable
from gnomon.jobs.load import KeyFile, gathered
from gnomon.jobs.stages import Progress, Stages, job_span
from gnomon.shadow import OpenIndex, UsageError, open_index
from gnomon.shadow.commit import find_batch, plan_commit
from gnomon.shadow.lookup import parse_key
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Place, patiently
from gnomon.shadow.tables import Change, LakeSource, check_deletes, clear_attempts, commit_change
from gnomon.shadow.values import check_key_columns, given_keys, key_batch, key_names, typed_keys

KEYS = "keys"

Keys: TypeAlias = Sequence[object] | pa.Table | pa.RecordBatchReader | KeyFile


@dataclass(frozen=True)
class ChangeResult:
    """The result of a change. `rows_read` is the sum of `duplicates_in_batch`, `rejected` (a null in the key), `absent`
    (its key has no row, and the change inserts none), `deleting` (rows of the batch that only delete; the keys of
    `delete`), and `written`. Of the written rows, `updated` took the place of rows with their key. `rows_deleted` rows
    of `files_changed` data files are gone; `bytes_written` is the size of the new files beside the `files_added` data
    files. `deleted_keys` of the keys to delete had rows. `way` says how rows are deleted. Where another program
    made the commit, its numbers are None, and `way` is empty. For a known batch, and in a dry run, nothing was
    written."""

    batch_id: str
    snapshot: int
    table_version: str
    seconds: float
    known_batch: bool = False
    dry_run: bool = False
    rows_read: int = 0
    duplicates_in_batch: int = 0
    rejected: int = 0
    absent: int = 0
    deleting: int = 0
    written: int = 0
    updated: int | None = None
    deleted_keys: int | None = None
    rows_deleted: int | None = None
    files_changed: int | None = None
    files_added: int = 0
    bytes_written: int | None = None
    way: str = ""
    stage_seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@patiently()
def delete(
    spark: object,
    index: Place,
    keys: Any,
    batch_id: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ChangeResult:
    """Delete every live row of some keys in the table of an index, by one commit of the table.

    `keys` are keys as `Index.fetch_many` takes them, or a DataFrame of `spark`. With a
    `batch_id` a second call of the same delete does nothing. Without one, nothing is committed where no key has a row.
    With `dry_run` nothing is written; the result counts the rows, the data files that hold them, and the bytes of these
    files. The work is done in this process.

    UsageError, before anything is written, for a source that is no lake table, for a table whose rows Gnomon does not
    delete, and for a null in a key. ConcurrentCommit where others keep committing first: then nothing was changed."""
    if spark is not None and hasattr(keys, "selectExpr"):  # a DataFrame of Spark
        names = {key.name: key for key in OpenIndex.of(index).spec.keys}
        columns = [(name, (name,) if name in keys.columns else key.place) for name, key in names.items()]
        keys = keys.selectExpr(*[f"{_quoted(place)} AS {_quoted((name,))}" for name, place in columns]).toArrow()
    target = Target(index, None)
    request = AppendRequest(
        batch_id if batch_id is not None else f"delete {secrets.token_hex(16)}",
        null_keys=REFUSE,
        change=ChangeOptions(adds=False, replaces_all=True, named=batch_id is not None),
    )
    opened = target.opened
    if opened is None:
        raise UsageError("no index there", target.location)
    rows = KeyRows(keys, opened.spec)
    if dry_run:
        return _dry_run(target, rows, request)
    try:
        return change_rows(rows, target, request, progress)
    except NothingFound:  # a row that came since then is not deleted
        result = _dry_run(target, rows, request)
        return replace(result, dry_run=False, deleted_keys=0, rows_deleted=0, files_changed=0, bytes_written=0)


@patiently()
def upsert(
    spark: None,
    index: Place,
    batch: LocalRows | pa.Table,
    batch_id: str,
    progress: Progress | None = None,
    **options: Any,
) -> ChangeResult:
    """Put the rows of a batch in the place of those with their key, and add the others, as `upsert_rows`, which has the
    options. `spark` is None."""
    if spark is not None:
        raise UsageError("a session of Spark was given, and pyspark is not installed; pass None")
    return upsert_rows(as_rows(batch), index, batch_id, progress, **options)


def upsert_rows(
    rows: BatchRows,
    index: Place | Target,
    batch_id: str,
    progress: Progress | None = None,
    *,
    order_by: Sequence[str] = (),
    null_keys: str = REFUSE,
    update_only: bool = False,
    replace_all: bool = False,
    delete_where: str | None = None,
    delete_where_null: str | None = None,
) -> ChangeResult:
    """Put the rows of a batch in the place of those with their key, and add the others, by one commit of the table of
    an index. Each key has one live row afterwards.

    Of several rows with one key the last by `order_by` counts, of equal ones the first; without an order they are
    refused. `null_keys`: a null in a key is refused ("refuse"), such rows are left out ("reject"), or null equals null
    ("dedup"). With `update_only` rows with new keys are left out. A key that has several rows in the table is refused,
    unless `replace_all`. `delete_where` is a column of the batch alone that marks rows which only delete those with
    their key: true, or d or delete; `delete_where_null` a column of the source that is null in them.

    Once the batch is committed, a second call does nothing; if the first call died, the second finishes it. UsageError,
    before anything is written, where a known batch has other rows than before, where the batch's columns are not the
    source's, for a source that is no lake table, and for a table that Gnomon does not change. ConcurrentCommit where
    others keep committing first: then nothing was changed."""
    target = index if isinstance(index, Target) else Target(index, None)
    if delete_where is not None and delete_where_null is not None:
        raise UsageError("expected one of delete_where and delete_where_null")
    if target.opened is not None and delete_where in target.opened.view.columns:
        raise UsageError(f"delete_where: {delete_where} is a column of the table, expected one of the batch alone")
    if delete_where is not None:
        rows.deletes = DeleteMarker(delete_where)
    if delete_where_null is not None:
        rows.deletes = DeleteMarker(delete_where_null, where_null=True)
    change = ChangeOptions(inserts=not update_only, replaces_all=replace_all)
    request = AppendRequest(batch_id, order_by=order_by, null_keys=null_keys, change=change)
    return change_rows(rows, target, request, progress)


def change_rows(
    rows: BatchRows, target: Target, request: AppendRequest, progress: Progress | None = None
) -> ChangeResult:
    """Make a change."""
    begin, stages = time.perf_counter(), Stages(progress)
    run = Run(target, rows, request, stages, progress)
    with rows.engine.running(f"gnomon upsert {target.location}"), job_span("change", target.location) as span:
        known, is_known = run.append()
        append = known.append
        change = None if is_known else target.changes.get(append.append_id)
        span.tell(snapshot=known.snapshot, rows_deleted=0 if change is None else change.rows)
    search = None if change is None else target.searches.get(append.append_id)
    counts = {name: 0 if is_known else int(append.counts[name]) for name in (*CHANGE_COUNTS, FILES)}
    return ChangeResult(
        batch_id=append.batch,
        snapshot=known.snapshot,
        table_version=_version(target.opened),
        seconds=round(time.perf_counter() - begin, 3),
        known_batch=is_known,
        rows_read=counts["rows_read"],
        duplicates_in_batch=counts["duplicates_in_batch"],
        rejected=counts["rejected"],
        absent=counts["absent"],
        deleting=counts["deleting"],
        written=counts["appended"],
        updated=None if search is None else search.updated,
        deleted_keys=None if search is None else search.deleted,
        files_added=counts[FILES],
        **_numbers(change),
        stage_seconds=stages.seconds,
    )


def _quoted(path: Sequence[str]) -> str:
    """A column, or a field of a struct, in Spark's SQL."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def _numbers(change: Change | None) -> dict[str, Any]:
    """The numbers of a commit for a result."""
    if change is None:
        return {}
    numbers = {"rows_deleted": change.rows, "files_changed": change.files, "bytes_written": change.bytes}
    return {**numbers, "way": change.way}


def _version(opened: OpenIndex | None) -> str:
    version = opened.view.snapshot.table if opened is not None else None
    return version.version if version is not None else ""


def key_table(texts: Sequence[str], spec: IndexSpec) -> pa.Table | None:
    """Keys of one column as text, one for each row, without an object for each; None for a key of several columns."""
    if len(spec.keys) > 1:
        return None
    return pa.table({spec.keys[0].name: pa.array(texts, pa.string())})


@patiently()
def convert_equality_deletes(index: Place, dry_run: bool = False) -> ChangeResult:
    """Replace the equality deletes of the Iceberg table of an index by position deletes or deletion vectors, in one
    commit that changes no row. The index knows which rows they delete. In the result `rows_read` counts the values of
    the equality deletes, and `rows_deleted` the rows that only they deleted. UsageError for another source, and for a
    table whose rows Gnomon does not delete."""
    begin, target = time.perf_counter(), Target(index, None)
    opened = target.opened
    if opened is None or not opened.spec.source.name.startswith("iceberg:"):
        what = "only Iceberg tables have equality deletes"
        raise UsageError(what, target.location if opened is None else opened.spec.source.name)
    name, snapshot = opened.spec.source.name, opened.view.snapshot.number
    way = check_deletes(name)
    found, values = equality_deleted(target.location)
    planned = plan_commit(target.storage, 1, name, found.version.uuid, aside="convert")
    change = Change(sum(map(len, found.rows.values())), len(found.rows), 0, way)
    if found.dropped and not dry_run:
        change = commit_change(planned, [], lambda: equality_deleted(target.location)[0]) or Change(0, 0, 0)
        clear_attempts(planned)
        snapshot = target.build(LocalEngine(), target.source(), None).snapshot
        found = found._replace(version=LakeSource(name).content.version)
    seconds = round(time.perf_counter() - begin, 3)
    return ChangeResult(
        "", snapshot, found.version.version, seconds, False, dry_run, values, deleting=values, **_numbers(change)
    )


def _dry_run(target: Target, rows: "KeyRows", request: AppendRequest) -> ChangeResult:
    begin = time.perf_counter()
    check_writable(target, request.change)
    opened = OpenIndex.of(open_index(target.location, newest=True))
    known = find_batch(target.storage, request.batch_id)
    found: dict[str, BitMap64] = {}
    keys = hit = 0
    for batch in rows.typed() if known is None else ():
        hits = rows_of_keys(opened, batch, found)
        keys, hit = keys + batch.num_rows, hit + int(np.count_nonzero(hits))
    name, size = opened.spec.source.name, sum(opened.view.covered[path].size for path in found)
    return ChangeResult(
        request.batch_id,
        known.snapshot if known is not None else opened.view.snapshot.number,
        _version(opened),
        round(time.perf_counter() - begin, 3),
        known_batch=known is not None,
        dry_run=True,
        rows_read=keys,
        deleting=keys,
        deleted_keys=hit,
        **_numbers(Change(sum(map(len, found.values())), len(found), size, check_deletes(name))),
    )


class KeyRows:
    """Keys to delete, as the rows of a batch that adds none."""

    deletes: DeleteMarker | None = None

    def __init__(self, keys: Keys, spec: IndexSpec) -> None:
        self.engine: Engine = LocalEngine()
        self._keys, self._spec = keys if isinstance(keys, KeyFile) else given_keys(keys), spec

    @property
    def columns(self) -> Mapping[str, str | None]:
        return {}

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([])

    def typed(self) -> Iterator[pa.RecordBatch]:
        """The keys in the types of the index, with the columns `key_names`, without those that no row can have."""
        yield from gathered(map(self._checked, self._batches()), KEY_ROWS, KEY_BYTES)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names, keys = key_names(self._spec), self._keys
        if isinstance(keys, KeyFile | pa.Array):
            for batch in keys.batches() if isinstance(keys, KeyFile) else [key_batch(keys, self._spec)]:
                check_key_columns(batch.schema, self._spec)
                arrays, held = typed_keys(batch, self._spec, KEYS)
                yield pa.RecordBatch.from_arrays(arrays, names).filter(pa.array(held))
            return
        parsed = [parse_key(key, self._spec) for key in keys]
        values = [{**dict(zip(self._stored, one.stored, strict=True)), **dict(one.where)} for one in parsed]
        columns = [stored_array([one[key.name] for one in values], key.type) for key in self._spec.keys]
        yield pa.RecordBatch.from_arrays(columns, names)

    @property
    def _stored(self) -> list[str]:
        return [key.name for key in self._spec.stored_keys]

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """UsageError for a null: by accident it would delete every row without a key."""
        for key, array in zip(self._spec.keys, batch.columns, strict=True):
            if array.null_count:
                raise UsageError(f"{KEYS}: {array.null_count} nulls in {key.name}; leave these keys out")
        return batch

    def check_columns(self, index: OpenIndex) -> None:
        """Keys have no other columns."""

    def as_source(self, index: OpenIndex | None, spec: IndexSpec) -> pa.Schema:
        return self.schema

    def reported(self, index: OpenIndex) -> pa.Schema:
        return self.schema

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        rows = total = 0
        for batch in self.typed():
            columns = zip(batch.columns, self._spec.keys, strict=True)
            hashes = xxhash64_columns([plain_column(array, key.type) for array, key in columns])
            rows, total = rows + batch.num_rows, total + int(np.add.reduce(hashes))
        return digest_of(rows, total)

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        with stages.stage("write"):
            files = SideFilesAt(staging.layout.root, staging.folder).open()
            for batch in self.typed():
                files.add(batch.append_column(WRITTEN, pa.array(np.zeros(batch.num_rows, bool))))
            files.close()
            content = self.digest((), stages)
        keys = row_count(content)
        counts = {**dict.fromkeys((*CHANGE_COUNTS, FILES), 0), "rows_read": keys, "deleting": keys}
        return Staged(staging.folder, (), (), counts, {}, content, (), tuple(files.files))

    @property
    def index_bytes_read(self) -> int:
        return 0

"""Append the rows of a batch whose key the source does not have, and index them: each key once, through crashes and
races.

An append first finishes the appends of programs that committed (`gnomon.shadow.commit.append_log`) and died. It brings
the index up to date, so that it has the key of every row of the source. Then it looks its rows up, stages the new ones,
and commits. If another append commits first, it removes its staged files and starts again."""

import hashlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.jobs.build import Vanished
from gnomon.jobs.dedup.check import (
    ALL_PRESENT,
    ChangeOptions,
    CheckOptions,
    check_arguments,
    columns_within,
    order_of,
)
from gnomon.jobs.dedup.layout import Layout, check_appendable, first_layout, keys_layout, layout_of, layout_of_lake
from gnomon.jobs.dedup.local_rows import LocalRows, as_rows, read_batch_locally
from gnomon.jobs.dedup.rejected import SideFilesAt, rejected_folder, report_target, write_report
from gnomon.jobs.dedup.row_digest import row_count
from gnomon.jobs.dedup.row_search import NothingFound, RowsMoved, SeveralRows
from gnomon.jobs.dedup.staging import COUNTS, FILES, BatchRows, Staged, StageRunAgain, Staging
from gnomon.jobs.dedup.target import ORIGIN, Origin, Target, bring_up_to_date, finish_appends
from gnomon.jobs.stages import Progress, Stages, job_span
from gnomon.shadow import Index, OpenIndex, UsageError
from gnomon.shadow.commit import (
    Append,
    AppendLog,
    Batch,
    commit_append,
    find_batch,
    open_log,
    plan_commit,
    staging_folder,
    wait,
)
from gnomon.shadow.errors import ConcurrentCommit, SourceError, StalePointer, StorageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Place, Storage, as_location, patiently, probe, storage_at
from gnomon.shadow.tables import NewFile, PlannedChange, TableCommit, append_target, check_commit
from gnomon.sources import Options

PART = re.compile(r"part-(\d+)-of-(\d+)-(?:[A-Za-z0-9-]*-)?([0-9a-f]{16})-([0-9a-f]{16})-keep\.")
KEEP = "keep"
# Members of an append's counts: the counts of each partition, and the files of rejected rows for a report.
PARTITIONS, REPORTED = "partitions", "rejected_files"
ATTEMPTS = 10  # of an append when others commit first


@dataclass(frozen=True)
class DedupResult:
    """The result of an append, in rows unless a name says otherwise. `rows_read` is the sum of `duplicates_in_batch`,
    `already_loaded`, `rejected` (a null in the key) and `appended`. `null_keys` counts all rows with a null in the
    key. `partitions` has the same numbers for each partition of the batch. `reported` is the number of rows in the
    report; None without a report: for a known batch, or where another run began the append without one.
    `index_bytes_read` counts index files and Bloom filters."""

    batch_id: str
    known_batch: bool
    rows_read: int
    duplicates_in_batch: int
    already_loaded: int
    null_keys: int
    rejected: int
    appended: int
    files: int
    partitions: dict[str, dict[str, int]]
    snapshot: int
    seconds: float
    reported: int | None = None
    index_bytes_read: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class AppendRequest:
    """The arguments of an append. `batch_id` names the batch. `scope`, `order_by`, `null_keys`: as in `filter_new`.
    `report` is the path of a new Parquet file on a local disk for the rows that are not appended, each with the reason
    and the pointer to the row that was there first. `origin` says how to build an index that does not exist yet. With
    `full` every file is indexed again first. `accept_vanished` drops files first that are gone from the source.
    `change`: the batch also replaces or deletes rows (`gnomon.jobs.dedup.change`). UsageError for an unknown scope or
    treatment of null keys."""

    batch_id: str
    scope: str = "table"
    order_by: Sequence[str] = ()
    null_keys: str = "dedup"
    report: Place | None = None
    origin: Origin | None = None
    full: bool = False
    accept_vanished: bool = False
    change: ChangeOptions | None = None

    def __post_init__(self) -> None:
        check_arguments(self.scope, self.order_by, self.null_keys, self.change is not None)

    @property
    def vanished(self) -> Vanished:
        return Vanished.DROP_ALL if self.accept_vanished else Vanished.REFUSE


@patiently()
def append_rows(
    rows: BatchRows, index: Place | Target, request: AppendRequest, progress: Progress | None = None
) -> DedupResult:
    """Append the rows of a batch whose key the source does not have, and index them.

    Once the batch is appended, a second call does nothing; if the first call died, the second finishes it. UsageError
    where a known batch has other rows than before. If there is no index, the request's origin says how to build it
    first; if the source has no files, this append makes it. SpecMismatch if the index has another source or key. A full
    build mends a damaged index. `progress` is called with each stage.

    FilesVanished, before anything is written, where files that the index covers are gone from the source: their rows
    would be appended a second time. UsageError when the batch's columns are not the source's, before anything is
    written, when the source is a folder of a lake table, which would not see the new files, or a lake table to which
    Gnomon does not append. ConcurrentCommit where other appends keep committing first, or where a lake table changed so
    that the new files do not fit: then nothing was appended."""
    begin, stages = time.perf_counter(), Stages(progress)
    target = index if isinstance(index, Target) else Target(index, request.origin)
    report = None if request.report is None else report_target(as_location(request.report), list(rows.columns))
    run = Run(target, rows, request, stages, progress)
    with rows.engine.running(f"gnomon dedup {target.location}"), job_span("dedup", target.location) as span:
        if request.full:
            with stages.stage("full build"):
                target.ready(rows.engine, True, progress, request.vanished)
        known, is_known = run.append()
        reported = run.report(report, known.append) if report is not None and not is_known else None
        counts = {name: 0 if is_known else known.append.counts[name] for name in (*COUNTS, FILES)}
        span.tell(snapshot=known.snapshot, **counts)
    return DedupResult(
        batch_id=known.append.batch,
        known_batch=is_known,
        partitions={} if is_known else known.append.counts[PARTITIONS],
        snapshot=known.snapshot,
        seconds=round(time.perf_counter() - begin, 3),
        reported=reported,
        index_bytes_read=rows.index_bytes_read,
        stage_seconds=stages.seconds,
        **counts,
    )


@dataclass
class Run:
    """A run of `append_rows`. `number` and `token` belong to its latest attempt."""

    target: Target
    rows: BatchRows
    request: AppendRequest
    stages: Stages
    progress: Progress | None
    number: int = 0
    token: str = ""

    def __post_init__(self) -> None:
        request = self.request
        order = order_of(self.rows.columns, request.order_by)
        if request.change is not None:  # the last copy wins, the first of those that are equal
            order = [(name, not down) for name, down in order]
        self.check = CheckOptions(request.scope, order, request.null_keys, request.change)

    @property
    def index(self) -> str:
        return self.target.location

    @property
    def storage(self) -> Storage:
        return self.target.storage

    def append(self) -> tuple[Batch, bool]:
        """The record of the batch, and whether the batch was known before."""
        batch_id, rows = self.request.batch_id, self.rows
        known, is_ours, is_known = find_batch(self.storage, batch_id), False, True
        for attempt in range(ATTEMPTS if known is None else 0):
            opened = self.target.opened
            if opened is not None:
                if self.request.change is None:
                    check_appendable(self.index, opened.spec)
                if not opened.spec.is_of_lake:  # a newer version may have other columns
                    with suppress(SourceError):  # a file changed since it was indexed: `_layout` checks again
                        rows.check_columns(opened)  # before the indexing, which may take hours
            wait(attempt)
            with self.stages.stage("bring up to date"):
                change, vanished = self.request.change, self.request.vanished
                log = bring_up_to_date(rows.engine, self.target, self.progress, vanished, change)
            known = find_batch(self.storage, batch_id)
            if known is not None:  # begun by a run that died, or by a concurrent run
                is_known = batch_id not in [append.batch for append in log.open]
                break
            if self._attempt(log):
                with self.stages.stage("append and index"):
                    finish_appends(rows.engine, self.target, self.progress)
                known, is_ours, is_known = find_batch(self.storage, batch_id), True, False
                break
        if known is None:
            what = "it was deleted while an append ran" if is_ours else f"{ATTEMPTS} other appends came first"
            raise ConcurrentCommit(what, self.index, action=Action.RUN_AGAIN)
        if not is_ours:
            self._check_content(known)
        return known, is_known

    def _check_content(self, known: Batch) -> None:
        opened = self.target.opened
        found = self.rows.digest(opened.spec.partitions if opened is not None else (), self.stages)
        content = known.append.content
        if found != content:
            raise UsageError(
                f"batch {self.request.batch_id!r} was appended by snapshot {known.snapshot} with other rows: "
                f"expected {row_count(content):,} of digest {content}, found {found}; give this "
                "one another name; nothing of it was appended",
                self.index,
            )

    def _attempt(self, log: AppendLog) -> bool:
        """Stage the rows that are new at the index's newest snapshot, and commit them as the next append. Returns False
        where another append has that number."""
        rows, check = self.rows, self.check
        self.number, self.token = log.last + 1, secrets.token_hex(8)
        opened = self.target.opened
        if opened is None:
            spec = self.target.required_origin().first_spec(rows.schema)
        else:
            spec = opened.spec
            if self.request.change is None:
                check_appendable(self.index, spec)
            check = replace(check, null_keys=_null_keys(opened, self.request.batch_id, check.null_keys))
        layout, planned = self._layout(opened, spec)
        source = storage_at(spec.source.location)
        folder = staging_folder(self.storage.root, self.number, self.token)
        rejected = SideFilesAt(self.storage.root, self._rejected_folder) if self.request.report is not None else None
        probe(self.storage)
        try:
            staging = Staging(opened, spec, check, layout, folder, self._file_name, rejected)
            staged = rows.stage(staging, self.stages)
            if opened is None and not staged.files:
                raise UsageError(
                    "it has no files, and the batch has no row to append; its index is made by the "
                    "first append that has one; nothing was written",
                    spec.source.location,
                )
            if planned is not None:  # a commit that can never succeed would block all later appends
                pairs = zip(staged.files, staged.file_partitions, strict=True)
                if staged.files:
                    check_commit(planned, [NewFile(file.staged, file.size, file.rows, part) for file, part in pairs])
                planned = self._with_change(planned, staged, source.root)
        except Exception as error:
            self._throw_away(source, folder)
            # The append that took the number removes the staged files of the others.
            if isinstance(error, StageRunAgain | RowsMoved) or open_log(self.storage).last >= self.number:
                return False
            raise
        with self.stages.stage("commit append"):
            origin = self.target.origin
            first = asdict(origin) if opened is None and origin is not None else None
            is_committed = commit_append(self.storage, self._record(log, staged, first, planned))
        if not is_committed:
            self._throw_away(source, folder)
        return is_committed

    def _with_change(self, planned: TableCommit, staged: Staged, root: str) -> TableCommit:
        """The planned commit with the rows that it deletes, which this looks up. UsageError where the change would be
        refused at the table's version."""
        options = self.request.change
        if options is None:
            return planned
        change = PlannedChange(staged.key_files, options.inserts, options.replaces_all)
        search, source = self.target.search(root, self.token, change), self.target.source()
        try:
            with self.stages.stage("look up"):
                found = search.newest(partial(self.target.build, self.rows.engine, source, self.progress))
        except SeveralRows as error:
            raise UsageError(f"{error.what}; nothing was changed", error.path) from None
        if not (found.rows or staged.files or options.named):
            raise NothingFound("the keys have no row; nothing was changed", planned.name)
        return replace(planned, change=change)

    def _layout(self, opened: OpenIndex | None, spec: IndexSpec) -> tuple[Layout, TableCommit | None]:
        """The layout of the new files, and the commit of a lake table that will add them. UsageError where the batch
        has other columns than the source."""
        rows = self.rows
        if opened is None:
            return first_layout(spec, rows.as_source(None, spec)), None
        if spec.is_of_lake:
            if (change := self.request.change) is not None and not change.adds:
                version = opened.view.snapshot.table
                uuid = version.uuid if version is not None else ""
                return keys_layout(spec), plan_commit(self.storage, self.number, spec.source.name, uuid)
            rows.check_columns(opened)
            target = append_target(spec.source.name, spec.partition_types)
            return layout_of_lake(spec, target), plan_commit(self.storage, self.number, spec.source.name, target.uuid)
        table = rows.engine.folders_table(spec.source.name, spec.source.location) if spec.is_of_table else None
        return layout_of(opened, table, rows.as_source(opened, spec)), None

    def _throw_away(self, source: Storage, folder: str) -> None:
        """Remove the staged files. The next append removes the rest, if any."""
        with suppress(StorageError):
            source.delete_folder(folder)
            self.storage.delete_folder(self._rejected_folder)

    @property
    def _rejected_folder(self) -> str:
        return rejected_folder(self.number, self.token)

    @property
    def _file_name(self) -> str:
        """The prefix of the append's file names: the batch, which marks them as its own, this attempt, and a mark if
        they hold all its null keys."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", self.request.batch_id)[:40].strip("-")
        keep = [KEEP] if self.check.null_keys == KEEP else []
        return "-".join(filter(None, [words, batch_word(self.request.batch_id), self.token, *keep]))

    def _record(
        self, log: AppendLog, staged: Staged, first: Mapping[str, Any] | None, planned: TableCommit | None
    ) -> Append:
        reported = list(staged.rejected) if self.request.report is not None else None
        return Append(
            number=self.number,
            append_id=self.token,
            parent=log.parent,
            batch=self.request.batch_id,
            content=staged.content,
            folder=staged.folder,
            files=staged.files,
            counts={**staged.counts, PARTITIONS: staged.partitions, REPORTED: reported, ORIGIN: first},
            table=replace(planned, partitions=staged.file_partitions) if planned is not None else None,
        )

    def report(self, target: Path, append: Append) -> int | None:
        """Write the report of the rows that were not appended; their keys are in the index by now. Returns their
        number; None if the run that began the append made no report."""
        if append.counts[REPORTED] is None:
            return None
        opened = self.target.opened
        if opened is None:
            raise ConcurrentCommit("it was deleted while an append ran", self.index, action=Action.RUN_AGAIN)
        with self.stages.stage("report"):
            within = columns_within(opened.spec, self.check.scope)
            schema = self.rows.reported(opened)
            return write_report(target, opened, append, append.counts[REPORTED], schema, within)


def batch_word(batch_id: str) -> str:
    """The part of a file's name that identifies the batch, in the files that an append adds."""
    return hashlib.blake2b(batch_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _null_keys(opened: OpenIndex, batch_id: str, null_keys: str) -> str:
    """The treatment of null keys. The source may have files with the null keys of a batch that the index does not know:
    the index was lost and built again. If all files of such an append are there, all rows with a null key count as
    appended. If some are missing, StalePointer: it is unknown which rows were appended. Rows without a null key are
    looked up as usual."""
    parts: dict[str, tuple[int, set[str]]] = {}
    for match in filter(None, map(PART.search, opened.view.covered)):
        if match[3] == batch_word(batch_id):
            parts.setdefault(match[4], (int(match[2]), set()))[1].add(match[1])
    if null_keys != KEEP or not parts:
        return null_keys
    if all(len(found) < expected for expected, found in parts.values()):
        expected, found = next(iter(parts.values()))
        raise StalePointer(
            f"{len(found)} of {expected} files of an earlier append of batch {batch_id!r} are in the source, and its "
            "record is lost: it is unknown which rows with a null in their key it added",
            opened.spec.source.location,
            action=Action.DEDUP_NULL_KEYS,
        )
    return ALL_PRESENT


def append_new(
    spark: None,
    index: Place,
    batch: LocalRows | pa.Table,
    batch_id: str,
    scope: str = "table",
    progress: Progress | None = None,
    **options: Any,
) -> DedupResult:
    """Append the rows of `batch` whose key the source does not have, and index them, as `append_rows`; the options are
    those of `AppendRequest`. `spark` is None."""
    _check_session(spark)
    return append_rows(as_rows(batch), index, AppendRequest(batch_id, scope, **options), progress)


def read_batch(
    spark: None, path: Place, index: Index | Place | None, format: str = "auto", options: Options | None = None
) -> LocalRows:
    """The rows of a file, or of the files of a folder, for `append_new`. `spark` is None."""
    _check_session(spark)
    return read_batch_locally(path, index, format, options)


def _check_session(spark: object) -> None:
    if spark is not None:
        raise UsageError("a session of Spark was given, and pyspark is not installed; pass None")

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
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gnomon.base.actions import Action
from gnomon.indexer.dedup.bootstrap import Origin, check_origin, existing, ready
from gnomon.indexer.dedup.check import ALL_PRESENT, CheckOptions, check_arguments, columns_within, order_of, with_status
from gnomon.indexer.dedup.finish import ORIGIN, bring_up_to_date, finish_appends
from gnomon.indexer.dedup.layout import check_appendable, first_layout, layout_of, layout_of_lake
from gnomon.indexer.dedup.rejected import RejectedAt, rejected_folder, report_target, write_report
from gnomon.indexer.dedup.row_digest import row_hash, rows_digest, rows_of
from gnomon.indexer.dedup.staging import COUNTS, DIGEST, FILES, NULLS, Staged, StageRunAgain, stage
from gnomon.indexer.join import lookup_counters
from gnomon.indexer.keys import column
from gnomon.indexer.spark import AtSnapshot, as_raised, spark_stage
from gnomon.indexer.tables import arrow_schema, first_columns, folders_table, source_columns
from gnomon.jobs import Progress, Stages
from gnomon.jobs.build import Vanished
from gnomon.jobs.load import KEY_PREFIX, LookupCounters, key_names
from gnomon.shadow import Index, UsageError, open_index
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
from gnomon.shadow.old_names import under_old_name
from gnomon.shadow.storage import Place, Storage, as_location, probe, storage_at
from gnomon.shadow.tables import TableCommit, append_target, is_lake

PART = re.compile(r"part-(\d+)-of-(\d+)-(?:[A-Za-z0-9-]*-)?([0-9a-f]{16})-([0-9a-f]{16})-keep\.")
KEEP = "keep"
# Members of an append's counts: the counts of each partition, and the files of rejected rows for a report.
PARTITIONS, REPORTED = "partitions", "rejected_files"
ORDER_PREFIX = f"{KEY_PREFIX}order_"
ATTEMPTS = 10  # of an append when others commit first


@dataclass(frozen=True)
class DedupResult:
    """The result of an append, in rows unless a name says otherwise. `rows_read` is the sum of `duplicates_in_batch`,
    `already_loaded`, `rejected` (a null in the key) and `appended`. `null_keys` counts all rows with a null in the key.
    `partitions` has the same numbers for each partition of the batch. `reported` is the number of rows in the report;
    None without a report: for a known batch, or where another run began the append without one. `index_bytes_read`
    counts index files and Bloom filters."""

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


def append_new(
    spark: SparkSession,
    index: Place,
    batch: DataFrame,
    batch_id: str,
    scope: str = "table",
    progress: Progress | None = None,
    *,
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    report: Place | None = None,
    origin: Origin | None = None,
    full: bool = False,
    accept_vanished: bool = False,
    rebuild: bool | None = None,
) -> DedupResult:
    """Append the rows of `batch` whose key the source does not have, and index them.

    `batch_id` names the batch. Once the batch is appended, a second call does nothing; if the first call died, the
    second finishes it. UsageError where a known batch has other rows than before. `scope`, `order_by`, `null_keys`: as
    in `filter_new`. `report` is the path of a new Parquet file on a local disk for the rows that were not appended,
    each with the reason and the pointer to the row that was there first.

    If there is no index, `origin` says how to build it first; if the source has no files, this append makes it.
    SpecMismatch if the index has another source or key. With `full` every file is indexed again first, which mends a
    damaged index (`rebuild` is its old name). `progress` is called with each stage.

    FilesVanished, before anything is written, where files that the index covers are gone from the source: their rows
    would be appended a second time. With `accept_vanished` the index drops them first. UsageError when the batch's
    columns are not the source's, before anything is written, when the source is a folder of a lake table, which would
    not see the new files, or a lake table to which Gnomon does not append. ConcurrentCommit where other appends keep
    committing first, or where a lake table changed so that the new files do not fit: then nothing was appended."""
    full = under_old_name("rebuild", rebuild, "full", full)
    begin, stages = time.perf_counter(), Stages(progress)
    index = as_location(index)
    check_arguments(scope, order_by, null_keys)
    target = report_target(as_location(report), batch.columns) if report is not None else None
    vanished = Vanished.DROP_ALL if accept_vanished else Vanished.REFUSE
    check = CheckOptions(scope, order_of(batch, order_by), null_keys)
    asked = AppendOptions(batch, batch_id, check, target is not None, vanished)
    run = _Run(spark, index, asked, origin, stages, progress)
    with as_raised():
        if full:
            with stages.stage("full build"):
                ready(spark, index, origin, full, progress, vanished)
        known, is_known = run.append()
        reported = run.report(target, known.append) if target is not None and not is_known else None
    counts = {name: 0 if is_known else known.append.counts[name] for name in (*COUNTS, FILES)}
    return DedupResult(
        batch_id=known.append.batch,
        known_batch=is_known,
        partitions={} if is_known else known.append.counts[PARTITIONS],
        snapshot=known.snapshot,
        seconds=round(time.perf_counter() - begin, 3),
        reported=reported,
        index_bytes_read=run.counters.index_bytes.value,
        stage_seconds=stages.seconds,
        **counts,
    )


@dataclass(frozen=True)
class AppendOptions:
    """The arguments of `append_new`."""

    batch: DataFrame
    batch_id: str
    check: CheckOptions
    has_report: bool
    vanished: Vanished


@dataclass
class _Run:
    """A run of `append_new`. `number` and `token` belong to its latest attempt."""

    spark: SparkSession
    index: str
    asked: AppendOptions
    origin: Origin | None
    stages: Stages
    progress: Progress | None
    number: int = 0
    token: str = ""

    @cached_property
    def counters(self) -> LookupCounters:
        return lookup_counters(self.spark)

    @cached_property
    def storage(self) -> Storage:
        return storage_at(self.index)

    def append(self) -> tuple[Batch, bool]:
        """The record of the batch, and whether the batch was known before."""
        batch_id = self.asked.batch_id
        known, is_ours, is_known = find_batch(self.storage, batch_id), False, True
        for attempt in range(ATTEMPTS if known is None else 0):
            opened = existing(self.index, self.origin)
            if opened is not None:
                check_appendable(self.index, opened.spec)
                if not is_lake(opened.spec.source_name):  # whose columns may be other ones at a newer version
                    with suppress(SourceError):  # files changed since they were indexed: the check below runs again
                        source_columns(self.spark, self.asked.batch.schema, opened)  # before hours of indexing
            wait(attempt)
            with self.stages.stage("bring up to date"):
                log = bring_up_to_date(self.spark, self.index, self.progress, self.origin, self.asked.vanished)
            known = find_batch(self.storage, batch_id)
            if known is not None:  # begun by a run that died, or by a concurrent run
                is_known = batch_id not in [append.batch for append in log.open]
                break
            if self._commit(log):
                with self.stages.stage("append and index"):
                    finish_appends(self.spark, self.index, self.progress, self.origin)
                known, is_ours, is_known = find_batch(self.storage, batch_id), True, False
                break
        if known is None:
            what = "it was deleted while an append ran" if is_ours else f"{ATTEMPTS} other appends came first"
            raise ConcurrentCommit(what, self.index, action=Action.RUN_AGAIN)
        if not is_ours:
            self._check_content(known)
        return known, is_known

    def _check_content(self, known: Batch) -> None:
        opened = existing(self.index, self.origin)
        with spark_stage(self.stages, self.spark, "compare with the known batch"):
            found = rows_digest(self.asked.batch, opened.spec.partitions if opened is not None else ())
        if found != known.append.content:
            content = known.append.content
            raise UsageError(
                f"batch {self.asked.batch_id!r} was appended by snapshot {known.snapshot} with other rows: "
                f"expected {rows_of(content):,} of digest {content}, found {found}; give this "
                "one another name; nothing of it was appended",
                self.index,
            )

    def _commit(self, log: AppendLog) -> bool:
        """Stage the rows that are new at the index's newest snapshot, and commit them as the next append. Returns False
        where another append has that number."""
        asked, batch, check = self.asked, self.asked.batch, self.asked.check
        self.number, self.token = log.last + 1, secrets.token_hex(8)
        opened = existing(self.index, self.origin)
        if opened is None:
            spec, at = check_origin(self.index, self.origin).first_spec(batch.schema), None
            null_keys = check.null_keys
            columns = first_columns(batch.schema, spec)
        else:
            check_appendable(self.index, opened.spec)
            spec, at = opened.spec, AtSnapshot.of(opened)
            null_keys = _null_keys(opened, asked.batch_id, check.null_keys)
            columns = source_columns(self.spark, batch.schema, opened)
        names = batch.select(*columns).columns
        order = [(f"{ORDER_PREFIX}{i}", down) for i, (_, down) in enumerate(check.order)]  # of the batch's own columns
        ordered = [column(name).alias(ours) for (name, _), (ours, _) in zip(check.order, order, strict=True)]
        rows = batch.select(*columns, row_hash(batch, spec.partitions).alias(DIGEST), *ordered)
        schema = rows.select(*map(column, names)).schema
        planned = None
        if opened is None:
            layout = first_layout(spec, schema)
        elif is_lake(spec.source_name):
            target = append_target(spec.source_name, spec.partition_types)
            planned = plan_commit(self.storage, self.number, spec.source_name, target.uuid)
            layout = layout_of_lake(spec, target)
        else:
            table = folders_table(self.spark, spec.source_name, spec.source) if spec.table else None
            layout = layout_of(opened, table, schema)
        source = storage_at(spec.source)
        folder = staging_folder(self.storage.root, self.number, self.token)
        checked = with_status(rows, spec, at, CheckOptions(check.scope, order, null_keys), self.counters)
        has_null = reduce(or_, [column(name).isNull() for name in key_names(spec)])
        rejected = RejectedAt(self.storage.root, self._rejected_folder) if asked.has_report else None
        probe(self.storage)
        try:
            with spark_stage(self.stages, self.spark, "check and write"):
                staged = stage(checked.withColumn(NULLS, has_null), names, layout, folder, self._file_name, rejected)
            if opened is None and not staged.files:
                raise UsageError(
                    "it has no files, and the batch has no row to append; its index is made by the "
                    "first append that has one; nothing was written",
                    spec.source,
                )
        except Exception as error:
            self._throw_away(source, folder)
            # The append that took the number removes the staged files of the others.
            if isinstance(error, StageRunAgain) or open_log(self.storage).last >= self.number:
                return False
            raise
        with self.stages.stage("commit append"):
            first = asdict(self.origin) if opened is None and self.origin is not None else None
            is_committed = commit_append(self.storage, self._record(log, staged, first, planned))
        if not is_committed:
            self._throw_away(source, folder)
        return is_committed

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
        words = re.sub(r"[^A-Za-z0-9]+", "-", self.asked.batch_id)[:40].strip("-")
        keep = [KEEP] if self.asked.check.null_keys == KEEP else []
        return "-".join(filter(None, [words, batch_word(self.asked.batch_id), self.token, *keep]))

    def _record(
        self, log: AppendLog, staged: Staged, first: Mapping[str, Any] | None, planned: TableCommit | None
    ) -> Append:
        reported = list(staged.rejected) if self.asked.has_report else None
        return Append(
            number=self.number,
            append_id=self.token,
            parent=log.parent,
            batch=self.asked.batch_id,
            content=staged.content,
            folder=staged.folder,
            files=staged.files,
            counts={**staged.counts, PARTITIONS: staged.partitions, REPORTED: reported, ORIGIN: first},
            table=replace(planned, partitions=staged.file_partitions) if planned is not None else None,
        )

    def report(self, target: Path, append: Append) -> int | None:
        """Write the report of the rows that were not appended, whose keys are indexed now. Returns their number; None
        if the run that began the append had no report."""
        if append.counts[REPORTED] is None:
            return None
        opened = open_index(self.index)
        with self.stages.stage("report"):
            rows = self.asked.batch.select(*source_columns(self.spark, self.asked.batch.schema, opened))
            schema, within = arrow_schema(rows.schema), columns_within(opened.spec, self.asked.check.scope)
            return write_report(target, opened, append, append.counts[REPORTED], schema, within)


def batch_word(batch_id: str) -> str:
    """The part of a file's name that names the batch, in the files that its appends add."""
    return hashlib.blake2b(batch_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _null_keys(opened: Index, batch_id: str, null_keys: str) -> str:
    """The treatment of null keys. If files with the null keys of an unknown batch lie in the source, the index was lost
    and built again. Then either all rows with a null key were appended, or it is unknown which. Other rows are looked
    up as always."""
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
            opened.spec.source,
            action=Action.DEDUP_NULL_KEYS,
        )
    return ALL_PRESENT

"""The end of committed appends: finish them, and bring the index up to date. An append begins and ends with it.

Afterwards the index has every row of the source. The log of appends (`gnomon.shadow.commit.append_log`) shows the work
left; the first run after a crash does it."""

from contextlib import suppress

from pyspark.sql import SparkSession

from gnomon.base.actions import Action
from gnomon.indexer.build import Vanished
from gnomon.indexer.dedup.bootstrap import Origin, check_origin, existing, origin_of
from gnomon.indexer.spark import Progress
from gnomon.indexer.tables import add_partitions, is_table
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.commit import Append, AppendLog, mark_appended, move_files, open_log, settle
from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Storage, is_absolute, storage_at
from gnomon.shadow.tables import check_plain_files, table_around

ORIGIN = "origin"  # member of an append's counts: the source and key of an index that does not exist yet


def bring_up_to_date(
    spark: SparkSession,
    index: str,
    progress: Progress | None = None,
    origin: Origin | None = None,
    vanished: Vanished = Vanished.REFUSE,
) -> AppendLog:
    """Finish the committed appends that are not done, and index all other new files of the source. Where there is no
    index, build the one of `origin`, if that has files. Returns the log before these changes. FilesVanished and
    UsageError as in `append_new`."""
    opened = existing(index, origin)
    _check_plain(index, opened.spec if opened is not None else None, origin)
    log = finish_appends(spark, index, progress, origin)
    opened = existing(index, origin)
    of = origin_of(opened.spec) if opened is not None else check_origin(index, origin)
    if opened is not None or of.has_files():
        of.build(spark, index, progress, vanished=vanished)
    return log


def _check_plain(index: str, spec: IndexSpec | None, origin: Origin | None) -> None:
    """UsageError where the source belongs to a lake table."""
    source = spec.source_name if spec is not None else check_origin(index, origin).location
    advice = "no append can commit to it; write to the table with its own engine"
    if spec is not None and spec.as_files:
        raise UsageError(
            f"its source {source} is a lake table whose files were indexed with --as-files; {advice}", index
        )
    if not is_table(source):
        check_plain_files(table_around(storage_at(source).root), source, advice)


def finish_appends(
    spark: SparkSession, index: str, progress: Progress | None = None, origin: Origin | None = None
) -> AppendLog:
    """Finish the committed appends that are not done, one after the other: move the files, index them, mark the append.
    The entries of files that vanish at the same time stay live. Returns the log before these changes."""
    storage, opened = storage_at(index), existing(index, origin)
    log = open_log(storage)
    began = [append.counts[ORIGIN] for append in log.open if append.counts.get(ORIGIN)]
    if opened is not None:
        of = origin_of(opened.spec)
    else:  # as in the run that began the first append, whatever the arguments of this run
        of = Origin(**began[0]) if began else check_origin(index, origin)
    source = storage_at(opened.spec.source if opened is not None else of.location)
    for append in log.open:
        if move_files(storage, source, append):
            if opened is not None and opened.spec.table:
                folders = {file.path.rpartition("/")[0] for file in append.files}
                add_partitions(spark, of.location, source.root, {one for one in folders if not is_absolute(one)})
            mark_appended(storage, append)
        built = of.build(spark, index, progress, append.batch, vanished=Vanished.KEEP)
        _check_indexed(index, source, append)
        settle(storage, source, append, built.snapshot)
    return log


def _check_indexed(index: str, source: Storage, append: Append) -> None:
    """Raise StorageError where a file of an append exists, and the index does not cover it."""
    covered = open_index(index).view.covered
    for file in append.files:
        if file.path not in covered:
            with suppress(FileNotFoundError, NotADirectoryError), source.open(file.path):
                raise StorageError(
                    f"append {append.number} of batch {append.batch!r} put {file.rows:,} "
                    "rows here, and the index does not see this file; expected its folder to be one of the source's "
                    "(of a table: a partition of the catalog); mend that",
                    f"{source.root}/{file.path}",
                    action=Action.RUN_AGAIN,
                )

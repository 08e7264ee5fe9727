"""Finish the dedup loads that were committed, and bring the index up to date. A load begins and ends with it.

Afterwards every row of the source counts as loaded. The log of loads (`shadow.loads`) says what is left to do; the
first run after a crash does it.
"""

from contextlib import suppress

from pyspark.sql import SparkSession

from indexer.catalog import add_partitions, is_table
from indexer.origin import Origin, check_origin, existing, origin_of
from indexer.progress import Progress
from indexer.specs import Vanished
from shadow import UsageError, open_index
from shadow.errors import StorageError
from shadow.lake_tables import check_plain_files, table_around
from shadow.loads import Load, Loads, append, loads_of, mark_appended, settle
from shadow.spec import IndexSpec
from shadow.storage import Storage, is_absolute, storage_at

ORIGIN = "origin"  # member of a load's counts: what the index is to be of, where there is none yet


def bring_up_to_date(
    spark: SparkSession,
    index: str,
    progress: Progress | None = None,
    origin: Origin | None = None,
    vanished: Vanished = Vanished.REFUSE,
) -> Loads:
    """Finish the loads that were committed and are not done, and index what else the source has; where there is no
    index, that of `origin` is built, if it has files. Returns the log as it was found. FilesVanished, UsageError: as of
    `append_new`."""
    opened = existing(index, origin)
    _check_plain(index, opened.spec if opened is not None else None, origin)
    loads = finish_loads(spark, index, progress, origin)
    opened = existing(index, origin)
    of = origin_of(opened.spec) if opened is not None else check_origin(index, origin)
    if opened is not None or of.has_files():
        of.build(spark, index, progress, vanished=vanished)
    return loads


def _check_plain(index: str, spec: IndexSpec | None, origin: Origin | None) -> None:
    """UsageError where the source belongs to a lake table."""
    source = spec.source_name if spec is not None else check_origin(index, origin).location
    advice = "a dedup load cannot commit to it; append to the table with its own engine"
    if spec is not None and spec.as_files:
        raise UsageError(
            f"{index}: its source {source} is a lake table whose files were indexed with --as-files; {advice}"
        )
    if not is_table(source):
        check_plain_files(table_around(storage_at(source).root), source, advice)


def finish_loads(
    spark: SparkSession, index: str, progress: Progress | None = None, origin: Origin | None = None
) -> Loads:
    """Finish the loads that were committed and are not done, one after the other: append, index, write down. The
    entries of files that vanished meanwhile stay live. Returns the log as it was found."""
    storage, opened = storage_at(index), existing(index, origin)
    loads = loads_of(storage)
    began = [load.counts[ORIGIN] for load in loads.open if load.counts.get(ORIGIN)]
    if opened is not None:
        of = origin_of(opened.spec)
    else:  # as the first load was looked at, whatever this run was told
        of = Origin(**began[0]) if began else check_origin(index, origin)
    source = storage_at(opened.spec.source if opened is not None else of.location)
    for load in loads.open:
        if append(storage, source, load):
            if opened is not None and opened.spec.table:
                folders = {file.path.rpartition("/")[0] for file in load.files}
                add_partitions(spark, of.location, source.root, {one for one in folders if not is_absolute(one)})
            mark_appended(storage, load)
        built = of.build(spark, index, progress, load.batch, vanished=Vanished.KEEP)
        _check_indexed(index, source, load)
        settle(storage, source, load, built.snapshot)
    return loads


def _check_indexed(index: str, source: Storage, load: Load) -> None:
    """StorageError where a file of a load is there, and the index does not see it."""
    covered = open_index(index).view.covered
    for file in load.files:
        if file.path not in covered:
            with suppress(FileNotFoundError, NotADirectoryError), source.open(file.path):
                raise StorageError(
                    f"{source.root}/{file.path}: load {load.number} of batch {load.batch!r} appended {file.rows:,} "
                    "rows here, and the index does not see this file; expected its folder to be one of the source's "
                    "(of a table: a partition of the catalog); mend that, and run it again"
                )

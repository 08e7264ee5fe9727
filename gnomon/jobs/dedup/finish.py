"""Finish committed appends, and bring the index up to date. An append does this when it begins and when it ends.

Afterwards the index has every row of the source. The log of appends (`gnomon.shadow.commit.append_log`) shows the
unfinished work; the first run after a crash does it."""

from contextlib import suppress

from gnomon.base.actions import Action
from gnomon.jobs import Progress
from gnomon.jobs.build import Engine, Vanished
from gnomon.jobs.dedup.bootstrap import Origin, Target
from gnomon.jobs.files import is_table
from gnomon.shadow import UsageError
from gnomon.shadow.commit import (
    Append,
    AppendLog,
    abandon,
    is_abandoned,
    is_appended,
    mark_appended,
    move_files,
    open_log,
    settle,
)
from gnomon.shadow.errors import StorageError, TableChanged
from gnomon.shadow.storage import Storage, is_absolute, storage_at
from gnomon.shadow.tables import (
    NewFile,
    TableCommit,
    append_target,
    check_plain_files,
    commit_to_table,
    is_lake,
    lake_source,
    last_number,
    table_around,
)

ORIGIN = "origin"  # member of an append's counts: the source and key of an index that does not exist yet


def bring_up_to_date(
    engine: Engine, target: Target, progress: Progress | None = None, vanished: Vanished = Vanished.REFUSE
) -> AppendLog:
    """Finish the committed appends that are not done, and index all other new files of the source. Where there is no
    index, build the one of the target's origin, if that has files. Returns the log before these changes. FilesVanished
    and UsageError as in `append_new`."""
    _check_writable(target)
    log = finish_appends(engine, target, progress)
    source = target.source()
    if target.opened is not None or source.has_files():
        target.build(engine, source, progress, vanished=vanished)
    return log


def _check_writable(target: Target) -> None:
    """UsageError where the source is a lake table that no append can commit to, or a folder of one."""
    opened = target.opened
    spec = opened.spec if opened is not None else None
    source = spec.source_name if spec is not None else target.required_origin().location
    if is_lake(source):
        append_target(source, spec.partition_types if spec is not None else lake_source(source).types)
        return
    advice = "no append can commit to it; write to the table with its own engine"
    if spec is not None and spec.as_files:
        raise UsageError(
            f"its source {source} is a lake table whose files were indexed with --as-files; {advice}", target.location
        )
    if not is_table(source):
        check_plain_files(table_around(storage_at(source).root), source, advice)


def finish_appends(engine: Engine, target: Target, progress: Progress | None = None) -> AppendLog:
    """Finish the committed appends that are not done, one after the other: move the files, index them, mark the append.
    The entries of files that vanish at the same time stay live. Returns the log before these changes."""
    storage, opened = target.storage, target.opened
    log = open_log(storage)
    began = [append.counts[ORIGIN] for append in log.open if append.counts.get(ORIGIN)]
    # Without an index: as in the run that began the first append, whatever the arguments of this run.
    of = Origin(**began[0]) if opened is None and began else target.source()
    root = opened.spec.source if opened is not None else of.location
    for append in log.open:
        source = storage_at(root)
        if append.table is not None:
            _add_to_table(storage, source, append, append.table)
        elif move_files(storage, source, append):
            if opened is not None and opened.spec.table:
                folders = {file.path.rpartition("/")[0] for file in append.files}
                engine.add_partitions(of.location, source.root, {one for one in folders if not is_absolute(one)})
            mark_appended(storage, append)
        built = target.build(engine, of, progress, append.batch, vanished=Vanished.KEEP)
        if append.table is None:  # else the table's own log proves it; the table may have rewritten the files since
            _check_indexed(target, source, append)
        settle(storage, source, append, built.snapshot)
    return log


def _add_to_table(storage: Storage, source: Storage, append: Append, planned: TableCommit) -> None:
    """Make the files of an append live by one commit of their lake table, and mark the append as appended.
    TableChanged, with the append abandoned, where the table changed so that the files do not fit any more."""
    if is_appended(storage, append):
        return
    try:
        if not _is_committed(planned):
            move_files(storage, source, append)
            pairs = zip(append.files, planned.partitions, strict=True)
            commit_to_table(planned, [NewFile(file.path, file.size, file.rows, part) for file, part in pairs])
    except TableChanged as error:
        _give_up(storage, source, append, planned, error.what, error.path)
    except StorageError as error:
        if error.action is not Action.RESTORE_APPEND:
            raise
        what = "a staged file is gone: perhaps the table's clean-up of old files removed it"
        _give_up(storage, source, append, planned, what, error.path)
    if is_abandoned(storage, append):  # the table may have the number of a later append, and not this one
        raise TableChanged(
            f"another program gave up append {append.number} of batch {append.batch!r}",
            planned.name,
            action=Action.APPEND_BATCH_AGAIN,
        )
    mark_appended(storage, append)


def _is_committed(planned: TableCommit) -> bool:
    return last_number(planned.name, planned.uuid, planned.writer) >= planned.number


def _give_up(
    storage: Storage, source: Storage, append: Append, planned: TableCommit, what: str, path: str | None
) -> None:
    """Abandon an append, unless another program committed it meanwhile. TableChanged where it is abandoned."""
    with suppress(TableChanged):
        if _is_committed(planned):
            return
    abandon(storage, source, append)
    raise TableChanged(
        f"{what}; append {append.number} of batch {append.batch!r} was given up, and none of its {append.rows:,} rows "
        f"is in {planned.name}",
        path,
        action=Action.APPEND_BATCH_AGAIN,
    )


def _check_indexed(target: Target, source: Storage, append: Append) -> None:
    """Raise StorageError where a file of an append exists, and the index does not cover it."""
    opened = target.newest()
    covered = opened.view.covered if opened is not None else {}
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

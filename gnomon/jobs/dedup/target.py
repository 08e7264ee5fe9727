"""The index of an append: opened once, built where it does not exist yet, and brought up to date.

An append finishes the committed appends of programs that died when it begins, and its own when it ends. Afterwards the
index has every row of the source. The log of appends (`gnomon.shadow.commit.append_log`) shows the unfinished work."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.jobs import Progress
from gnomon.jobs.build import FORMAT_NAMES, BuildRequest, BuildResult, Engine, Vanished, build_index, new_spec
from gnomon.jobs.dedup.check import ChangeOptions
from gnomon.jobs.dedup.row_search import RowSearch
from gnomon.jobs.files import Described, is_table
from gnomon.shadow import OpenIndex
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
    spec_on_record,
)
from gnomon.shadow.errors import (
    IndexNotFound,
    SourceNotFound,
    SpecMismatch,
    StorageError,
    TableChanged,
    UsageError,
)
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry, SourceRoot, source_root
from gnomon.shadow.storage import STAGED, Place, Storage, as_location, is_absolute, source_storage, storage_at
from gnomon.shadow.tables import (
    Change,
    NewFile,
    PlannedChange,
    TableCommit,
    append_target,
    check_deletes,
    check_plain_files,
    clear_attempts,
    commit_change,
    commit_to_table,
    is_lake,
    lake_source,
    last_number,
    table_around,
)

FIRST_FORMAT = "parquet"  # the default format of a source without files


@dataclass(frozen=True)
class Origin:
    """The arguments of `build` for a source without an index. `partition_by`: the partition columns of a source that
    has no files yet; one with files has its own."""

    source: Place
    keys: Sequence[str]
    include: Sequence[str] = ()
    format: str = "auto"
    buckets: int | None = None
    flat: bool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", as_location(self.source))
        if self.format not in FORMAT_NAMES:
            raise UsageError(f"source_format: expected one of {', '.join(FORMAT_NAMES)}, found {self.format!r}")

    @property
    def location(self) -> str:
        """The source as text."""
        return as_location(self.source)

    def has_files(self) -> bool:
        """Whether the source has files, or is a table, which can be indexed without files. UsageError for a single
        file. That a remote folder is empty is believed once a listing shows a file that was put there for this."""
        if is_table(self.location) or is_lake(self.location):
            return True
        try:
            root = source_root(self.location)
            if root.source.file_name:
                raise UsageError("a source of one file cannot be appended to; dedup needs a folder", self.location)
            if any(info.size for info in root.storage.list()):  # the build reports errors of the files
                return True
        except SourceNotFound:
            pass
        storage = storage_at(self.location)
        return storage.is_remote and _lists_others(storage)

    def check(self, index: str, spec: IndexSpec) -> None:
        """Raise SpecMismatch where an index has another source or key."""
        keys = [key.name for key in spec.keys]
        if not self._is_source_of(spec) or keys != list(self.keys):
            raise SpecMismatch(
                f"it is of {spec.source.name} by {', '.join(keys)}, found source {self.location} by "
                f"{', '.join(self.keys)}; leave these out, or name another index",
                index,
            )

    def _is_source_of(self, spec: IndexSpec) -> bool:
        if is_lake(self.location):
            return lake_source(self.location).name == spec.source.name
        if is_table(self.location):
            return spec.is_of_table
        return not spec.is_of_table and storage_at(self.location).root == spec.source.location

    @property
    def request(self) -> BuildRequest:
        return BuildRequest(
            self.keys, self.include, self.buckets, format=self.format, flat=self.flat, options=self.options
        )

    def first_spec(self, batch: pa.Schema) -> IndexSpec:
        """The spec for the check of the first rows of a source. UsageError where there can be none."""
        if unknown := [name for name in self.partition_by if name not in batch.names]:
            raise UsageError(f"partition_by: the batch has no column {unknown[0]}; it has {', '.join(batch.names)}")
        root = SourceRoot(source_storage(storage_at(self.location).root))
        format_name = FIRST_FORMAT if self.format == "auto" else self.format
        columns = pa.schema([one for one in batch if one.name not in self.partition_by])
        none = Described(SourceFileEntry("batch", "", 0, 0, 0, ""), columns, 1, 0, [])
        return new_spec(self.request, root, format_name, tuple(self.partition_by), [none])


def _lists_others(storage: Storage) -> bool:
    """Whether a folder has other files than one that is put there for the time of the call. StorageError where that is
    not listed."""
    name = f"{STAGED}{secrets.token_hex(16)}"
    storage.put_new(name, [b"listed?"])
    try:
        sizes = {info.path: info.size for info in storage.list(hidden=frozenset([name]))}
    finally:
        storage.delete(name)
    if not sizes.pop(name, 0):
        what = "the store's listing lacks a file that was just written, so the source may have files; try again later"
        raise StorageError(what, f"{storage.root}/{name}")
    return any(sizes.values())


def origin_of(spec: IndexSpec) -> Origin:
    """The source of an index."""
    keys, include = [key.name for key in spec.keys], [one.name for one in spec.include]
    return Origin(spec.source.name, keys, include, spec.format)


class Target:
    """The index of an append, opened once. `origin` says how to build one that does not exist yet. SpecMismatch where
    the index has another source or key than `origin`."""

    def __init__(self, index: Place, origin: Origin | None) -> None:
        self.location = as_location(index)
        self.origin = origin
        self.changes: dict[str, Change] = {}  # what this process wrote, by the id of the append
        self.searches: dict[str, RowSearch] = {}
        self._opened: OpenIndex | None = None
        self._built: int | None = None  # the snapshot that a build has reported since the index was looked at

    @cached_property
    def storage(self) -> Storage:
        return storage_at(self.location)

    @property
    def opened(self) -> OpenIndex | None:
        """The index, at a snapshot that is not older than those of this run's builds; None if it does not exist, and
        `origin` says how to build it. IndexNotFound where there is neither."""
        opened = self.newest()
        if opened is None:
            self.required_origin()
        elif self.origin is not None:
            self.origin.check(self.location, opened.spec)
        return opened

    def newest(self) -> OpenIndex | None:
        """As `opened`, also where the index has another source or key than `origin`."""
        built, self._built = self._built, None
        if self._opened is not None and built is not None:
            self._opened.refresh()  # whatever the number: the index may have been deleted and built again
            if self._opened.view.snapshot.number < built:  # the store does not list it yet
                self._opened = None
        if self._opened is None:
            with suppress(IndexNotFound):
                self._opened = OpenIndex.of(self.location)
        return self._opened

    def search(self, root: str, append_id: str, change: PlannedChange) -> RowSearch:
        """The search for the rows that a change of a table deletes."""
        if append_id not in self.searches:
            self.searches[append_id] = RowSearch(self.location, root, change)
        return self.searches[append_id]

    def required_origin(self) -> Origin:
        """The origin. IndexNotFound where there is none."""
        if self.origin is None:
            raise IndexNotFound("no index there", self.location, action=Action.NAME_SOURCE)
        return self.origin

    def source(self) -> Origin:
        """The source of the index, or the one of `origin`."""
        opened = self.opened
        return origin_of(opened.spec) if opened is not None else self.required_origin()

    def build(
        self,
        engine: Engine,
        source: Origin,
        progress: Progress | None,
        batch: str | None = None,
        full: bool = False,
        vanished: Vanished = Vanished.REFUSE,
    ) -> BuildResult:
        """Index a source. `vanished` is the treatment of files that are gone from it."""
        request = replace(source.request, batch=batch, full=full, vanished=vanished)
        result = build_index(engine, source.location, self.location, request, progress)
        self._built = result.snapshot
        return result

    def ready(
        self, engine: Engine, full: bool, progress: Progress | None = None, vanished: Vanished = Vanished.REFUSE
    ) -> OpenIndex | None:
        """The index, built from `origin` if it does not exist; with `full`, every source file is indexed again. None if
        the source has no files yet."""
        if full:
            spec = spec_on_record(self.storage)
            source = origin_of(spec) if spec is not None else self.required_origin()
            self.build(engine, source, progress, full=True, vanished=vanished)
        if self.opened is None and self.origin is not None and self.origin.has_files():
            self.build(engine, self.origin, progress)
        return self.opened


ORIGIN = "origin"  # member of an append's counts: the source and key of an index that does not exist yet


def bring_up_to_date(
    engine: Engine,
    target: Target,
    progress: Progress | None = None,
    vanished: Vanished = Vanished.REFUSE,
    change: ChangeOptions | None = None,
) -> AppendLog:
    """Finish the committed appends that are not done, and index all other new files of the source. Where there is no
    index, build the one of the target's origin, if that has files. Returns the log before these changes. FilesVanished
    and UsageError as in `append_new`."""
    check_writable(target, change)
    log = finish_appends(engine, target, progress)
    source = target.source()
    if target.opened is not None or source.has_files():
        target.build(engine, source, progress, vanished=vanished)
    return log


def check_writable(target: Target, change: ChangeOptions | None = None) -> None:
    """UsageError where the source is a lake table that no append, or no such change, can commit to, or a folder of one;
    and for a change of a source that is no lake table."""
    opened = target.opened
    spec = opened.spec if opened is not None else None
    source = spec.source.name if spec is not None else target.required_origin().location
    if change is not None and not is_lake(source):
        raise UsageError(
            "its rows are not changed: others own these files, and only a Delta or Iceberg table can be told to delete "
            "rows (gnomon get --pointers-only shows where the rows are)",
            source or target.location,
        )
    if is_lake(source):
        if change is not None:
            check_deletes(source)
        if change is None or change.adds:
            append_target(source, spec.partition_types if spec is not None else lake_source(source).types)
        return
    advice = "no append can commit to it; write to the table with its own engine"
    if spec is not None and spec.source.as_files:
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
    root = opened.spec.source.location if opened is not None else of.location
    for append in log.open:
        source = storage_at(root)
        if append.table is not None:
            _commit_to_table(engine, target, of, append, append.table, progress)
        elif move_files(storage, source, append):
            if opened is not None and opened.spec.is_of_table:
                folders = {file.path.rpartition("/")[0] for file in append.files}
                engine.add_partitions(of.location, source.root, {one for one in folders if not is_absolute(one)})
            mark_appended(storage, append)
        built = target.build(engine, of, progress, append.batch, vanished=Vanished.KEEP)
        if append.table is None:  # else the table's own log proves it; the table may have rewritten the files since
            _check_indexed(target, source, append)
        settle(storage, source, append, built.snapshot)
    return log


def _commit_to_table(
    engine: Engine, target: Target, of: Origin, append: Append, planned: TableCommit, progress: Progress | None
) -> None:
    """Make the files of an append live by one commit of their lake table, which deletes rows if it is a change, and
    mark the append as appended. TableChanged, with the append abandoned, where the table changed so that the commit
    does not fit any more."""
    storage = target.storage
    if is_appended(storage, append):
        return
    opened = target.opened
    source = storage_at(opened.spec.source.location if opened is not None else of.location)
    try:
        if not _is_committed(planned):
            move_files(storage, source, append)
            pairs = zip(append.files, planned.partitions, strict=True)
            files = [NewFile(file.path, file.size, file.rows, part) for file, part in pairs]
            if planned.change is None:
                commit_to_table(planned, files)
            else:
                search = target.search(source.root, append.append_id, planned.change)
                look = partial(search.newest, partial(target.build, engine, of, progress))
                if (change := commit_change(planned, files, look)) is not None:
                    target.changes[append.append_id] = change
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
    if planned.change is not None:
        clear_attempts(planned)
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

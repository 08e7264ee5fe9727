"""The plan of a build: the current source compared with the newest snapshot. It reads listings, the index's own
metadata and, before a first build, the metadata of one source file. It writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gnomon.base.errors import Action
from gnomon.jobs.build.specs import (
    BuildRequest,
    Vanished,
    check_declared,
    check_places,
    check_request,
    has_lost_partitions,
    new_spec,
    repartitioned,
)
from gnomon.jobs.files import (
    CatalogTable,
    ReadTable,
    check_names,
    describe,
    detect_format,
    infer_locally,
    is_inferred,
    named_source,
    no_catalog,
)
from gnomon.shadow.commit import Adoption, adoption, newest_number, spec_on_record
from gnomon.shadow.errors import (
    FilesVanished,
    IndexNotFound,
    PartitionNotFound,
    ShadowError,
    SourceNotFound,
    StorageError,
    UnknownColumn,
    Unreachable,
    UsageError,
)
from gnomon.shadow.fetch import check_format, without_maps
from gnomon.shadow.maintenance import check_no_other_files
from gnomon.shadow.metadata import (
    DEEP,
    SPEC_PATH,
    Diff,
    DigestChecks,
    IndexSpec,
    Listing,
    SourceFileEntry,
    SourceRoot,
    View,
    check_apart,
    diff,
    moved_to,
    newest_good_view,
    newest_view,
    read_spec,
    source_root,
    within,
    without_vanished,
)
from gnomon.shadow.storage import FileInfo, Storage, in_order, join, source_storage, storage_at
from gnomon.shadow.tables import (
    LakeSource,
    LakeTable,
    check_plain_files,
    check_where,
    matches,
    stored_partition,
)
from gnomon.sources import FORMATS, check_options

FORMAT_NAMES = ("auto", *FORMATS)
MOST_LOST = 0.5  # share of the covered bytes: a build that would drop more needs consent
MOST_TRIED = 64  # vanished files that are looked for
SHOWN_FILES = 3  # vanished files in a message


@dataclass(frozen=True)
class Plan:
    """The current index (no `view` before its first commit), the current files of the source, and their difference from
    the covered files; `adopted` files do not differ. `options` are the options of reads; `spec` describes the index,
    where it is known.

    `unmapped` are covered files whose page maps were requested and are missing or damaged. A `full` build has no view,
    and all files are new; `newest` is the number of the snapshot that it follows. `files` are all files of the source,
    even if only some partitions are indexed. `as_files`: the files belong to a lake table, and the build indexes all of
    them, live or not."""

    storage: Storage
    root: SourceRoot
    view: View | None
    format: str
    partitions: tuple[str, ...]
    adopted: Mapping[str, SourceFileEntry]
    difference: Diff
    options: Mapping[str, str]
    spec: IndexSpec | None
    newest: int | None = None
    unmapped: Sequence[SourceFileEntry] = ()
    files: Sequence[FileInfo] = ()
    as_files: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the newest snapshot covers the current source and agrees with the catalog."""
        if self.view is None or not self.difference.is_empty:
            return False
        if self.as_files and not self.view.spec.source.as_files:
            return False
        source, snapshot = self.root.source, self.view.snapshot
        is_declared = source.columns is None or snapshot.spec.schema == source.columns
        return is_declared and (snapshot.folders, snapshot.table) == source.recorded

    @property
    def needs_engine(self) -> bool:
        """Whether there are files to index, adopt or map. Other changes are commits of metadata alone."""
        return self.view is None or bool(self.difference.to_index or self.adopted or self.unmapped)

    def to_json(self) -> dict[str, Any]:
        """The output of `gnomon build --dry-run --json`."""
        return {
            "index": self.storage.root,
            "source": self.root.name,
            "snapshot": self.view.snapshot.number if self.view else self.newest,
            "new": [{"path": info.path, "size": info.size} for info in self.difference.new],
            "changed": [{"path": info.path, "size": info.size} for info in self.difference.changed],
            "vanished": list(self.difference.vanished),
            "adopted": sorted(self.adopted),
            "unmapped": [file.path for file in self.unmapped],
        }


def plan(source: str, index: str, request: BuildRequest, read_table: ReadTable = no_catalog) -> Plan:
    """Read the newest snapshot, then the source, and compare. `read_table` reads a table of the catalog. UsageError or
    SpecMismatch for a request that does not fit the index. A plan is `full`, too, where a lake table has lost a
    partition column of the index: a file may then have several values of it.

    The order matters: a source that was read before the snapshot may be older than the one that the snapshot covers,
    and the build would take the index back to it. What others commit after the snapshot is found at the commit."""
    _check_options(request)
    storage = storage_at(index)
    _check_folder(storage)
    newest = newest_number(storage) if request.full else 0
    view = None if newest else _open(storage)
    spec = _recorded_spec(storage, view, newest)
    root = _current_root(named_source(source, read_table, request.table_version), request, spec, storage)
    if isinstance(root.source, LakeSource) and spec is not None:
        lake_source = root.source.within(spec.partitions)
        root = replace(root, source=lake_source)
        covered_version = view.snapshot.table if view is not None else None
        if covered_version is not None and not request.adopt and has_lost_partitions(spec, root):
            lake_source.check_follows(covered_version)
            return plan(source, index, replace(request, full=True), read_table)
    if view is None and not newest:
        check_no_other_files(storage)
    files, lake_table = _files(root, view)
    if not (request.as_files or (spec is not None and spec.source.as_files)):
        check_plain_files(lake_table, root.name, _advice(lake_table))
    partitions = root.partitions(files)
    format_name = _format(root, files, request.format, spec)
    options = _options(root, format_name, request, spec)
    if spec is None and not is_inferred(format_name, options):
        _check_new(root, request, format_name, partitions, files, lambda _: options)
    elif spec is not None:
        spec = repartitioned(spec, root) if newest else spec
        existing = replace(spec, source=moved_to(spec.source, root)) if request.adopt else spec
        check_request(existing, request, root, format_name, partitions, storage.root)
        check_declared(spec, root)
    adopted, difference = _compared(storage, root, view, spec, files, request.adopt)
    if request.partitions is not None:
        difference = _within(request.partitions, root, partitions, files, view, difference)
    if newest:
        _check_full(request, root, storage, files)
    elif view is not None:
        difference = _vanished(request.vanished, root, view, difference)
    unmapped = _unmapped(storage, view, difference, request) if request.page_maps and view else []
    return Plan(
        storage=storage,
        root=root,
        view=view,
        format=format_name,
        partitions=partitions,
        adopted=adopted,
        difference=difference,
        options=options,
        spec=spec,
        newest=newest or None,
        unmapped=unmapped,
        files=files,
        as_files=request.as_files and lake_table is not None,
    )


def _recorded_spec(storage: Storage, view: View | None, newest: int) -> IndexSpec | None:
    """The spec of the index; None before its first build. UsageError for a key-value folder."""
    spec = view.spec if view else spec_on_record(storage) if newest else None
    if spec is not None:
        spec.entries.check_source("a key-value folder that write_btree made; build to another folder", storage.root)
    return spec


def _current_root(
    source: str | CatalogTable | LakeSource, request: BuildRequest, spec: IndexSpec | None, storage: Storage
) -> SourceRoot:
    """The root of the source. UsageError where it overlaps the index, or cannot be indexed as the request says."""
    if isinstance(source, str):
        root = source_root(source)
    elif isinstance(source, LakeSource):
        root = SourceRoot(source_storage(source.location), source)
    else:  # files of a catalog table keep their names even if its folder has changed
        is_recorded = spec is not None and spec.is_of_table and not request.adopt
        root = source.root_at(spec.source.location if spec is not None and is_recorded else source.location)
    if request.partitions is not None and root.source.versions is not None:  # also of a table of the catalog
        raise UsageError("partitions: a snapshot covers a version of a lake table as a whole", root.name)
    check_apart(root, storage)
    _check_source(root)
    return root


def _compared(
    storage: Storage,
    root: SourceRoot,
    view: View | None,
    spec: IndexSpec | None,
    files: Sequence[FileInfo],
    adopt: bool,
) -> tuple[Mapping[str, SourceFileEntry], Diff]:
    """The files that are adopted, and the difference of the other files from the snapshot."""
    if view is not None and view.snapshot.table is not None and root.source.versions is not None:
        root.source.versions.check_follows(view.snapshot.table)
    adopting = adoption(storage, root, view, files) if adopt and view else Adoption({}, frozenset())
    digest_checks = DigestChecks(root.storage, spec.format, spec.read_options) if spec else None
    difference = diff(files, adopting.applied_to(view.segments) if view else (), root.source, digest_checks)
    if spec is not None and view is not None:
        changed = {info.path for info in difference.changed}
        check_places(spec, root, (info for info in files if info.path in view.covered and info.path not in changed))
    return adopting.adopted, difference


def _advice(lake_table: LakeTable | None) -> str:
    """What to do where the files of a source belong to a lake table."""
    as_files = "say --as-files (as_files=True) to index every file of it, live or not"
    if lake_table is not None and lake_table.source_name:
        return f"name the table, as {lake_table.source_name}, or {as_files}"
    return f"index a plain copy of its live rows, or {as_files}"


def _check_options(request: BuildRequest) -> None:
    """Raise UsageError for options that are unknown, or that exclude each other."""
    if request.format not in FORMAT_NAMES:
        raise UsageError(f"format: expected one of {', '.join(FORMAT_NAMES)}, found {request.format!r}")
    if request.partitions is not None and (request.adopt or request.full):
        raise UsageError("partitions: --adopt and --full apply to the whole source")
    if request.adopt and request.full:
        raise UsageError("--adopt keeps the entries of indexed files, --full indexes all files: expected one of them")


def _vanished(how: Vanished, root: SourceRoot, view: View, difference: Diff) -> Diff:
    """The difference, with vanished files dropped or kept by `how`. FilesVanished where they must not be dropped."""
    if root.source.versions is not None:  # the table's log says which files were removed
        return difference
    gone = [file for path in difference.vanished if (file := view.covered[path]).rows]
    if not gone:  # files without rows, like the empty files that earlier versions covered
        return difference
    shown = ", ".join(file.path for file in gone[:SHOWN_FILES]) + (", ..." if len(gone) > SHOWN_FILES else "")
    what = (
        f"{len(gone):,} of the {len(view.covered):,} files that snapshot {view.snapshot.number} covers "
        f"are gone ({shown})"
    )
    if how is Vanished.KEEP:
        return without_vanished(difference, view.segments)
    _check_gone(root, gone, all_of_them=how is Vanished.DROP_ALL)
    if how is Vanished.REFUSE:
        raise FilesVanished(
            f"{what}: their rows would be appended a second time; nothing was appended",
            root.name,
            action=Action.ACCEPT_VANISHED_IN_DEDUP,
        )
    lost = sum(file.size for file in gone) - sum(info.size for info in difference.new)
    if how is Vanished.DROP_SOME and lost > MOST_LOST * sum(file.size for file in view.covered.values()):
        raise FilesVanished(
            f"{what}, and new files do not make up for them: more than {MOST_LOST:.0%} of the bytes that are indexed; "
            "nothing was changed",
            root.name,
            action=Action.ACCEPT_VANISHED,
        )
    return difference


def _check_gone(root: SourceRoot, gone: Sequence[SourceFileEntry], all_of_them: bool) -> None:
    """Raise Unreachable where a file that a listing of an object store lacks can be opened. Of many files some are
    tried, of those that the caller said are gone all. A catalog drops partitions whose files stay: files of the others
    are looked for."""
    gone = [file for file in gone if root.storage.is_remote or "://" in file.path]
    if root.source.recorded.folders is not None:
        gone = [file for file in gone if root.source.is_still_in(file.path, file.partition)]
    tried = gone if all_of_them else gone[:: len(gone) // MOST_TRIED + 1]
    there = in_order([partial(_is_there, root, file.path) for file in tried])
    for file, is_there in zip(tried, there, strict=True):
        if is_there:
            what = "the store does not list this file, which is there; nothing was changed"
            raise Unreachable(what, join(root.storage.root, file.path), action=Action.RUN_AGAIN)


def _is_there(root: SourceRoot, path: str) -> bool:
    """Whether a file is there and has bytes: a build passes over empty files."""
    try:
        with root.storage.open(path) as file:
            return file.size > 0
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _check_full(request: BuildRequest, root: SourceRoot, storage: Storage, files: Sequence[FileInfo]) -> None:
    """Raise FilesVanished where a full build would drop files that are gone, as in `_vanished`, or would take the index
    back to an older version of its table that the caller did not choose. The newest readable snapshot has the files
    covered before."""
    how = request.vanished
    try:
        before, _ = newest_good_view(storage)
    except ShadowError:
        if how is Vanished.REFUSE:
            raise FilesVanished(
                f"no snapshot can be read, so it is unknown whether files of {root.name} are "
                "gone; their rows would be appended a second time",
                storage.root,
                action=Action.ACCEPT_VANISHED_IN_DEDUP,
            ) from None
        return
    known, versions = before.snapshot.table, root.source.versions
    if known is not None and versions is not None and request.table_version is None and how is not Vanished.DROP_ALL:
        found = versions.content.version
        now_read = root.now().source.versions if versions.is_before(known) else None  # another build may be faster
        if found.uuid == known.uuid and now_read is not None and now_read.is_before(known):
            raise FilesVanished(
                f"its newest version is {found.version}, and snapshot {before.snapshot.number} of the index covers "
                f"version {known.version}",
                root.name,
                action=Action.ACCEPT_OLDER_TABLE,
            )
    now = {info.path for info in files}
    gone = tuple(path for path in before.covered if path not in now)
    new = tuple(info for info in files if info.path not in before.covered)
    if gone:
        _vanished(how, root, before, Diff(new, (), gone, {}))


def _within(
    chosen: Sequence[Mapping[str, object]],
    root: SourceRoot,
    columns: tuple[str, ...],
    files: Sequence[FileInfo],
    view: View | None,
    difference: Diff,
) -> Diff:
    """The part of the difference in the requested partitions. UsageError for a partition that neither the source nor
    the index has."""
    types = root.types
    there = {root.partition_of(info.path, bool(columns)) for info in files}
    there |= set(root.source.recorded.folders or ())
    there |= {file.partition for file in view.covered.values()} if view is not None else set()
    values = {partition: stored_partition(partition, types) for partition in there}
    partitions: set[str] = set()
    for selection in chosen:
        known = {column: {row.get(column) for row in values.values()} for column in columns}
        selected: set[str] = set()
        with suppress(PartitionNotFound):
            where = check_where(selection, columns, types, known)
            selected = {partition for partition, row in values.items() if matches(row, where)}
        if not selected:
            text = ", ".join(f"{name}={value}" for name, value in selection.items())
            raise UsageError(f"no partition {text}", root.name)
        partitions |= selected
    return within(root, difference, view.segments if view is not None else (), partitions)


def _files(root: SourceRoot, view: View | None) -> Listing:
    """The source's files, and the lake table that they belong to. SourceNotFound where a catalog table with partitions
    has no file any more: an unmounted disk must not empty the index. A remote store lists them twice, for one listing
    may lack a file."""
    found = root.listing()
    if root.storage.is_remote and root.source.versions is None:
        found = found._replace(files=_united(root, found.files, root.list()))
    if not found.files and root.source.recorded.folders and view is not None and view.covered:
        raise SourceNotFound(
            f"no data files in any folder that the catalog names, below {root.location} or elsewhere; "
            f"the index covers {len(view.covered):,}",
            root.name,
            action=Action.EMPTY_INDEX,
        )
    return found


def _united(root: SourceRoot, first: Sequence[FileInfo], second: Sequence[FileInfo]) -> list[FileInfo]:
    """The files of two listings, the second one made later. One that it lacks must be there."""
    listed = {info.path for info in second}
    rest = [info for info in first if info.path not in listed and _is_there(root, info.path)]
    return sorted([*second, *rest], key=lambda info: info.path) if rest else list(second)


def _format(root: SourceRoot, files: Sequence[FileInfo], format: str, spec: IndexSpec | None) -> str:
    """The format of the source's files: the requested one, or the one of the spec, the catalog or the files."""
    known = root.source.format
    if known:
        if format not in ("auto", known):
            raise UsageError(f"format: {root.name} is of format {known}, found {format!r}")
        return known
    if format != "auto":
        return format
    format_name = spec.format if spec else detect_format(root, files)
    check_names(root, format_name, files)
    return format_name


def _options(root: SourceRoot, format_name: str, request: BuildRequest, spec: IndexSpec | None) -> dict[str, str]:
    """The options of reads, from the request, the spec or the catalog."""
    if request.page_maps:
        check_format(format_name)
    if root.source.columns is not None:
        if request.options:
            raise UsageError(f"option {min(request.options)}: the catalog sets the options of {root.name}")
        return dict(root.source.options)
    options = dict(request.options or (spec.options if spec else {}))
    check_options(format_name, options)
    return options


def _unmapped(storage: Storage, view: View, difference: Diff, request: BuildRequest) -> list[SourceFileEntry]:
    gone = {info.path for info in difference.changed}.union(difference.vanished)
    files = [file for path, file in view.covered.items() if path not in gone]
    return without_maps(storage, view.spec.format, files, DEEP in (request.page_maps, view.spec.page_maps))


def check_rows(planned: Plan, request: BuildRequest) -> None:
    """Refuse a first build with columns that the source does not have, for formats whose files do not declare their
    columns. It reads the rows of the first file, and of the others if it lacks a column. Only a dry run calls it: a
    build finds the error when it reads all rows."""
    if planned.spec is None and is_inferred(planned.format, planned.options):
        options, root, files = planned.options, planned.root, planned.difference.to_index
        _check_new(
            root,
            request,
            planned.format,
            planned.partitions,
            files,
            lambda some: {**options, "schema": infer_locally(root, planned.format, options, some)},
        )


def _check_new(
    root: SourceRoot,
    request: BuildRequest,
    format_name: str,
    partitions: tuple[str, ...],
    files: Sequence[FileInfo],
    options_of: Callable[[Sequence[FileInfo]], Mapping[str, str]],
) -> None:
    """Refuse a first build with columns that the source does not have. The columns of one file are mostly enough. The
    columns of a table are in the catalog."""
    if root.source.columns is not None:
        new_spec(request, root, format_name, partitions, [])
        return
    for some in (files[:1], files):
        described = describe(root, format_name, options_of(some), bool(partitions), some, request.columns)
        try:
            new_spec(request, root, format_name, partitions, described)
        except UnknownColumn:
            if len(some) == len(files):
                raise
        else:
            return


def _check_folder(storage: Storage) -> None:
    """Raise StorageError for an index path that is a file, before any work."""
    try:
        storage.open("").close()
    except (FileNotFoundError, IsADirectoryError):
        return
    except NotADirectoryError:
        pass
    raise StorageError("a file is there, or above it", storage.root, expected="a folder for the index")


def _check_source(root: SourceRoot) -> None:
    """Refuse the folder of an index: its files hold dead entries, too."""
    if root.source.name or root.source.file_name:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        root.storage.open(SPEC_PATH).close()
        raise UsageError(f"an index lies there ({SPEC_PATH}); expected the root of a source", root.storage.root)


def _open(storage: Storage) -> View | None:
    """The newest snapshot; None where there is no index yet, or one whose first build never committed."""
    view = newest_view(storage)
    if view is None:
        with suppress(IndexNotFound):
            read_spec(storage)
    return view

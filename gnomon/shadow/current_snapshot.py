"""The snapshot that an open index answers from: opened, moved to the newest one, and retried on it."""

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa

from gnomon.base.errors import Action, GnomonError
from gnomon.shadow.errors import (
    DamagedIndexFile,
    DamagedSource,
    IndexFileGone,
    ShadowError,
    SnapshotNotFound,
    SourceError,
    StalePointer,
    Unreachable,
    UsageError,
)
from gnomon.shadow.fetch import Fetcher, LearnedMaps
from gnomon.shadow.metadata import (
    SNAPSHOT_FOLDER,
    SNAPSHOT_NAME,
    Diff,
    DigestChecks,
    IndexSpec,
    Snapshot,
    SourceFileEntry,
    SourceRoot,
    View,
    check_spec,
    diff,
    is_there,
    open_view,
    read_segments,
    read_snapshot,
    read_spec,
    snapshot_files,
    source_of,
)
from gnomon.shadow.newest_version import ReadThroughLimits
from gnomon.shadow.storage import (
    Begun,
    CachedStorage,
    DiskCache,
    FileInfo,
    Storage,
    in_order,
    is_local,
    join,
    looked_again,
    looking_again,
)

Result = TypeVar("Result")
# Memory: up to half of it for the index (nodes and Bloom filters), up to a quarter for metadata of source files, and
# the rest for their pages.
CACHE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class ReadSettings:
    """Settings for reading an index: bytes of all caches together, and whether look-ups read Bloom filters, fetches
    read recorded page maps, and pages of the source stay in memory. With `newest`, `Index.at_newest_version` reads
    versions of a lake table that the index does not cover. `disk` keeps what fetches learn about source pages and, of
    remote files, metadata."""

    cache_bytes: int = CACHE_BYTES
    filters: bool = True
    page_maps: bool = True
    keep_pages: bool = True
    newest: ReadThroughLimits | None = None
    disk: DiskCache | None = None


DEFAULT_SETTINGS = ReadSettings()


@dataclass(frozen=True)
class State:
    """A view, and the reader of its source if it has one. Both are replaced together."""

    location: str  # of the index
    view: View
    source: SourceRoot | None
    fetcher: Fetcher | None
    digest_checks: DigestChecks | None = None
    newest: FileInfo | None = None  # the file of the newest snapshot at the last refresh

    def required_fetcher(self) -> Fetcher:
        """The reader of the source. UsageError in a key-value folder."""
        if self.fetcher is None:
            raise UsageError("a key-value folder, which has no source", self.location)
        return self.fetcher

    def covered(self, path: str) -> SourceFileEntry:
        """The source file with this name in pointers. StalePointer where the snapshot does not cover it."""
        file = self.view.covered.get(path)
        if file is None:
            number, root = self.view.snapshot.number, source_of(self.view.spec).storage.root
            what = (
                f"snapshot {number} of the index does not cover this file; take pointers from this index as it is now"
            )
            raise StalePointer(what, join(root, path))
        return file

    def source_is_gone(self) -> bool:
        """Whether a local source folder holds no file at all. False for remote sources, whose listings are long."""
        source = self.source
        if source is None or source.source.file_name or not is_local(source.storage.root):
            return False
        if source.source.folders_elsewhere:
            return False  # the table's own folder may be empty
        return next(iter(source.storage.list()), None) is None

    def is_as_indexed(self, location: str) -> bool:
        """Whether the source file at this whole path exists and is the one that was indexed."""
        if self.source is None or self.fetcher is None:
            return False
        root = self.source.storage.root.rstrip("/")
        file = self.view.covered.get(location.removeprefix(f"{root}/"))
        if file is None:
            return False
        try:
            self.fetcher.files.check_file(file)
        except SourceError:
            return False
        return True

    def coverage(self) -> Diff:
        """The difference between the current source and the snapshot. Empty without a source."""
        if self.source is None:
            return Diff((), (), (), {})
        newer, known, versions = None, self.view.snapshot.table, self.source.source.versions
        if known is not None and versions is not None:
            newest = versions.newest(known)
            if newest == known:
                return Diff((), (), (), {})
            newer = newest
        source = self.source.now()
        files, lake_table = source.listing()
        difference = diff(files, self.view.segments, source.source, self.digest_checks)
        return replace(difference, lake_table=lake_table, newer=newer)

    def schemas(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
        """Yield source files with their schemas, newest segment first, until these give each of `names` a type.

        Passes over files that changed, are gone or cannot be read: SourceError of the last one where no readable file
        has one of the columns."""
        fetcher, source = self.required_fetcher(), source_of(self.view.spec)
        wanted = set(names) - set(self.view.spec.partitions)
        failed: SourceError | None = None
        for file in reversed(self.view.covered.values()):
            if not wanted:
                return
            try:
                schema = fetcher.files.metadata(file).schema
            except SourceError as error:
                failed = error
                continue
            typed = {field.name for field in schema if not pa.types.is_null(field.type)}
            if wanted & typed:
                wanted -= typed
                yield join(source.storage.root, file.path), schema
        if wanted and failed is not None:
            raise failed


NewestCheck = Callable[[], FileInfo | None]  # the file of the snapshot if it is the newest one


def _not_proven() -> FileInfo | None:
    """The check of a state that was found not to be the newest."""
    return None


def known_view(storage: Storage) -> tuple[View, NewestCheck] | None:
    """The snapshot that was the newest one when the cache on disk last saw the index, and the check, which has begun,
    whether it still is. None where the cache does not know one, or it cannot be read any more.

    The check asks the same as an opening of the index: the listing, the next number, which a listing may lack, and the
    spec. Its requests are made side by side, so that it takes as long as one of them."""
    known = storage.expect_last(SNAPSHOT_FOLDER) if isinstance(storage, CachedStorage) else None
    match = None if known is None else SNAPSHOT_NAME.fullmatch(known.path)
    if known is None or match is None:
        return None
    number, process = int(match[1]), os.getpid()

    def asked() -> tuple[FileInfo | None, bool, IndexSpec]:
        calls: list[Callable[[], Any]] = [
            lambda: next(reversed(snapshot_files(storage).values()), None),
            partial(is_there, storage, number + 1),
            partial(read_spec, storage),
        ]
        newest, has_next, spec = in_order(calls)
        return newest, has_next, spec

    begun = Begun(asked)
    try:
        snapshot = read_snapshot(storage, number)
        view = View(snapshot, read_segments(storage, snapshot))
    except ShadowError:
        begun.leave()
        return None

    def check() -> FileInfo | None:
        newest, has_next, spec = begun() if os.getpid() == process else asked()  # a fork has not its parent's threads
        check_spec(storage, spec, view.snapshot)
        return newest if newest == known and not has_next else None

    return view, check


class CurrentSnapshot:
    """The state from which queries are answered. Threads may share it: each query keeps the state that it began with. A
    pinned one stays at its snapshot."""

    def __init__(
        self, storage: Storage, view: View, pinned: bool, settings: ReadSettings, check: NewestCheck | None = None
    ) -> None:
        """`check` says whether the view is the newest one. Until it has, answers are read, and not given."""
        self._storage = storage
        self._pinned = pinned
        self._settings = settings
        self._learned = None if settings.disk is None else LearnedMaps(settings.disk)
        self._refreshing = threading.Lock()
        self._check = check
        self._state = self._opened(view)

    @property
    def state(self) -> State:
        """The state. If it is not proven to be the newest, this waits for the proof."""
        if self._check is not None:
            self._prove()
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self._check = state, None

    def _prove(self) -> None:
        """Wait for the check of the state, and move to the newest snapshot if it fails, as when an index is opened."""
        with self._refreshing:
            if self._check is None:
                return
            try:
                newest = self._check()
            except ShadowError:  # the index is opened again, which raises what is still wrong
                newest = None
            if newest is None:
                self._check = _not_proven
                self._move()
            else:
                self._state = replace(self._state, newest=newest)
            self._check = None

    def _opened(self, view: View) -> State:
        source = _source(view)
        if source is None:
            return State(self._storage.root, view, None, None)
        quarter = self._settings.cache_bytes // 4
        pages = quarter if self._settings.keep_pages else 0
        maps = self._storage if self._settings.page_maps else None
        digest_checks = DigestChecks(source.storage, view.spec.format, view.spec.read_options)
        action = Action.ASK_NEWEST if self._pinned else Action.BUILD_AGAIN
        fetcher = Fetcher(source.storage, view.spec, quarter, maps, pages, action, self._learned)
        return State(self._storage.root, view, source, fetcher, digest_checks)

    def save_maps(self, seldom: bool = False) -> None:
        """See `Index.save_maps`."""
        if self._learned is not None:
            self._learned.save(seldom)
            self._learned.cache.tidy()

    @property
    def is_pinned(self) -> bool:
        """Whether `refresh` leaves the snapshot as it is."""
        return self._pinned

    def pinned(self) -> Self:
        """The same state, pinned. Caches are shared."""
        if self._check is not None:
            self._prove()
        fixed = copy.copy(self)
        fixed._pinned = True
        return fixed

    def pinned_to(self, view: View) -> Self:
        """The same state at another view of the same index, pinned. Caches are shared, unless files are read in another
        way."""
        fixed = self.pinned()
        same_reads = view.spec.read_options == self.state.view.spec.read_options
        fixed.state = replace(self.state, view=view) if same_reads else self._opened(view)
        return fixed

    def refresh(self) -> bool:
        """Move to the newest snapshot, unless pinned. Returns whether there was a newer one. Unreachable where the
        store lists older snapshots only, though the present one is there."""
        if self._pinned:
            return False
        if self._check is not None:
            self._prove()
        with self._refreshing:
            return self._move()

    def _move(self) -> bool:
        """Move to the newest snapshot."""
        state = self._state
        newest = next(reversed(snapshot_files(self._storage).values()), None)
        if newest is not None and newest == state.newest:
            return False
        view = open_view(self._storage)
        if view.snapshot.number < state.view.snapshot.number:
            self._check_is_gone(state.view.snapshot)
        moved = view.snapshot != state.view.snapshot
        if moved:  # a full build may have another spec
            same_spec = view.spec == state.view.spec
            state = replace(state, view=view, source=_source(view)) if same_spec else self._opened(view)
        self._state = replace(state, newest=newest)
        return moved

    def _check_is_gone(self, present: Snapshot) -> None:
        """Raise Unreachable where a snapshot that a listing lacks can be read."""
        try:
            is_there = read_snapshot(self._storage, present.number).commit_id == present.commit_id
        except SnapshotNotFound:
            return
        if is_there:
            what = f"the store does not list snapshot {present.number}, which is there, and is answered from"
            raise Unreachable(what, self._storage.root, action=Action.RUN_AGAIN_ANSWERING)

    def answer(self, read: Callable[[State], tuple[Result, bool]]) -> Result:
        """Read an answer from the current state. `read` returns it, and whether it lacks a file of the index. Where a
        vacuum has removed such a file (or `read` raises IndexFileGone), read it again from a newer snapshot, which does
        not need that file. Damage on a remote store is believed once a second look finds it.

        IndexFileGone where no snapshot is newer, SnapshotNotFound where the pinned one was vacuumed."""
        if self._check is not None:
            state = self._state
            try:
                answer, lacks_a_file = read(state)
            except (GnomonError, OSError):  # it is read again below, from the proven state
                lacks_a_file = True
            if self.state.view is state.view and not lacks_a_file:
                return answer
        while True:
            state = self._state if self._check is None else self.state
            try:
                try:
                    answer, lacks_a_file = read(state)
                except (DamagedIndexFile, DamagedSource):
                    source = state.source
                    if not (self._storage.is_remote or (source is not None and source.storage.is_remote)):
                        raise
                    answer, lacks_a_file = looked_again(partial(read, state))
                if not lacks_a_file or not self._moved_from(state.view):
                    return answer
            except IndexFileGone:
                if not self._moved_from(state.view):
                    raise

    def _moved_from(self, view: View) -> bool:
        """Refresh, and return whether there is a newer snapshot than `view`. SnapshotNotFound where the pinned one is
        gone."""
        if self._pinned:
            with looking_again():
                read_snapshot(self._storage, view.snapshot.number)  # raises SnapshotNotFound if a vacuum removed it
        self.refresh()
        return self.state.view is not view


def _source(view: View) -> SourceRoot | None:
    return None if view.spec.holds_values else source_of(view.spec, view.snapshot.folders)

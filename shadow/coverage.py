"""Which of the source's files, as they are now, a snapshot covers."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from shadow.errors import SourceNotFound, UsageError
from shadow.fingerprint import difference
from shadow.partitions import partition_columns
from shadow.segments import Segment
from shadow.spec import IndexSpec
from shadow.storage import FileInfo, Storage, is_hidden, is_local, join, split, storage_at


@dataclass(frozen=True)
class SourceRoot:
    """Where a source lies: a root folder, or one file in a folder (which then has no partition columns)."""

    storage: Storage
    single_file: str | None = None

    def list(self) -> list[FileInfo]:
        """The data files there are now, ordered by path. SourceNotFound when there are none."""
        if self.single_file is not None:
            return [self._the_file(self.single_file)]
        files = list(self.storage.list())
        if not files:
            raise SourceNotFound(f"{self.storage.root}: no data files there; expected some at or below it")
        for info in files:
            if not info.path.isascii() and not _is_text(info.path):
                raise SourceNotFound(f"{self.storage.root}: the file name {info.path!r} is not UTF-8; rename it")
        return files

    def _the_file(self, name: str) -> FileInfo:
        try:
            with self.storage.open(name) as file:
                return FileInfo(name, file.size, file.mtime_ns, file.etag)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise SourceNotFound(f"{self.location}: no such file; expected the one that is the source") from None

    def partitions(self, files: Sequence[FileInfo]) -> tuple[str, ...]:
        """The source's partition columns."""
        if self.single_file is not None:
            return ()
        return partition_columns([info.path for info in files], self.storage.root)

    @property
    def location(self) -> str:
        return join(self.storage.root, self.single_file or "")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # the name of a local file may be any bytes
        return False
    return True


def source_root(location: str) -> SourceRoot:
    """The root of a source given as a folder or as one file."""
    storage = storage_at(location)
    above, name = split(storage.root)
    if not name:
        return SourceRoot(storage)
    try:
        file = storage_at(above).open(name)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceNotFound(f"{storage.root}: no such file or folder; expected the root of the source") from None
    except IsADirectoryError:
        return SourceRoot(storage)
    file.close()
    if is_hidden(name):
        raise SourceNotFound(f"{storage.root}: engines skip a file of this name; rename it, or index a copy of it")
    return SourceRoot(storage_at(above), name)


def source_of(spec: IndexSpec) -> SourceRoot:
    """The source of an index; it need not be reachable yet: a look-up may never touch it. UsageError of a folder of
    values, which has none."""
    if spec.holds_values:
        raise UsageError("a folder of values has no source (write_btree made it); expected the index of a source")
    if not spec.single_file:
        return SourceRoot(storage_at(spec.source))
    above, name = split(spec.source)
    return SourceRoot(storage_at(above), name)


def check_apart(root: SourceRoot, index: Storage, what: str = "index") -> None:
    """Refuse (UsageError) an index, or another output, whose files would be taken for files of the source."""
    if root.single_file is not None:
        return
    try:
        below = PurePosixPath(_real(index.root)).relative_to(_real(root.storage.root))
    except ValueError:
        return
    if not any(map(is_hidden, below.parts)):
        raise UsageError(
            f"{index.root}: the {what} would lie among the files of its source {root.storage.root}; name a folder "
            "outside of it, or one that begins with _"
        )


def _real(root: str) -> str:
    """The root with links of the local disk followed; other stores have none."""
    return os.path.realpath(root) if is_local(root) else root


@dataclass(frozen=True)
class Diff:
    """The source's files against a snapshot's: `new` and `changed` are to be indexed; `dead` gives, for each segment,
    the ordinals of its files that changed or vanished (those dead before included)."""

    new: tuple[FileInfo, ...]
    changed: tuple[FileInfo, ...]
    vanished: tuple[str, ...]
    dead: dict[str, frozenset[int]]

    @property
    def to_index(self) -> tuple[FileInfo, ...]:
        return self.new + self.changed

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.changed or self.vanished)


def diff(files: Iterable[FileInfo], segments: Iterable[Segment]) -> Diff:
    """Compare a listing with what the segments cover, by path and fingerprint."""
    now = {info.path: info for info in files}
    covered: set[str] = set()
    changed: list[FileInfo] = []
    vanished: list[str] = []
    dead: dict[str, frozenset[int]] = {}
    for segment in segments:
        gone = set(segment.dead)
        for ordinal, entry in enumerate(segment.source_files):
            if ordinal in segment.dead:
                continue
            info = now.get(entry.path)
            if info is None:
                vanished.append(entry.path)
            elif difference(entry, info):
                changed.append(info)
            else:
                covered.add(entry.path)
                continue
            gone.add(ordinal)
        dead[segment.id] = frozenset(gone)
    rewritten = {info.path for info in changed}
    new = [info for path, info in now.items() if path not in covered and path not in rewritten]
    return Diff(tuple(new), tuple(changed), tuple(sorted(vanished)), dead)

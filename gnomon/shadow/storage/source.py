"""The storage of a source. Files below its root have relative paths; files of a catalog table elsewhere have a whole
location, maybe on another store."""

from collections.abc import Iterator

from gnomon.shadow.storage.contract import FileInfo, Hidden, OpenFile, Readable, ReadStats
from gnomon.shadow.storage.locations import host, is_absolute, storage_at


class SourceStorage:
    """Reads below a root and, by absolute paths, anywhere else. It connects to each other store once."""

    def __init__(self, below: Readable) -> None:
        self._below = below
        self._others: dict[str, Readable] = {}

    def __reduce__(self) -> tuple[type["SourceStorage"], tuple[Readable]]:
        return SourceStorage, (self._below,)

    @property
    def root(self) -> str:
        return self._below.root

    @property
    def is_remote(self) -> bool:
        return self._below.is_remote or any(other.is_remote for other in self._others.values())

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        if not is_absolute(path):
            return self._below.open(path, stats, known)
        place = host(path)
        if place not in self._others:
            self._others[place] = storage_at(place)
        return self._others[place].open(path.removeprefix(place).lstrip("/"), stats, known)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        return self._below.list(prefix, hidden, witness)


def source_storage(root: str) -> SourceStorage:
    """The storage of the source with this root."""
    return SourceStorage(storage_at(root))

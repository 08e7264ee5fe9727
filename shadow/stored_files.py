"""Files of an index that a snapshot names by path and size: put by builds, read in ranges by look-ups."""

from collections.abc import Sequence

from shadow.errors import CURE, AlreadyExists, DamagedIndexFile, FileChanged, FilesGone, IndexFileGone
from shadow.fingerprint import ANY_TIME
from shadow.storage import FileInfo, ReadStats, Storage


def put_again(storage: Storage, path: str, chunks: Sequence[bytes]) -> None:
    """Write a file of a build. An earlier run of the task may have done so: the same bytes stay, others are replaced
    (the build knows the checksum of one run only)."""
    try:
        storage.put_new(path, chunks)
    except AlreadyExists:
        if storage.read(path) != b"".join(chunks):
            storage.delete(path)
            storage.put_new(path, chunks)


def read_back(storage: Storage, path: str) -> bytes:
    """The bytes of a file that this program wrote. FilesGone where it is not there: a vacuum took it for a file of a
    program that died."""
    try:
        return storage.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FilesGone(
            f"{storage.root}/{path}: gone before it was read back; nothing was committed, run it again"
        ) from None


class StoredFile:
    """A file as `btree` wants it. Opened for each read: thousands may be cached, and one that was removed or replaced
    is noticed. `cure` is what to do when it is missing or damaged."""

    def __init__(
        self, storage: Storage, path: str, size: int, cure: str = CURE, stats: ReadStats | None = None
    ) -> None:
        self._storage = storage
        self._path = path
        self._cure = cure
        self._stats = stats
        self.name = f"{storage.root}/{path}"
        self.size = size

    def read_range(self, offset: int, length: int) -> bytes:
        try:
            with self._storage.open(self._path, self._stats, FileInfo(self._path, self.size, ANY_TIME)) as file:
                return file.read_range(offset, length)
        except FileChanged as error:
            found = self.size if error.size is None else error.size
            raise DamagedIndexFile(
                f"expected {self.size} bytes, found {found}", self.name, min(found, self.size), self._cure
            ) from None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise IndexFileGone(f"{self.name}: missing, though the snapshot names it; {self._cure}") from None

"""Files of an index that a snapshot names by path and size. Builds write them; look-ups read ranges of them."""

import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from gnomon.base.errors import Action
from gnomon.shadow.errors import (
    AlreadyExists,
    DamagedIndexFile,
    DamagedMetadata,
    FileChanged,
    FilesGone,
    IndexFileGone,
)
from gnomon.shadow.storage import ANY_TIME, FileInfo, ReadStats, Storage, looked_twice

MISSING = "missing, though the snapshot names it"


def put_again(storage: Storage, path: str, chunks: Sequence[bytes]) -> None:
    """Write a file of a build. If an earlier run of the task wrote the file, equal bytes stay, and different bytes are
    replaced: the build knows the checksum of one run only."""
    try:
        storage.put_new(path, chunks)
    except AlreadyExists:
        with suppress(FileNotFoundError):  # the store contradicts itself
            if storage.read(path) == b"".join(chunks):
                return
            storage.delete(path)
        storage.put_new(path, chunks)


def read_named(storage: Storage, path: str, size: int, crc32: int) -> bytes:
    """The bytes of a metadata file that another file names with its size and CRC. DamagedMetadata where, twice, it is
    missing or has others."""
    return looked_twice(storage, partial(_read_named, storage, path, size, crc32), (DamagedMetadata,))


def _read_named(storage: Storage, path: str, size: int, crc32: int) -> bytes:
    where = f"{storage.root}/{path}"
    try:
        data = storage.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DamagedMetadata(MISSING, where, action=Action.BUILD_FULL) from None
    if len(data) != size or zlib.crc32(data) != crc32:
        raise DamagedMetadata(
            "",
            where,
            min(len(data), size) if len(data) != size else 0,
            action=Action.BUILD_FULL,
            expected=f"{size} bytes with CRC {crc32:08x}",
            found=f"{len(data)} with {zlib.crc32(data):08x}",
        )
    return data


def read_back(storage: Storage, path: str) -> bytes:
    """The bytes of a file that this program wrote. FilesGone where a vacuum removed it as a file of a dead program."""
    try:
        return storage.read(path)
    except (FileNotFoundError, NotADirectoryError):
        what = "gone before it was read back; nothing was committed"
        raise FilesGone(what, f"{storage.root}/{path}", action=Action.RUN_AGAIN) from None


class StoredFile:
    """A file for a reader of `btree`. It is opened for each read: thousands may be cached, and a removed or replaced
    file is noticed. `action` is the advice when it is missing or damaged."""

    def __init__(
        self, storage: Storage, path: str, size: int, action: Action = Action.BUILD_FULL, stats: ReadStats | None = None
    ) -> None:
        self._storage = storage
        self._path = path
        self.action = action
        self._stats = stats
        self.name = f"{storage.root}/{path}"
        self.size, self.is_remote = size, storage.is_remote

    def read_range(self, offset: int, length: int) -> bytes:
        """The bytes of a range. DamagedIndexFile where, twice, the file has another size, IndexFileGone where it is
        missing."""
        look = partial(self._read_range, offset, length)
        return looked_twice(self._storage, look, (DamagedIndexFile, IndexFileGone))

    def _read_range(self, offset: int, length: int) -> bytes:
        try:
            with self._storage.open(self._path, self._stats, FileInfo(self._path, self.size, ANY_TIME)) as file:
                return file.read_range(offset, length)
        except FileChanged as error:
            found = self.size if error.size is None else error.size
            at = min(found, self.size)
            raise DamagedIndexFile(
                "", self.name, at, expected=f"{self.size} bytes", found=found, action=self.action
            ) from None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise IndexFileGone(MISSING, self.name, action=self.action) from None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(*span) for span in ranges]

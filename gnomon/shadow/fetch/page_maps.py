"""Page maps: the places of the pages of each source file, recorded on the store when it is indexed, so that the first
fetch from it reads no page headers; with value maps, only parts of pages. A file of the index has the blocks of several
source files, one after the other; each is read by its range.

The cache on disk keeps what fetches learned about pages, by the path and the state of each source file: size, times,
the store's name of the state, and the digest of its metadata."""

import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from weakref import WeakKeyDictionary

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedIndexFile, DamagedMetadata, UsageError
from gnomon.shadow.metadata import PageMapsEntry, SourceFileEntry, StoredFile, put_again, read_back
from gnomon.shadow.storage import DiskCache, ReadStats, Storage, looked_twice
from gnomon.sources import FORMATS, DamagedMaps, MappedFile, check_maps, maps_have_values

PAGE_MAPS_FOLDER = "_shadow/page_maps"
PAGE_MAPS_SUFFIX = ".maps"
READERS = 16  # files of page maps that are read at the same time


def check_format(format: str) -> None:
    """UsageError for a format whose files have no page maps."""
    if FORMATS[format].page_maps is None:
        having = ", ".join(name for name, one in FORMATS.items() if one.page_maps is not None)
        raise UsageError(f"--page-maps: files of format {format} have no page maps; expected {having}, or leave it out")


def page_maps_path(segment_id: str, number: int) -> str:
    """`_shadow/page_maps/<segment>/00003.maps`"""
    return f"{PAGE_MAPS_FOLDER}/{segment_id}/{number:05d}{PAGE_MAPS_SUFFIX}"


def write_page_maps(storage: Storage, path: str, blocks: Sequence[bytes]) -> list[PageMapsEntry]:
    """Write the blocks of some source files into one file, and read it back. Returns the place of each."""
    put_again(storage, path, blocks)
    ends = list(accumulate(map(len, blocks)))
    size = ends[-1] if ends else 0
    placed = [
        PageMapsEntry(path, size, end - len(block), len(block), zlib.crc32(block))
        for block, end in zip(blocks, ends, strict=True)
    ]
    data = read_back(storage, path)
    for entry in placed:
        _check(entry, data[entry.offset : entry.offset + entry.length], f"{storage.root}/{path}")
    return placed


def read_page_maps(storage: Storage, entry: PageMapsEntry, stats: ReadStats | None = None) -> bytes:
    """A block. IndexFileGone or DamagedIndexFile where its file is missing or has other bytes than were written."""
    file = StoredFile(storage, entry.path, entry.size, Action.BUILD_PAGE_MAPS, stats)

    def read() -> bytes:
        data = file.read_range(entry.offset, entry.length)
        _check(entry, data, file.name)
        return data

    return looked_twice(storage, read, (DamagedIndexFile,))


def prove_page_maps(storage: Storage, format: str, entry: PageMapsEntry, digest: str) -> bytes:
    """A block, after a check that it is whole and belongs to the source file with this digest. Errors as in
    `read_page_maps`."""
    data = read_page_maps(storage, entry)
    try:
        check_maps(format, data, digest)
    except DamagedMaps as error:
        raise damaged(storage, entry, error) from None
    return data


def damaged(storage: Storage, entry: PageMapsEntry, error: DamagedMaps) -> DamagedIndexFile:
    return DamagedIndexFile(str(error), f"{storage.root}/{entry.path}", entry.offset, action=Action.BUILD_PAGE_MAPS)


def without_maps(
    storage: Storage, format: str, files: Iterable[SourceFileEntry], deep: bool = False
) -> list[SourceFileEntry]:
    """The non-empty files without readable page maps; with `deep`, also those without value maps."""

    def lacks(file: SourceFileEntry) -> bool:
        if file.page_maps is None:
            return True
        try:
            maps = prove_page_maps(storage, format, file.page_maps, file.digest)
        except (DamagedMetadata, DamagedIndexFile):
            return True
        return deep and not maps_have_values(format, maps)

    there = [file for file in files if file.rows]
    with ThreadPoolExecutor(READERS) as pool:
        return [file for file, found in zip(there, pool.map(lacks, there), strict=True) if found]


def _check(entry: PageMapsEntry, data: bytes, where: str) -> None:
    found = zlib.crc32(data)
    if found != entry.crc32:
        raise DamagedIndexFile(
            "page maps",
            where,
            entry.offset,
            expected=f"CRC {entry.crc32:08x}",
            found=f"{found:08x}",
            action=Action.BUILD_PAGE_MAPS,
        )


SAVE_SECONDS = 30.0  # between two saves of the maps of one source file


class _Saved:
    """What is known of the maps of one source file: under which identity they are kept, how many there were at the last
    save, and when that was."""

    def __init__(self, identity: Sequence[object], count: int) -> None:
        self.identity = identity
        self.count = count
        self.at = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether the last save was some time ago."""
        return time.monotonic() - self.at >= SAVE_SECONDS


class LearnedMaps:
    """What fetches learned about pages, kept in a cache on disk. What cannot be used is ignored. Safe to share between
    threads."""

    def __init__(self, cache: DiskCache) -> None:
        self.cache = cache
        self._saved: WeakKeyDictionary[MappedFile, _Saved] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def opened(self, identity: Sequence[object], file: MappedFile) -> None:
        """Load the saved maps of a source file that was just opened. `identity`: its path and state."""
        known = ("maps", *identity)
        self._take_over(known, file)
        with self._lock:
            self._saved[file] = _Saved(known, file.learned)

    def fetched(self, file: MappedFile) -> None:
        """Save the maps of a file that was fetched from, if there are new ones and the last save was some time ago."""
        known = self._saved.get(file)
        if known is not None and known.count < file.learned and known.is_old:
            self._save(known, file)

    def save(self, seldom: bool = False) -> None:
        """Save the new maps of all files that are in memory; with `seldom`, as `fetched` does."""
        with self._lock:
            files = list(self._saved.items())
        for file, known in files:
            if known.count < file.learned and (known.is_old or not seldom):
                self._save(known, file)

    def _save(self, known: _Saved, file: MappedFile) -> None:
        """Save the maps, together with those that another process saved meanwhile."""
        known.at = time.monotonic()
        self._take_over(known.identity, file)
        known.count = file.learned
        self.cache.put(known.identity, file.export_learned())

    def _take_over(self, identity: Sequence[object], file: MappedFile) -> None:
        data = self.cache.get(identity)
        if data is not None:
            try:
                file.learn(data)
            except DamagedMaps as error:
                self.cache.discard(identity, error)

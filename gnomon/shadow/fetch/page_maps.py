"""Page maps: the places of the pages of each source file, recorded on the store when it is indexed, so that the first
fetch from it reads no page headers; with value maps, only parts of pages. A file of the index has the blocks of several
source files, one after the other; each is read by its range.

A local folder may keep what fetches learned about pages. Each source file has a file there, named after its path and
its state: size, times, the store's name of the state, and the digest of its metadata. The files may be lost, and
several processes may share the folder. A file that is damaged, or of another version or source file, is ignored: the
next save replaces it."""

import hashlib
import logging
import os
import secrets
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from weakref import WeakKeyDictionary

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedIndexFile, DamagedMetadata, UsageError
from gnomon.shadow.metadata import PageMapsEntry, SourceFileEntry, StoredFile, put_again, read_back
from gnomon.shadow.storage import ReadStats, Storage
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
    data = file.read_range(entry.offset, entry.length)
    _check(entry, data, file.name)
    return data


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


LOG = logging.getLogger("gnomon.fetch")
MAGIC = b"GNOMONM1"  # the last digit is the version
HASH_BYTES = 16
PAYLOAD_AT = len(MAGIC) + 2 * HASH_BYTES  # after the checksum of all that follows it, and the identity
SUFFIX, UNFINISHED = ".maps", ".unfinished"
SAVE_SECONDS = 30.0  # between two saves of the maps of one source file
LIMIT = 256 << 20  # bytes of the folder
FILE_LIMIT = 64 << 20  # bytes of one file
KEPT_AT_LEAST = 0.75  # of the limit, when the oldest files are removed
OLD_SECONDS = 3600  # after which a file that was not finished is removed

Identity = Sequence[object]


class _Saved:
    """What is known of the maps of one source file: where they are kept, how many there were at the last save, and when
    that was."""

    def __init__(self, identity: bytes, count: int) -> None:
        self.identity = identity
        self.count = count
        self.at = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether the last save was some time ago."""
        return time.monotonic() - self.at >= SAVE_SECONDS


class MapsFolder:
    """The folder of one index. Errors of the disk, and files that cannot be used, never reach a caller: the first is
    logged. Safe to share between threads."""

    def __init__(self, folder: str, limit: int = LIMIT) -> None:
        self._folder = Path(folder)
        self._limit = limit
        self._written = limit  # bytes since the folder was last measured: the first save measures it
        self._told = False
        self._saved: WeakKeyDictionary[MappedFile, _Saved] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def opened(self, identity: Identity, file: MappedFile) -> None:
        """Load the saved maps of a source file that was just opened. `identity`: its path and state."""
        key = hashlib.blake2b(repr(tuple(identity)).encode(), digest_size=HASH_BYTES).digest()
        self._take_over(key, file)
        with self._lock:
            self._saved[file] = _Saved(key, file.learned)

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
        body = known.identity + file.export_learned()
        try:
            self._write(self._path(known.identity), MAGIC + _hash(body) + body)
        except OSError as error:
            self._tell(str(error))

    def _path(self, identity: bytes) -> Path:
        return self._folder / f"{identity.hex()}{SUFFIX}"

    def _take_over(self, identity: bytes, file: MappedFile) -> None:
        path = self._path(identity)
        try:
            if path.stat().st_size > FILE_LIMIT:
                raise DamagedMaps(f"more than {FILE_LIMIT} bytes")
            data = path.read_bytes()
            body = data[len(MAGIC) + HASH_BYTES :]
            if data[: -len(body)] != MAGIC + _hash(body):
                raise DamagedMaps("damaged, or of another version")
            if body[:HASH_BYTES] != identity:
                raise DamagedMaps("of another source file")
            file.learn(data[PAYLOAD_AT:])
        except FileNotFoundError:
            pass
        except (OSError, DamagedMaps) as error:
            self._tell(f"{path}: {error}")

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file as a whole: no reader sees a part of it."""
        if len(data) > min(FILE_LIMIT, self._limit):
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._folder / f"{secrets.token_hex(8)}{UNFINISHED}"
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        self._written += len(data)
        if self._written > self._limit // 16:
            self._written = 0
            self._make_room()

    def _make_room(self) -> None:
        """Remove the files that were saved longest ago, if all together take more than the limit."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        goal = self._limit if total <= self._limit else KEPT_AT_LEAST * self._limit
        for saved, size, path in files:
            if path.endswith(UNFINISHED):
                if time.time() - saved > OLD_SECONDS:
                    Path(path).unlink(missing_ok=True)
            elif total > goal:
                Path(path).unlink(missing_ok=True)
                total -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Time, size and path of each file that processes wrote here. Others are not touched."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith((SUFFIX, UNFINISHED)):
                    try:
                        found = entry.stat()
                    except FileNotFoundError:  # another process removed it
                        continue
                    yield found.st_mtime, found.st_size, entry.path

    def _tell(self, what: str) -> None:
        """Log only the first failure. Later ones are usually the same, and cost no more than some reads."""
        if not self._told:
            self._told = True
            LOG.warning("the folder of learned page maps is of no use: %s", what)


def _hash(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=HASH_BYTES).digest()

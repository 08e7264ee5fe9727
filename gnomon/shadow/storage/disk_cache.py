"""A cache on a local disk: parts of remote files that never change, and other bytes that are costly to make again.

An entry is a file of the folder, named after a hash of its identity: where the bytes come from, in which state and
range. Engines skip these names, so that no build takes them for data of a source in the same folder. An entry begins
with a checksum of all that follows, and with that hash. An entry that is damaged, cut off, or has another identity is
a miss, and is removed. An entry appears by a rename, so that readers take no lock.

Writers take turns by a lock of the folder, for which none waits long. The file of the lock has the number of bytes of
all files, so that they never take more than the limit. A writer empties it before it changes the folder. If the writer
is killed, the next one counts the files again and removes what was not finished. All that a process does is relative
to the folder that it opened: if that is removed, the process makes a new one.

No error of the disk reaches a caller: the first is logged, and writes pause."""

import fcntl
import hashlib
import json
import logging
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

from gnomon.base.readers import is_second_look
from gnomon.shadow.errors import UsageError
from gnomon.shadow.storage.contract import FileInfo, Hidden, OpenFile, ReadStats, Storage
from gnomon.shadow.storage.locations import Place, as_location, endpoint_of, join
from gnomon.shadow.storage.remote_file import Range, RemoteFile
from gnomon.shadow.storage.waiting import check_may_wait

LOG = logging.getLogger("gnomon.cache")
FOLDER_BYTES = 1 << 30
ENTRY_BYTES = 64 << 20  # more are not kept
PART_BYTES = 8 << 20  # of one read of a file: longer reads are scans
SHARE = 4  # an entry takes at most one part in four of the limit
KEPT_AT_LEAST = 0.75  # of the limit, when the entries used longest ago are removed
BLOCK = 4096  # bytes: a file takes whole blocks of a disk
MAGIC = b"GNOMONC1"  # the last digit is the version
HASH_BYTES = 16
HEAD_BYTES = len(MAGIC) + 4 + HASH_BYTES
LOCK, UNFINISHED = "_gnomon.lock", ".unfinished"
NAME = re.compile(rf"_[0-9a-f]{{{2 * HASH_BYTES}}}({re.escape(UNFINISHED)})?", re.ASCII)
USED_SECONDS = 60.0  # the time of the last use is exact to this
UNUSED_SECONDS = 7 * 86400.0  # after which an entry is removed
SWEEP_SECONDS = 86400.0  # between two looks for such entries
TIDY_SECONDS = 3600.0  # between two questions of a process whether it is time for a look
PAUSE_SECONDS = 60.0  # without writes, after one that failed
TURN_TRIES, TURN_SECONDS = 10, 0.002  # of a wait for the lock

Identity = Sequence[object]


class DiskCache:
    """The bytes of identities, of at most `limit` bytes on the disk. Safe to share between threads, processes, and
    objects of this class with the same limit."""

    def __init__(self, folder: str, limit: int = FOLDER_BYTES) -> None:
        self._folder = os.path.abspath(folder)
        self._limit = limit
        self._told = False
        self._paused_until = self._tidy_at = float("-inf")

    def get(self, identity: Identity) -> bytes | None:
        """The bytes of an identity; None where they are not there. None also in a second look at a file, which the
        first one found damaged."""
        check_may_wait("the cache folder")
        if is_second_look():
            return None
        key = _hash(identity)
        path = f"{self._folder}/{_name(key)}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                found = os.fstat(descriptor)
                data = _checked(descriptor, found, key)
                if data is not None and abs(time.time() - found.st_mtime) > USED_SECONDS:
                    with suppress(OSError):  # a folder that may only be read
                        os.utime(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(str(error))
            return None
        if data is None:
            self._drop(path, "damaged, or of another identity or version")
        return data

    def put(self, identity: Identity, data: bytes) -> None:
        """Keep the bytes of an identity, unless they are large or the disk cannot hold them."""
        if HEAD_BYTES + len(data) <= min(ENTRY_BYTES, self._limit // SHARE):
            key = _hash(identity)
            body = key + data
            self._change(_name(key), (MAGIC, zlib.crc32(body).to_bytes(4, "big"), body))

    def discard(self, identity: Identity, why: object) -> None:
        """Drop bytes that are of no use, and log the reason."""
        self._drop(f"{self._folder}/{_name(_hash(identity))}", why)

    def tidy(self) -> None:
        """Remove the entries that nobody used for UNUSED_SECONDS, and the excess, about once a day."""
        if time.monotonic() >= self._tidy_at and os.path.isdir(self._folder):
            self._tidy_at = time.monotonic() + TIDY_SECONDS
            self._change()

    def _tell(self, what: str) -> None:
        """Log only the first failure. Later ones are usually the same, and cost no more than some reads."""
        if not self._told:
            self._told = True
            LOG.warning("the cache folder: %s; it is done without, and later failures are not logged", what)

    def _drop(self, path: str, why: object) -> None:
        with suppress(OSError):
            os.unlink(path)
        self._tell(f"{path}: {why}")

    def _change(self, name: str = "", chunks: Sequence[bytes] = ()) -> None:
        """Write an entry, if there is room for it and another writer does not take long; remove old ones when it is
        time."""
        if time.monotonic() < self._paused_until:
            return
        try:
            with self._turn() as turn:
                if turn is not None:
                    self._changed(*turn, name, chunks)
        except OSError as error:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            self._tell(str(error))

    @contextmanager
    def _turn(self) -> Iterator[tuple[int, int] | None]:
        """The descriptors of the folder and of its lock, which is held; None where another writer holds it."""
        os.makedirs(self._folder, 0o700, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
            try:
                yield (folder, lock) if _locked(lock) else None
            finally:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a fork may have the descriptor, too
                os.close(lock)
        finally:
            os.close(folder)

    def _changed(self, folder: int, lock: int, name: str, chunks: Sequence[bytes]) -> None:
        counted, now = _count(lock), time.time()
        need = on_disk(sum(map(len, chunks)))
        total, swept = counted or (0, now)
        os.ftruncate(lock, 0)
        if counted is None or total + need > self._limit or abs(now - swept) > SWEEP_SECONDS:
            total, swept = self._swept(folder, need), now
        if name and total + need <= self._limit:
            total += need - _put(folder, name, chunks)
        os.pwrite(lock, f"{total} {swept:.0f}\n".encode(), 0)

    def _swept(self, folder: int, need: int) -> int:
        """Remove what was not finished, what was unused for long and, where `need` more bytes find no room, what was
        used longest ago. Returns the bytes that the files take."""
        found: list[tuple[float, int, str]] = []
        oldest = time.time() - UNUSED_SECONDS
        with os.scandir(folder) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name) is None:
                    continue  # not ours
                try:
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    if entry.name.endswith(UNFINISHED) or status.st_mtime < oldest:
                        os.unlink(entry.name, dir_fd=folder)
                    else:
                        found.append((status.st_mtime, on_disk(status.st_size), entry.name))
                except FileNotFoundError:  # another program removed it
                    continue
        total = BLOCK + sum(size for _, size, _ in found)  # with the file of the lock
        if total + need > self._limit:
            goal = max(0, int(self._limit * KEPT_AT_LEAST) - need)
            for _, size, name in sorted(found):
                if total <= goal:
                    break
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                total -= size
        return total


def on_disk(size: int) -> int:
    """The bytes that a file of this size takes."""
    return -(-size // BLOCK) * BLOCK


def _hash(identity: Identity) -> bytes:
    return hashlib.blake2b(repr(tuple(identity)).encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def _name(key: bytes) -> str:
    return f"_{key.hex()}"


def _checked(descriptor: int, found: os.stat_result, key: bytes) -> bytes | None:
    """The bytes of an open entry; None unless it is whole and has this key."""
    size = found.st_size
    if not (stat.S_ISREG(found.st_mode) and HEAD_BYTES <= size <= ENTRY_BYTES):
        return None
    head, data = os.pread(descriptor, HEAD_BYTES, 0), os.pread(descriptor, size - HEAD_BYTES, HEAD_BYTES)
    checksum = zlib.crc32(data, zlib.crc32(key)).to_bytes(4, "big")
    return data if head == MAGIC + checksum + key and len(data) == size - HEAD_BYTES else None


def _locked(lock: int) -> bool:
    """Whether the lock was free, or became free soon. A process that is stopped may hold it."""
    for _ in range(TURN_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(TURN_SECONDS)
    return False


def _count(lock: int) -> tuple[int, float] | None:
    """The bytes of all files, and the time of the last sweep, by the file of the lock; None where it does not say."""
    found = re.fullmatch(rb"(\d{1,18}) (\d{1,12})\n", os.pread(lock, 64, 0))
    return None if found is None else (int(found[1]), float(found[2]))


def _put(folder: int, name: str, chunks: Sequence[bytes]) -> int:
    """Write a file as a whole: no reader sees a part of it. Returns the bytes that the file before it took."""
    unfinished = name + UNFINISHED
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(unfinished, flags, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(chunks)
        before = 0
        with suppress(FileNotFoundError):
            before = on_disk(os.stat(name, dir_fd=folder, follow_symlinks=False).st_size)
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise
    return before


def disk_cache(folder: Place | None, limit: int | None = None) -> DiskCache | None:
    """The cache in a folder; None without a folder. UsageError for an empty path, a URL, or a negative limit."""
    if folder is None:
        return None
    path = as_location(folder)
    if not path or "://" in path:
        raise UsageError("cache_folder", expected="a folder on a local disk (. is the current one)", found=repr(path))
    if limit is not None and limit < 0:
        raise UsageError("cache_folder_bytes", expected="a number of bytes, 0 or more", found=str(limit))
    return DiskCache(path, FOLDER_BYTES if limit is None else limit)


class CachedFile(RemoteFile):
    """A file in one known state, whose parts are first looked for in a cache. It is opened on its store when one is
    missing. With `held`, parts are kept when `keep` is called, after the caller has checked them."""

    def __init__(
        self,
        cache: DiskCache,
        name: str,
        known: FileInfo,
        open_file: Callable[[], OpenFile],
        more: Identity = (),
        held: bool = False,
    ) -> None:
        """`more` are parts of the identity besides the file's name and fingerprint."""
        super().__init__(name, known, None)
        self._cache = cache
        self._identity = ("part", *_place(name), known.size, known.mtime_ns, known.etag, *more)
        self._open_file = open_file
        self._file: OpenFile | None = None
        self._held: list[tuple[Identity, bytes]] | None = [] if held else None

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        found = [self._cached(span) for span in ranges]
        missing = [span for span, data in zip(ranges, found, strict=True) if data is None]
        read = iter(self._fetch(missing) if missing else ())
        return [next(read) if data is None else data for data in found]

    def _fetch(self, spans: Sequence[Range]) -> Sequence[bytes]:
        if self._file is None:
            self._file = self._open_file()
        parts = self._file.read_ranges(spans)
        for span, part in zip(spans, parts, strict=True):
            if not 0 < len(part) <= PART_BYTES:
                continue
            if self._held is None:
                self._cache.put((*self._identity, *span), part)
            else:
                self._held.append(((*self._identity, *span), part))
        return parts

    def _cached(self, span: Range) -> bytes | None:
        if not span[1]:
            return b""
        data = self._cache.get((*self._identity, *span)) if span[1] <= PART_BYTES else None
        return data if data is not None and len(data) == span[1] else None

    def keep(self) -> None:
        """Keep the parts that were read from the store."""
        for identity, part in self._held or ():
            self._cache.put(identity, part)
        self._held = []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class CachedStorage:
    """The remote storage of an index, read through a cache.

    Kept are parts of files that are opened as they are on record, files below the folders `unchanging`, whose names
    never come again, and files that were listed, each in the state that the last listing showed. A caller compares
    what it reads with its checksum, and reads again, without the cache, what is damaged."""

    is_remote = True

    def __init__(self, below: Storage, cache: DiskCache, unchanging: Sequence[str]) -> None:
        self._below = below
        self._cache = cache
        self._unchanging = tuple(f"{folder}/" for folder in unchanging)
        self._listed: dict[str, FileInfo] = {}
        self._last: dict[str, FileInfo | None] = {}  # of a listing, as noted in the cache

    @property
    def root(self) -> str:
        return self._below.root

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        if known is None:
            return self._below.open(path, stats)
        open_file = partial(self._below.open, path, stats, known)
        return CachedFile(self._cache, join(self.root, path), known, open_file)

    def read(self, path: str) -> bytes:
        listed = self._listed.get(path)
        if listed is None and not path.startswith(self._unchanging):
            return self._below.read(path)
        state = () if listed is None else (listed.size, listed.mtime_ns, listed.etag)
        identity = ("file", *_place(join(self.root, path)), *state)
        data = self._cache.get(identity)
        if data is None:
            data = self._below.read(path)
            self._cache.put(identity, data)
        return data

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        found = list(self._below.list(prefix, hidden, witness))
        self._listed = {info.path: info for info in found}
        last = found[-1] if found else None
        if last != self._last.get(prefix):
            self._last[prefix] = last
            if last is not None:
                self._cache.put(self._note(prefix), json.dumps(last[:4]).encode())
        return iter(found)

    def expect_last(self, prefix: str) -> FileInfo | None:
        """The last file that an earlier listing of a folder showed, maybe in another process; None where that is not
        known. It may be out of date. It counts as listed, so that the cache gives its bytes."""
        data = self._cache.get(self._note(prefix))
        try:
            path, size, mtime_ns, etag = json.loads(data or b"null")
        except (ValueError, TypeError):
            return None
        last = self._last[prefix] = FileInfo(path, size, mtime_ns, etag)
        self._listed = {path: last}
        return last

    def _note(self, prefix: str) -> Identity:
        return ("last", *_place(join(self.root, prefix)))


def _place(location: str) -> tuple[str, str]:
    """A location, and the address of its store: one name may be in several."""
    return location, endpoint_of(location)


def through(cache: DiskCache | None, storage: Storage, unchanging: Sequence[str] = ()) -> Storage:
    """The storage, read through the cache if it is remote and outlives this process."""
    if cache is None or not storage.is_remote or storage.root.startswith("memory://"):
        return storage
    return cast(Storage, CachedStorage(storage, cache, unchanging))

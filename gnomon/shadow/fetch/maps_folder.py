"""A local folder in which processes keep what their fetches learned about the pages of source files. The first fetch
from a file after a restart then reads as little as a later one.

Each source file has a file here, named after its path and its state: size, times, the store's name of the state, and
the digest of its metadata. The files may be lost, and several processes may share the folder. A file that is damaged,
or of another version or source file, is ignored: the next save replaces it."""

import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from gnomon.sources import DamagedMaps, MappedFile

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

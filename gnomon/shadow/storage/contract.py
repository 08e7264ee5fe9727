"""The interface of every store: the root of an index or a source, and the operations below it; the only comparison of
fingerprints (size, time, etag, ctime); the check that create-only puts work; and the words of errors, without secrets.

Paths are relative to the root, with forward slashes. A name that the store cannot hold is a StorageError. So is a store
that refuses, does not answer, or keeps failing, and a local file that the system does not let be read (Unreadable). The
error is one line: what is wrong, where, and what to do.
"""

import datetime as dt
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self, runtime_checkable
from weakref import WeakSet

from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.shadow.errors import AlreadyExists, StorageError, UnsafeStore

MOST_WORDS = 300  # characters
CODE = re.compile(r"<Code>(.*?)</Code>")
_BRANCH = re.compile(r"\s*↳\s*")  # of deltalake's trees of causes
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_QUERY = re.compile(r"""(?<=://)([^\s?]+)\?[^\s)\]>"']*?(?=[:;,.]*(?:[\s)\]>"']|$))""")
_TOOK = re.compile(r" in \d+(\.\d+)?(ns|µs|us|ms|s)\b")
_TRIES = re.compile(r", max_retries: \d+, retry_timeout: [\d.]+\w+\b")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
_WEB_QUERY = re.compile(r"""(\bhttps?://[^\s?#'"]*)[?#][^\s'")\]>]*""")


def without_secrets(text: str) -> str:
    """The text, with user and password removed from its URLs, and the query from those of the web."""
    return _WEB_QUERY.sub(r"\1", _PASSWORD.sub("", text))


def words_of(error: BaseException) -> str:
    """The first line of a library's error, of at most 300 characters, with deltalake's tree of causes and the code of
    an XML answer on it, and without colours, queries of URLs, secrets, and how long the library's tries took. Of an
    error of the operating system, what it says and of which file."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        return without_secrets(" ".join(text.split()))
    text = str(error).partition("\n\nDebug source")[0]
    code = CODE.search(text)
    text = _BRANCH.sub(": ", _COLOUR.sub("", text.partition("<?xml")[0])).strip().partition("\n")[0]
    text = _QUERY.sub(r"\1", _TRIES.sub("", _TOOK.sub("", text)))
    words = without_secrets(" ".join(text.split()).rstrip(" :"))[:MOST_WORDS]
    return f"{words} {code[1]}" if code else words


ANY_TIME = -1  # of a file whose name is never reused: only its size is on record


class Fingerprinted(Protocol):
    """A file of a listing, an open file, or a file in a segment's manifest."""

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def ctime_ns(self) -> int: ...


Identity = tuple[int, int, int]


class Identified(Protocol):
    """A file of a listing, or an open file."""

    @property
    def ctime_ns(self) -> int: ...

    @property
    def inode(self) -> tuple[int, int]: ...


def identity(found: Identified) -> Identity:
    """The ctime, device and inode of a local file, which differ from those of any other file with its name, size and
    time. Zeros on other stores. Each cache has them in its keys."""
    return (found.ctime_ns, *found.inode)


AT = " @"  # no etag has a space


def kept_etag(digest: str, revision: str) -> str:
    """The etag of a file in a store that keeps each revision: the digest of the content, which alone is compared, and a
    revision that has it."""
    return f"{digest}{AT}{revision}"


def kept_at(etag: str) -> str:
    """The revision at which a store keeps this state of a file for good; "" where a change replaces it."""
    return etag.partition(AT)[2]


def difference(known: Fingerprinted, found: Fingerprinted) -> str:
    """The difference between the found file and the one on record, in words; empty where there is none.

    If both have an etag, it decides: times are coarser, and a listing and a read may show different fractions of the
    same second."""
    if known.size != found.size:
        return f"then {known.size} bytes, now {found.size}"
    if known.etag and found.etag:
        return "" if known.etag.partition(AT)[0] == found.etag.partition(AT)[0] else "its etag differs"
    return "" if known.mtime_ns in (ANY_TIME, found.mtime_ns) else "its time differs"


def is_in_doubt(known: Fingerprinted, found: Fingerprinted) -> bool:
    """Whether a local file without a `difference` may have been rewritten with the old size and time: its ctime
    differs. New permissions, another hard link or a restored backup change the ctime, too, so its digest decides."""
    return bool(known.ctime_ns and found.ctime_ns) and known.ctime_ns != found.ctime_ns


COPYING = "._COPYING_"  # suffix of a file that `hdfs dfs -put` has not written completely
STAGED = "_staged-"  # prefix of a file that is being written, or was left behind; engines skip it


NO_INODE = (0, 0)  # of a file that is not on a local disk


class FileInfo(NamedTuple):
    """A file in a listing. `path` is relative to the root; the modification time is in nanoseconds; `etag` is the
    store's name of this state of the file, empty where it has none (`fingerprint` compares). `ctime_ns`, on local
    disks, is the time of the last change of the file or its attributes, which no program can set; 0 elsewhere.
    `inode`, on local disks, is the device and the number of the file on it: two files that take one name within a tick
    of the clock may have the same times."""

    path: str
    size: int
    mtime_ns: int
    etag: str = ""
    ctime_ns: int = 0
    inode: tuple[int, int] = NO_INODE


@dataclass
class ReadStats:
    """The number of ranged reads, and their bytes."""

    reads: int = 0
    bytes: int = 0


class OpenFile(RangeReader, Protocol):
    """An open file. It is a context manager, closed by the caller that opened it. Threads may share it.

    Reads give bytes of the file that was opened. They raise StorageError where the file ends early. They raise
    FileChanged or FileNotFoundError where another file has its name now and the store does not keep the old one."""

    @property
    def mtime_ns(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def ctime_ns(self) -> int: ...

    @property
    def inode(self) -> tuple[int, int]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Hidden = bool | frozenset[str]  # the hidden names that a listing shows: all, none, or these


class Readable(Protocol):
    """A root on some store, to read from. Any thread may use it. It can be pickled, and used after a fork, where it
    makes its own connections."""

    @property
    def root(self) -> str: ...

    @property
    def is_remote(self) -> bool:
        """Whether each read is a network round trip, so that independent reads are better made concurrently."""

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        """Open for ranged reads. FileNotFoundError when there is no such file (NotADirectoryError when a folder of its
        path is a file), IsADirectoryError for a folder.

        `known` is the file on record: another one is FileChanged. A store that compares during a read makes no call
        here. Then FileChanged or FileNotFoundError may come from a read."""

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        """Yield the files below a folder, ordered by path. Files and folders for which `is_hidden` is true are left
        out. With `hidden` True none is left out; with a set of names, hidden ones with these names are listed, too.

        `witness` is a file that should exist, after all files below the folder in the order of names, in the folder or
        beside it. A listing of an object store that lacks it, though it exists, is not believed. Without it a second
        listing proves the end of the first."""


@runtime_checkable
class Storage(Readable, Protocol):
    """A root on some store, to read from and to write to."""

    def read(self, path: str) -> bytes:
        """A whole small file. FileNotFoundError, NotADirectoryError, IsADirectoryError when there is none."""

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file that appears whole and durable, and only if the name is free (AlreadyExists). After a lost reply
        the put is repeated, and an existing file is compared with ours. StorageError where that fails, too: the file
        may or may not have been written."""

    def move_new(self, path: str, target: str) -> None:
        """Give a file another name, durable, and only if that is free (AlreadyExists). The file may have both names for
        a while, or, after a crash, for good; it never has none. Several programs may move the same file: one succeeds,
        and the others get AlreadyExists or FileNotFoundError, or succeed as well. On return the file is durable under
        its new name."""

    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder, if it exists, with all its content. Several programs may do so at once."""

    def delete_empty(self, path: str) -> None:
        """Remove a folder, and the folders below it, if no file is in them. Nothing happens on a store without folders.
        Other programs may put files there at the same time."""


def is_skipped(name: str, hidden: Hidden) -> bool:
    """Whether `Readable.list` leaves out a file or folder of this name."""
    return is_hidden(name) and hidden is not True and (hidden is False or name not in hidden)


def is_hidden(name: str) -> bool:
    """Whether engines skip a file or folder of this name, by the rule of Spark, which reads a partition folder
    `_a=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(COPYING)


LARGEST_DIFFERENCE = 3600.0  # seconds
PROBE_FOLDER = "_shadow/probe"

_probed: WeakSet[Storage] = WeakSet()


def probe(storage: Storage) -> None:
    """Check, once per Storage object and before its first write to an index, that the second of two create-only puts of
    one name fails. UnsafeStore when it succeeds, and a third one, too (a vacuum may have removed the first). Only the
    probe was written then, and it is removed."""
    if storage in _probed:
        return
    path = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    try:
        for content in (b"first", b"second", b"third"):
            storage.put_new(path, [content])
    except AlreadyExists:
        refused = True
    else:
        refused = False
    storage.delete(path)
    if not refused:
        raise UnsafeStore(
            f"of three create-only writes of {path} the later ones should have been refused, found "
            "that they replaced the first: two builds could lose each other's commits; nothing was written, use a "
            "store that honours the condition (If-None-Match)",
            storage.root,
        )
    _probed.add(storage)


def time_of_store(storage: Storage) -> float:
    """The current time in seconds, by the clock of the store's file times. StorageError where this machine's clock
    differs from it by more than an hour: one of them is wrong."""
    path = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    storage.put_new(path, [b"now"])
    try:
        with storage.open(path) as file:
            file.read_range(0, 1)  # an answer with a body
            found = file.mtime_ns / 1e9
    except FileNotFoundError:
        what = "the store does not have this file, which was put a moment ago; nothing was changed"
        raise StorageError(what, f"{storage.root}/{path}", action=Action.RUN_AGAIN) from None
    finally:
        storage.delete(path)
    if abs(found - time.time()) > LARGEST_DIFFERENCE:
        shown, here = (f"{dt.datetime.fromtimestamp(one, dt.UTC):%Y-%m-%d %H:%M:%S}Z" for one in (found, time.time()))
        raise StorageError(
            f"the store's clock says {shown}, this machine's {here}: ages of files cannot be trusted; nothing was "
            "changed, set the clock that is wrong",
            storage.root,
        )
    return found

"""Object stores, with obstore: S3 and compatible stores, Google Cloud Storage, Azure, and the memory of this process.

A put is one request with If-None-Match: * (or the store's equivalent), so it is create-only, and whole or not at all.
It has a random word in the object's metadata: if a reply is lost, the word shows whose object it is. There are no
folders: `delete_folder` and listings use name prefixes.
"""

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from gnomon.base.errors import Action
from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError
from gnomon.shadow.storage.concurrency import in_order
from gnomon.shadow.storage.contract import (
    ANY_TIME,
    STAGED,
    FileInfo,
    Hidden,
    ReadStats,
    difference,
    is_skipped,
    words_of,
)
from gnomon.shadow.storage.credentials import Credential, Vendor, vendor_of
from gnomon.shadow.storage.object_clients import Clients, Meaning, RangeRefused, connect, no_bucket, translated
from gnomon.shadow.storage.remote_file import Range, RemoteFile
from gnomon.shadow.storage.retries import Expired, Passing, Patience, next_of, retried
from gnomon.shadow.storage.waiting import looked_twice

OWNER = "gnomonput"  # metadata key of the put's random word (Azure requires a name of letters)
LARGEST_PUT = 5 << 30  # bytes: the limit of one S3 request. A multipart put has no condition that obstore can set
PAGE = 1000  # names
END = 64 << 10  # bytes
PIECE = 8 << 20  # bytes of each of two objects, compared at a time
COPIES = ("s3", "gs", "memory")  # stores whose copies are complete at their answer; Azure's are not
ORDERED = ("s3", "gs", "memory")  # stores that list names in order, from any name on
FOLDER_MARK = "_$folder$"  # suffix of an empty object with which older Hadoop programs mark a folder
PATIENCE = Patience()
Result = TypeVar("Result")


class ObjectFile(RemoteFile):
    """One state of an object. Each read has that state's etag as its condition, and fails if the object changed."""

    def __init__(self, storage: "ObjectStorage", info: FileInfo, stats: ReadStats | None) -> None:
        super().__init__(f"{storage.root}/{info.path}", info, stats)
        self._storage = storage

    def _fetch(self, spans: Sequence[Range]) -> Sequence[bytes]:
        return list(in_order([partial(self._fetch_one, span) for span in spans]))

    def _fetch_one(self, span: Range) -> bytes:
        data, found = self._storage.get(self._path, self, span)
        if how := difference(self, found):
            raise FileChanged(self.name, how, found.size)
        self.etag = self.etag or found.etag  # only the size of the object was on record
        return data


class ObjectStorage:
    """The objects below scheme://bucket/prefix. Each process makes its own connections when it first needs them. `of`
    is the root or the name of the table whose files these are, if they do not lie below its root: the table's
    credentials open them."""

    is_remote = True

    def __init__(self, root: str, patience: Patience = PATIENCE, of: str = "") -> None:
        self.root = root
        self._of = of
        self._scheme, _, rest = root.partition("://")
        self._bucket, _, self._prefix = rest.partition("/")
        if not self._bucket:
            raise StorageError(f"expected {self._scheme}://name/path, with the name of a bucket", root)
        self._patience = patience
        self._made: dict[str, tuple[Credential | None, Clients]] = {}  # by the prefix of their credentials
        self._turn = os.getpid(), threading.Lock()  # to connect
        self._proven: tuple[int, bool] | None = None  # process id, and whether copies fail if the target exists

    def __reduce__(self) -> tuple[type["ObjectStorage"], tuple[Any, ...]]:
        return type(self), (self.root, self._patience, *filter(None, [self._of]))

    # -- reading -------------------------------------------------------------------------------------------------------

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> ObjectFile:
        if known is None or not self._is_enough(known):
            found = self._head(path)
            if known is not None and (how := difference(known, found)):
                raise FileChanged(f"{self.root}/{path}", how, found.size)
            known = found
        return ObjectFile(self, known._replace(path=path), stats)

    def _is_enough(self, known: FileInfo) -> bool:
        """Whether reads can compare the file with the one on record, so that an open needs no call."""
        return bool(known.etag) or known.mtime_ns == ANY_TIME

    def _head(self, path: str) -> FileInfo:
        if not path and not self._prefix:
            raise IsADirectoryError(f"{self.root}: a bucket, not a file")
        try:
            return self._call(path, lambda: self._info(obstore.head(self._clients(path).reads, self._key(path)), path))
        except FileNotFoundError:
            if self._call(path, lambda: next(self._pages(path, 1), None)):
                raise IsADirectoryError(f"{self.root}/{path}: not a file") from None
            raise

    def read(self, path: str) -> bytes:
        def read() -> bytes:
            answer = obstore.get(self._clients(path).reads, self._key(path))
            return self._whole(path, bytes(answer.bytes()), answer.meta["size"])

        return self._call(path, read)

    def _whole(self, path: str, data: bytes, expected: int) -> bytes:
        """The bytes of an answer. Passing where some are missing."""
        if len(data) < expected:
            raise Passing(f"the store sent {len(data)} bytes of {expected}", f"{self.root}/{path}")
        return data

    def get(self, path: str, known: ObjectFile, span: Range) -> tuple[bytes, FileInfo]:
        """Bytes of an object, and the object's info. FileChanged where it is not `known`. That a known object is gone,
        changed or shorter is believed once another answer agrees."""
        key, condition = self._state(path, known)
        options: Any = {"range": (span[0], sum(span)), **condition}

        def get() -> tuple[bytes, FileInfo]:
            answer = obstore.get(self._clients(path).reads, key, options=options)
            data = self._whole(path, bytes(answer.bytes()), min(span[1], answer.meta["size"] - span[0]))
            return data, self._info(answer.meta, path)

        doubtful = (PreconditionError, RangeRefused)
        try:
            return looked_twice(self, partial(self._call, path, get, doubtful), (FileNotFoundError, *doubtful))
        except PreconditionError:  # Azurite gives this answer for a deleted object, too
            raise FileChanged(known.name, "its etag differs", self._head(path).size) from None
        except RangeRefused:
            found = self._head(path)
            raise FileChanged(known.name, difference(known, found) or "it changes now", found.size) from None

    def _state(self, path: str, known: ObjectFile) -> tuple[str, dict[str, str]]:
        """The key of an object, and the condition of a read: that the object is as it was opened."""
        return self._key(path), {"if_match": known.etag} if known.etag else {}

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        prefix = prefix.strip("/")
        before = len(prefix) + 1 if prefix else 0
        found = [self._info(item, self._path(item["path"])) for item in self._all(prefix, witness)]
        shown = (i for i in found if not any(is_skipped(name, hidden) for name in i.path[before:].split("/")))
        for info in sorted(shown):
            if info.size or not (info.path.endswith(FOLDER_MARK) or self._is_mark(info.path)):
                yield info

    def _pages(self, prefix: str, least: int = PAGE, after: str | None = None) -> Iterator[Sequence[Any]]:
        """List page by page, each requested when it is needed, from the first name after the key `after`."""
        found = obstore.list(self._clients(prefix).reads, self._key(prefix) or None, offset=after, chunk_size=least)
        while page := next_of(iter(found), self._patience.request, f"{self.root}/{prefix}"):
            yield page

    def _all(self, prefix: str, witness: str = "") -> Sequence[Any]:
        """The whole listing; if it breaks off, it starts again.

        A listing has no checksum, and the client takes a document of another kind for an empty page: an error or a
        sign-in page that is answered 200. So the listing's end is believed only where the `witness` follows it, or
        where a listing from its last name on has nothing more. Azure's client refuses other documents."""
        if self._scheme not in ORDERED:
            return self._call(prefix, lambda: [item for page in self._pages(prefix) for item in page])
        if witness:
            found = self._call(prefix, lambda: self._with_witness(prefix, witness))
            if found is not None:
                return found
        return self._call(prefix, lambda: self._to_the_end(prefix))

    def _with_witness(self, prefix: str, witness: str) -> Sequence[Any] | None:
        """The items before the witness; that there are none is believed after a second listing. None where the witness
        does not exist; Passing where it does and is not listed."""
        folder, key = witness.rpartition("/")[0], self._key(witness)
        below = f"{self._key(prefix)}/"
        items = self._items(prefix, self._pages(folder, after=None if folder == prefix else self._key(prefix)))
        if key in items:
            return [item for path, item in items.items() if path.startswith(below)] or self._to_the_end(prefix)
        try:
            obstore.get(self._clients(witness).reads, key).bytes()
        except FileNotFoundError:
            return None
        raise Passing(f"the store's listing lacks {witness}, which is there", f"{self.root}/{prefix}")

    def _to_the_end(self, prefix: str) -> Sequence[Any]:
        """The items, from listings that each go on after the last name, until one is empty."""
        items: dict[str, Any] = {}
        count = -1
        while len(items) > count:
            count = len(items)
            items |= self._items(prefix, self._pages(prefix, after=max(items, default=None)))
        return list(items.values())

    def _items(self, prefix: str, pages: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """The items of a listing by their keys. Passing where a key comes twice: a listing whose pages go round has no
        end."""
        items: dict[str, Any] = {}
        for item in chain.from_iterable(pages):
            if items.setdefault(item["path"], item) is not item:
                raise Passing(f"the store's listing has {item['path']} twice", f"{self.root}/{prefix}")
        return items

    def _is_mark(self, path: str) -> bool:
        """Whether an empty object is the mark of a folder (`name/`), which a listing shows without its slash."""
        try:
            self._call(path, lambda: obstore.head(self._clients(path).reads, self._key(path)))
        except FileNotFoundError:
            return True
        return False

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        key, where = self._key(path), f"{self.root}/{path}"
        if len(data) > LARGEST_PUT:
            raise StorageError(
                f"{len(data):,} bytes; a create-only put takes {LARGEST_PUT:,} at most",
                where,
                action=Action.MORE_BUCKETS,
            )
        token = secrets.token_hex(16)

        def put() -> None:
            try:
                store = self._clients(path).puts
                obstore.put(store, key, data, mode="create", use_multipart=False, attributes={OWNER: token})
            except AlreadyExistsError as error:  # or another put is under way (409 of S3)
                owner = self._owner(path)
                if owner is None:  # taken a moment ago, or by an object that this name does not reach
                    raise Passing(words_of(error), where) from None
                if owner != token:
                    raise AlreadyExists("the name is taken", where, action=Action.RUN_AGAIN) from None
            except FileNotFoundError:
                raise no_bucket(where) from None

        self._call(path, put)

    def _owner(self, path: str) -> str | None:
        """The random word of the put that wrote an object, empty where it has none; None where there is no object."""
        try:
            found = obstore.get(self._clients(path).reads, self._key(path), options={"head": True})
        except FileNotFoundError:
            return None
        return str(found.attributes.get(OWNER, ""))

    def move_new(self, path: str, target: str) -> None:
        """Move an object: copy it on the store, if the store refuses copies to existing names, or else read and put it.
        Delete it once the end of the copy was read."""
        if not (self._proves_copies(path) and self._copied(path, target)):
            self.put_new(target, [self.read(path)])
        if self._end(path) != self._end(target):
            raise StorageError(f"it does not hold what was copied from {path}", f"{self.root}/{target}")
        self.delete(path)

    def _end(self, path: str) -> tuple[int, bytes]:
        with self.open(path) as file:
            length = min(END, file.size)
            return file.size, file.read_range(file.size - length, length)

    def _copied(self, path: str, target: str) -> bool:
        """Whether the store made a copy: it may refuse an empty or very large object. AlreadyExists for a taken
        name."""
        key, where = self._key(target), f"{self.root}/{target}"
        in_doubt = False

        def copy() -> bool:
            nonlocal in_doubt
            try:
                obstore.copy(self._clients(target).puts, self._key(path), key, overwrite=False)
            except AlreadyExistsError as error:
                if self._owner(target) is None:  # another copy is under way
                    raise Passing(words_of(error), where) from None
                if not (in_doubt and self._are_equal(path, target)):
                    raise AlreadyExists("the name is taken", where, action=Action.RUN_AGAIN) from None
            except BaseError:
                in_doubt = True
                raise
            return True

        try:
            return self._call(path, copy)
        except AlreadyExists:
            raise
        except StorageError:
            return False

    def _are_equal(self, path: str, other: str) -> bool:
        with self.open(path) as one, self.open(other) as two:
            spans = [(begin, min(PIECE, one.size - begin)) for begin in range(0, one.size, PIECE)]
            return one.size == two.size and all(one.read_range(*span) == two.read_range(*span) for span in spans)

    def _proves_copies(self, path: str) -> bool:
        """Whether the store refuses a copy to a name that exists, and makes one to a free name. Tried once for each
        storage in a process, in the file's folder, under names that engines skip."""
        if self._scheme not in COPIES:
            return False
        if self._proven is None or self._proven[0] != os.getpid():
            folder, slash, _ = path.rpartition("/")
            one, two, free = (f"{folder}{slash}{STAGED}{secrets.token_hex(16)}" for _ in range(3))
            try:
                self.put_new(one, [b"first"])
                self.put_new(two, [b"second"])
                self._proven = (
                    os.getpid(),
                    self._refuses(one, two)
                    and self._copied(one, free)
                    and ([self.read(two), self.read(free)] == [b"second", b"first"]),
                )
            finally:
                for name in (one, two, free):
                    self.delete(name)
        return self._proven[1]

    def _refuses(self, path: str, target: str) -> bool:
        try:
            self._copied(path, target)
        except AlreadyExists:
            return True
        return False

    def delete(self, path: str) -> None:
        self._delete([self._key(path)], path)

    def delete_folder(self, path: str) -> None:
        keys = [item["path"] for item in self._all(path.strip("/"))]
        for first in range(0, len(keys), PAGE):
            self._delete(keys[first : first + PAGE], path)

    def delete_empty(self, path: str) -> None:
        """Do nothing: there are no folders."""

    def _delete(self, keys: Sequence[str], path: str) -> None:
        try:
            self._call(path, lambda: obstore.delete(self._clients(path).reads, keys))
        except FileNotFoundError:  # the answer of some stores
            if len(keys) > 1:
                for key in keys:
                    self._delete([key], path)

    # -- names, connections --------------------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        parts = path.split("/") if path else []
        if any(part in ("", ".", "..") for part in parts):
            raise StorageError("a part of the path is empty, . or ..", f"{self.root}/{path}", expected="names only")
        if self._scheme == "az" and "\\" in path:
            raise StorageError("a backslash in a name, which Azure takes for a slash", f"{self.root}/{path}")
        return "/".join([*filter(None, [self._prefix]), *parts])

    def _path(self, key: str) -> str:
        return key[len(self._prefix) + 1 :] if self._prefix else key

    def _info(self, meta: Any, path: str) -> FileInfo:
        """The info of an object. Times are in whole seconds, as in all answers but some listings. ETags are in quotes,
        as in HTTP; Azure's listings have none."""
        seconds = int(meta["last_modified"].timestamp())
        etag = meta["e_tag"] or ""
        if etag and not etag.endswith('"') and self._scheme != "memory":
            etag = f'"{etag}"'
        return FileInfo(path, meta["size"], seconds * 1_000_000_000, etag)

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _vended(self, path: str) -> tuple[Vendor | None, Credential | None]:
        """The vendor of credentials for a path, and those that open it now; None for those of the environment."""
        where = self._at(path)
        vendor = vendor_of(where)
        if self._of and (owner := vendor_of(self._of)) is not None and (found := owner.credential(where)) is not None:
            return owner, found
        return vendor, None if vendor is None else vendor.credential(where)

    def _clients(self, path: str) -> Clients:
        """The connections of this process with the credentials for a path. The first reads, which come side by side,
        share them: each connection takes milliseconds."""
        vendor, credential = self._vended(path)
        prefix = "" if vendor is None or credential is None else f"{vendor.name} {credential.prefix}"
        if (made := self._kept(prefix, credential)) is not None:
            return made
        if self._turn[0] != os.getpid():  # a fork has the lock, but not the thread that may hold it
            self._turn = os.getpid(), threading.Lock()
        with self._turn[1]:
            if (made := self._kept(prefix, credential)) is None:
                newest = None if credential is None else (lambda: self._vended(path)[1] or credential)
                made = connect(self._scheme, self._bucket, self._patience, newest)
                self._made[prefix] = credential, made
        return made

    def _kept(self, prefix: str, credential: Credential | None) -> Clients | None:
        known, made = self._made.get(prefix, (None, None))
        return made if made is not None and made.pid == os.getpid() and known is credential else None

    def _call(self, path: str, call: Callable[[], Result], meaning: Meaning = ()) -> Result:
        """Repeat a call until the store answers. Errors with a `meaning` are raised unchanged."""
        where, expired = self._at(path), 0

        def once() -> Result:
            nonlocal expired
            vendor, credential = self._vended(path)
            try:
                return translated(where, call, meaning, vendor, credential is not None)
            except Expired as error:
                expired += 1
                if vendor is None or credential is None:
                    self._made = {}
                elif expired == 1:
                    vendor.has_expired(credential)
                else:
                    what = f"{error.what}, though the catalog of {vendor.name} has just vended other credentials"
                    raise StorageError(what, where, action=Action.CHECK_GRANTS) from None
                raise

        return retried(once, self._patience, where)

"""Files on the web, which are only read: one file by its URL, and the data sets of a Hugging Face hub.

A file of a web server has the ETag or the time of each answer as its fingerprint, so the answer that brings bytes says
of which state they are. The hub keeps each commit. Its files are recorded with the digest of their content and the
commit, and are read at that commit, however the data set changes."""

import json
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.client import HTTPException
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

import obstore
from obstore.exceptions import NotSupportedError

from gnomon.base.errors import Action
from gnomon.shadow.errors import FileChanged, StorageError, UsageError
from gnomon.shadow.storage.contract import (
    ANY_TIME,
    FileInfo,
    Hidden,
    difference,
    is_hidden,
    is_skipped,
    kept_at,
    kept_etag,
    without_secrets,
)
from gnomon.shadow.storage.locations import access_action
from gnomon.shadow.storage.object_clients import CONTRADICTING, LOOPBACK, Meaning, RangeRefused, address_of, hub_token
from gnomon.shadow.storage.objects import PATIENCE, ObjectFile, ObjectStorage, Result
from gnomon.shadow.storage.remote_file import Range
from gnomon.shadow.storage.retries import Passing, Patience, retried

WHOLE = "the server does not answer with a part of the file (Range), or this is no file"
NO_STATE = "the server's answer has neither ETag nor Last-Modified, so that a change of the file would not be noticed"


class WebStorage(ObjectStorage):
    """The files below https://host/path, or http:// of this machine, each by its percent-encoded URL. Nothing is listed
    or written."""

    def __init__(self, root: str, patience: Patience = PATIENCE) -> None:
        super().__init__(root, patience)
        if "@" in self._bucket or "?" in root or "#" in root:
            what = "a URL with a user, a query or a fragment, which may hold secrets that an index would record"
            shown = re.split("[?#]", without_secrets(root))[0]
            raise UsageError(what, shown, expected="the URL without them, of a file that needs no login")
        if self._scheme == "http" and urlsplit(root).hostname not in LOOPBACK:
            raise UsageError(
                "http:// is for servers of this machine, since others could change answers", root, expected="https://"
            )

    # -- reading -------------------------------------------------------------------------------------------------------

    def _head(self, path: str) -> FileInfo:
        """The current state of a file, by a read of its first byte, which also proves that the server reads ranges."""
        if not path:
            self._refuse()

        def first() -> FileInfo:
            answer = obstore.get(self._clients(path).reads, self._key(path), options={"range": (0, 1)})
            answer.bytes()  # frees the connection
            return self._info(answer.meta, path)

        try:
            return self._call(path, first, (RangeRefused,))
        except RangeRefused:  # an empty file has no first byte
            found = self._call(path, lambda: self._info(obstore.head(self._clients(path).reads, self._key(path)), path))
        if found.size:
            raise StorageError(WHOLE, f"{self.root}/{path}", action=Action.COPY_FILE)
        return found

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read_range(0, file.size)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        self._refuse()

    def _state(self, path: str, known: ObjectFile) -> tuple[str, dict[str, str]]:
        """The key, without a condition: each answer names its state, and no server matches a weak etag."""
        return self._key(path), {}

    def _info(self, meta: Any, path: str) -> FileInfo:
        """The info of an answer. A weak etag does not promise the same bytes, so the time joins it."""
        seconds = int(meta["last_modified"].timestamp())
        etag = meta["e_tag"] or ""
        if not (etag or seconds):
            raise StorageError(NO_STATE, f"{self.root}/{path}", action=Action.COPY_FILE)
        if etag.startswith("W/"):
            etag = f"{etag} {seconds}"
        return FileInfo(path, meta["size"], seconds * 1_000_000_000, etag)

    def _key(self, path: str) -> str:
        try:
            names = [unquote(name, errors="strict") for name in super()._key(path).split("/")]
        except UnicodeDecodeError:
            names = ["/"]
        if any("/" in name for name in names):
            what = "a name in the URL has an encoded slash, or bytes that are not UTF-8"
            raise StorageError(what, f"{self.root}/{path}", expected="names of text")
        return "/".join(names)

    def _call(self, path: str, call: Callable[[], Result], meaning: Meaning = ()) -> Result:
        try:
            return super()._call(path, call, (*meaning, NotSupportedError))
        except NotSupportedError:
            raise StorageError(WHOLE, f"{self.root}/{path}", action=Action.COPY_FILE) from None

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        self._refuse()

    def move_new(self, path: str, target: str) -> None:
        self._refuse()

    def delete(self, path: str) -> None:
        self._refuse()

    def delete_folder(self, path: str) -> None:
        self._refuse()

    def delete_empty(self, path: str) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        what = "files there are only read, each by its own URL; nothing is listed or written"
        raise StorageError(what, self.root, action=Action.NAME_ONE_FILE)


ADDRESS = "hf://datasets/OWNER/NAME"
DATA_SET = re.compile(r"([^/@]+/[^/@]+)(?:@(refs/(?:convert/[^/]+|pr/\d+)|[^/]+))?(?:/(.*))?")
REVISIONS = {"~parquet": "refs/convert/parquet"}
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
# The metadata of an Iceberg or Paimon table, by which it is known, and refused. Other tables have theirs in hidden
# folders.
OF_TABLES = re.compile(
    r"(.*/)?(metadata/([^/]+\.metadata\.json(\.gz)?|version-hint\.text)|snapshot/snapshot-\d+|manifest/manifest[^/]*)"
)


class HubStorage(WebStorage):
    """The files of a data set, hf://datasets/OWNER/NAME[@REVISION][/folder]: of a folder the Parquet files, and any
    file by its path. A revision is a branch, a tag, a commit, or `~parquet`, the hub's own Parquet files; by default
    `main`. A slash in it is %2F."""

    def __init__(self, root: str, patience: Patience = PATIENCE) -> None:
        kind, _, rest = root.removeprefix("hf://").partition("/")
        if kind != "datasets":
            raise StorageError("not the address of a data set", root, expected=ADDRESS)
        match = DATA_SET.fullmatch(rest)
        self._name, revision, self._folder = match.groups("") if match else ("", "", "")
        self._revision = unquote(REVISIONS.get(revision, revision)) or "main"
        if revision:
            named = f"hf://datasets/{self._name}@{quote(self._revision, safe='')}"
            root = f"{named}/{self._folder}" if self._folder else named
        ObjectStorage.__init__(self, root, patience)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _is_enough(self, known: FileInfo) -> bool:
        return bool(kept_at(known.etag))

    def _head(self, path: str) -> FileInfo:
        place = self._place(path)
        if not self._name and "/" in path:
            raise StorageError("not the address of a data set", self.root, expected=ADDRESS)
        if not (self._name and place):
            raise IsADirectoryError(f"{self.root}/{path}: not a file")
        commit, _ = self._now()
        for item in self._tree(commit, place.rpartition("/")[0], False):
            if item["path"] == place:
                if item["type"] == "directory":
                    break
                return self._listed(item, path, commit)
        else:
            raise FileNotFoundError(f"{self.root}/{path}: no such file")
        raise IsADirectoryError(f"{self.root}/{path}: not a file")

    def get(self, path: str, known: ObjectFile, span: Range) -> tuple[bytes, FileInfo]:
        """As in ObjectStorage. A commit may be gone, after a rewrite of the history: then the same content is read at
        the newest commit, and another one is FileChanged."""
        try:
            return super().get(path, known, span)
        except FileNotFoundError:
            found = self._head(path)
            if how := difference(known, found):
                raise FileChanged(known.name, how, found.size) from None
            known.etag = found.etag
            return super().get(path, known, span)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        if prefix or not self._name:  # `prefix` is for the files of an index
            self._refuse()
        try:
            commit, names = self._now()
        except FileNotFoundError:
            what = f"the hub has no such data set, or no revision {self._revision}"
            raise StorageError(what, self.root, action=Action.SET_HF_TOKEN) from None
        before = len(self._folder) + 1 if self._folder else 0
        try:
            items = self._tree(commit, self._folder, True)
        except FileNotFoundError:  # no such folder
            items = []
        found = [self._listed(item, item["path"][before:], commit) for item in items if item["type"] == "file"]
        lacking = {name for name in names if name.startswith(f"{self._folder}/" if before else "")}
        if lacking := lacking.difference(item["path"] for item in items):
            raise StorageError(
                f"the hub's listing lacks {min(lacking)}, which is there", self.root, action=Action.RUN_AGAIN
            )
        for info in sorted(found):
            parts = info.path.split("/")
            is_shown = info.path.endswith(".parquet") or OF_TABLES.fullmatch(info.path) or any(map(is_hidden, parts))
            if is_shown and not any(is_skipped(name, hidden) for name in parts):
                yield info

    def _listed(self, item: Any, path: str, commit: str) -> FileInfo:
        """The info of an entry of a tree. A large file has the digest of its content, a small one that of git."""
        large = item.get("lfs") or item
        return FileInfo(path, large["size"], ANY_TIME, kept_etag(large["oid"], commit))

    def _info(self, meta: Any, path: str) -> FileInfo:
        """The size of the answer. Its etag and time are those of another server; a commit's files never change."""
        return FileInfo(path, meta["size"], ANY_TIME)

    def _place(self, path: str) -> str:
        """The path in the data set."""
        return "/".join(filter(None, [self._folder, path]))

    def _state(self, path: str, known: ObjectFile) -> tuple[str, dict[str, str]]:
        """The key of a file at its commit, which needs no condition."""
        return f"datasets/{self._name}/resolve/{kept_at(known.etag)}/{self._place(path)}", {}

    # -- the hub's interface -------------------------------------------------------------------------------------------

    def _now(self) -> tuple[str, Sequence[str]]:
        """The commit of the revision, and the names of its files as the hub counts them, which may be some only."""
        found, _ = self._ask(f"/api/datasets/{self._name}/revision/{quote(self._revision, safe='')}", _is_revision)
        return found["sha"], [one["rfilename"] for one in found.get("siblings") or ()]

    def _tree(self, commit: str, folder: str, recursive: bool) -> Sequence[Any]:
        """The files and folders in a folder at a commit, from all pages. FileNotFoundError without the folder."""
        place = f"/{quote(folder)}" if folder else ""
        page = f"/api/datasets/{self._name}/tree/{commit}{place}"
        items: dict[str, Any] = {}
        query = f"recursive={str(recursive).lower()}"
        while query:
            found, query = self._ask(f"{page}?{query}", _is_tree)
            is_new = [items.setdefault(item["path"], item) is item for item in found]
            if not all(is_new) or (query and not found):
                what = "a page of the hub's listing has no new names, or not only new ones"
                raise StorageError(what, self.root, action=Action.RUN_AGAIN)
        return list(items.values())

    def _ask(self, target: str, is_right: Callable[[Any], bool]) -> tuple[Any, str]:
        """The document at a path of the hub, and the query of its next page, "" after the last. The path stays, so that
        a link cannot lead the token to another server."""
        address = address_of("hf", self.root)
        token = hub_token(self.root)

        def ask() -> tuple[Any, str]:
            request = Request(address.rstrip("/") + target)
            if token:
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            try:
                with urlopen(request, timeout=self._patience.read) as answer:
                    body, links, url = answer.read(), answer.headers.get("Link", ""), answer.url
            except HTTPError as error:
                error.close()
                raise self._refusal(error.code) from None
            except (OSError, HTTPException) as error:
                raise self._no_answer(error) from None
            try:
                found = json.loads(body)
            except ValueError:
                found = None
            if not is_right(found) or urlsplit(url)[:2] != urlsplit(address)[:2]:
                raise Passing("the hub answers with another document than its own", self.root)
            following = NEXT.search(links)
            return found, urlsplit(following[1]).query if following else ""

        return retried(ask, self._patience, self.root)

    def _refusal(self, status: int) -> Exception:
        if status == 404:
            return FileNotFoundError(f"{self.root}: no such file")
        if status in (401, 403):
            return StorageError(f"the hub refuses access (status {status})", self.root, action=access_action(self.root))
        if status >= 500 or status in CONTRADICTING:
            return Passing(f"the hub does not answer: status {status}", self.root)
        return StorageError(f"the hub refuses: status {status}", self.root)

    def _no_answer(self, error: Exception) -> Exception:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return StorageError("the hub's certificate is not trusted", self.root, action=Action.TRUST_CERTIFICATE)
        return Passing(f"the hub does not answer: {reason or type(reason).__name__}", self.root)


def _is_revision(found: Any) -> bool:
    if not isinstance(found, dict) or not COMMIT.fullmatch(str(found.get("sha"))):
        return False
    names = found.get("siblings") or []
    return isinstance(names, list) and all(isinstance(one, dict) and "rfilename" in one for one in names)


def _is_tree(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(item, dict) and _is_entry(item) for item in found)


def _is_entry(item: Any) -> bool:
    large = item.get("lfs") or item
    if not isinstance(large, dict):
        return False
    is_file = item.get("type") == "file" and type(large.get("size")) is int and isinstance(large.get("oid"), str)
    return isinstance(item.get("path"), str) and (is_file or item.get("type") == "directory")

"""The store of a path or URL, and the storage of a source: files below its root have relative paths, files of a catalog
table elsewhere have a whole location, maybe on another store."""

import os
from collections.abc import Callable, Iterator
from importlib import import_module

from gnomon.base.errors import Action
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage.contract import (
    FileInfo,
    Hidden,
    OpenFile,
    Readable,
    ReadStats,
    Storage,
    without_secrets,
)
from gnomon.shadow.storage.local import LocalStorage

# Scheme: the module and the class of its store, imported on first use, and the package that it needs.
STORES = {
    "memory": ("gnomon.shadow.storage.objects", "ObjectStorage", "obstore"),
    "s3": ("gnomon.shadow.storage.objects", "ObjectStorage", "obstore"),
    "gs": ("gnomon.shadow.storage.objects", "ObjectStorage", "obstore"),
    "az": ("gnomon.shadow.storage.objects", "ObjectStorage", "obstore"),
    "https": ("gnomon.shadow.storage.web", "WebStorage", "obstore"),
    "http": ("gnomon.shadow.storage.web", "WebStorage", "obstore"),
    "hf": ("gnomon.shadow.storage.web", "HubStorage", "obstore"),
    "hdfs": ("gnomon.shadow.storage.webhdfs", "WebHdfsStorage", ""),
}
VENDED = ("s3", "gs", "az")  # stores for whose files a catalog may vend credentials
ENDPOINTS = {  # environment variables with the address of a store; the first one that is set counts
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "hf": ("HF_ENDPOINT",),
}
CREDENTIALS = {
    "s3": Action.SET_S3_KEYS,
    "gs": Action.SET_GOOGLE_ACCOUNT,
    "az": Action.SET_AZURE_KEYS,
    "hf": Action.SET_HF_TOKEN,
}
WRONG_CLOCK = "TimeTooSkewed"  # in the answer of S3 to a request whose time is far from the store's
Place = str | os.PathLike[str]
"""A path, which may begin with `~` for the user's own folder, or a URL."""
ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}


def as_location(place: Place) -> str:
    """A place as text, with the user's folder in place of `~`. A folder that is named `~` is `./~`. UsageError for an
    object that is no path."""
    try:
        location = os.fspath(place)
    except TypeError:
        raise UsageError("a place", expected="a path or URL", found=repr(place)) from None
    if isinstance(location, bytes):
        raise UsageError("a place", expected="a path or URL as text", found=repr(place))
    if "\0" in location:
        raise UsageError("a null character", location, expected="a path or URL without one")
    return os.path.expanduser(location) if location.startswith("~") else location


def missing(package: str, error: ImportError) -> str:
    """The words for a package that cannot be imported: it is not installed, or it lacks a module that it imports."""
    name = (error.name or package).partition(".")[0]
    if name == package:
        return f"the package {package}, which is not installed"
    return f"the package {package}, which needs {name}, which is not installed"


def storage_at(place: Place | Storage, of: str = "") -> Storage:
    """The storage of a path or URL; a storage is its own. The part after the scheme is not percent-decoded, as in
    Spark. `of` is the root or the name of the table whose files these are, if they do not lie below its root: the
    table's credentials open them."""
    if not isinstance(place, str | os.PathLike) and isinstance(place, Storage):
        return place
    location = as_location(place)
    if not location:
        raise UsageError("an empty path; expected a folder (. is the current one)")
    scheme, colon, rest = location.partition("://")
    if location.startswith("file:/") and not colon:
        return LocalStorage(location.removeprefix("file:"))
    if not colon:
        scheme, single, _ = location.partition(":/")
        if single and ALIASES.get(scheme, scheme) in STORES:
            raise UsageError(f"expected {scheme}:// with two slashes; a folder of this name is ./{location}", location)
        return LocalStorage(location)
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise StorageError("a file URL names no host", location, expected="file:///path")
        if not slash:
            raise UsageError("expected file:///path", location)
        return LocalStorage(slash + path)
    return _remote(location, ALIASES.get(scheme, scheme), rest, of)


def _remote(location: str, scheme: str, rest: str, of: str) -> Storage:
    shown = without_secrets(location)
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise StorageError(f"stores of {scheme}:// are not known", shown, expected=f"a path, or one of {known}")
    module, name, package = STORES[scheme]
    try:
        store: Callable[..., Storage] = getattr(import_module(module), name)
    except ImportError as error:
        raise StorageError(
            f"stores of {scheme}:// need {missing(package, error)}; expected it here: pip install {package}",
            shown,
        ) from None
    if scheme in ("http", "https") and rest.endswith("/"):
        what = "the URL of a folder, and a web server lists no files"
        raise UsageError(what, shown, expected="the URL of one file, without a slash at its end")
    host, _, path = rest.partition("/")
    parts = path.strip("/").split("/") if path.strip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError("a part of the path is empty, . or ..; expected names only", shown)
    root = "/".join([f"{scheme}://{host}", *parts])
    return store(root, of=of) if of and scheme in VENDED else store(root)


def endpoint_of(root: str) -> str:
    """The address of a root's store, if the environment names one; "" for the store's default address."""
    scheme = root.partition("://")[0]
    return next((os.environ[name] for name in ENDPOINTS.get(scheme, ()) if os.environ.get(name)), "")


def access_action(location: str, words: str = "") -> Action:
    """The advice for a store that refuses access to a location. `words` are the store's."""
    if WRONG_CLOCK in words:
        return Action.SET_CLOCK
    scheme = location.partition("://")[0]
    return CREDENTIALS.get(ALIASES.get(scheme, scheme), Action.CHECK_STORE_SETTINGS)


def is_local(root: str) -> bool:
    """Whether a storage's root is a path that every program on this machine can open."""
    return root.startswith("/")


def split(root: str) -> tuple[str, str]:
    """The root above a storage's root, and its name there; no name where there is nothing above."""
    above, _, name = root.rpartition("/")
    if above.endswith(":/") or not name:  # s3://bucket, /
        return root, ""
    return above or "/", name


def join(root: str, path: str) -> str:
    """The location of a path below a storage's root. An absolute path is returned unchanged."""
    if is_absolute(path):
        return path
    return f"{root.rstrip('/')}/{path}" if path else root


def is_absolute(path: str) -> bool:
    """Whether the path of a file is a whole location, and not below the root of its source."""
    return path.startswith("/") or "://" in path


def host(location: str) -> str:
    """The root of a storage's store: /, s3://bucket."""
    scheme, colon, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if colon else "/"


def below(root: str, location: str) -> str:
    """The path of a location below a storage's root, "" for the root. Another location is returned unchanged."""
    return "" if location == root else location.removeprefix(root.rstrip("/") + "/")


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
            self._others[place] = storage_at(place, of=self.root)
        return self._others[place].open(path.removeprefix(place).lstrip("/"), stats, known)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        return self._below.list(prefix, hidden, witness)


def source_storage(root: str) -> SourceStorage:
    """The storage of the source with this root."""
    return SourceStorage(storage_at(root))

"""The calls of WebHDFS: a request to the namenode and, for bytes, a request to the datanode that it names.

They use the HTTP client of the standard library. Datanodes close each connection after an answer, so a pool would be
useless; without one, threads share nothing and a fork inherits nothing.

A cluster that Kerberos protects asks for a delegation token. Hadoop's tools write tokens to a file (`hdfs fetchdt`),
and YARN gives each container such a file. It has the form of Hadoop's `Credentials`: "HDTS", a version, the number of
tokens, and of each its alias, identifier, password, kind and service, each after its length. WebHDFS takes a token as
text: the same four parts after the alias, in base64 for URLs without padding."""

import base64
import getpass
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from gnomon.base.errors import Action
from gnomon.shadow.errors import AlreadyExists, StorageError
from gnomon.shadow.storage.contract import without_secrets
from gnomon.shadow.storage.retries import Expired, Passing, Patience

TOKEN = "GNOMON_WEBHDFS_TOKEN"  # setting: a token as WebHDFS gives it
FILE = "HADOOP_TOKEN_FILE_LOCATION"  # setting of Hadoop's: a file of tokens
MAGIC, PLAIN = b"HDTS", 0  # the version that Hadoop writes by default
KINDS = (b"HDFS_DELEGATION_TOKEN", b"WEBHDFS delegation", b"SWEBHDFS delegation")
LONGEST = 1 << 20  # bytes of a part


class _Token(NamedTuple):
    kind: bytes
    text: str


def delegation_token() -> str | None:
    """The token to call WebHDFS with, from the settings; None where they name none. Where a file has tokens of several
    namenodes, their identifiers differ, and the settings have to name a file with one. StorageError for a file that
    cannot be read, or has no such token."""
    if os.environ.get(TOKEN):
        return os.environ[TOKEN]
    path = os.environ.get(FILE)
    if not path:
        return None
    try:
        status = os.stat(path)
        state = (status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino, status.st_size)
        found = _tokens(path, state)
    except OSError as error:
        what = f"the token file of {FILE} cannot be read: {error.strerror}"
        raise StorageError(what, path, action=Action.FETCH_HADOOP_TOKEN) from None
    texts = {token.text for token in found if token.kind in KINDS}
    if len(texts) != 1:
        what = f"the token file of {FILE} has {len(texts)} tokens of HDFS"
        raise StorageError(what, path, expected="one", action=Action.FETCH_HADOOP_TOKEN)
    return texts.pop()


@lru_cache(8)
def _tokens(path: str, state: tuple[int, ...]) -> list[_Token]:
    """The tokens of a file in this state."""
    with open(path, "rb") as file:
        data = file.read()
    if data[: len(MAGIC)] != MAGIC or len(data) <= len(MAGIC) or data[len(MAGIC)] != PLAIN:
        found = f"{data[: len(MAGIC) + 1]!r}"
        raise StorageError("not a token file", path, 0, expected=f"{MAGIC + bytes([PLAIN])!r}", found=found)
    reader = _Reader(data, len(MAGIC) + 1, path)
    return [reader.token() for _ in range(reader.number())]


class _Reader:
    """Reads Hadoop's numbers and byte strings. StorageError where the file ends early."""

    def __init__(self, data: bytes, position: int, path: str) -> None:
        self._data = data
        self._position = position
        self._path = path

    def number(self) -> int:
        """A number as `WritableUtils.writeVInt` writes it: one byte from -112 to 127, or minus 112 or 120 minus the
        number of bytes that follow, highest first."""
        first = int.from_bytes(self._taken(1), "big", signed=True)
        if first >= -112:
            return first
        is_negative, length = first < -120, -120 - first if first < -120 else -112 - first
        value = int.from_bytes(self._taken(length), "big")
        return ~value if is_negative else value

    def part(self) -> bytes:
        length = self.number()
        if not 0 <= length <= LONGEST:
            raise StorageError(f"a length of {length} in a token file", self._path, self._position)
        return self._taken(length)

    def token(self) -> _Token:
        self.part()  # the alias
        begin = self._position
        _, _, kind, _ = self.part(), self.part(), self.part(), self.part()
        text = base64.urlsafe_b64encode(self._data[begin : self._position]).decode().rstrip("=")
        return _Token(kind, text)

    def _taken(self, length: int) -> bytes:
        if self._position + length > len(self._data):
            raise StorageError("a token file that ends early", self._path, len(self._data))
        found = self._data[self._position : self._position + length]
        self._position += length
        return found


ADDRESS = "GNOMON_WEBHDFS"  # setting: the namenode's HTTP address
PORT = 9870  # default port of a namenode
PREFIX = "/webhdfs/v1"
PASSING = ("StandbyException", "RetriableException", "SafeModeException", "LeaseExpiredException", "BlockMissing")
TOKEN_ERROR = "InvalidToken"
NO_DATANODE = ("Failed to find datanode", "could only be written to 0 of")
PASSING_WORDS = ("safe mode", "Could not obtain block", *NO_DATANODE)
# Seconds until a datanode that did not answer is asked again. A namenode names a dead one for ten minutes.
AVOIDED_SECONDS = 60.0


def _is_object(found: Any) -> bool:
    return isinstance(found, dict)


def _is_status(found: Any) -> bool:
    return _is_object(found) and found.keys() >= {"pathSuffix", "type", "length", "modificationTime"}


def _has_status(found: Any) -> bool:
    return _is_object(found) and _is_status(found.get("FileStatus"))


def _has_statuses(found: Any) -> bool:
    statuses = found.get("FileStatuses") if isinstance(found, dict) else None
    listed = statuses.get("FileStatus") if isinstance(statuses, dict) else None
    return isinstance(listed, list) and all(map(_is_status, listed))


def _has_boolean(found: Any) -> bool:
    return _is_object(found) and isinstance(found.get("boolean"), bool)


# The form of the answer to an operation. A rename with options is answered without a document.
MEMBERS: Mapping[str, Callable[[Any], bool]] = {
    "GETFILESTATUS": _has_status,
    "LISTSTATUS": _has_statuses,
    "MKDIRS": _has_boolean,
    "DELETE": _has_boolean,
}


class Answer(NamedTuple):
    status: int
    location: str  # the target of a redirect
    body: bytes


class _Avoided:
    """The datanodes of a namenode that did not answer lately, for all threads of this process."""

    def __init__(self) -> None:
        self._until: Mapping[str, float] = {}  # by address; never changed, so that threads need no lock

    def add(self, host: str) -> None:
        """Avoid a datanode. The namenode knows it by its address, and its redirect has its name."""
        with suppress(OSError):  # a name without an address cannot be avoided
            self._until = {**self._until, socket.gethostbyname(host): time.monotonic() + AVOIDED_SECONDS}

    def clear(self) -> None:
        self._until = {}

    def option(self) -> dict[str, str]:
        """The option of a call that lets the namenode name others."""
        now = time.monotonic()
        found = [host for host, until in self._until.items() if until > now]
        return {"excludedatanodes": ",".join(found)} if found else {}


_AVOIDED: dict[str, _Avoided] = {}  # by the namenode's address


class WebHdfs:
    """A namenode, as one user of it. Errors: FileNotFoundError, NotADirectoryError, AlreadyExists, StorageError;
    Passing for transient failures, which may be retried where that is safe."""

    def __init__(self, cluster: str, address: str, user: str, patience: Patience) -> None:
        self._cluster = cluster
        self._address = address
        self._user = user
        self._patience = patience
        self._avoided = _AVOIDED.setdefault(address, _Avoided())

    @classmethod
    def of(cls, root: str, patience: Patience) -> Self:
        """The namenode of a root hdfs://host:port/path."""
        host = urlsplit(root).hostname
        address = os.environ.get(ADDRESS) or (f"http://{host}:{PORT}" if host else "")
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
            raise StorageError(ADDRESS, root, expected=f"http://namenode:{PORT}", found=repr(without_secrets(address)))
        cluster = "/".join(root.split("/", 3)[:3])
        return cls(cluster, address, os.environ.get("HADOOP_USER_NAME") or getpass.getuser(), patience)

    def json(self, method: str, operation: str, place: str, **options: str) -> dict[str, Any]:
        """The JSON answer of a call about names. `Passing` where the answer is another document than MEMBERS says."""
        answer = self._ask(method, operation, place, options)
        if answer.status != 200:
            raise self._refusal(place, answer)
        found: Any = None
        with suppress(ValueError):
            found = json.loads(answer.body) if answer.body else {}
        if not MEMBERS.get(operation, _is_object)(found):
            raise self._other_document(place, f"an answer to {operation}")
        return dict(found)

    def fetch(self, place: str, offset: int, length: int) -> bytes:
        """A range of a file."""
        answer = self._moved("GET", "OPEN", place, {"offset": str(offset), "length": str(length)})
        if answer.status != 200:
            raise self._refusal(place, answer)
        return answer.body

    def create(self, place: str, data: bytes) -> None:
        """Write a file, over any existing one, and close it."""
        answer = self._moved("PUT", "CREATE", place, {"overwrite": "true"}, data)
        if answer.status != 201:
            raise self._refusal(place, answer)

    def _moved(
        self, method: str, operation: str, place: str, options: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """The answer of a call that moves bytes: that of the datanode which the namenode names."""
        answer = self._ask(method, operation, place, {**options, **self._avoided.option()})
        if not answer.location:
            if answer.status < 300:  # of a namenode, which has no bytes
                raise self._other_document(place, f"a datanode for {operation}")
            if any(words in answer.body.decode(errors="replace") for words in NO_DATANODE):
                self._avoided.clear()  # all others are gone, too
            return answer
        try:
            return self._send(method, place, answer.location, body)
        except Passing:
            self._avoided.add(urlsplit(answer.location).hostname or "")
            raise

    def _ask(self, method: str, operation: str, place: str, options: Mapping[str, str]) -> Answer:
        token = delegation_token()
        login = {"user.name": self._user} if token is None else {"delegation": token}
        query = urlencode({"op": operation, **login, **options}, quote_via=quote)
        return self._send(method, place, f"{self._address.rstrip('/')}{PREFIX}{quote(place)}?{query}")

    def _send(self, method: str, place: str, url: str, body: bytes | None = None) -> Answer:
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._patience.connect)
        try:
            connection.connect()
            # A datanode answers a put when all replicas are written. It waits for a dead machine of them for 60 s.
            connection.sock.settimeout(self._patience.read * (1 if body is None else 2))
            headers = {"Content-Type": "application/octet-stream"}
            connection.request(method, f"{parts.path}?{parts.query}", body, headers)
            response = connection.getresponse()
            location = response.getheader("Location", "") if response.status == 307 else ""
            return Answer(response.status, location, response.read())
        except (OSError, HTTPException) as error:
            server = f"{parts.hostname}:{parts.port}"
            what = f"{server} does not answer: {error or type(error).__name__}"
            raise Passing(what, f"{self._cluster}{place}") from None
        finally:
            connection.close()

    def _other_document(self, place: str, expected: str) -> Passing:
        """The error for a success with another document, as of a proxy that wants a sign-in."""
        what = f"the store answers with another document than {expected}; {ADDRESS} is {without_secrets(self._address)}"
        return Passing(what, f"{self._cluster}{place}")

    def _refusal(self, place: str, answer: Answer) -> Exception:
        where = f"{self._cluster}{place}"
        try:
            remote = json.loads(answer.body)["RemoteException"]
            kind, message = str(remote["exception"]), " ".join(str(remote["message"]).split())[:300]
        except (ValueError, KeyError, TypeError):
            kind, message = "", f"status {answer.status}"
        if kind == "FileNotFoundException":
            return FileNotFoundError(f"{where}: no such file")
        if kind == "ParentNotDirectoryException" or message.endswith("(is not a directory)"):
            return NotADirectoryError(f"{where}: a folder of the path is a file")
        if kind == "FileAlreadyExistsException":
            return AlreadyExists("the name is taken", where, action=Action.RUN_AGAIN)
        if kind in PASSING or any(words in message for words in PASSING_WORDS):
            return Passing(f"the store is not ready: {message}", where)
        is_of_token = TOKEN_ERROR in (kind, *re.findall(r"\w+", message))
        if answer.status == 401 or is_of_token:
            how = "refuses the delegation token" if is_of_token else "asks for a login by Kerberos"
            what = f"the store {how}: {message}"
            # The next try reads the token's file again, which another program may have renewed.
            kind_of_error = Expired if delegation_token() is not None else StorageError
            return kind_of_error(what, where, action=Action.FETCH_HADOOP_TOKEN)
        if kind in ("AccessControlException", "SecurityException"):
            return StorageError(f"the store refuses access: {message}", where, action=Action.SET_HADOOP_USER)
        if answer.status >= 500:
            return Passing(f"the store fails: {message}", where)
        return StorageError(f"the store refuses: {message}; {ADDRESS} is {without_secrets(self._address)}", where)

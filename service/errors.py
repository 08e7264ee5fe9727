"""The answers to failures: RFC 9457 problems, from one table of error classes, without the server's folders.

`type` is `urn:gnomon:problem:` and the title in lower case with hyphens. Failures of the server and of the data are
logged in full, with the `request_id` of their problem. Failures of the caller are not logged.

A caller learns which file, never where the server keeps it. Every pattern takes linear time, since a text may quote any
bytes of a damaged file. Texts that a caller sent are never redacted: the missing parts would reveal which folders the
server has."""

import logging
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gnomon.base.errors import GnomonError, composed
from gnomon.service import costs
from gnomon.shadow.errors import (
    BTreeError,
    IndexBehind,
    IndexNotFound,
    KeyTypeError,
    NewerFormat,
    OutOfTime,
    PartitionNotFound,
    ShadowError,
    SnapshotNotFound,
    SourceError,
    SourceNotFound,
    StalePointer,
    StorageError,
    UnknownColumn,
    UnsupportedFormat,
    UsageError,
)
from gnomon.shadow.values import json_value, to_json

MOST_CHARACTERS = 2000  # of a redacted text
MOST_READ = 64 * 1024  # of a text before it is redacted
ADDRESS, COLUMN = "(address)", "(a column)"

# The folders of an absolute path; what follows the last slash stays. A path inside a word is left alone.
_FOLDERS = re.compile(r"(?:\bfile:/{1,3}|(?<![\w:/.%=&?-])/)(?:[^\s/'\"`,;:]+/)+")
# The addresses in errors of a store's client: host or bucket, and the path there.
_ADDRESSES = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s'\"`,;)\]]*")
_OF_THE_WEB = ("http://", "https://")
MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gnomon:problem:"
RETRY_AFTER_SECONDS = 5
MOST_LOGGED = 5  # errors of one request
TARGET_CHARACTERS = 256  # of a request, in its problem
# Failures of routing, before any handler runs.
ROUTING = {404: "No such route", 405: "Method not allowed"}

logger = logging.getLogger("gnomon.service")


@dataclass(frozen=True)
class Roots:
    """The names that no answer may contain: folders, each with the name to show in its place; hidden partition columns,
    whose folders are removed, too; all other hidden columns."""

    folders: tuple[tuple[str, str], ...] = ()
    partitions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __add__(self, other: "Roots") -> "Roots":
        return Roots(self.folders + other.folders, self.partitions + other.partitions, self.columns + other.columns)


def redact(error: BaseException, roots: Roots) -> str:
    """The text of an error without the server's folders. Of an error with fields the path is cut to its name below a
    root, and the other fields are cleaned before the text is composed from them."""
    if not isinstance(error, GnomonError):
        text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
        return _cleaned(text, roots)[:MOST_CHARACTERS]
    shown = error.with_fields(
        path=None if error.path is None else _hidden(below_root(error.path, roots), roots),
        column=COLUMN if error.column in roots.columns else error.column,
    )
    return composed(shown.place, _cleaned(shown.fault, roots), shown.advice)[:MOST_CHARACTERS]


def below_root(path: str, roots: Roots) -> str:
    """The part of a path below a root; of any other absolute path or address, the last name. Other paths as they
    are."""
    for root, name in _longest_first(roots):
        if path.rstrip("/") == root:
            return name
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    if path.startswith("/"):
        return path.rstrip("/").rpartition("/")[2]
    return _ADDRESSES.sub(_last_of_address, path)


def _cleaned(text: str, roots: Roots) -> str:
    """A text that may quote paths and addresses, without folders: what pyarrow, a store or an operating system said."""
    if len(text) > MOST_READ:
        text = text[:MOST_READ].rpartition(" ")[0]  # no half of a path at the end
    for root, name in _longest_first(roots):
        text = _without_root(text, root, name)
    return _hidden(_FOLDERS.sub("", _ADDRESSES.sub(_last_of_address, text)), roots)


def _hidden(text: str, roots: Roots) -> str:
    """A text without the partition columns and the key columns that are not shown."""
    for column in roots.partitions:
        text = _without_partition(text, column)
    for column in roots.columns:
        text = re.sub(rf"(?<!\w){re.escape(column)}(?!\w)", COLUMN, text)
    return text


def _longest_first(roots: Roots) -> list[tuple[str, str]]:
    """The root folders without a slash at their end; the root of the file system is left out."""
    pairs = sorted(roots.folders, key=lambda pair: -len(pair[0]))
    return [(root.rstrip("/"), name) for root, name in pairs if root.rstrip("/")]


def _without_root(text: str, root: str, name: str) -> str:
    """The text with the root removed from all paths below it. A folder below the root with the same name stays."""
    found = rf"(?<![\w.%-]){re.escape(root)}"
    return re.sub(rf"{found}(?![\w-]|\.\w)", name, re.sub(rf"{found}/", "", text))


def _last_of_address(found: re.Match[str]) -> str:
    """The file name in the URL of a store; ADDRESS for a URL of the web."""
    url = found[0].rstrip(":.")
    path = url.partition("://")[2].partition("/")[2]
    last = "" if url.lower().startswith(_OF_THE_WEB) else path.rpartition("/")[2]
    return (last or ADDRESS) + found[0][len(url) :]


def _without_partition(text: str, column: str) -> str:
    """The text, the folders of a partition column cut out of its paths."""
    begin = rf"(?<![^\s/'\"`(]){re.escape(column)}="
    return re.sub(rf"{begin}[^/\n]{{0,300}}/|{begin}[^\s/'\"`,;:)]*", "", text)


class ServiceError(GnomonError):
    """An error whose text the service writes itself, without the names of folders."""


class BadRequest(ServiceError):
    """The request cannot be understood."""


class TooLarge(ServiceError):
    """The request is beyond a limit of the service."""

    reason = "request_too_large"


class KeyNotFound(ServiceError):
    """No covered row has the key. `members` are the members of its problem: the key, the snapshot, its coverage."""

    def __init__(self, what: str, **members: Any) -> None:
        super().__init__(what)
        self.members = members


class NoSuchIndex(ServiceError):
    """The service has no index of this name."""


class Unauthorized(ServiceError):
    """A token is missing, or (`given`) not known or expired. `headers` are the headers of its answer."""

    reason = "token"

    def __init__(self, what: str, given: bool = False) -> None:
        super().__init__(what)
        challenge = 'Bearer realm="gnomon"'
        self.headers = {"www-authenticate": f'{challenge}, error="invalid_token"' if given else challenge}


class Forbidden(ServiceError):
    """The token does not allow this index."""

    reason = "index_not_allowed"


class TokensUnread(ServiceError):
    """The token cannot be checked: the tokens file could not be read since this process began."""

    reason = "tokens_unread"


class TooManyRequests(ServiceError):
    """A client sends more requests than its rate allows. `headers` say when to try again."""

    reason = "rate"

    def __init__(self, what: str, retry_after_seconds: int) -> None:
        super().__init__(what)
        self.headers = {"retry-after": str(retry_after_seconds)}


class NotAcceptable(ServiceError):
    """The service has no media type that the caller accepts."""


class AnswerTooLarge(ServiceError):
    """The answer would be beyond a limit of the service."""

    reason = "answer_too_large"


class RequestTooSlow(ServiceError):
    """A client did not send the whole of a request in time."""

    reason = "request_too_slow"


class TargetTooLong(ServiceError):
    """The path and query are longer than the limit."""

    reason = "target_too_long"


class HeadTooLarge(ServiceError):
    """The header fields exceed a limit."""

    reason = "head_too_large"


class UnknownTransferCoding(ServiceError):
    """The body of the request is in a form that the service does not decode."""


class NotOpen(ServiceError):
    """The index could not be opened yet: its storage does not answer."""

    reason = "index_not_open"


class NotReady(ServiceError):
    """The service cannot answer anything yet. `members` are the members of its problem."""

    def __init__(self, what: str, **members: Any) -> None:
        super().__init__(what)
        self.members = {"ready": False, **members}


class Overloaded(ServiceError):
    """The service is at a limit: waiting requests, stuck threads, memory for bodies, or connections."""

    reason = "overloaded"


class TookTooLong(ServiceError):
    """A request was not answered within the time limit."""

    reason = "timeout"


class CannotListen(ShadowError):
    """The service cannot listen on its address."""


class WorkerFailed(ShadowError):
    """A worker process ended before it could serve."""


# The nearest base class counts.
TABLE: dict[type[BaseException], tuple[int, str]] = {
    BadRequest: (400, "Bad request"),
    UsageError: (400, "Bad request"),
    KeyTypeError: (400, "Key of the wrong type"),
    UnknownColumn: (400, "Unknown column"),
    PartitionNotFound: (400, "Partition not found"),
    Unauthorized: (401, "Token needed"),
    Forbidden: (403, "Not allowed"),
    KeyNotFound: (404, "Key not found"),
    NoSuchIndex: (404, "No such index"),
    NotAcceptable: (406, "Not acceptable"),
    SnapshotNotFound: (404, "Snapshot not found"),
    RequestTooSlow: (408, "Request too slow"),
    StalePointer: (409, "Stale pointer"),
    TooLarge: (413, "Request too large"),
    AnswerTooLarge: (413, "Answer too large"),
    TargetTooLong: (414, "Target too long"),
    TooManyRequests: (429, "Too many requests"),
    HeadTooLarge: (431, "Header fields too large"),
    TokensUnread: (503, "Tokens unreadable"),
    UnknownTransferCoding: (501, "Unknown transfer coding"),
    UnsupportedFormat: (501, "Unsupported source file"),
    NotOpen: (503, "Index not open"),
    NotReady: (503, "Not ready"),
    Overloaded: (503, "Overloaded"),
    TookTooLong: (503, "Took too long"),
    NewerFormat: (503, "Index of a newer format"),
    IndexBehind: (503, "Index behind its table"),
    IndexNotFound: (503, "Index not found"),
    SourceNotFound: (503, "Source not found"),
    BTreeError: (503, "Damaged index"),
    ShadowError: (503, "Damaged index"),
    SourceError: (503, "Damaged source"),
    OutOfTime: (503, "Took too long"),
    StorageError: (503, "Storage unreachable"),
    OSError: (503, "Storage unreachable"),
    MemoryError: (503, "Out of memory"),
    Exception: (500, "Internal error"),
}


def status_and_title(error: BaseException) -> tuple[int, str]:
    """The status and title of an error, by the table."""
    if isinstance(error, HTTPException):
        return error.status_code, ROUTING.get(error.status_code, "Bad request")
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def problem(error: BaseException, instance: str, roots: Callable[[], Roots]) -> dict[str, Any]:
    """The problem of an error; `instance` is the request's target. `roots` returns the names that no answer may
    contain. It is not called for errors that contain none of them."""
    status, title = status_and_title(error)
    body = {
        "type": TYPE_PREFIX + title.lower().replace(" ", "-"),
        "title": title,
        "status": status,
        "detail": _detail(error, status, roots),
        "instance": instance,
    }
    if isinstance(error, KeyTypeError):
        body |= {"column": error.column, "expected": error.expected}
    body |= getattr(error, "members", {})
    if status >= 500 or isinstance(error, StalePointer):
        body["request_id"] = _logged(error, status)
    return body


def _logged(error: BaseException, status: int) -> str:
    """Log the whole text of an error with the id of its request, and return the id. The target is left out, since it
    holds a key. Only the first few errors of a batch are logged."""
    cost = costs.running() or costs.Cost(uuid.uuid4().hex)
    cost.errors_logged += 1
    if cost.errors_logged <= MOST_LOGGED:
        trace = error if status == 500 else None
        logger.error("request %s: %s: %s", cost.request_id, type(error).__name__, error, exc_info=trace)
    return cost.request_id


def _detail(error: BaseException, status: int, roots: Callable[[], Roots]) -> str:
    if status == 500:
        return "the service failed; its log says more under the request_id"
    if isinstance(error, HTTPException):
        return error.detail
    if isinstance(error, (ServiceError, UsageError, KeyTypeError)):
        return str(error)  # made of what the caller sent and of the index's columns
    return redact(error, roots())


def problem_response(request: Request, error: Exception, roots: Callable[[], Roots]) -> Response:
    """The answer to a request that failed."""
    body = problem(error, target(request), roots)
    request.scope.setdefault("state", {})["rejected"] = _reason(request, error)  # counted by the metrics
    headers = dict(getattr(error, "headers", None) or {})
    if body["status"] == 503:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    content = None if request.method == "HEAD" else encode(body)
    response = Response(content, body["status"], headers, MEDIA_TYPE)
    if content is None:
        del response.headers["content-length"]  # it would be that of the answer to a GET
    return response


def _reason(request: Request, error: Exception) -> str | None:
    """The reason, in one word, why the service refused to work on a request; None for all other failures."""
    if isinstance(error, OutOfTime):
        return TookTooLong.reason
    unreadable = "malformed" if request.scope.get("state", {}).get("refused") is error else None
    reason: str | None = getattr(error, "reason", unreadable)
    return reason


def target(request: Request) -> str:
    """The path and query as they were sent, the first TARGET_CHARACTERS of a longer one with `...`."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    query = request.scope["query_string"]
    shown = str((raw + b"?" + query if query else raw)[: TARGET_CHARACTERS + 1].decode("latin-1"))
    return f"{shown[:TARGET_CHARACTERS]}..." if len(shown) > TARGET_CHARACTERS else shown


def encode(value: Any) -> bytes:
    """The bytes of an answer. A lone surrogate, which has no UTF-8 form, stays the escape it came as. A Struct gives an
    object of its members; members that are UNSET are left out."""
    plain = json_value(_plain(value))
    with suppress(UnicodeEncodeError):
        return msgspec.json.encode(plain)
    return to_json(plain).encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """The value with dictionaries in place of Structs. Rows have none."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items() if member is not msgspec.UNSET}
    has_structs = isinstance(value, list) and value and isinstance(value[0], msgspec.Struct)
    return [_plain(member) for member in value] if has_structs else value

"""A proxy before a store's HTTP server that answers single requests otherwise: as a store does on a bad day, a proxy
that wants a sign-in, a cache, a node with a wrong clock."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.stores.process import HttpServer, Store

ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>Try again.</Message></Error>'
SIGN_IN = b"<html><body>Please sign in to the network.</body></html>"
ITEMS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
OF_A_HOP = {"connection", "transfer-encoding", "content-length"}  # headers that each answer gets of its own


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def kind(self) -> str:
        """The operation: `list`, `get` (of a range, too), `head`, `put`, `copy` or `delete`."""
        query = self.query
        if "op" in query:
            return OF_HDFS.get(query["op"], "other")
        if self.method == "GET":
            return "list" if "list-type" in query or query.get("comp") == "list" else "get"
        if self.method == "POST":
            return "delete" if "delete" in query else "copy"
        return "copy" if "partNumber" in query else self.method.lower()


@dataclass
class Answer:
    """An answer; of `cut`, only so many bytes of the body are sent, and the connection is reset."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None


OF_HDFS = {
    "LISTSTATUS": "list",
    "GETFILESTATUS": "head",
    "OPEN": "get",
    "CREATE": "put",
    "RENAME": "copy",
    "DELETE": "delete",
}
Fault = Callable[["LyingProxy", Request], Answer | None]  # None: the connection is reset
Plan = Callable[[Request], Fault | None]


class LyingProxy:
    """Passes requests on to a port of this machine. `plan` may name a fault for a request, which then answers it;
    `requests` are all so far."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.plan: Plan | None = None
        self.requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = HttpServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lies(self, fault: Fault, of: Callable[[Request], bool], nth: int | None = None) -> None:
        """From now on, answer each request of this kind with a fault; with `nth`, only that one of them, from 0."""
        seen = 0

        def plan(request: Request) -> Fault | None:
            nonlocal seen
            if not of(request):
                return None
            seen += 1
            return fault if nth is None or seen == nth + 1 else None

        self.plan = plan

    def answer(self, request: Request) -> Answer | None:
        self.requests.append(request)
        fault = self.plan(request) if self.plan is not None else None
        return self.forward(request) if fault is None else fault(self, request)

    def forward(self, request: Request) -> Answer:
        """The store's own answer."""
        connection = HTTPConnection("127.0.0.1", self._to, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() != "expect":  # the body is here
                    connection.putheader(name, value)
            is_chunked = "transfer-encoding" in {name.lower() for name in request.headers}
            connection.endheaders(request.body, encode_chunked=is_chunked)
            found: HTTPResponse = connection.getresponse()
            headers = {name: value for name, value in found.getheaders() if name.lower() not in OF_A_HOP}
            if request.method == "HEAD":
                headers["Content-Length"] = found.headers.get("Content-Length", "0")
            return Answer(found.status, headers, found.read())
        finally:
            connection.close()


@contextmanager
def before(store: Store) -> Iterator[tuple[LyingProxy, Store]]:
    """A proxy before a store, and the store behind it."""
    name, address = next((name, text) for name, text in store.variables.items() if "://127.0.0.1:" in text)
    host, port = re.findall(r"(127\.0\.0\.1:(\d+))", address)[0]
    with LyingProxy(int(port)) as proxy:
        behind = address.replace(host, f"127.0.0.1:{proxy.port}")
        yield proxy, replace(store, variables={**store.variables, name: behind})


class _Handler(BaseHTTPRequestHandler):
    proxy: LyingProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second write, which would wait 40 ms

    def _serve(self) -> None:
        is_chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = self._chunks() if is_chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.proxy.answer(Request(self.command, self.path, dict(self.headers.items()), body))
        if answer is None:
            self._reset()
            return
        self.send_response_only(answer.status)
        headers = {"Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: answer.cut])
        if answer.cut is not None:
            self._reset()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  names of http.server

    def _chunks(self) -> bytes:
        """The body of a request, which comes in chunks, each after its length."""
        chunks = []
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(chunks)

    def _reset(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass


# -- faults ------------------------------------------------------------------------------------------------------------


def refusal(status: int, code: str, **headers: str) -> Fault:
    """An error that the store says."""

    def fault(proxy: LyingProxy, request: Request) -> Answer:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return Answer(status, {"Content-Type": "application/xml", **more}, ERROR % code.encode())

    return fault


def no_answer(proxy: LyingProxy, request: Request) -> None:
    return None


def lost_answer(proxy: LyingProxy, request: Request) -> None:
    """The store does what is asked, and its answer does not arrive."""
    proxy.forward(request)


def cut_answer(proxy: LyingProxy, request: Request) -> Answer:
    found = proxy.forward(request)
    found.cut = len(found.body) // 2
    return found


def short_answer(proxy: LyingProxy, request: Request) -> Answer:
    """Half of the body, as if it were all of it."""
    found = proxy.forward(request)
    found.body = found.body[: len(found.body) // 2]
    return found


def error_as_success(proxy: LyingProxy, request: Request) -> Answer:
    return Answer(200, {"Content-Type": "application/xml"}, ERROR % b"InternalError")


def sign_in_page(proxy: LyingProxy, request: Request) -> Answer:
    headers = {"Content-Type": "text/html", "ETag": '"login"', "Last-Modified": formatdate(time.time(), usegmt=True)}
    if request.method == "HEAD":
        headers["Content-Length"] = str(len(SIGN_IN))
    return Answer(200, headers, SIGN_IN)


def empty_success(proxy: LyingProxy, request: Request) -> Answer:
    return Answer(200)


def other_object(proxy: LyingProxy, request: Request) -> Answer:
    """JSON that is no answer of a store."""
    return Answer(200, {"Content-Type": "application/json", "ETag": '"other"'}, b"{}")


def kept_nothing(proxy: LyingProxy, request: Request) -> Answer:
    """A put is answered as done, and is not."""
    return Answer(200, {"ETag": '"11111111111111111111111111111111"'})


def two_days_ahead(proxy: LyingProxy, request: Request) -> Answer:
    found = proxy.forward(request)
    found.headers["Last-Modified"] = formatdate(time.time() + 2 * 86400, usegmt=True)
    return found


def listing_of(chosen: Callable[[list[bytes]], list[bytes]]) -> Fault:
    """A listing of some of the objects."""

    def fault(proxy: LyingProxy, request: Request) -> Answer:
        found = proxy.forward(request)
        if items := ITEMS.findall(found.body):
            first, last = found.body.index(items[0]), found.body.rindex(items[-1]) + len(items[-1])
            found.body = found.body[:first] + b"".join(chosen(items)) + found.body[last:]
        return found

    return fault


def _newest(items: list[bytes]) -> bytes:
    return max(items, key=lambda item: re.findall(rb"<LastModified>(.*?)<", item))


without_newest = listing_of(lambda items: [item for item in items if item != _newest(items)])
without_last = listing_of(lambda items: items[:-1])
without_first = listing_of(lambda items: items[1:])
first_half = listing_of(lambda items: items[: len(items) // 2])
nothing_listed = listing_of(lambda items: [])
twice_listed = listing_of(lambda items: [*items, *items])


def pages_without_end(proxy: LyingProxy, request: Request) -> Answer:
    """Each page says that the same one follows."""
    found = proxy.forward(request)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    found.body = found.body.replace(b"<IsTruncated>false</IsTruncated>", more)
    return found


def empty_pages_without_end(proxy: LyingProxy, request: Request) -> Answer:
    """Each page has no name and says that another one follows."""
    found = pages_without_end(proxy, request)
    found.body = ITEMS.sub(b"", found.body)
    return found

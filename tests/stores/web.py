"""A web server with files, and a hub with data sets, on loopback: each answers as its settings say."""

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.stores.process import HttpServer


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: dict[str, str]

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class WebServer:
    """Files by their path. `etag` makes the ETag of the n-th state of a file, "" for none; `has_times` says whether
    there is a Last-Modified, `has_ranges` whether Range is followed. `fault` may answer a request otherwise."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.etag: Callable[[int], str] = lambda n: f'"state-{n}"'
        self.has_times = self.has_ranges = True
        self.fault: Callable[[Asked], Reply | None] = lambda _: None
        self.asked: list[Asked] = []
        self._files: dict[str, tuple[int, bytes]] = {}
        self._states = 0
        self._server = HttpServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": self}))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up
        self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, path: str, data: bytes) -> None:
        self._states += 1
        self._files[path] = (self._states, data)

    def remove(self, path: str) -> None:
        del self._files[path]

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return self.fault(asked) or self.reply(asked)

    def reply(self, asked: Asked) -> Reply:
        if asked.path not in self._files:
            return Reply(404, {}, b"<html>Not found</html>")
        return self.part(asked, *self._files[asked.path])

    def part(self, asked: Asked, state: int, data: bytes) -> Reply:
        """The requested range of some bytes."""
        headers = {"ETag": self.etag(state)} if self.etag(state) else {}
        if self.has_times:
            headers["Last-Modified"] = formatdate(1_767_225_600 + state, usegmt=True)
        wanted = asked.headers.get("range")
        if not (wanted and self.has_ranges):
            return Reply(200, headers, data)
        first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        if first >= len(data):
            return Reply(416, {"Content-Range": f"bytes */{len(data)}"})
        return Reply(206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1])


class _Handler(BaseHTTPRequestHandler):
    web: WebServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = self.web.answer(Asked(self.command, self.path, headers))
        self.send_response_only(found.status)
        for name, value in ({"Content-Length": str(len(found.body))} | found.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    do_GET = do_HEAD = _serve  # noqa: N815  names of http.server


class Hub(WebServer):
    """A hub with one data set, owner/name. Each commit is kept. Large files, by default all Parquet files, are
    redirected to `files`, another server, with a signature in the query. With a `token` only its bearer is answered."""

    NAME = "owner/name"

    def __init__(self, files: WebServer) -> None:
        super().__init__()
        self.files = files
        self.page, self.token = 1000, ""
        self.is_large: Callable[[str], bool] = lambda path: path.endswith(".parquet")
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit with these files, and no others."""
        content = json.dumps([len(self.commits), branch, sorted(files)]).encode()
        name = hashlib.sha1(content).hexdigest()
        self.commits[name] = dict(files)
        self.branches[branch] = name
        for path, data in files.items():
            self.files.put(f"/{name}/{path}", data)
        return name

    def reply(self, asked: Asked) -> Reply:
        if self.token and asked.headers.get("authorization") != f"Bearer {self.token}":
            return Reply(401, {}, b'{"error":"Invalid username or password."}')
        api, kept = f"/api/datasets/{self.NAME}/", f"/datasets/{self.NAME}/resolve/"
        if asked.path.startswith(api):
            call, _, rest = asked.path.removeprefix(api).partition("/")
            return self._revision(rest) if call == "revision" else self._tree(asked, rest)
        if asked.path.startswith(kept):
            revision, _, path = asked.path.removeprefix(kept).partition("/")
            files = self._at(revision)
            if files is not None and path in files:
                if not self.is_large(path):
                    return self.part(asked, 0, files[path])
                commit = self.branches.get(revision, revision)
                return Reply(302, {"Location": f"{self.files.address}/{commit}/{quote(path)}?X-Signature=SECRET"})
        return Reply(404, {}, b'{"error":"not found"}')

    def _at(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.branches.get(revision, revision))

    def _revision(self, revision: str) -> Reply:
        files = self._at(revision)
        if files is None:
            return Reply(404, {}, b'{"error":"Invalid rev id"}')
        siblings = [{"rfilename": path} for path in files]
        found = {"id": self.NAME, "sha": self.branches.get(revision, revision), "siblings": siblings}
        return Reply(200, {}, json.dumps(found).encode())

    def _tree(self, asked: Asked, rest: str) -> Reply:
        revision, _, folder = rest.partition("/")
        query = parse_qs(urlsplit(asked.target).query)
        files = self._at(revision)
        entries = [] if files is None else self._entries(files, folder, query["recursive"] == ["true"])
        if not entries and (files is None or folder):
            return Reply(404, {}, b'{"error":"not found"}')
        begin = int(query.get("cursor", ["0"])[0])
        headers = {}
        if begin + self.page < len(entries):
            target = asked.target.partition("&cursor=")[0]
            headers["Link"] = f'<{self.address}{target}&cursor={begin + self.page}>; rel="next"'
        return Reply(200, headers, json.dumps(entries[begin : begin + self.page]).encode())

    def _entries(self, files: dict[str, bytes], folder: str, recursive: bool) -> Sequence[dict[str, object]]:
        before = f"{folder}/" if folder else ""
        found: dict[str, dict[str, object]] = {}
        for path, data in sorted(files.items()):
            if not path.startswith(before):
                continue
            parts = path.removeprefix(before).split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                above = before + "/".join(parts[:depth])
                found[above] = {"type": "directory", "oid": "0", "size": 0, "path": above}
            if recursive or len(parts) == 1:
                found[path] = {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": path}
                if self.is_large(path):
                    large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
                    found[path]["lfs"] = large
        return list(found.values())

"""Google Cloud Storage for tests: fake-gcs-server, which speaks the JSON interface of the store, behind a translator of
the XML interface, which obstore speaks.

The server decides which of several puts comes first, and keeps bytes, ETags and metadata. The translator adds what the
server's XML interface lacks: puts, copies and their conditions, `If-Match`, and listings in pages."""

import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from tests.stores.go import go_program
from tests.stores.process import HttpServer, Store, answers, free_port, server, unavailable

MODULE, VERSION = "github.com/fsouza/fake-gcs-server", "v1.56.1"
BUCKET = "lake"
PAGE = 1_000  # objects of a listing
CREATE_ONLY = "x-goog-if-generation-match"
PASSED_ON = ("content-type", "etag", "last-modified", "content-range", "x-goog-generation")
METADATA = "x-goog-meta-"


@contextmanager
def google_server(folder: Path) -> Iterator[Store]:
    """A server with one bucket."""
    program = go_program(MODULE, VERSION)
    if program is None:
        unavailable("fake-gcs-server cannot be built: Go 1.21 or later is not there (Debian's package golang)")
    port = free_port()
    command = [str(program), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with server([*command, "-log-level", "error"], folder / "log", lambda: answers(port), 30):
        with closing(_Behind(port)) as behind:
            behind.ask("POST", "/storage/v1/b?project=tests", json.dumps({"name": BUCKET}).encode())
        with _translator(port) as endpoint:
            account = folder / "account.json"
            keys = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
            account.write_text(json.dumps({**keys, "gcs_base_url": endpoint}))
            yield Store(f"gs://{BUCKET}", {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_BASE_URL": endpoint})


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _Behind:
    """A connection to the server behind the translator."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self.close = self._connection.close

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> _Answer:
        self._connection.request(method, path, body, dict(headers))
        answer = self._connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return _Answer(answer.status, found, answer.read())

    def object(self, method: str, name: str, headers: Mapping[str, str] = {}) -> _Answer:
        return self.ask(method, f"/download/storage/v1/b/{BUCKET}/o/{_quoted(name)}", None, headers)


@contextmanager
def _translator(port: int) -> Iterator[str]:
    """The address of a translator, which runs until the block ends."""
    with HttpServer(("127.0.0.1", 0), partial(_Translator, port)) as translator:
        thread = threading.Thread(target=translator.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{translator.server_port}"
        finally:
            translator.shutdown()
            thread.join()


class _Translator(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, port: int, *arguments: Any) -> None:
        with closing(_Behind(port)) as self.behind:
            super().__init__(*arguments)  # answers until the client is done

    def do_GET(self) -> None:
        bucket, name, query = self._asked()
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif name:
            self._read(name)
        else:
            self._list(query)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        bucket, name, _ = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
            return
        kept = {key: value for key, value in self.headers.items() if key.lower().startswith(METADATA)}
        kept["Content-Type"] = self.headers.get("Content-Type") or "application/octet-stream"
        origin = self.headers.get("x-goog-copy-source")
        if origin is not None:
            found = self.behind.object("GET", urllib.parse.unquote(origin).lstrip("/").partition("/")[2])
            if found.status != 200:
                self._refuse(found.status, "NoSuchKey")
                return
            body = found.body
            kept |= {key: value for key, value in found.headers.items() if key.startswith(METADATA)}
        query = {"uploadType": "media", "name": name}
        if (generation := self.headers.get(CREATE_ONLY)) is not None:
            query["ifGenerationMatch"] = generation
        path = f"/upload/storage/v1/b/{BUCKET}/o?{urllib.parse.urlencode(query)}"
        made = self.behind.ask("POST", path, body, kept)
        if made.status != 200:
            self._refuse(made.status, "PreconditionFailed" if made.status == 412 else "Refused")
            return
        described: dict[str, Any] = json.loads(made.body)
        text = "<CopyObjectResult></CopyObjectResult>" if origin is not None else ""
        etag = f'"{described["etag"]}"'
        self._answer(200, {"ETag": etag, "x-goog-generation": str(described["generation"])}, text.encode())

    def do_DELETE(self) -> None:
        bucket, name, _ = self._asked()
        answer = self.behind.ask("DELETE", f"/storage/v1/b/{BUCKET}/o/{_quoted(name)}")
        if bucket != BUCKET or answer.status >= 400:
            self._refuse(404, "NoSuchBucket" if bucket != BUCKET else "NoSuchKey")
        else:
            self._answer(204, {}, b"")

    def _read(self, name: str) -> None:
        """An object, or a range of it. The ETag of the answer itself decides about `If-Match`."""
        ranged = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        found = self.behind.object(self.command, name, ranged)
        wanted = self.headers.get("If-Match")
        if found.status == 404:
            self._refuse(404, "NoSuchKey")
        elif found.status < 300 and wanted is not None and wanted != found.headers.get("etag"):
            self._refuse(412, "PreconditionFailed")
        elif found.status >= 300:
            self._refuse(found.status, "InvalidRange" if found.status == 416 else "Refused")
        else:
            kept = {key: found.headers[key] for key in PASSED_ON if key in found.headers}
            kept |= {key: value for key, value in found.headers.items() if key.startswith(METADATA)}
            size = found.headers["content-length"]
            self._answer(found.status, kept, found.body, size)

    def _list(self, query: Mapping[str, str]) -> None:
        asked = {"prefix": query.get("prefix", ""), "maxResults": query.get("max-keys", str(PAGE))}
        asked |= {"delimiter": query["delimiter"]} if "delimiter" in query else {}
        asked |= {"pageToken": query["continuation-token"]} if "continuation-token" in query else {}
        asked |= {"startOffset": query["start-after"]} if "start-after" in query else {}
        found = self.behind.ask("GET", f"/storage/v1/b/{BUCKET}/o?{urllib.parse.urlencode(asked)}")
        page: dict[str, Any] = json.loads(found.body)
        objects = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><Size>{one['size']}</Size><ETag>&quot;{one['etag']}&quot;</ETag>"
            f"<LastModified>{one['updated']}</LastModified></Contents>"
            for one in page.get("items", [])
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in page.get("prefixes") or []
        )
        token = page.get("nextPageToken")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        text = f"<ListBucketResult>{objects}{folders}{more}</ListBucketResult>"
        self._answer(200, {"Content-Type": "application/xml"}, text.encode())

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        """The bucket, the object and the query of a request."""
        path, _, query = self.path.partition("?")
        bucket, _, name = urllib.parse.unquote(path.lstrip("/")).partition("/")
        return bucket, name, dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def _refuse(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>"
        self._answer(status, {"Content-Type": "application/xml"}, text.encode())

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes, size: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", size if self.command == "HEAD" and size else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")

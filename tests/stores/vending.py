"""A catalog that vends credentials, and a store that checks them: a REST catalog of Iceberg over pyiceberg's catalog in
SQLite, and a proxy before a real S3 server. The proxy refuses credentials that have ended, and requests outside of what
they grant, with the answers of S3. It signs the others anew."""

import hashlib
import hmac
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest, Table

from tests.stores.process import HttpServer, Store

REGION = "us-east-1"
CREDENTIAL = re.compile(r"Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)")
ON_THE_WAY = 3.0
"""Seconds that the store accepts credentials beyond the end that they were told: a request that was signed in time may
be late on a busy machine. A client that does not renew them is still refused."""
NOT_PASSED = {"authorization", "x-amz-security-token", "x-amz-date", "x-amz-content-sha256", "host", "connection"}


@dataclass(frozen=True)
class Grant:
    """What a key opens: objects whose bucket and name begin with `prefix`, until `end`."""

    secret: str
    token: str
    prefix: str
    end: float


class CheckedS3:
    """The proxy. Its own credentials, those of the environment, open everything but what lies below `governed`
    prefixes. `refused` counts the refusals by their code, `used` the requests by the key that made them."""

    def __init__(self, behind: Store) -> None:
        self._behind = urlsplit(behind.variables["AWS_ENDPOINT_URL"]).netloc
        self._own = Credentials(behind.variables["AWS_ACCESS_KEY_ID"], behind.variables["AWS_SECRET_ACCESS_KEY"])
        self.key, self.secret = "ENVIRONMENT", "secret-of-the-environment"
        self.grants: dict[str, Grant] = {self.key: Grant(self.secret, "", "", float("inf"))}
        self.governed: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self.port = 0

    def mint(self, prefix: str, life: float) -> dict[str, str]:
        """New credentials for a prefix (bucket/name), as members of a catalog's configuration."""
        number = next(self._numbers)
        key = f"VENDED{number}"
        end = time.time() + life
        grant = Grant(f"vended-secret-{number}", f"vended-token-{number}", prefix, end + ON_THE_WAY)
        self.grants[key] = grant
        self.governed.add(prefix)
        return {
            "s3.access-key-id": key,
            "s3.secret-access-key": grant.secret,
            "s3.session-token": grant.token,
            "s3.session-token-expires-at-ms": str(int(end * 1000)),
        }

    def end(self) -> None:
        """End all vended credentials now, before the end that they were told."""
        with self._lock:
            for key, one in self.grants.items():
                if key != self.key:
                    self.grants[key] = Grant(one.secret, one.token, one.prefix, 0)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
        }

    def refusal(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
        """The code of S3 for a request that is refused, "" for one that may pass."""
        match = CREDENTIAL.search(headers.get("authorization", ""))
        grant = self.grants.get(match[1]) if match else None
        if match is None or grant is None:
            return "InvalidAccessKeyId"
        with self._lock:
            self.used[match[1]] += 1
        if headers.get("x-amz-security-token", "") != grant.token:
            return "InvalidToken"
        if not hmac.compare_digest(_signature(grant.secret, method, target, headers, match), match[5]):
            return "SignatureDoesNotMatch"
        if grant.end <= time.time():
            return "ExpiredToken"
        names = _names(target, headers, body)
        is_own = match[1] == self.key
        if is_own and any(_below(name, one) for name in names for one in self.governed):
            return "AccessDenied"
        return "" if is_own or all(_below(name, grant.prefix) for name in names) else "AccessDenied"

    def passed(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Any:
        """The answer of the server behind."""
        kept = {name: value for name, value in headers.items() if name not in NOT_PASSED}
        request = AWSRequest(method, f"http://{self._behind}{target}", kept, body)
        S3SigV4Auth(self._own, "s3", REGION).add_auth(request)
        connection = HTTPConnection(self._behind, timeout=30)
        try:
            connection.request(method, target, body or None, dict(request.headers.items()))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _below(name: str, prefix: str) -> bool:
    return f"{name}/".startswith(f"{prefix.rstrip('/')}/") if prefix else True


def _names(target: str, headers: Mapping[str, str], body: bytes) -> list[str]:
    """The names (bucket/name) that a request reads or writes."""
    parts = urlsplit(target)
    path, query = unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True)
    names = [f"{path}/{query['prefix'][0]}".rstrip("/") if "prefix" in query else path]
    if "delete" in query:
        names = [f"{path}/{one}" for one in re.findall("<Key>([^<]*)</Key>", body.decode())]
    if source := headers.get("x-amz-copy-source"):
        names.append(unquote(source).strip("/"))
    return names


def _signature(secret: str, method: str, target: str, headers: Mapping[str, str], match: re.Match[str]) -> str:
    """The signature of a request, by AWS's rules (version 4)."""
    _, day, region, signed, _ = match.groups()
    parts = urlsplit(target)
    pairs = sorted(piece.partition("=")[::2] for piece in parts.query.split("&") if piece)
    canonical = "\n".join(
        [
            method,
            quote(unquote(parts.path), safe="/~"),
            "&".join(f"{quote(unquote(a), safe='~')}={quote(unquote(b), safe='~')}" for a, b in pairs),
            *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed.split(";")),
            "",
            signed,
            headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    text = (
        f"AWS4-HMAC-SHA256\n{headers.get('x-amz-date', '')}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    )
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


@contextmanager
def checked_s3(behind: Store) -> Iterator[CheckedS3]:
    """The proxy, running."""
    proxy = CheckedS3(behind)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            code = proxy.refusal(self.command, self.path, headers, body)
            if code:
                proxy.refused[code] += 1
                text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
                status, sent, data = 403, [("Content-Type", "application/xml")], text
            else:
                status, sent, data = proxy.passed(self.command, self.path, headers, body)
            self.send_response_only(status)
            length = str(len(data))
            for name, value in sent:
                if name.lower() == "content-length":
                    length = value  # of a HEAD, too
                elif name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815  names of http.server

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Handler) as port:
        proxy.port = port
        yield proxy


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = HttpServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


@dataclass
class Vending:
    """A catalog. `life` is that of its credentials, in seconds; `below` has the folders of a table, or URLs, that have
    credentials of their own, "" for the whole table. `in_config`: a load answers the credentials of the whole table as
    members of `config`, too. `renews`: it names an endpoint for renewals. With `signs` it signs requests instead.
    `down`: it answers 503. `asked` counts requests by the kind."""

    store: CheckedS3
    catalog: SqlCatalog
    token: str = "secret-of-the-catalog"
    life: float = 3600
    below: Sequence[str] = ("",)
    in_config: bool = False
    renews: bool = True
    vends: bool = True
    signs: bool = False
    down: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    port: int = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, _error(401, "NotAuthorizedException", "no such token")
        if self.down:
            self.asked["down"] += 1
            return 503, _error(503, "ServiceUnavailableException", "down")
        parts = unquote(path).removeprefix("/v1/").split("/")
        if parts == ["config"]:
            self.asked["config"] += 1
            return 200, {"defaults": {}, "overrides": {}}
        identifier = parts[1], parts[3]
        is_delegated = headers.get("x-iceberg-access-delegation") == "vended-credentials"
        try:
            table = self.catalog.load_table(identifier)
            if parts[4:] == ["credentials"]:
                self.asked["credentials"] += 1
                return 200, {"storage-credentials": self._credentials(table)}
            if method == "POST":
                self.asked["commit"] += 1
                request = CommitTableRequest.model_validate_json(body)
                done = self.catalog.commit_table(table, request.requirements, request.updates)
                return 200, {"metadata-location": done.metadata_location, "metadata": _json(done.metadata)}
        except NoSuchTableError:
            return 404, _error(404, "NoSuchTableException", "no such table")
        except CommitFailedException as error:
            return 409, _error(409, "CommitFailedException", str(error))
        self.asked["load"] += 1
        answer = {"metadata-location": table.metadata_location, "metadata": _json(table.metadata), "config": {}}
        config: dict[str, str] = answer["config"]
        if self.signs:
            config |= {"s3.remote-signing-enabled": "true", "s3.signer.uri": self.uri}
        elif self.vends and is_delegated:
            answer["storage-credentials"] = self._credentials(table)
            config |= {"client.region": REGION, "s3.endpoint": f"http://127.0.0.1:{self.store.port}"}
            if self.in_config:
                config |= self.store.mint(_name(table.location()), self.life)
            if self.renews:
                config["client.refresh-credentials-endpoint"] = (
                    f"v1/namespaces/{parts[1]}/tables/{parts[3]}/credentials"
                )
        return 200, answer

    def _credentials(self, table: Table) -> list[dict[str, Any]]:
        root = table.location().rstrip("/")
        places = [one if "://" in one else "/".join(filter(None, [root, one])) for one in self.below]
        return [{"prefix": f"{place}/", "config": self.store.mint(_name(place), self.life)} for place in places]


def _name(location: str) -> str:
    return location.removeprefix("s3://").rstrip("/")


def _json(metadata: Any) -> Any:
    return json.loads(metadata.model_dump_json())


def _error(status: int, kind: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "type": kind, "message": message}}


@contextmanager
def vending_catalog(store: CheckedS3, behind: Store, folder: Path, warehouse: str) -> Iterator[Vending]:
    """A catalog whose tables lie below `warehouse`, a URL of the server behind the proxy."""
    variables = behind.variables
    catalog = SqlCatalog(
        "behind",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=warehouse,
        **{
            "s3.endpoint": variables["AWS_ENDPOINT_URL"],
            "s3.region": REGION,
            "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
        },
    )
    vending = Vending(store, catalog)
    lock = threading.Lock()  # SQLite

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                status, found = vending.answer(self.command, self.path.partition("?")[0], headers, body)
            data = json.dumps(found).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer  # noqa: N815  names of http.server

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Handler) as port:
        vending.port = port
        yield vending
    catalog.close()

"""The catalog behind `gnomon catalog`: requests are passed on to it as they came, and answers as it gave them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import httpx
import msgspec
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gnomon.service.errors import ServiceError
from gnomon.service.settings import Settings
from gnomon.shadow.storage import ByteCache

# Of one connection, and not of the request or answer on it: RFC 9110, section 7.6.1. `host` is that of the upstream.
OF_CONNECTION = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade host".split()
)
OF_BODY = frozenset([b"content-length", b"content-type", b"content-encoding", b"if-none-match"])
ACCEPT_ENCODING = b"accept-encoding"
GZIP = (ACCEPT_ENCODING, b"gzip")  # the one encoding that every version of the client decodes
OF_ENCODING = frozenset([b"content-length", b"content-encoding"])
MOST_CONNECTIONS = 256
CONFIG = "/v1/config"
SUBMIT = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan"
TABLES_SHARE = 8  # one part in eight of the cache is for tables' metadata
OBJECTS = 10  # bytes of parsed metadata in memory for a byte of JSON

Headers = Sequence[tuple[bytes, bytes]]


class UpstreamError(ServiceError):
    """A failure to be answered in the form that clients of Iceberg read: its status, and its type in their words."""

    def __init__(self, what: str, status: int = 500, type: str = "InternalServerError") -> None:
        super().__init__(what)
        self.status, self.type = status, type


class LoadedTable(msgspec.Struct, rename="kebab"):
    """The answer to loadTable, as far as it is needed."""

    metadata: msgspec.Raw
    metadata_location: str | None = None


class _Known(NamedTuple):
    """The metadata of a table as a caller got it: its file, the answer's ETag, and its bytes in memory."""

    location: str
    etag: bytes | None
    metadata: TableMetadata
    cache_bytes: int


class _Config(msgspec.Struct):
    endpoints: list[str] | None = None


class _Metadata(msgspec.Struct, rename="kebab"):
    table_uuid: str | None = None
    location: str = ""


class Upstream(Protocol):
    """A catalog behind this one. `path` is the path of a request as it was sent, `headers` its header fields."""

    async def answer(self, request: Request, path: str, body: bytes | None = None) -> Response:
        """The answer to a request that needs nothing of an index; `body` is one that was read already. UpstreamError
        where the catalog does not answer."""

    async def plans(self, headers: Headers) -> bool:
        """Whether the catalog plans scans itself, as its settings say to a caller of these headers."""

    async def whole_answer(self, request: Request, path: str) -> tuple[Response, bytes]:
        """The same, and the body, decoded."""

    async def table(self, path: str, headers: Headers) -> TableMetadata | Response:
        """The newest metadata of the table with this path. A caller of these headers who does not get it is given the
        catalog's answer."""

    def check(self) -> str:
        """Say in a line that the catalog answers. UpstreamError where it does not."""

    async def close(self) -> None:
        """Close its connections."""


class RestUpstream:
    """An Iceberg REST catalog at an address. `forget_authorization`: the header is of this service, not of the
    upstream."""

    def __init__(self, settings: Settings, forget_authorization: bool) -> None:
        assert settings.upstream is not None
        self._base = settings.upstream.rstrip("/")
        self._hidden = OF_CONNECTION | ({b"authorization"} if forget_authorization else set())
        limits = httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS)
        # A slow answer is passed on when it comes: the client, which knows what it waits for, may leave before.
        self._client = httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(None, connect=settings.timeout_seconds))
        self._seconds = settings.timeout_seconds
        self._plans: bool | None = None
        self._tables: ByteCache[_Known] = ByteCache(settings.cache_bytes // TABLES_SHARE)

    async def answer(self, request: Request, path: str, body: bytes | None = None) -> Response:
        return _Streamed(await self._sent(request, path, request.scope["headers"], body))

    async def plans(self, headers: Headers) -> bool:
        if self._plans is None:
            own = [one for one in _own(headers) if one[0] not in self._hidden]
            answer = await self._send(httpx.Request("GET", f"{self._base}{CONFIG}", headers=own))
            try:
                found = msgspec.json.decode(await answer.aread(), type=_Config)
            except (msgspec.DecodeError, httpx.RequestError):  # a refusal: the next request asks again
                return False
            finally:
                await answer.aclose()
            self._plans = SUBMIT in (found.endpoints or ())
        return self._plans

    async def whole_answer(self, request: Request, path: str) -> tuple[Response, bytes]:
        """The answer to a request, and its body, decoded."""
        headers = [one for one in request.scope["headers"] if one[0] != ACCEPT_ENCODING]
        answer = await self._sent(request, path, [*headers, GZIP])
        try:
            body = await answer.aread()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failed(error) from None
        finally:
            await answer.aclose()
        return _whole(answer, body), body

    async def _sent(self, request: Request, path: str, headers: Headers, body: bytes | None = None) -> httpx.Response:
        query = request.scope["query_string"]
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
        content: Any = body if body is not None else _body(request) if has_body else None
        named = {one.strip().lower() for name, value in headers if name == b"connection" for one in value.split(b",")}
        made = httpx.Request(
            request.method,
            f"{self._base}{path}" + (f"?{query.decode('latin-1')}" if query else ""),
            headers=[one for one in headers if one[0] not in self._hidden | named],
            content=content,
        )
        return await self._send(made)

    async def _send(self, made: httpx.Request) -> httpx.Response:
        try:
            return await self._client.send(made, stream=True)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failed(error) from None

    async def table(self, path: str, headers: Headers) -> TableMetadata | Response:
        own = [one for one in _own(headers) if one[0] not in self._hidden]
        key = path, b"\0".join(value for name, value in own if name in (b"authorization", b"cookie"))
        known = self._tables.get(key)
        if known is not None and known.etag is not None:
            own.append((b"if-none-match", known.etag))
        made = httpx.Request("GET", f"{self._base}{path}", headers=own)
        made.extensions["timeout"] = httpx.Timeout(self._seconds).as_dict()
        answer = await self._send(made)
        try:
            body = await answer.aread()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failed(error) from None
        finally:
            await answer.aclose()
        if answer.status_code == 304 and known is not None:
            return known.metadata
        if answer.status_code != 200:
            return _whole(answer, body)
        try:
            loaded = msgspec.json.decode(body, type=LoadedTable)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(
                f"the catalog's answer to loadTable is not read: {error}", 502, "BadGatewayException"
            ) from None
        location, etag = loaded.metadata_location or "", answer.headers.get("etag")
        same = known is not None and location and known.location == location
        metadata = known.metadata if known is not None and same else parsed(loaded.metadata)
        self._tables.discard(key)
        self._tables.put(key, _Known(location, etag.encode() if etag else None, metadata, OBJECTS * len(body)))
        return metadata

    def check(self) -> str:
        try:
            answer = httpx.get(f"{self._base}{CONFIG}", timeout=self._seconds)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failed(error) from None
        return f"{self._base}: /v1/config answers {answer.status_code}"  # 401 to a caller without credentials

    async def close(self) -> None:
        await self._client.aclose()


def _own(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The header fields of a caller for a request of the service's own."""
    return [one for one in headers if one[0] not in OF_BODY | {ACCEPT_ENCODING}] + [GZIP]


def parsed(metadata: msgspec.Raw) -> TableMetadata:
    """The metadata of a table. UpstreamError where the library cannot read it."""
    try:
        return TableMetadataUtil.parse_raw(bytes(metadata).decode())
    except Exception as error:  # noqa: BLE001 of any class: the library reads what the upstream sent
        raise UpstreamError(f"its metadata is not read: {error}", 501, "UnsupportedOperationException") from None


def table_place(loaded: LoadedTable) -> tuple[str | None, str]:
    """The id of a table, and its location."""
    found = msgspec.json.decode(loaded.metadata, type=_Metadata)
    return found.table_uuid, found.location


async def _body(request: Request) -> AsyncIterator[bytes]:
    """The body as it arrives."""
    async for piece in request.stream():
        if piece:
            yield piece


def _failed(error: httpx.RequestError) -> UpstreamError:
    """The failure of a request to the upstream. 503 says that it was not made; 502 and 504, that this is unknown, which
    clients must know of a commit."""
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        what = f"the catalog behind this one cannot be reached ({said})"
        return UpstreamError(what, 503, "ServiceUnavailableException")
    if isinstance(error, httpx.TimeoutException):
        return UpstreamError(
            f"the catalog behind this one did not answer in time ({said})", 504, "GatewayTimeoutException"
        )
    return UpstreamError(f"the catalog behind this one broke off ({said})", 502, "BadGatewayException")


class _Streamed(StreamingResponse):
    """An answer of the upstream, passed on as it comes, with its bytes and header fields as they are."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.aiter_raw(), answer.status_code)
        self._answer = answer
        self.raw_headers = _headers(answer, OF_CONNECTION)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()


def _whole(answer: httpx.Response, body: bytes) -> Response:
    """An answer of the upstream with a body that is not encoded."""
    found = Response(body, answer.status_code)
    found.raw_headers = [*_headers(answer, OF_CONNECTION | OF_ENCODING), (b"content-length", str(len(body)).encode())]
    return found


def _headers(answer: httpx.Response, without: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in without]


def with_members(body: bytes, members: Mapping[str, Mapping[str, Any]]) -> bytes:
    """An object of JSON with members added to objects within it; all else stays as it is, byte by byte."""
    found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name, added in members.items():
        here = msgspec.json.decode(found[name], type=dict[str, msgspec.Raw] | None) if name in found else {}
        found[name] = msgspec.Raw(
            msgspec.json.encode(
                {**(here or {}), **{key: msgspec.Raw(msgspec.json.encode(one)) for key, one in added.items()}}
            )
        )
    return msgspec.json.encode(found)

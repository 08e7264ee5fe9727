"""The headers of every answer, including failed and refused ones, and the other origins that may read answers.

`docs/operations/security.md` shows them in tables; a test compares the page with this module."""

import re
from functools import cache
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service.access import is_page
from gnomon.service.http import route_path
from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

Headers = list[tuple[bytes, bytes]]

# A browser runs and loads nothing of an answer, and shows it in no frame, whatever type it assumes.
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
# The frame in which the page shows the HTML of a row inherits this policy, which refuses the scripts, forms, frames and
# foreign images of the HTML. The frame also has a sandbox.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; frame-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
EVERY_ANSWER = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OF_API = {"Content-Security-Policy": API_POLICY, "Cache-Control": "no-store"}
# For rows by GET: a client's cache has to ask again with the ETag. The rows of a snapshot given by number never change.
OF_NEWEST = {"Cache-Control": "private, no-cache"}
OF_SNAPSHOT = {"Cache-Control": "private, max-age=86400, immutable"}
OF_PAGE = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache", "X-DNS-Prefetch-Control": "off"}
UNDER_TLS = {"Strict-Transport-Security": "max-age=31536000"}

CORS_METHODS = "GET, HEAD, POST"
CORS_HEADERS = "Authorization, Accept, Content-Type"
CORS_EXPOSED = "X-Request-Id, X-Table-Version"
CORS_SECONDS = 600  # how long a browser caches the answer to a preflight

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def headers_of(path: str, tls: bool) -> Headers:
    """The headers of an answer at a path, in the form of ASGI."""
    return list(_added(is_page(path), tls))


@cache
def _added(to_page: bool, tls: bool) -> Headers:
    return _encoded(EVERY_ANSWER | (OF_PAGE if to_page else OF_API) | (UNDER_TLS if tls else {}))


def _encoded(named: dict[str, str]) -> Headers:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in named.items()]


def origins(settings: Settings) -> frozenset[str]:
    """The origins of `cors_origins`. UsageError for a text that no browser sends as an origin."""
    for origin in settings.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"{settings.where('cors_origins')}: expected origins as browsers send them, like "
                f"https://wiki.example.com: no path, no slash at the end, no *, lower case; found {origin!r}"
            )
    return frozenset(settings.cors_origins)


class ProtectedApp:
    """A layer around the app that sets headers. A header that the app set is not changed."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app = app
        self._origins = {origin.encode("ascii") for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = headers_of(route_path(scope), scope.get("scheme") == "https") + self._cors(scope)

        async def protected(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                there = {name.lower() for name, _ in headers}
                headers += [(name, value) for name, value in added if name == b"vary" or name not in there]
                message = {**message, "headers": headers}
            await send(message)

        if self._is_preflight(scope):
            await _answer_preflight(protected)
        else:
            await self._app(scope, receive, protected)

    def _cors(self, scope: Scope) -> Headers:
        """The headers that let pages of an allowed origin read the answer, and tell caches that the answer depends on
        the origin."""
        if not self._origins:
            return []
        vary, origin = (b"vary", b"Origin"), _header(scope, b"origin")
        if origin not in self._origins:
            return [vary]
        return [
            vary,
            (b"access-control-allow-origin", origin),
            *_encoded({"Access-Control-Expose-Headers": CORS_EXPOSED}),
        ]

    def _is_preflight(self, scope: Scope) -> bool:
        """Whether the request is a CORS preflight of an allowed origin, which has no token."""
        asked = _header(scope, b"access-control-request-method")
        return scope["method"] == "OPTIONS" and bool(asked) and _header(scope, b"origin") in self._origins


async def _answer_preflight(send: Send) -> None:
    named = {
        "Access-Control-Allow-Methods": CORS_METHODS,
        "Access-Control-Allow-Headers": CORS_HEADERS,
        "Access-Control-Max-Age": str(CORS_SECONDS),
    }
    await send({"type": "http.response.start", "status": 204, "headers": _encoded(named)})
    await send({"type": "http.response.body", "body": b""})


def _header(scope: Scope, name: bytes) -> bytes:
    """The value of a header that the request has exactly once; otherwise empty."""
    values = [value for given, value in scope["headers"] if given == name]
    return values[0] if len(values) == 1 else b""

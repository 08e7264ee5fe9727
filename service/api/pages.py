"""Answers for browsers: the headers of every answer, the other origins that may read answers, the page at `/` with its
files below `/page/`, and the description of the routes at `/docs`.

`docs/operations/security.md` shows the headers in tables; a test compares them. The files are read once, when the
module is loaded: a request names one of them or gets 404, and reaches no disk."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gnomon.service.access import is_page
from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

Headers = tuple[tuple[bytes, bytes], ...]

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

# What pages of other origins may do; a browser asks it again after ten minutes.
CORS: dict[str, Any] = {
    "allow_methods": ("GET", "HEAD", "POST"),
    # Besides Accept, Accept-Language, Content-Language, Content-Type. Clients of agents send the others.
    "allow_headers": ("Authorization", "Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name"),
    "expose_headers": ("Link", "X-Request-Id", "X-Table-Version"),
    "max_age": 600,
}

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def headers_of(path: str, tls: bool) -> Headers:
    """The headers of an answer at a path, in the form of ASGI."""
    return _headers(is_page(path), tls)


@cache
def _headers(to_page: bool, tls: bool) -> Headers:
    named = EVERY_ANSWER | (OF_PAGE if to_page else OF_API) | (UNDER_TLS if tls else {})
    return tuple((name.lower().encode("ascii"), value.encode("ascii")) for name, value in named.items())


def origins(settings: Settings) -> frozenset[str]:
    """The origins of `cors_origins`. UsageError for a text that no browser sends as an origin."""
    for origin in settings.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"{settings.where('cors_origins')}: expected origins as browsers send them, like "
                f"https://wiki.example.com: no path, no slash at the end, no *, lower case; found {origin!r}"
            )
    return frozenset(settings.cors_origins)


@dataclass(frozen=True)
class Asset:
    """A file, ready to send."""

    content: bytes
    media_type: str
    etag: str


def _assets() -> dict[str, Asset]:
    found = {}
    for file in files("gnomon.service").joinpath("page").iterdir():
        media_type = _TYPES.get(PurePosixPath(file.name).suffix)
        if media_type is not None and file.is_file():
            content = file.read_bytes()
            found[file.name] = Asset(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')
    return found


ASSETS = _assets()


def add_pages(app: Starlette) -> None:
    """Put the page, its files and `/docs` on the app. They are no part of `/openapi.json`."""

    async def page(request: Request) -> Response:
        return _sent(request, ASSETS["index.html"])

    async def docs(request: Request) -> Response:
        return _sent(request, ASSETS["docs.html"])

    async def asset(request: Request) -> Response:
        found = ASSETS.get(request.path_params["asset"])
        if found is None:
            raise HTTPException(404)
        return _sent(request, found)

    for path, handler in (("/", page), ("/docs", docs), ("/page/{asset}", asset)):
        app.add_route(path, handler)


def _sent(request: Request, asset: Asset) -> Response:
    headers = {"etag": asset.etag}
    known = request.headers.get("if-none-match", "")
    if asset.etag in known or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers={**headers, "content-type": asset.media_type})

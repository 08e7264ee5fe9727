"""The headers of every answer, including failed and refused ones, and the other origins that may read answers.

`docs/operations/security.md` shows them in tables; a test compares the page with this module."""

import re
from functools import cache
from typing import Any

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
    "allow_headers": ("Authorization",),  # besides Accept, Accept-Language, Content-Language, Content-Type
    "expose_headers": ("X-Request-Id", "X-Table-Version"),
    "max_age": 600,
}

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


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

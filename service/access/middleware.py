"""Authentication, authorization and rates: a layer around all routes.

The paths that need no token are listed here; all other paths need one, so that a forgotten path is refused.
`check_index` checks that a token allows an index, when a handler looks up the index of its request."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service.access.client_address import Peers, client_network
from gnomon.service.access.rate_limit import Rates
from gnomon.service.access.tokens import MOST_TOKEN_LENGTH, Token, Tokens
from gnomon.service.errors import Forbidden, TokensUnread, TooManyRequests, Unauthorized, problem_response
from gnomon.service.http import ENCODED, route_path
from gnomon.service.redaction import Roots
from gnomon.service.settings import Settings

PROBES = frozenset({"/healthz", "/readyz"})  # not counted: the rate limit must not block health checks
PAGES = frozenset({"", "/", "/docs"})  # "" is redirected to "/"
PAGE_FOLDER = "/page/"
OPENAPI = "/openapi.json"


def is_page(path: str) -> bool:
    """Whether a path below the root path belongs to the page, which contains no data of an index."""
    return path in PAGES or path.startswith(PAGE_FOLDER)


@dataclass(frozen=True)
class Asker:
    """The caller of a request, in `scope["state"]["asker"]`. `known`: the caller has a valid token, or none is
    needed."""

    address: str
    known: bool
    token: Token | None = None

    @property
    def client(self) -> str:
        """The name under which the caller's requests are counted."""
        return f"token {self.token.name}" if self.token else client_network(self.address)


class Guard:
    """The tokens, rates and trusted proxies of one app, in `app.state.guard`. UsageError for invalid settings or
    tokens."""

    def __init__(self, settings: Settings, at_start: bool = True) -> None:
        self.tokens = Tokens(settings, at_start)
        self.rates = Rates(settings)
        self.peers = Peers(settings)
        self.open_paths = PROBES | ({OPENAPI} if settings.public_docs else set())

    def admit(self, scope: Scope) -> Asker:
        """The caller of a request. Raises what `Rates.take` raises and, for a path that needs a token, what `_token`
        raises."""
        path, address = route_path(scope), self.peers.address(scope)
        try:
            token, refusal = self._token(scope), None
        except (Unauthorized, TokensUnread) as error:
            token, refusal = None, error
        asker = Asker(address, known=refusal is None, token=token)
        scope.setdefault("state", {})["asker"] = asker
        if path not in PROBES:
            self.rates.take(asker.client)
        if refusal is not None and path not in self.open_paths and not is_page(path):
            raise refusal
        return asker

    def _token(self, scope: Scope) -> Token | None:
        """The token of a request; None where no token is needed. Unauthorized where the request has no valid token;
        TokensUnread where its token is unknown and the tokens file could not be read yet."""
        if not self.tokens.needed:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, secret = (given[0] if given else b"").decode("latin-1").partition(" ")
        secret = secret.strip()
        if len(given) != 1 or scheme.lower() != "bearer" or not secret:
            raise Unauthorized("a token is needed: one header Authorization: Bearer TOKEN")
        token = self.tokens.find(secret) if len(secret) <= MOST_TOKEN_LENGTH else None
        if token is None:
            if self.tokens.unread:
                raise TokensUnread("who may ask is not known now: the service cannot read its tokens file")
            raise Unauthorized("this token is not known", given=True)
        if token.expired(dt.datetime.now(dt.UTC).date()):
            raise Unauthorized(f"this token has expired; its last day was {token.expires}", given=True)
        return token


class GuardedApp:
    """The layer around the routes. It answers a refused request with a problem, and no route runs: a request that the
    connection refused (its error is in `scope["state"]["refused"]`), and one that the guard does not admit. It decodes
    a long path, which the connection left encoded, of an admitted request only."""

    def __init__(self, app: ASGIApp, guard: Guard, roots: Callable[[], Roots]) -> None:
        self._app, self._guard, self._roots = app, guard, roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(scope)) is not None:
            await problem_response(Request(scope, receive), error, self._roots)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Exception | None:
        state = scope.setdefault("state", {})
        error: Exception | None = state.get("refused")
        if error is None:
            try:
                self._guard.admit(scope)
            except (Unauthorized, TokensUnread, TooManyRequests) as refusal:
                return refusal
            if state.pop(ENCODED, False):
                scope["path"] = unquote(scope["path"])
        return error


def asker_of(scope: Scope) -> Asker:
    """The caller of a request that passed `GuardedApp`."""
    asker: Asker = scope["state"]["asker"]
    return asker


def may_ask(scope: Scope, index: str) -> bool:
    """Whether the caller may know that an index exists."""
    asker = asker_of(scope)
    return asker.known and (asker.token is None or asker.token.may_ask(index))


def of_readiness(scope: Scope, told: dict[str, Any], tokens: Tokens) -> dict[str, Any]:
    """The part of the readiness that the caller may see: nothing of any index for a caller without a token, where
    tokens are needed."""
    if not asker_of(scope).known:
        return {"ready": told["ready"]}
    shown = {name: one for name, one in told["indexes"].items() if may_ask(scope, name)}
    trouble = {"tokens": tokens.trouble} if tokens.trouble is not None else {}
    return {**told, "indexes": shown, **trouble}


def check_index(scope: Scope, index: str | None, default: str) -> None:
    """Forbidden if the token of the caller does not allow this index (None: the default index), even if no such index
    exists."""
    name = default if index is None else index
    token = asker_of(scope).token
    if token is not None and not token.may_ask(name):
        raise Forbidden(f"this token may not ask this index; it may ask {', '.join(sorted(token.indexes or ()))}")


def charge_keys(request: Request, keys: int) -> None:
    """Count the keys of a batch in addition to its request."""
    request.app.state.guard.rates.charge_keys(asker_of(request.scope).client, keys)

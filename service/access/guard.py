"""Who may ask: the address of a client through trusted proxies, its rate, and the layer around all routes that checks
both and the token.

The paths that need no token are listed here; all other paths need one, so that a forgotten path is refused.
`check_index` checks that a token allows an index, when a handler looks up the index of its request."""

import datetime as dt
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service.access.tokens import MOST_TOKEN_LENGTH, Tokens
from gnomon.service.errors import Forbidden, Roots, TokensUnread, TooManyRequests, Unauthorized, problem_response
from gnomon.service.http import ENCODED, route_path
from gnomon.service.settings import Settings
from gnomon.service.token_lines import Token
from gnomon.shadow import UsageError

MOST_HOPS = 32  # hops of X-Forwarded-For that are read, the nearest first
KEPT_ADDRESSES = 4096  # parsed addresses in the cache: a client sends many requests
LONGEST_ADDRESS = 100  # characters; a longer text is no address, and is not cached
NOWHERE = "unknown"  # the address of a socket that has none
SITE_BITS = 64  # bits of an IPv6 network in which one site may use any address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MOST_CLIENTS = 10_000  # clients that are remembered: the latest ones
KEYS_A_REQUEST = 100  # keys of a batch that count as one more request
PROBES = frozenset({"/healthz", "/readyz"})  # not counted: the rate limit must not block health checks
PAGES = frozenset({"", "/", "/docs"})  # "" is redirected to "/"
PAGE_FOLDER = "/page/"
OPENAPI = "/openapi.json"


class Peers:
    """Finds the address of a client. UsageError where an entry of `trusted_proxies` is not an address or network."""

    def __init__(self, settings: Settings) -> None:
        where = settings.where("trusted_proxies")
        self._trusted = [_network(text, where) for text in settings.trusted_proxies]

    def address(self, scope: Scope) -> str:
        """The address of the client. Behind trusted proxies it is the last hop of X-Forwarded-For that is not a trusted
        proxy, since a client can invent the hops before it. The header `Forwarded` is never read."""
        client = scope.get("client")
        peer = _address(client[0]) if client else None
        if peer is None:
            return NOWHERE
        if self._trusted:
            for hop in _hops(scope):
                if not self._is_trusted(peer):
                    break
                found = _address(hop)
                if found is None:
                    break
                peer = found
        return str(peer)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted if network.version == address.version)


@lru_cache(KEPT_ADDRESSES)
def client_network(address: str) -> str:
    """The addresses that count as one client: an IPv4 address, or a network of IPv6."""
    found = _address(address)
    if found is None or found.version == 4:
        return address
    return str(ipaddress.ip_network((int(found) >> SITE_BITS << SITE_BITS, SITE_BITS)))


def _network(text: str, where: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UsageError(f"{where}: expected addresses or networks like 10.0.0.0/8, found {text!r}") from None


def _hops(scope: Scope) -> Iterable[str]:
    """The hops of X-Forwarded-For, the nearest first."""
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [hop.strip() for hop in b",".join(lines).decode("latin-1").split(",")][: -MOST_HOPS - 1 : -1]


def _address(text: str) -> Address | None:
    """The address in a text of a proxy: an address alone, or with a port, where IPv6 is in brackets. None for other
    texts."""
    return _parsed(text) if len(text) <= LONGEST_ADDRESS else None


@lru_cache(KEPT_ADDRESSES)
def _parsed(text: str) -> Address | None:
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


class Rates:
    """The rates of all clients. Each worker counts alone, with an equal share of the service's rate. For the event loop
    only."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._told = settings.requests_per_second
        self._per_second = settings.requests_per_second / settings.workers
        self._burst = max(1.0, settings.request_burst / settings.workers)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left at a time, by client

    def __len__(self) -> int:
        return len(self._left)

    def take(self, client: str) -> None:
        """Count a request. TooManyRequests where the client has no request left; the refused request is not counted."""
        if not self._per_second:
            return
        left = self._now(client)
        if left < 1:
            raise self._refusal(1 - left)
        self._keep(client, left - 1)

    def charge_keys(self, client: str, keys: int) -> None:
        """Count the keys of a batch before it is answered. The number of requests left may become negative: the client
        then has to wait longer. TooManyRequests where it is negative already, because of other batches of the
        client."""
        if not self._per_second or keys < KEYS_A_REQUEST:
            return
        left = self._now(client)
        if left < 0:
            raise self._refusal(-left)
        self._keep(client, left - keys // KEYS_A_REQUEST)

    def _refusal(self, missing: float) -> TooManyRequests:
        wait = math.ceil(missing / self._per_second)
        return TooManyRequests(
            f"more than {self._told:g} requests a second; come again in {wait} s "
            "(settings requests_per_second and request_burst)",
            wait,
        )

    def _now(self, client: str) -> float:
        left, since = self._left.get(client, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - since) * self._per_second)

    def _keep(self, client: str, left: float) -> None:
        self._left[client] = left, self._clock()
        self._left.move_to_end(client)
        while len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)


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
        if error is None and "asker" not in state:  # a request that the app makes itself may have its caller
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

"""The address of the client that sent a request, also behind trusted proxies."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from starlette.types import Scope

from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

MOST_HOPS = 32  # hops of X-Forwarded-For that are read, the nearest first
KEPT_ADDRESSES = 4096  # parsed addresses in the cache: a client sends many requests
LONGEST_ADDRESS = 100  # characters; a longer text is no address, and is not cached
NOWHERE = "unknown"  # the address of a socket that has none
SITE_BITS = 64  # bits of an IPv6 network in which one site may use any address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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

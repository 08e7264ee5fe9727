"""Which address a request comes from, also through proxies that are trusted to say it."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from starlette.types import Scope

from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

MOST_HOPS = 32  # looked at, the nearest first
KEPT_ADDRESSES = 4096  # that were parsed last: who asks, asks again
LONGEST_ADDRESS = 100  # characters; what is longer is none, and not kept
NOWHERE = "unknown"  # the address of a socket that has none
SITE_BITS = 64  # one site of IPv6 has as many addresses as it likes

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Peers:
    """UsageError where a setting of `trusted_proxies` is no address or network."""

    def __init__(self, settings: Settings) -> None:
        where = settings.where("trusted_proxies")
        self._trusted = [_network(text, where) for text in settings.trusted_proxies]

    def address(self, scope: Scope) -> str:
        """The address of who asks. Behind trusted proxies that is the last hop of X-Forwarded-For that is not one of
        them; hops before it may be made up. `Forwarded` is never read."""
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
    """An address as proxies write it: alone, or with a port, IPv6 in brackets then."""
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

"""service/access/guard.py: the address of a client, directly or through proxies."""

import pytest

from gnomon.service.access.guard import NOWHERE, Peers, client_network
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError


def address(peer: str | None, *forwarded: str, trusted: tuple[str, ...] = ()) -> str:
    headers = [(b"x-forwarded-for", one.encode("latin-1")) for one in forwarded]
    headers += [(b"forwarded", b"for=6.6.6.6"), (b"x-real-ip", b"6.6.6.6")]
    peers = Peers(Settings(indexes=["x"], trusted_proxies=trusted))
    return peers.address({"client": None if peer is None else (peer, 5000), "headers": headers})


def test_without_trusted_proxies_no_header_is_believed() -> None:
    assert address("10.0.0.1", "6.6.6.6") == "10.0.0.1"


def test_a_peer_that_is_no_trusted_proxy_is_not_believed() -> None:
    assert address("10.0.0.1", "6.6.6.6", trusted=("10.0.0.2", "192.168.0.0/16")) == "10.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["1.2.3.4"], "1.2.3.4"),
        (["6.6.6.6, 1.2.3.4"], "1.2.3.4"),  # the client sent the addresses before it
        (["6.6.6.6", "1.2.3.4"], "1.2.3.4"),  # in two headers
        (["1.2.3.4, 10.0.0.7"], "1.2.3.4"),  # through two of our proxies
        (["1.2.3.4:4711"], "1.2.3.4"),
        (["[2001:db8::1]:443"], "2001:db8::1"),
        (["2001:db8::1"], "2001:db8::1"),
        (["::ffff:1.2.3.4"], "1.2.3.4"),
        (["1.2.3.4, unknown"], "10.0.0.1"),  # cannot be followed further
        ([""], "10.0.0.1"),
        ([], "10.0.0.1"),
        (["6.6.6.6" + ", 10.0.0.7" * 100], "10.0.0.7"),  # not walked without end
        (["[2001:db8::1%" + "z" * 60_000 + "]"], "10.0.0.1"),  # longer than any address
        (["\xff\xfe"], "10.0.0.1"),
    ],
)
def test_behind_a_trusted_proxy_the_last_hop_that_is_none_asks(forwarded: list[str], expected: str) -> None:
    assert address("10.0.0.1", *forwarded, trusted=("10.0.0.0/8",)) == expected
    assert address("::ffff:10.0.0.1", *forwarded, trusted=("10.0.0.0/8",)) == expected


def test_a_socket_without_an_address_is_one_client() -> None:
    assert address(None) == NOWHERE
    assert client_network(NOWHERE) == NOWHERE


def test_addresses_of_one_site_of_ipv6_are_one_client() -> None:
    assert client_network("2001:db8:1:2:aaaa::1") == client_network("2001:db8:1:2:bbbb::2") == "2001:db8:1:2::/64"
    assert client_network("2001:db8:1:3::1") != client_network("2001:db8:1:2::1")
    assert client_network("1.2.3.4") == "1.2.3.4"


@pytest.mark.parametrize("wrong", ["proxy.local", "10.0.0.0/33", "*"])
def test_a_setting_that_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="setting trusted_proxies: expected addresses or networks"):
        Peers(Settings(indexes=["x"], trusted_proxies=(wrong,)))

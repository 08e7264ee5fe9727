"""service/http/transports.py: a client that reads slowly gets its answer, one that does not read loses it."""

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gnomon.service.http import transports as send_progress
from gnomon.service.settings.table import Settings
from tests.service.http.test_tls import Files
from tests.service.live import SECONDS, Live, answer, answers_by, live, request
from tests.service.processes import until

pytestmark = pytest.mark.slow  # clients that read slowly take their time

SIZE = 29_000_000  # of the answer
STALLED_SECONDS = 1.0  # so the least rate is 64 KiB a second
RECEIVED_BYTES = 16 * 1024  # that the system of the client holds

ways = pytest.mark.parametrize("end", ["keep-alive", "close"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["http", "https", "https with a short time for idle connections"])
def running(
    request: pytest.FixtureRequest, crawl_settings: Settings, files: Files, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Live]:
    monkeypatch.setattr(send_progress, "STALLED_SECONDS", STALLED_SECONDS)
    answers_by(monkeypatch, lambda served, key, options, hold: b"x" * SIZE)
    tls = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)} if request.param != "http" else {}
    with live(
        replace(crawl_settings, **tls, idle_seconds=2 if "short" in request.param else 300, shutdown_seconds=0)
    ) as running:
        yield running


def connected(running: Live, files: Files, end: str) -> socket.socket:
    """A client that has asked for the answer and read nothing."""
    client = socket.socket()
    client.settimeout(SECONDS)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    client.connect(("127.0.0.1", running.port))
    if running.is_encrypted:
        client = files.client().wrap_socket(client, server_hostname="localhost")
    client.sendall(request("/rows/large", "GET", f"Connection: {end}"))
    return client


def read(client: socket.socket, bytes_per_second: float, seconds: float) -> int:
    """Read at a rate. Returns the bytes read; fewer where the connection ends before."""
    begun, size = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        if size > passed * bytes_per_second:
            time.sleep(0.01)
            continue
        part = client.recv(4096)
        if not part:
            break
        size += len(part)
    return size


@pytest.mark.slow
@ways
def test_a_client_above_the_least_rate_gets_the_whole_answer(running: Live, files: Files, end: str) -> None:
    with connected(running, files, end) as client:
        size = read(client, 400_000, 2.5 * STALLED_SECONDS)
        while part := client.recv(1_000_000):
            size += len(part)
            if size > SIZE and end == "keep-alive":
                break
    assert size > SIZE


@ways
def test_a_client_that_stops_reading_loses_its_connection(running: Live, files: Files, end: str) -> None:
    with connected(running, files, end) as client:
        assert client.recv(1)
        until(lambda: not running.connections)


@ways
def test_a_client_below_the_least_rate_loses_its_connection(running: Live, files: Files, end: str) -> None:
    with connected(running, files, end) as client:
        assert client.recv(1)
        begun = time.monotonic()
        while running.connections:
            assert time.monotonic() - begun < SECONDS
            read(client, 4_000, 0.2)


def test_a_client_that_leaves_the_end_of_tls_unanswered_loses_its_connection(
    crawl_settings: Settings, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_progress, "STALLED_SECONDS", 0.2)
    given = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    with (
        live(replace(crawl_settings, **given)) as running,
        files.client().wrap_socket(running.connect(), server_hostname="localhost") as client,
    ):
        assert isinstance(client, ssl.SSLSocket)
        client.sendall(request("/healthz", "GET", "Connection: close"))
        assert answer(client).status == 200
        until(lambda: not running.connections)

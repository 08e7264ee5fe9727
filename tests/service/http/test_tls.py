"""service/http/tls.py: TLS over a real socket, and errors of wrong certificates before the service listens."""

import contextlib
import datetime as dt
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gnomon.service.http.tls import tls_context
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError
from tests.service.live import Live, answer, is_closed, live, request
from tests.service.processes import until

PROGRAM = (
    "from gnomon.service.process.server import run; from gnomon.service.settings.table import load_settings; "
    "run(load_settings())"
)
ROOT = Path(__file__).parents[3]


class Files:
    """The files of an authority and of its certificate with the key."""

    def __init__(self, folder: Path, expires: dt.datetime | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("localhost", "127.0.0.1", not_after=expires)
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.key.chmod(0o600)

    def settings(self, **more: object) -> Settings:
        given = {"tls_certificate": str(self.certificate), "tls_key": str(self.key), **more}
        return Settings(indexes=["x"], **given)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def port(files: Files, crawl_settings: Settings) -> Iterator[int]:
    environment = {
        **os.environ,
        "GNOMON_INDEXES": crawl_settings.indexes[0],
        "GNOMON_PORT": "0",
        "GNOMON_TLS_CERTIFICATE": str(files.certificate),
        "GNOMON_TLS_KEY": str(files.key),
    }
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " at https://127.0.0.1:" in line
        yield int(line.rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.process
def test_rows_are_answered_over_tls(files: Files, port: int) -> None:
    with httpx.Client(verify=files.client(), base_url=f"https://localhost:{port}") as client:
        answer = client.get("/rows/second")
        assert [row["url"] for row in answer.json()["rows"]] == ["second"]
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get("/no/such/route").headers["strict-transport-security"] == "max-age=31536000"


@pytest.mark.process
def test_the_certificate_is_the_one_of_the_settings_and_others_are_not_trusted(files: Files, port: int) -> None:
    stranger = ssl.create_default_context()
    trustme.CA().configure_trust(stranger)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        stranger.wrap_socket(connection, server_hostname="localhost")


@pytest.mark.process
@pytest.mark.parametrize(
    ("version", "taken"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_2_and_later_are_spoken(files: Files, port: int, version: ssl.TLSVersion, taken: bool) -> None:
    context = files.client()
    context.set_ciphers("ALL:@SECLEVEL=0")  # otherwise the client would not offer 1.1
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        if taken:
            with context.wrap_socket(connection, server_hostname="localhost") as spoken:
                spoken.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                with spoken.makefile("rb") as stream:
                    assert json.loads(stream.read().rpartition(b"\r\n\r\n")[2]) == {"alive": True}
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(connection, server_hostname="localhost")


@pytest.mark.process
def test_plain_http_gets_no_answer_at_the_port_of_tls(port: int) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60)


@pytest.fixture
def encrypted(files: Files, crawl_settings: Settings) -> Iterator[Live]:
    given = {"tls_certificate": str(files.certificate), "tls_key": str(files.key), "max_connections": 2}
    with live(replace(crawl_settings, **given, read_seconds=0.2)) as running:
        yield running


def test_a_connection_without_a_handshake_is_counted_and_closed_after_its_time(encrypted: Live) -> None:
    with encrypted.connect() as silent:
        until(lambda: encrypted.connections)
        assert is_closed(silent)
    until(lambda: not encrypted.connections)


def test_any_number_of_connections_without_a_handshake_keeps_nobody_out(files: Files, crawl_settings: Settings) -> None:
    given = {"tls_certificate": str(files.certificate), "tls_key": str(files.key), "max_connections": 2}
    with live(replace(crawl_settings, **given)) as running, contextlib.ExitStack() as stack:
        held = [stack.enter_context(running.connect()) for _ in range(20)]
        for _ in range(3):
            connection = stack.enter_context(files.client().wrap_socket(running.connect(), server_hostname="localhost"))
            connection.sendall(request("/rows/second"))
            assert answer(connection).status == 200
            assert len(running.connections) == 2
        assert all(is_closed(connection) for connection in held)


@pytest.mark.parametrize(
    "sent", [b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"]
)
def test_a_handshake_that_fails_ends_the_connection_and_no_other(files: Files, encrypted: Live, sent: bytes) -> None:
    with encrypted.connect() as connection:
        connection.sendall(sent)
        while connection.recv(100):  # an alert of TLS may come
            pass
    until(lambda: not encrypted.connections)
    with files.client().wrap_socket(encrypted.connect(), server_hostname="localhost") as connection:
        connection.sendall(request("/healthz"))
        assert answer(connection).status == 200


def test_a_request_sent_with_the_end_of_the_handshake_is_answered(files: Files, encrypted: Live) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with encrypted.connect() as connection:
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        connection.sendall(outgoing.read())
        while True:
            incoming.write(connection.recv(10_000))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
        client.write(request("/rows/second"))
        connection.sendall(outgoing.read())  # both in one segment
        received = b""
        while b"\r\n\r\n" not in received:
            incoming.write(connection.recv(10_000))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:  # record by record
                    received += client.read(10_000)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"strict-transport-security" in received


def test_without_settings_there_is_no_tls() -> None:
    assert tls_context(Settings(indexes=["x"])) is None


def test_a_certificate_and_its_key_are_taken_without_a_word(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(tls_context(files.settings()), ssl.SSLContext)
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tls_key": None}, "setting tls_certificate: expected tls_key beside tls_certificate; TLS needs both"),
        ({"tls_certificate": None}, "setting tls_key: expected tls_certificate beside tls_key"),
        (
            {"tls_key": "/no/such/key.pem"},
            "setting tls_key: /no/such/key.pem: No such file or directory; expected a PEM",
        ),
        ({"tls_certificate": "/"}, "setting tls_certificate: /: Is a directory"),
    ],
)
def test_a_file_that_is_not_there_is_named(files: Files, change: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        tls_context(files.settings(**change))
    assert str(raised.value).startswith(says)


def test_the_key_of_another_certificate_is_told(files: Files, tmp_path: Path) -> None:
    other = Files(tmp_path / "other")
    with pytest.raises(UsageError, match=r"key.pem: not the key of the first certificate in .*certificate.pem"):
        tls_context(files.settings(tls_key=str(other.key)))


def test_an_encrypted_key_is_told_instead_of_asked_for(files: Files, tmp_path: Path) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    with pytest.raises(UsageError, match=r"setting tls_key: .*locked.pem: the key is encrypted; expected one without"):
        tls_context(files.settings(tls_key=str(tmp_path / "locked.pem")))


@pytest.mark.parametrize(
    "content", [b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_pem_is_told_with_what_was_expected(files: Files, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "wrong.pem").write_bytes(content)
    for setting, what in (("tls_certificate", "a certificate"), ("tls_key", "a private key")):
        with pytest.raises(UsageError, match=rf"setting {setting}: .*wrong.pem: expected {what} in PEM form"):
            tls_context(files.settings(**{setting: str(tmp_path / "wrong.pem")}))


def test_key_and_certificate_that_were_mixed_up_are_told(files: Files) -> None:
    with pytest.raises(UsageError, match=r"setting tls_certificate: .*key.pem: expected a certificate"):
        tls_context(files.settings(tls_certificate=str(files.key), tls_key=str(files.certificate)))


def test_an_expired_certificate_is_warned_of_and_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expired = Files(tmp_path, dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    with caplog.at_level(logging.WARNING, "gnomon.service"):
        assert tls_context(expired.settings())
    [record] = caplog.records
    assert "certificate has expired; clients will refuse it" in record.getMessage()


def test_a_key_that_all_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_key = Files(tmp_path)
    open_key.key.chmod(0o644)
    assert tls_context(open_key.settings())
    assert "chmod 600" in caplog.text

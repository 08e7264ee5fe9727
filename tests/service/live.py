"""A service on a socket of this process, with functions to send and receive its bytes."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette

from gnomon.service.api.answers import KeyAnswer
from gnomon.service.api.responses import Sealed, sealed
from gnomon.service.application import create_app
from gnomon.service.http import Options, tls_context
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold
from gnomon.service.process.server import _listen
from gnomon.service.process.worker import _config, _Server
from gnomon.service.settings.table import Settings

SECONDS = 60.0  # timeout of a test


class Live:
    """A service that runs until the block ends."""

    def __init__(self, settings: Settings, port: int = 0) -> None:
        self.app: Starlette = create_app(settings)
        self.is_encrypted = settings.tls_certificate is not None
        self.served = self.app.state.service.indexes.default
        self._listening = _listen(settings, port)
        self.port: int = self._listening.getsockname()[1]
        ready = threading.Event()
        self.server = _Server(_config(settings, self.app, tls_context(settings)), ready.set)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self._listening])))
        self._thread.start()
        assert ready.wait(SECONDS)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    @property
    def connections(self) -> list[Any]:
        """The connections that the service counts."""
        return list(self.server.server_state.connections)

    @property
    def idle(self) -> int:
        """How many of the connections wait for a request."""
        return len(self.server.config.http_protocol_class.idle)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call something in the event loop of the service."""
        self.server.servers[0].get_loop().call_soon_threadsafe(callback)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def live(settings: Settings) -> Iterator[Live]:
    running = Live(settings)
    try:
        yield running
    finally:
        running.stop()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(target: str, method: str = "GET", *fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: gnomon", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answers(connection: socket.socket, *methods: str) -> list[Answer]:
    """The next answers, one for each request method; fewer if the connection ends before."""
    found = []
    with connection.makefile("rb") as stream:
        for method in methods:
            line = stream.readline()
            if not line:
                break
            headers: dict[str, str] = {}
            while (field := stream.readline().strip()) != b"":
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            length = 0 if method == "HEAD" else int(headers["content-length"])
            found.append(Answer(int(line.split()[1]), headers, stream.read(length)))
    return found


def answer(connection: socket.socket, method: str = "GET") -> Answer:
    [found] = answers(connection, method)
    return found


def is_closed(connection: socket.socket) -> bool:
    """Whether the connection ends without more bytes."""
    return connection.recv(1) == b""


def answers_by(monkeypatch: pytest.MonkeyPatch, work: Callable[[ServedIndex, object, Options, Hold], bytes]) -> None:
    """Let a function make the answers to single keys, in place of a look-up."""

    def made(self: KeyAnswer, hold: Hold) -> Sealed:
        return sealed(work(self._served, self._key, self._options, hold), self._encoding, hold)

    monkeypatch.setattr(KeyAnswer, "made", made)

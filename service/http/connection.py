"""HTTP/1.1 on one connection: uvicorn's protocol over httptools, with a limit on everything a client may send or hold.

A request that is refused before its routes see it (400, 408, 414, 431, or 503 for one connection too many) is answered
in its turn, through the whole app, which finds the error in its scope (`access.GuardedApp`): so it is logged, counted
and has an id like any other. A request whose client has left is cancelled."""

import asyncio
import ssl
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gnomon.service.errors import (
    BadRequest,
    HeadTooLarge,
    Overloaded,
    RequestTooSlow,
    TargetTooLong,
    UnknownTransferCoding,
)
from gnomon.service.http.requests import ENCODED
from gnomon.service.http.transports import (
    EncryptedTransport,
    IdleConnections,
    LingeringTransport,
    SendProgress,
    start_tls,
    unread_bytes,
)
from gnomon.service.settings import Settings

# Every byte of a key may be percent-encoded; the rest is for the other parameters and key columns.
ENCODED_BYTES, OTHER_BYTES = 3, 64 * 1024
HEAD_BYTES = 64 * 1024  # of all header fields
MOST_FIELDS = 200
MOST_AHEAD = 100  # requests of one connection that wait for earlier answers
LONG_PATH_BYTES = 1024  # decoding a longer path takes up to 10 ms, so the caller is checked first
SHOWN_BYTES = 256  # of a refused path and query, in the answer and the log
HANDSHAKE_SECONDS = 10.0  # at most, for the handshake of TLS
GRACE_SECONDS = 1.0  # how long an idle connection stays open after a signal to end
PROBES = ("/healthz", "/readyz", "/metrics")  # answered beyond the limit of connections, too


class RequestCycle(RequestResponseCycle):
    """A request and its answer. `failure` is raised where the rest of its body is waited for."""

    failure: Exception | None = None

    async def run_asgi(self, app: Any) -> None:
        async def until_cancelled(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:  # the client has left, or the process ends before the answer
                if not self.disconnected:
                    self.disconnected = True
                    self.transport.close()

        await super().run_asgi(until_cancelled)

    async def receive(self) -> Any:
        message = await super().receive()
        if self.failure is not None and message["type"] == "http.request":
            raise self.failure
        return message


def protocol(settings: Settings, tls: ssl.SSLContext | None = None) -> type[HttpToolsProtocol]:
    """The class of connections with the limits of the settings, which speak TLS where there is a context."""
    members = {"settings": settings, "tls": tls, "idle": IdleConnections()}
    return type("LimitedConnection", (Connection,), members)


class Connection(HttpToolsProtocol):
    """One connection, counted from the moment it is accepted. `protocol` sets `settings`, `tls` and `idle`."""

    settings: Settings
    tls: ssl.SSLContext | None
    idle: IdleConnections  # of the process
    cycle: RequestCycle  # the request that came last

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._target_bytes = ENCODED_BYTES * self.settings.max_key_bytes + OTHER_BYTES
        self._in_head = True
        self._head_bytes = self._field_bytes = 0
        self._begun = self._upgrades = self._refused = self._ending = False
        self._error: Exception | None = None  # what a callback of the parser raised
        self._active: RequestCycle | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._socket_transport = transport
        self._progress = SendProgress(transport)
        self._handshake: asyncio.Task[None] | None = None
        self._decrypted_early = bytearray()
        self._too_many = not self._make_room()
        if len(self.connections) > 2 * self.settings.max_connections:
            transport.abort()
            return
        self.idle.add(self)
        if self.tls is not None:
            transport.pause_reading()  # until `start_tls` reads
            self._handshake = self.loop.create_task(self._shake_hands(self.tls))
        else:
            self._set_timer(self.settings.idle_seconds)

    def _make_room(self) -> bool:
        """Close idle connections until there are no more than the limit; False where too few are idle."""
        while len(self.connections) > self.settings.max_connections:
            if not self.idle.close_longest():
                return False
        return True

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        """Start TLS. The connection is closed if the handshake fails or takes too long."""
        seconds = min(HANDSHAKE_SECONDS, self.settings.read_seconds)
        encrypted = None
        try:
            encrypted = await start_tls(self._socket_transport, self, context, seconds)
        finally:
            self._handshake = None
            if encrypted is None:
                self._socket_transport.abort()
                self.connection_lost(None)  # asyncio does not call it during a handshake
        if encrypted is not None:
            self._begin_encrypted(encrypted)

    def _begin_encrypted(self, transport: EncryptedTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._progress = SendProgress(self.transport)
        self.idle.add(self)
        self._set_timer(self.settings.idle_seconds)
        if self._decrypted_early:
            self.data_received(bytes(self._decrypted_early))
            self._decrypted_early.clear()

    def is_quiet(self) -> bool:
        """Whether nothing waits to be sent or read."""
        waiting_to_be_read = unread_bytes(self._socket_transport.get_extra_info("socket"))
        return not waiting_to_be_read and not self.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close at once, and remove the connection from the counted ones."""
        self.connections.discard(self)
        if self._handshake is not None:
            self._handshake.cancel()  # asyncio would go on with the handshake of a closed socket
        self.transport.close()  # with TLS, this sends close_notify
        self._socket_transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.discard(self)
        if self._handshake is not None:
            self._handshake.cancel()
        self._progress.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.pipeline.clear()
        active = self._active
        super().connection_lost(exc)
        if active is not None and not active.response_complete:
            active.disconnected = True
            if self._task is not None:
                self._task.cancel()

    def shutdown(self) -> None:
        """Close after the last answer. An idle connection stays open for GRACE_SECONDS, since a request may be under
        way."""
        self._ending = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(GRACE_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._close()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._time_is_over)

    def _time_is_over(self) -> None:
        """The timer's callback: the current request is not complete in time, or none came."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_head and self.cycle is not None and not self.cycle.response_complete:
            self._set_timer(self.settings.read_seconds)  # an earlier request is not answered yet
            return
        if self._in_head and not self._head_bytes:
            self._close()
            return
        error = RequestTooSlow(f"the request was not whole in {self.settings.read_seconds:g} s (setting read_seconds)")
        if self._in_head:
            self._refuse(error)
        elif self.pipeline:  # reading is paused until earlier requests are answered
            self._set_timer(self.settings.read_seconds)
        elif self.cycle.response_complete:
            self._close()
        else:
            self.cycle.keep_alive = False
            self.cycle.failure = error
            self.cycle.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._progress.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._progress.stop()

    def _close(self) -> None:
        """Close when everything is sent, if the client takes it."""
        if self in self.connections:
            self.transport.close()
            self._progress.start()

    eof_received = _close

    def _stop_reading_requests(self) -> bool:
        """Discard all further input. Returns whether a part of the answered request may still come."""
        unread, self._refused = self._refused or (self.cycle is not None and self.cycle.more_body), True
        return unread

    def _answered(self, _: asyncio.Task[None]) -> None:
        if self.transport.is_closing():
            self._close()

    # -- what comes in -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:  # the client sent it with the end of its handshake
            self._decrypted_early += data
            return
        if self._refused:
            return
        self.idle.discard(self)
        if self._in_head:
            if not self._head_bytes:
                self._set_timer(self.settings.read_seconds)
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrades:
                self._read_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            why = " ".join(str(error).split())
            self._refuse(self._error or BadRequest(f"not a request of HTTP/1.1: {why}"))
        if self._in_head and self._head_bytes > self._target_bytes + HEAD_BYTES and not self._refused:
            self._refuse(_head_too_large())

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its offer to upgrade, since only HTTP/1.1 is supported. The parser stops at
        an upgrade, and takes a body for data of the other protocol."""
        self._upgrades = False
        self.parser = httptools.HttpRequestParser(self)
        fields = [(name, value) for name, value in self.headers if name not in (b"upgrade", b"http2-settings")]
        lines = [b"%s: %s\r\n" % (n, _without_upgrade(v) if n == b"connection" else v) for n, v in fields]
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(lines))
        self._in_head, self._head_bytes = True, 0
        self.data_received(head + rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._field_bytes = True, 0
        if self._timer is None:
            self._set_timer(self.settings.read_seconds)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._target_bytes:
            most = self._target_bytes
            self._fail(TargetTooLong(f"the path and query are longer than {most} bytes; send long keys by POST"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._field_bytes += len(name) + len(value) + 4
        if self._field_bytes > HEAD_BYTES or len(self.headers) >= MOST_FIELDS:
            self._fail(_head_too_large())
        if self._in_head:  # fields after a body (trailers) are ignored: no proxy has checked them
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version, method = self.parser.get_http_version(), self.parser.get_method()
        self.scope |= {"method": method.decode("ascii"), "http_version": version}
        if version not in ("1.0", "1.1"):
            self._fail(BadRequest(f"expected HTTP/1.1, found HTTP/{version}"))
        if method == b"CONNECT":  # which the parser takes for an upgrade, whatever its fields say
            self._fail(BadRequest("CONNECT is for proxies; this is none"))
        if sum(name == b"host" for name, _ in self.headers) != 1 and version == "1.1":
            self._fail(BadRequest("expected one header field Host, which HTTP/1.1 asks for"))
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and version == "1.0":
            self._fail(BadRequest("expected no Transfer-Encoding in HTTP/1.0"))
        if codings and codings != [b"chunked"]:  # the parser looks at the last one only
            found = b", ".join(codings).decode("latin-1")[:SHOWN_BYTES]
            self._fail(UnknownTransferCoding(f"Transfer-Encoding: expected chunked, found {found}"))
        path, query = self._target()
        self._in_head, self._head_bytes = False, 0
        if self.parser.should_upgrade():
            self._upgrades = True
            return
        is_long = len(path) > LONG_PATH_BYTES
        self.scope["state"][ENCODED] = is_long
        self.scope |= {
            "path": self.root_path + (path.decode("ascii") if is_long else unquote(path.decode("ascii"))),
            "raw_path": self.root_path.encode("ascii") + path,
            "query_string": query,
        }
        self._too_many = self._too_many and not self._make_room()
        if self._too_many and self.scope["path"].removeprefix(self.settings.root_path) not in PROBES:
            most = self.settings.max_connections
            self.scope["state"]["refused"] = Overloaded(f"there are more than {most} connections (max_connections)")
        self._put(version != "1.0" and self.parser.should_keep_alive() and not (self._ending or self._too_many))

    def _target(self) -> tuple[bytes, bytes]:
        """Path and query, each as it was sent. The parser's own splitting ends at 65,535 bytes."""
        target = self.url
        if b"#" in target:
            self._fail(BadRequest("the path and query hold a #; percent-encode it as %23"))
        path, _, query = target.partition(b"?")
        if b"://" in path and not path.startswith(b"/"):  # the form of requests to a proxy
            _, slash, below = path.partition(b"://")[2].partition(b"/")
            path = slash + below or b"/"
        if not path.startswith(b"/") and path != b"*":
            self._fail(BadRequest("expected a path that begins with /"))
        return path, query

    def on_body(self, body: bytes) -> None:
        if not self._upgrades:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        self._in_head, self._head_bytes, self._begun = True, 0, False
        self._set_timer(None)
        super().on_message_complete()
        self._rest_if_idle()

    def on_response_complete(self) -> None:
        """Begin the next request that came ahead, else wait for one. uvicorn's own does the same, with its timer."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                self._run(cycle, app)
        if self.transport.get_write_buffer_size():
            self._progress.start()
        self._rest_if_idle()

    def _rest_if_idle(self) -> None:
        """Add the connection to the idle ones if every request is answered and no other has begun."""
        if self.cycle.response_complete and self._in_head and not (self._begun or self._head_bytes):
            self.idle.add(self)
            self._set_timer(self.settings.idle_seconds)

    # -- what is answered ----------------------------------------------------------------------------------------------

    def _put(self, keep_alive: bool) -> None:
        """Let the app answer the request of the scope, after all earlier ones."""
        before = self.cycle
        if len(self.pipeline) >= MOST_AHEAD and not self._refused:
            self._fail(BadRequest(f"more than {MOST_AHEAD} requests were sent ahead of the answers"))
        transport: Any = LingeringTransport(self.transport, self._stop_reading_requests, self._close)
        self.cycle = RequestCycle(
            scope=self.scope,
            transport=transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._run(self.cycle, self.app)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((self.cycle, self.app))

    def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        assert isinstance(cycle, RequestCycle)
        self._active = cycle
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self._task.add_done_callback(self._answered)
        self.tasks.add(self._task)

    def _fail(self, error: Exception) -> None:
        """End the parsing of what comes in, from one of its callbacks."""
        self._error = error
        raise error

    def _refuse(self, error: Exception) -> None:
        """Answer an unreadable request with an error, after all earlier answers, and close the connection."""
        self._refused = True
        self._set_timer(None)
        if not self._begun:
            self.on_message_begin()
        if self.cycle is not None and self.cycle.scope is self.scope:  # only its body is broken
            if self.cycle.response_complete:
                self.transport.close()
            self.cycle.keep_alive = False
            self.cycle.failure = error
            self.cycle.message_event.set()
            return
        shown, known = self.url[:SHOWN_BYTES] or b"-", bool(self.url)
        path, _, query = shown.partition(b"?")
        self.scope |= {
            "method": self.parser.get_method().decode("ascii") if known else "-",
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
        }
        self.scope["state"]["refused"] = error
        self.expect_100_continue = False
        self._put(False)
        self.cycle.more_body = False
        self.cycle.message_event.set()


def _without_upgrade(connection: bytes) -> bytes:
    """The value of the field Connection, reduced to close or keep-alive."""
    return b"close" if b"close" in [word.strip() for word in connection.lower().split(b",")] else b"keep-alive"


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the header fields are more than {MOST_FIELDS}, or larger than {HEAD_BYTES} bytes together")

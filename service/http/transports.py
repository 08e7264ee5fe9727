"""Transports of connections: TLS over a socket, a close that lets the client read what was sent, the end of a client
that does not read its answer, and the connections of a process that wait for a request."""

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

# How long TLS takes to send the rest of an answer after `close`; `SendProgress` ends a client that does not read.
CLOSE_SECONDS = 86_400.0
WRITE_BUFFER_BYTES = 64 * 1024  # unsent bytes until an answer waits, as without TLS; asyncio's default is 512 KiB
LINGER_SECONDS = 2.0  # how long the rest of a refused request is read, so that the client sees the answer
STALLED_SECONDS, LEAST_BYTES = 30.0, 64 * 1024  # the lowest rate that is served: LEAST_BYTES in STALLED_SECONDS
# The system of a client frees space for new bytes in steps, of 64 KiB on loopback. At the lowest rate, only one step in
# STALLED_SECONDS is certain.
LEAST_STEP_BYTES = LEAST_BYTES // 2
MOST_TRIED = 8  # idle connections tried for a new one, so that its cost does not grow with their number


class EncryptedTransport:
    """TLS over the transport of a socket, from `start_tls`.

    asyncio's own TLS transport loses its state at a second `close`, and does not count bytes that wait in the transport
    below it."""

    def __init__(self, tls: asyncio.Transport, socket_transport: asyncio.Transport) -> None:
        self._tls = tls
        self._socket_transport = socket_transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tls, name)

    def get_write_buffer_size(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._tls.get_write_buffer_size() + self._socket_transport.get_write_buffer_size()

    def close(self) -> None:
        """Send the remaining bytes and close_notify, then close."""
        if not self._tls.is_closing():
            self._tls.close()

    def abort(self) -> None:
        """Close at once."""
        self._socket_transport.abort()


async def start_tls(
    transport: asyncio.Transport, protocol: asyncio.Protocol, context: ssl.SSLContext, handshake_seconds: float
) -> EncryptedTransport | None:
    """TLS over a transport that nothing was read from; None where the handshake failed or took too long."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # of which SSLError is one
        tls = await loop.start_tls(
            transport,
            protocol,
            context,
            server_side=True,
            ssl_handshake_timeout=handshake_seconds,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
        if tls is not None and not tls.is_closing():
            tls.set_write_buffer_limits(WRITE_BUFFER_BYTES)
            return EncryptedTransport(tls, transport)
    return None


class LingeringTransport:
    """The transport of an answer. Its `close` ends the answer and, where a part of the request is unread, reads on for
    LINGER_SECONDS before it calls `close`.

    Where a socket is closed with bytes unread, the client may lose the answer. `stop_reading_requests` lets the
    connection discard what comes in, and returns whether a part of the request is unread."""

    def __init__(
        self, transport: asyncio.Transport, stop_reading_requests: Callable[[], bool], close: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._stop_reading_requests = stop_reading_requests
        self._close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if not self._stop_reading_requests():
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._close)


class SendProgress:
    """Watches the unsent bytes, from `start` until `stop`, and aborts the connection of a client that reads too slowly.

    Unsent bytes wait in this process or in the system. The bytes in the system count because it may take 4 MB at once,
    and then nothing for minutes, while the client reads steadily."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def start(self) -> None:
        """Begin to watch, or begin again."""
        self.stop()
        self._unsent = unsent_bytes(self._transport)
        self._timer = self._loop.call_later(STALLED_SECONDS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        unsent = unsent_bytes(self._transport)
        if not unsent and not self._transport.is_closing():
            return
        if 0 < unsent <= self._unsent - LEAST_STEP_BYTES:
            self.start()
        else:  # also where all is sent: a connection that closes with TLS waits for the client
            self._transport.abort()


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the client has not acknowledged; where the system does not count these, bytes that the system has not
    taken."""
    size = transport.get_write_buffer_size()
    connection: socket.socket = transport.get_extra_info("socket")
    with suppress(OSError, ValueError):  # ValueError: of a closed socket
        size += struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    return size


class Closable(Protocol):
    """A connection that may be idle."""

    def is_quiet(self) -> bool: ...

    def drop(self) -> None: ...


class IdleConnections:
    """Idle connections in the order in which they became idle. The time of a call does not grow with their number."""

    def __init__(self) -> None:
        self._oldest_first: OrderedDict[Closable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._oldest_first)

    def add(self, connection: Closable) -> None:
        """Put a connection last."""
        self._oldest_first[connection] = None
        self._oldest_first.move_to_end(connection)

    def discard(self, connection: Closable) -> None:
        """Take out a connection, if it is there."""
        self._oldest_first.pop(connection, None)

    def close_longest(self) -> bool:
        """Close the connection that has been idle longest; False where none is. A connection that is not quiet (the
        system holds unread bytes, or memory an unsent part of an answer) is put last."""
        for _ in range(min(MOST_TRIED, len(self._oldest_first))):
            connection, _ = self._oldest_first.popitem(last=False)
            if connection.is_quiet():
                connection.drop()
                return True
            self._oldest_first[connection] = None
        return False


def unread_bytes(connection: socket.socket) -> int:
    """Bytes that the system holds for this process to read; 0 of a socket that is closed."""
    descriptor = connection.fileno()
    if descriptor < 0:
        return 0
    size: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
    return size

"""Transports of a connection: TLS over a socket, and a close that lets the client read what was sent."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# How long TLS takes to send the rest of an answer after `close`; `SendProgress` ends a client that does not read.
CLOSE_SECONDS = 86_400.0
WRITE_BUFFER_BYTES = 64 * 1024  # unsent bytes until an answer waits, as without TLS; asyncio's default is 512 KiB
LINGER_SECONDS = 2.0  # how long the rest of a refused request is read, so that the client sees the answer


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

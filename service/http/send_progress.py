"""Whether a client takes its answer: a client that stops, or is too slow, loses its connection."""

import asyncio
import fcntl
import socket
import struct
import termios
from contextlib import suppress

STALLED_SECONDS, LEAST_BYTES = 30.0, 64 * 1024  # the lowest rate that is served: LEAST_BYTES in STALLED_SECONDS
# The system of a client frees space for new bytes in steps, of 64 KiB on loopback. At the lowest rate, only one step in
# STALLED_SECONDS is certain.
LEAST_STEP_BYTES = LEAST_BYTES // 2


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

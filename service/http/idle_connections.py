"""The connections of a process that wait for a request. The longest idle one is closed where there are too many."""

import fcntl
import socket
import struct
import termios
from collections import OrderedDict
from typing import Protocol

MOST_TRIED = 8  # idle connections tried for a new one, so that its cost does not grow with their number


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

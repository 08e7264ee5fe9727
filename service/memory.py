"""Limits the memory that the requests of a worker hold together: bodies, rows, and answers until they are sent. A
request takes bytes before its work begins, and gives them back when the work ends or the last byte is sent."""

import threading
from collections import Counter
from types import TracebackType
from typing import Self

CLIENT_SHARE = 2  # one client holds at most one part in two


class NeedsMemory(Exception):
    """The work needs more bytes than are free. It is repeated when it has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Memory:
    """A number of bytes that requests share. Safe to share between threads.

    One client gets at most half of them. A request that asks for more gets that half, once no other request of its
    client holds memory. The limits of an answer bound what such a request really takes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held = 0
        self._share = max(1, most_bytes // CLIENT_SHARE)
        self._of_clients: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, client: str, size: int) -> "Hold | None":
        """A hold of `size` bytes for a client, or None if they are not free."""
        hold = Hold(self, client)
        return hold if hold.grow_to(size) else None

    def _change(self, client: str, before: int, size: int) -> int | None:
        """Change a hold from `before` to `size` bytes, at most the share of one client. Returns its new size; None
        where the bytes are not free."""
        size = min(size, self._share)
        with self._lock:
            more = size - before
            if more > 0 and (self.held + more > self.most_bytes or self._of_clients[client] + more > self._share):
                return None
            self.held += more
            self._of_clients[client] += more
            if not self._of_clients[client]:
                del self._of_clients[client]
        return size


class Hold:
    """Bytes that one request holds, until `close`. For one thread at a time."""

    def __init__(self, memory: Memory, client: str) -> None:
        self._memory, self._client = memory, client
        self.size = 0

    def grow_to(self, size: int) -> bool:
        """Hold at least `size` bytes. Returns whether they were free."""
        if size <= self.size:
            return True
        changed = self._memory._change(self._client, self.size, size)
        self.size = self.size if changed is None else changed
        return changed is not None

    def need(self, size: int) -> None:
        """Hold at least `size` bytes. NeedsMemory if they are not free."""
        if not self.grow_to(size):
            raise NeedsMemory(size)

    def shrink_to(self, size: int) -> None:
        """Give back all but `size` bytes."""
        if size < self.size:
            self.size = self._memory._change(self._client, self.size, size) or 0

    def moved(self) -> "Hold":
        """Move the bytes to a new hold, and return it. This hold has none afterwards."""
        other = Hold(self._memory, self._client)
        other.size, self.size = self.size, 0
        return other

    def close(self) -> None:
        """Give all bytes back; a second call does nothing."""
        self.shrink_to(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

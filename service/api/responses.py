"""Answers that hold memory until they are sent."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gnomon.service.memory import Hold

CHUNK_BYTES = 64 * 1024  # that are handed to the connection at a time: it waits for its client between them


class Pieces(Protocol):
    """An answer that is made piece by piece."""

    @property
    def is_whole(self) -> bool:
        """Whether the last piece was given."""
        ...

    def rest(self, error: Exception) -> bytes:
        """The last piece where the answer ends with an error."""
        ...


class HeldResponse(Response):
    """Bytes and the memory that they hold, which is given back when the connection has taken the last of them."""

    def __init__(self, body: bytes, hold: Hold, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._hold:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_chunks(send, bytes(self.body))
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class PiecesResponse(Response):
    """An answer whose further pieces are made while the client reads. `held` is the memory of the request itself.

    The first piece decides the status. An error after that ends the answer as its format allows."""

    def __init__(
        self,
        first: tuple[bytes, Hold],
        pieces: Pieces,
        more: Callable[[], Awaitable[tuple[bytes, Hold]]],
        held: Hold,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._first, self._pieces, self._more, self._held = first, pieces, more, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            piece, hold = self._first
            while True:
                with hold:
                    await _send_chunks(send, piece)
                if self._pieces.is_whole or await request.is_disconnected():
                    break
                try:
                    piece, hold = await self._more()
                except Exception as error:  # noqa: BLE001  the status is sent: the answer itself carries the error
                    piece = self._pieces.rest(error)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_chunks(send: Send, body: bytes) -> None:
    for begin in range(0, len(body), CHUNK_BYTES):
        chunk = body[begin : begin + CHUNK_BYTES]
        await send({"type": "http.response.body", "body": chunk, "more_body": True})

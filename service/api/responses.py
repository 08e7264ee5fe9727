"""Answers as bytes: their media type and content coding by the preferences of the caller (RFC 9110, section 12.5),
their ETag, and the memory that they hold until they are sent."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import pyarrow as pa
from isal import isal_zlib
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gnomon.service.errors import NotAcceptable
from gnomon.service.memory import Hold

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
ENCODINGS = ("gzip", "zstd")  # gzip if the caller prefers neither: it takes less time here
CSV = "text/csv"
OFFERED = (JSON, ARROW, CSV)  # the first if the caller prefers neither

_RANGE = re.compile(r"([^\s;/]+)/([^\s;/]+)")
_QUALITY = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)
CHUNK_BYTES = 64 * 1024  # passed to the connection at a time: it waits for its client between two chunks
LEAST_COMPRESSED = 1024  # bytes; a smaller answer fits into one packet anyway
LEVEL = 1  # of both codings: the fastest
GZIP_WINDOW = 31  # the largest window, and the header of gzip
VARY = {"vary": "Accept, Accept-Encoding"}


def chosen(accept: Iterable[str], offered: Sequence[str] = OFFERED) -> str:
    """The media type for these `Accept` headers; without headers, the first offered one. Among types of equal quality,
    a type that is named in full precedes a match of `*`. NotAcceptable names the offered types."""
    liked = _liked(accept)
    if not liked:
        return offered[0]
    best = max(offered, key=lambda kind: _quality(kind, liked))  # the first of equals
    if _quality(best, liked)[0] == 0:
        raise NotAcceptable(f"Accept: none of the media types is given here; there are {', '.join(offered)}")
    return best


def chosen_encoding(accept: Iterable[str]) -> str:
    """The content coding for these `Accept-Encoding` headers: the one of `ENCODINGS` with the highest quality, the
    first among equals; "" if none is accepted, or if the caller prefers `identity`."""
    liked = {name.strip(): quality for name, quality in _codings(accept)}
    wanted = {name: liked.get(name, liked.get("*", 0.0)) for name in ENCODINGS}
    best = max(ENCODINGS, key=lambda name: wanted[name])
    return best if wanted[best] > 0 and wanted[best] >= liked.get("identity", 0.0) else ""


def _codings(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    for text in ",".join(accept).lower().split(","):
        name, _, quality = text.partition(";")
        found = _QUALITY.fullmatch(quality.strip())
        if found or not quality.strip():
            yield name, float(found[1]) if found else 1.0


def _liked(accept: Iterable[str]) -> dict[str, float]:
    """The quality of each media range. Texts that are not media ranges are ignored."""
    liked: dict[str, float] = {}
    for text in ",".join(accept).lower().split(","):
        name, *parameters = (part.strip() for part in text.split(";"))
        qualities = [part for part in parameters if part.startswith("q=")]
        found = _QUALITY.fullmatch(qualities[0]) if qualities else None
        if _RANGE.fullmatch(name) and (found or not qualities):
            liked[name] = max(liked.get(name, 0.0), float(found[1]) if found else 1.0)
    return liked


def _quality(kind: str, liked: dict[str, float]) -> tuple[float, int]:
    """The quality of a media type, from the most specific range that matches it, and how specific this range is."""
    ranges = ("*/*", f"{kind.partition('/')[0]}/*", kind)
    return next(((liked[ranges[i]], i) for i in (2, 1, 0) if ranges[i] in liked), (0.0, 0))


class Sealed(NamedTuple):
    """The bytes to send, their content coding, and the ETag of the answer."""

    body: bytes
    encoding: str
    etag: str

    @property
    def headers(self) -> dict[str, str]:
        """The header fields with the ETag and the content coding."""
        return VARY | {"etag": self.etag} | ({"content-encoding": self.encoding} if self.encoding else {})

    def is_known(self, request: Request) -> bool:
        """Whether the client has this answer (RFC 9110, section 13.1.2)."""
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        return self.etag in known or known == ["*"]


def sealed(body: bytes, encoding: str, hold: Hold) -> Sealed:
    """An answer, compressed unless it is short. Shrinks `hold` to the bytes of the answer."""
    encoding = encoding if len(body) >= LEAST_COMPRESSED else ""
    digest = blake2b(body, digest_size=12).hexdigest()
    if encoding:
        body = _compressed(body, encoding)
    hold.shrink_to(len(body))
    return Sealed(body, encoding, f'"{digest}-{encoding}"' if encoding else f'"{digest}"')


def _compressed(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        compressed: bytes = pa.Codec("zstd", compression_level=LEVEL).compress(body, asbytes=True)
        return compressed
    return GzipStream().add(body, is_last=True)


class GzipStream:
    """Compresses an answer, or its pieces one after the other."""

    def __init__(self) -> None:
        self._stream = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, GZIP_WINDOW)

    def add(self, piece: bytes, is_last: bool) -> bytes:
        """A piece, compressed whole: the client can read it at once."""
        mode = isal_zlib.Z_FINISH if is_last else isal_zlib.Z_SYNC_FLUSH
        return bytes(self._stream.compress(piece) + self._stream.flush(mode))


class Pieces(Protocol):
    """An answer that is made piece by piece."""

    @property
    def is_whole(self) -> bool:
        """Whether the last piece was given."""
        ...

    def piece(self, hold: Hold) -> bytes:
        """The next piece. After the call, `hold` has the bytes of the piece."""
        ...

    def rest(self, error: Exception) -> bytes:
        """The last piece where the answer ends with an error."""
        ...


class HeldResponse(Response):
    """An answer that gives its memory back when the connection has taken the last byte."""

    def __init__(self, body: bytes, hold: Hold, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._hold:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_chunks(send, bytes(self.body), is_last=True)


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
                except Exception as error:  # noqa: BLE001  the status is sent: the body has to report the error
                    piece = self._pieces.rest(error)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_chunks(send: Send, body: bytes, is_last: bool = False) -> None:
    """Send bytes in chunks. With `is_last` they end the answer."""
    end = max(len(body), 1)
    for begin in range(0, end, CHUNK_BYTES):
        more = not is_last or begin + CHUNK_BYTES < end
        await send({"type": "http.response.body", "body": body[begin : begin + CHUNK_BYTES], "more_body": more})

"""The service as a program: the app on a socket, until a signal."""

import ctypes
import signal
import socket
import threading
from contextlib import ExitStack, suppress

import uvicorn

from service.app import create_app
from service.errors import CannotListen
from service.settings import Settings

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Every byte of a key may be percent-encoded; the rest is for the other parameters and the headers.
ENCODED_BYTES, HEAD_BYTES = 3, 64 * 1024
M_ARENA_MAX = -8  # of mallopt(3)


class _Server(uvicorn.Server):
    """Prints one line when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: str) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self._ready, flush=True)


def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then let running requests end and return.

    Raises what `shadow.open_index` raises, and CannotListen."""
    app = create_app(settings)
    shown = [f"{one.place.path} (snapshot {one.index.view.snapshot.number})" for one in app.state.service.indexes]
    with _listen(settings.host, settings.port) as listening:
        ready = f"Gnomon serves {', '.join(shown)} at {_url(listening)}"
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.shutdown_seconds,
            h11_max_incomplete_event_size=ENCODED_BYTES * settings.max_key_bytes + HEAD_BYTES,
        )
        server = _Server(config, ready)
        _share_one_arena()
        with ExitStack() as restored:
            if threading.current_thread() is threading.main_thread():
                for number in STOP_SIGNALS:  # uvicorn raises a signal again when it has stopped: a stop is no failure
                    restored.callback(signal.signal, number, signal.signal(number, server.handle_exit))
            server.run(sockets=[listening])


def _share_one_arena() -> None:
    """Let all threads take memory from one arena, where the C library is glibc. The arenas it gives to threads return
    memory to the system after every fetch and fault it in again, 0.7 ms of a 4 ms fetch; and they keep more of it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        # With its protocol named: asyncio sends at once (TCP_NODELAY) only where it sees that a socket is TCP. Else an
        # answer, which goes out as head and body, waits 40 ms for the acknowledgement of its head.
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        why = error.strerror or error
        raise CannotListen(f"cannot listen at {host}, port {port}: {why}; choose another host or port") from None
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

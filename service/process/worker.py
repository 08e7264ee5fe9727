"""One process that serves: the app on a socket, until a signal."""

import asyncio
import ctypes
import gc
import logging
import os
import pickle
import resource
import select
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import uvicorn

from gnomon.service import logs
from gnomon.service.application import create_app
from gnomon.service.http import protocol, tls_context
from gnomon.service.metrics import Slot
from gnomon.service.settings import Settings

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BACKLOG = 1024  # connections that wait to be accepted
END_SECONDS = 5.0  # beyond `shutdown_seconds`, until a worker without a parent ends whatever it does
HEARTBEAT = "alive"  # the message
BEATS = 10  # heartbeats of a worker in `hang_seconds`
OPEN_FILES = 65_536
# How long a thread may keep others waiting for the interpreter. A look-up waits for it about ten times while another
# thread works on a batch. With Python's default of 0.005 these waits are most of its time.
SWITCH_SECONDS = 0.001
M_ARENA_MAX = -8  # of mallopt(3)
PR_SET_THP_DISABLE = 41  # of prctl(2)
GC_THRESHOLDS = (20_000, 20, 20)  # new containers, and collections of the younger generation

logger = logging.getLogger("gnomon.service")
# The path of each index and the snapshot that is served, None where it is not open yet.
Served = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Heartbeat:
    """Messages to the parent of a worker, which show that its event loop runs."""

    link: Connection
    every_seconds: float

    async def go_on(self) -> None:
        """Send one at intervals. A stopped parent, which does not read, does not block the loop."""
        writable = select.poll()
        writable.register(self.link, select.POLLOUT)
        while True:
            if any(events & select.POLLOUT for _, events in writable.poll(0)):
                _tell(self.link, (HEARTBEAT, None))
            await asyncio.sleep(self.every_seconds)


class Listening(socket.socket):
    """A socket to listen on, which several processes may share; `listen` never makes its queue shorter."""

    def listen(self, backlog: int = BACKLOG) -> None:
        super().listen(BACKLOG)


class _Server(uvicorn.Server):
    """Says when it is ready and, while its event loop turns, sends heartbeats. Logs its end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], heartbeat: Heartbeat | None = None) -> None:
        super().__init__(config)
        self._ready = ready
        self._heartbeat = heartbeat
        self._why = "stop"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
        if self._heartbeat is not None:
            self._beats = asyncio.create_task(self._heartbeat.go_on())  # until the loop ends

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._why = signal.Signals(sig).name  # logged later: the handler may have interrupted the writer of the log
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        running, seconds = len(self.server_state.tasks), self.config.timeout_graceful_shutdown
        told = self._why, os.getpid(), running, seconds
        logger.info("%s: process %d stops; requests in progress: %d, they may take %s s to end", *told)
        await super().shutdown(sockets)
        logger.info("process %d has stopped", os.getpid())


def serve(
    settings: Settings,
    listening: Listening,
    ready: Callable[[Served], None],
    lines: logs.Lines,
    patient: bool = False,
    slot: Slot | None = None,
    heartbeat: Heartbeat | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then let running requests end and return.

    `ready` is called once with what is served, then `heartbeat` is sent. `create_app` takes the rest. Raises what it
    raises, and UsageError for files of TLS that do not fit."""
    tls = tls_context(settings)
    app = create_app(settings, patient, slot=slot, lines=lines)
    served = [
        (one.place.path, one.index.view.snapshot.number if one.is_open else None) for one in app.state.service.indexes
    ]
    server = _Server(_config(settings, app, tls), lambda: ready(served), heartbeat)
    _share_one_arena()
    _use_small_pages()
    _collect_garbage_seldom()
    _raise_open_files()
    sys.setswitchinterval(SWITCH_SECONDS)
    with ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:  # uvicorn raises a signal again when it has stopped: a stop is no failure
                restored.callback(signal.signal, number, signal.signal(number, server.handle_exit))
        server.run(sockets=[listening])


def _config(settings: Settings, app: Any, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol(settings, tls),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `client_address` reads the headers of trusted proxies
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        # The connections that a process accepts before another process has its turn.
        backlog=1 if settings.workers > 1 else BACKLOG,
    )


def _share_one_arena() -> None:
    """Let all threads take memory from one arena, where the C library is glibc. The arenas it gives to threads return
    memory to the system after every fetch and fault it in again, 0.7 ms of a 4 ms fetch; and they keep more of it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _use_small_pages() -> None:
    """Take no huge pages, where the system is Linux. Arrow's allocator asks for them, and a few rows then occupy pages
    of 2 MB: 10 MB more after the first fetch, a fifth more after batches, for no measurable time."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def _collect_garbage_seldom() -> None:
    """Leave what the process made until now out of garbage collections, and collect new cycles seldom. Requests make
    few: with Python's own thresholds, collections take a tenth of the time of a request that memory answers."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _raise_open_files() -> None:
    """Raise the limit of open files, which connections count as, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main() -> None:
    """Run a worker as a program. Its arguments are the numbers of descriptors that it inherits: the listening socket,
    and the link to the parent."""
    work(int(sys.argv[1]), Connection(int(sys.argv[2])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that hangs in a read keeps no process


def work(descriptor: int, link: Connection) -> None:
    """Serve as a worker: take the settings from the parent, tell it `ready` with what is served, or `failed` with the
    error; send heartbeats; end when the parent says so, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent gets it, too
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings, patient, slot = link.recv()
    except EOFError:
        return
    lines = logs.start()
    threading.Thread(target=_end_with_parent, args=(link, settings.shutdown_seconds), daemon=True).start()
    try:
        with Listening(fileno=descriptor) as listening:
            heartbeat = Heartbeat(link, settings.hang_seconds / BEATS) if settings.hang_seconds else None
            serve(settings, listening, lambda served: _tell(link, ("ready", served)), lines, patient, slot, heartbeat)
    except Exception as error:  # noqa: BLE001 the parent raises it, or writes it down
        _tell(link, ("failed", error))
    finally:
        logs.stop(lines)


def _tell(link: Connection, message: tuple[str, object]) -> None:
    try:
        sent = pickle.dumps(message)
        pickle.loads(sent)  # some errors can be pickled but not unpickled
    except Exception as error:  # noqa: BLE001 the error cannot be pickled: its text is sent
        sent = pickle.dumps((message[0], RuntimeError(f"{message[1]} ({error})")))
    with suppress(OSError):  # the parent is gone
        link.send_bytes(sent)


def _end_with_parent(link: Connection, shutdown_seconds: float) -> None:
    """Wait until the parent's end of the link is closed, which the system does however the parent dies."""
    with suppress(EOFError, OSError):
        while True:
            link.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(shutdown_seconds + END_SECONDS)
    os._exit(1)

"""The service as a program: a socket to listen on, and one process or several that answer there; `gnomon serve --check`
opens everything that these need, and says what it found."""

import logging
import signal
import socket
import threading

from gnomon.service import logs
from gnomon.service.api import Service
from gnomon.service.application import create_app
from gnomon.service.errors import CannotListen
from gnomon.service.http import tls_context
from gnomon.service.process.supervisor import supervise
from gnomon.service.process.worker import Listening, Served, serve
from gnomon.service.settings import Settings
from gnomon.shadow.errors import StorageError

UNSENT_BYTES = 128 * 1024  # of an answer that the system accepts before it sends them; by default up to 4 MB
logger = logging.getLogger("gnomon.service")


def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then let running requests end and return.

    Raises what `gnomon.service.application.create_app` raises, and CannotListen."""
    lines = logs.start()
    settings.log_overridden()
    try:
        _run(settings, lines)
    finally:
        logs.stop(lines)


def _run(settings: Settings, lines: logs.Lines) -> None:
    with _listen(settings, settings.port) as listening:

        def ready(served: Served) -> None:
            shown = (f"{path} ({_state(snapshot)})" for path, snapshot in served)
            print(
                f"Gnomon serves {', '.join(shown)} at {_url(listening, settings.tls_certificate is not None)}",
                flush=True,
            )

        if settings.workers > 1:
            supervise(settings, listening, ready)
            return
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, _nothing_to_replace)
        serve(settings, listening, ready, lines)


def _nothing_to_replace(*_: object) -> None:
    logger.warning("SIGHUP replaces workers, and there are none beside this process: start it again to read files anew")


def _state(snapshot: int | None) -> str:
    return "not open yet" if snapshot is None else f"snapshot {snapshot}"


def check_host(settings: Settings) -> None:
    """CannotListen where the host is unknown, or not of this machine. The port is not tried: the service that these
    settings are for may listen there."""
    _listen(settings, 0).close()


def _listen(settings: Settings, port: int) -> Listening:
    try:
        found = socket.getaddrinfo(settings.host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        # The protocol is given, since asyncio sets TCP_NODELAY only on a socket that it knows to be TCP. Without it,
        # the body of an answer waits 40 ms for the acknowledgement of the head.
        family, kind, protocol, _, address = found[0]
        listening = Listening(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # each accepted connection inherits it
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:  # of a name that the DNS cannot hold
        why = (isinstance(error, OSError) and error.strerror) or error
        raise CannotListen(
            f"cannot listen at {settings.host}, port {settings.port} ({settings.where('host')}, "
            f"{settings.where('port')}): {why}; choose another host or port"
        ) from None
    return listening


def _url(listening: socket.socket, tls: bool) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check(settings: Settings) -> list[str]:
    """A line for each index, and for the catalog behind. Raises what ends a server at its start."""
    check_host(settings)
    tls_context(settings)
    state = create_app(settings).state
    service: Service = state.service
    lines = [state.check_catalog()] if settings.is_catalog else []
    for served in service.indexes:
        if not served.is_open:  # a server would wait for its storage
            raise served.failure or StorageError("the storage has not answered yet", served.place.path)
        snapshot, keys = served.index.view.snapshot, ", ".join(key.name for key in served.index.spec.keys)
        lines.append(
            f"{served.place.name}: {served.place.path}: snapshot {snapshot.number}, {snapshot.rows} rows, key {keys}"
        )
    return lines

"""`gnomon serve --check`: opens everything that the service needs, and says what it found."""

from gnomon.service.api import Service
from gnomon.service.application import create_app
from gnomon.service.http import tls_context
from gnomon.service.process.server import check_host
from gnomon.service.settings import Settings
from gnomon.shadow.errors import StorageError


def check(settings: Settings) -> list[str]:
    """A line for each index. Raises what ends a server at its start."""
    check_host(settings)
    tls_context(settings)
    service: Service = create_app(settings).state.service
    lines = []
    for served in service.indexes:
        if not served.is_open:  # a server would wait for its storage
            raise served.failure or StorageError("the storage has not answered yet", served.place.path)
        snapshot, keys = served.index.view.snapshot, ", ".join(key.name for key in served.index.spec.keys)
        lines.append(
            f"{served.place.name}: {served.place.path}: snapshot {snapshot.number}, {snapshot.rows} rows, key {keys}"
        )
    return lines

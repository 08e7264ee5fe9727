"""Connections to object stores. Each process makes its own, with the settings of its environment."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.locations import ENDPOINTS
from gnomon.shadow.storage.redaction import without_secrets
from gnomon.shadow.storage.retries import Patience

MAKERS: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}


class Clients(NamedTuple):
    """Connections of one process. A put may take long until the store answers, a read may not."""

    pid: int
    reads: Any
    puts: Any


def connect(scheme: str, bucket: str, patience: Patience) -> Clients:
    """Connections to a bucket. obstore reads credentials, region and endpoint from the environment itself."""
    if scheme == "memory":
        store = _memory(bucket)
        return Clients(os.getpid(), store, store)
    _check_not_forked(f"{scheme}://{bucket}")
    name, endpoint = next(((n, os.environ[n]) for n in ENDPOINTS[scheme] if os.environ.get(n)), ("", ""))
    if endpoint and not (urlsplit(endpoint).scheme in ("http", "https") and urlsplit(endpoint).hostname):
        found = without_secrets(endpoint)
        raise StorageError(
            f"{scheme}://{bucket}: {name}", expected="http://host:port or https://host", found=repr(found)
        )
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=patience.connect),
        "timeout": timedelta(seconds=patience.request),
        "allow_http": endpoint.startswith("http://"),
    }
    reading = {**options, "read_timeout": timedelta(seconds=patience.read)}
    # S3 has no condition for a copy. It has one for the end of a multipart put, and a part may be a copy.
    more = {"copy_if_not_exists": os.environ.get("AWS_COPY_IF_NOT_EXISTS", "multipart")} if scheme == "s3" else {}
    # Only `retried` repeats calls: it knows which are safe to repeat.
    retries = {"max_retries": 0}
    stores = [MAKERS[scheme](bucket, client_options=o, retry_config=retries, **more) for o in (reading, options)]
    return Clients(os.getpid(), *stores)


_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_stores: dict[str, Any] = {}  # in memory, by name
_connected: dict[str, int] = {}  # "first": the process that made the first connection


def _memory(name: str) -> Any:
    with _lock:
        return _stores.setdefault(name, MemoryStore())


def _check_not_forked(where: str) -> None:
    """Raise StorageError where a parent process had connections before it forked. The child lacks obstore's threads:
    its calls would hang, or end the parent, since both share the handles that the parent waits on."""
    if _connected.setdefault("first", os.getpid()) != os.getpid():
        raise StorageError(
            "this process was forked from one that had used an object store; expected a fresh one: start it "
            "with multiprocessing's spawn or forkserver, or use the store after the fork only",
            where,
        )

"""Whether a store lets one writer win: without that two builds at once could overwrite one another's commits."""

import secrets
from weakref import WeakSet

from gnomon.shadow.errors import AlreadyExists, UnsafeStore
from gnomon.shadow.storage.contract import Storage

PROBE_FOLDER = "_shadow/probe"

_probed: WeakSet[Storage] = WeakSet()


def probe(storage: Storage) -> None:
    """Before a program's first write to an index: of two create-only puts of one name the second must lose. Asked once
    of a Storage object. UnsafeStore when it wins, and a third one too (a vacuum may have removed the first); then
    nothing but the probe was written, and that is removed."""
    if storage in _probed:
        return
    path = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    try:
        for content in (b"first", b"second", b"third"):
            storage.put_new(path, [content])
    except AlreadyExists:
        refused = True
    else:
        refused = False
    storage.delete(path)
    if not refused:
        raise UnsafeStore(
            f"of three create-only writes of {path} the later ones should have been refused, found "
            "that they replaced the first: two builds could lose each other's commits; nothing was written, use a "
            "store that honours the condition (If-None-Match)",
            storage.root,
        )
    _probed.add(storage)


def time_of_store(storage: Storage) -> float:
    """Now, in seconds, by the clock that gives a store's files their times."""
    path = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    storage.put_new(path, [b"now"])
    try:
        with storage.open(path) as file:
            return file.mtime_ns / 1e9
    finally:
        storage.delete(path)

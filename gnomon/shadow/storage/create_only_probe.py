"""The check that a store's create-only put works. Without it, two concurrent builds could overwrite each other's
commits."""

import datetime as dt
import secrets
import time
from weakref import WeakSet

from gnomon.base.actions import Action
from gnomon.shadow.errors import AlreadyExists, StorageError, UnsafeStore
from gnomon.shadow.storage.contract import Storage

LARGEST_DIFFERENCE = 3600.0  # seconds
PROBE_FOLDER = "_shadow/probe"

_probed: WeakSet[Storage] = WeakSet()


def probe(storage: Storage) -> None:
    """Check, once per Storage object and before its first write to an index, that the second of two create-only puts of
    one name fails. UnsafeStore when it succeeds, and a third one, too (a vacuum may have removed the first). Only the
    probe was written then, and it is removed."""
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
    """The current time in seconds, by the clock of the store's file times. StorageError where this machine's clock
    differs from it by more than an hour: one of them is wrong."""
    path = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    storage.put_new(path, [b"now"])
    try:
        with storage.open(path) as file:
            file.read_range(0, 1)  # an answer with a body
            found = file.mtime_ns / 1e9
    except FileNotFoundError:
        what = "the store does not have this file, which was put a moment ago; nothing was changed"
        raise StorageError(what, f"{storage.root}/{path}", action=Action.RUN_AGAIN) from None
    finally:
        storage.delete(path)
    if abs(found - time.time()) > LARGEST_DIFFERENCE:
        shown, here = (f"{dt.datetime.fromtimestamp(one, dt.UTC):%Y-%m-%d %H:%M:%S}Z" for one in (found, time.time()))
        raise StorageError(
            f"the store's clock says {shown}, this machine's {here}: ages of files cannot be trusted; nothing was "
            "changed, set the clock that is wrong",
            storage.root,
        )
    return found

"""Connections to object stores, which each process makes with the settings of its environment, or with credentials that
a catalog vends; and the meaning of obstore's errors: transient errors, errors of the caller, refusals of the store."""

import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, HTTPStore, MemoryStore, S3Store

from gnomon.base.errors import Action
from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.contract import without_secrets, words_of
from gnomon.shadow.storage.credentials import Credential, Vendor
from gnomon.shadow.storage.locations import ENDPOINTS, access_action
from gnomon.shadow.storage.retries import Expired, Passing, Patience

MAKERS: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
ADDRESSES = {"s3": "endpoint", "gs": "base_url", "az": "endpoint"}  # the setting with the address of a store
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # hosts of http://, whose answers no other machine can read or change
HUB = "https://huggingface.co"
HUB_TOKEN = "HF_TOKEN"


class Clients:
    """Connections of one process. A put may take long until the store answers, a read may not. Each takes milliseconds
    to make; the one for puts is made when it is first needed."""

    def __init__(self, reads: Any, make_puts: Callable[[], Any]) -> None:
        self.pid, self.reads = os.getpid(), reads
        self._make_puts = make_puts

    @cached_property
    def puts(self) -> Any:
        return self._make_puts()


def connect(scheme: str, bucket: str, patience: Patience, vended: Callable[[], Credential] | None = None) -> Clients:
    """Connections to a bucket. obstore reads credentials, region and endpoint from the environment itself; `vended`
    returns credentials that are used instead, the newest at each call."""
    if scheme == "memory":
        store = _memory(bucket)
        return Clients(store, lambda: store)
    _check_not_forked(f"{scheme}://{bucket}")
    given = {} if vended is None else dict(vended().options)
    address = str(given.get(ADDRESSES.get(scheme, ""), "")) or address_of(scheme, f"{scheme}://{bucket}")
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=patience.connect),
        "timeout": timedelta(seconds=patience.request),
        "allow_http": address.startswith("http://"),
    }
    if scheme == "hf" and (token := hub_token(f"{scheme}://{bucket}")):
        # The client drops this header where a redirect leads to another host.
        options["default_headers"] = {"Authorization": f"Bearer {token}"}
    reading = {**options, "read_timeout": timedelta(seconds=patience.read)}
    # S3 has no condition for a copy. It has one for the end of a multipart put, and a part may be a copy.
    more: dict[str, Any] = (
        {"copy_if_not_exists": os.environ.get("AWS_COPY_IF_NOT_EXISTS", "multipart")} if scheme == "s3" else {}
    )
    if vended is not None:
        more |= {**given, "skip_signature": False, "credential_provider": partial(_provided, vended)}
    # Only `retried` repeats calls: it knows which are safe to repeat.
    retries = {"max_retries": 0}
    place = bucket if scheme in MAKERS else address
    make = partial(MAKERS.get(scheme, HTTPStore), place, retry_config=retries, **more)
    return Clients(make(client_options=reading), partial(make, client_options=options))


def _provided(vended: Callable[[], Credential]) -> dict[str, Any]:
    """The newest credentials as obstore takes them, which asks for them again when their end is near."""
    found = vended()
    end = None if found.end is None else datetime.fromtimestamp(found.end, UTC)
    return {**found.secrets, "expires_at": end}


def address_of(scheme: str, where: str) -> str:
    """The address of a store, from the environment; "" for the default address of a store with buckets. StorageError
    for a setting that is no address."""
    if scheme in ("http", "https"):
        return where
    name, address = next(((n, os.environ[n]) for n in ENDPOINTS[scheme] if os.environ.get(n)), ("", ""))
    if address and not (urlsplit(address).scheme in ("http", "https") and urlsplit(address).hostname):
        found = without_secrets(address)
        raise StorageError(f"{where}: {name}", expected="http://host:port or https://host", found=repr(found))
    if scheme != "hf":
        return address
    if "@" in address or (address.startswith("http://") and urlsplit(address).hostname not in LOOPBACK):
        found = without_secrets(address)  # the token would go there in plain text
        raise StorageError(f"{where}: {name}", expected="https://host, without a user", found=repr(found))
    return address or HUB


def hub_token(where: str) -> str:
    """The token for the hub, from the environment; "" without one. StorageError for a text that is no token."""
    token = os.environ.get(HUB_TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise StorageError(f"{HUB_TOKEN} has characters that no token has", where)
    return token


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


NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
STATUS = re.compile(r"status code: (\d{3})")
EXPIRED = re.compile("<Code>(ExpiredToken|ExpiredTokenException|TokenRefreshRequired)</Code>")
CONTRADICTING = (408, 409, 412, 416, 429)  # busy, or refusals of what was not asked
NOT_NOW = "<Code>(AuthenticationFailed|AuthorizationFailure)</Code>"  # Azure, also of a token that has ended
PASSES = re.compile("<Code>RequestTimeout</Code>")  # S3 says 400
CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
NO_REQUEST = "HTTP error: builder error"  # a setting of which the client cannot make a request
BAD_NAME = "Error parsing Path|empty path segment"
METADATA_SERVICE = "169.254.169.254"  # the client asks it for credentials where the environment has none
PANIC_MODULE = "pyo3_runtime"  # the module of the exceptions of panics in obstore's Rust
Meaning = tuple[type[Exception], ...]
Result = TypeVar("Result")


class RangeRefused(Exception):
    """The object ends before the range."""


def translated(
    where: str,
    call: Callable[[], Result],
    meaning: Meaning = (),
    vendor: Vendor | None = None,
    is_vended: bool = False,
) -> Result:
    """Make a call once, and turn obstore's errors into ours. FileNotFoundError and the errors in `meaning`
    (AlreadyExistsError, PreconditionError, RangeRefused) reach the caller. `Passing` errors may be retried. A refusal
    of the store's names the `vendor` of credentials; `is_vended`: it gave those of this call."""
    try:
        return call()
    except meaning:
        raise
    except FileNotFoundError as error:
        if NO_BUCKET.search(str(error)):
            raise no_bucket(where) from None
        raise FileNotFoundError(f"{where}: no such file") from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        says_why = "<Code>" in str(error)  # the answer to a HEAD has no body: its credentials may have ended, too
        if is_vended and (isinstance(error, UnauthenticatedError) or re.search(NOT_NOW, str(error)) or not says_why):
            raise Expired(f"the store refuses access: {words_of(error)}", where) from None
        raise _expired(where, error) or _no_access(where, error, vendor, is_vended) from None
    except (
        InvalidPathError,
        NotSupportedError,
        NotImplementedError,
        UnknownConfigurationKeyError,
        ValueError,
    ) as error:
        raise StorageError(f"a name or setting that the store cannot hold: {words_of(error)}", where) from None
    except BaseError as error:
        raise _other(where, error, meaning, vendor, is_vended) from None
    except BaseException as error:
        if type(error).__module__ != PANIC_MODULE:
            raise
        raise StorageError(f"a setting that the store's client cannot take: {words_of(error)}", where) from None


def status(error: BaseException) -> int | None:
    """The HTTP status in an error."""
    match = STATUS.search(str(error))
    return int(match[1]) if match else None


def _other(where: str, error: BaseError, meaning: Meaning, vendor: Vendor | None, is_vended: bool) -> Exception:
    text, found = str(error), status(error)
    if NO_BUCKET.search(text):
        return no_bucket(where)
    if re.search(BAD_NAME, text):
        return StorageError(f"an object there has a name that cannot be a path; rename it: {words_of(error)}", where)
    if RangeRefused in meaning and (found == 416 or "Wanted range starting at" in text):
        return RangeRefused()
    if expired := _expired(where, error):
        return expired
    if found in (401, 403):
        return _no_access(where, error, vendor, is_vended)
    if certificate := CERTIFICATE.search(text):
        what = f"the certificate of the store is not trusted ({certificate[1]})"
        return StorageError(what, where, action=Action.TRUST_CERTIFICATE)
    if NO_REQUEST in text:
        return StorageError(
            f"a setting of the store's client is wrong: {words_of(error)}", where, action=access_action(where)
        )
    if METADATA_SERVICE in text:
        return StorageError("no credentials for the store", where, action=access_action(where))
    if found is None or found >= 500 or found in CONTRADICTING or PASSES.search(text):
        return Passing(f"the store does not answer: {words_of(error)}", where)
    return StorageError(f"the store refuses: {words_of(error)}", where)


def _expired(where: str, error: BaseException) -> Expired | None:
    what = f"the store refuses access: {words_of(error)}"
    return Expired(what, where, action=access_action(where)) if EXPIRED.search(str(error)) else None


def no_bucket(where: str) -> StorageError:
    return StorageError("the store has no such bucket", where, action=Action.MAKE_BUCKET)


def _no_access(where: str, error: BaseError, vendor: Vendor | None = None, is_vended: bool = False) -> StorageError:
    words = words_of(error)
    what, action = f"the store refuses access ({words})", access_action(where, words)
    if vendor is not None and action != Action.SET_CLOCK:
        if is_vended:
            what, action = f"{what} to the credentials that the catalog vends for {vendor.name}", Action.CHECK_GRANTS
        else:
            why = f": {vendor.trouble}" if vendor.trouble else ""
            what = f"{what} to the credentials of the environment, and the catalog of {vendor.name} vends none{why}"
    return StorageError(what, where, action=action)

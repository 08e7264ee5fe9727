"""The meaning of obstore's errors: transient errors, errors of the caller, refusals of the store."""

import re
from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from gnomon.base.actions import Action
from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.locations import access_action
from gnomon.shadow.storage.redaction import words_of
from gnomon.shadow.storage.retries import Expired, Passing

NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
STATUS = re.compile(r"status code: (\d{3})")
EXPIRED = re.compile("<Code>(ExpiredToken|ExpiredTokenException|TokenRefreshRequired)</Code>")
CONTRADICTING = (408, 409, 412, 416, 429)  # busy, or refusals of what was not asked
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


def translated(where: str, call: Callable[[], Result], meaning: Meaning = ()) -> Result:
    """Make a call once, and turn obstore's errors into ours. FileNotFoundError and the errors in `meaning`
    (AlreadyExistsError, PreconditionError, RangeRefused) reach the caller. `Passing` errors may be retried."""
    try:
        return call()
    except meaning:
        raise
    except FileNotFoundError as error:
        if NO_BUCKET.search(str(error)):
            raise no_bucket(where) from None
        raise FileNotFoundError(f"{where}: no such file") from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _expired(where, error) or _no_access(where, error) from None
    except (
        InvalidPathError,
        NotSupportedError,
        NotImplementedError,
        UnknownConfigurationKeyError,
        ValueError,
    ) as error:
        raise StorageError(f"a name or setting that the store cannot hold: {words_of(error)}", where) from None
    except BaseError as error:
        raise _other(where, error, meaning) from None
    except BaseException as error:
        if type(error).__module__ != PANIC_MODULE:
            raise
        raise StorageError(f"a setting that the store's client cannot take: {words_of(error)}", where) from None


def status(error: BaseException) -> int | None:
    """The HTTP status in an error."""
    match = STATUS.search(str(error))
    return int(match[1]) if match else None


def _other(where: str, error: BaseError, meaning: Meaning) -> Exception:
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
        return _no_access(where, error)
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


def _no_access(where: str, error: BaseError) -> StorageError:
    words = words_of(error)
    return StorageError(f"the store refuses access ({words})", where, action=access_action(where, words))

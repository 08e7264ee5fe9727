"""The tokens of a service, from its settings and from a tokens file, which is followed."""

import hmac
import logging
import os
import stat
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path

from gnomon.service.settings import Settings
from gnomon.service.token_lines import FORM, Token, digest_of, parse_tokens
from gnomon.shadow import UsageError
from gnomon.shadow.errors import OutOfTime
from gnomon.shadow.storage import awaited, threads, within

MOST_FILE_BYTES = 1024 * 1024
MOST_TOKEN_LENGTH = 512
LOOK_SECONDS = 1.0
READ_SECONDS = 5.0  # for one read of the file, whose file system may hang
READERS = "gnomon-tokens-read"

logger = logging.getLogger("gnomon.service")


class Tokens:
    """The tokens of the settings and of their file, which is read again while the service runs.

    With `at_start`, UsageError names the file and the line of a token that cannot be read. Later, the tokens stay
    unchanged while the file cannot be read, and `trouble` has the reason for the log, metrics and readiness. Safe to
    share between threads."""

    def __init__(self, settings: Settings, at_start: bool = True) -> None:
        self.needed = settings.tokens_file is not None or bool(settings.tokens)
        self.trouble: str | None = None
        self._fixed = parse_tokens(settings.tokens, None, f"{settings.where('tokens')}, entry")
        self._path = Path(settings.tokens_file) if settings.tokens_file is not None else None
        self._content: bytes | None = None  # the latest content of the file that was valid
        self._of_file: tuple[Token, ...] = ()
        self._told = ""
        self._stop = threading.Event()
        self._watching: threading.Thread | None = None
        if self._path is not None and at_start:
            try:
                self._take(self._path)
            except UsageError as error:
                raise UsageError(f"{settings.where('tokens_file')}: {error}") from None
        elif self._path is not None:
            self.look()

    def check_names(self, served: Collection[str]) -> None:
        """Warn of tokens for indexes that are not served. This is no error, since several services may share one
        file."""
        for token in (*self._fixed, *self._of_file):
            for name in sorted((token.indexes or frozenset()) - set(served)):
                logger.warning("token %s is for index %s, which is not served", token.name, name)

    @property
    def unread(self) -> bool:
        """Whether there is a tokens file that could not be read yet. Its tokens are unknown then."""
        return self._path is not None and self._content is None

    def find(self, secret: str) -> Token | None:
        """The token of a secret, expired or not; None for an unknown secret. The secret is always compared with all
        tokens, so that the time reveals nothing."""
        digest, found = digest_of(secret), None
        for token in (*self._fixed, *self._of_file):
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def look(self) -> None:
        """Read the tokens file again. An error is logged and kept in `trouble`."""
        if self._path is None:
            return
        try:
            self._take(self._path)
        except UsageError as error:
            if str(error) != self._told:  # logged once, not after each read
                logger.error("%s; the tokens from before are still taken", error)
            self._told = str(error)
            self.trouble = str(error.with_fields(path="the tokens file"))
        else:
            if self._told:
                logger.info("%s: can be read again", self._path)
            self._told, self.trouble = "", None

    def _take(self, path: Path) -> None:
        """Read the whole file each time: its modification time is too coarse to distinguish two writes."""
        content, public = _content_in_time(path)
        if content == self._content:
            return
        lines = content.decode("utf-8", "replace").splitlines()
        self._of_file = tuple(parse_tokens(lines, str(path), others=self._fixed))
        self._content = content
        logger.info("%s: %d tokens", path, len(self._of_file))
        if public:
            logger.warning("%s: every user of this machine may read it; chmod 600 leaves it to its owner", path)

    def watch(self) -> None:
        """Read the file each second in its own thread, until `close`; also after a `close`. A file system that hangs
        blocks only this thread."""
        if self._path is not None and (self._watching is None or self._stop.is_set()):
            self._stop = threading.Event()
            self._watching = threading.Thread(target=self._watch, args=(self._stop,), name="gnomon-tokens", daemon=True)
            self._watching.start()

    def close(self) -> None:
        """Stop reading the file. Does not wait for a read that hangs."""
        self._stop.set()

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self.look()


def _content_in_time(path: Path) -> tuple[bytes, bool]:
    """`_content_of` with a time limit: UsageError after READ_SECONDS. A read that hangs occupies the only thread for
    these reads, and later calls wait for it, each up to the limit."""
    reading = threads(READERS, 1).submit(partial(_content_of, path))
    try:
        with within(READ_SECONDS):
            return awaited(reading, str(path))
    except OutOfTime:
        what = f"the tokens cannot be read (not within {READ_SECONDS:g} s); mend its file system or name another"
        raise UsageError(what, str(path)) from None


def _content_of(path: Path) -> tuple[bytes, bool]:
    """The bytes of the file, and whether all users may read it. UsageError where it is not a small file."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError("not a file", str(path), expected=f"lines like {FORM}")
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        what = f"the tokens cannot be read ({error.strerror or error}); mend it or name another"
        raise UsageError(what, str(path)) from None
    if len(content) > MOST_FILE_BYTES:
        raise UsageError(f"more than {MOST_FILE_BYTES} bytes", str(path), expected=f"lines like {FORM}")
    return content, bool(status.st_mode & stat.S_IROTH)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer

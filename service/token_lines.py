"""Bearer tokens and the lines of a tokens file. Only hashes of tokens are kept. A token has 256 random bits and cannot
be found by trying, so a plain SHA-256 is enough: slow hashes with salt are for passwords, which can be guessed.

The module needs no extra: `gnomon token` runs where the service is not installed."""

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from gnomon.base.errors import Action
from gnomon.shadow import UsageError

PREFIX = "gnomon_"  # lets secret scanners and people recognize a token
RANDOM_BYTES = 32
MOST_TOKENS = 1000  # the token of every request is compared with each of them
FORM = "NAME sha256:HEX [indexes=a,b] [expires=YYYY-MM-DD]"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_INDEX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class Token:
    """One token: the name of its owner, its SHA-256, the indexes that it allows (None: all), and its last valid day
    (UTC)."""

    name: str
    digest: bytes
    indexes: frozenset[str] | None = None
    expires: dt.date | None = None

    def may_ask(self, index: str) -> bool:
        return self.indexes is None or index in self.indexes

    def expired(self, today: dt.date) -> bool:
        return self.expires is not None and today > self.expires

    @property
    def line(self) -> str:
        """The token as a line of a tokens file."""
        parts = [self.name, f"sha256:{self.digest.hex()}"]
        parts += [f"indexes={','.join(sorted(self.indexes))}"] if self.indexes is not None else []
        parts += [f"expires={self.expires.isoformat()}"] if self.expires is not None else []
        return " ".join(parts)


def new_token(name: str, indexes: Iterable[str] = (), expires: dt.date | None = None) -> tuple[str, Token]:
    """A new secret, and the `Token` that is stored for it. UsageError for an invalid name of a token or an index."""
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    allowed = frozenset(indexes)
    token = Token(name, digest_of(secret), allowed or None, expires)
    if not _NAME.fullmatch(name):
        raise UsageError(f"token name {name!r}: expected up to 64 letters, digits and _.@-, the first no sign")
    for index in allowed:
        if not _INDEX.fullmatch(index):
            raise UsageError(f"token for index {index!r}: expected the name of an index: letters, digits and _.-")
    return secret, token


def digest_of(secret: str) -> bytes:
    """The SHA-256 of a secret, which is stored in its place."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def parse_tokens(
    lines: Iterable[str], path: str | None, each: str = "line", others: Iterable[Token] = ()
) -> list[Token]:
    """The tokens of some lines. Empty lines and comments (`#`) are skipped.

    UsageError names the file at `path` and, after the word `each`, the number of the line. It never shows the line,
    which may contain the secret by mistake."""
    found = {token.digest: "among the other tokens" for token in others}
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            token = _parse(words)
        except ValueError as error:
            raise UsageError(f"{each} {number}: {error}", path, action=Action.MAKE_TOKEN) from None
        if token.digest in found:
            what = f"{each} {number}: its hash stands {found[token.digest]}, too; keep one of them"
            raise UsageError(what, path)
        found[token.digest] = f"in {each} {number}"
        tokens.append(token)
        if len(tokens) > MOST_TOKENS:
            raise UsageError(f"{each} {number}", path, expected=f"at most {MOST_TOKENS} tokens", found="more")
    return tokens


def _parse(words: list[str]) -> Token:
    """The token of one line. ValueError says what is expected, and does not show what was found."""
    if len(words) < 2 or not _NAME.fullmatch(words[0]):
        raise ValueError(f"expected {FORM}")
    hashed = _HASH.fullmatch(words[1])
    if hashed is None:
        raise ValueError("the second word: expected sha256: and 64 digits of 0-9a-f")
    given: dict[str, str] = {}
    for word in words[2:]:
        name, equals, value = word.partition("=")
        if name not in ("indexes", "expires") or not equals or name in given:
            raise ValueError(f"behind the hash: expected indexes= and expires= once each, as in {FORM}")
        given[name] = value
    indexes = frozenset(given["indexes"].split(",")) if "indexes" in given else None
    if indexes is not None and not all(_INDEX.fullmatch(index) for index in indexes):
        raise ValueError("indexes=: expected names of indexes with commas between them")
    return Token(words[0], bytes.fromhex(hashed[1]), indexes, _day(given.get("expires")))


def _day(text: str | None) -> dt.date | None:
    if text is None:
        return None
    try:
        if not _DAY.fullmatch(text):
            raise ValueError
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ValueError("expires=: expected a day like 2026-12-31") from None

"""Delegation tokens, with which a program calls WebHDFS of a cluster that Kerberos protects.

Hadoop's tools write them to a file (`hdfs fetchdt`), and YARN gives each container such a file. This module reads the
file as Hadoop's `Credentials` writes it: "HDTS", a version, the number of tokens, and of each its alias, identifier,
password, kind and service, each after its length. WebHDFS takes a token as text: the same four parts after the alias,
in base64 for URLs without padding."""

import base64
import os
from functools import lru_cache
from typing import NamedTuple

from gnomon.base.actions import Action
from gnomon.shadow.errors import StorageError

TOKEN = "GNOMON_WEBHDFS_TOKEN"  # setting: a token as WebHDFS gives it
FILE = "HADOOP_TOKEN_FILE_LOCATION"  # setting of Hadoop's: a file of tokens
MAGIC, PLAIN = b"HDTS", 0  # the version that Hadoop writes by default
KINDS = (b"HDFS_DELEGATION_TOKEN", b"WEBHDFS delegation", b"SWEBHDFS delegation")
LONGEST = 1 << 20  # bytes of a part


class _Token(NamedTuple):
    kind: bytes
    text: str


def delegation_token() -> str | None:
    """The token to call WebHDFS with, from the settings; None where they name none. Where a file has tokens of several
    namenodes, their identifiers differ, and the settings have to name a file with one. StorageError for a file that
    cannot be read, or has no such token."""
    if os.environ.get(TOKEN):
        return os.environ[TOKEN]
    path = os.environ.get(FILE)
    if not path:
        return None
    try:
        status = os.stat(path)
        state = (status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino, status.st_size)
        found = _tokens(path, state)
    except OSError as error:
        what = f"the token file of {FILE} cannot be read: {error.strerror}"
        raise StorageError(what, path, action=Action.FETCH_HADOOP_TOKEN) from None
    texts = {token.text for token in found if token.kind in KINDS}
    if len(texts) != 1:
        what = f"the token file of {FILE} has {len(texts)} tokens of HDFS"
        raise StorageError(what, path, expected="one", action=Action.FETCH_HADOOP_TOKEN)
    return texts.pop()


@lru_cache(8)
def _tokens(path: str, state: tuple[int, ...]) -> list[_Token]:
    """The tokens of a file in this state."""
    with open(path, "rb") as file:
        data = file.read()
    if data[: len(MAGIC)] != MAGIC or len(data) <= len(MAGIC) or data[len(MAGIC)] != PLAIN:
        found = f"{data[: len(MAGIC) + 1]!r}"
        raise StorageError("not a token file", path, 0, expected=f"{MAGIC + bytes([PLAIN])!r}", found=found)
    reader = _Reader(data, len(MAGIC) + 1, path)
    return [reader.token() for _ in range(reader.number())]


class _Reader:
    """Reads Hadoop's numbers and byte strings. StorageError where the file ends early."""

    def __init__(self, data: bytes, position: int, path: str) -> None:
        self._data = data
        self._position = position
        self._path = path

    def number(self) -> int:
        """A number as `WritableUtils.writeVInt` writes it: one byte from -112 to 127, or minus 112 or 120 minus the
        number of bytes that follow, highest first."""
        first = int.from_bytes(self._taken(1), "big", signed=True)
        if first >= -112:
            return first
        is_negative, length = first < -120, -120 - first if first < -120 else -112 - first
        value = int.from_bytes(self._taken(length), "big")
        return ~value if is_negative else value

    def part(self) -> bytes:
        length = self.number()
        if not 0 <= length <= LONGEST:
            raise StorageError(f"a length of {length} in a token file", self._path, self._position)
        return self._taken(length)

    def token(self) -> _Token:
        self.part()  # the alias
        begin = self._position
        _, _, kind, _ = self.part(), self.part(), self.part(), self.part()
        text = base64.urlsafe_b64encode(self._data[begin : self._position]).decode().rstrip("=")
        return _Token(kind, text)

    def _taken(self, length: int) -> bytes:
        if self._position + length > len(self._data):
            raise StorageError("a token file that ends early", self._path, len(self._data))
        found = self._data[self._position : self._position + length]
        self._position += length
        return found

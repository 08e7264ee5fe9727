"""Escapes in delimited text, as in Hive's text serde: a byte after the escape is not a separator.

Before a value is split, its escaped bytes are replaced by bytes that no separator has. They are restored in the parts.
"""

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

MARK = b"\xff"
RAW = MARK + b"\xc0\xc0"  # the byte of the mark itself
HIDDEN = re.compile(rb"\xff(..)", re.DOTALL)
MEANINGS = {b"r": b"\r", b"n": b"\n"}  # meanings of escaped letters


class Escapes:
    """Hides and restores escaped bytes, for one escape byte."""

    def __init__(self, escape: bytes) -> None:
        self._escape = escape
        self._found = re.compile(re.escape(escape) + rb"(.)|\xff", re.DOTALL)

    def hide(self, text: bytes) -> bytes:
        """The text with escaped bytes hidden. An escape at the end of the text is an ordinary byte."""
        return self._found.sub(_hidden, text)

    def hide_all(self, texts: pa.Array) -> pa.Array:
        """Like `hide`, for a column of binary in which most texts hold no escape."""
        return _mapped(texts, self.hide, (self._escape, MARK))

    def unescape(self, texts: pa.Array) -> pa.Array:
        """Parts of hidden texts, with each escape and its byte replaced by their meaning."""
        return _mapped(texts, lambda text: HIDDEN.sub(_meant, text), (MARK,))

    def restore(self, texts: pa.Array) -> pa.Array:
        """Parts of hidden texts, unchanged from the file, with escapes."""
        return _mapped(texts, lambda text: HIDDEN.sub(self._as_it_stood, text), (MARK,))

    def _as_it_stood(self, match: re.Match[bytes]) -> bytes:
        byte = _byte(match[1])
        return MARK if byte is None else self._escape + byte


def _hidden(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return RAW
    return MARK + bytes([0x80 | match[1][0] >> 4, 0x80 | match[1][0] & 0xF])


def _meant(match: re.Match[bytes]) -> bytes:
    byte = _byte(match[1])
    return MARK if byte is None else MEANINGS.get(byte, byte)


def _byte(hidden: bytes) -> bytes | None:
    """The byte that was escaped; None for the mark's own byte, which was not."""
    return None if hidden == RAW[1:] else bytes([(hidden[0] & 0xF) << 4 | hidden[1] & 0xF])


def _mapped(texts: pa.Array, change: Callable[[bytes], bytes], signs: tuple[bytes, ...]) -> pa.Array:
    if not any(pc.any(pc.match_substring(texts, sign)).as_py() for sign in signs):
        return texts
    return pa.array([None if text is None else change(text) for text in texts.to_pylist()], pa.binary())

"""Decodes the JSON of a batch in Python. The decoder in C blocks all other threads until it is done: for seconds, if a
body of a few megabytes is full of small values. The Python decoder lets other threads run every few milliseconds, and
stops at a limit of values.

Both accept the same JSON and raise the same errors; only the function that scans a value differs."""

import json
from collections.abc import Callable
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from gnomon.service.errors import TooLarge

VALUES_A_KEY = 32  # more than any key has columns

Scan = Callable[[str, int], tuple[Any, int]]


def decode(body: bytes, most_keys: int) -> Any:
    """The value of a body. ValueError and RecursionError as of `json.loads`, TooLarge for more values than that many
    keys can have."""
    return _Decoder(most_keys).decode(body.decode(json.detect_encoding(body), "surrogatepass"))


class _Decoder(json.JSONDecoder):
    """A decoder for one body, which counts its values."""

    def __init__(self, most_keys: int) -> None:
        super().__init__()
        self._most_keys = most_keys
        self._most_values = self._left = VALUES_A_KEY * (most_keys + 1)
        self.parse_array = lambda start, scan: JSONArray(start, self._counted(scan))
        self.parse_object = lambda start, strict, scan, *rest: JSONObject(start, strict, self._counted(scan), *rest)
        self.scan_once = py_make_scanner(self)

    def _counted(self, scan: Scan) -> Scan:
        def counted(text: str, at: int) -> tuple[Any, int]:
            self._left -= 1
            if self._left < 0:
                raise TooLarge(
                    f"more than {self._most_values} values; at most {self._most_keys} keys in one batch "
                    "(setting max_batch_keys)"
                )
            return scan(text, at)

        return counted

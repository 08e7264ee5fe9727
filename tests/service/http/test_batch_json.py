"""service/http/batch_json.py: the syntax of `json`, with limits, and without blocking other threads for long."""

import json
import threading
from collections.abc import Callable

import pytest

from gnomon.service.errors import TooLarge
from gnomon.service.http.batch_json import VALUES_A_KEY, decode

BODIES = [
    b'{"keys": ["a", 1, -0.5e3, null, true, {"country": "de", "id": 12345678901234567890}, ["x", [], {}]]}',
    '{"keys": ["日本", "\\ud800", "\\u65e5"]}'.encode(),
    '{"keys": []}'.encode("utf-16"),
    b"\xef\xbb\xbf[NaN, Infinity]",
    b'{"a": 1, "a": 2}',
    b"",
    b"[",
    b'{"keys": [1 2]}',
    b'{"keys": [1,]}',
    b'{"keys" 1}',
    b"{1: 2}",
    b'"\x01"',
    b"\xff",
    b"[1] x",
    b"nothing",
]


def outcome(call: Callable[[], object]) -> str:
    try:
        return repr(call())
    except ValueError as error:
        return repr(error)


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_or_refused_as_by_json(body: bytes) -> None:
    assert outcome(lambda: decode(body, 10)) == outcome(lambda: json.loads(body))


def test_lists_too_deep_inside_each_other_end_no_process() -> None:
    with pytest.raises(RecursionError):
        decode(b"[" * 100_000, 10_000)


@pytest.mark.parametrize("one", ["1", "[]", '{"a": {"b": [1, 2]}}'])
def test_more_values_than_the_keys_can_have_are_refused_before_all_are_read(one: str) -> None:
    most = VALUES_A_KEY * 11
    with pytest.raises(TooLarge, match=f"more than {most} values; at most 10 keys in one batch"):
        decode(f"[{','.join([one] * most)}, and what is no JSON".encode(), 10)
    assert len(decode(f"[{','.join(['1'] * (most - 1))}]".encode(), 10)) == most - 1


def test_other_threads_run_while_a_great_body_is_read() -> None:
    body = b'{"keys": [' + b",".join([b"[[], {}]"] * 60_000) + b"]}"
    ended, turns = threading.Event(), 0

    def others() -> None:
        nonlocal turns
        while not ended.wait(0.001):
            turns += 1

    other = threading.Thread(target=others)
    other.start()
    before = turns
    try:
        decode(body, 10_000)
        during = turns - before
    finally:
        ended.set()
        other.join()
    assert during > 3

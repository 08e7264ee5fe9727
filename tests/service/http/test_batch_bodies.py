"""service/http/requests.py: the bodies of batches, with limits, and without blocking other threads for long."""

import json
import threading

import pytest

from gnomon.service.errors import BadRequest, TooLarge
from gnomon.service.http.requests import VALUES_A_KEY, parse_batch

KEYS = [
    b'["a", 1, -0.5e3, null, true, {"country": "de", "id": 12345678901234567890}, ["x", [], {}]]',
    b"[123456789012345678901234567890, -9223372036854775809, 0.1, 1e22, -0.0, 1e400]",
    '["日本", "\\ud800", "\\u65e5"]'.encode(),
    b"[NaN, Infinity]",
    b'[{"a": 1, "a": 2}]',
    b"[]",
]
BODIES = [
    '{"keys": []}'.encode("utf-16"),
    b'\xef\xbb\xbf{"keys": [1]}',
    b'{"keys": [1], "columns": null}',
    b'{"keys": [1], "columns": ["a", "b"], "keys": [2]}',
    *(b'{"keys": %s}' % keys for keys in KEYS),
]
NO_JSON = [
    *(b"", b"[", b'{"keys": [1 2]}', b'{"keys": [1,]}', b'{"keys" 1}', b"{1: 2}", b'"\x01"', b"\xff", b"[1] x"),
    *(b"nothing", b'{"keys": ["a""b"]}', b'{"keys": ["' + b'\\"' * 100),
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_as_by_json(body: bytes) -> None:
    batch, expected = parse_batch(body, 10), json.loads(body)
    assert repr((batch.keys, batch.columns)) == repr((expected["keys"], expected.get("columns")))


@pytest.mark.parametrize("body", NO_JSON)
def test_what_is_no_json_is_refused_with_the_place(body: bytes) -> None:
    with pytest.raises(ValueError) as expected:
        json.loads(body)
    with pytest.raises(BadRequest) as refused:
        parse_batch(body, 10)
    assert str(refused.value) == f"the body is not JSON ({expected.value})"


def test_lists_too_deep_inside_each_other_end_no_process() -> None:
    for body in (b"[" * 100_000, b'{"keys": ' + b"[" * 100_000):
        with pytest.raises(BadRequest, match="the body is not JSON"):
            parse_batch(body, 10_000)
        with pytest.raises(TooLarge):
            parse_batch(body, 10)


@pytest.mark.parametrize("one", [b"1", b"[]", b'{"a": {"b": [1, 2]}}', b'"x"', b"[" * 50 + b"]" * 50])
def test_more_values_than_the_keys_can_have_are_refused_before_all_are_read(one: bytes) -> None:
    most = VALUES_A_KEY * 11
    with pytest.raises(TooLarge, match=f"more than {most} values; at most 10 keys in one batch"):
        parse_batch(b'{"keys": [' + b",".join([one] * most) + b", and what is no JSON", 10)


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    keys = ["[,:{" * 1000, '"' + ",{" * 1000, "\\" + "[:" * 1000 + "\\"]
    assert parse_batch(json.dumps({"keys": keys}).encode(), 10).keys == keys


def test_other_threads_run_while_the_values_of_a_great_body_are_counted() -> None:
    body = b'{"keys": [' + b'"a",' * 2_000_000 + b"1"
    ended, turns = threading.Event(), 0

    def others() -> None:
        nonlocal turns
        while not ended.wait(0.001):
            turns += 1

    other = threading.Thread(target=others)
    other.start()
    before = turns
    try:
        with pytest.raises(TooLarge):
            parse_batch(body, 10_000)
        during = turns - before
    finally:
        ended.set()
        other.join()
    assert during > 3

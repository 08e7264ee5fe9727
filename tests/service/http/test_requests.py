"""service/http/requests.py: the bytes of all bodies together, and paths that are decoded late."""

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.requests import Request

from gnomon.service.errors import Overloaded, TooLarge
from gnomon.service.http.requests import PARSED, read_body
from gnomon.service.memory import Memory
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from tests.service.live import answer, live, request


def coming(*chunks: bytes) -> Request:
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_bodies_that_come_in_are_bounded_together_and_give_back_what_they_held() -> None:
    bodies = Memory(8 * PARSED * 100)
    body, hold = asyncio.run(read_body(coming(b"a" * 60, b"b" * 40), 1000, bodies, "a"))
    assert (body, bodies.held) == (b"a" * 60 + b"b" * 40, PARSED * 100)
    hold.close()
    others = [bodies.take(name, 3 * PARSED * 100) for name in "bc"]
    with pytest.raises(Overloaded, match="the bodies of other requests hold the memory"):
        asyncio.run(read_body(coming(b"a" * 140, b"b" * 140), 1000, bodies, "a"))
    with pytest.raises(TooLarge):
        asyncio.run(read_body(coming(b"a" * 5, b"b" * 6), 10, bodies, "a"))
    assert bodies.held == 6 * PARSED * 100
    assert all(others)


def test_the_memory_of_a_body_is_taken_before_any_of_it_is_read() -> None:
    bodies = Memory(100)
    other = bodies.take("b", 50), bodies.take("c", 40)
    sent = coming(b"a" * 20)
    sent.scope["headers"].append((b"content-length", b"20"))
    with pytest.raises(Overloaded):
        asyncio.run(read_body(sent, 1000, bodies, "a"))
    assert asyncio.run(sent.receive())["body"] == b"a" * 20
    assert all(other)


@pytest.mark.parametrize("root_path", ["", "/gnomon"])
def test_a_long_path_is_decoded_only_for_a_caller_who_may_ask(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch, root_path: str
) -> None:
    decoded: list[str] = []

    def watched(path: str) -> str:
        decoded.append(path)
        return unquote(path)

    monkeypatch.setattr("gnomon.service.access.guard.unquote", watched)
    token, hashed = new_token("tester")
    key = "a%/" * 1000
    target = f"{root_path}/rows/" + "".join(f"%{ord(character):02x}" for character in key)
    with live(replace(crawl_settings, tokens=[hashed.line], root_path=root_path)) as running:
        with running.connect() as stranger:
            stranger.sendall(request(target))
            refused = answer(stranger)
        assert (refused.status, refused.json()["instance"], decoded) == (401, target[:256] + "...", [])
        with running.connect() as known:
            known.sendall(request(target, "GET", f"Authorization: Bearer {token}"))
            found = answer(known)
        assert (found.status, found.json()["key"], decoded) == (404, {"url": key}, [target])

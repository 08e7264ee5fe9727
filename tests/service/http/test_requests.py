"""service/http/requests.py: the limit of all request bodies together."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from gnomon.service.errors import Overloaded, TooLarge
from gnomon.service.http.requests import PARSED, read_body
from gnomon.service.memory import Memory


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
    request = coming(b"a" * 20)
    request.scope["headers"].append((b"content-length", b"20"))
    with pytest.raises(Overloaded):
        asyncio.run(read_body(request, 1000, bodies, "a"))
    assert asyncio.run(request.receive())["body"] == b"a" * 20
    assert all(other)

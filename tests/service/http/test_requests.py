"""service/http/requests.py: the limit of all request bodies together."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from gnomon.service.errors import Overloaded, TooLarge
from gnomon.service.http.requests import Bodies, read_body


def coming(*chunks: bytes) -> Request:
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_bodies_that_come_in_are_bounded_together_and_give_back_what_they_held() -> None:
    bodies = Bodies(most_bytes=100)
    assert asyncio.run(read_body(coming(b"a" * 60, b"b" * 40), 1000, bodies)) == b"a" * 60 + b"b" * 40
    assert bodies.held == 0
    bodies.take(50)
    with pytest.raises(Overloaded, match="more than 100 bytes are coming in"):
        asyncio.run(read_body(coming(b"a" * 40, b"b" * 40), 1000, bodies))
    with pytest.raises(TooLarge):
        asyncio.run(read_body(coming(b"a" * 5, b"b" * 6), 10, bodies))
    assert bodies.held == 50

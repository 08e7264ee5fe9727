"""service/metrics/observe.py: every answer has an id, and every request is counted, whatever its result."""

import asyncio
import logging
import re
from typing import Any

import httpx
import pytest

from gnomon.service.application import create_app
from gnomon.service.metrics.observe import LEFT
from gnomon.service.settings.table import Settings
from tests.service.lake import Client
from tests.service.metrics.test_exposition import samples

pytestmark = pytest.mark.usefixtures("way")


def ask(client: Client, target: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as asking:
            return await asking.request(
                method, target, headers={name.replace("_", "-"): h for name, h in headers.items()}
            )

    return asyncio.run(go())


def test_every_answer_carries_an_id_of_its_own(crawl: Client) -> None:
    targets = ["/rows/second", "/rows/no", "/rows?_limit=x", "/nowhere", "/healthz", "/metrics", "/openapi.json"]
    ids = [crawl.get(target).headers["x-request-id"] for target in targets]
    assert all(re.fullmatch("[0-9a-f]{32}", found) for found in ids)
    assert len(set(ids)) == len(ids)


def test_a_well_formed_id_of_the_caller_is_kept_and_any_other_replaced(crawl: Client) -> None:
    assert ask(crawl, "/rows/second", X_Request_Id="trace-1.2_3").headers.get_list("x-request-id") == ["trace-1.2_3"]
    for odd in ("", "a b", "x" * 65, 'a"b', "a\tb"):
        assert re.fullmatch("[0-9a-f]{32}", ask(crawl, "/healthz", X_Request_Id=odd).headers["x-request-id"])


def test_the_problem_the_answer_and_the_log_say_the_same_id(
    own: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr("gnomon.service.costs.FetchStats", broken)
    with caplog.at_level(logging.ERROR):
        answer = ask(own, "/rows/secret-key", X_Request_Id="mine")
    assert (answer.status_code, answer.headers["x-request-id"], answer.json()["request_id"]) == (500, "mine", "mine")
    [record] = [one for one in caplog.records if one.name == "gnomon.service"]
    assert "request mine: RuntimeError: lost" in record.getMessage()
    assert "secret-key" not in record.getMessage(), "keys may be personal data"


def test_a_client_that_leaves_is_counted(crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(crawl_settings)
    begun = asyncio.Event()

    async def never_answered(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("gnomon.service.indexes.threads.RequestThreads.work", never_answered)
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/rows/x",
            "raw_path": b"/rows/x",
            "query_string": b"",
            "headers": [],
            "client": ("127.0.0.1", 1),
        }
        task = asyncio.create_task(app(scope, receive, send))
        await begun.wait()
        assert samples(app.state.metrics.text())["gnomon_requests_in_progress", ()] == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    found = samples(app.state.metrics.text())
    assert sent == []
    labels = (("index", "shadow"), ("method", "GET"), ("route", "/rows/{key}"), ("status", str(LEFT)))
    assert found["gnomon_requests_total", labels] == 1
    assert found["gnomon_requests_in_progress", ()] == 0

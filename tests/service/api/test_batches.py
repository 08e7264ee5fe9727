"""service/api/responses.py and the batches of json_answers.py: pieces, their errors, and the memory that they hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from gnomon.service.application import create_app
from gnomon.service.errors import encode
from gnomon.service.settings.table import Settings
from gnomon.shadow import Index
from gnomon.shadow.errors import OutOfTime
from gnomon.shadow.fetch import Query
from tests.service.lake import TWICE, Client
from tests.shadow.make_index import index_source, write_source


def small_pieces(monkeypatch: pytest.MonkeyPatch, first: int = 3, most: int = 2) -> None:
    monkeypatch.setattr("gnomon.service.api.answers.FIRST_KEYS", first)
    monkeypatch.setattr("gnomon.service.api.answers.MOST_KEYS", most)


KEYS = [TWICE, "no", "second", {"url": "a/b"}, 7, "no", "second", TWICE, ["a/b"], "no"]


def test_a_batch_in_pieces_says_what_it_says_in_one(crawl: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = crawl.post({"keys": KEYS})
    small_pieces(monkeypatch)
    pieces = crawl.post({"keys": KEYS})
    assert "content-length" in whole.headers
    assert "content-length" not in pieces.headers
    assert pieces.content == whole.content
    assert [r.get("count", r.get("error", {}).get("status")) for r in pieces.json()["results"]] == [
        *(3, 0, 1, 1, 400, 0, 1, 3, 1, 0)
    ]
    explained = crawl.post({"keys": KEYS}, "?_explain=true").json()["explain"]
    assert explained["source"]["files"] == 2
    assert crawl.app.state.service.indexes.memory.held == 0
    assert crawl.app.state.service.indexes.bodies.held == 0


def test_a_later_piece_that_fails_leaves_the_rows_before_and_gives_its_keys_the_error(
    own: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    index, calls = type(own.served.index), []
    answer = index.answer

    def fails_later(self: Index, query: Query) -> Any:
        calls.append(len(query.keys))
        if len(calls) > 2:
            raise OutOfTime("not answered within 30 s")
        return answer(self, query)

    monkeypatch.setattr(index, "answer", fails_later)
    results = own.post({"keys": ["second"] * 9}).json()["results"]
    assert calls == [3, 2, 2]
    assert [one.get("count") for one in results] == [1] * 5 + [None] * 4
    assert [one["error"]["status"] for one in results[5:]] == [503] * 4
    assert [one["key"] for one in results[5:]] == [{"url": "second"}] * 4
    assert own.app.state.service.indexes.memory.held == 0


def test_the_first_piece_that_fails_fails_the_batch(own: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)

    def fails(self: Index, query: Query) -> Any:
        raise OutOfTime("not answered within 30 s")

    monkeypatch.setattr(type(own.served.index), "answer", fails)
    assert own.ask("POST", "/rows", {"keys": ["second"] * 9}).status_code == 503
    assert own.app.state.service.indexes.memory.held == 0
    assert own.app.state.service.indexes.bodies.held == 0


def test_the_bounds_of_an_answer_are_those_of_all_its_pieces(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    few = Client(replace(crawl_settings, max_rows=4))
    results = few.post({"keys": ["second"] * 6}).json()["results"]
    assert [one.get("count", one.get("error", {}).get("status")) for one in results] == [1, 1, 1, 1, 413, 413]
    small = Client(replace(crawl_settings, max_answer_bytes=1024))
    results = small.post({"keys": ["second"] * 30}).json()["results"]
    answered = [one for one in results if "rows" in one]
    assert 3 < len(answered) < 30
    assert sum(len(encode(one)) for one in answered) <= 1024
    assert {one["error"]["status"] for one in results[len(answered) :]} == {413}


def test_an_answer_that_waits_for_its_client_holds_its_bytes(crawl_settings: Settings) -> None:
    app = create_app(crawl_settings)
    memory = app.state.service.indexes.memory
    held: list[int] = []

    async def ask() -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)
            if message.get("body"):
                held.append(memory.held)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": "/rows/second", "raw_path": b"/rows/second"}
        await app({**scope, "query_string": b"", "headers": [], "client": ("127.0.0.1", 1)}, receive, send)
        assert held == [len(b"".join(one.get("body", b"") for one in sent))]

    asyncio.run(ask())
    assert memory.held == 0


def test_a_key_with_many_rows_takes_memory_for_them_before_they_are_read(tmp_path: Path) -> None:
    text = [f"{number:06d}".ljust(30_000, "x") for number in range(300)]
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": ["many"] * 300, "text": text})}, compression="none")
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")], memory_bytes=1 << 30))
    memory, held, most = client.app.state.service.indexes.memory, [], [0]
    change = memory._change

    def noted(client: str, before: int, size: int) -> int | None:
        changed: int | None = change(client, before, size)
        held.append((size, changed))
        most[0] = max(most[0], memory.held)
        return changed

    memory._change = noted
    assert client.get("/rows/many").json()["count"] == 300
    rows = 300 * 30_000
    assert most[0] > 3 * rows, "as Arrow, in Python, as text"
    assert most[0] < 40 * rows
    assert memory.held == 0
    half = memory.most_bytes // 2
    others = [hold for hold in (memory.take("other", half), memory.take("third", half - (40 << 20))) if hold]
    assert len(others) == 2
    held.clear()
    waits = asyncio.run(_asked_while_held(client, others))
    assert waits == 300
    assert [changed for _, changed in held].count(None) > 1, "it was done again when the memory was free"
    assert len({size for size, changed in held if changed is None and size > 20 << 20}) == 1, "it needs the same again"
    assert memory.held == 0


async def _asked_while_held(client: Client, others: Sequence[Any]) -> int:
    """The count of an answer for which memory becomes free later."""
    transport = httpx.ASGITransport(client.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as asking:
        task = asyncio.create_task(asking.get("/rows/many"))
        await asyncio.sleep(0.3)
        assert not task.done()
        for other in others:
            other.close()
        return int((await task).json()["count"])

"""Tools for agents, as the client of the protocol's SDK sees them."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pyarrow as pa
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from gnomon.jobs.build import build
from gnomon.service.mcp import MOST_BYTES
from gnomon.service.mcp import TOOLS as TOOLS_BY_NAME
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from gnomon.shadow.maintenance import vacuum
from tests.service.lake import ODD_KEYS, TWICE, add_day, crawl_table, make_clone, make_crawl, make_orders
from tests.service.live import Live, live
from tests.service.processes import started
from tests.shadow.make_index import index_source, write_source

TOOLS = ["describe_index", "get_row", "get_rows", "list_keys", "key_history"]
Call = tuple[str, dict[str, Any]]


def with_tools(settings: Settings, **more: Any) -> Settings:
    return replace(settings, mcp=True, **more)


def over_http(port: int, work: Callable[[Client], Awaitable[Any]], token: str = "", mode: Any = "auto") -> Any:
    async def run() -> Any:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http), mode=mode) as client,
        ):
            return await work(client)

    return asyncio.run(run())


def called(port: int, *calls: Call, token: str = "", mode: Any = "auto") -> list[tuple[bool, Any]]:
    """For each call, whether it failed, and its answer. The answer of a failed call is the text of its error."""

    async def work(client: Client) -> list[tuple[bool, Any]]:
        found = []
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            [content] = result.content
            told: str = getattr(content, "text")  # noqa: B009 of the kinds of content only texts have one
            if not result.is_error:
                assert json.loads(told) == result.structured_content
            found.append((bool(result.is_error), told if result.is_error else result.structured_content))
        return found

    answers: list[tuple[bool, Any]] = over_http(port, work, token, mode)
    return answers


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    crawl, orders = make_crawl(tmp_path_factory.mktemp("crawl")), make_orders(tmp_path_factory.mktemp("orders"))
    settings = Settings(
        indexes=[f"crawl={crawl.indexes[0]}", f"orders={orders.indexes[0]}"],
        hidden_columns={"crawl": ["raw"]},
        mcp=True,
        max_batch_keys=100,
    )
    with live(settings) as running:
        yield running


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_five_tools_answer_clients_of_new_and_old_versions_of_the_protocol(served: Live, mode: str) -> None:
    tools = over_http(served.port, lambda client: client.list_tools(), mode=mode).tools
    assert [tool.name for tool in tools] == TOOLS
    for tool in tools:
        index = tool.input_schema["properties"]["index"]
        assert index["enum"] == ["crawl", "orders"]
        assert "orders: key country, id" in index["description"]
        assert tool.annotations.read_only_hint
        assert tool.description
    [described, row, rows, keys, history] = called(
        served.port,
        ("describe_index", {"index": "orders"}),
        ("get_row", {"key": TWICE, "columns": ["n"]}),
        ("get_rows", {"index": "orders", "keys": [["de", 1], {"country": None, "id": 3}, ["no", 1]]}),
        ("list_keys", {"prefix": "https://"}),
        ("key_history", {"key": "second", "columns": ["n"]}),
        mode=mode,
    )
    assert [key["name"] for key in described[1]["keys"]] == ["country", "id"]
    assert (row[1]["count"], row[1]["rows"][0]) == (3, {"n": 2**60 + 14})
    assert [one["count"] for one in rows[1]["results"]] == [1, 1, 0]
    assert keys[1]["rows"] == [{"url": "https://example.com/a//b"}]
    [period] = history[1]["periods"]
    assert (period["count"], period["until"], period["rows"]) == (1, None, [{"n": 2**60 + 1}])


def test_every_key_is_asked_for_as_it_is(served: Live) -> None:
    answers = called(served.port, *(("get_row", {"key": key, "columns": ["url"]}) for key in ODD_KEYS))
    assert [answer for _, answer in answers] == [
        {"key": {"url": key}, "count": 1, "rows": [{"url": key}], "snapshot": 1} for key in ODD_KEYS
    ]


def test_a_key_without_rows_is_an_answer_and_wrong_calls_say_what_is_wrong(served: Live) -> None:
    absent, *wrong = called(
        served.port,
        ("get_row", {"key": "absent"}),
        ("get_row", {"key": 5}),
        ("get_row", {}),
        ("get_row", {"key": "a", "colums": ["n"]}),
        ("get_row", {"key": TWICE, "columns": ["m"]}),
        ("get_row", {"key": TWICE, "index": "crawls"}),
        ("get_row", {"key": TWICE, "snapshot": 99}),
        ("get_rows", {"keys": []}),
        ("get_rows", {"keys": ["a"] * 101}),
        ("list_keys", {"prefix": "a", "from": "b"}),
        ("list_keys", {"after": "x"}),
        ("key_history", {"key": TWICE, "columns": ["m"]}),
        ("drop_table", {}),
    )
    assert absent == (False, {"key": {"url": "absent"}, "count": 0, "rows": [], "snapshot": 1})
    texts = [text for failed, text in wrong if failed]
    expected = [
        "key column url: expected string, found 5",
        "missing required field `key`",
        "unknown field `colums`",
        "the source has no column m; it has",
        "no index of this name; there are crawl, orders",
        "Snapshot not found",
        "length >= 1",
        "at most 100 in one batch",
        "Bad request",
        "_after: expected the cursor in the next of a page",
        "the source has no column m; it has",
        "there is no tool 'drop_table'; there are describe_index",
    ]
    assert len(texts) == len(expected)
    for text, part in zip(texts, expected, strict=True):
        assert part in text


def test_arguments_that_are_null_are_as_if_left_out(served: Live) -> None:
    nothing = dict.fromkeys(["index", "columns", "where", "snapshot"])
    given, left_out = called(served.port, ("get_row", {"key": TWICE, **nothing}), ("get_row", {"key": TWICE}))
    assert given == left_out
    assert given[1]["count"] == 3


def test_keys_come_page_by_page_in_both_directions(served: Live) -> None:
    async def work(client: Client) -> list[list[str]]:
        both = []
        for reverse in (False, True):
            found, after = [], None
            while True:
                page = await client.call_tool("list_keys", {"limit": 4, "reverse": reverse, "after": after})
                assert page.structured_content is not None
                found += [row["url"] for row in page.structured_content["rows"]]
                after = page.structured_content.get("after")
                if after is None:
                    break
            both.append(found)
        return both

    up, down = over_http(served.port, work)
    assert up == sorted([*ODD_KEYS, TWICE, TWICE, TWICE, "second"], key=str.encode)
    assert down == up[::-1]


def test_a_range_has_its_ends_and_no_key_in_it_is_an_answer(served: Live) -> None:
    inner, closed, country, empty = called(
        served.port,
        ("list_keys", {"from": "a", "to": "second"}),
        ("list_keys", {"from": "a", "to": "second", "inclusive": True, "columns": ["n", "url"]}),
        ("list_keys", {"index": "orders", "prefix": ["de"]}),
        ("list_keys", {"prefix": "zzz"}),
    )
    assert "second" not in [row["url"] for row in inner[1]["rows"]]
    assert closed[1]["rows"][-1] == {"url": "second", "n": 2**60 + 1}
    assert country[1]["rows"] == [{"country": "de", "id": 1}, {"country": "de", "id": 2}]
    assert empty == (False, {"rows": [], "count": 0, "snapshot": 1})


def test_a_hidden_column_is_in_no_answer(served: Live) -> None:
    calls: list[Call] = [
        ("describe_index", {"index": "crawl"}),
        ("get_row", {"key": TWICE}),
        ("get_rows", {"keys": [TWICE]}),
        ("list_keys", {"columns": ["n"]}),
        ("key_history", {"key": TWICE}),
    ]
    for failed, answer in called(served.port, *calls):
        assert not failed
        assert '"raw"' not in json.dumps(answer)
    for name, arguments in calls[1:]:
        [(failed, text)] = called(served.port, (name, {**arguments, "columns": ["raw"]}))
        assert failed
        assert "no column raw" in text


def test_an_index_that_hides_its_key_lists_no_keys(tmp_path: Path) -> None:
    settings = with_tools(make_crawl(tmp_path), hidden_columns={"shadow": ["url"]})
    with live(settings) as running:
        found, listed = called(running.port, ("get_row", {"key": TWICE, "columns": ["n"]}), ("list_keys", {}))
    assert (found[0], found[1]["count"]) == (False, 3)
    assert listed[0]
    assert "this index answers no ranges of keys" in listed[1]


def test_a_token_opens_its_indexes_only(tmp_path: Path) -> None:
    crawl, orders = make_crawl(tmp_path / "1").indexes[0], make_orders(tmp_path / "2").indexes[0]
    secret, token = new_token("desk", ["orders"])
    settings = Settings(indexes=[f"crawl={crawl}", f"orders={orders}"], tokens=[token.line], mcp=True)
    with live(settings) as running:
        refused = httpx.post(f"http://127.0.0.1:{running.port}/mcp", json={})
        tools = over_http(running.port, lambda client: client.list_tools(), secret).tools
        listed, without_index, allowed, *others = called(
            running.port,
            ("describe_index", {}),
            ("list_keys", {"limit": 1}),
            ("get_row", {"index": "orders", "key": ["de", 1]}),
            *((name, {"index": "crawl", "key": TWICE}) for name in ("get_row", "key_history")),
            ("get_rows", {"index": "crawl", "keys": [TWICE]}),
            ("list_keys", {"index": "crawl"}),
            ("describe_index", {"index": "crawl"}),
            token=secret,
        )
    assert (refused.status_code, refused.json()["title"]) == (401, "Token needed")
    assert tools[0].input_schema["properties"]["index"]["enum"] == ["orders"]
    assert [one["name"] for one in listed[1]["indexes"]] == ["orders"]
    assert without_index[1]["rows"] == [{"country": None, "id": 3}], "the first index that the token may ask"
    assert allowed[1]["count"] == 1
    for failed, text in others:
        assert failed
        assert "this token may not ask this index; it may ask orders" in text


def test_a_call_is_one_request_and_more_of_them_are_counted(tmp_path: Path) -> None:
    settings = make_crawl(tmp_path)
    for day in (3, 4, 5):
        add_day(tmp_path, f"2026-01-0{day}", ["third"])
    with live(with_tools(settings, requests_per_second=0.001, request_burst=6)) as running:
        calls: list[Call] = [("get_row", {"key": TWICE, "columns": ["n"]})] * 3
        answers = called(running.port, *calls, mode="2026-07-28")  # this version has no handshake
        assert [failed for failed, _ in answers] == [False] * 3
        [(failed, text)] = called(running.port, ("key_history", {"key": TWICE}), mode="2026-07-28")
    assert failed
    assert "more than 0.001 requests a second" in text


def test_the_history_of_a_key_has_the_periods_of_its_rows(tmp_path: Path) -> None:
    settings = make_crawl(tmp_path)
    add_day(tmp_path, "2026-01-03", ["third"])  # the rows of the key stay the same
    add_day(tmp_path, "2026-01-04", [TWICE])
    with live(with_tools(settings)) as running:
        history: Call = ("key_history", {"key": TWICE, "columns": ["dt"]})
        of_key, few = called(running.port, history, ("key_history", {"key": TWICE, "snapshots": 1}))
        newest, oldest = of_key[1]["periods"]
        assert [one["dt"] for one in newest["rows"]] == ["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-04"]
        assert (newest["first_snapshot"], newest["last_snapshot"], newest["until"]) == (3, 3, None)
        assert (oldest["first_snapshot"], oldest["last_snapshot"], oldest["count"]) == (1, 2, 3)
        assert oldest["until"] == newest["from"] > oldest["from"]
        assert of_key[1]["snapshots_not_searched"] == 0
        assert (len(few[1]["periods"]), few[1]["snapshots_not_searched"]) == (1, 2)

        vacuum(str(tmp_path / "shadow"), grace_seconds=0)
        running.served.refresh()
        [(failed, after)] = called(running.port, history)
    assert not failed
    assert after["periods"][0] == {**newest, "rows": newest["rows"]}
    for one in after["periods"][1:]:  # as long as the snapshots are listed, their rows are in memory or an error
        assert "error" in one or one["rows"] == oldest["rows"]


def test_an_answer_that_is_too_large_for_an_agent_says_so(tmp_path: Path) -> None:
    table = pa.table({"id": range(300), "text": ["x" * 9_000] * 300})
    write_source(tmp_path / "lake", {"a.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["id"])
    with live(Settings(indexes=[str(tmp_path / "shadow")], mcp=True)) as running:
        keys = list(range(300))
        large, small = called(
            running.port, ("get_rows", {"keys": keys}), ("get_rows", {"keys": keys, "columns": ["id"]})
        )
    assert large[0]
    assert f"an agent gets at most {MOST_BYTES:,}: ask for fewer columns" in large[1]
    assert [one["rows"] for one in small[1]["results"]] == [[{"id": key}] for key in keys]


@pytest.mark.parametrize(("cors_origins", "statuses"), [((), [403, 403]), (("https://a.example",), [200, 403])])
def test_a_page_of_another_site_may_not_ask(tmp_path: Path, cors_origins: tuple[str, ...], statuses: list[int]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    with live(with_tools(make_crawl(tmp_path), cors_origins=cors_origins)) as running:
        url = f"http://127.0.0.1:{running.port}/mcp"
        origins = ("https://a.example", "https://b.example")
        found = [httpx.post(url, json=body, headers={**accept, "origin": origin}).status_code for origin in origins]
        assert httpx.post(url, json=body, headers=accept).status_code == 200
        assert httpx.get(url).status_code == 405
    assert found == statuses


def test_there_are_no_tools_unless_the_settings_ask_for_them(crawl_settings: Settings) -> None:
    with live(crawl_settings) as running:
        assert httpx.post(f"http://127.0.0.1:{running.port}/mcp", json={}).status_code == 404


def test_numbers_that_json_has_no_words_for_are_keys_like_others(tmp_path: Path) -> None:
    floats = [float("nan"), float("inf"), float("-inf"), None, 0.5]
    table = pa.table({"f": pa.array(floats, pa.float64()), "n": range(5)})
    write_source(tmp_path / "lake", {"a.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["f"])
    index_source(tmp_path / "lake", tmp_path / "both", ["f", "n"])
    names = [tmp_path / "shadow", tmp_path / "both", make_crawl(tmp_path / "crawl").indexes[0]]
    with live(Settings(indexes=[str(name) for name in names[:2]] + [f"crawl={names[2]}"], mcp=True)) as running:

        def answer(tool: str, arguments: str) -> Any:
            """The answer to arguments in JSON as some clients write it: NaN, Infinity, 1e400."""
            body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s", "arguments": %s}}'
            url, accept = f"http://127.0.0.1:{running.port}/mcp", {"accept": "application/json, text/event-stream"}
            headers = {**accept, "content-type": "application/json"}
            found = httpx.post(url, content=body % (tool, arguments), headers=headers).json()
            return found["result"]["structuredContent"] if "result" in found else None

        for number, text in enumerate(["NaN", "Infinity", "-Infinity", "null", "0.5"]):
            assert answer("get_row", f'{{"key": {text}, "columns": ["n"]}}')["rows"] == [{"n": number}], text
            both = '{"index": "both", "keys": [[%s, %d], {"f": %s, "n": %d}], "columns": ["n"]}'
            results = answer("get_rows", both % (text, number, text, number))["results"]
            assert [one["rows"] for one in results] == [[{"n": number}]] * 2, text
            [period] = answer("key_history", f'{{"key": {text}, "columns": ["n"]}}')["periods"]
            assert period["rows"] == [{"n": number}], text
        assert answer("get_row", '{"key": 1e400, "columns": ["n"]}')["rows"] == [{"n": 1}]
        assert answer("get_row", '{"index": "crawl", "key": NaN}')["status"] == 400


def test_calls_of_many_keys_hold_no_more_memory_than_requests_may(tmp_path: Path) -> None:
    settings = with_tools(make_crawl(tmp_path), memory_bytes=96 << 20)
    with live(settings) as running:
        bodies = running.app.state.service.indexes.bodies
        url = f"http://127.0.0.1:{running.port}/mcp"
        assert httpx.post(url, content=b" " * (MOST_BYTES + 1)).status_code == 413
        held = [bodies.take(client, bodies.most_bytes // 2) for client in ("one", "another")]
        assert all(held)
        refused = httpx.post(url, content=b" " * MOST_BYTES)
        assert (refused.status_code, refused.json()["title"]) == (503, "Overloaded")


def test_a_history_compares_more_rows_than_it_shows_and_is_bounded(tmp_path: Path) -> None:
    def write(last: str) -> None:
        table = pa.table({"k": ["a"] * 15, "text": [*["x" * 60_000] * 14, last], "n": range(15)})
        write_source(tmp_path / "lake", {"a.parquet": table})
        index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])

    write("y")
    write("z")
    with live(Settings(indexes=[str(tmp_path / "shadow")], mcp=True)) as running:
        by_default, whole = called(
            running.port,
            ("key_history", {"key": "a", "limit": 2, "columns": ["n"]}),
            ("key_history", {"key": "a", "limit": 15}),
        )
    first, second = by_default[1]["periods"]
    assert (first["rows"], first["count"]) == ([{"n": 0}, {"n": 1}], 15)
    assert "error" in second, "the file of the older snapshot was rewritten"
    assert (whole[0], len(json.dumps(whole[1])) < MOST_BYTES) == (False, True)

    add = [(f"{day}.parquet", pa.table({"k": ["a"], "text": [str(day) * 200_000], "n": [day]})) for day in range(1, 6)]
    for name, table in add:
        write_source(tmp_path / "lake", {name: table})
        index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    with live(Settings(indexes=[str(tmp_path / "shadow")], mcp=True)) as running:
        [few, many] = called(
            running.port,
            ("key_history", {"key": "a", "columns": ["n"], "limit": 1, "snapshots": 6}),
            ("key_history", {"key": "a", "limit": 20, "snapshots": 6}),
        )
    counts = [period.get("count") for period in few[1]["periods"]]
    assert counts[:5] == [20, 19, 18, 17, 16], "rows beyond the shown ones tell the periods apart"
    assert many[0]
    assert "an agent gets at most" in many[1]


def test_the_newest_period_is_of_the_newest_version_of_a_table(tmp_path: Path) -> None:
    with live(with_tools(make_clone(tmp_path))) as running:
        now, history = called(running.port, ("get_row", {"key": 2}), ("key_history", {"key": 2}))
    assert now[1]["count"] == 1, "in a file that the index does not cover"
    newest, older = history[1]["periods"]
    assert (newest["first_snapshot"], newest["count"], newest["table_version"]) == (None, 1, now[1]["table_version"])
    assert (older["first_snapshot"], older["count"]) == (1, 0)


@pytest.mark.parametrize("key", ["nested.id", "a,b"])
def test_keys_of_any_name_are_listed_and_asked_for(tmp_path: Path, key: str) -> None:
    named = pa.array([{"id": 1, "x": 2}, {"id": 2, "x": 3}]) if key == "nested.id" else pa.array([1, 2])
    column = key.partition(".")[0]
    write_source(tmp_path / "lake", {"a.parquet": pa.table({column: named, "a": [5, 6], "b": [7, 8]})})
    build(None, str(tmp_path / "lake"), str(tmp_path / "shadow"), [key])
    with live(Settings(indexes=[str(tmp_path / "shadow")], mcp=True)) as running:
        listed, more, row, wrong = called(
            running.port,
            ("list_keys", {}),
            ("list_keys", {"columns": ["b"], "from": "2"}),
            ("get_row", {"key": 2, "columns": [column]}),
            ("list_keys", {"columns": ["none"]}),
        )
    values = named.to_pylist()
    assert listed[1]["rows"] == [{column: value} for value in values]
    assert more[1]["rows"] == [{column: values[1], "b": 8}]
    assert row[1]["rows"] == [{column: values[1]}]
    assert wrong[0]
    assert "the source has no column none; it has" in wrong[1]


def test_a_token_without_an_index_here_gets_one_line(tmp_path: Path) -> None:
    secret, token = new_token("desk", ["elsewhere"])
    settings = with_tools(make_crawl(tmp_path), tokens=[token.line])
    with live(settings) as running:
        answers = called(
            running.port,
            ("get_row", {"key": TWICE}),
            ("list_keys", {}),
            ("key_history", {"key": TWICE}),
            token=secret,
        )
    assert answers == [(True, "this token may ask no index that is served here")] * 3


def test_an_unexpected_error_is_in_the_log_and_not_in_the_answer(
    served: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(caller: object, asked: object) -> None:
        raise RuntimeError("/secret/path")

    monkeypatch.setitem(TOOLS_BY_NAME, "get_row", (TOOLS_BY_NAME["get_row"][0], fail))
    [(failed, text)] = called(served.port, ("get_row", {"key": TWICE}))
    assert (failed, "the service failed; its log says more" in text, "/secret" in text) == (True, True, False)
    assert "/secret/path" in caplog.text


def test_a_page_of_an_allowed_origin_may_send_the_headers_of_the_protocol(tmp_path: Path) -> None:
    origin = "https://a.example"
    with live(with_tools(make_crawl(tmp_path), cors_origins=(origin,))) as running:
        asked = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,mcp-method,mcp-name,mcp-protocol-version",
        }
        assert httpx.options(f"http://127.0.0.1:{running.port}/mcp", headers=asked).status_code == 200


@pytest.mark.process
def test_calls_that_wait_are_answered_when_standard_input_ends(crawl_settings: Settings) -> None:
    calls = [
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "get_row", "arguments": {"key": TWICE}}}
        for id in range(2, 102)
    ]
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = "".join(f"{json.dumps(one)}\n" for one in [start, begun, *calls])
    command = [sys.executable, "-m", "gnomon", "mcp", *crawl_settings.indexes]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(one["id"] for one in answers) == list(range(1, 102))
    assert all(one["result"]["structuredContent"]["count"] == 3 for one in answers if one["id"] > 1)
    assert done.returncode == 0


@pytest.mark.process
def test_any_worker_answers_and_the_log_shows_no_key(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": crawl_table(["alice@example.org"])})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    with started(Settings(indexes=[str(tmp_path / "shadow")], mcp=True, port=0, workers=2)) as service:
        calls: list[Call] = [
            ("get_row", {"key": "alice@example.org"}),
            ("list_keys", {"prefix": "alice@example.org"}),
            ("key_history", {"key": "alice@example.org"}),
            ("get_row", {"key": "alice@example.org", "snapshot": 99}),
            ("get_row", {"key": {"alice@example.org": 1}}),
        ]
        for _ in range(10):
            answers = called(service.port, *calls)
            assert [failed for failed, _ in answers] == [False, False, False, True, True]
        code, _, log = service.end()
    assert code == 0
    assert '"route": "/mcp"' in log
    assert '"route": "/indexes/{name}/rows"' in log
    assert "alice@example.org" not in log


@pytest.mark.process
def test_standard_input_and_output_answer_too(tmp_path: Path) -> None:
    make_crawl(tmp_path)
    secret, token = new_token("me")
    file = tmp_path / "tokens"
    file.write_text(f"{token.line}\n")

    def ask(variables: Mapping[str, str]) -> list[Any]:
        command = ["-m", "gnomon", "mcp", str(tmp_path / "shadow"), "--tokens-file", str(file)]
        server = StdioServerParameters(command=sys.executable, args=command, env=dict(variables))

        async def run() -> list[Any]:
            with open(tmp_path / "log", "w") as log:
                async with Client(stdio_client(server, errlog=log)) as client:
                    tools = await client.list_tools()
                    return [tools.tools, await client.call_tool("get_row", {"key": "second", "columns": ["n"]})]

        return asyncio.run(run())

    tools, found = ask({"GNOMON_TOKEN": secret})
    assert [tool.name for tool in tools] == TOOLS
    expected = {"key": {"url": "second"}, "count": 1, "rows": [{"n": 2**60 + 1}], "snapshot": 1}
    assert (found.is_error, found.structured_content) == (False, expected)
    assert '"logger": "gnomon.access"' in (tmp_path / "log").read_text()
    tools, found = ask({})
    assert [tool.name for tool in tools] == TOOLS
    assert found.is_error
    assert "a token is needed" in found.content[0].text


@pytest.mark.process
def test_ctrl_c_ends_the_command_though_it_reads_standard_input(crawl_settings: Settings) -> None:
    command = [sys.executable, "-m", "gnomon", "mcp", *crawl_settings.indexes]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        assert "is served" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""

"""All of the protocol but plans passes to the catalog behind and back as it is: paths, queries, header fields, bodies,
errors; and what becomes of a catalog that is down, slow, or breaks off."""

import asyncio
import base64
import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
import uvicorn
from pyiceberg.catalog.sql import SqlCatalog

import gnomon
from gnomon.service.catalog.application import DEFAULT_ENDPOINTS, PLANS
from gnomon.service.catalog.upstream import UpstreamError
from gnomon.service.process import check
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from tests.service.live import Live, live
from tests.stores.process import free_port

SECONDS = 30.0
Script = Callable[[Any, Any, Any], Any]  # an ASGI app


class Behind:
    """A real HTTP server whose answers a test scripts: `script` is called for each request, which `seen` keeps."""

    def __init__(self) -> None:
        self.script: Script = plain(200, b"{}")
        self.seen: list[dict[str, Any]] = []
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(self._app, lifespan="off", interface="asgi3", log_level="critical"))
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([listening])))
        self.thread.start()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.seen.append({**scope, "body": body})
        await self.script(scope, receive, send)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def plain(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> Script:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [*headers]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return answer


class Indexed(NamedTuple):
    """A table with an index of all of its files, and the answer to loadTable for it."""

    index: str
    loaded: bytes


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    folder = tmp_path_factory.mktemp("table")
    with SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse") as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        for begin in range(0, 40, 10):
            ids = [(number * 7) % 40 for number in range(begin, begin + 10)]
            table.append(pa.table({"id": ids, "name": [f"row {number}" for number in ids]}))
        gnomon.build(None, f"iceberg:{table.metadata_location.removeprefix('file://')}", f"{folder}/index", ["id"])
        metadata = json.loads(table.metadata.model_dump_json(by_alias=True, exclude_none=True))
    loaded = {"metadata-location": table.metadata_location, "metadata": metadata, "config": {"own": "setting"}}
    return Indexed(f"{folder}/index", json.dumps(loaded).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[Behind]:
    made = Behind()
    yield made
    made.stop()


@pytest.fixture
def behind(server: Behind) -> Behind:
    server.script, server.seen = plain(200, b"{}"), []
    return server


@pytest.fixture(scope="module")
def catalog(server: Behind, indexed: Indexed) -> Iterator[Live]:
    with live(Settings(indexes=(f"orders={indexed.index}",), port=0, upstream=f"{server.url}/base")) as running:
        yield running


def ask(catalog: Live, method: str, target: str, **more: Any) -> httpx.Response:
    with httpx.Client(base_url=f"http://127.0.0.1:{catalog.port}", timeout=SECONDS) as client:
        return client.request(method, target, **more)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "target",
    [
        "/v1/namespaces?parent=a%1Fb&pageToken=&x=%2F",
        "/v1/my/ware%20house/namespaces/a%1Fb/tables/t%2Fu",
        "/v1/namespaces/n/tables/t/metrics",
        "/v1/p/namespaces/n/views/v",
        "/v1/transactions/commit",
        "/v1/oauth/tokens",
    ],
)
def test_a_request_passes_as_it_is(catalog: Live, behind: Behind, method: str, target: str) -> None:
    behind.script = plain(
        200,
        b'{"odd":  1}',
        (b"content-type", b"application/json"),
        (b"x-one", b"1"),
        (b"x-one", b"2"),
        (b"etag", b'"e"'),
    )
    sent = {
        "Authorization": "Bearer theirs",
        "X-Iceberg-Access-Delegation": "vended-credentials",
        "If-None-Match": '"a"',
    }
    body = b'{"a":\n1}' if method in ("POST", "PUT", "PATCH") else None
    answer = ask(catalog, method, target, headers=sent, content=body)
    assert answer.status_code == 200
    assert answer.content == (b"" if method == "HEAD" else b'{"odd":  1}')
    assert answer.headers.get_list("x-one") == ["1", "2"]
    assert answer.headers["etag"] == '"e"'
    [seen] = behind.seen
    assert (seen["method"], seen["body"]) == (method, body or b"")
    path, _, query = target.partition("?")
    assert (seen["raw_path"], seen["query_string"]) == (b"/base" + path.encode(), query.encode())
    given = {name.decode(): value.decode() for name, value in seen["headers"]}
    assert {name: given[name.lower()] for name in sent} == sent
    assert given["host"] == behind.url.removeprefix("http://")


@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 406, 409, 419, 429, 500, 502, 503])
def test_an_answer_of_any_status_passes_as_it_is(catalog: Live, behind: Behind, status: int) -> None:
    body = b"" if status in (204, 304) else b'{"error":{"message":"m","type":"T","code":%d}}' % status
    headers = ((b"retry-after", b"7"), (b"www-authenticate", b"Bearer"), (b"x-request-cost", b"3"))
    behind.script = plain(status, body, *headers)
    for target in ("/v1/config", "/v1/namespaces/n/tables/t", "/v1/namespaces/n"):
        answer = ask(catalog, "GET", target)
        assert (answer.status_code, answer.content) == (status, body)
        assert [answer.headers[name.decode()] for name, _ in headers] == [value.decode() for _, value in headers]
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t", content=b"{}")
    assert (answer.status_code, answer.content) == (status, body)


def test_large_bodies_pass_both_ways(catalog: Live, behind: Behind) -> None:
    large = bytes(range(256)) * 65536  # 16 MiB
    behind.script = plain(200, large, (b"content-type", b"application/octet-stream"))
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t", content=iter([large[:1000], large[1000:]]))
    assert answer.content == large
    assert behind.seen[0]["body"] == large


def test_an_encoded_answer_passes_encoded(catalog: Live, behind: Behind) -> None:
    packed = gzip.compress(b'{"namespaces":[]}')
    behind.script = plain(200, packed, (b"content-encoding", b"gzip"), (b"content-type", b"application/json"))
    answer = ask(catalog, "GET", "/v1/namespaces", headers={"Accept-Encoding": "gzip"})
    assert (answer.headers["content-encoding"], answer.json()) == ("gzip", {"namespaces": []})
    with httpx.Client() as client, client.stream("GET", f"http://127.0.0.1:{catalog.port}/v1/namespaces") as raw:
        assert b"".join(raw.iter_raw()) == packed


def test_an_answer_begins_before_it_ends(catalog: Live, behind: Behind) -> None:
    begun = threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        assert await asyncio.to_thread(begun.wait, SECONDS)
        await send({"type": "http.response.body", "body": b"second"})

    behind.script = slow
    with httpx.Client(timeout=SECONDS) as client, client.stream("GET", f"http://127.0.0.1:{catalog.port}/v1/x") as raw:
        pieces = raw.iter_raw()
        assert next(pieces) == b"first"
        begun.set()
        assert b"".join(pieces) == b"second"


def test_the_settings_of_the_catalog_name_the_plans(catalog: Live, behind: Behind) -> None:
    own = {
        "overrides": {"prefix": "p"},
        "defaults": {"clients": "4"},
        "endpoints": ["GET /v1/{prefix}/namespaces", PLANS[0]],
    }
    behind.script = plain(200, json.dumps(own).encode())
    found = ask(catalog, "GET", "/v1/config?warehouse=w").json()
    assert found == {**own, "endpoints": [*own["endpoints"], *PLANS[1:]]}
    assert behind.seen[0]["query_string"] == b"warehouse=w"
    named = ask(catalog, "GET", "/v1/config", headers={"User-Agent": "PyIceberg/0.12.0"}).json()
    assert named["defaults"] == {"clients": "4", "scan-planning-mode": "server"}


def test_a_catalog_without_endpoints_has_those_that_clients_take_for_granted(catalog: Live, behind: Behind) -> None:
    behind.script = plain(200, b'{"defaults":{},"overrides":{}}')
    assert ask(catalog, "GET", "/v1/config").json()["endpoints"] == [*DEFAULT_ENDPOINTS, *PLANS]


def test_clients_are_not_sent_past_the_service(catalog: Live, behind: Behind) -> None:
    behind.script = plain(200, b'{"defaults":{"uri":"http://a","b":"c"},"overrides":{"uri":"http://d"}}')
    found = ask(catalog, "GET", "/v1/config").json()
    assert (found["defaults"], found["overrides"]) == ({"b": "c"}, {})


def test_a_table_with_an_index_is_planned_by_the_service(catalog: Live, behind: Behind, indexed: Indexed) -> None:
    behind.script = plain(200, indexed.loaded, (b"etag", b'"1"'), (b"content-type", b"application/json"))
    answer = ask(catalog, "GET", "/v1/namespaces/n/tables/t?snapshots=refs")
    before = json.loads(indexed.loaded)
    assert answer.json() == {**before, "config": {"own": "setting", "scan-planning-mode": "server"}}
    assert answer.headers["etag"] == '"1"'
    other = {**before, "metadata": {**before["metadata"], "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}}
    behind.script = plain(200, json.dumps(other).encode())
    assert ask(catalog, "GET", "/v1/namespaces/n/tables/t").json() == other


def planned(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [task["data-file"]["file-path"] for task in answer.json()["file-scan-tasks"]]


def test_a_plan_asks_the_catalog_for_the_table_with_the_callers_credentials(
    catalog: Live, behind: Behind, indexed: Indexed
) -> None:
    behind.script = plain(200, indexed.loaded, (b"etag", b'"1"'))
    target = "/v1/p/namespaces/n/tables/t/plan"
    key = {"filter": {"type": "eq", "term": "id", "value": 7}}
    caller = {"Authorization": "Bearer theirs"}
    assert len(planned(ask(catalog, "POST", target, json=key, headers=caller))) == 1
    assert behind.seen[0]["raw_path"] == b"/base/v1/p/namespaces/n/tables/t"
    assert (b"authorization", b"Bearer theirs") in behind.seen[0]["headers"]
    behind.script = plain(304, b"", (b"etag", b'"1"'))
    assert len(planned(ask(catalog, "POST", target, json=key, headers=caller))) == 1
    assert (b"if-none-match", b'"1"') in behind.seen[1]["headers"]
    behind.script = plain(401, b'{"error":{"message":"no","type":"NotAuthorizedException","code":401}}')
    refused = ask(catalog, "POST", target, json=key, headers={"Authorization": "Bearer other"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, "no")
    assert not any(name == b"if-none-match" for name, _ in behind.seen[2]["headers"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body"),
        (b"[]", "the body"),
        (b'{"filter": {"type": "like", "term": "id", "value": "a"}}', "like"),
        (b'{"filter": {"type": "eq", "term": "id"}}', "value"),
        (b'{"filter": {"type": "and", "left": true}}', "right"),
        (b'{"filter": {"type": "in", "term": "id", "values": 3}}', "a list"),
        (b'{"filter": 3}', "an object"),
        (b'{"snapshot-id": 1}', "no snapshot 1"),
        (b'{"start-snapshot-id": 1}', "end-snapshot-id"),
        (b'{"stats-fields": ["nothing"]}', "nothing"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(
    catalog: Live, behind: Behind, indexed: Indexed, body: bytes, said: str
) -> None:
    behind.script = plain(200, indexed.loaded)
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "BadRequestException")
    assert said in error["message"]


def test_a_filter_that_is_nested_too_deeply_is_refused(catalog: Live, behind: Behind, indexed: Indexed) -> None:
    behind.script = plain(200, indexed.loaded)
    deep = '{"type":"not","child":' * 5000 + "true" + "}" * 5000
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", content=f'{{"filter":{deep}}}')
    assert (answer.status_code, "nested" in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "token", ["", "abc", "é", base64.urlsafe_b64encode(zlib.compress(b"{}")).decode(), "eJwrTi0qS00BABKEBF0="]
)
def test_a_token_of_another_catalog_is_refused(catalog: Live, behind: Behind, indexed: Indexed, token: str) -> None:
    behind.script = plain(200, indexed.loaded)
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/tasks", json={"plan-task": token})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")


def test_a_token_does_not_unpack_to_more_than_memory_has(catalog: Live, behind: Behind, indexed: Indexed) -> None:
    behind.script = plain(200, indexed.loaded)
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * (1 << 30), 9)).decode()
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/tasks", json={"plan-task": bomb})
    assert answer.status_code == 400


def test_an_encoded_answer_to_load_table_is_read(catalog: Live, behind: Behind, indexed: Indexed) -> None:
    packed = gzip.compress(indexed.loaded)
    behind.script = plain(200, packed, (b"content-encoding", b"gzip"), (b"content-type", b"application/json"))
    answer = ask(catalog, "GET", "/v1/namespaces/n/tables/t", headers={"Accept-Encoding": "br, zstd"})
    assert answer.json()["config"]["scan-planning-mode"] == "server"
    assert (b"accept-encoding", b"gzip") in behind.seen[0]["headers"]
    assert len(planned(ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", json={}))) == 4


def test_a_table_without_an_id_has_no_index(catalog: Live, behind: Behind, indexed: Indexed) -> None:
    old = json.loads(indexed.loaded)
    del old["metadata"]["table-uuid"]
    old["metadata"]["location"] = "file:///elsewhere"
    behind.script = plain(200, json.dumps(old).encode())
    assert ask(catalog, "GET", "/v1/namespaces/n/tables/t").json() == old


def test_tables_and_namespaces_may_be_named_like_the_routes_of_plans(catalog: Live, behind: Behind) -> None:
    for method, target in (
        ("POST", "/v1/namespaces/n/tables/plan"),
        ("POST", "/v1/namespaces/plan"),
        ("POST", "/v1/namespaces/n/tables/tasks"),
        ("DELETE", "/v1/namespaces/plan/x"),
        ("GET", "/v1/namespaces/n/plan/x"),
    ):
        assert ask(catalog, method, target).json() == {}
        assert behind.seen[-1]["raw_path"] == f"/base{target}".encode()


def test_a_plan_is_complete_at_once(catalog: Live, behind: Behind) -> None:
    assert ask(catalog, "DELETE", "/v1/namespaces/n/tables/t/plan/17").status_code == 204
    answer = ask(catalog, "GET", "/v1/namespaces/n/tables/t/plan/17")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchPlanIdException")
    assert {seen["raw_path"] for seen in behind.seen} <= {b"/base/v1/config"}  # whether it plans itself


@pytest.mark.parametrize(
    "path", ["/v1/../x", "/v1/%2e%2E/x", "/v1/namespaces/./t", "/v1/namespaces/n/tables/..%2fx/plan", "/v1/.."]
)
def test_no_path_leaves_that_of_the_catalog_behind(catalog: Live, behind: Behind, path: str) -> None:
    with catalog.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 4")
    assert behind.seen == []


def test_a_catalog_that_plans_itself_plans_tables_without_an_index(
    server: Behind, behind: Behind, indexed: Indexed
) -> None:
    other = json.loads(indexed.loaded)
    other["metadata"] |= {"table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "file:///elsewhere"}
    answers = {
        "/v1/config": {"defaults": {}, "overrides": {}, "endpoints": [*PLANS]},
        "/v1/namespaces/n/tables/t": json.loads(indexed.loaded),
        "/v1/namespaces/n/tables/other": other,
        "/v1/namespaces/n/tables/other/plan": {"status": "submitted", "plan-id": "7"},
        "/v1/namespaces/n/tables/other/plan/7": {"status": "cancelled"},
        "/v1/namespaces/n/tables/other/tasks": {"file-scan-tasks": []},
    }

    async def script(scope: Any, receive: Any, send: Any) -> None:
        await plain(200, json.dumps(answers[scope["path"]]).encode())(scope, receive, send)

    behind.script = script
    with live(Settings(indexes=(indexed.index,), port=0, upstream=server.url)) as catalog:
        of_other = "/v1/namespaces/n/tables/other"
        assert ask(catalog, "POST", f"{of_other}/plan", json={"filter": True}).json()["plan-id"] == "7"
        assert json.loads(behind.seen[-1]["body"]) == {"filter": True}
        assert ask(catalog, "GET", f"{of_other}/plan/7").json() == {"status": "cancelled"}
        assert ask(catalog, "POST", f"{of_other}/tasks", json={"plan-task": "theirs"}).json() == {"file-scan-tasks": []}
        assert len(planned(ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", json={}))) == 4


def test_a_table_whose_metadata_is_not_read_is_planned_by_its_clients(
    catalog: Live, behind: Behind, indexed: Indexed
) -> None:
    newer = json.loads(indexed.loaded)
    newer["metadata"]["format-version"] = 9
    newer["metadata-location"] = "file:///newer.metadata.json"
    behind.script = plain(200, json.dumps(newer).encode())
    assert ask(catalog, "GET", "/v1/namespaces/n/tables/t").json() == newer
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", json={}, headers={"Authorization": "Bearer new"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "UnsupportedOperationException")


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"metadata": 3}', b"\xff"])
def test_an_odd_answer_of_the_catalog_passes_and_is_no_table(catalog: Live, behind: Behind, body: bytes) -> None:
    behind.script = plain(200, body)
    for path in ("/v1/config", "/v1/namespaces/n/tables/odd"):
        assert ask(catalog, "GET", path).content == body or path == "/v1/config"
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/odd/plan", json={})
    assert answer.status_code in (501, 502)
    assert answer.json()["error"]["code"] == answer.status_code
    assert ask(catalog, "HEAD", "/v1/config").status_code == 200


def test_a_catalog_that_is_down_is_no_answer_of_a_commit(indexed: Indexed) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with live(Settings(indexes=(indexed.index,), port=0, upstream=nowhere)) as catalog:
        for method, target in (
            ("GET", "/v1/config"),
            ("POST", "/v1/namespaces/n/tables/t"),
            ("POST", "/v1/namespaces/n/tables/t/plan"),
        ):
            answer = ask(catalog, method, target, content=b"{}" if method == "POST" else None)
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException")
        assert ask(catalog, "GET", "/healthz").status_code == 200


def test_the_check_asks_the_catalog_behind(behind: Behind, indexed: Indexed) -> None:
    behind.script = plain(401, b"{}")
    [first, second] = check(Settings(indexes=(f"orders={indexed.index}",), port=0, upstream=behind.url))
    assert (first, second[:7]) == (f"{behind.url}: /v1/config answers 401", "orders:")
    with pytest.raises(UpstreamError, match="cannot be reached"):
        check(Settings(indexes=(indexed.index,), port=0, upstream=f"http://127.0.0.1:{free_port()}"))


def test_a_commit_whose_answer_is_lost_is_in_doubt(catalog: Live, behind: Behind) -> None:
    async def lost(scope: Any, receive: Any, send: Any) -> None:
        for connection in list(behind.server.server_state.connections):
            connection.transport.abort()

    behind.script = lost
    answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t", content=b"{}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "BadGatewayException")


def test_an_answer_that_breaks_off_is_not_taken_for_whole(catalog: Live, behind: Behind) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await asyncio.sleep(0.1)
        for connection in list(behind.server.server_state.connections):
            connection.transport.abort()

    behind.script = broken
    with pytest.raises(httpx.TransportError):
        ask(catalog, "GET", "/v1/namespaces")


def test_a_client_that_leaves_ends_the_request_behind(catalog: Live, behind: Behind) -> None:
    left = threading.Event()

    async def patient(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    behind.script = patient
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"http://127.0.0.1:{catalog.port}/v1/namespaces", timeout=0.5)
    assert left.wait(SECONDS)


def test_tokens_of_the_service_stay_with_it(behind: Behind, indexed: Indexed) -> None:
    secret, token = new_token("engine")
    settings = Settings(indexes=(indexed.index,), port=0, upstream=behind.url, tokens=(token.line,))
    with live(settings) as catalog:
        assert ask(catalog, "GET", "/v1/namespaces").status_code == 401
        assert behind.seen == []
        answer = ask(catalog, "GET", "/v1/namespaces", headers={"Authorization": f"Bearer {secret}"})
        assert answer.status_code == 200
        assert not any(name == b"authorization" for name, _ in behind.seen[0]["headers"])


def test_plans_are_counted(behind: Behind, indexed: Indexed) -> None:
    behind.script = plain(200, indexed.loaded)
    with live(Settings(indexes=(f"orders={indexed.index}",), port=0, upstream=behind.url)) as catalog:
        target = "/v1/namespaces/n/tables/t/plan"
        assert (
            len(planned(ask(catalog, "POST", target, json={"filter": {"type": "eq", "term": "id", "value": 7}}))) == 1
        )
        assert len(planned(ask(catalog, "POST", target, json={}))) == 4
        text = ask(catalog, "GET", "/metrics").text
    assert "gnomon_catalog_plans_total 2.0" in text
    assert "gnomon_catalog_live_files_total 8.0" in text
    assert "gnomon_catalog_planned_files_total 5.0" in text
    assert 'gnomon_catalog_index_unused_total{index="orders",reason="filter"} 1.0' in text
    assert 'route="/v1/{table}/plan"' in text


def test_a_replaced_table_is_planned_in_full_and_told(behind: Behind, indexed: Indexed) -> None:
    other = json.loads(indexed.loaded)
    other["metadata"]["table-uuid"] = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    behind.script = plain(200, json.dumps(other).encode())
    with live(Settings(indexes=(f"orders={indexed.index}",), port=0, upstream=behind.url)) as catalog:
        assert "not_planned_by" not in ask(catalog, "GET", "/readyz").json()["indexes"]["orders"]
        key = {"filter": {"type": "eq", "term": "id", "value": 7}}
        ask(catalog, "GET", "/v1/namespaces/n/tables/t")
        answer = ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", json={})
        assert len(planned(answer)) == 4
        assert len(planned(ask(catalog, "POST", "/v1/namespaces/n/tables/t/plan", json=key))) > 1
        assert "another" in ask(catalog, "GET", "/readyz").json()["indexes"]["orders"]["not_planned_by"]
        assert 'reason="table"} 3.0' in ask(catalog, "GET", "/metrics").text

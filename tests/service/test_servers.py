"""gnomon.service:app under other ASGI servers: the same answers as under `gnomon serve`."""

import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.service.lake import ODD_KEYS, TWICE, add_day, make_crawl
from tests.service.processes import ROOT
from tests.stores.process import free_port, server

pytestmark = pytest.mark.process

SECONDS = 60.0
HOST_APP = """
from starlette.applications import Starlette

from gnomon.service import app as gnomon_app

app = Starlette()
app.mount("/data", gnomon_app)
"""
APP = "gnomon.service:app"
UVICORN = ("--no-access-log", "--no-proxy-headers")  # its lines have keys; Gnomon reads X-Forwarded-For itself
GUNICORN = ("--worker-class", "uvicorn_worker.UvicornWorker", "--forwarded-allow-ips", "")
# The module and options of each server; {port} and {folder} are filled in.
SERVERS = {
    "gnomon serve": ("gnomon", "serve", "--port", "{port}"),
    "uvicorn": ("uvicorn", APP, "--port", "{port}", "--workers", "2", *UVICORN),
    "granian": ("granian", "--interface", "asgi", "--port", "{port}", APP),
    "granian without lifespan": ("granian", "--interface", "asginl", "--port", "{port}", APP),
    "gunicorn": ("gunicorn", "--bind", "127.0.0.1:{port}", *GUNICORN, APP),
    "uvicorn --root-path": ("uvicorn", APP, "--port", "{port}", "--root-path", "/gnomon", *UVICORN),
    "mounted": ("uvicorn", "--app-dir", "{folder}", "host:app", "--port", "{port}", *UVICORN),
}


# What requests begin with, and what the service takes for its prefix: uvicorn takes requests for those that a proxy has
# removed the prefix from.
PREFIXES = {"mounted": ("/data", "/data"), "uvicorn --root-path": ("", "/gnomon")}


@dataclass
class Running:
    """A server with the crawl index. Requests begin with `prefix`, and the service names itself with `shown`."""

    port: int
    folder: Path
    prefix: str
    shown: str

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, and body. The path is sent as it is."""
        content = None if body is None else json.dumps(body)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request(method, self.prefix + path, content, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def rows(self, key: str) -> list[dict[str, Any]]:
        status, _, body = self.ask("GET", path_of(key))
        assert status == 200, (key, body)
        found: list[dict[str, Any]] = json.loads(body)["rows"]
        return found

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log that Gnomon has written so far."""
        text = (self.folder / "log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def path_of(key: str) -> str:
    return "/rows/" + "".join(f"%{byte:02X}" for byte in key.encode())


@pytest.fixture(scope="module", params=SERVERS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("servers"), free_port()
    [index] = make_crawl(folder).indexes
    (folder / "host.py").write_text(HOST_APP)
    module, *options = [part.format(port=port, folder=folder) for part in SERVERS[request.param]]
    found = Running(port, folder, *PREFIXES.get(request.param, ("", "")))
    variables = {"GNOMON_INDEXES": index, "GNOMON_REFRESH_SECONDS": "0.1", "PYTHONPATH": str(ROOT)}
    with server([sys.executable, "-m", module, *options], folder / "log", found.is_ready, SECONDS, variables):
        yield found


def test_each_key_is_found_by_path(running: Running) -> None:
    for key in (*ODD_KEYS, TWICE):
        if running.prefix and "\n" in key:
            continue  # a mount of Starlette does not forward a path with a line end
        assert {row["url"] for row in running.rows(key)} == {key}
        status, _, body = running.ask("HEAD", path_of(key))
        assert (status, body) == (200, b"")
    assert running.ask("GET", "/rows/%ff")[0] == 400


def test_a_failure_is_a_problem(running: Running) -> None:
    status, headers, body = running.ask("GET", "/rows/no%2Fkey")
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    problem = json.loads(body)
    assert (problem["key"], problem["instance"]) == ({"url": "no/key"}, f"{running.shown}/rows/no%2Fkey")
    assert running.ask("HEAD", "/rows/no%2Fkey")[::2] == (404, b"")
    assert running.ask("GET", "/nowhere")[0] == 404
    assert running.ask("DELETE", "/rows/a")[0] == 405


def test_a_large_batch_is_answered_whole(running: Running) -> None:
    keys = [TWICE if i % 2 else f"absent {i}" for i in range(6000)]
    status, _, body = running.ask("POST", "/rows", {"keys": keys})
    assert status == 200
    results = json.loads(body)["results"]
    assert [len(one.get("rows", ())) for one in results] == [0, 3] * 3000
    assert len(body) > 1_000_000
    assert running.ask("POST", "/rows", {"keys": [TWICE] * 10_001})[0] == 413


def test_request_ids_and_addresses_are_logged_without_keys(running: Running) -> None:
    headers = {"X-Request-Id": f"id-{running.port}", "X-Forwarded-For": "192.0.2.9"}
    status, answered, _ = running.ask("GET", path_of("https://example.com/a//b"), headers=headers)
    assert (status, answered["x-request-id"]) == (200, f"id-{running.port}")
    end = time.monotonic() + SECONDS
    while not (found := [one for one in running.lines() if one.get("request_id") == f"id-{running.port}"]):
        assert time.monotonic() < end, "the request is never logged"
        time.sleep(0.05)
    [line] = found
    assert (line["route"], line["target"], line["count"]) == ("/rows/{key}", "/rows/{key}", 1)
    assert line["client"] == "127.0.0.1"
    assert "example.com" not in (running.folder / "log").read_text()


def test_a_new_snapshot_is_served(running: Running) -> None:
    """The threads that look for it start with the lifespan, or with the first request. A server may have several
    processes, each with its own."""
    assert running.ask("GET", "/rows/third")[0] == 404
    add_day(running.folder, "2026-01-03", ["third"])
    end = time.monotonic() + SECONDS
    while (answer := running.ask("GET", "/rows/third"))[0] == 404:
        assert time.monotonic() < end, "the new snapshot is never served"
        time.sleep(0.05)
    assert (answer[0], len(json.loads(answer[2])["rows"])) == (200, 1)

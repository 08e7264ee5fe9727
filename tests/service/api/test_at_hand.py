"""service/api/answers.py: what memory tells is answered without a thread, as a thread would answer it."""

import asyncio
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gnomon.jobs.build import build
from gnomon.service.api import answers, query
from gnomon.service.errors import Overloaded
from gnomon.service.indexes.threads import RequestThreads
from gnomon.service.settings.table import Settings
from gnomon.shadow.fetch import source_files
from gnomon.shadow.storage import LocalStorage, may_wait, status_in_memory, waiting
from tests.service.lake import TWICE, Client
from tests.service.metrics.test_exposition import samples
from tests.service.test_access_log import logged
from tests.shadow.make_index import index_source, write_source

ARROW = {"accept": "application/vnd.apache.arrow.stream"}
GZIP = {"accept-encoding": "gzip"}
ASKED: list[tuple[str, dict[str, str]]] = [
    ("/rows/second", {}),
    ("/rows/second", ARROW),
    ("/rows/second", {"if-none-match": "*"}),
    (f"/rows/{TWICE}", GZIP),
    (f"/rows/{TWICE}?_limit=1&_columns=n,url", {}),
    ("/rows?url=second", {}),
    ("/indexes/shadow/rows/second", {}),
    ("/rows/absent", {}),
    ("/rows/absent", ARROW),
    ("/rows?url=absent", {}),
    ("/rows/https:/absent", {}),
    ("/rows/absent?_columns=none", {}),
    ("/rows?other=absent", {}),
    ("/rows/second", {"accept": "image/png"}),
]

COUNTED = (
    *("gnomon_requests_total", "gnomon_rejected_total", "gnomon_lookups", "gnomon_nodes", "gnomon_filter_checks"),
    *("gnomon_index_read", "gnomon_source_read", "gnomon_request_seconds_count", "gnomon_step_seconds_count"),
)


@pytest.fixture
def client(own: Client, tmp_path: Path) -> Client:
    """A service that has answered before, on a disk whose files need no wait."""
    LocalStorage(str(tmp_path / "lake")).open("dt=2026-01-01/p.parquet").close()
    if status_in_memory(str(tmp_path / "lake" / "dt=2026-01-01" / "p.parquet")) is None:
        pytest.skip("this system cannot tell the status of a file without a wait")
    for target, headers in ASKED * 3:
        own.get(target, headers)
    return own


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clients of the calls that a thread made."""
    hops: list[str] = []
    work = RequestThreads.work

    async def counted(self: RequestThreads, call: Any, client: str, size: int) -> Any:
        hops.append(client)
        return await work(self, call, client, size)

    monkeypatch.setattr(RequestThreads, "work", counted)
    return hops


def told(response: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    return response.status_code, response.content, {**response.headers, "x-request-id": ""}


@pytest.mark.parametrize(("target", "headers"), ASKED)
def test_an_answer_from_memory_is_that_of_a_thread(
    client: Client, hops: list[str], monkeypatch: pytest.MonkeyPatch, target: str, headers: Mapping[str, str]
) -> None:
    here = told(client.get(target, headers))
    assert not hops
    monkeypatch.setattr(RequestThreads, "hold_at_once", lambda *_: None)
    assert told(client.get(target, headers)) == here
    assert client.app.state.service.indexes.memory.held == 0


@pytest.mark.parametrize(
    "target",
    [
        "/rows/second?_explain=true",
        "/rows/second?_snapshot=1",
        f"/rows/{'long' * 2000}",
    ],
)
def test_what_may_take_long_is_left_to_a_thread(client: Client, hops: list[str], target: str) -> None:
    for _ in range(3):
        client.get(target)
    assert len(hops) == 3


def test_a_large_answer_is_left_to_a_thread(client: Client, hops: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_AT_ONCE", 10)
    assert client.get("/rows/second").status_code == 200
    assert len(hops) == 1


def test_an_index_that_follows_its_table_asks_the_table_in_a_thread(tmp_path: Path, hops: list[str]) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"id": ["present"]}))
    build(None, f"delta:{tmp_path}/table", tmp_path / "index", ["id"])
    client = Client(Settings(indexes=[str(tmp_path / "index")], freshness="newest"))
    assert [client.get("/rows/absent").status_code for _ in range(3)] == [404] * 3
    assert len(hops) == 3


@pytest.mark.parametrize("how", ["rewritten", "touched", "removed", "folder renamed", "same size and time"])
def test_a_changed_source_file_is_noticed_without_a_thread(
    client: Client, tmp_path: Path, hops: list[str], how: str
) -> None:
    assert client.get("/rows/second").status_code == 200
    assert not hops
    file = tmp_path / "lake" / "dt=2026-01-02" / "p.parquet"
    status, content = file.stat(), bytearray(file.read_bytes())
    time.sleep(0.02)  # the ctime of some file systems counts in hundredths of a second
    if how == "removed":
        file.unlink()
    elif how == "touched":
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    elif how == "folder renamed":
        (tmp_path / "lake").rename(tmp_path / "other")
    else:
        content[-100:-8] = bytes(92)
        file.write_bytes(content)
        if how != "rewritten":
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get("/rows/second").status_code in (409, 503)
    assert len(hops) == 1
    assert client.get("/rows/absent").status_code == 404


def test_a_source_that_hangs_stops_no_other_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system: its files are looked at in a thread."""
    hang, begun = Event(), Event()
    opened = LocalStorage.open

    def hangs(self: LocalStorage, *args: Any) -> Any:
        if not may_wait():
            return opened(self, *args)
        begun.set()
        assert hang.wait(60)
        return opened(self, *args)

    for module in (source_files, waiting):
        monkeypatch.setattr(module, "status_in_memory", lambda _: None)
    monkeypatch.setattr(LocalStorage, "open", hangs)

    async def both() -> None:
        waits = asyncio.create_task(client._ask("GET", "/rows/second", b"", None, "192.0.2.1"))
        assert await asyncio.to_thread(begun.wait, 60)
        for target, status in (("/healthz", 200), ("/rows/absent", 404)):
            found = await client._ask("GET", target, b"", None, "192.0.2.2")
            assert (found.status_code, waits.done()) == (status, False)
        hang.set()
        assert (await waits).status_code == 200

    try:
        asyncio.run(both())
    finally:
        hang.set()


def test_an_overloaded_index_refuses_what_memory_tells(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = client.served.threads
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.setattr(threads, "_max_waiting", 0)
    for target in ("/rows/second", "/rows/absent"):
        response = client.get(target)
        assert (response.status_code, response.json()["title"]) == (503, "Overloaded")
    assert Overloaded.reason in client.get("/metrics").text


def test_metrics_and_the_log_tell_the_same_of_both_ways(
    crawl_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [("GET", target, None) for target in ("/rows/second", "/rows/absent", "/rows/second?_columns=none")] * 3
    lines, counted = [], []
    for way in ("here", "thread"):
        if way == "thread":
            monkeypatch.setattr(RequestThreads, "hold_at_once", lambda *_: None)
        found = logged(crawl_settings, tmp_path / way, *asked)
        lines.append([{**line, "time": "", "microseconds": 0} for line in found])
        client = Client(crawl_settings)
        for method, target, _ in asked:
            client.ask(method, target)
        numbers = samples(client.get("/metrics").content)
        counted.append({key: value for key, value in numbers.items() if key[0].startswith(COUNTED)})
    assert lines[0] == lines[1]
    assert counted[0] == counted[1]
    assert len(counted[0]) > 10


def forget(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A service that has read its files, and keeps neither answers nor pages."""
    client.served.answers._answers.resize(0)
    fetcher = client.served.index._current.state.fetcher
    assert fetcher is not None
    fetcher.files.leave_to_pages(0)
    monkeypatch.setattr(fetcher.files, "leave_to_pages", lambda _: None)
    return client


@pytest.fixture
def known(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    return forget(client, monkeypatch)


@pytest.fixture
def long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A service of a file that is not read as a whole when it is opened."""
    noise = random.Random(7)
    table = pa.table({"k": range(100), "text": [noise.randbytes(4000).hex() for _ in range(100)]})
    write_source(tmp_path / "lake", {"p.parquet": table}, use_dictionary=False)
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    for _ in range(3):
        assert client.get("/rows/50").status_code == 200
    return forget(client, monkeypatch)


@pytest.mark.parametrize(("target", "headers"), ASKED)
def test_a_row_that_the_system_has_in_memory_is_read_as_a_thread_reads_it(
    known: Client, hops: list[str], monkeypatch: pytest.MonkeyPatch, target: str, headers: Mapping[str, str]
) -> None:
    here = told(known.get(target, headers))
    assert not hops
    monkeypatch.setattr(RequestThreads, "hold_at_once", lambda *_: None)
    assert told(known.get(target, headers)) == here
    assert known.app.state.service.indexes.memory.held == 0


@pytest.mark.parametrize("why", ["not in memory", "many bytes read", "large rows", "a network file system"])
def test_a_row_that_has_to_be_waited_for_is_left_to_a_thread(
    long_file: Client, hops: list[str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    here = told(long_file.get("/rows/50"))
    assert not hops
    if why == "not in memory":
        monkeypatch.setattr(waiting, "_NOWAIT", None)
    elif why == "many bytes read":
        monkeypatch.setattr(answers, "MOST_READ", 10)
    elif why == "large rows":
        monkeypatch.setattr(query, "MOST_AT_ONCE", 10)
    else:
        monkeypatch.setattr(waiting, "status_in_memory", lambda _: None)
    assert told(long_file.get("/rows/50")) == here
    assert len(hops) == 1
    assert long_file.app.state.service.indexes.memory.held == 0

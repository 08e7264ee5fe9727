"""service/logs.py: one line for each request, without keys unless a setting adds them."""

import asyncio
import gc
import json
import os
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gnomon.service.application import create_app
from gnomon.service.costs import Cost
from gnomon.service.logs import MOST_WHOLE, AccessLog, Entry, Lines
from gnomon.service.settings.table import Settings


def logged(settings: Settings, path: Path, *asked: tuple[str, str, Any]) -> list[dict[str, Any]]:
    """The log lines of requests, given by method, target and body."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    lines = Lines(descriptor)
    app = create_app(settings, lines=lines)

    async def go() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("192.0.2.7", 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as client:
            for method, target, body in asked:
                await client.request(method, target, json=body, headers={"x-request-id": "id-1"})

    asyncio.run(go())
    lines.start()
    lines.close()
    os.close(descriptor)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_that_nobody_reads_hold_no_requests() -> None:
    class Brought:
        """The headers and the body of a request."""

    lines, kept = Lines(), []
    log = AccessLog(lines, keys=False)
    for _ in range(MOST_WHOLE + 50):
        brought = Brought()
        kept.append(weakref.ref(brought))
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "state": {}, "headers": [brought]}
        log.put(Entry(scope, Cost("id"), 0.0, 0.0, "other", "", 404, 0, None))
        del brought, scope
    gc.collect()
    assert lines.waiting == len(kept)
    assert sum(one() is not None for one in kept) == MOST_WHOLE


def test_a_line_says_who_asked_what_and_what_it_took(crawl_settings: Settings, tmp_path: Path) -> None:
    first, second, third, page = logged(
        crawl_settings,
        tmp_path / "log",
        ("GET", "/rows/second?_columns=n", None),
        ("POST", "/indexes/shadow/rows", {"keys": ["twice", "no"]}),
        ("HEAD", "/rows/no", None),
        ("HEAD", "/", None),
    )
    assert first.pop("time").endswith("+00:00")
    assert first.pop("microseconds") > 0
    assert first.pop("bytes") > 10
    assert first == {
        "level": "INFO",
        "logger": "gnomon.access",
        "request_id": "id-1",
        "client": "192.0.2.7",
        "method": "GET",
        "route": "/rows/{key}",
        "target": "/rows/{key}?_columns=n",
        "status": 200,
        "index": "shadow",
        "snapshot": 1,
        "keys": 1,
        "count": 1,
    }
    assert (second["route"], second["keys"], second["count"]) == ("/indexes/{name}/rows", 2, 3)
    assert (third["status"], third["bytes"]) == (404, 0)
    assert (page["status"], page["bytes"]) == (200, 0)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/rows/alice%40example.org", "/rows/{key}"),
        ("/rows?url=alice%40example.org&_columns=n,url", "/rows?-=-&_columns=n,url"),
        ("/rows?_where=dt=2026-01-01&url=alice", "/rows?_where=dt=2026-01-01&-=-"),
        ("/row/alice", "other"),
        ("/rows?" + "a=alice&" * 2000, "/rows?-"),
        ("/rows?limit=alice&_limit=2", "/rows?-=-&_limit=2"),
        ("/rows?_prefix=alice&_limit=2", "/rows?_prefix=-&_limit=2"),
        ("/rows?_from=alice&_to=alice&_reverse=true", "/rows?_from=-&_to=-&_reverse=true"),
        ("/rows?_after=alice&_inclusive=true", "/rows?_after=-&_inclusive=true"),
    ],
)
def test_no_key_is_logged_unless_asked_for(crawl_settings: Settings, tmp_path: Path, target: str, shown: str) -> None:
    [line] = logged(crawl_settings, tmp_path / "log", ("GET", target, None))
    assert line["target"] == shown
    assert "alice" not in json.dumps(line)
    [line] = logged(replace(crawl_settings, log_keys=True), tmp_path / "keys", ("GET", target, None))
    assert line["target"] == target[:1000]


def test_a_line_of_a_range_counts_its_keys_and_rows(crawl_settings: Settings, tmp_path: Path) -> None:
    page, found = logged(
        crawl_settings,
        tmp_path / "log",
        ("GET", "/rows?_from=second&_limit=3", None),
        ("HEAD", "/rows?_from=second", None),
    )
    assert (page["status"], page["snapshot"], page["keys"], page["count"]) == (200, 1, 2, 3)
    assert (found["status"], found["keys"]) == (200, 0)
    assert "count" not in found


def test_probes_that_are_answered_well_are_left_out_and_the_log_may_be_off(
    crawl_settings: Settings, tmp_path: Path
) -> None:
    probes = [("GET", target, None) for target in ("/healthz", "/metrics")]
    assert logged(crawl_settings, tmp_path / "log", *probes) == []
    [line] = logged(crawl_settings, tmp_path / "log", ("DELETE", "/healthz", None))
    assert line["status"] == 405
    off = replace(crawl_settings, access_log=False)
    assert logged(off, tmp_path / "off", ("GET", "/rows/second", None)) == []


def test_a_request_that_is_refused_says_why(crawl_settings: Settings, tmp_path: Path) -> None:
    small = replace(crawl_settings, max_batch_keys=1)
    [line] = logged(small, tmp_path / "log", ("POST", "/rows", {"keys": ["a", "b"]}))
    assert (line["status"], line["rejected"]) == (413, "request_too_large")

"""A real `gnomon serve`: its metrics, and its log on stderr."""

import json
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.service.lake import make_crawl
from tests.service.metrics.test_exposition import requests, samples

pytestmark = pytest.mark.process


ROOT = Path(__file__).parents[2]
ASKED = 40
LIMIT_SECONDS = 60
MALFORMED = (("reason", "malformed"),)


def get(address: str, path: str, request_id: str) -> tuple[int, bytes]:
    """Status and body, over a separate connection, so that the requests spread over the workers."""
    connection = HTTPConnection(address, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", path, headers={"x-request-id": request_id})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def refused(address: str, request: bytes) -> bytes:
    """The answer to bytes that are not a request."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_workers_are_scraped_as_one_and_log_json_lines(tmp_path: Path) -> None:
    [index] = make_crawl(tmp_path).indexes
    command = [sys.executable, "-m", "gnomon", "serve", f"crawl={index}", "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address = ready.rpartition("http://")[2].strip()
        assert {get(address, "/rows/second", f"e2e-{number}")[0] for number in range(ASKED)} == {200}
        assert refused(address, b"GET / NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        end = time.monotonic() + LIMIT_SECONDS
        expected, malformed_there = requests("/rows/{key}", 200, "crawl"), ("gnomon_rejected_total", MALFORMED)
        found: dict[object, float] = {}
        while (found.get(expected), found.get(malformed_there)) != (ASKED, 1) and time.monotonic() < end:
            found = dict(samples(get(address, "/metrics", "scrape")[1]))
        process.terminate()
        rest, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert found[expected] == ASKED
    assert found["gnomon_lookups_total", (("index", "crawl"),)] == ASKED
    assert found[malformed_there] == 1
    assert found["gnomon_worker_restarts_total", ()] == 0
    assert (process.returncode, rest) == (0, "")
    lines = [json.loads(line) for line in errors.splitlines()]
    asked = [line for line in lines if line["logger"] == "gnomon.access"]
    [malformed] = [line for line in asked if line.get("rejected") == "malformed"]
    assert (malformed["status"], len(malformed["request_id"])) == (400, 32)
    asked.remove(malformed)
    assert {line["request_id"] for line in asked} == {f"e2e-{number}" for number in range(ASKED)}
    assert all({"time", "level", "logger"} <= line.keys() for line in lines)

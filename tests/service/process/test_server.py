"""service/process/server.py: a real server on a real socket, with handwritten requests."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.service.errors import CannotListen
from gnomon.service.process.server import _listen, run
from gnomon.service.settings.table import Settings
from gnomon.shadow import IndexNotFound
from tests.service.lake import ODD_KEYS, TWICE
from tests.service.processes import started
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.process


PROGRAM = (
    "from gnomon.service.process.server import run; from gnomon.service.settings.table import load_settings; "
    "run(load_settings())"
)
ROOT = Path(__file__).parents[3]


def start(settings: Settings, variables: Mapping[str, str] | None = None) -> tuple[subprocess.Popen[str], str]:
    """Start a server in a separate process. Returns the line that it prints when it is ready, too."""
    environment = {**os.environ, "GNOMON_INDEXES": settings.indexes[0], "GNOMON_PORT": "0", **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


def troubles(log: str) -> list[str]:
    """The errors and warnings of the log."""
    return [line for line in log.splitlines() if json.loads(line)["level"] != "INFO"]


def test_a_host_of_the_file_that_a_variable_replaces_is_one_warning(crawl_settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('host = "192.0.2.1"\nworkers = 2\n')
    process, line = start(crawl_settings, {"GNOMON_CONFIG": str(file), "GNOMON_HOST": "127.0.0.1"})
    with process:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "http://127.0.0.1:" in line
    [warning] = troubles(errors)
    assert json.loads(warning)["level"] == "WARNING"
    assert json.loads(warning)["message"] == f"GNOMON_HOST='127.0.0.1' replaces {file}, line 1: host = '192.0.2.1'"


@pytest.fixture(scope="module")
def address(crawl_settings: Settings) -> Iterator[tuple[str, int]]:
    process, line = start(crawl_settings)
    with process:
        port = int(line.rpartition(":")[2])
        yield "127.0.0.1", port
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, troubles(errors)) == (0, [])


def raw(address: tuple[str, int], target: str, method: str = "GET", body: bytes = b"") -> tuple[int, str, bytes]:
    """Status, head and body of the answer to a request whose target is sent unchanged."""
    head = f"{method} {target} HTTP/1.1\r\nHost: gnomon\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(head.encode("latin-1") + body)
        with connection.makefile("rb") as stream:
            answer = stream.read()
    answered, _, content = answer.partition(b"\r\n\r\n")
    return int(answered.split()[1]), answered.decode().lower(), content


@pytest.mark.parametrize("key", ODD_KEYS)
def test_every_key_arrives_whole_through_a_socket(address: tuple[str, int], key: str) -> None:
    status, _, content = raw(address, "/rows/" + "".join(f"%{byte:02x}" for byte in key.encode()))
    assert status == 200, content
    assert [row["url"] for row in json.loads(content)["rows"]] == [key]


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("/rows/https://example.com/a//b", "https://example.com/a//b"),
        ("/rows/a/../b", "a/../b"),
        ("/rows/../../etc/passwd", "../../etc/passwd"),
        ("/rows/.", "."),
        ("/rows//", "/"),
        ("/rows/", ""),
        ("/rows/a%252Fb", "a%2Fb"),
        ("/rows/a%2Fb", "a/b"),
        ("/rows/100%25", "100%"),
        ("/rows/100%2525", "100%25"),
        ("/rows/%3Fx=1%23y", "?x=1#y"),
    ],
)
def test_the_raw_path_is_neither_folded_nor_decoded_twice(address: tuple[str, int], target: str, key: str) -> None:
    status, _, content = raw(address, target)
    assert (status, json.loads(content)["key"]) == (200, {"url": key})


def test_bytes_that_are_no_utf8_are_refused_not_replaced(address: tuple[str, int]) -> None:
    status, head, content = raw(address, "/rows/%ff%fe")
    assert status == 400
    assert "application/problem+json" in head
    assert json.loads(content)["instance"] == "/rows/%ff%fe"


def test_head_over_a_socket_has_no_body(address: tuple[str, int]) -> None:
    for target, expected in (("/rows/second", 200), ("/rows/no", 404)):
        status, head, content = raw(address, target, "HEAD")
        assert (status, content) == (expected, b"")
        assert "content-length" not in head


def test_a_batch_over_a_socket(address: tuple[str, int]) -> None:
    status, _, content = raw(address, "/rows", "POST", json.dumps({"keys": [TWICE, "no"]}).encode())
    assert status == 200
    assert [result["count"] for result in json.loads(content)["results"]] == [3, 0]


def test_a_key_of_the_longest_size_fits_in_a_path(address: tuple[str, int]) -> None:
    assert raw(address, "/rows/" + "%61" * 16_384)[0] == 404
    assert raw(address, "/rows/" + "%61" * 16_385)[0] == 400


def test_one_connection_carries_many_requests(address: tuple[str, int]) -> None:
    with httpx.Client(base_url=f"http://{address[0]}:{address[1]}") as client:
        assert {client.get(f"/rows/{key}").status_code for key in ("second", "no", TWICE) for _ in range(5)} == {
            200,
            404,
        }


def test_a_server_takes_no_huge_pages(crawl_settings: Settings) -> None:
    process, _ = start(crawl_settings)
    with process:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        process.terminate()
        process.communicate(timeout=60)
    told = [line.split()[1] for line in lines if line.startswith("THP_enabled:")]
    assert told in (["0"], [])  # none before Linux 5.0


def test_answers_go_out_at_once() -> None:
    """asyncio sets TCP_NODELAY if the listening socket names its protocol; otherwise each answer waits 40 ms."""
    with _listen(Settings(indexes=["x"]), 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_asked_and_one_line_said_where_it_was(
    crawl_settings: Settings, number: signal.Signals
) -> None:
    process, line = start(crawl_settings)
    with process:
        assert re.fullmatch(
            rf"Gnomon serves {re.escape(crawl_settings.indexes[0])} \(snapshot 1\) at http://127\.0\.0\.1:\d+\n", line
        )
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, troubles(errors)) == (0, "", [])


def test_a_stop_is_logged_with_the_requests_that_are_in_progress_and_its_end(crawl_settings: Settings) -> None:
    process, line = start(crawl_settings)
    with process, socket.create_connection(("127.0.0.1", int(line.rpartition(":")[2])), timeout=60) as connection:
        body = b'{"keys": ["second"]}'
        head = f"POST /rows HTTP/1.1\r\nHost: gnomon\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the request is in progress
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        stops = next(one for one in lines if "stops" in one)
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        rest = list(lines)
    assert json.loads(stops)["message"] == (
        f"SIGTERM: process {process.pid} stops; requests in progress: 1, they may take 30 s to end"
    )
    assert json.loads(rest[-1])["message"] == f"process {process.pid} has stopped"


def test_no_index_is_raised_before_anything_listens(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound):
        run(Settings(indexes=[str(tmp_path)]))


def test_an_address_that_is_taken_is_one_clear_line(crawl_settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            CannotListen,
            match=rf"cannot listen at 127.0.0.1, port {port} \(setting host, setting port\): .*; choose another",
        ):
            run(replace(crawl_settings, port=port))


@pytest.mark.skipif(not kernel.COMPILED, reason="value maps are made by compiled loops")
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_learned_about_pages_is_kept_over_a_restart(tmp_path: Path, workers: int) -> None:
    noise = random.Random(7)
    table = pa.table({"k": range(200), "text": [noise.randbytes(4000).hex() for _ in range(200)]})
    write_source(tmp_path / "lake", {"p.parquet": table}, use_dictionary=False)
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    maps = tmp_path / "maps"
    settings = Settings(indexes=[str(tmp_path / "shadow")], port=0, workers=workers, cache_folder=str(maps))
    read = []
    for _ in range(2):
        with started(settings) as service:
            told = service.get("/rows/100?_explain=true").json()
            assert told["rows"][0]["text"] == table["text"][100].as_py()
            assert service.end()[0] == 0
        read.append(told["explain"]["source"]["bytes"])
        assert len(list(maps.iterdir())) == 2  # with the lock
    assert read[1] < read[0] / 2

"""Keys that clients or servers may damage on the way to a handler: requests to the app and through a real socket, at
/rows and below the name of an index. The raw path counts, and is decoded once."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.process


KEYS = [
    "",
    "/",
    "//",
    "a//b",
    "/a/",
    ".",
    "..",
    "../..",
    "a/../b",
    "/rows/a",
    "a\0b",
    "\0",
    "?",
    "#",
    "%",
    "?#%",
    "%2F",
    "%252F",
    "%00",
    "%zz",
    "a b+c",
    "a&b=c;d",
    "line\r\nX-Header: no",
    "\t\u2028\u0085",
    "é",
    "e\u0301",
    "\U0001f600/\uffff",
    "\ufffd",
    "https://user:pw@example.com:80/a?b=c#d",
    "A" * 16_384,
]
PREFIXES = ("/rows", "/indexes/odd/rows")
NO_UTF8 = ["%ff", "a%80", "%c0%af", "%e2%82", "%ed%a0%80", "%f8%88%80%80%80", "%fe%ff/a"]
PROGRAM = (
    "from gnomon.service.process.server import run; from gnomon.service.settings.table import load_settings; "
    "run(load_settings())"
)

Ask = Callable[[str, str], tuple[int, bytes]]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("odd")
    write_source(folder / "lake", {"p.parquet": pa.table({"k": KEYS, "n": range(len(KEYS))})})
    index_source(folder / "lake", folder / "shadow", ["k"])
    return f"odd={folder / 'shadow'}"


@pytest.fixture(scope="module")
def in_the_app(index: str) -> Ask:
    app = create_app(Settings(indexes=[index]))

    def ask(method: str, target: str) -> tuple[int, bytes]:
        return asyncio.run(asked(app, method, target))

    return ask


async def asked(app: Starlette, method: str, target: str) -> tuple[int, bytes]:
    """The answer of the app to a scope in the form of servers, since test clients correct targets, or refuse long
    ones."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"gnomon")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])


@pytest.fixture(scope="module")
def through_a_socket(index: str) -> Iterator[Ask]:
    environment = {**os.environ, "GNOMON_INDEXES": index, "GNOMON_PORT": "0", "GNOMON_ACCESS_LOG": "false"}
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=root, env=environment, stdout=-1, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])

        def ask(method: str, target: str) -> tuple[int, bytes]:
            head = f"{method} {target} HTTP/1.1\r\nHost: gnomon\r\nConnection: close\r\n\r\n".encode("latin-1")
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                with suppress(ConnectionError):  # the connection of a refused client may end while it sends
                    connection.sendall(head)
                with connection.makefile("rb") as stream:
                    line = stream.readline()
                    rest = stream.read()
            return int(line.split()[1]), rest.partition(b"\r\n\r\n")[2]

        yield ask
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert process.returncode == 0


@pytest.fixture(params=["in_the_app", "through_a_socket"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.getfixturevalue(request.param)
    return found


def every_byte(key: str) -> str:
    return "".join(f"%{byte:02x}" for byte in key.encode())


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("written", [every_byte, lambda key: quote(key, safe="/.:@&=;+"), quote])
def test_every_key_finds_its_own_row_by_its_path(ask: Ask, prefix: str, written: Callable[[str], str]) -> None:
    for place, key in enumerate(KEYS):
        status, body = ask("GET", f"{prefix}/{written(key)}")
        assert status == 200, (key[:50], body)
        answer = json.loads(body)
        assert (answer["key"], answer["rows"]) == ({"k": key}, [{"k": key, "n": place}])
        assert ask("HEAD", f"{prefix}/{written(key)}") == (200, b"")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("written", [every_byte, quote_plus])
def test_every_key_finds_its_own_row_by_its_query(ask: Ask, prefix: str, written: Callable[[str], str]) -> None:
    for place, key in enumerate(KEYS):
        status, body = ask("GET", f"{prefix}?k={written(key)}")
        assert (status, json.loads(body)["rows"][0]["n"]) == (200, place)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_key_that_is_encoded_twice_is_another_key(ask: Ask, prefix: str) -> None:
    assert json.loads(ask("GET", f"{prefix}/%252F")[1])["key"] == {"k": "%2F"}
    assert json.loads(ask("GET", f"{prefix}/%25252F")[1])["key"] == {"k": "%252F"}
    status, body = ask("GET", f"{prefix}/%2525252F")
    assert (status, json.loads(body)["key"]) == (404, {"k": "%25252F"})


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("raw", NO_UTF8)
def test_bytes_that_are_no_utf8_are_refused_and_never_replaced(ask: Ask, prefix: str, raw: str) -> None:
    for target in (f"{prefix}/{raw}", f"{prefix}?k={raw}"):
        status, body = ask("GET", target)
        assert (status, json.loads(body)["title"]) == (400, "Bad request")
        assert ask("HEAD", target) == (400, b"")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_is_behind_a_question_mark_is_no_key(ask: Ask, prefix: str) -> None:
    assert ask("GET", f"{prefix}/?")[0] == 200, "the empty key"
    status, body = ask("GET", f"{prefix}/https://user:pw@example.com:80/a?b=c")
    assert (status, json.loads(body)["detail"].partition(";")[0]) == (400, "unknown parameter b")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_key_beyond_the_limit_is_refused_and_the_next_request_answered(ask: Ask, prefix: str) -> None:
    status, body = ask("GET", f"{prefix}/{'A' * 16_385}")
    assert (status, "max_key_bytes" in json.loads(body)["detail"]) == (400, True)
    assert ask("GET", f"{prefix}/{'A' * 10_000_000}")[0] in (400, 413, 414, 431)
    assert ask("GET", f"{prefix}/a//b")[0] == 200


def test_an_index_name_is_decoded_once_too(ask: Ask) -> None:
    assert ask("GET", "/indexes/%6fdd/rows/a//b")[0] == 200
    for name in ("%256fdd", "odd%2F", "%2e%2e", "%ff", "od%00d"):
        assert ask("GET", f"/indexes/{name}/rows/a//b")[0] == 404

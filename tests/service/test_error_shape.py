"""The shape of a failure, which is the same for all errors and routes (RFC 9457):

    HTTP status = body["status"];  Content-Type: application/problem+json
    {"type": "urn:gnomon:problem:<title in lower case with hyphens>", "title", "status", "detail", "instance", ...}

`instance` is the path and query of the request, unchanged. More members may follow: `column` and `expected` (a key of
the wrong type), `key`, `snapshot` and `covered` (key not found), `request_id` (409 and 5xx: the log has the full text
under it). 503 has Retry-After. HEAD has the status and no body. No answer names a folder of the server.

400 the request is wrong   404 no such key, snapshot, route   405 method   409 the source changed since it was indexed
413 beyond a limit         500 a fault of the service         501 unsupported file   503 damaged or unreachable
"""

import datetime as dt
import decimal
import enum
import json
import logging
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from gnomon.service.application import create_app
from gnomon.service.errors import TABLE, encode, status_and_title
from gnomon.service.settings.table import Settings
from gnomon.shadow import to_json
from tests.service.lake import TWICE, Client, crawl_table
from tests.shadow.make_index import write_source

STANDARD = ["type", "title", "status", "detail", "instance"]


def assert_shape(response: httpx.Response, status: int, title: str, instance: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert list(body)[:5] == STANDARD
    assert body["type"] == "urn:gnomon:problem:" + title.lower().replace(" ", "-")
    shown = instance if len(instance) <= 256 else f"{instance[:256]}..."
    assert (body["title"], body["status"], body["instance"]) == (title, status, shown)
    assert ("request_id" in body) == (status in (409, 500, 501, 503))
    assert ("retry-after" in response.headers) == (status == 503)
    return body


def assert_silent(response: httpx.Response, folder: Path) -> None:
    """Check that the answer names no folder of the server: no folder of the test, and no absolute path."""
    text = response.text + str(response.headers)
    assert str(folder) not in text
    assert folder.name not in text
    assert "/tmp" not in text


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/rows/%ff", "not UTF-8"),
        ("/rows?url=%ff", "not UTF-8"),
        ("/rows", "the key needs the columns url"),
        ("/rows?uri=a", "the key needs the columns url"),
        ("/rows?url=a&url=b", "url is given twice"),
        ("/rows/a?colums=n", "unknown parameter colums"),
        ("/rows/a?_columns=", "_columns: expected column names"),
        ("/rows/a?_where=2026-01-01", "_where: expected"),
        ("/rows/a?_where=n=1", "n is not a partition column"),
        ("/rows/a?_limit=-1", "_limit: expected a whole number"),
        ("/rows/a?_limit=1&_limit=2", "_limit is given twice"),
        ("/rows/a?_snapshot=new", "_snapshot: expected a whole number"),
        ("/rows/a?_explain=maybe", "_explain: expected true or false"),
        ("/rows/" + "a" * 20_000, "at most 16384"),
        ("/rows?" + "&".join(f"a{i}=1" for i in range(1001)), "more than 1000 parameters"),
    ],
)
def test_400_names_what_is_wrong_with_the_request(crawl: Client, target: str, says: str) -> None:
    body = assert_shape(crawl.get(target), 400, "Bad request", target)
    assert says in body["detail"]
    assert crawl.ask("HEAD", target).status_code == 400


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "expected an object"),
        ({"keys": "a"}, "expected an object"),
        ({"keys": [], "limit": 1}, "unknown member limit"),
        ({"keys": [], "columns": "n"}, "columns: expected a list"),
        ({"keys": [], "columns": [1]}, "columns: expected a list"),
    ],
)
def test_400_names_what_is_wrong_with_a_body(crawl: Client, content: object, says: str) -> None:
    assert says in assert_shape(crawl.post(content), 400, "Bad request", "/rows")["detail"]


def test_400_columns_in_query_and_body(crawl: Client) -> None:
    response = crawl.post({"keys": [], "columns": ["n"]}, "?_columns=n")
    assert_shape(response, 400, "Bad request", "/rows?_columns=n")


def test_400_names_the_column_and_the_type_expected(orders: Client) -> None:
    body = assert_shape(orders.get("/rows?country=de&id=one"), 400, "Key of the wrong type", "/rows?country=de&id=one")
    assert (body["column"], body["expected"]) == ("id", "int")
    assert "expected int, found 'one'" in body["detail"]


def test_400_a_composite_key_does_not_fit_in_a_path(orders: Client) -> None:
    assert "country, id" in assert_shape(orders.get("/rows/de"), 400, "Bad request", "/rows/de")["detail"]


def test_400_unknown_column(crawl: Client) -> None:
    body = assert_shape(crawl.get("/rows/no?_columns=nn"), 400, "Unknown column", "/rows/no?_columns=nn")
    assert "no column nn; it has url, n," in body["detail"]
    assert_shape(crawl.post({"keys": ["a/b"], "columns": ["nn"]}), 400, "Unknown column", "/rows")


def test_404_says_the_key_the_snapshot_and_what_is_covered(crawl: Client) -> None:
    body = assert_shape(crawl.get("/rows/nobody"), 404, "Key not found", "/rows/nobody")
    assert body["key"] == {"url": "nobody"}
    assert body["snapshot"] == 1
    assert body["covered"] == {"rows": 18, "source_files": 2}
    assert "snapshot 1, which covers 18 rows of 2 source files" in body["detail"]


def test_404_a_snapshot_that_is_gone(own: Client, tmp_path: Path) -> None:
    response = own.get("/rows/a?_snapshot=9")
    body = assert_shape(response, 404, "Snapshot not found", "/rows/a?_snapshot=9")
    assert "snapshot 9 is not there" in body["detail"]
    assert_silent(response, tmp_path)


@pytest.mark.parametrize("target", ["/nothing", "/row/a", "/rowsa", "/Rows/a"])
def test_404_no_such_route(crawl: Client, target: str) -> None:
    assert_shape(crawl.get(target), 404, "No such route", target)


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [("DELETE", "/rows/a", "GET, HEAD"), ("PUT", "/rows", "GET, HEAD, POST"), ("POST", "/readyz", "GET, HEAD")],
)
def test_405_says_what_is_allowed(crawl: Client, method: str, target: str, allowed: str) -> None:
    response = crawl.ask(method, target)
    assert_shape(response, 405, "Method not allowed", target)
    assert response.headers.get_list("allow") == [allowed]


def test_409_a_source_file_that_changed_is_refused(own: Client, tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": crawl_table(["second", "third"])})
    response = own.get("/rows/second")
    body = assert_shape(response, 409, "Stale pointer", "/rows/second")
    assert body["detail"].startswith("dt=2026-01-02/p.parquet: the file changed since it was indexed")
    assert_silent(response, tmp_path)
    assert own.ask("HEAD", "/rows/second").status_code == 200


def test_413_too_many_keys_and_too_large_a_body(crawl_settings: Settings) -> None:
    client = Client(replace(crawl_settings, max_batch_keys=2, max_body_bytes=100))
    body = assert_shape(client.post({"keys": ["a"] * 3}), 413, "Request too large", "/rows")
    assert body["detail"] == "3 keys; at most 2 in one batch (setting max_batch_keys)"
    assert_shape(client.post({"keys": ["a" * 100]}), 413, "Request too large", "/rows")


def test_500_says_nothing_but_where_to_look(
    own: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret in /srv/private/lake")

    monkeypatch.setattr(own.served.index, "answer", broken)
    with caplog.at_level(logging.ERROR):
        response = own.get("/rows/a")
    body = assert_shape(response, 500, "Internal error", "/rows/a")
    assert "secret" not in response.text
    assert body["request_id"] in caplog.text
    assert "RuntimeError: secret in /srv/private/lake" in caplog.text


def _flip(path: Path) -> None:
    """Change a byte in the middle; the fingerprint stays."""
    status, data = path.stat(), bytearray(path.read_bytes())
    for at in range(len(data) // 3, len(data) // 2):
        data[at] ^= 0xFF
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_503_a_damaged_index_file(own: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in (tmp_path / "shadow").glob("dt=*/*.avro"):
        _flip(path)
    response = own.get("/rows/second")
    body = assert_shape(response, 503, "Damaged index", "/rows/second")
    assert re.match(r"dt=2026-01-0\d/\S+\.btree\.avro at byte \d+: ", body["detail"])
    assert_silent(response, tmp_path)
    assert f"{tmp_path}/shadow/dt=2026-01-0" in caplog.text
    assert body["request_id"] in caplog.text


def test_503_an_index_file_that_is_gone(own: Client, tmp_path: Path) -> None:
    for path in (tmp_path / "shadow").glob("dt=*/*.avro"):
        path.unlink()
    response = own.get("/rows/second")
    assert_shape(response, 503, "Damaged index", "/rows/second")
    assert_silent(response, tmp_path)


def test_503_a_damaged_source_file(own: Client, tmp_path: Path) -> None:
    path = tmp_path / "lake/dt=2026-01-02/p.parquet"
    status = path.stat()
    path.write_bytes(b"PAR1" + bytes(status.st_size - 4))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    response = own.get("/rows/second")
    assert_shape(response, 503, "Damaged source", "/rows/second")
    assert_silent(response, tmp_path)


def test_503_not_ready_while_no_index_is_open(tmp_path: Path) -> None:
    settings = Settings(indexes=[str(tmp_path / "shadow")])
    client = Client(settings, create_app(settings, patient=True))
    response = client.get("/readyz")
    body = assert_shape(response, 503, "Not ready", "/readyz")
    assert (body["ready"], body["indexes"]["shadow"]["open"]) == (False, False)
    assert client.ask("HEAD", "/readyz").status_code == 503
    assert_silent(response, tmp_path)
    response = client.get("/rows/second")
    assert_shape(response, 503, "Index not open", "/rows/second")
    assert_silent(response, tmp_path)


def test_503_the_source_is_gone(own: Client, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "lake")
    response = own.get("/rows/second")
    assert_shape(response, 503, "Source not found", "/rows/second")
    assert_silent(response, tmp_path)


def test_a_batch_wraps_the_same_problem_in_the_result_of_its_key(own: Client, tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": crawl_table(["second", "third"])})
    response = own.post({"keys": ["a/b", "second", TWICE, "no", "a/b"]})
    results = response.json()["results"]
    assert [r.get("count") for r in results] == [1, None, None, 0, 1]
    for result in (results[1], results[2]):
        assert list(result["error"])[:5] == STANDARD
        assert (result["error"]["status"], result["error"]["title"]) == (409, "Stale pointer")
        assert result["error"]["instance"] == "/rows"
    assert response.json()["snapshot"] == 1
    assert_silent(response, tmp_path)


def test_head_has_the_status_and_no_body(crawl: Client) -> None:
    response = crawl.ask("HEAD", "/rows/no")
    assert (response.status_code, response.content) == (404, b"")
    assert response.headers["content-type"] == "application/problem+json"


def test_every_error_has_a_status_in_the_table() -> None:
    assert {status for status, _ in TABLE.values()} == {
        400,
        401,
        403,
        404,
        406,
        408,
        409,
        413,
        414,
        429,
        431,
        500,
        501,
        503,
    }
    assert status_and_title(FileNotFoundError("x")) == (503, "Storage unreachable")
    assert status_and_title(pa.ArrowMemoryError("malloc of size 8 failed")) == (503, "Out of memory")
    assert status_and_title(ZeroDivisionError()) == (500, "Internal error")
    titles = dict(json.loads(json.dumps([(title, status) for status, title in TABLE.values()])))
    assert all(titles[title] == status for status, title in TABLE.values()), "one title, one status"


class Text(str):
    def __str__(self) -> str:
        return "other"


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
VALUES = [
    *(Text("a"), enum.StrEnum("Word", "A").A, enum.IntEnum("Number", "A").A, True, None, 2**70, -(2**64)),
    *(0.1, -0.0, 1e-7, 1e300, np.float64(0.5), np.float32(0.5), float("nan"), float("inf")),
    *(MOMENT, MOMENT.date(), dt.timedelta(1, 2, 3), decimal.Decimal("1E+3"), decimal.Decimal("1.50"), b"\xff\x00"),
    *('é\u2028</\x7f\0"\\\n', "\ud800", {"\ud800": 1}, {1: 2}, {Text("k"): Text("v")}, (1, (2,)), [], {}, [[{}]]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_an_answer_has_the_values_of_the_command_line(value: Any) -> None:
    """Whatever writes its bytes."""
    found = json.loads(encode({"value": value}))
    assert repr(found) == repr(json.loads(to_json({"value": value})))

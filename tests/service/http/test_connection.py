"""service/http/connection.py: limits of a socket, and a problem as the answer to every refused request."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gnomon.service.http import connection
from gnomon.service.settings.table import Settings
from tests.service.lake import TWICE
from tests.service.live import Live, answer, answers, answers_by, is_closed, live, request
from tests.service.processes import until

PROBLEM = "application/problem+json"


def test_no_private_name_of_uvicorn_is_used_or_replaced() -> None:
    """Another version may have other ones. tests/deploy/test_bounds.py runs this file on the lowest version, too."""
    of_uvicorn = {name for kind in (HttpToolsProtocol, RequestResponseCycle) for name in dir(kind)}
    private = {name for name in of_uvicorn if name.startswith("_") and not name.startswith("__")}
    assert private, "there are some"
    used = set(re.findall(r"\b_[a-z]\w*", Path(str(connection.__file__)).read_text()))
    assert not private & used


@pytest.fixture(scope="module")
def running(crawl_settings: Settings) -> Iterator[Live]:
    with live(crawl_settings) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(crawl_settings: Settings) -> Iterator[Live]:
    """A service with a short time limit for receiving requests."""
    with live(replace(crawl_settings, read_seconds=0.2, idle_seconds=1)) as running:
        yield running


def refused(running: Live, sent: bytes, status: int, title: str) -> dict[str, object]:
    """Send bytes, and check that a problem refuses them, that the connection ends, and that the service still
    answers."""
    with running.connect() as connection:
        connection.sendall(sent)
        found = answer(connection)
        assert (found.status, found.headers["content-type"], found.headers["connection"]) == (status, PROBLEM, "close")
        body: dict[str, object] = found.json()
        assert (body["status"], body["title"]) == (status, title)
        assert is_closed(connection)
    with running.connect() as connection:
        connection.sendall(request("/healthz"))
        assert answer(connection).status == 200
    return body


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "Invalid method"),
        (b"HELLO /rows/a HTTP/1.1\r\nHost: x\r\n\r\n", "Invalid method"),
        (b"GET /rows/\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", "Invalid char in url path"),
        (b"GET /rows/a b HTTP/1.1\r\nHost: x\r\n\r\n", "Expected HTTP/"),
        (b"GET /rows/a HTTP/1.1\r\n\r\n", "expected one header field Host"),
        (b"GET /rows/a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "expected one header field Host"),
        (b"GET /rows/a#b HTTP/1.1\r\nHost: x\r\n\r\n", "percent-encode it as %23"),
        (b"GET /rows/a\r\n\r\n", "expected HTTP/1.1, found HTTP/0.9"),
        (b"GET /rows/a HTTP/9.9\r\nHost: x\r\n\r\n", "Invalid HTTP version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI"),
        (b"CONNECT there:80 HTTP/1.1\r\nHost: there\r\n\r\n", "CONNECT is for proxies"),
        (b"CONNECT /rows/a HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT is for proxies"),
        (b"CONNECT * HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT is for proxies"),
        (b"POST /rows HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Content-Length"),
        (
            b"POST /rows HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding",
        ),
        (b"POST /rows HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n", "not a request"),
        (b"POST /rows HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", "Transfer-Encoding"),
        (b"POST /rows HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding"),
    ],
)
def test_what_is_no_request_is_400(running: Live, sent: bytes, why: str) -> None:
    assert why.lower() in str(refused(running, sent, 400, "Bad request")["detail"]).lower()


@pytest.mark.parametrize("fields", [["gzip, chunked"], ["gzip", "chunked"], ["GZIP , Chunked"], [",chunked"]])
def test_a_body_in_another_form_than_chunks_is_501(running: Live, fields: list[str]) -> None:
    batch = json.dumps({"keys": [TWICE]}).encode()
    head = request("/rows", "POST", *(f"Transfer-Encoding: {field}" for field in fields))
    body = refused(running, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(batch), batch), 501, "Unknown transfer coding")
    assert str(body["detail"]).startswith("Transfer-Encoding: expected chunked, found ")


def test_a_target_beyond_the_longest_is_414_and_shown_in_part(running: Live) -> None:
    body = refused(running, request("/rows/" + "a" * 300_000), 414, "Target too long")
    assert len(str(body["instance"])) < 1000
    assert "send long keys by POST" in str(body["detail"])


def test_a_target_of_more_bytes_than_the_parser_can_split_is_the_key_that_was_sent(crawl_settings: Settings) -> None:
    key = "k" * 70_000 + "?" * 40
    with live(replace(crawl_settings, max_key_bytes=80_000)) as running, running.connect() as connection:
        connection.sendall(request("/rows/" + key.replace("?", "%3F") + "?_limit=1"))
        found = answer(connection)
    assert (found.status, found.json()["key"]) == (404, {"url": key})


@pytest.mark.parametrize(
    "fields",
    [["X: " + "a" * 70_000], [f"X{n}: a" for n in range(300)], [f"X{n}: {'a' * 7000}" for n in range(10)]],
)
def test_a_head_that_is_too_large_is_431(running: Live, fields: list[str]) -> None:
    refused(running, request("/healthz", "GET", *fields), 431, "Header fields too large")


def test_a_field_that_never_ends_is_431(running: Live) -> None:
    refused(running, b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 400_000, 431, "Header fields too large")


def test_who_goes_on_sending_sees_why_it_is_refused(running: Live) -> None:
    """A socket that is closed with unread bytes would discard the answer."""
    with running.connect() as connection:
        connection.sendall(request("/rows/" + "a" * 500_000) + b"x" * 2_000_000)
        assert answer(connection).status == 414


def test_a_slow_head_is_408(hasty: Live) -> None:
    refused(hasty, b"GET /healthz HTTP/1.1\r\nHos", 408, "Request too slow")
    refused(hasty, b"\r\n", 408, "Request too slow")


def test_a_slow_body_is_408(hasty: Live) -> None:
    body = refused(hasty, request("/rows", "POST", "Content-Length: 100") + b'{"keys"', 408, "Request too slow")
    assert body["instance"] == "/rows"


@pytest.mark.slow
def test_half_a_request_sent_ahead_takes_no_answer_back(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(served: object, key: str, options: object, hold: object) -> bytes:
        threading.Event().wait(0.5)  # longer than the time limit of a request
        return b"{}"

    answers_by(monkeypatch, work)
    with live(replace(crawl_settings, read_seconds=0.1)) as running, running.connect() as connection:
        connection.sendall(request("/rows/first") + request("/rows/second") + b"GET /hea")
        assert [one.status for one in answers(connection, "GET", "GET")] == [200, 200]


@pytest.mark.slow
def test_an_idle_connection_is_closed_without_a_word(hasty: Live) -> None:
    with hasty.connect() as fresh, hasty.connect() as used:
        used.sendall(request("/healthz"))
        assert answer(used).status == 200
        assert is_closed(fresh)
        assert is_closed(used)


def test_requests_sent_ahead_are_answered_in_their_order(running: Live) -> None:
    keys = [TWICE, "second", "no", TWICE]
    with running.connect() as connection:
        connection.sendall(b"".join(request(f"/rows/{key}") for key in keys))
        found = answers(connection, *["GET"] * 4)
    assert [one.status for one in found] == [200, 200, 404, 200]
    assert [one.json()["key"]["url"] for one in found] == keys


def test_a_bad_request_sent_ahead_is_refused_after_the_answers_before_it(running: Live) -> None:
    batch = json.dumps({"keys": [TWICE]}).encode()
    with running.connect() as connection:
        connection.sendall(request("/rows/second") + request("/rows", "POST", body=batch) + b"NONSENSE\r\n\r\n")
        found = answers(connection, "GET", "POST", "GET", "GET")
    assert [one.status for one in found] == [200, 200, 400]


def test_a_body_that_breaks_after_the_answer_ends_the_connection_without_another(running: Live) -> None:
    with running.connect() as connection:
        connection.sendall(request("/nowhere", "POST", "Transfer-Encoding: chunked"))
        assert answer(connection, "POST").status == 404
        connection.sendall(b"no number\r\n")
        assert is_closed(connection)


def test_too_many_requests_ahead_are_refused_and_those_before_answered(running: Live) -> None:
    with running.connect() as connection:
        connection.sendall(request("/healthz") * 300)
        found = answers(connection, *["GET"] * 300)
    statuses = [one.status for one in found]
    assert statuses[-1] == 400
    assert set(statuses[:-1]) == {200}
    assert len(statuses) >= 100


def test_heads_have_no_body_between_other_answers(running: Live) -> None:
    methods = ["HEAD", "GET", "HEAD", "HEAD", "GET"]
    targets = ["/rows/second", "/rows/second", "/rows/no", "/nowhere", "/healthz"]
    with running.connect() as connection:
        connection.sendall(b"".join(request(target, method) for method, target in zip(methods, targets, strict=True)))
        assert [one.status for one in answers(connection, *methods)] == [200, 200, 404, 404, 200]


def test_http_1_0_is_answered_and_the_connection_ends(running: Live) -> None:
    with running.connect() as connection:
        connection.sendall(b"GET /rows/second HTTP/1.0\r\n\r\n")
        found = answer(connection)
        assert (found.status, found.headers["connection"]) == (200, "close")
        assert is_closed(connection)


def test_an_offer_to_speak_http_2_is_declined_and_the_body_read(running: Live) -> None:
    """Java's client sends one with its first request."""
    offer = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQ"]
    batch = json.dumps({"keys": [TWICE]}).encode()
    with running.connect() as connection:
        connection.sendall(request("/rows", "POST", *offer, body=batch) + request("/rows/second", "GET", *offer))
        first, second = answers(connection, "POST", "GET")
    assert first.json()["results"][0]["count"] == 3
    assert second.json()["count"] == 1


def test_a_connection_that_is_to_end_ends_though_more_was_offered(running: Live) -> None:
    with running.connect() as connection:
        connection.sendall(request("/healthz", "GET", "Connection: upgrade, close", "Upgrade: other"))
        assert answer(connection).headers["connection"] == "close"
        assert is_closed(connection)


def test_fields_behind_a_body_are_no_fields_of_the_request(running: Live) -> None:
    """A proxy that sets the client's address, or removes fields, only checks fields before the body."""
    batch = json.dumps({"keys": [TWICE]}).encode()
    body = b"%x\r\n%s\r\n0\r\nX-Request-Id: behind\r\n\r\n" % (len(batch), batch)
    with running.connect() as connection:
        connection.sendall(request("/rows", "POST", "Transfer-Encoding: chunked") + body)
        found = answer(connection, "POST")
    assert found.status == 200
    assert found.headers["x-request-id"] != "behind"


def test_a_body_is_asked_for_where_the_client_waits_for_that(running: Live) -> None:
    batch = json.dumps({"keys": [TWICE]}).encode()
    with running.connect() as connection:
        connection.sendall(request("/rows", "POST", "Expect: 100-continue", f"Content-Length: {len(batch)}"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(batch)
        assert answer(connection).status == 200


def test_an_absolute_target_is_the_path_in_it(running: Live) -> None:
    with running.connect() as connection:
        connection.sendall(
            request("http://gnomon/rows/https://example.com/a//b") + request("/rows/https://example.com/a//b")
        )
        assert [one.json()["count"] for one in answers(connection, "GET", "GET")] == [1, 1]


def test_connections_beyond_the_limit_are_503_and_probes_answered(crawl_settings: Settings) -> None:
    with live(replace(crawl_settings, max_connections=2)) as running:
        held = [running.connect() for _ in range(2)]
        for connection in held:
            connection.sendall(request("/rows/second")[:-2])  # not idle: a part of its head is here
        until(lambda: len(running.connections) == 2 and not running.idle)
        with running.connect() as third:
            third.sendall(request("/rows/second"))
            found = answer(third)
            assert (found.status, found.json()["title"], found.headers["retry-after"]) == (503, "Overloaded", "5")
            assert is_closed(third)
        with running.connect() as probe:
            probe.sendall(request("/healthz"))
            assert answer(probe).status == 200
        for connection in held:
            connection.sendall(b"\r\n")
            assert answer(connection).status == 200
            connection.close()


def test_any_number_of_idle_connections_keeps_nobody_out(crawl_settings: Settings) -> None:
    with live(replace(crawl_settings, max_connections=3)) as running, contextlib.ExitStack() as stack:
        held = [stack.enter_context(running.connect()) for _ in range(20)]
        for target in ("/healthz", "/readyz", "/metrics", "/rows/second"):
            connection = stack.enter_context(running.connect())
            connection.sendall(request(target))
            assert answer(connection).status == 200
        assert len(running.connections) == 3
        assert all(is_closed(connection) for connection in held)


def test_the_connection_that_is_idle_longest_makes_room(crawl_settings: Settings) -> None:
    with live(replace(crawl_settings, max_connections=2)) as running, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(running.connect()) for _ in range(2))
        for connection in (first, second, first):
            connection.sendall(request("/healthz"))
            assert answer(connection).status == 200
        third = stack.enter_context(running.connect())
        assert is_closed(second)
        for connection in (first, third):
            connection.sendall(request("/rows/second"))
            assert answer(connection).status == 200


def test_no_connection_is_closed_with_a_request_that_was_not_read_yet(crawl_settings: Settings) -> None:
    """Many clients connect and ask at once: those within the limit are answered, the others get 503."""
    with live(replace(crawl_settings, max_connections=2)) as running, contextlib.ExitStack() as stack:
        gate, begun = threading.Event(), threading.Event()
        running.call_soon(lambda: begun.set() or gate.wait(60))
        assert begun.wait(60)
        asked = [stack.enter_context(running.connect()) for _ in range(4)]
        for connection in asked:
            connection.sendall(request("/rows/second"))
        gate.set()
        assert [answer(connection).status for connection in asked] == [200, 200, 503, 503]


def test_no_connection_is_closed_with_an_answer_that_was_not_sent_yet(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 20_000_000
    answers_by(monkeypatch, lambda served, key, options, hold: b"x" * size)
    with live(replace(crawl_settings, max_connections=1)) as running, running.connect() as first:
        first.sendall(request("/rows/large"))
        assert first.recv(1, socket.MSG_PEEK)  # the answer has begun
        with running.connect() as second:
            second.sendall(request("/rows/second"))
            assert answer(second).status == 503
        assert len(answer(first).body) == size


def test_what_waits_for_a_thread_is_dropped_when_its_client_leaves(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, gate, begun = [], threading.Event(), threading.Event()

    def work(served: object, key: str, options: object, hold: object) -> bytes:
        made.append(key)
        begun.set()
        assert gate.wait(60)
        return b"{}"

    answers_by(monkeypatch, work)
    with live(replace(crawl_settings, threads=1)) as running, running.connect() as first:
        first.sendall(request("/rows/first"))
        assert begun.wait(60)
        with running.connect() as leaves:
            leaves.sendall(request("/rows/leaves"))
            until(lambda: running.served.threads.waiting == 1)
        until(lambda: running.served.threads.waiting == 0)
        gate.set()
        assert answer(first).status == 200
    assert made == ["first"]


def test_a_request_on_its_way_when_the_service_is_to_end_is_answered(crawl_settings: Settings) -> None:
    with live(crawl_settings) as running, running.connect() as connection:
        connection.sendall(request("/healthz"))
        assert answer(connection).headers.get("connection") is None
        running.server.should_exit = True
        until(lambda: all(one._ending for one in running.server.server_state.connections))
        connection.sendall(request("/rows/second"))
        found = answer(connection)
        assert (found.status, found.headers["connection"]) == (200, "close")


def test_a_request_that_hangs_does_not_keep_the_service_from_ending(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), threading.Event()

    def work(served: object, key: str, options: object, hold: object) -> bytes:
        begun.set()
        assert gate.wait(60)
        return b"{}"

    answers_by(monkeypatch, work)
    with live(replace(crawl_settings, shutdown_seconds=0)) as running, running.connect() as connection:
        connection.sendall(request("/rows/hangs"))
        assert begun.wait(60)
        running.stop()
        assert is_closed(connection)
        gate.set()


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(crawl_settings: Settings) -> None:
    with live(replace(crawl_settings, max_body_bytes=100)) as running, running.connect() as connection:
        connection.sendall(b"POST /rows HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
        found = answer(connection)
        assert (found.status, found.json()["title"]) == (413, "Request too large")
    with live(replace(crawl_settings, max_body_bytes=100)) as running, running.connect() as connection:
        connection.sendall(b"POST /rows HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101)
        assert answer(connection).status == 413


@pytest.mark.parametrize("path", ["/rows", "/nothing-here"])
def test_who_asks_to_close_sees_why_it_is_refused_before_its_body_is_read(crawl_settings: Settings, path: str) -> None:
    """A socket that is closed with unread bytes would discard the answer."""
    size = 8_000_000
    with live(replace(crawl_settings, max_body_bytes=100)) as running, running.connect() as connection:
        connection.sendall(request(path, "POST", "Connection: close", f"Content-Length: {size}"))
        for _ in range(8):
            connection.sendall(b"x" * (size // 8))
        found = answer(connection)
        assert (found.status, found.headers["connection"]) == (413 if path == "/rows" else 404, "close")

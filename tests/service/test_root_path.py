"""The service under a path prefix: mounted in another app, behind a server's root path, behind a proxy."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service.application import create_app
from gnomon.service.errors import BadRequest
from gnomon.service.http.requests import may_lack_slashes, path_key
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from tests.service.lake import ODD_KEYS, TWICE, Client, add_day, make_crawl, rows
from tests.service.live import SECONDS, answer, live, request

Wrap = Callable[[Settings], tuple[ASGIApp, Starlette]]


def mounted(settings: Settings) -> tuple[ASGIApp, Starlette]:
    host, app = Starlette(), create_app(settings)
    host.mount("/gnomon", app)
    return host, app


def behind_root_path(settings: Settings) -> tuple[ASGIApp, Starlette]:
    """The app with requests in the form of `uvicorn --root-path /gnomon`: the root path comes before the path."""
    app = create_app(settings)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/gnomon"}, receive, send)

    return served, app


def by_setting(settings: Settings) -> tuple[ASGIApp, Starlette]:
    app = create_app(replace(settings, root_path="/gnomon"))
    return app, app


def encoded(key: str) -> str:
    """A key with each byte escaped, so that the client does not change it."""
    return "".join(f"%{byte:02X}" for byte in key.encode())


WRAPS = [mounted, behind_root_path, by_setting]


def client(wrap: Wrap, settings: Settings) -> Client:
    outer, inner = wrap(settings)
    made = Client(settings, inner)
    made.app = outer  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("wrap", WRAPS)
def test_every_key_that_is_there_is_found_by_path_under_a_prefix(crawl_settings: Settings, wrap: Wrap) -> None:
    asked = client(wrap, crawl_settings)
    keys = [key for key in (*ODD_KEYS, TWICE) if wrap is not mounted or "\n" not in key]
    for key in keys:  # a mount of Starlette does not forward a path with a line end
        for route in ("/rows", "/indexes/shadow/rows"):
            found = asked.get(f"/gnomon{route}/{encoded(key)}")
            assert {row["url"] for row in rows(found)} == {key}
            assert asked.ask("HEAD", f"/gnomon{route}/{encoded(key)}").status_code == 200
    missing = asked.get("/gnomon/rows/no%2Fkey")
    assert (missing.status_code, missing.json()["key"]) == (404, {"url": "no/key"})
    assert missing.json()["instance"] == "/gnomon/rows/no%2Fkey"
    assert asked.get("/gnomon/rows/%ff").status_code == 400


@pytest.mark.parametrize("path", ["/gnomon", ""])
def test_a_proxy_may_remove_the_root_path_of_the_setting_or_keep_it(crawl_settings: Settings, path: str) -> None:
    asked = client(by_setting, crawl_settings)
    for key in ODD_KEYS:
        assert {row["url"] for row in rows(asked.get(f"{path}/rows/{encoded(key)}"))} == {key}
    assert asked.get(f"{path}/healthz").status_code == 200


@pytest.mark.parametrize("wrap", WRAPS)
def test_what_needs_no_token_needs_none_under_a_prefix(tmp_path: Path, wrap: Wrap) -> None:
    secret, token = new_token("reader")
    asked = client(wrap, replace(make_crawl(tmp_path), tokens=(token.line,)))
    for path in ("/", "/docs", "/page/app.js", "/healthz", "/readyz", "/openapi.json"):
        assert asked.get(f"/gnomon{path}").status_code == 200, path
    assert "script-src 'self'" in asked.get("/gnomon/").headers["content-security-policy"]
    assert asked.get("/gnomon/healthz").headers["content-security-policy"].startswith("default-src 'none'; frame")
    for path in ("/rows/twice", "/indexes", "/metrics", "/nowhere"):
        assert asked.get(f"/gnomon{path}").status_code == 401, path
    assert len(rows(asked.get("/gnomon/rows/twice", {"authorization": f"Bearer {secret}"}))) == 3


@pytest.mark.parametrize("wrap", WRAPS)
def test_addresses_that_the_service_tells_begin_with_the_prefix(crawl_settings: Settings, wrap: Wrap) -> None:
    asked = client(wrap, crawl_settings)
    assert asked.get("/gnomon/openapi.json").json()["servers"] == [{"url": "/gnomon"}]
    [index] = asked.get("/gnomon/indexes").json()["indexes"]
    assert index["url"] == "/gnomon/indexes/shadow"
    assert asked.get(index["url"]).status_code == 200


@pytest.mark.parametrize("wrap", [behind_root_path, by_setting])
def test_the_prefix_alone_leads_to_the_page_whose_links_are_relative(crawl_settings: Settings, wrap: Wrap) -> None:
    answer = client(wrap, crawl_settings).get("/gnomon")
    assert (answer.status_code, answer.headers["location"]) == (307, "/gnomon/")


def test_requests_of_a_mounted_app_are_counted_by_their_route(crawl_settings: Settings) -> None:
    asked = client(mounted, crawl_settings)
    asked.get("/gnomon/rows/twice")
    counted = asked.get("/gnomon/metrics").text
    assert 'route="/rows/{key}"' in counted


def test_a_mounted_app_follows_new_snapshots_though_its_lifespan_does_not_run(tmp_path: Path) -> None:
    settings = replace(make_crawl(tmp_path), refresh_seconds=0.01)
    outer, inner = mounted(settings)
    asked = Client(settings, inner, follows=True)
    asked.app = outer  # type: ignore[assignment]
    try:
        assert asked.get("/gnomon/rows/third").status_code == 404
        add_day(tmp_path, "2026-01-03", ["third"])
        end = time.monotonic() + SECONDS
        while asked.get("/gnomon/rows/third").status_code == 404:
            assert time.monotonic() < end, "the new snapshot is never served"
            time.sleep(0.01)
    finally:
        inner.state.following.stop()


def test_a_server_with_a_root_path_answers_keys_by_path(tmp_path: Path) -> None:
    with live(replace(make_crawl(tmp_path), root_path="/gnomon")) as running:
        for target in ("/gnomon/rows/a%252Fb", "/rows/a%252Fb", "/gnomon/healthz"):
            with running.connect() as connection:
                connection.sendall(request(target))
                assert answer(connection).status == 200, target


def scope(path: str, raw: bytes, key: str, root_path: str = "") -> Scope:
    return {"path": path, "raw_path": raw, "root_path": root_path, "path_params": {"key": key}}


def test_a_path_whose_two_forms_end_in_different_keys_is_refused_never_not_found() -> None:
    assert path_key(scope("/rows/a/b", b"/rows/a%2Fb", "a/b")) == "a/b"
    assert path_key(scope("/rows/a", b"/api/rows/a", "a")) == "a"  # the prefix was removed, but not from the raw path
    with pytest.raises(BadRequest, match="the path as sent is /rows/https://x, but it reached the routes as /rows/htt"):
        path_key(scope("/rows/https:/x", b"/rows/https://x", "https:/x"))
    with pytest.raises(BadRequest, match="not UTF-8"):
        path_key(scope("/rows/\ufffd", b"/rows/%ff", "\ufffd"))


def test_a_missing_key_whose_slashes_a_proxy_may_have_merged_is_told_of_the_query(crawl: Client) -> None:
    [there] = [key for key in ODD_KEYS if key.startswith("https://")]
    merged = there.replace("https://", "https:/")
    for target in (f"/rows/{merged}", f"/indexes/shadow/rows/{encoded(merged)}"):
        told = crawl.get(target)
        assert told.status_code == 404
        assert (
            "if it was sent with two, a proxy has merged them; ask in the query, like /rows?url=VALUE"
            in (told.json()["detail"])
        )
        assert told.json()["key"] == {"url": merged}
    assert "proxy" not in crawl.get("/rows/https://nowhere.example/").json()["detail"]
    assert len(rows(crawl.get(f"/rows?url={encoded(there)}"))) == 1


@pytest.mark.parametrize(
    ("raw", "key", "told"),
    [
        (b"/rows/https:/a", "https:/a", True),
        (b"/rows/https%3A/a", "https:/a", True),
        (b"/rows/https%3A%2Fa", "https:/a", True),  # some proxies encode again
        (b"/rows/https://a", "https://a", False),
        (b"/rows/https%3A%2F%2Fa", "https://a", False),
        (b"/rows/a/b", "a/b", True),
        (b"/rows/a/", "a/", True),
        (b"/rows/%C3%A4/b", "\xe4/b", True),
        (b"/rows//a", "/a", False),
        (b"/rows/a//b/c", "a//b/c", False),
        (b"/rows/a%2Fb", "a/b", False),
        (b"/rows/C:", "C:", False),
        (b"/rows/", "", False),
        (b"/gnomon/indexes/rows/rows/a", "a", False),
        (b"/gnomon/indexes/rows/rows/rows/a", "rows/a", True),
    ],
)
def test_a_key_whose_slashes_came_single_and_not_escaped_may_lack_some(raw: bytes, key: str, told: bool) -> None:
    assert may_lack_slashes({"raw_path": raw}, key) is told

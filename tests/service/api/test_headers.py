"""service/api/pages.py: the headers of every answer, and the origins with access."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gnomon.service.api.pages import (
    API_POLICY,
    EVERY_ANSWER,
    OF_API,
    OF_NEWEST,
    OF_PAGE,
    OF_SNAPSHOT,
    PAGE_POLICY,
    UNDER_TLS,
    headers_of,
    origins,
)
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError
from tests.service.lake import Client

DOCS = Path(__file__).parents[3] / "docs" / "operations" / "security.md"
ORIGIN = "https://wiki.example.com"

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture(scope="module")
def client(crawl_settings: Settings) -> Client:
    app = Client(replace(crawl_settings, cors_origins=(ORIGIN, "http://localhost:3000")))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    app.app.state.service.indexes.named = broken  # answers 500 for each request to an index
    return app


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/rows/a", 500),
        ("GET", "/rows/%ff", 400),
        ("POST", "/rows?_limit=x", 400),
        ("GET", "/no/such/route", 404),
        ("DELETE", "/rows", 405),
    ],
)
def test_every_answer_of_the_api_has_them(client: Client, method: str, target: str, status: int) -> None:
    answer = client.ask(method, target)
    assert answer.status_code == status
    for name, value in {**EVERY_ANSWER, **OF_API}.items():
        assert answer.headers.get_list(name) == [value], name
    assert "strict-transport-security" not in answer.headers


def test_refused_answers_have_them_too(crawl_settings: Settings) -> None:
    update = {"tokens": ("ann sha256:" + "0" * 64,), "requests_per_second": 0.001, "request_burst": 1}
    client = Client(replace(crawl_settings, **update))
    for status in (401, 429):
        answer = client.get("/rows/a")
        assert answer.status_code == status
        assert answer.headers["content-security-policy"] == API_POLICY
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("target", ["/", "/docs", "/page/app.js", "/page/no/such/file"])
def test_the_page_has_its_own_policy(client: Client, target: str) -> None:
    answer = client.get(target)
    for name, value in {**EVERY_ANSWER, **OF_PAGE}.items():
        assert answer.headers.get_list(name) == [value], name


def test_the_page_runs_its_own_scripts_alone() -> None:
    rules = dict(rule.split(" ", 1) for rule in PAGE_POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    for closed in ("frame-src", "form-action", "base-uri", "frame-ancestors"):
        assert rules[closed] == "'none'"
    assert "unsafe" not in PAGE_POLICY
    assert "*" not in PAGE_POLICY


def test_under_tls_browsers_are_told_to_stay_there() -> None:
    for path in ("/", "/rows/a"):
        assert (b"strict-transport-security", b"max-age=31536000") in headers_of(path, tls=True)
        assert b"strict-transport-security" not in dict(headers_of(path, tls=False))


def test_the_docs_show_every_header() -> None:
    groups = (
        ("every answer", EVERY_ANSWER),
        ("all but the page, if the answer has no other", OF_API),
        ("rows by `GET`", OF_NEWEST),
        ("rows by `GET` with `_snapshot=`", OF_SNAPSHOT),
        ("the page", OF_PAGE),
        ("TLS", UNDER_TLS),
    )
    lines = [f"| `{name}` | `{value}` | {where} |" for where, named in groups for name, value in named.items()]
    assert "\n".join(["| header | value | on |", "|---|---|---|", *lines, ""]) in DOCS.read_text()


def test_no_other_origin_reads_anything_by_default(crawl: Client) -> None:
    for answer in (crawl.get("/healthz", {"Origin": ORIGIN}), preflight(crawl, ORIGIN)):
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "vary" not in answer.headers


def preflight(client: Client, origin: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    return client.ask("OPTIONS", "/rows", None, headers)


def test_an_origin_that_is_listed_may_read_answers_failed_ones_too(client: Client) -> None:
    for target, status in (("/healthz", 200), ("/rows/a", 500), ("/x", 404)):
        answer = client.get(target, {"Origin": ORIGIN})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["access-control-expose-headers"] == "Link, X-Request-Id, X-Table-Version"
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.com",
        "http://wiki.example.com",
        f"{ORIGIN}.evil.com",
        f"{ORIGIN}:8443",
        "null",
        f"{ORIGIN}/",
        "",
    ],
)
def test_an_origin_that_is_not_listed_reads_nothing(client: Client, origin: str) -> None:
    for answer in (client.get("/healthz", {"Origin": origin}), preflight(client, origin)):
        assert "access-control-allow-origin" not in answer.headers
        varies = answer.headers["vary"].split(", ")
        assert "Origin" in varies, "a cache must not hand this answer to a page that may read it"


def test_a_preflight_is_answered_without_a_token(crawl_settings: Settings) -> None:
    update = {"tokens": ("ann sha256:" + "0" * 64,), "cors_origins": (ORIGIN,)}
    answer = preflight(Client(replace(crawl_settings, **update)), ORIGIN)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert answer.headers["access-control-allow-headers"] == (
        "Accept, Accept-Language, Authorization, Content-Language, Content-Type, "
        "Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id"
    )
    assert answer.headers["content-security-policy"] == API_POLICY
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize(
    "wrong",
    ["*", "null", "wiki.example.com", "https://wiki.example.com/", "https://*.example.com", "HTTPS://A.B", "ftp://a"],
)
def test_a_setting_that_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="setting cors_origins: expected origins as browsers send them"):
        origins(Settings(indexes=["x"], cors_origins=(wrong,)))

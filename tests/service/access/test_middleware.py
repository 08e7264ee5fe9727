"""service/access/guard.py: access of tokens to all routes."""

import copy
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from gnomon.service.access.guard import PROBES, is_page
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from tests.service.lake import Client, make_crawl, make_orders

DAYS_AGO = dt.datetime.now(dt.UTC).date() - dt.timedelta(2)


class Guarded:
    """Two indexes, and tokens: for all, for one of them, and an expired one."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        made = {
            "all": new_token("all"),
            "orders": new_token("only-orders", ["orders"]),
            "pages": new_token("only-pages", ["pages"]),
            "old": new_token("old", (), DAYS_AGO),
        }
        self.secrets = {name: secret for name, (secret, _) in made.items()}
        path = folder / "tokens"
        path.write_text("".join(f"{token.line}\n" for _, token in made.values()))
        path.chmod(0o600)
        pages, orders = (make(folder / name) for make, name in ((make_crawl, "pages"), (make_orders, "orders")))
        indexes = (f"pages={pages.indexes[0]}", f"orders={orders.indexes[0]}")
        self.path = path
        self.client = Client(Settings(indexes=indexes, tokens_file=str(path), **settings))

    def get(self, target: str, name: str | None = None, method: str = "GET", body: object = None) -> Any:
        headers = {} if name is None else {"Authorization": f"Bearer {self.secrets[name]}"}
        return self.client.ask(method, target, body, headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    return Guarded(tmp_path_factory.mktemp("guarded"))


def test_without_a_token_every_route_is_refused_but_those_that_are_open(guarded: Guarded) -> None:
    """The routes come from the app's own table, so that later routes are tested, too."""
    targets = {
        route.path.replace("{name}", "pages").replace("{key:key}", "a").replace("{asset}", "x")
        for route in guarded.client.app.routes
        if isinstance(route, Route)
    }
    assert {"/rows", "/rows/a", "/indexes/pages/rows/a", "/metrics", "/openapi.json"} <= targets
    for target in sorted(targets | {"/metrics", "/no/such/route", "//", "/page", "/docs/", "/healthz/", "/Healthz"}):
        for method in ("GET", "HEAD", "POST", "DELETE"):
            answer = guarded.get(target, method=method)
            opened = target in PROBES or target == "/openapi.json" or is_page(target)
            assert (answer.status_code == 401) == (not opened), (method, target)
            assert opened or answer.headers["www-authenticate"] == 'Bearer realm="gnomon"'


def test_401_is_a_problem_that_says_what_is_expected(guarded: Guarded) -> None:
    body = guarded.get("/rows/a").json()
    assert (body["type"], body["title"], body["status"]) == ("urn:gnomon:problem:token-needed", "Token needed", 401)
    assert body["detail"] == "a token is needed: one header Authorization: Bearer TOKEN"
    assert body["instance"] == "/rows/a"


@pytest.mark.parametrize(
    "given",
    [
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "TOKEN",
        "bearer x" + "y" * 10_000,
        "Bearer \xe9\xff",
        "Bearer  a b",
        "Bearer sha256:0",
    ],
)
def test_what_is_no_token_of_ours_is_refused_and_not_repeated(guarded: Guarded, given: str) -> None:
    answer = guarded.client.get("/rows/a", {"Authorization": given.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 401
    assert "yyyy" not in answer.text


def test_a_token_opens_what_it_is_for(guarded: Guarded) -> None:
    for target in (
        "/rows/second",
        "/indexes/pages/rows/second",
        "/indexes/orders/rows?country=de&id=1",
    ):
        assert guarded.get(target, "all").status_code == 200, target
    assert guarded.get("/rows", "all", "POST", {"keys": ["second"]}).status_code == 200
    lower = guarded.client.get("/rows/second", {"authorization": f"bearer {guarded.secrets['all']}"})
    assert lower.status_code == 200


def test_two_tokens_at_once_are_refused(guarded: Guarded) -> None:
    secret = guarded.secrets["all"]
    answer = guarded.client.get("/rows/a", [("Authorization", f"Bearer {secret}")] * 2)  # type: ignore[arg-type]
    assert answer.status_code == 401


def test_an_expired_or_unknown_token_is_told_so(guarded: Guarded) -> None:
    expired = guarded.get("/rows/a", "old")
    assert (expired.status_code, expired.json()["detail"]) == (
        401,
        f"this token has expired; its last day was {DAYS_AGO}",
    )
    unknown = guarded.client.get("/rows/a", {"Authorization": "Bearer gnomon_unknown"})
    assert (unknown.status_code, unknown.json()["detail"]) == (401, "this token is not known")
    for answer in (expired, unknown):
        assert answer.headers["www-authenticate"] == 'Bearer realm="gnomon", error="invalid_token"'


@pytest.mark.parametrize(
    "target",
    [
        "/rows/second",
        "/rows?url=second",
        "/indexes/pages/rows/second",
        "/indexes/%70ages/rows/second",
        "/indexes/pages/rows?url=second",
        "/indexes/no-such-index/rows/second",
    ],
)
def test_a_token_of_one_index_may_not_ask_another_nor_learn_which_there_are(guarded: Guarded, target: str) -> None:
    for method in ("GET", "HEAD"):
        answer = guarded.get(target, "orders", method)
        if answer.status_code != 405:
            assert answer.status_code == 403, (method, target)
    answer = guarded.get(target, "orders")
    assert answer.json()["detail"] == "this token may not ask this index; it may ask orders"
    assert "pages" not in answer.text.replace(target, "")


def test_a_token_of_an_index_that_is_not_served_learns_of_no_other(tmp_path: Path) -> None:
    secret, token = new_token("reader", ["gone", "shadow"])
    other, of_other = new_token("stray", ["gone"])
    crawl = make_crawl(tmp_path)
    indexes = (*crawl.indexes, f"hidden={crawl.indexes[0]}")
    client = Client(replace(crawl, indexes=indexes, tokens=(token.line, of_other.line)))
    told = [client.get("/indexes/gone/rows/x", {"Authorization": f"Bearer {one}"}) for one in (secret, other)]
    assert [answer.status_code for answer in told] == [404, 404]
    assert [answer.json()["detail"] for answer in told] == [
        "there is no index of this name; there are shadow",
        "there is no index of this name; there is none that this token may ask",
    ]


def test_a_batch_for_an_index_of_others_is_refused(guarded: Guarded) -> None:
    assert guarded.get("/rows", "orders", "POST", {"keys": ["second"]}).status_code == 403
    assert guarded.get("/rows", "pages", "POST", {"keys": ["second"]}).status_code == 200


def test_the_list_of_indexes_holds_those_that_the_token_may_ask(guarded: Guarded) -> None:
    def listed(name: str) -> list[str]:
        return [index["name"] for index in guarded.get("/indexes", name).json()["indexes"]]

    assert listed("all") == ["pages", "orders"]
    assert listed("orders") == ["orders"]
    assert guarded.get("/indexes/pages", "orders").status_code == 403
    assert guarded.get("/indexes/pages", "pages").json()["name"] == "pages"


def test_readiness_tells_each_what_it_may_see(guarded: Guarded) -> None:
    assert guarded.get("/readyz").json() == {"ready": True}
    assert guarded.get("/readyz", "old").json() == {"ready": True}
    assert set(guarded.get("/readyz", "orders").json()["indexes"]) == {"orders"}
    assert set(guarded.get("/readyz", "all").json()["indexes"]) == {"pages", "orders"}
    assert guarded.get("/healthz").status_code == 200


def test_readiness_tells_of_a_tokens_file_that_cannot_be_read(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    before = guarded.path.read_bytes()
    guarded.path.write_text("damaged\n")
    guarded.client.app.state.guard.tokens.look()
    told = guarded.get("/readyz", "all").json()
    assert told["ready"]
    assert told["tokens"].startswith("the tokens file: line 1: expected NAME sha256:HEX")
    assert guarded.get("/readyz").json() == {"ready": True}
    assert guarded.get("/rows/second", "all").status_code == 200
    guarded.path.write_bytes(before)
    guarded.client.app.state.guard.tokens.look()
    assert "tokens" not in guarded.get("/readyz", "all").json()


def test_the_description_of_the_routes_may_be_kept_from_those_without_a_token(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, public_docs=False)
    assert guarded.get("/openapi.json").status_code == 401
    assert guarded.get("/openapi.json", "orders").status_code == 200


def test_503_while_the_tokens_could_never_be_read(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    tokens = guarded.client.app.state.guard.tokens
    tokens._content, tokens._of_file = None, ()
    answer = guarded.get("/rows/second", "all")
    assert (answer.status_code, answer.json()["title"]) == (503, "Tokens unreadable")
    assert answer.headers["retry-after"]
    assert guarded.get("/rows/second").status_code == 401
    assert guarded.get("/healthz").status_code == 200


def test_without_tokens_all_may_ask_all(crawl: Client) -> None:
    assert crawl.get("/rows/second").status_code == 200
    assert "indexes" in crawl.get("/readyz").json()


@pytest.fixture
def counted(crawl_settings: Settings) -> Callable[..., Client]:
    return lambda **more: Client(replace(crawl_settings, **{"requests_per_second": 0.001, "request_burst": 3, **more}))


def test_429_says_when_to_come_again_and_counts_each_address_alone(counted: Callable[..., Client]) -> None:
    client = counted()
    statuses = [client.ask("GET", "/rows/second", peer="10.0.0.1").status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    refused = client.ask("GET", "/rows/second", peer="10.0.0.1")
    assert int(refused.headers["retry-after"]) > 100
    assert (refused.json()["title"], refused.json()["status"]) == ("Too many requests", 429)
    assert client.ask("GET", "/rows/second", peer="10.0.0.2").status_code == 200
    assert [client.ask("GET", f"/rows/{n}", peer=f"2001:db8::{n}").status_code for n in range(1, 5)][-1] == 429
    for probe in ("/healthz", "/readyz"):
        assert [client.ask("GET", probe, peer="10.0.0.1").status_code for _ in range(5)] == [200] * 5


def test_a_batch_counts_its_keys(counted: Callable[..., Client]) -> None:
    client = counted(request_burst=5)
    assert client.post({"keys": ["second"] * 300}).status_code == 200
    assert [client.get("/rows/second").status_code for _ in range(2)] == [200, 429]


def test_guesses_at_tokens_count_for_their_address_and_not_for_whom_they_are_of(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, requests_per_second=0.001, request_burst=3)
    headers = {"Authorization": "Bearer gnomon_guessed"}
    assert [guarded.client.get("/rows/a", headers).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert [guarded.get("/rows/second", "all").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert guarded.get("/indexes/orders/rows?country=de&id=1", "orders").status_code == 200


def test_behind_a_trusted_proxy_each_of_its_clients_counts_alone(counted: Callable[..., Client]) -> None:
    client = counted(trusted_proxies=("10.0.0.0/8",))

    def ask(forwarded: str) -> int:
        return client.ask("GET", "/rows/second", None, {"X-Forwarded-For": forwarded}, "10.0.0.1").status_code

    assert [ask("1.1.1.1") for _ in range(4)] == [200, 200, 200, 429]
    assert ask("2.2.2.2") == 200
    assert ask("2.2.2.2, 1.1.1.1") == 429, "a client cannot make up another address"


def test_what_is_refused_carries_its_reason_for_the_metrics(guarded: Guarded) -> None:
    reasons: list[Any] = []

    async def seen(scope: Any, receive: Any, send: Any) -> None:
        await guarded.client.app(scope, receive, send)
        reasons.append(scope["state"].get("rejected"))

    client = copy.copy(guarded.client)
    client.app = seen  # type: ignore[assignment]
    secret = {"Authorization": f"Bearer {guarded.secrets['orders']}"}
    client.get("/rows/a")
    client.get("/rows/a", secret)
    client.get("/indexes/orders/rows?country=de&id=1", secret)
    assert reasons == ["token", "index_not_allowed", None]


def test_no_answer_and_no_log_holds_a_token(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        texts = [
            guarded.get(target, name).text for target in ("/rows/a", "/rows/%ff", "/x") for name in guarded.secrets
        ]
    for secret in guarded.secrets.values():
        assert secret not in json.dumps(texts)
        assert secret not in caplog.text


def test_a_token_for_an_index_that_there_is_not_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, token = new_token("desk", ["pagess"])
    made = make_crawl(tmp_path)
    Client(replace(made, tokens=(token.line,)))
    assert "token desk is for index pagess, which is not served" in caplog.text

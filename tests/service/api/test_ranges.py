"""service/api/ranges.py: pages that follow their links have each row of a range once, in key order."""

import base64
import io
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pyarrow as pa
import pytest

from gnomon.service.api.responses import ARROW
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from gnomon.shadow import Index, open_index
from tests.profiles import examples
from tests.service.lake import TWICE, Client, add_day, make_clone, make_crawl, make_orders, make_visits, rows
from tests.service.live import answer, live, request
from tests.service.test_root_path import WRAPS, Wrap, client
from tests.shadow.make_index import index_source, write_source

Row = dict[str, Any]
CUSTOMERS, DAYS = 7, 9


def make_sales(folder: Path) -> Settings:
    """An index `sales` keyed by customer, a number, and day, a text; and `pages` by URL. Both have equal keys in
    several files and segments."""
    chance = random.Random(1)
    for number in range(3):
        sales = [(chance.randrange(CUSTOMERS), f"2026-06-{chance.randrange(DAYS):02}") for _ in range(60)]
        of_day = pa.table({"customer": [c for c, _ in sales], "day": [d for _, d in sales], "n": range(60)})
        write_source(folder / "lake", {f"part={number}/p.parquet": of_day})
        index_source(folder / "lake", folder / "sales", ["customer", "day"], buckets=3)
        urls = [f"https://{chance.choice('abc')}.example/{'é' * chance.randrange(3)}{i % 20}" for i in range(60)]
        write_source(folder / "web", {f"dt={number}/p.parquet": pa.table({"url": urls, "n": range(60)})})
        index_source(folder / "web", folder / "pages", ["url"], buckets=5)
    return Settings(indexes=[f"sales={folder / 'sales'}", f"pages={folder / 'pages'}"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranges")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    return make_sales(folder)


@pytest.fixture(scope="module")
def sales(settings: Settings) -> Client:
    return Client(settings)


@pytest.fixture(scope="module")
def index(settings: Settings, folder: Path) -> Index:
    return open_index(folder / "sales")


def pages(asked: Client, target: str | None) -> Iterator[Row]:
    """The pages of a range in JSON, each from the link of the one before."""
    while target is not None:
        answer = asked.get(target)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page["count"] == len(page["rows"])
        target = page.get("next")
        assert answer.headers.get("link") == (None if target is None else f'<{target}>; rel="next"')
        yield page


def in_json(asked: Client, target: str) -> list[Row]:
    return [row for page in pages(asked, target) for row in page["rows"]]


def in_arrow(asked: Client, target: str | None) -> list[Row]:
    found: list[Row] = []
    while target is not None:
        answer = asked.get(target, {"Accept": ARROW})
        table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
        told = {name: json.loads(value) for name, value in table.schema.metadata.items()}
        assert (told[b"gnomon.count"], told[b"gnomon.snapshot"]) == (len(table), 3)
        target = told.get(b"gnomon.next")
        assert answer.headers.get("link") == (None if target is None else f'<{target}>; rel="next"')
        found += table.to_pylist()
    return found


def query(**options: object) -> str:
    """A query with options; a tuple gives one several times."""
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in options.items()}
    return "&".join(f"_{name}={quote(str(one), safe='')}" for name, several in values.items() for one in several)


@pytest.mark.parametrize("size", [7, 90, 179])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("read", [in_json, in_arrow], ids=["json", "arrow"])
def test_pages_together_are_the_range_of_the_index(
    sales: Client, index: Index, size: int, reverse: bool, read: Any
) -> None:
    found = read(sales, f"/rows?{query(reverse=str(reverse).lower(), limit=size)}")
    assert found == list(index.range(reverse=reverse))
    assert len(found) == 180


def test_random_ranges_in_pages_are_those_of_the_index(sales: Client, index: Index) -> None:
    chance = random.Random(2)

    def end() -> tuple[object, ...]:
        return (chance.randrange(CUSTOMERS), f"2026-06-{chance.randrange(DAYS):02}")[: chance.randrange(1, 3)]

    for _ in range(examples(30)):
        low, high, inclusive, reverse = end(), end(), chance.random() < 0.5, chance.random() < 0.5
        ends = {"prefix": low} if chance.random() < 0.3 else {"low": low, "high": high, "inclusive": inclusive}
        expected = list(index.range(**ends, reverse=reverse))
        named = {{"low": "from", "high": "to"}.get(name, name): value for name, value in ends.items()}
        named["inclusive"] = str(inclusive).lower()
        target = f"/rows?{query(**named, reverse=str(reverse).lower(), limit=chance.randrange(5, 50))}"
        if expected:
            assert in_json(sales, target) == expected
            assert sales.ask("HEAD", target).status_code == 200
        else:
            assert sales.get(target).status_code == sales.ask("HEAD", target).status_code == 404


@pytest.mark.parametrize("prefix", ["https://a.", "https://b.example/é", "https://c.example/éé1"])
def test_a_prefix_of_a_text_has_the_keys_that_begin_with_it(sales: Client, folder: Path, prefix: str) -> None:
    found = in_json(sales, f"/indexes/pages/rows?{query(prefix=prefix, limit=4)}")
    assert found == list(open_index(folder / "pages").range(prefix=prefix))
    assert found
    assert all(row["url"].startswith(prefix) for row in found)


def test_the_value_of_the_last_column_of_a_prefix_may_be_the_beginning_of_a_text(sales: Client, index: Index) -> None:
    for prefix in ((3,), (3, "2026-06-0"), (3, "2026-06-04")):
        assert in_json(sales, f"/rows?{query(prefix=prefix, limit=2)}") == list(index.range(prefix=prefix))


def test_a_range_takes_columns_and_partitions_as_a_key_does(sales: Client, index: Index) -> None:
    found = in_json(sales, f"/rows?{query(prefix=2, where='part=1', columns='n,customer', limit=3)}")
    expected = [{"n": row["n"], "customer": 2} for row in index.range(prefix=(2,), where={"part": "1"})]
    assert found == expected
    absent = sales.get(f"/rows?{query(prefix=99, where='part=1')}")
    assert (absent.status_code, absent.json()["asked"]["rows"]) == (404, 60)
    assert sales.get("/rows?_reverse=false&_where=part=9").status_code == 400
    assert sales.get("/rows?_reverse=false&_columns=nothing").status_code == 400


def test_a_page_has_a_hundred_rows_without_a_limit_and_never_more_than_an_answer_may(settings: Settings) -> None:
    sizes = [page["count"] for page in pages(Client(settings), "/rows?_reverse=false")]
    assert sizes == [100, 80]
    few = Client(replace(settings, max_rows=50))
    for target in ("/rows?_reverse=false", "/rows?_reverse=false&_limit=1000"):
        assert [page["count"] for page in pages(few, target)] == [50, 50, 50, 30]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7])
def test_there_is_a_next_page_where_a_row_follows_and_nowhere_else(sales: Client, index: Index, size: int) -> None:
    count = len(list(index.range(prefix=(3, "2026-06-01"))))
    sizes = [page["count"] for page in pages(sales, f"/rows?{query(prefix=(3, '2026-06-01'), limit=size)}")]
    assert sizes == [size] * (count // size) + [count % size] * (count % size > 0)


def test_a_page_that_is_too_large_is_413_and_says_what_to_ask(settings: Settings) -> None:
    small = Client(replace(settings, max_answer_bytes=1024))
    for headers in ({}, {"Accept": ARROW}):
        refused = small.get("/rows?_reverse=false", headers)
        assert (refused.status_code, refused.json()["title"]) == (413, "Answer too large")
        assert "_limit=" in refused.json()["detail"]
    assert len(in_json(small, "/rows?_reverse=false&_limit=3&_columns=n")) == 180


def test_an_end_longer_than_a_key_may_be_is_refused(settings: Settings) -> None:
    short = Client(replace(settings, max_key_bytes=20))
    for name in ("_from", "_to", "_prefix"):
        refused = short.get(f"/rows?{name}=1&{name}={'a' * 21}")
        assert refused.status_code == 400
        assert refused.json()["detail"] == "key column day: a value of 21 bytes; at most 20 (setting max_key_bytes)"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("_from=x", "column customer: expected"),
        ("_from=1&_from=a&_from=b", "_from: the key has the columns customer, day; found 3 values"),
        ("_prefix=1&_from=1", "a prefix, or a lowest and a highest key, not both"),
        ("_limit=0&_reverse=true", "_limit: a page of a range has at least 1 row"),
        ("_reverse=yes", "_reverse: expected true or false"),
        ("customer=1&_from=1", "customer and _from: expected a key or a range of keys, not both"),
        ("_limit=3", "or for a range of keys like /rows?_from=VALUE"),
    ],
)
def test_a_range_that_no_key_can_be_in_is_refused(sales: Client, options: str, says: str) -> None:
    for target in (f"/rows?{options}", f"/indexes/sales/rows?{options}"):
        refused = sales.get(target)
        assert refused.status_code == sales.ask("HEAD", target).status_code == 400
        assert says in refused.json()["detail"]


def test_other_routes_take_no_range(sales: Client) -> None:
    for refused in (sales.get("/rows/1?_reverse=true"), sales.post({"keys": []}, "?_from=1")):
        assert refused.status_code == 400
        assert "are options of GET /rows without a key" in refused.json()["detail"]
    told = sales.get("/rows/1?colums=a").json()["detail"]
    assert told == "unknown parameter colums; there are _columns, _where, _limit, _snapshot, _explain"


def cursor(value: object) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@pytest.mark.parametrize(
    "after",
    [
        "",
        "x",
        "%C3%A9",
        cursor(b"[" * 20_000),
        cursor({}),
        cursor([[1], "f", 0, 0]),
        cursor([[1, "\ud800"], "f", 0, 0]),
        cursor([["one", "a"], "f", 0, 0]),
        cursor(b'[[1, "a"], "f", 1e999, 0]'),
        cursor([[1, "a"], "f", 0]),
    ],
)
def test_a_cursor_that_no_page_ended_with_is_refused(sales: Client, after: str) -> None:
    refused = sales.get(f"/rows?_from=1&_after={after}")
    assert refused.status_code == 400, refused.text
    assert refused.json()["detail"].startswith("_after: expected the cursor in the next of a page, found")


@pytest.mark.parametrize("hidden", ["customer", "day", "part"])
def test_an_index_that_hides_a_column_of_its_order_answers_no_range(settings: Settings, hidden: str) -> None:
    """Neither by the order of the rows, nor by a cursor, nor in the text of the refusal."""
    guarded = Client(replace(settings, hidden_columns={"sales": [hidden]}))
    for target in ("/rows?_reverse=false", "/rows?_from=1&_limit=1", "/rows?_after=x", "/rows?_prefix=no"):
        refused = guarded.get(target)
        assert (refused.status_code, guarded.ask("HEAD", target).status_code) == (400, 400)
        detail = refused.json()["detail"]
        assert detail.startswith("this index answers no ranges of keys")
        assert hidden not in detail
    assert guarded.get("/indexes/pages/rows?_reverse=false").status_code == 200


def test_a_hidden_column_of_the_payload_is_in_no_row_of_a_range(settings: Settings) -> None:
    guarded = Client(replace(settings, hidden_columns={"sales": ["n"]}))
    assert list(in_json(guarded, "/rows?_from=5")[0]) == ["customer", "day", "part"]


def test_a_cursor_names_no_folder_outside_of_the_source(tmp_path: Path) -> None:
    """The files of a table may lie anywhere, also those that the index does not cover yet."""
    asked = Client(make_clone(tmp_path))
    found = list(pages(asked, "/rows?_from=10&_to=50&_limit=3"))
    assert [row["id"] for page in found for row in page["rows"]] == list(range(10, 50))
    assert {page["table_version"] for page in found} == {"2"}
    for page in found[:-1]:
        [after] = parse_qs(urlsplit(page["next"]).query)["_after"]
        told = base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)).decode()
        assert "private" not in told
        assert "/" not in told


@pytest.mark.parametrize("wrap", WRAPS)
def test_links_to_the_next_page_begin_with_the_prefix_of_the_service(settings: Settings, wrap: Wrap) -> None:
    asked = client(wrap, settings)
    for route, size in (("/rows", 180), ("/indexes/pages/rows", 180)):
        found = list(pages(asked, f"/gnomon{route}?_reverse=true&_limit=70"))
        assert [page["count"] for page in found] == [70, 70, size - 140]
        assert found[0]["next"].startswith(f"/gnomon{route}?_reverse=true&_limit=70&_after=")


def test_a_link_has_each_option_once_and_in_its_exact_text(sales: Client) -> None:
    prefix = "https://b.example/é"
    target = (
        f"/indexes/pages/rows?{query(prefix=prefix, columns='url,n', limit=2, where=('dt=0', 'dt=1'), explain='true')}"
    )
    for page in pages(sales, target):
        assert page["explain"]["index"]["reads"] >= 0
        if "next" not in page:
            break
        asked = parse_qs(urlsplit(page["next"]).query)
        assert [len(asked.pop("_after"))] == [1]
        assert asked == parse_qs(urlsplit(target).query)


def test_pages_go_on_though_a_snapshot_is_committed_between_them(tmp_path: Path) -> None:
    asked = Client(make_crawl(tmp_path))
    before = in_json(asked, "/rows?_reverse=false&_columns=url,dt")
    first, *_ = pages(asked, "/rows?_reverse=false&_limit=5&_columns=url,dt")
    pinned, *_ = pages(asked, "/rows?_reverse=false&_limit=5&_columns=url,dt&_snapshot=1")
    assert add_day(tmp_path, "2026-01-03", ["", "zzz", TWICE]) == 2
    assert asked.served.refresh()
    rest = list(pages(asked, first["next"]))
    assert {page["snapshot"] for page in rest} == {2}
    new = [{"url": url, "dt": "2026-01-03"} for url in (TWICE, "zzz")]
    found = first["rows"] + [row for page in rest for row in page["rows"]]
    assert sorted(map(repr, found)) == sorted(map(repr, before + new)), "the new empty key lies before the cursor"
    assert "_snapshot=1" in pinned["next"]
    rest = list(pages(asked, pinned["next"]))
    assert {page["snapshot"] for page in rest} == {1}
    assert pinned["rows"] + [row for page in rest for row in page["rows"]] == before


def test_a_page_after_the_last_row_is_empty_and_no_failure(tmp_path: Path) -> None:
    """The rows after a cursor may go before the next page is asked for."""
    asked = Client(make_crawl(tmp_path))
    first, *_ = pages(asked, "/rows?_from=tw&_limit=3")
    assert [row["url"] for row in first["rows"]] == [TWICE] * 3
    assert "next" not in first
    last, *_ = pages(asked, "/rows?_from=second&_limit=1&_columns=url")
    (tmp_path / "lake/dt=2026-01-01/p.parquet").unlink()
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": pa.table({"url": ["second"]})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    assert asked.served.refresh()
    after = asked.get(last["next"].replace("_from=second", "_from=tw"))
    assert (after.status_code, after.json()) == (200, {"rows": [], "count": 0, "snapshot": 2})
    assert asked.ask("HEAD", last["next"].replace("_from=second", "_from=tw")).status_code == 200
    assert asked.get("/rows?_from=tw").status_code == 404


def test_a_stale_file_is_answered_from_a_newer_snapshot_else_409(tmp_path: Path) -> None:
    asked = Client(make_crawl(tmp_path))
    assert len(in_json(asked, "/rows?_reverse=false")) == 18
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": pa.table({"url": ["second", "third"]})})
    for headers in ({}, {"Accept": ARROW}):
        assert asked.get("/rows?_reverse=false", headers).status_code == 409
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    answer = asked.get("/rows?_from=se&_to=tw&_columns=url").json()
    assert (answer["rows"], answer["snapshot"]) == ([{"url": "second"}, {"url": "third"}], 2)


def test_no_damaged_index_file_is_taken_for_one_without_keys(tmp_path: Path) -> None:
    asked = Client(make_crawl(tmp_path))
    next((tmp_path / "shadow").glob("dt=*/*.avro")).unlink()
    for method in ("GET", "HEAD"):
        assert asked.ask(method, "/rows?_reverse=false").status_code == 503


def test_explain_has_the_cost_and_not_the_steps(sales: Client, settings: Settings) -> None:
    told = Client(settings).get("/rows?_reverse=false&_limit=5&_explain=true").json()["explain"]
    assert set(told) == {"index", "source"}
    assert told["index"]["bytes"] > 0
    assert told["index"]["nodes"] > 0
    assert told["source"]["files"] > 0
    assert told["source"]["bytes"] > 0
    answer = sales.get("/rows?_reverse=false&_limit=5&_explain=true", {"Accept": ARROW})
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert set(json.loads(table.schema.metadata[b"gnomon.explain"])) == {"index", "source"}


def test_only_the_rows_of_a_page_are_read_from_the_source(settings: Settings) -> None:
    def cost(limit: int) -> Mapping[str, int]:
        told = Client(settings).get(f"/rows?_reverse=false&_limit={limit}&_explain=true").json()["explain"]
        source: Mapping[str, int] = told["source"]
        return source

    assert cost(1)["files"] == 1
    assert cost(180)["files"] == 3


def test_a_head_tells_whether_a_range_has_a_row_and_reads_no_source(tmp_path: Path) -> None:
    asked = Client(make_crawl(tmp_path))
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    for target, status in (("/rows?_prefix=tw", 200), ("/rows?_prefix=tx", 404), ("/rows?_reverse=true", 200)):
        answer = asked.ask("HEAD", target)
        assert (answer.status_code, answer.content) == (status, b"")


def test_a_page_that_the_client_has_is_304(sales: Client) -> None:
    target = "/rows?_reverse=false&_limit=3"
    answer = sales.get(target)
    assert answer.headers["cache-control"] == "private, no-cache"
    again = sales.get(target, {"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert sales.get(f"{target}&_snapshot=3").headers["cache-control"].endswith("immutable")


def test_rows_of_a_page_count_as_keys_of_a_batch_do(settings: Settings) -> None:
    limited = Client(replace(settings, requests_per_second=0.001, request_burst=10))
    assert limited.get("/rows?_reverse=false&_limit=1000").status_code == 200  # 1 and 10 more
    assert limited.get("/rows?_reverse=false&_limit=1").status_code == 429


def test_a_token_of_another_index_reads_no_range(settings: Settings) -> None:
    secret, token = new_token("reader", indexes=["pages"])
    guarded = Client(replace(settings, tokens=(token.line,)))
    bearer = {"Authorization": f"Bearer {secret}"}
    assert guarded.get("/rows?_reverse=false", bearer).status_code == 403
    assert guarded.get("/indexes/pages/rows?_reverse=false", bearer).status_code == 200
    assert guarded.get("/indexes/pages/rows?_reverse=false").status_code == 401


def test_nulls_come_first_and_before_an_open_beginning(tmp_path: Path) -> None:
    asked = Client(make_orders(tmp_path / "orders"))
    keys = [(row["country"], row["id"]) for row in in_json(asked, "/rows?_reverse=false&_limit=1")]
    assert keys == [(None, 3), ("de", 1), ("de", 2), ("fr", None)]
    assert [row["id"] for row in in_json(asked, "/rows?_to=de")] == [3]
    assert [row["id"] for row in in_json(asked, "/rows?_from=de&_from=2&_limit=1")] == [2, None]


def test_keys_of_types_that_only_sources_have_are_asked_by_their_text(tmp_path: Path) -> None:
    made = make_visits(tmp_path)
    for name in ("shadow", "by_id"):
        asked = Client(Settings(indexes=[str(tmp_path / name)]))
        key = "00010203-0405-0607-0809-0a0b0c0d0e0f"
        assert len(rows(asked.get(f"/rows?_from={key}&_to={key}&_inclusive=true"))) == 1
        assert asked.get(f"/rows?_to={key}").status_code == 404
    assert made


def test_a_key_value_folder_gives_a_range_in_one_page_or_says_so(tmp_path: Path) -> None:
    """Its rows have no place, after which a next page could begin: no row is left out in silence."""
    from gnomon import write_btree

    table = pa.table({"k": pa.array(range(150)), "v": pa.array([f"v{i}" for i in range(150)])})
    write_btree(table, str(tmp_path / "folder"), ["k"])
    asked = Client(Settings(indexes=[str(tmp_path / "folder")]))
    assert in_json(asked, "/rows?_from=10&_to=20") == table.slice(10, 10).to_pylist()
    assert in_json(asked, "/rows?_reverse=false&_limit=150") == table.to_pylist()
    refused = asked.get("/rows?_reverse=false")
    assert refused.status_code == 400
    assert "the range has more than 100 rows, and the rows of a key-value folder come in one page" in refused.text


def test_a_partition_column_of_the_key_selects_the_partition_of_a_range(tmp_path: Path) -> None:
    for day in "12":
        table = pa.table({"url": ["a", "b", "c"], "n": [int(day)] * 3})
        write_source(tmp_path / "lake", {f"dt=2026-01-0{day}/p.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["dt", "url"])
    asked = Client(Settings(indexes=[str(tmp_path / "shadow")]))

    def found(target: str) -> list[tuple[str, int]]:
        return [(row["url"], row["n"]) for row in in_json(asked, target)]

    assert found("/rows?_from=2026-01-02&_from=b&_limit=1") == [("b", 2), ("c", 2)]
    assert found("/rows?_prefix=2026-01-01&_limit=2") == [("a", 1), ("b", 1), ("c", 1)]
    both = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]
    assert found("/rows?_reverse=false&_limit=1") == both
    assert found("/rows?_reverse=true&_limit=4") == both[::-1]


def test_pages_are_read_from_a_server_over_one_connection(settings: Settings, index: Index) -> None:
    found: list[Row] = []
    with live(replace(settings, root_path="/gnomon")) as running, running.connect() as connection:
        target: str | None = f"/rows?_from=2&_limit=40&{query(where='part=2')}"
        while target is not None:
            connection.sendall(request(target))
            page = answer(connection)
            assert page.status == 200
            found += page.json()["rows"]
            target = page.json().get("next")
            assert page.headers.get("link", "") == (f'<{target}>; rel="next"' if target else "")
        connection.sendall(request("/gnomon/rows?_from=99", "HEAD"))
        assert answer(connection, "HEAD").status == 404
    assert found == list(index.range((2,), where={"part": "2"}))
    assert len(found) > 40

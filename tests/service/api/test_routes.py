"""service/api/routes.py: the answers of each route without faults."""

import re
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.service.http.requests import BatchRequest, parse_batch
from gnomon.service.settings.table import Settings
from tests.service.lake import ODD_KEYS, TWICE, Client, make_visits, rows
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.usefixtures("way")


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_with_everything_encoded_finds_its_row(crawl: Client, key: str) -> None:
    target = "/rows/" + "".join(f"%{byte:02X}" for byte in key.encode())
    answer = crawl.get(target).json()
    assert answer["key"] == {"url": key}
    assert [row["url"] for row in answer["rows"]] == [key]
    assert crawl.ask("HEAD", target).status_code == 200


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_in_the_query_finds_its_row(crawl: Client, key: str) -> None:
    assert [row["url"] for row in rows(crawl.get(f"/rows?url={quote(key, safe='')}"))] == [key]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_in_a_batch_finds_its_row(crawl: Client, key: str) -> None:
    [result] = crawl.post({"keys": [key]}).json()["results"]
    assert [row["url"] for row in result["rows"]] == [key]


@pytest.mark.parametrize("key", ["https://example.com/a//b", "a/b", "/"])
def test_slashes_need_no_encoding(crawl: Client, key: str) -> None:
    assert [row["url"] for row in rows(crawl.get(f"/rows/{key}"))] == [key]


def test_the_path_is_decoded_exactly_once(crawl: Client) -> None:
    assert rows(crawl.get("/rows/a%252Fb"))[0]["url"] == "a%2Fb"
    assert rows(crawl.get("/rows/a%2Fb"))[0]["url"] == "a/b"
    assert rows(crawl.get("/rows/100%2525"))[0]["url"] == "100%25"


def test_a_plus_is_a_plus_in_the_path_and_a_space_in_the_query(crawl: Client) -> None:
    assert rows(crawl.get("/rows/a+b%20c"))[0]["url"] == "a+b c"
    assert rows(crawl.get("/rows?url=a%2Bb+c"))[0]["url"] == "a+b c"


def test_the_answer_has_key_count_rows_and_snapshot(crawl: Client) -> None:
    response = crawl.get("/rows/a/b")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "key": {"url": "a/b"},
        "count": 1,
        "rows": [
            {
                "url": "a/b",
                "n": 2**60 + 5,
                "price": "0.05",
                "raw": "Bf8=",
                "at": "2026-01-01T00:00:05Z",
                "dt": "2026-01-01",
            }
        ],
        "snapshot": 1,
    }


def test_an_integer_beyond_53_bits_keeps_every_digit(crawl: Client) -> None:
    assert f'"n":{2**60 + 5}' in crawl.get("/rows/a/b").text


def test_keys_of_types_that_are_mapped_are_given_and_shown_as_in_the_rows(tmp_path: Path) -> None:
    visits = Client(make_visits(tmp_path))
    row = {
        "id": "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "time": "12:30:00.005",
        "at": "2026-01-01T12:30:00.123456789Z",
        "n": 2**64 - 1,
    }
    answer = visits.get(f"/rows?{urlencode(row)}").json()
    assert (answer["key"], answer["rows"]) == (row, [row])
    [listed, absent, wrong] = visits.post(
        {"keys": [list(row.values()), {**row, "time": 5}, {**row, "id": "x"}]}
    ).json()["results"]
    assert (listed["key"], listed["rows"]) == (row, [row])
    assert (absent["key"]["time"], absent["count"]) == ("00:00:00.005", 0)
    assert (wrong["error"]["column"], wrong["error"]["expected"]) == ("id", "uuid")
    by_id = Client(Settings(indexes=[str(tmp_path / "by_id")]))
    assert by_id.get(f"/rows/{row['id'].upper()}").json()["key"] == {"id": row["id"]}
    other = "ffffffff-ffff-ffff-ffff-ffffffffffff"
    problem = by_id.get(f"/rows/{other.replace('-', '')}")
    assert (problem.status_code, problem.json()["key"]) == (404, {"id": other})


def test_count_is_of_all_matches_also_under_limit(crawl: Client) -> None:
    for limit, expected in ((0, 0), (2, 2), (9, 3)):
        answer = crawl.get(f"/rows/{TWICE}?_limit={limit}").json()
        assert (answer["count"], len(answer["rows"])) == (3, expected)


def test_columns_come_in_the_order_asked(crawl: Client) -> None:
    assert list(rows(crawl.get("/rows/second?_columns=dt,n"))[0]) == ["dt", "n"]
    assert list(rows(crawl.get("/rows/second?_columns=dt&_columns=n"))[0]) == ["dt", "n"]


def test_where_narrows_to_a_partition(crawl: Client) -> None:
    assert crawl.get(f"/rows/{TWICE}?_where=dt=2026-01-02").json()["count"] == 1
    assert crawl.get(f"/rows/{TWICE}?_where=dt=2026-01-02&_where=dt=2026-01-01").json()["count"] == 3
    assert crawl.ask("HEAD", "/rows/second?_where=dt=2026-01-01").status_code == 404


def test_explain_says_what_the_answer_cost(own: Client) -> None:
    explain = own.get("/rows/second?_explain=true").json()["explain"]
    assert explain["bucket"] in range(4)
    assert set(explain["index"]) == {"nodes", "reads", "bytes", "filter_checks", "filter_bytes", "microseconds"}
    assert set(explain["source"]) == {"files", "reads", "bytes", "page_map_reads", "page_map_bytes", "microseconds"}
    assert explain["source"]["files"] == 1
    assert explain["source"]["bytes"] > 0
    again = own.get("/rows/second?_explain=true").json()["explain"]
    assert again["source"]["bytes"] == 0
    assert any(step["step"] == "pages" and step["cached"] for step in again["steps"])
    assert "explain" not in own.get("/rows/second?_explain=false").json()
    assert own.post({"keys": ["second", TWICE]}, "?_explain=true").json()["explain"]["source"]["files"] == 2


def test_head_has_no_body_and_claims_no_length(crawl: Client) -> None:
    for target, status in (("/rows/second", 200), ("/rows?url=second", 200), ("/rows/no", 404), ("/rows?url=no", 404)):
        response = crawl.ask("HEAD", target)
        assert (response.status_code, response.content) == (status, b"")
        assert "content-length" not in response.headers


def test_a_composite_key_is_asked_by_name(orders: Client) -> None:
    answer = orders.get("/rows?id=2&country=de").json()
    assert answer["key"] == {"country": "de", "id": 2}
    assert answer["rows"] == [{"country": "de", "id": 2, "day": "2026-01-02"}]


def test_a_batch_answers_in_the_order_asked_and_counts_absent_keys_zero(crawl: Client) -> None:
    answer = crawl.post({"keys": ["second", "no", TWICE, {"url": "a/b"}, ["a/b"]], "columns": ["url"]}).json()
    assert [(r["key"]["url"], r["count"]) for r in answer["results"]] == [
        ("second", 1),
        ("no", 0),
        (TWICE, 3),
        ("a/b", 1),
        ("a/b", 1),
    ]
    assert answer["results"][0]["rows"] == [{"url": "second"}]
    assert answer["snapshot"] == 1
    assert crawl.post({"keys": []}).json() == {"results": [], "snapshot": 1}


def test_a_large_batch_is_read_in_a_thread_of_its_index_not_in_the_event_loop(
    crawl: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(body: bytes, most_keys: int) -> BatchRequest:
        threads.append(threading.current_thread().name)
        return parse_batch(body, most_keys)

    monkeypatch.setattr("gnomon.service.api.routes.parse_batch", noted)
    assert crawl.post({"keys": ["second"] * 1000}).status_code == 200
    assert crawl.post({"keys": 1, "more": [1] * 1000}).status_code == 400
    assert threads == ["gnomon-shadow"] * 2


def test_null_keys_are_asked_in_a_batch(orders: Client) -> None:
    answer = orders.post({"keys": [[None, 3], {"country": "fr", "id": None}, [None, None]]}).json()
    assert [r["count"] for r in answer["results"]] == [1, 1, 0]
    assert answer["results"][1]["rows"][0]["day"] == "2026-01-04"


def test_limit_and_where_count_in_a_batch_too(crawl: Client) -> None:
    [result] = crawl.post({"keys": [TWICE]}, "?_limit=1&_where=dt=2026-01-01").json()["results"]
    assert (result["count"], len(result["rows"])) == (2, 1)


def test_a_key_that_fails_carries_its_error_and_the_others_are_answered(crawl: Client) -> None:
    answer = crawl.post({"keys": ["second", 7, {"x": 1}, "\ud800", "a/b"]}).json()
    statuses = [r["error"]["status"] if "error" in r else 200 for r in answer["results"]]
    assert statuses == [200, 400, 400, 400, 200]
    assert answer["results"][1]["key"] == {"url": 7}
    assert answer["results"][2]["key"] == {"x": 1}
    assert answer["results"][3]["key"] == {"url": "\ud800"}


def test_healthz_answers_and_readyz_says_snapshot_and_coverage(crawl: Client) -> None:
    assert crawl.get("/healthz").json() == {"alive": True}
    assert crawl.served.cover()
    ready = crawl.get("/readyz").json()
    assert ready["indexes"]["shadow"]["coverage"].pop("age_seconds") >= 0
    assert ready == {
        "ready": True,
        "compiled": kernel.COMPILED,
        "indexes": {
            "shadow": {
                "open": True,
                "snapshot": 1,
                "table_version": None,
                "rows": len(ODD_KEYS) + 4,
                "source_files": 2,
                "refused": None,
                "unreachable": None,
                "coverage": {"snapshot": 1, "new": 0, "changed": 0, "vanished": 0, "lake_table": None, "newer": None},
                "coverage_error": None,
                "saturated_seconds": 0.0,
            }
        },
    }


def test_every_get_has_a_head_with_its_status_and_without_its_body(crawl: Client) -> None:
    routes = [route for route in crawl.app.routes if "GET" in (getattr(route, "methods", None) or ())]
    assert routes
    for route in routes:
        target = str(route.path).replace("{key:key}", "second").replace("{name}", "shadow")  # type: ignore[attr-defined]
        if "{" in target:
            continue
        target += "?url=second" if target.endswith("/rows") else ""
        get, head = crawl.get(target), crawl.ask("HEAD", target)
        assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])


def test_a_method_without_an_answer_says_which_there_are(crawl: Client) -> None:
    for target, allowed in (
        ("/rows/a", "GET, HEAD"),
        ("/rows", "GET, HEAD, POST"),
        ("/indexes", "GET, HEAD"),
        ("/indexes/shadow", "GET, HEAD"),
        ("/indexes/shadow/rows", "GET, HEAD, POST"),
    ):
        response = crawl.ask("DELETE", target)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)


def test_a_key_that_was_not_found_in_a_partition_says_that_only_it_was_asked(crawl: Client) -> None:
    problem = crawl.get("/rows/second?_where=dt=2026-01-01").json()
    assert problem["asked"] == {"where": {"dt": ["2026-01-01"]}, "partitions": 1, "rows": len(ODD_KEYS) + 2}
    assert problem["covered"] == {"rows": len(ODD_KEYS) + 4, "source_files": 2}
    both = crawl.get("/rows/none?_where=dt=2026-01-01&_where=dt=2026-01-02").json()
    assert both["detail"].startswith(
        "where dt=2026-01-01 or 2026-01-02 no row has this key; only that part of snapshot"
    )
    assert (both["asked"]["partitions"], both["asked"]["rows"]) == (2, len(ODD_KEYS) + 4)


def test_a_partition_that_is_not_there_is_no_missing_key(crawl: Client) -> None:
    for query in ("_where=dt=2026-01-03", "_where=dt=2026-01-01&_where=dt=2026-01-03"):
        problem = crawl.get(f"/rows/{TWICE}?{query}").json()
        assert (problem["status"], problem["title"]) == (400, "Partition not found")
        assert problem["detail"] == ("where: no partition has dt=2026-01-03; dt has the values 2026-01-01, 2026-01-02")
        for answer in (crawl.ask("HEAD", f"/rows/{TWICE}?{query}"), crawl.post({"keys": [TWICE]}, f"?{query}")):
            assert answer.status_code == 400


def test_steps_are_told_of_a_single_key_in_the_order_of_their_begin(crawl: Client) -> None:
    steps = crawl.get(f"/rows/{TWICE}?_explain=true").json()["explain"]["steps"]
    assert [step["begin_us"] for step in steps] == sorted(step["begin_us"] for step in steps)
    assert {"key", "index_file", "node", "source_file", "decode", "key_check"} <= {step["step"] for step in steps}
    assert not [step for step in steps if step.get("file", "").startswith("/")]


def test_steps_do_not_tell_the_values_of_hidden_partitions(crawl_settings: Settings) -> None:
    hiding = Client(replace(crawl_settings, hidden_columns={"shadow": ("dt",)}))
    answer = hiding.get(f"/rows/{TWICE}?_explain=true")
    assert (answer.status_code, "2026-01-0" in answer.text.partition('"explain"')[2]) == (200, False)
    refused = hiding.get(f"/rows/{TWICE}?_where=dt=2026-01-01")
    assert (refused.status_code, refused.json()["detail"]) == (
        400,
        "where: dt is not a partition column (there are: none)",
    )


def test_errors_of_a_batch_repeat_neither_its_target_nor_what_was_given(crawl: Client) -> None:
    deep = "[" * 200 + "]" * 200
    keys = ", ".join(["7"] * 2000 + [f'"{"x" * 20_000}"', deep])
    response = crawl.ask("POST", f"/rows?{'&'.join(['_where=dt=2026-01-01'] * 500)}", f'{{"keys": [{keys}]}}'.encode())
    results = response.json()["results"]
    assert [result["error"]["status"] for result in results] == [400] * 2002
    assert len(response.content) < 2002 * 600
    assert results[-1]["key"] == {"url": "a list"} or results[-1]["key"] == ["a list"]


def test_rows_beyond_a_limit_are_refused_with_how_many_there_are(crawl_settings: Settings) -> None:
    few = Client(replace(crawl_settings, max_rows=2))
    problem = few.get(f"/rows/{TWICE}").json()
    assert (problem["status"], problem["title"]) == (413, "Answer too large")
    assert "the key has 3 rows" in problem["detail"]
    assert problem["detail"].endswith("(setting max_rows)")
    assert few.get(f"/rows/{TWICE}?_limit=2").json()["count"] == 3
    [large, small] = few.post({"keys": [TWICE, "second"]}).json()["results"]
    assert (large["error"]["status"], small["count"]) == (413, 1)
    small_answers = Client(replace(crawl_settings, max_answer_bytes=1024))
    refused = small_answers.ask("POST", "/rows", {"keys": ["none"] * 100})
    assert (refused.status_code, "at most 1,024 (setting max_answer_bytes)" in refused.json()["detail"]) == (413, True)


def test_rows_that_come_to_more_bytes_than_an_answer_takes_are_refused_before_all_are_fetched(tmp_path: Path) -> None:
    table = pa.table({"k": ["many"] * 200, "text": [f"{n} ".ljust(1000, "x") for n in range(200)]})
    files = {f"{name}.parquet": table for name in "abcd"} | {"e.parquet": pa.table({"k": ["one"], "text": ["x"]})}
    write_source(tmp_path / "lake", files, use_dictionary=False)
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")], max_answer_bytes=20_000))
    refused = client.get("/rows/many").json()
    assert (refused["status"], refused["title"]) == (413, "Answer too large")
    found = re.fullmatch(
        r"the key has 800 rows, (\d+) of which take [\d,]+ bytes; an answer takes 20,000 bytes at most: .*"
        r"\(setting max_answer_bytes\)",
        refused["detail"],
    )
    assert found is not None, refused
    assert int(found[1]) < 800
    many, one = client.post({"keys": ["many", "one"]}).json()["results"]
    assert (many["error"]["status"], one["count"]) == (413, 1)
    assert client.get("/rows/many?_limit=2").json()["count"] == 800

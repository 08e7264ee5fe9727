"""Answers as CSV."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from gnomon.service.settings.table import Settings
from tests.service.lake import TWICE, Client
from tests.shadow.make_index import index_source, write_source

CSV = {"accept": "text/csv"}


def table(response: httpx.Response) -> list[list[str]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.reader(io.StringIO(response.text, newline=""), strict=True))


def test_rows_have_the_values_of_json_and_texts_as_they_are(tmp_path: Path) -> None:
    texts = ["plain", 'a "quoted", one', "two\r\nlines", "=1+1", "", None, " é "]
    values = pa.table(
        {
            "id": range(len(texts)),
            "text": texts,
            "float": pa.array([float("nan"), 1e300, None, -0.0, 1.5, 0.1, 2.0], pa.float64()),
            "flag": [True, False, None, True, True, True, True],
            "raw": [b"\x00\xff"] * len(texts),
            "list": [[1, None], [], None, [2], [3], [4], [5]],
            "record": [{"a": "b,c", "d": None}] * len(texts),
        }
    )
    write_source(tmp_path / "lake", {"a.parquet": values})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["id"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    for key in range(len(texts)):
        header, row = table(client.get(f"/rows/{key}", CSV))
        [expected] = client.get(f"/rows/{key}").json()["rows"]
        assert header == list(expected)
        for field, value in zip(row, expected.values(), strict=True):
            if value is None or isinstance(value, str):
                assert field == (value or "")
            else:
                assert json.loads(field) == value


def test_columns_and_the_limit_are_those_of_the_query(crawl: Client) -> None:
    assert table(crawl.get(f"/rows/{TWICE}?_columns=dt,url&_limit=2", CSV)) == [
        ["dt", "url"],
        ["2026-01-01", TWICE],
        ["2026-01-01", TWICE],
    ]


def test_a_batch_says_which_key_a_row_is_of(crawl: Client) -> None:
    body = {"keys": ["second", "absent", TWICE], "columns": ["url"]}
    rows = table(crawl.ask("POST", "/rows", body, CSV))
    assert rows == [["key_number", "url"], ["0", "second"], ["2", TWICE], ["2", TWICE], ["2", TWICE]]
    failed = crawl.ask("POST", "/rows", {"keys": ["second", 5]}, CSV)
    assert (failed.status_code, failed.json()["key_number"]) == (400, 1)


def test_a_range_comes_page_by_page_by_the_link_in_the_header(crawl: Client) -> None:
    target, found = "/rows?_from=a&_limit=2&_columns=url", []
    while target:
        response = crawl.get(target, CSV)
        header, *rows = table(response)
        assert header == ["url"]
        found += [url for [url] in rows]
        target = response.links["next"]["url"] if "next" in response.links else ""
    expected = [row["url"] for row in crawl.get("/rows?_from=a&_columns=url").json()["rows"]]
    assert len(found) > 4
    assert found == expected


@pytest.mark.parametrize(
    ("target", "status", "title"),
    [
        ("/rows/absent", 404, "Key not found"),
        ("/rows?_prefix=zzz", 404, "Key not found"),
        ("/rows/second?_columns=none", 400, "Unknown column"),
        ("/rows/second?_explain=true", 400, "Bad request"),
    ],
)
def test_a_failure_is_a_problem(crawl: Client, target: str, status: int, title: str) -> None:
    response = crawl.get(target, CSV)
    assert (response.status_code, response.json()["title"]) == (status, title)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_hidden_column_is_not_there_and_limits_hold(crawl_settings: Settings) -> None:
    hiding = Client(replace(crawl_settings, hidden_columns={"shadow": ["raw"]}, max_rows=2))
    header, _ = table(hiding.get("/rows/second", CSV))
    assert "raw" not in header
    assert hiding.get(f"/rows/{TWICE}", CSV).status_code == 413
    assert hiding.get("/rows/second?_columns=raw", CSV).status_code == 400


def test_an_answer_that_is_kept_is_kept_for_its_own_type(crawl: Client) -> None:
    for _ in range(2):
        assert crawl.get("/rows/second").headers["content-type"] == "application/json"
        assert len(table(crawl.get("/rows/second", CSV))) == 2
        assert crawl.get("/rows/second", CSV).headers["etag"] != crawl.get("/rows/second").headers["etag"]

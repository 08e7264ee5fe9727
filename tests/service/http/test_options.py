"""service/http/requests.py: options and key columns share a query, and are never confused."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.service.errors import BadRequest
from gnomon.service.http.requests import NAMES, Options, query_options
from gnomon.service.settings.table import Settings
from tests.service.lake import Client, rows
from tests.shadow.make_index import index_source, write_source

TABLE = pa.table({"limit": [1, 2, 2, 2], "_limit": ["a", "b", "b", "c"], "n": [0, 1, 2, 3]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("options")
    write_source(made / "lake", {"a.parquet": TABLE})
    return made


def client(folder: Path, *keys: str) -> Client:
    index = folder / "-".join(keys)
    index_source(folder / "lake", index, list(keys))
    return Client(Settings(indexes=[str(index)]))


def given(query: str) -> tuple[Options, dict[str, str]]:
    return query_options({"query_string": query.encode()})


def test_options_and_other_parameters_are_told_apart() -> None:
    values = {"_columns": "a,b", "_where": "dt=1", "_limit": "3", "_snapshot": "4", "_explain": "true"}
    assert set(values) == set(NAMES)
    others = {name.removeprefix("_"): value for name, value in values.items()}
    query = "&".join(f"{name}={value}" for name, value in (values | others).items())
    assert given(query) == (Options(["a", "b"], {"dt": ["1"]}, 3, 4, True), others)


def test_an_option_with_one_value_is_given_once() -> None:
    with pytest.raises(BadRequest, match=r"^_limit is given twice"):
        given("_limit=5&_limit=6")
    assert given("_columns=a&_columns=b") == (Options(columns=["a", "b"]), {})


def test_a_fault_names_the_option() -> None:
    with pytest.raises(BadRequest, match=r"^_limit: expected a whole number from 0 to 999999999999999999, found x"):
        given("_limit=x")


def test_a_parameter_without_the_underscore_is_a_key_column_and_never_an_option(folder: Path) -> None:
    limit = client(folder, "limit")
    assert [row["n"] for row in rows(limit.get("/rows?limit=2"))] == [1, 2, 3]
    assert [row["n"] for row in rows(limit.get("/rows?limit=2&_limit=1"))] == [1]
    assert limit.ask("HEAD", "/rows?limit=3").status_code == 404
    refused = limit.get("/rows/2?limit=1")  # this query has no key column
    assert (refused.status_code, refused.json()["detail"]) == (
        400,
        "unknown parameter limit; there are _columns, _where, _limit, _snapshot, _explain",
    )


def test_a_key_column_called_like_an_option_is_asked_by_post_or_in_the_path(folder: Path) -> None:
    only, both = client(folder, "_limit"), client(folder, "limit", "_limit")
    assert [row["n"] for row in rows(only.get("/rows/b?_limit=1"))] == [1]
    refused = only.get("/rows?_limit=1").json()["detail"]
    assert refused == "the key needs the columns _limit; found none; _limit is an option of every query: ask by POST"
    [found] = both.post({"keys": [{"limit": 2, "_limit": "b"}]}, "?_limit=1&_columns=n").json()["results"]
    assert (found["count"], found["rows"]) == (2, [{"n": 1}])

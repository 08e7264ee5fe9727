"""service/http/options.py: options and key columns share a query, and are never confused."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.service.errors import BadRequest
from gnomon.service.http.options import OPTIONS, Options, query_options
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


def given(query: str, *key_columns: str) -> tuple[Options, dict[str, str]]:
    return query_options({"query_string": query.encode()}, lambda: key_columns)


def test_an_option_means_the_same_under_its_old_name() -> None:
    values = {"_columns": "a,b", "_where": "dt=1", "_limit": "3", "_snapshot": "4", "_explain": "true"}
    wanted = Options(["a", "b"], {"dt": ["1"]}, 3, 4, True)
    renamed = [one for one in OPTIONS if one.old_name]
    assert {one.name for one in renamed} == set(values)
    for names in ({one.name: one.name for one in renamed}, {one.name: one.old_name for one in renamed}):
        query = "&".join(f"{names[name]}={value}" for name, value in values.items())
        assert given(f"{query}&k=5") == (wanted, {"k": "5"})


def test_an_old_name_that_a_key_column_has_is_the_column() -> None:
    assert given("limit=5&_limit=6", "limit") == (Options(limit=6), {"limit": "5"})
    assert given("limit=5", "other") == (Options(limit=5), {})


def test_an_option_of_the_name_of_a_key_column_is_the_option() -> None:
    assert given("_limit=5", "_limit") == (Options(limit=5), {})


def test_an_option_under_both_names_is_given_twice() -> None:
    with pytest.raises(BadRequest, match=r"^limit is given twice"):
        given("_limit=5&limit=6")
    assert given("_columns=a&columns=b") == (Options(columns=["a", "b"]), {})


def test_a_fault_names_the_option_as_it_was_given() -> None:
    for name in ("limit", "_limit"):
        with pytest.raises(BadRequest, match=f"^{name}: expected a whole number from 0 to 999999999999999999, found x"):
            given(f"{name}=x")


def test_a_key_column_called_like_an_old_option_is_asked_in_the_query(folder: Path) -> None:
    limit = client(folder, "limit")
    assert [row["n"] for row in rows(limit.get("/rows?limit=2"))] == [1, 2, 3]
    assert [row["n"] for row in rows(limit.get("/rows?limit=2&_limit=1"))] == [1]
    assert [row["n"] for row in rows(limit.get("/rows/2?limit=1"))] == [1]  # this query has no key column
    assert limit.ask("HEAD", "/rows?limit=3").status_code == 404


def test_a_key_column_called_like_an_option_is_asked_by_post_or_in_the_path(folder: Path) -> None:
    only, both = client(folder, "_limit"), client(folder, "limit", "_limit")
    assert [row["n"] for row in rows(only.get("/rows/b?_limit=1"))] == [1]
    refused = only.get("/rows?_limit=1").json()["detail"]
    assert refused == "the key needs the columns _limit; found none; _limit is an option of every query: ask by POST"
    [found] = both.post({"keys": [{"limit": 2, "_limit": "b"}]}, "?_limit=1&_columns=n").json()["results"]
    assert (found["count"], found["rows"]) == (2, [{"n": 1}])

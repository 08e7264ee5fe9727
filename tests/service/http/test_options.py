"""service/http/requests.py: options and key columns share a query, and are never confused."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.service.errors import BadRequest
from gnomon.service.http.requests import NAMES, OF_RANGES, Options, RangeOptions, options_alone, query_options
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
    ends = {"_prefix": "p", "_from": "l", "_to": "h", "_inclusive": "true", "_reverse": "true", "_after": "c"}
    assert (*values, *ends) == NAMES
    others = {name.removeprefix("_"): value for name, value in (values | ends).items()}

    def query(*parts: dict[str, str]) -> str:
        return "&".join(f"{name}={value}" for part in parts for name, value in part.items())

    assert given(query(values, others)) == (Options(["a", "b"], {"dt": ["1"]}, 3, 4, True), others)
    asked = RangeOptions(["p"], ["l"], ["h"], True, True, "c")
    assert given(query(values, ends)) == (Options(["a", "b"], {"dt": ["1"]}, 3, 4, True, asked), {})


@pytest.mark.parametrize("name", OF_RANGES)
def test_an_option_of_a_range_stands_with_no_key(name: str) -> None:
    value = "true" if name in ("_inclusive", "_reverse") else "a"
    with pytest.raises(BadRequest, match=f"^url and {name}: expected a key or a range of keys, not both"):
        given(f"{name}={value}&url=a")
    with pytest.raises(BadRequest, match="are options of GET /rows without a key"):
        options_alone({"query_string": f"{name}={value}".encode()})


def test_each_end_of_a_range_has_the_values_of_several_columns() -> None:
    asked, _ = given("_from=4711&_from=2026-06-01&_to=&_limit=2")
    assert (asked.limit, asked.range) == (2, RangeOptions(low=["4711", "2026-06-01"], high=[""]))
    for name in ("_inclusive", "_reverse", "_after"):
        with pytest.raises(BadRequest, match=f"^{name} is given twice"):
            given(f"{name}=true&{name}=true")


def test_a_limit_alone_asks_for_no_range() -> None:
    """A key that was forgotten must not give other rows."""
    assert given("_limit=1&_columns=a&_where=dt=1&_snapshot=1&_explain=false")[0].range is None
    assert given("_reverse=false")[0].range == RangeOptions()


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

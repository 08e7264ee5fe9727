"""service/indexes/places.py: no answer shows a hidden column, and a request for one finds no such column."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import build
from gnomon.service.api.responses import ARROW
from gnomon.service.errors import redact
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError
from gnomon.sources import DamagedSource
from tests.service.lake import TWICE, Client, make_crawl, make_orders

HIDDEN = "raw", "dt"


def test_a_list_of_no_columns_is_an_error(tmp_path: Path) -> None:
    made = make_crawl(tmp_path)
    with pytest.raises(UsageError, match="setting columns: index crawl: expected at least one column, found none"):
        Client(Settings(indexes=[f"crawl={made.indexes[0]}"], columns={"crawl": ()}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("columns")


@pytest.fixture(scope="module")
def crawl(folder: Path) -> Client:
    made = make_crawl(folder / "crawl")
    return Client(Settings(indexes=[f"crawl={made.indexes[0]}"], hidden_columns={"crawl": HIDDEN}))


@pytest.fixture(scope="module")
def orders(folder: Path) -> Client:
    """An index that shows only `id` of its key, and no other column."""
    made = make_orders(folder / "orders")
    return Client(Settings(indexes=[f"orders={made.indexes[0]}"], columns={"orders": ["id"]}))


TARGETS = [
    "/rows/second",
    "/rows/second?_explain=true",
    "/rows/absent",
    "/rows/second?_columns=nothing",
    "/rows?nothing=1",
    "/indexes",
    "/indexes/crawl",
    "/readyz",
]


@pytest.mark.parametrize("target", TARGETS)
def test_no_answer_names_a_hidden_column_or_holds_its_value(crawl: Client, target: str) -> None:
    text = crawl.get(target).text
    for hidden in ("2026-01-02", *HIDDEN):
        assert not re.search(rf"\b{hidden}\b", text), hidden


def test_rows_have_the_shown_columns_alone_in_json_a_batch_and_arrow(crawl: Client) -> None:
    shown = ["url", "n", "price", "at"]
    [row] = crawl.get("/rows/second").json()["rows"]
    assert list(row) == shown
    [result] = crawl.post({"keys": ["second"]}).json()["results"]
    assert list(result["rows"][0]) == shown
    stream = crawl.ask("GET", "/rows/second", None, {"Accept": ARROW}).content
    assert pa.ipc.open_stream(io.BytesIO(stream)).read_all().column_names == shown


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_column_asked_for_is_answered_as_one_that_there_is_not(crawl: Client, name: str) -> None:
    def refused(asked: str) -> list[str]:
        queries = f"?_columns={asked}", f"?_where={asked}=2026-01-02"
        answers = [crawl.get(f"/rows/{TWICE}{query}") for query in queries]
        answers.append(crawl.post({"keys": [TWICE], "columns": [asked]}))
        assert [answer.status_code for answer in answers] == [400, 400, 400]
        return [answer.json()["detail"].replace(asked, "*") for answer in answers]

    assert refused(name) == refused("nothing")


def test_a_key_is_asked_by_all_its_columns_and_told_by_those_that_are_shown(orders: Client) -> None:
    answer = orders.get("/rows?country=de&id=2").json()
    assert (answer["key"], answer["rows"]) == ({"id": 2}, [{"id": 2}])
    missing = orders.get("/rows?country=de&id=9")
    assert (missing.status_code, missing.json()["key"]) == (404, {"id": 9})
    wrong = orders.get("/rows?id=2")
    assert wrong.status_code == 400
    assert "country" not in json.dumps({**wrong.json(), "instance": ""})


@pytest.mark.parametrize("setting", [{}, {"columns": {"shadow": ["payload", "z"]}}])
def test_a_key_in_a_struct_is_asked_by_its_path(tmp_path: Path, setting: dict[str, Any]) -> None:
    client = Client(Settings(indexes=[index_of_structs(tmp_path)], **setting))
    row = {"payload": {"order": {"id": 5}}, "z": 50}
    answer = client.get("/rows?payload.order.id=5").json()
    assert (answer["key"], answer["rows"]) == ({NESTED: 5}, [row])
    assert client.get("/rows/5").json()["rows"] == [row]
    assert client.post({"keys": [{NESTED: 5}]}).json()["results"][0]["rows"] == [row]
    [known] = client.get("/indexes/shadow").json()["keys"]
    assert known["name"] == NESTED
    assert "the key needs the columns payload.order.id" in client.get("/rows?id=5").json()["detail"]


def test_a_key_in_a_hidden_struct_is_not_shown(tmp_path: Path) -> None:
    place = index_of_structs(tmp_path)
    for setting in ({"hidden_columns": {"shadow": ["payload"]}}, {"columns": {"shadow": ["z"]}}):
        client = Client(Settings(indexes=[place], **setting))
        answer = client.get("/rows?payload.order.id=5&_explain=true")
        assert (answer.json()["key"], answer.json()["rows"]) == ({}, [{"z": 50}])
        answers = [client.get(one).text for one in ("/rows/x", "/rows?z=1", "/indexes", "/indexes/shadow", "/rows/77")]
        answers.append(client.post({"keys": [5, [1, 2]]}).text)
        assert not [one for one in [answer.text.replace("rows?payload.order.id", ""), *answers] if "payload" in one]


NESTED = "payload.order.id"


def index_of_structs(root: Path) -> str:
    """An index by a key in a struct."""
    (root / "source").mkdir()
    rows = [{"payload": {"order": {"id": number}}, "z": 10 * number} for number in range(9)]
    pq.write_table(pa.Table.from_pylist(rows), root / "source/a.parquet")
    build(None, root / "source", root / "shadow", [NESTED])
    return str(root / "shadow")


def test_a_column_that_is_misspelt_in_the_settings_is_not_shown_for_want_of_hiding(folder: Path) -> None:
    made = make_orders(folder / "misspelt")
    with pytest.raises(UsageError, match="setting hidden_columns: index shadow has no column contry; it has country"):
        Client(Settings(indexes=made.indexes, hidden_columns={"shadow": ["contry"]}))


def test_an_error_of_a_file_names_no_hidden_column(crawl: Client) -> None:
    """This includes payload columns, which an error of opening a file may name."""
    [served] = crawl.app.state.service.indexes
    error = DamagedSource("its pages end early", "part-0.parquet", column="raw")
    assert "raw" in str(error)
    assert not re.search(r"\braw\b", redact(error, served.roots))

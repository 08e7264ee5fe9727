"""service/indexes/served.py: several indexes in one service, each below its own path, the first also at /rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gnomon.jobs.build import build
from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError
from tests.service.lake import ODD_KEYS, Client, make_crawl, make_orders


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder: Path = tmp_path_factory.mktemp("both")
    crawl, orders = make_crawl(folder / "one"), make_orders(folder / "two")
    return Client(Settings(indexes=[f"crawl={crawl.indexes[0]}", f"orders={orders.indexes[0]}"]))


def test_each_index_answers_below_its_name_and_the_first_at_rows(both: Client) -> None:
    by_name, by_default = both.get("/indexes/crawl/rows/second"), both.get("/rows/second")
    assert by_name.json() == by_default.json()
    assert by_name.json()["count"] == 1
    assert both.get("/indexes/orders/rows?country=de&id=2").json()["count"] == 1
    assert both.ask("HEAD", "/indexes/orders/rows?country=de&id=9").status_code == 404
    batch = both.ask("POST", "/indexes/orders/rows", {"keys": [["de", 1], [None, 3]]}).json()
    assert [result["count"] for result in batch["results"]] == [1, 1]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_every_key_arrives_whole_below_a_name(both: Client, key: str) -> None:
    path = "/indexes/crawl/rows/" + "".join(f"%{byte:02x}" for byte in key.encode())
    answer = both.get(path).json()
    assert (answer["key"], answer["count"]) == ({"url": key}, 1)


def test_an_index_that_is_not_there_is_404_and_the_others_are_named(both: Client) -> None:
    answer = both.get("/indexes/pages/rows/x")
    assert (answer.status_code, answer.json()["title"]) == (404, "No such index")
    assert answer.json()["detail"] == "there is no index of this name; there are crawl, orders"


def test_readiness_is_told_of_each(both: Client) -> None:
    assert list(both.get("/readyz").json()["indexes"]) == ["crawl", "orders"]


def test_freshness_that_no_index_can_have_is_refused_and_one_that_some_lack_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = make_crawl(tmp_path / "crawl").indexes[0]
    with pytest.raises(UsageError, match=r"newest: .* has no versions, as a Delta or Iceberg table has"):
        create_app(Settings(indexes=[plain], freshness="newest"))
    write_deltalake(str(tmp_path / "table"), pa.table({"id": ["present"]}))
    build(None, f"delta:{tmp_path}/table", tmp_path / "index", ["id"])
    create_app(Settings(indexes=[f"pages={plain}", f"orders={tmp_path}/index"], freshness="newest"))
    assert "index pages: its source has no versions, so that freshness has no effect" in caplog.text
    assert "index orders: its source" not in caplog.text

"""service/api/describe.py: the descriptions of the indexes of a service."""

import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.jobs.build import write_btree
from gnomon.service.api import describe
from gnomon.service.settings.table import Settings
from tests.service.lake import ODD_KEYS, Client, add_day, make_crawl, make_orders
from tests.shadow.make_index import index_source, write_source

SNAPSHOT = "_shadow/snapshots/{:020d}.json"


def description(client: Client, name: str) -> dict[str, Any]:
    response = client.get(f"/indexes/{name}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder: Path = tmp_path_factory.mktemp("described")
    crawl, orders = make_crawl(folder / "one"), make_orders(folder / "two")
    return Client(Settings(indexes=[f"crawl={crawl.indexes[0]}", f"orders={orders.indexes[0]}"]))


def test_the_list_names_every_index_the_default_first(both: Client) -> None:
    rows = len(ODD_KEYS) + 4
    crawl = {"name": "crawl", "default": True, "url": "/indexes/crawl", "open": True, "snapshot": 1, "rows": rows}
    orders = {"name": "orders", "default": False, "url": "/indexes/orders", "open": True, "snapshot": 1, "rows": 4}
    expected = [{**crawl, "keys": ["url"]}, {**orders, "keys": ["country", "id"]}]
    assert both.get("/indexes").json() == {"indexes": expected}


def test_an_index_is_described_whole(both: Client) -> None:
    told = description(both, "crawl")
    assert (told["name"], told["default"], told["open"], told["format"]) == ("crawl", True, True, "parquet")
    assert told["keys"] == [{"name": "url", "type": "string", "partition": False}]
    assert told["columns"] == [
        {"name": "url", "type": "string"},
        {"name": "n", "type": "int64"},
        {"name": "price", "type": "decimal128(10, 2)"},
        {"name": "raw", "type": "binary"},
        {"name": "at", "type": "timestamp[us, tz=UTC]"},
        {"name": "dt", "type": "string"},
    ]
    assert (told["included"], told["partition_columns"], told["flat"], told["buckets"]) == ([], ["dt"], False, 4)
    rows = len(ODD_KEYS) + 4
    snapshot = told["snapshot"]
    assert (snapshot["number"], snapshot["operation"], snapshot["rows"]) == (1, "build", rows)
    committed = dt.datetime.fromisoformat(snapshot["committed_at"])
    assert 0 <= snapshot["age_seconds"] <= (dt.datetime.now(dt.UTC) - committed).total_seconds()
    assert (told["source_files"], told["segments"], told["refused"]) == (2, 1, None)
    assert told["limits"] == {
        "max_key_bytes": 16_384,
        "max_batch_keys": 10_000,
        "max_rows": 10_000,
        "max_answer_bytes": 32 * 1024 * 1024,
    }


def test_partitions_and_buckets_add_up_to_the_whole(both: Client) -> None:
    told = description(both, "crawl")
    names = [(one["partition"], one["rows"], one["source_files"]) for one in told["partitions"]]
    assert names == [("dt=2026-01-01", len(ODD_KEYS) + 2, 1), ("dt=2026-01-02", 2, 1)]
    assert told["partitions_total"] == 2
    assert sum(told["bucket_rows"]) == told["snapshot"]["rows"]
    sizes = [path.stat().st_size for path in Path(both.served.place.path).glob("dt=*/*.avro")]
    assert told["index_files"] == len(sizes)
    assert told["index_bytes"] == sum(told["bucket_bytes"]) == sum(sizes)
    assert sum(one["index_bytes"] for one in told["partitions"]) == told["index_bytes"]
    filters = Path(both.served.place.path).glob("_shadow/filters/**/*.filter")
    assert told["filter_bytes"] == sum(path.stat().st_size for path in filters)


def test_only_the_last_partitions_are_told_and_how_many_there_are(
    own: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "MOST_PARTITIONS", 2)
    add_day(tmp_path, "2026-01-03", ["third"])
    own.served.refresh()
    told = description(own, "shadow")
    assert [one["partition"] for one in told["partitions"]] == ["dt=2026-01-02", "dt=2026-01-03"]
    assert told["partitions_total"] == 3


def test_snapshots_are_told_oldest_first_and_a_damaged_one_by_its_number(tmp_path: Path) -> None:
    settings = make_crawl(tmp_path)
    add_day(tmp_path, "2026-01-03", ["third"])
    add_day(tmp_path, "2026-01-04", ["fourth"])
    path = tmp_path / "shadow" / SNAPSHOT.format(2)
    path.write_bytes(path.read_bytes()[:-20])
    first, second, third = description(Client(settings), "shadow")["snapshots"]
    assert (first["snapshot"], first["operation"], first["rows"]) == (1, "build", len(ODD_KEYS) + 4)
    assert first["committed_at"].endswith("Z")
    assert second == {"snapshot": 2, "committed_at": None, "operation": None, "rows": None, "table_version": None}
    assert (third["snapshot"], third["rows"]) == (3, len(ODD_KEYS) + 6)


def test_snapshots_are_looked_for_again_and_only_now_and_then(tmp_path: Path) -> None:
    settings = make_crawl(tmp_path)
    often, seldom = (Client(replace(settings, refresh_seconds=s)) for s in (0.01, 3600.0))
    assert [len(description(client, "shadow")["snapshots"]) for client in (often, seldom)] == [1, 1]
    add_day(tmp_path, "2026-01-03", ["third"])
    assert [len(description(client, "shadow")["snapshots"]) for client in (often, seldom)] == [2, 1]
    seldom.served.refresh()
    assert len(description(seldom, "shadow")["snapshots"]) == 2, "the one that is served is always told"


def test_an_index_is_described_while_its_snapshots_cannot_be_listed(tmp_path: Path) -> None:
    client = Client(replace(make_crawl(tmp_path), refresh_seconds=0.01))
    assert len(description(client, "shadow")["snapshots"]) == 1
    shutil.rmtree(tmp_path / "shadow" / "_shadow")
    assert [one["snapshot"] for one in description(client, "shadow")["snapshots"]] == [1]


def test_a_new_snapshot_changes_what_is_told(own: Client, tmp_path: Path) -> None:
    before = description(own, "shadow")
    add_day(tmp_path, "2026-01-03", ["third", "fourth"])
    assert description(own, "shadow")["snapshot"]["rows"] == before["snapshot"]["rows"]
    own.served.refresh()
    after = description(own, "shadow")
    assert after["snapshot"]["rows"] == before["snapshot"]["rows"] + 2
    assert (after["segments"], after["source_files"]) == (2, 3)
    assert own.get("/indexes").json()["indexes"][0]["snapshot"] == 2


def test_hidden_columns_are_not_told(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b"], "secret": ["x", "y"], "n": [1, 2]})
    places = ("dt=2026-01-01/team=red", "dt=2026-01-01/team=blue", "dt=2026-01-02/team=red")
    write_source(tmp_path / "lake", {f"{place}/p.parquet": table for place in places})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k", "secret"], include=["n"])
    hidden = {"shadow": ("secret", "team", "n")}
    client = Client(Settings(indexes=[str(tmp_path / "shadow")], hidden_columns=hidden))
    told = client.get("/indexes/shadow")
    assert not [word for word in ("secret", "team", "red", '"n"') if word in told.text]
    partitions = [(one["partition"], one["rows"], one["source_files"]) for one in told.json()["partitions"]]
    assert partitions == [("dt=2026-01-01", 4, 2), ("dt=2026-01-02", 2, 1)]
    assert client.get("/indexes").json()["indexes"][0]["keys"] == ["k"]
    only = Client(Settings(indexes=[str(tmp_path / "shadow")], columns={"shadow": ("k", "dt")}))
    assert [one["name"] for one in description(only, "shadow")["columns"]] == ["k", "dt"]


def test_in_a_flat_index_no_index_file_is_of_one_partition(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b"]})
    write_source(tmp_path / "lake", {"dt=1/p.parquet": table, "dt=2/p.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"], flat=True)
    told = description(Client(Settings(indexes=[str(tmp_path / "shadow")])), "shadow")
    assert told["flat"] is True
    assert [(one["partition"], one["rows"], one["index_bytes"]) for one in told["partitions"]] == [
        ("dt=1", 2, None),
        ("dt=2", 2, None),
    ]
    assert told["index_bytes"] > 0


def test_a_folder_of_values_is_described_without_a_source(tmp_path: Path) -> None:
    write_btree(pa.table({"k": ["a/b", "c"], "v": [1, 2]}), tmp_path / "kv", ["k"], buckets=2)
    told = description(Client(Settings(indexes=[str(tmp_path / "kv")])), "kv")
    assert (told["format"], told["source_files"], told["included"]) == ("values", 0, ["v"])
    assert [(one["partition"], one["rows"], one["source_files"]) for one in told["partitions"]] == [("", 2, 0)]


def test_a_key_column_is_told_in_the_type_that_is_asked_for(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([bytes(16)], pa.uuid()), "n": pa.array([1], pa.int32())})
    write_source(tmp_path / "lake", {"dt=1/p.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["id", "n", "dt"])
    told = description(Client(Settings(indexes=[str(tmp_path / "shadow")])), "shadow")
    assert [(key["name"], key["type"], key["partition"]) for key in told["keys"]] == [
        ("id", "uuid", False),
        ("n", "int", False),
        ("dt", "string", True),
    ]


def test_the_type_of_a_map_does_not_tell_how_a_file_names_its_entries(tmp_path: Path) -> None:
    named = pa.map_(pa.field("k", pa.string(), False), pa.field("v", pa.map_(pa.string(), pa.field("n", pa.int8()))))
    columns = {"id": pa.array([1]), "m": pa.array([[("a", [("b", 1)])]], named)}
    write_source(tmp_path / "lake", {"a.parquet": pa.table(columns)})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["id"])
    told = Client(Settings(indexes=[str(tmp_path / "shadow")])).get("/indexes/shadow").json()["columns"]
    assert told == [{"name": "id", "type": "int64"}, {"name": "m", "type": "map<string, map<string, int8>>"}]


def test_an_index_that_is_not_there_is_404(both: Client) -> None:
    for method in ("GET", "HEAD"):
        response = both.ask(method, "/indexes/pages")
        assert response.status_code == 404
    assert both.get("/indexes/pages").json()["title"] == "No such index"


@pytest.mark.parametrize("target", ["/indexes", "/indexes/crawl"])
def test_head_has_no_body(both: Client, target: str) -> None:
    response = both.ask("HEAD", target)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "application/json"

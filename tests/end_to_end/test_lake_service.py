"""The service over the index of a Delta table: as of the indexed version, and as of the newest one."""

from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.service.settings.table import Settings
from tests.service.live import live
from tests.service.processes import until


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, last)), "name": [f"n{i}" for i in range(first, last)]})


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table at version 2, which adds rows 100 to 109 and deletes row 5; its index, at `i`, covers version 0."""
    place = str(tmp_path / "t")
    write_deltalake(place, rows(0, 100))
    build_index(LocalEngine(), f"delta:{place}", str(tmp_path / "i"), BuildRequest(["id"]))
    write_deltalake(place, rows(100, 110), mode="append")
    DeltaTable(place).delete("id = 5")
    return place


def settings(tmp_path: Path, **more: object) -> Settings:
    return Settings(indexes=(f"orders={tmp_path / 'i'}",), port=0, coverage_seconds=0.2, **more)  # type: ignore[arg-type]


def test_an_answer_says_of_which_version_it_is(table: str, tmp_path: Path) -> None:
    with live(settings(tmp_path)) as running, httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as client:
        found = client.get("/rows/5")
        assert (found.status_code, found.headers["x-table-version"], found.json()["table_version"]) == (200, "0", "0")
        missing = client.get("/rows/105")
        assert (missing.status_code, missing.headers["x-table-version"]) == (404, "0")
        assert missing.json()["table_version"] == "0"
        batch = client.post("/rows", json={"keys": [5, 105]})
        assert (batch.headers["x-table-version"], batch.json()["table_version"]) == ("0", "0")
        assert client.get("/healthz").headers.get("x-table-version") is None

        def is_behind() -> bool:
            state = client.get("/readyz").json()["indexes"]["orders"]
            return state["table_version"] == "0" and (state["coverage"] or {}).get("newer") == "2"

        until(is_behind)


def test_newest_answers_versions_that_the_index_does_not_cover(table: str, tmp_path: Path) -> None:
    with (
        live(settings(tmp_path, freshness="newest")) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as client,
    ):
        found = client.get("/rows/105?_explain=true")
        assert (found.status_code, found.headers["x-table-version"]) == (200, "2")
        assert found.json()["rows"] == [{"id": 105, "name": "n105"}]
        assert found.json()["explain"]["read_through"] == {"files": 2, "rows": 109}
        assert client.get("/rows/5").status_code == 404
        assert (client.head("/rows/105").status_code, client.head("/rows/5").status_code) == (200, 404)
        batch = client.post("/rows", json={"keys": [4, 5, 105]}).json()
        assert [one["count"] for one in batch["results"]] == [1, 0, 1]
        assert client.get("/rows/105?_snapshot=1").status_code == 404, "a snapshot by number stays what it is"
        write_deltalake(table, rows(110, 120), mode="append")
        later = client.get("/rows/115")
        assert (later.status_code, later.headers["x-table-version"]) == (200, "3")
        DeltaTable(table).delete("id = 115")
        assert client.get("/rows/115").status_code == 404, "no kept answer of the version before"


def test_an_index_too_far_behind_is_503(table: str, tmp_path: Path) -> None:
    with (
        live(settings(tmp_path, freshness="newest", freshness_rows=50)) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as client,
    ):
        found = client.get("/rows/4")
        assert (found.status_code, found.json()["title"]) == (503, "Index behind its table")
        assert "retry-after" in found.headers
        assert table not in found.text

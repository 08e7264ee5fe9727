"""Rows over HTTP from files of each format."""

import os
from pathlib import Path
from typing import Any

import pytest

from gnomon.indexer import build
from gnomon.service.settings.table import Settings
from tests.indexer.test_formats import CASES, ENDINGS, Case, rows_of
from tests.service.lake import Client, rows


@pytest.fixture(scope="module", params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def case(name: str) -> Case:
    return CASES[name]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, name: str, case: Case) -> Path:
    """A file of 500 rows. Each number below 150 is in two rows."""
    path = tmp_path_factory.mktemp("lake") / "source" / f"dt=2026-01-01/a{ENDINGS.get(name, '')}"
    path.parent.mkdir(parents=True)
    path.write_bytes(case.write(rows_of(0, 500)))
    return path


@pytest.fixture(scope="module")
def client(path: Path, case: Case) -> Client:
    index = str(path.parents[2] / "index")
    build(None, str(path.parents[1]), index, [case.number], buckets=2)
    return Client(Settings(indexes=[index]))


def expected(case: Case, number: int) -> list[dict[str, Any]]:
    written = [{case.number: case.kind(i), case.text: text} for i, text in rows_of(0, 500) if i == number]
    return [{**row, "dt": "2026-01-01"} for row in written]


def test_rows_are_answered_by_key_alone_and_in_a_batch(client: Client, case: Case) -> None:
    for number in (0, 149, 150, 349):
        assert rows(client.get(f"/rows/{number}")) == expected(case, number)
    absent = client.get("/rows/350")
    assert (absent.status_code, absent.json()["covered"]) == (404, {"rows": 500, "source_files": 1})
    assert client.ask("HEAD", "/rows/349").status_code == 200
    assert client.ask("HEAD", "/rows/350").status_code == 404

    texts = [{case.text: row[case.text]} for row in expected(case, 149)]
    assert rows(client.get(f"/rows/149?_columns={case.text}")) == texts
    batch = client.post({"keys": ["349", "350", "149"], "columns": [case.text, "dt"]}).json()["results"]
    assert [one["key"] for one in batch] == [{case.number: case.kind(n)} for n in (349, 350, 149)]
    wanted = [[{k: row[k] for k in (case.text, "dt")} for row in expected(case, n)] for n in (349, 350, 149)]
    assert [one["rows"] for one in batch] == wanted
    assert [one["count"] for one in batch] == [1, 0, 2]


def test_a_file_that_changed_is_a_stale_pointer(client: Client, path: Path, case: Case) -> None:
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(case.write(rows_of(0, 400)))
    try:
        answer = client.get("/rows/1")
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:gnomon:problem:stale-pointer")
        [failed] = client.post({"keys": ["1"]}).json()["results"]
        assert failed["error"]["status"] == 409
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

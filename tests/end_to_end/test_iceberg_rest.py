"""A table of a real Iceberg REST catalog: built, followed, served, appended to, replaced, and out of reach."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.indexer import append_new
from gnomon.service.settings.table import Settings
from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import TableCommit, iceberg_append
from gnomon.shadow.tables.iceberg_snapshot import FileEntry, prepare
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.dedup.lake_tables import DDL, ROWS, IcebergLake, configure, row, rows
from tests.service.live import live
from tests.service.processes import until
from tests.stores.process import free_port

LIVE = [number for number in range(40) if number not in (7, 8)]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lake(iceberg_rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergLake:
    database = tmp_path.name.replace("-", "_")
    return IcebergLake(tmp_path, monkeypatch, rest=iceberg_rest, database=database)


@pytest.fixture
def index(lake: IcebergLake, tmp_path: Path) -> str:
    assert main(["build", lake.name, str(tmp_path / "index"), "--key", "id", "--engine", "local"]) == 0
    return str(tmp_path / "index")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command. Returns its exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def check(lake: IcebergLake, index: str, numbers: list[int]) -> None:
    """pyiceberg and the index have exactly these rows, once each."""
    expected = [row(number) for number in numbers]
    assert lake.rows() == expected
    answers = open_index(index).fetch_many(range(max(numbers) + 5))
    assert [one for answer in answers for one in answer] == expected
    report = verify(storage_at(index), sample=None)
    assert report.is_sound, report.faults


def test_equality_deletes_of_version_3_become_deletion_vectors(lake: IcebergLake, tmp_path: Path, run: Run) -> None:
    """pyiceberg, which refuses equality deletes, reads the rows afterwards."""
    name = lake.identifier.replace(".t", ".v3")
    table = lake.catalog.create_table(name, ROWS, properties={"format-version": "3"})
    index, place = str(tmp_path / "of v3"), Path(table.location().removeprefix("file://")) / "data"
    place.mkdir(parents=True, exist_ok=True)

    def commit(number: int, gone: list[int], added: list[int]) -> None:
        """Delete rows by key, and add rows by the same commit."""
        at, kinds = lake.catalog.load_table(name), list(schema_to_pyarrow(table.schema()))
        files = [(pa.table([pa.array(gone, pa.int64())], pa.schema(kinds[:1])), {"content": 2, "equality_ids": [1]})]
        if added:
            data = pa.Table.from_pylist([row(one) for one in added], ROWS).cast(pa.schema(kinds))
            files.append((data, {"content": 0}))
        entries = []
        for part, (data, members) in enumerate(files):
            path = place / f"{number}-{part}.parquet"
            pq.write_table(data, path)
            record = {"file_path": f"file://{path}", "file_format": "PARQUET", "record_count": data.num_rows}
            size = path.stat().st_size
            entries.append(FileEntry(at.spec().spec_id, (), {**record, "file_size_in_bytes": size, **members}))
        planned = TableCommit(f"iceberg:here.{name}", str(at.metadata.table_uuid), "other", number, ())
        prepare(at, planned, f"other-{number}", entries).send()

    commit(1, [100], list(range(10)))
    commit(2, [3, 4, 1000], [4])
    commit(3, [5], [])
    assert run("build", f"iceberg:here.{name}", index, "--key", "id", "--engine", "local")[0] == 0
    code, out, _ = run("convert-deletes", index)
    assert (code, "they delete 3 rows of 1 file, now by deletion vectors of " in out) == (0, True)
    found = lake.catalog.load_table(name).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 1, 2, 4, 6, 7, 8, 9]
    assert run("delete", index, "6")[0] == 0
    assert run("find", index, "6", "--prove-erased")[0] == 1
    assert sorted(lake.catalog.load_table(name).scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 4, 7, 8, 9]
    assert "there are no equality deletes" in run("convert-deletes", index)[1]
    assert verify(storage_at(index)).faults == []


def test_builds_follow_the_table(lake: IcebergLake, index: str, run: Run) -> None:
    check(lake, index, LIVE)
    lake.append(rows(40, 60))
    lake.delete(3)
    assert run("build", index, "--engine", "local")[0] == 0
    check(lake, index, [number for number in [*LIVE, *range(40, 60)] if number != 3])
    code, out, _ = run("get", index, "41")
    assert (code, '"id":41' in out.replace(" ", "")) == (0, True)
    assert run("get", index, "3")[0] == 1


def test_the_service_knows_of_newer_versions(lake: IcebergLake, index: str) -> None:
    def service(freshness: str) -> Settings:
        return Settings(indexes=(f"orders={index}",), port=0, coverage_seconds=0.2, freshness=freshness)  # type: ignore[arg-type]

    with live(service("index")) as running, httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as client:
        lake.append(rows(40, 50))
        lake.delete(3)
        snapshot = lake.table().current_snapshot()
        assert snapshot is not None
        newest = str(snapshot.snapshot_id)

        def is_behind() -> bool:
            coverage = client.get("/readyz").json()["indexes"]["orders"]["coverage"]
            return (coverage or {}).get("newer") == newest

        until(is_behind)
        assert [client.get(f"/rows/{number}").status_code for number in (3, 45)] == [200, 404]
    with live(service("newest")) as running, httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as client:
        found = client.get("/rows/45")
        assert (found.status_code, found.headers["x-table-version"]) == (200, newest)
        assert client.get("/rows/3").status_code == 404


def test_an_append_that_loses_a_race_commits_once(
    lake: IcebergLake, index: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog refuses a commit that was prepared before the one of another writer."""
    refused = []
    real = iceberg_append._commit

    def late(*arguments: object) -> None:
        if not refused:
            lake.append(rows(100, 105))
        try:
            real(*arguments)  # type: ignore[arg-type]
        except CommitFailedException as error:
            refused.append(error)
            raise

    monkeypatch.setattr(iceberg_append, "_commit", late)
    batch = spark.createDataFrame([tuple(row(number).values()) for number in range(30, 60)], DDL)
    assert append_new(spark, index, batch, "nightly").appended == 20
    assert len(refused) == 1
    check(lake, index, [*LIVE, *range(40, 60), *range(100, 105)])
    assert len(lake.appends()) == 1


def test_two_programs_that_finish_one_append_commit_it_once(
    lake: IcebergLake, index: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either commits."""
    barrier, met, real = threading.Barrier(2, timeout=60), threading.local(), iceberg_append._commit
    refused = []

    def together(*arguments: object) -> None:
        if not getattr(met, "is_done", False):
            met.is_done = True
            barrier.wait()
        try:
            real(*arguments)  # type: ignore[arg-type]
        except CommitFailedException as error:
            refused.append(error)
            raise

    planned = stage_append(lake, index, spark, monkeypatch)
    monkeypatch.setattr(iceberg_append, "_commit", together)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(iceberg_append.commit, *planned) for _ in range(2)]:
            done.result()
    assert len(refused) == 1
    batch = spark.createDataFrame([tuple(row(number).values()) for number in range(30, 60)], DDL)
    assert append_new(spark, index, batch, "nightly").appended == 20
    check(lake, index, [*LIVE, *range(40, 60)])
    assert len(lake.appends()) == 1


def stage_append(
    lake: IcebergLake, index: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> tuple[object, ...]:
    """Let an append of the rows 30 to 59 die before its commit to the table. Returns the arguments of the commit."""
    kept: list[tuple[object, ...]] = []

    def dying(*arguments: object) -> None:
        kept.append(arguments)
        raise KeyboardInterrupt

    batch = spark.createDataFrame([tuple(row(number).values()) for number in range(30, 60)], DDL)
    with monkeypatch.context() as patch:
        patch.setattr(iceberg_append, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            append_new(spark, index, batch, "nightly")
    return kept[0]


def test_a_table_that_was_dropped_and_created_again_is_refused(lake: IcebergLake, index: str, run: Run) -> None:
    old = str(lake.table().metadata.table_uuid)
    lake.catalog.drop_table(lake.identifier)
    code, _, err = run("build", index, "--engine", "local")
    assert code == 3
    assert one_line(err).startswith(f"gnomon: {lake.name}: the catalog has no such table")
    lake.catalog.create_table(lake.identifier, ROWS).append(rows(0, 40))
    new = str(lake.table().metadata.table_uuid)
    assert new != old
    code, _, err = run("build", index, "--engine", "local")
    assert code in (2, 3)
    assert f"expected the table with id {old}, found {new}" in one_line(err)
    code, _, err = run("get", index, "5", "--newest")
    assert code == 3
    one_line(err)


def test_a_catalog_out_of_reach_is_one_line(
    lake: IcebergLake, index: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, uri=f"http://127.0.0.1:{free_port()}")
    expected = f"{lake.name}: the catalog cannot be reached at http://"
    for command in (["build", index, "--engine", "local"], ["get", index, "5", "--newest"]):
        code, out, err = run(*command)
        assert (code, out) == (3, "")
        assert one_line(err).startswith(f"gnomon: {expected}")
    code, out, _ = run("verify", index)
    assert (code, out.startswith(f"fault: {expected}")) == (3, True)
    settings = Settings(indexes=(f"orders={index}",), port=0, freshness="newest")
    with live(settings) as running:
        assert httpx.get(f"http://127.0.0.1:{running.port}/rows/5").status_code == 503
    assert run("get", index, "5")[0] == 0, "a look-up needs no catalog"


def one_line(text: str) -> str:
    [line] = text.strip().splitlines()
    return line

"""Delta and Iceberg tables on S3: built, followed, read and appended to with the settings of the environment."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from pyiceberg.exceptions import CommitFailedException
from pyroaring import BitMap64

from gnomon.jobs.build import BuildRequest, LocalEngine, build
from gnomon.jobs.build.job import build_index
from gnomon.jobs.dedup import append_new, delete, upsert
from gnomon.shadow.errors import UnsafeStore, UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import TableCommit, append_target, commit_to_table, delta_append, iceberg_append
from gnomon.shadow.tables.delta import read_content
from gnomon.shadow.tables.delta_change import check_deletes, clear_attempts, commit_change
from gnomon.shadow.tables.lake_append import Deleted
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, Lake, here
from tests.jobs.dedup.lake_tables import row as lake_row
from tests.jobs.dedup.lake_tables import rows as lake_rows
from tests.jobs.dedup.test_append_lake import LIVE, check, die_after, nightly
from tests.jobs.dedup.test_change import VECTORS, after, changed
from tests.jobs.dedup.test_change import check as check_change
from tests.opened import open_index
from tests.stores.s3 import moto_server

pytestmark = pytest.mark.store


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, last)), "day": [f"d {i % 2}%" for i in range(first, last)]})


def follow(name: str, index: str, expected: Iterable[int]) -> None:
    build_index(LocalEngine(), name, index, BuildRequest(["id"]))
    opened = open_index(index)
    assert [row["id"] for found in opened.fetch_many(range(60)) for row in found] == list(expected)
    report = verify(storage_at(index), sample=None)
    assert report.is_sound, report.faults


def test_a_delta_table_on_s3(s3_root: str) -> None:
    options = {"allow_http": "true"}
    table, index = f"{s3_root}/orders", f"{s3_root}/orders_index"
    write_deltalake(table, rows(0, 40), partition_by=["day"], storage_options=options)
    follow(f"delta:{table}", index, range(40))
    write_deltalake(table, rows(40, 50), mode="append", storage_options=options)
    DeltaTable(table, storage_options=options).delete("id < 10")
    assert open_index(index, newest=True).contains(45)
    assert not open_index(index).coverage().is_empty
    follow(f"delta:{table}", index, range(10, 50))
    assert open_index(index).coverage().is_empty


@pytest.mark.parametrize("properties", [{"delta.enableDeletionVectors": "true"}, {}])
def test_rows_of_a_delta_table_on_s3_are_deleted(s3_root: str, properties: dict[str, str]) -> None:
    """Another commit comes after the look-up, so that the store refuses the first attempt."""
    options, table, looks = {"allow_http": "true"}, f"{s3_root}/orders", list[str]()
    write_deltalake(table, rows(0, 40), partition_by=["day"], storage_options=options, configuration=properties)
    planned = TableCommit(f"delta:{table}", str(DeltaTable(table, storage_options=options).metadata().id), "w", 1, ())

    def look() -> Deleted:
        content = read_content(table, None)
        looks.append(looks[0] if looks else min(content.files))
        if len(looks) == 1:
            write_deltalake(table, rows(40, 50), mode="append", storage_options=options)
        return Deleted(content.version, {looks[0]: BitMap64([0, 3])})

    assert commit_change(table, planned, [], look)[:2] == (2, 1)
    assert len(looks) == 2
    own = [info.path for info in storage_at(table).list() if info.path.startswith("gnomon")]
    assert len(own) == 1, "the first attempt left nothing"
    clear_attempts(table, planned)
    follow(f"delta:{table}", f"{s3_root}/index", [i for i in range(50) if i not in (0, 6)])


def moved(s3_root: str, folder: str) -> str:
    """The URL of a Delta table in a folder that deltalake itself may not write to."""
    lake = DeltaLake(s3_root, ["part"])
    source, target = storage_at(lake.root), storage_at(f"{s3_root}/{folder}/t")
    for info in list(source.list(hidden=True)):
        target.put_new(info.path, [source.read(info.path)])
    return target.root


@pytest.mark.parametrize("folder", ["a b", "é+&=", "50%", "a%zz", "a#b", "a?b"])
def test_a_delta_table_on_s3_in_a_folder_of_any_name(s3_root: str, folder: str) -> None:
    table, index = moved(s3_root, folder), f"{s3_root}/index"
    build(None, f"delta:{table}", index, ["id"])
    assert append_new(None, index, lake_rows(30, 60), "nightly").appended == 20
    assert append_new(None, index, lake_rows(30, 60), "nightly").known_batch
    build(None, f"delta:{table}", index, ["id"])
    opened = open_index(index, newest=True)
    assert [row for found in opened.fetch_many(LIVE) for row in found] == [lake_row(number) for number in LIVE]
    assert verify(storage_at(index), sample=None).faults == []


def test_a_delta_table_on_s3_in_a_folder_with_a_percent_sequence_is_refused(s3_root: str) -> None:
    """deltalake would read the log of another folder."""
    table = moved(s3_root, "a%20b")
    with pytest.raises(UsageError, match=r"a%20b/t: deltalake takes a percent sequence in a name .* move the table"):
        build(None, f"delta:{table}", f"{s3_root}/index", ["id"])
    assert list(storage_at(f"{s3_root}/index").list(hidden=True)) == []


def test_an_iceberg_table_on_s3(s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = here(tmp_path, monkeypatch, f"{s3_root}/warehouse")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.orders", rows(0, 1).schema)
    table.append(rows(0, 40))
    index = f"{s3_root}/orders_index"
    follow("iceberg:here.ns.orders", index, range(40))
    table.append(rows(40, 50))
    table.delete("id < 10")
    assert open_index(index, newest=True).contains(45)
    follow("iceberg:here.ns.orders", index, range(10, 50))
    follow(f"iceberg:{catalog.load_table('ns.orders').metadata_location}", f"{s3_root}/other_index", range(10, 50))


@pytest.fixture(params=["delta", "delta vectors", "iceberg"])
def lake(request: pytest.FixtureRequest, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table on S3."""
    if request.param != "iceberg":
        return DeltaLake(s3_root, configuration=VECTORS if request.param == "delta vectors" else None)
    return IcebergLake(tmp_path, monkeypatch, store=f"{s3_root}/warehouse")


@pytest.mark.parametrize("step", ["commit_append", "move_files", "commit_to_table"])
def test_an_append_to_a_table_on_s3_that_died_is_finished_once(
    lake: Lake, s3_root: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    index = f"{s3_root}/index"
    build(None, lake.name, index, ["id"], buckets=2)
    die_after(step, monkeypatch, nightly(index))
    lake.append(lake_rows(100, 102))
    assert append_new(None, index, lake_rows(30, 60), "nightly").appended == 20
    check(lake, index, [*LIVE, 100, 101])
    assert len(lake.appends()) == 1


@pytest.mark.parametrize("step", ["commit_append", "commit_change"])
def test_a_change_of_a_table_on_s3_that_died_is_finished_once(
    lake: Lake, s3_root: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    index, batch = f"{s3_root}/index", changed(range(35, 45))
    build(None, lake.name, index, ["id"], buckets=2)
    die_after(step, monkeypatch, lambda: upsert(None, index, batch, "nightly"))
    lake.append(lake_rows(100, 102))
    assert upsert(None, index, batch, "nightly").written == 10
    assert delete(None, index, [3, 100]).rows_deleted == 2
    assert upsert(None, index, batch, "nightly").known_batch
    check_change(lake, index, after(lake_rows(100, 102), batch, without=(3, 100)))
    assert [one.path for one in storage_at(lake.root).list("_gnomon", hidden=True)] == []


def test_of_two_commits_of_an_append_on_s3_at_once_the_store_refuses_one(
    lake: Lake, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both programs have read the table before either commits."""
    index, outcomes = f"{s3_root}/index", list[str]()
    build(None, lake.name, index, ["id"], buckets=2)
    die_after("move_files", monkeypatch, nightly(index))
    module: Any = delta_append if isinstance(lake, DeltaLake) else iceberg_append
    real, barrier, first = module._commit, threading.Barrier(2, timeout=120), threading.local()

    def together(*arguments: object) -> None:
        if not getattr(first, "is_done", False):
            first.is_done = True
            barrier.wait()
        try:
            real(*arguments)
        except (CommitFailedError, CommitFailedException):
            outcomes.append("refused")
            raise
        outcomes.append("committed")

    monkeypatch.setattr(module, "_commit", together)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(append_new, None, index, lake_rows(30, 60), "nightly") for _ in range(2)]
        assert {run.result().appended for run in runs} <= {0, 20}
    assert sorted(outcomes) == ["committed", "refused"]
    check(lake, index, LIVE)
    assert len(lake.appends()) == 1


def test_an_append_to_a_delta_table_on_a_store_that_overwrites_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ignores the condition of a create-only put, as old stores do."""
    answer = DomainDispatcherApplication.__call__

    def careless(self: Any, environ: dict[str, Any], start_response: Any) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return answer(self, environ, start_response)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", careless)
    with moto_server() as store:
        lake = DeltaLake(store.place(tmp_path, monkeypatch))
        before = lake.table().version()
        with pytest.raises(UnsafeStore, match=r"table: of three create-only writes .* honours the condition"):
            append_target(lake.name, {})
        planned = TableCommit(lake.name, str(lake.table().metadata().id), "gnomon.test", 1, ("",))
        with pytest.raises(UnsafeStore, match="of three create-only writes"):
            commit_to_table(planned, [])
        with pytest.raises(UnsafeStore, match="of three create-only writes"):
            check_deletes(lake.root)
        assert lake.table().version() == before

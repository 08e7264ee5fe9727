"""Iceberg tables of a REST catalog that vends credentials for their files, which live for seconds. The store behind is
a real S3 server, behind a proxy that refuses credentials which have ended, and locations that they do not open. The
credentials of the environment open the index alone."""

import logging
import os
import pickle
import re
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import gnomon
from gnomon.__main__ import main
from gnomon.indexer import append_new, load, upsert
from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.jobs.dedup import delete
from gnomon.jobs.files import check_access
from gnomon.service.settings.table import Settings
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import credentials, storage_at
from gnomon.shadow.tables import iceberg_credentials
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.dedup.lake_tables import configure
from tests.opened import open_index
from tests.service.processes import started
from tests.spark_fixtures import in_workers
from tests.stores.vending import CheckedS3, Vending

pytestmark = pytest.mark.store

LIFE = 3.0  # seconds
SECRETS = ("secret-of", "vended-secret", "vended-token")


def restart() -> None:
    """Forget what this process knows of the catalog, as a new process."""
    for vendor in credentials._vendors.values():
        vendor.forget()
    iceberg_credentials._ways.clear()


def rows(first: int, last: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(first, last), pa.int64()),
            "name": pa.array([f"n{n}" for n in range(first, last)], pa.string()),
        }
    )


def table_of(vending: Vending, name: str, files: int = 2, **properties: str) -> Table:
    """A table with ten rows in each file."""
    made = vending.catalog.create_table(f"db.{name}", rows(0, 0).schema, properties=properties)
    for number in range(files):
        made.append(rows(10 * number, 10 * number + 10))
    return made


def build(name: str, index: str, processes: int = 1) -> None:
    build_index(LocalEngine(processes=processes), f"iceberg:here.db.{name}", index, BuildRequest(["id"]))


def ids(index: Any, last: int) -> list[int]:
    return [row["id"] for found in index.fetch_many(range(last)) for row in found]


@pytest.mark.parametrize(("renews", "in_config"), [(True, False), (False, True)])
def test_an_open_index_answers_beyond_the_life_of_credentials(
    vending: Vending, checked: CheckedS3, vended_place: str, renews: bool, in_config: bool
) -> None:
    vending.renews, vending.in_config, vending.life = renews, in_config, LIFE
    table_of(vending, "t")
    build("t", f"{vended_place}/index")
    opened = open_index(f"{vended_place}/index")
    end = time.monotonic() + 3 * LIFE
    while time.monotonic() < end:
        assert ids(opened, 25) == list(range(20))
        time.sleep(0.1)
    assert not checked.refused
    asked = vending.asked["credentials" if renews else "load"]
    assert 3 <= asked <= 8, vending.asked


def test_the_processes_of_a_build_get_credentials_of_their_own(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    table_of(vending, "t")
    asked = []
    for processes in (1, 2):
        before = vending.asked["load"]
        build("t", f"{vended_place}/index-{processes}", processes)
        asked.append(vending.asked["load"] - before)
        assert ids(open_index(f"{vended_place}/index-{processes}"), 25) == list(range(20))
        restart()
    assert asked[1] > asked[0], "the processes asked, too"
    assert not checked.refused


def test_every_request_is_signed_with_the_credentials_of_its_place(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    """Two tables in one bucket, each with credentials of its own for metadata and for data, and an index beside."""
    vending.below = ("metadata", "data")
    for number, name in enumerate(["one", "two"]):
        table_of(vending, name, files=number + 1)
        build(name, f"{vended_place}/{name}_index")
    opened = [open_index(f"{vended_place}/{name}_index") for name in ("one", "two")]
    for _ in range(2):
        assert [ids(index, 25) for index in opened] == [list(range(10)), list(range(20))]
    assert not checked.refused
    used = {checked.grants[key].prefix.rpartition("lake/")[2] for key in checked.used}
    assert {one.partition("/")[2] for one in used} == {"", "one/metadata", "one/data", "two/metadata", "two/data"}
    assert vending.asked["credentials"] == 2, "once for each table"


def test_credentials_that_end_early_are_renewed_once(vending: Vending, checked: CheckedS3, vended_place: str) -> None:
    table_of(vending, "t", files=8)
    build("t", f"{vended_place}/index")
    opened = open_index(f"{vended_place}/index")
    assert ids(opened, 5) == list(range(5))
    before = vending.asked["credentials"]
    checked.end()
    assert ids(opened, 80) == list(range(80))
    assert vending.asked["credentials"] == before + 1
    assert set(checked.refused) == {"ExpiredToken"}


def test_a_catalog_that_is_down_for_a_while_stops_nothing(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    vending.life = 9.0
    table_of(vending, "t")
    end = time.monotonic() + vending.life - 1
    build("t", f"{vended_place}/index")
    opened = open_index(f"{vended_place}/index")
    vending.down = True
    while time.monotonic() < end:
        assert ids(opened, 25) == list(range(20))
        time.sleep(0.1)
    assert 1 <= vending.asked["down"] <= 2, "about every three seconds, and not at each read"
    vending.down = False
    time.sleep(3)
    assert ids(opened, 25) == list(range(20))
    assert not checked.refused


def test_a_catalog_that_signs_requests_is_refused(vending: Vending, vended_place: str, tmp_path: Path) -> None:
    table_of(vending, "t")
    build("t", f"{vended_place}/index")
    opened = open_index(f"{vended_place}/index")
    vending.signs = True
    expected = (
        "iceberg:here.db.t: the catalog signs each request to the store (remote signing), which is not supported; "
        "let the catalog vend credentials for the table instead (vended-credentials)"
    )
    with pytest.raises(UsageError) as found:
        build("t", f"{vended_place}/other")
    assert str(found.value) == expected
    restart()
    with pytest.raises(UsageError) as found:
        ids(opened, 5)
    assert str(found.value) == expected


def test_a_refusal_says_whose_credentials_the_store_refuses(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    table_of(vending, "t")
    build("t", f"{vended_place}/index")
    where = r"s3://.*/lake/db/t/data/.*\.parquet: the store refuses access \(.*\) to the credentials "
    for key, grant in checked.grants.items():
        checked.grants[key] = replace(grant, prefix="elsewhere") if grant.prefix else grant
    with pytest.raises(StorageError) as found:
        ids(open_index(f"{vended_place}/index"), 5)
    expected = "that the catalog vends for iceberg:here.db.t; check what the catalog grants on this table"
    assert re.fullmatch(where + expected, str(found.value))
    for has_trouble in (False, True):
        restart()
        vending.vends, vending.down = False, has_trouble
        with pytest.raises(StorageError) as found:
            ids(open_index(f"{vended_place}/index"), 5)
        expected = "of the environment, and the catalog of iceberg:here.db.t vends none"
        expected += r": the catalog cannot be opened \(Service.*\)" if has_trouble else ""
        expected += "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        assert re.fullmatch(where + expected, str(found.value)), str(found.value)


def test_files_are_opened_with_the_environment_where_the_catalog_vends_nothing(
    vending: Vending, checked: CheckedS3, vended_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the catalog is out of reach when an index is opened. pyiceberg has keys of its own here."""
    keys = {"s3__access_key_id": checked.key, "s3__secret_access_key": checked.secret}
    configure(monkeypatch, s3__endpoint=checked.variables["AWS_ENDPOINT_URL"], s3__region="us-east-1", **keys)
    vending.vends = False
    table_of(vending, "t")
    build("t", f"{vended_place}/index")
    assert ids(open_index(f"{vended_place}/index"), 25) == list(range(20))
    restart()
    vending.down = True
    assert ids(open_index(f"{vended_place}/index"), 25) == list(range(20))
    assert set(checked.used) == {checked.key}
    assert not checked.refused


def test_an_index_in_the_folder_of_the_table_is_refused(vending: Vending) -> None:
    """The credentials of the table are not for the index."""
    made = table_of(vending, "t")
    with pytest.raises(UsageError, match=r"_index: the index would lie in the folder of iceberg:here\.db\.t, whose"):
        build("t", f"{made.location()}/_index")


def changes(vending: Vending, index: str, batch: Any, spark: Any = None) -> list[int]:
    """Append, upsert and delete rows for three lives of credentials. Returns the ids of the rows."""
    expected, number, end = set(range(20)), 0, time.monotonic() + 3 * vending.life
    while number < 2 or time.monotonic() < end:
        first = 100 + 5 * number
        assert append_new(spark, index, batch(first - 5, first + 5), f"a{number}").appended == 10 - 5 * (number > 0)
        assert upsert(spark, index, batch(first, first + 6), f"u{number}").rows_deleted == 5
        assert delete(spark, index, [first + 5, 10**6]).rows_deleted == 1
        expected |= set(range(first - 5, first + 5))
        number += 1
    return sorted(expected)


def of_table(vending: Vending, name: str) -> list[int]:
    """The ids of a table's rows, as pyiceberg reads them beside Gnomon."""
    return sorted(vending.catalog.load_table(f"db.{name}").scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_changes_beyond_the_life_of_credentials(
    vending: Vending, checked: CheckedS3, vended_place: str, mode: str
) -> None:
    """The data lie outside of the table's folder, with credentials of their own."""
    vending.life, vending.below = LIFE, ("", f"{vended_place}/elsewhere")
    properties = {"write.data.path": f"{vended_place}/elsewhere", "write.delete.mode": mode, "format-version": "2"}
    table_of(vending, "t", **properties)
    build("t", f"{vended_place}/index")
    expected = changes(vending, f"{vended_place}/index", rows)
    build("t", f"{vended_place}/index")
    assert of_table(vending, "t") == expected
    assert ids(open_index(f"{vended_place}/index"), max(expected) + 5) == expected
    report = verify(storage_at(f"{vended_place}/index"), sample=None)
    assert report.is_sound, report.faults
    assert main(["find", f"{vended_place}/index", "105", "--all-versions", "--orphans"]) == 0
    assert not checked.refused


def test_workers_of_the_service_answer_beyond_the_life_of_credentials(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    vending.life = LIFE
    table_of(vending, "t")
    build("t", f"{vended_place}/index")
    vending.asked.clear()
    settings = Settings(indexes=(f"orders={vended_place}/index",), port=0, workers=2)
    with started(settings) as service:
        end = time.monotonic() + 3 * LIFE
        with ThreadPoolExecutor(8) as pool:
            while time.monotonic() < end:
                answers = list(pool.map(lambda key: service.get(f"/rows/{key}").json(), range(20)))
                assert [[row["id"] for row in answer["rows"]] for answer in answers] == [[key] for key in range(20)]
        code, _, errors = service.end()
    assert (code, [one for one in SECRETS if one in errors]) == (0, [])
    assert vending.asked["load"] <= 6, "in each worker once for credentials, and by its looks for newer versions"
    assert 2 * 3 <= vending.asked["credentials"] <= 2 * 8
    assert not checked.refused


def test_secrets_are_in_no_file_log_or_error(
    vending: Vending,
    checked: CheckedS3,
    vended_place: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "botocore")  # of the proxy
    table_of(vending, "t", **{"format-version": "2"})
    index = str(tmp_path / "index")
    build("t", index)
    changes(replace(vending, life=0), index, rows)
    opened = open_index(index)
    shown = [repr(opened.spec), repr(pickle.dumps(opened.spec)), str(opened.location)]
    assert main(["inspect", index, "--json"]) == main(["get", index, "3", "--explain"]) == 0
    access = check_access("iceberg:here.db.t")
    assert access.credentials.startswith("vended by the catalog of iceberg:here.db.t, until 20")
    assert (access.can_read, access.can_write) == (True, True)
    shown += [*capsys.readouterr(), repr(access)]
    ids(opened, 20)
    for vendor in credentials._vendors.values():
        shown += [repr(vendor), repr(vars(vendor))]
        for found in vendor._found:
            shown.append(repr(found))
            with pytest.raises(TypeError, match="do not leave their process"):
                pickle.dumps(found)
    shown += [repr(one) for one in iceberg_credentials._ways.values()]
    for key, grant in checked.grants.items():
        checked.grants[key] = replace(grant, prefix="elsewhere") if grant.prefix else grant
    with pytest.raises(StorageError) as refused:
        ids(open_index(index), 20)
    shown.append("".join(traceback.format_exception(refused.value)))
    restart()
    vending.token = "another-secret-of-the-catalog"
    with pytest.raises(StorageError) as refused:
        build("t", index)
    shown.append("".join(traceback.format_exception(refused.value)))
    files = [path for path in Path(index).rglob("*") if path.is_file()]
    assert len(files) > 10
    shown += [path.read_bytes().decode("latin-1") for path in files]
    shown.append(caplog.text)
    assert [one for one in SECRETS for text in shown if one in text] == []


def test_an_answer_that_is_not_understood_shows_no_secret(
    vending: Vending, vended_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(vending, "t")
    real = vending.answer

    def without_metadata(*request: Any) -> Any:
        status, found = real(*request)
        found.pop("metadata", None)
        return status, found | ({"config": {**found["config"], "s": "vended-secret-0"}} if "config" in found else {})

    monkeypatch.setattr(vending, "answer", without_metadata)
    with pytest.raises(StorageError, match="the answer of its catalog is not understood: metadata: ") as found:
        build("t", f"{vended_place}/index")
    assert "vended-" not in "".join(traceback.format_exception(found.value))


@pytest.fixture
def executors(spark: SparkSession, checked: CheckedS3) -> Iterator[dict[str, str]]:
    """The environment of Spark's tasks, which leads to the store."""
    with in_workers(spark, checked.variables) as environment:
        yield environment


def test_spark_tasks_that_do_not_know_the_catalog_say_so(
    vending: Vending, vended_place: str, spark: SparkSession, executors: dict[str, str]
) -> None:
    table_of(vending, "t")
    index = f"{vended_place}/index"
    with pytest.raises(StorageError) as found:
        gnomon.build(spark, "iceberg:here.db.t", index, ["id"])
    assert "the catalog of iceberg:here.db.t vends none: the catalog here has no settings here" in str(found.value)


def test_spark_tasks_ask_for_credentials_themselves(
    vending: Vending, checked: CheckedS3, vended_place: str, spark: SparkSession, executors: dict[str, str]
) -> None:
    """Their environment names the catalog, as that of the driver. Nothing secret is in a task."""
    executors.update({one: os.environ[one] for one in os.environ if one.startswith("PYICEBERG_CATALOG__HERE")})
    vending.life = LIFE
    table_of(vending, "t", files=6, **{"format-version": "2"})
    index = f"{vended_place}/index"
    built = gnomon.build(spark, "iceberg:here.db.t", index, ["id"], page_maps=True)
    assert (built.rows, built.mapped_files) == (60, 6)
    assert vending.asked["load"] >= 2, "by the driver, and by a task"

    def batch(first: int, last: int) -> Any:
        return spark.createDataFrame([(n, f"n{n}") for n in range(first, last)], "id bigint, name string")

    assert append_new(spark, index, batch(50, 70), "nightly").appended == 10
    assert upsert(spark, index, batch(65, 75), "u").rows_deleted == 5
    assert delete(spark, index, [0, 1]).rows_deleted == 2
    gnomon.build(spark, "iceberg:here.db.t", index, ["id"])
    keys = spark.createDataFrame([(n,) for n in range(80)], "id bigint")
    found = sorted(row["id"] for row in load(spark, index, keys).collect())
    assert found == of_table(vending, "t") == list(range(2, 75))
    assert not checked.refused

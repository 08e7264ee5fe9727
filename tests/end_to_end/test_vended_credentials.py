"""Iceberg tables of a REST catalog that vends credentials for their files, which live for seconds. The store behind is
a real S3 server, behind a proxy that refuses credentials which have ended, and locations that they do not open. The
credentials of the environment open the index alone."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow import open_index
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import credentials
from gnomon.shadow.tables import iceberg_credentials
from tests.jobs.dedup.lake_tables import configure
from tests.stores.process import Store
from tests.stores.vending import CheckedS3, Vending, checked_s3, vending_catalog

pytestmark = pytest.mark.store

LIFE = 3.0  # seconds
SECRET = ("secret-of", "vended-secret", "vended-token")


@pytest.fixture
def store(s3: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedS3]:
    with checked_s3(s3) as proxy:
        for name, value in proxy.variables.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def place(s3: Store, tmp_path: Path) -> str:
    """A URL of the test's own."""
    return f"{s3.address}/{tmp_path.parent.name}/{tmp_path.name}"


@pytest.fixture
def catalog(
    store: CheckedS3, s3: Store, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Vending]:
    monkeypatch.setattr(credentials, "_vendors", {})
    monkeypatch.setattr(credentials, "_roots", {})
    with vending_catalog(store, s3, tmp_path, f"{place}/lake") as running:
        configure(monkeypatch, type="rest", uri=running.uri, token=running.token)
        running.catalog.create_namespace("db")
        yield running


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


def table_of(catalog: Vending, name: str, files: int = 2, **properties: str) -> Table:
    """A table with ten rows in each file."""
    made = catalog.catalog.create_table(f"db.{name}", rows(0, 0).schema, properties=properties)
    for number in range(files):
        made.append(rows(10 * number, 10 * number + 10))
    return made


def build(name: str, index: str) -> None:
    build_index(LocalEngine(), f"iceberg:here.db.{name}", index, BuildRequest(["id"]))


def ids(index: Any, last: int) -> list[int]:
    return [row["id"] for found in index.fetch_many(range(last)) for row in found]


@pytest.mark.parametrize("renews", [True, False])
@pytest.mark.parametrize("in_config", [True, False])
def test_an_open_index_answers_beyond_the_life_of_credentials(
    catalog: Vending, store: CheckedS3, place: str, renews: bool, in_config: bool
) -> None:
    catalog.renews, catalog.in_config, catalog.life = renews, in_config, LIFE
    table_of(catalog, "t")
    build("t", f"{place}/index")
    opened = open_index(f"{place}/index")
    end = time.monotonic() + 3 * LIFE
    while time.monotonic() < end:
        assert ids(opened, 25) == list(range(20))
        time.sleep(0.1)
    assert not store.refused
    asked = catalog.asked["credentials" if renews else "load"]
    assert 3 <= asked <= 8, catalog.asked


def test_every_request_is_signed_with_the_credentials_of_its_place(
    catalog: Vending, store: CheckedS3, place: str
) -> None:
    """Two tables in one bucket, each with credentials of its own for metadata and for data, and an index beside."""
    catalog.below = ("metadata", "data")
    for number, name in enumerate(["one", "two"]):
        table_of(catalog, name, files=number + 1)
        build(name, f"{place}/{name}_index")
    opened = [open_index(f"{place}/{name}_index") for name in ("one", "two")]
    for _ in range(2):
        assert [ids(index, 25) for index in opened] == [list(range(10)), list(range(20))]
    assert not store.refused
    used = {store.grants[key].prefix.rpartition("lake/")[2] for key in store.used}
    assert {one.partition("/")[2] for one in used} == {"", "one/metadata", "one/data", "two/metadata", "two/data"}
    assert catalog.asked["credentials"] == 2, "once for each table"


def test_credentials_that_end_early_are_renewed_once(catalog: Vending, store: CheckedS3, place: str) -> None:
    table_of(catalog, "t", files=8)
    build("t", f"{place}/index")
    opened = open_index(f"{place}/index")
    assert ids(opened, 5) == list(range(5))
    before = catalog.asked["credentials"]
    store.end()
    assert ids(opened, 80) == list(range(80))
    assert catalog.asked["credentials"] == before + 1
    assert set(store.refused) == {"ExpiredToken"}


def test_a_catalog_that_is_down_for_a_while_stops_nothing(catalog: Vending, store: CheckedS3, place: str) -> None:
    catalog.life = 9.0
    table_of(catalog, "t")
    end = time.monotonic() + catalog.life - 1
    build("t", f"{place}/index")
    opened = open_index(f"{place}/index")
    catalog.down = True
    while time.monotonic() < end:
        assert ids(opened, 25) == list(range(20))
        time.sleep(0.1)
    assert 1 <= catalog.asked["down"] <= 2, "about every three seconds, and not at each read"
    catalog.down = False
    time.sleep(3)
    assert ids(opened, 25) == list(range(20))
    assert not store.refused


def test_a_catalog_that_signs_requests_is_refused(catalog: Vending, place: str, tmp_path: Path) -> None:
    table_of(catalog, "t")
    build("t", f"{place}/index")
    opened = open_index(f"{place}/index")
    catalog.signs = True
    expected = (
        "iceberg:here.db.t: the catalog signs each request to the store (remote signing), which is not supported; "
        "let the catalog vend credentials for the table instead (vended-credentials)"
    )
    with pytest.raises(UsageError) as found:
        build("t", f"{place}/other")
    assert str(found.value) == expected
    restart()
    with pytest.raises(UsageError) as found:
        ids(opened, 5)
    assert str(found.value) == expected


def test_a_refusal_says_whose_credentials_the_store_refuses(catalog: Vending, store: CheckedS3, place: str) -> None:
    table_of(catalog, "t")
    build("t", f"{place}/index")
    where = r"s3://.*/lake/db/t/data/.*\.parquet: the store refuses access \(.*\) to the credentials "
    for key, grant in store.grants.items():
        store.grants[key] = replace(grant, prefix="elsewhere") if grant.prefix else grant
    with pytest.raises(StorageError) as found:
        ids(open_index(f"{place}/index"), 5)
    expected = "that the catalog vends for iceberg:here.db.t; check what the catalog grants on this table"
    assert re.fullmatch(where + expected, str(found.value))
    for has_trouble in (False, True):
        restart()
        catalog.vends, catalog.down = False, has_trouble
        with pytest.raises(StorageError) as found:
            ids(open_index(f"{place}/index"), 5)
        expected = "of the environment, and the catalog of iceberg:here.db.t vends none"
        expected += r": the catalog cannot be opened \(Service.*\)" if has_trouble else ""
        expected += "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        assert re.fullmatch(where + expected, str(found.value)), str(found.value)


def test_files_are_opened_with_the_environment_where_the_catalog_vends_nothing(
    catalog: Vending, store: CheckedS3, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the catalog is out of reach when an index is opened. pyiceberg has keys of its own here."""
    keys = {"s3__access_key_id": store.key, "s3__secret_access_key": store.secret}
    configure(monkeypatch, s3__endpoint=store.variables["AWS_ENDPOINT_URL"], s3__region="us-east-1", **keys)
    catalog.vends = False
    table_of(catalog, "t")
    build("t", f"{place}/index")
    assert ids(open_index(f"{place}/index"), 25) == list(range(20))
    restart()
    catalog.down = True
    assert ids(open_index(f"{place}/index"), 25) == list(range(20))
    assert set(store.used) == {store.key}
    assert not store.refused


def test_an_index_in_the_folder_of_the_table_is_refused(catalog: Vending) -> None:
    """The credentials of the table are not for the index."""
    made = table_of(catalog, "t")
    with pytest.raises(UsageError, match=r"_index: the index would lie in the folder of iceberg:here\.db\.t, whose"):
        build("t", f"{made.location()}/_index")

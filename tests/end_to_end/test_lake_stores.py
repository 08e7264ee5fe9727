"""Delta and Iceberg tables on S3: built, followed and read with the settings of the environment."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from gnomon.indexer.build import BuildRequest
from gnomon.indexer.build.job import build_index
from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify

pytestmark = pytest.mark.store


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, last)), "day": [f"d {i % 2}%" for i in range(first, last)]})


def follow(name: str, index: str, expected: range) -> None:
    build_index(None, name, index, BuildRequest(["id"]))
    opened = open_index(index)
    assert [row["id"] for found in opened.fetch_many(range(60)) for row in found] == list(expected)
    report = verify(storage_at(index), sample=None)
    assert report.is_sound, report.faults


def test_a_delta_table_on_s3(s3_root: str) -> None:
    options = {"allow_http": "true", "conditional_put": "etag"}
    table, index = f"{s3_root}/orders", f"{s3_root}/orders_index"
    write_deltalake(table, rows(0, 40), partition_by=["day"], storage_options=options)
    follow(f"delta:{table}", index, range(40))
    write_deltalake(table, rows(40, 50), mode="append", storage_options=options)
    DeltaTable(table, storage_options=options).delete("id < 10")
    assert open_index(index, newest=True).contains(45)
    assert not open_index(index).coverage().is_empty
    follow(f"delta:{table}", index, range(10, 50))
    assert open_index(index).coverage().is_empty


def test_an_iceberg_table_on_s3(s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{s3_root}/warehouse",
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.region": "us-east-1",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name.upper().replace('.', '__').replace('-', '_')}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
    catalog = SqlCatalog("shop", **properties)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.orders", rows(0, 1).schema)
    table.append(rows(0, 40))
    index = f"{s3_root}/orders_index"
    follow("iceberg:shop.ns.orders", index, range(40))
    table.append(rows(40, 50))
    table.delete("id < 10")
    assert open_index(index, newest=True).contains(45)
    follow("iceberg:shop.ns.orders", index, range(10, 50))
    follow(f"iceberg:{catalog.load_table('ns.orders').metadata_location}", f"{s3_root}/other_index", range(10, 50))

"""Credentials that live for a minute, under readers, workers of the service and a writer, for as many minutes as
GNOMON_SOAK_MINUTES says: no request to the store is refused, and the catalog is asked about once in each life."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import gnomon
from gnomon.service.settings.table import Settings
from gnomon.shadow import open_index
from tests.service.processes import started
from tests.stores.vending import CheckedS3, Vending

pytestmark = [pytest.mark.nightly, pytest.mark.store]

LIFE = 60.0  # seconds
RENEWAL = LIFE * 2 / 3
MINUTES = float(os.environ.get("GNOMON_SOAK_MINUTES", "3"))
READERS, WORKERS = 4, 2


def rows(first: int, last: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(first, last), pa.int64()), "name": pa.array(["n"] * (last - first), pa.string())}
    )


def test_no_request_is_refused_while_credentials_are_renewed(
    vending: Vending, checked: CheckedS3, vended_place: str
) -> None:
    vending.life = LIFE
    table = vending.catalog.create_table("db.t", rows(0, 0).schema, properties={"format-version": "2"})
    for first in range(0, 200, 50):
        table.append(rows(first, first + 50))
    index, began = f"{vended_place}/index", time.monotonic()
    gnomon.build(None, "iceberg:here.db.t", index, ["id"])
    end, is_done = began + MINUTES * 60, threading.Event()

    def read(_: int) -> int:
        opened, count = open_index(index), 0
        while not is_done.is_set():
            opened.refresh()
            found = opened.fetch_many(range(0, 200, 7))
            assert [[row["id"] for row in one] for one in found] == [[key] for key in range(0, 200, 7)]
            count += 1
            time.sleep(0.2)
        return count

    with (
        started(Settings(indexes=(f"orders={index}",), port=0, workers=WORKERS)) as service,
        ThreadPoolExecutor(READERS) as pool,
    ):
        readers = [pool.submit(read, number) for number in range(READERS)]
        changes, asked = 0, 0
        try:
            while time.monotonic() < end:
                first = 1000 + 10 * changes
                gnomon.append_new(None, index, rows(first, first + 10), f"a{changes}")
                gnomon.delete(None, index, [first, first + 1])
                changes += 1
                for key in range(0, 200, 11):
                    assert [row["id"] for row in service.get(f"/rows/{key}").json()["rows"]] == [key]
                    asked += 1
                time.sleep(1)
        finally:
            is_done.set()
        reads = sum(one.result() for one in readers)
        assert service.end()[0] == 0
    expected = [*range(200), *(1000 + 10 * one + at for one in range(changes) for at in range(2, 10))]
    assert sorted(vending.catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == expected
    took, processes = time.monotonic() - began, WORKERS + 1
    print(
        f"\n{took / 60:.1f} minutes: {sum(checked.used.values()):,} requests to the store, "
        f"refused: {dict(checked.refused)}; "
        f"requests to the catalog: {dict(vending.asked)}; {changes} appends and deletes, {reads} reads of many keys, "
        f"{asked} by the service"
    )
    assert not checked.refused
    assert vending.asked["credentials"] <= processes * (took / RENEWAL + 2)

"""Programs that the tests start on a machine: `python -m tests.machines.programs NAME WORD...`. The machine must have
the project. Each program prints its result as one JSON line."""

import io
import json
import re
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.commands.spark import spark_session
from gnomon.indexer import load
from gnomon.shadow import open_index
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.storage.webhdfs_calls import Answer, WebHdfs
from gnomon.shadow.verify.snapshot import verify

FILES, ROWS_OF_FILE, PAYLOAD = 12, 3000, 20
ROWS = FILES * ROWS_OF_FILE
KEYS_AT_A_TIME = 2000
WATCH_SECONDS = 300
Row = tuple[str, int, str]


def rows(first: int, stop: int) -> list[Row]:
    """Rows by their numbers, two for each key."""
    return [(f"page-{n // 2}", n, f"text of {n} " * PAYLOAD) for n in range(first, stop)]


def put(storage: Storage, path: str, found: list[Row]) -> None:
    columns = zip(*found, strict=True)
    out = io.BytesIO()
    pq.write_table(pa.table(dict(zip(("k", "v", "payload"), map(list, columns), strict=True))), out)
    storage.put_new(path, [out.getvalue()])


def make(place: str) -> Any:
    """Write a lake, and a batch of as many rows. The lake has the first half of the batch's rows."""
    lake, batch = storage_at(f"{place}/lake"), storage_at(f"{place}/batch")
    for number in range(FILES):
        first = number * ROWS_OF_FILE
        put(lake, f"f-{number}.parquet", rows(first, first + ROWS_OF_FILE))
        later = ROWS // 2 + first
        put(batch, f"b-{number}.parquet", rows(later, later + ROWS_OF_FILE))
    return ROWS


def watch(place: str, pattern: str) -> Any:
    """The first name below a place that matches and was not there before."""
    storage, end = storage_at(place), time.monotonic() + WATCH_SECONDS
    before = {file.path for file in storage.list(hidden=True)}
    print("watching", flush=True)
    while time.monotonic() < end:
        for file in storage.list(hidden=True):
            if file.path not in before and re.search(pattern, file.path):
                return file.path
    raise SystemExit(f"{place}: no name matches {pattern}")


def tries(place: str, machine: str) -> Any:
    """How often reads of all files, one after the other, try a datanode."""
    storage, tried = storage_at(place), []
    send = WebHdfs._send

    def counted(self: WebHdfs, method: str, where: str, url: str, body: bytes | None = None) -> Answer:
        if urlsplit(url).hostname == machine:
            tried.append(url)
        return send(self, method, where, url, body)

    WebHdfs._send = counted  # type: ignore[method-assign]
    reads = [len(storage.read(file.path)) for _ in range(5) for file in storage.list()]
    return {"reads": len(reads), "tries": len(tried)}


def load_rows(place: str, master: str, *conf: str) -> Any:
    """The rows of every second key by a load on the cluster, which go to a folder `loaded` of the place."""
    with spark_session(master, list(conf)) as spark:
        keys = spark.range(0, ROWS // 2, 2, 12).selectExpr("concat('page-', id) AS k")
        load(spark, f"{place}/index", keys).write.mode("overwrite").parquet(f"{place}/loaded")
    return same_rows(read(storage_at(f"{place}/loaded")), [row for row in rows(0, ROWS) if row[1] // 2 % 2 == 0])


def check(place: str, has_batch: str) -> Any:
    """Compare all rows of the source, and the rows that the index gives for each key, with the expected rows. Verify
    the index."""
    expected = rows(0, ROWS)
    if has_batch == "with batch":  # of keys that the source lacks the first row alone
        expected += [row for row in rows(ROWS, ROWS + ROWS // 2) if row[1] % 2 == 0]
    index = storage_at(f"{place}/index")
    found = []
    with open_index(f"{place}/index") as opened:
        keys = sorted({key for key, _, _ in expected})
        for first in range(0, len(keys), KEYS_AT_A_TIME):
            asked = keys[first : first + KEYS_AT_A_TIME]
            for key, answer in zip(asked, opened.fetch_many(asked, ["v", "payload"]), strict=True):
                found += [(key, row["v"], row["payload"]) for row in answer]
    faults = [str(fault) for fault in verify(index, sample=None).faults]
    return {
        "source": same_rows(read(storage_at(f"{place}/lake")), expected),
        "index": same_rows(found, expected),
        "faults": faults,
    }


def read(storage: Storage) -> list[Row]:
    tables = [pq.read_table(io.BytesIO(storage.read(file.path))) for file in storage.list()]
    return [(row["k"], row["v"], row["payload"]) for table in tables for row in table.to_pylist()]


def same_rows(found: list[Row], expected: list[Row]) -> dict[str, int]:
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return {"rows": len(found), "missing": missing.total(), "extra": extra.total()}


PROGRAMS = {"make": make, "watch": watch, "tries": tries, "load": load_rows, "check": check}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](*sys.argv[2:])))

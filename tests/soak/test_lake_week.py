"""An index follows Delta and Iceberg tables under random operations of Spark, and Spark reads what appends add."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new
from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.golden.tables.session import CATALOG, SparkBeside, spark_beside
from tests.indexer.build.test_random_lake import follow
from tests.soak.spark_tables import DAYS, DeltaOfSpark, IcebergOfSpark, Row, SparkTable

PYTHON = Path(os.environ.get("GNOMON_SPARK_TABLES", "build/spark-tables")) / "bin/python"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="deploy/make-tables.sh makes the environment of Spark with its jars"
    ),
]


def table_of_spark(kind: str, spark: SparkBeside, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SparkTable:
    """An empty table; pyiceberg finds the catalog of an Iceberg table by its variables of the environment."""
    if "delta" in kind:
        return DeltaOfSpark(spark, folder, "none" if kind == "plain delta" else "name")
    table = IcebergOfSpark(spark, folder, int(kind[-1]))
    for name, value in {"type": "sql", **table.settings}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
    return table


@pytest.mark.parametrize("kind", ["plain delta", "iceberg v2"])
def test_spark_reads_the_rows_that_the_local_engine_appended(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by filters on a partition column and on others, which skip files by the metadata of the table."""
    index, days = tmp_path / "index", [*DAYS, None]
    rows = [{"id": i, "name": f"n{i}", "day": days[i % len(days)]} for i in range(60)]
    with spark_beside(str(PYTHON), tmp_path) as spark:
        table = table_of_spark(kind, spark, tmp_path, monkeypatch)
        if kind == "iceberg v2":
            table.sql("ALTER TABLE {t} ADD PARTITION FIELD day")
        table.sql(f"INSERT INTO {{t}} VALUES {', '.join(map(sql_row, rows[:20]))}")
        build(None, table.name, index, ["id"], buckets=2)
        assert append_new(None, index, pa.Table.from_pylist(rows[10:40]), "1").appended == 20
        table.sql("DELETE FROM {t} WHERE id = 25")
        assert append_new(None, index, pa.Table.from_pylist(rows[30:]), "2").appended == 20
        rows = [row for row in rows if row["id"] != 25]
        assert sorted(table.rows(), key=by_id) == rows
        for day in days:
            where = "day IS NULL" if day is None else f"day = '{day}'"
            assert sorted(table.rows(where), key=by_id) == [row for row in rows if row["day"] == day]
        for row in rows[::11]:  # of each write
            assert table.rows(f"id = {row['id']}") == table.rows(f"name = '{row['name']}'") == [row]
        assert sorted(table.rows("id BETWEEN 20 AND 44"), key=by_id) == [row for row in rows if 20 <= row["id"] <= 44]
    assert open_index(index).fetch_many([row["id"] for row in rows]) == [[row] for row in rows]
    assert verify(storage_at(str(index)), None).is_sound


def by_id(row: Row) -> int:
    return int(row["id"])


def sql_row(row: Row) -> str:
    return f"({', '.join('NULL' if value is None else repr(value) for value in row.values())})"


@pytest.mark.parametrize("kind", ["delta", "iceberg v2", "iceberg v3"])
def test_random_operations_of_spark_are_followed_for_as_long_as_asked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`GNOMON_SOAK_MINUTES` says how long, `GNOMON_SOAK_SEED` where it begins. Prints what was done."""
    end = time.monotonic() + 60 * float(os.environ.get("GNOMON_SOAK_MINUTES", "10"))
    seed, tally = int(os.environ.get("GNOMON_SOAK_SEED", "1")), Counter[str]()
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        with spark_beside(str(PYTHON), folder) as spark:
            table = table_of_spark(kind, spark, folder, monkeypatch)
            tally += follow(table, str(folder / "index"), random.Random(seed), 50)
        seed += 1
        print(f"{kind}, until seed {seed}: {dict(tally)}", flush=True)

"""An index follows Delta and Iceberg tables under random operations of Spark, and Spark reads what appends add."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new, delete, row_search, upsert
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.errors import TableChanged
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import LakeSource
from gnomon.shadow.verify import verify
from tests.golden.tables.session import SparkBeside, python, spark_beside
from tests.indexer.build.test_random_lake import compared, counted, follow
from tests.soak.spark_tables import DAYS, KEYS, REST, DeltaOfSpark, IcebergOfSpark, Row, SparkTable

pytestmark = [pytest.mark.nightly, pytest.mark.store]
KINDS = {
    "plain delta": {"mapping": "none"},
    "rewritten delta": {"mapping": "none", "vectors": False},
    "delta": {},
    "iceberg v2": {"format_version": 2},
    "rewritten iceberg v2": {"format_version": 2, "mode": "copy-on-write"},
    "iceberg v3": {"format_version": 3},
    "rewritten iceberg v3": {"format_version": 3, "mode": "copy-on-write"},
}


def table_of_spark(
    kind: str, spark: SparkBeside, folder: Path, monkeypatch: pytest.MonkeyPatch, rest: str = ""
) -> SparkTable:
    """An empty table; pyiceberg finds the catalog of an Iceberg table by its variables of the environment."""
    options: dict[str, Any] = KINDS[kind]
    if "delta" in kind:
        return DeltaOfSpark(spark, folder, **options)
    table = IcebergOfSpark(spark, folder, **options, rest=rest)
    for name, value in table.settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{table.catalog.upper()}__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
    return table


@pytest.mark.parametrize("kind", ["plain delta", "iceberg v2"])
def test_spark_reads_the_rows_that_the_local_engine_appended(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by filters on a partition column and on others, which skip files by the metadata of the table."""
    index, days = tmp_path / "index", [*DAYS, None]
    rows = [{"id": i, "name": f"n{i}", "day": days[i % len(days)]} for i in range(60)]
    with spark_beside(python(), tmp_path) as spark:
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
        with spark_beside(python(), folder) as spark:
            table = table_of_spark(kind, spark, folder, monkeypatch)
            tally += follow(table, str(folder / "index"), random.Random(seed), 50)
        seed += 1
        print(f"{kind}, until seed {seed}: {dict(tally)}", flush=True)


BETWEEN = ["append", "delete few", "update", "merge", "compact", "purge"]
Apply = Callable[[list[Row]], list[Row]]


def batch_of(table: SparkTable, chance: random.Random) -> list[Row]:
    """Rows with distinct keys and all columns of a table."""
    others = [name for name in table.columns() if name not in ("id", "name", "day")]
    return [
        {"id": key, "name": f"g{chance.randrange(1000)}", "day": chance.choice(DAYS)}
        | {name: chance.randrange(9) for name in others}
        for key in chance.sample(range(KEYS), chance.randrange(1, 60))
    ]


def planned(table: SparkTable, index: str, name: str, chance: random.Random) -> tuple[str, Callable[[], Any], Apply]:
    """A random change by key: its kind, how it is made, and the rows after it from those before."""
    batch = batch_of(table, chance)
    keys = {row["id"] for row in batch}
    kind = chance.choice(["delete", "upsert", "feed", "update only"])
    if kind == "delete":
        return (
            kind,
            lambda: delete(None, index, sorted(keys)),
            lambda old: [one for one in old if one["id"] not in keys],
        )
    kinds = {"id": pa.int64(), "name": pa.string(), "day": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.int32())) for name in batch[0]])
    rows, options = pa.Table.from_pylist(batch, schema), dict[str, Any](replace_all=True)
    dead = {key for key in keys if kind == "feed" and chance.random() < 0.4}
    if kind == "feed":
        rows = rows.append_column("op", pa.array(["delete" if row["id"] in dead else "upsert" for row in batch]))
        options["delete_where"] = "op"
    options["update_only"] = kind == "update only"

    def applied(old: list[Row]) -> list[Row]:
        known = {one["id"] for one in old}
        return [one for one in old if one["id"] not in keys] + [
            one for one in batch if one["id"] not in dead and (kind != "update only" or one["id"] in known)
        ]

    return kind, lambda: upsert(None, index, rows, name, **options), applied


def change_by_key(
    table: SparkTable, index: str, chance: random.Random, steps: int, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Changes of Gnomon among those of Spark, some between the look-up and the commit. Spark has the rows that each
    change leaves, now and at the version before. Returns what was done."""
    done = Counter[str]()
    build(None, table.name, index, ["id"], buckets=3)
    look = row_search.RowSearch.newest
    for step in range(steps):
        if chance.random() < 0.35:
            done[f"Spark: {table.change(chance)}"] += 1
            continue
        seen, between = table.rows(), chance.random() < 0.3
        kind, make, applied = planned(table, index, f"batch {step}", chance)

        def looked(self: Any, build_index: Any) -> Any:
            nonlocal seen, between
            found = look(self, build_index)
            if between:
                between = False
                name = chance.choice([one for one in BETWEEN if one in table.changes()])
                table.changes()[name](chance)
                seen = table.rows()
                done[f"between: {name}"] += 1
            return found

        monkeypatch.setattr(row_search.RowSearch, "newest", looked)
        version = newest_version(table)
        older = table.rows(version=version) if version else []
        try:
            make()
            expected = applied(seen)
            done[kind] += 1
        except (UsageError, TableChanged) as error:
            expected = seen
            done[f"refused: {type(error).__name__} {str(error)[-120:]}"] += 1
        assert counted(table.rows()) == counted(expected), (kind, done)
        if version:
            assert counted(table.rows(version=version)) == counted(older)
        compared(open_index(index, newest=True), expected)
        done["keys compared"] += KEYS
        if chance.random() < 0.2:
            build(None, table.name, index, ["id"])
            report = verify(storage_at(index))
            assert report.is_sound, report.faults
    return done


def newest_version(table: SparkTable) -> str:
    source = LakeSource(table.name)
    return source.content.version.version


@pytest.mark.parametrize("kind", list(KINDS))
def test_spark_has_the_rows_that_changes_by_key_leave(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """`GNOMON_SOAK_MINUTES` and `GNOMON_SOAK_SEED` as below."""
    rest = request.getfixturevalue("iceberg_rest") if "v3" in kind else ""
    end = time.monotonic() + 60 * float(os.environ.get("GNOMON_SOAK_MINUTES", "2"))
    seed, tally = int(os.environ.get("GNOMON_SOAK_SEED", "1")), Counter[str]()
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        with spark_beside(python(), folder, {REST: rest} if rest else None) as spark:
            table = table_of_spark(kind, spark, folder, monkeypatch, rest)
            tally += change_by_key(table, str(folder / "index"), random.Random(seed), 40, monkeypatch)
        seed += 1
        print(f"{kind}, until seed {seed}: {dict(tally)}", flush=True)

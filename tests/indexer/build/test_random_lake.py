"""A table under random operations of its own writer, against the table's own reader, with one index that follows."""

import datetime as dt
import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import LongType
from pyiceberg.utils.config import Config

from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.profiles import cases

KEYS = 400
MOMENT = dt.datetime(2026, 1, 1, 12, 0, 0, 123456)
# Values of the partition column, by its type: those that the tables' own writers, which are the oracle, write right.
PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["2026-01-01", "a b", "50%", "é/x", "null", "__HIVE_DEFAULT_PARTITION__", None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "long": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 0, None]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, None]),
    "float": (pa.float32(), [0.0, -0.0, math.nan, 0.10000000149011612, None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("9" * 28 + "." + "9" * 10), Decimal(1), None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 1, 1), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1, 1, 1, tzinfo=dt.UTC), MOMENT.replace(tzinfo=dt.UTC), None],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(1, 1, 1), MOMENT, dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None]),
    "binary": (pa.binary(), [b"a", b"\0\x7f/=", None]),
}
NOT_WRITTEN = {("delta", "binary"), ("iceberg", "double"), ("iceberg", "float")}
WRITTEN = [(form, kind) for form in ("delta", "iceberg") for kind in PARTITIONS if (form, kind) not in NOT_WRITTEN]


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", PARTITIONS[kind][0])])


def some_rows(chance: random.Random, names: list[str], kind: str) -> pa.Table:
    ids = [chance.randrange(KEYS) for _ in range(chance.randrange(1, 40))]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "name": [f"n{chance.randrange(1000)}" for _ in ids],
        "day": [chance.choice(PARTITIONS[kind][1]) for _ in ids],
    }
    schema = schema_of(kind)
    columns |= {name: [chance.randrange(9) for _ in ids] for name in names if name not in columns}
    return pa.table(
        columns, schema=pa.schema([schema.field(n) if n in schema.names else (n, pa.int64()) for n in names])
    )


class Delta:
    """A Delta table with a partition column of a type."""

    def __init__(self, place: Path, kind: str = "text") -> None:
        self.place, self.name, self.kind = str(place), f"delta:{place}", kind
        write_deltalake(self.place, schema_of(kind).empty_table(), partition_by=["day"])

    def change(self, chance: random.Random) -> str:
        table = DeltaTable(self.place)
        names = [field.name for field in table.schema().fields]
        what = chance.choice(
            ["append", "append", "delete", "update", "merge", "compact", "evolve", "restore", "overwrite"]
        )
        low = chance.randrange(KEYS)
        if what == "append":
            write_deltalake(self.place, some_rows(chance, names, self.kind), mode="append")
        elif what == "delete":
            table.delete(f"id >= {low} and id < {low + 30}")
        elif what == "update":
            table.update(predicate=f"id < {low // 4}", updates={"name": "'updated'"})
        elif what == "merge":
            rows = (
                some_rows(chance, names, self.kind).group_by("id").aggregate([(n, "min") for n in names if n != "id"])
            )
            rows = rows.rename_columns(["id", *(n for n in names if n != "id")])
            merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update({"name": "s.name"}).when_not_matched_insert_all().execute()
        elif what == "compact":
            table.optimize.compact()
        elif what == "evolve":
            more = some_rows(chance, [*names, f"c{len(names)}"], self.kind)
            write_deltalake(self.place, more, mode="append", schema_mode="merge")
        elif what == "restore" and table.version():
            table.restore(chance.randrange(max(0, table.version() - 3), table.version()))
        elif what == "overwrite" and chance.random() < 0.2:
            rows = some_rows(chance, names, self.kind)
            write_deltalake(self.place, rows, mode="overwrite", partition_by=["day"])
        return what

    def rows(self) -> list[dict[str, Any]]:
        reader = QueryBuilder().register("t", DeltaTable(self.place)).execute("select * from t")
        return pa.table(reader).to_pylist()


class Iceberg:
    """An Iceberg table of a SQL catalog, with a partition column of a type and later another one."""

    def __init__(self, place: Path, catalog: SqlCatalog, kind: str = "text") -> None:
        self.place, self.catalog, self.name, self.kind = str(place), catalog, "iceberg:random.ns.t", kind
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", schema_of(kind))
        with table.update_spec() as update:
            update.add_identity("day")

    @property
    def table(self) -> IcebergTable:
        return self.catalog.load_table("ns.t")

    def change(self, chance: random.Random) -> str:
        table = self.table
        names = [field.name for field in table.schema().fields]
        changes = ["append", "append", "delete", "overwrite", "evolve", "rename", "drop", "rollback", "partition"]
        what = chance.choice(changes)
        low = chance.randrange(KEYS)
        others = [name for name in names if name not in ("id", "day")]
        if what == "append":
            table.append(self._rows(chance, names))
        elif what == "delete":
            table.delete(f"id >= {low} and id < {low + 30}")
        elif what == "overwrite":
            table.overwrite(self._rows(chance, names), overwrite_filter=f"id < {low // 4}")
        elif what == "evolve":
            with table.update_schema() as update:
                update.add_column(f"c{chance.randrange(10**6)}", LongType())
        elif what == "rename" and others:
            with table.update_schema() as update:
                update.rename_column(chance.choice(others), f"r{chance.randrange(10**6)}")
        elif what == "partition" and len(table.spec().fields) == 1 and others:
            with table.update_spec() as update:
                update.add_identity(others[0])
        elif what == "drop" and len(others) > 2 and len(table.spec().fields) == 1:
            with table.update_schema() as update:
                update.delete_column(chance.choice(others))
        elif what == "rollback" and (older := self._ancestors()):
            with table.manage_snapshots() as manage:
                manage.rollback_to_snapshot(chance.choice(older))
        return what

    def _ancestors(self) -> list[int]:
        """The ids of up to three snapshots before the current one."""
        table, found = self.table, list[int]()
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.parent_snapshot_id is not None and len(found) < 3:
            found.append(snapshot.parent_snapshot_id)
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        return found

    def _rows(self, chance: random.Random, names: list[str]) -> pa.Table:
        schema = self.table.schema().as_arrow()
        ids = [chance.randrange(KEYS) for _ in range(chance.randrange(1, 40))]
        values: dict[str, list[Any]] = {name: [chance.randrange(9) for _ in ids] for name in names}
        values |= {"id": ids, "day": [chance.choice(PARTITIONS[self.kind][1]) for _ in ids]}
        types = {name: schema.field(name).type for name in names}
        return pa.table({name: _column(values[name], types[name]) for name in names})

    def rows(self) -> list[dict[str, Any]]:
        return self.table.scan().to_arrow().to_pylist()


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values).cast(kind) if pa.types.is_integer(pa.array(values).type) else pa.array(values, kind)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Delta | Iceberg:
    return random_table(request.param, "text", tmp_path, monkeypatch)


def random_table(form: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Delta | Iceberg:
    if form == "delta":
        return Delta(tmp_path / "t", kind)
    uri, place = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    monkeypatch.setenv("PYICEBERG_CATALOG__RANDOM__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__RANDOM__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__RANDOM__WAREHOUSE", place)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
    return Iceberg(tmp_path, SqlCatalog("random", uri=uri, warehouse=place), kind)


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[tuple[str, str], ...]]:
    """The rows, where -0.0 differs from 0.0, and NaN equals NaN."""
    return Counter(tuple((name, _shown(value)) for name, value in sorted(row.items())) for row in rows)


def _shown(value: Any) -> str:
    return repr(value.astimezone(dt.UTC).replace(tzinfo=dt.UTC) if getattr(value, "tzinfo", None) else value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", [1, 2])
def test_an_index_follows_random_operations(table: Delta | Iceberg, tmp_path: Path, seed: int) -> None:
    follow(table, str(tmp_path / "index"), random.Random(seed), 25)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(("form", "kind"), cases(WRITTEN))
def test_an_index_follows_a_table_with_a_typed_partition_column(
    form: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(random_table(form, kind, tmp_path, monkeypatch), str(tmp_path / "index"), random.Random(kind), 12)


class ChangingTable(Protocol):
    """A table, by its name as a source, that changes at random, and is read by its own reader."""

    name: str

    def change(self, chance: random.Random) -> str: ...

    def rows(self) -> list[dict[str, Any]]: ...


def follow(table: ChangingTable, index: str, chance: random.Random, steps: int) -> Counter[str]:
    """Change the table, build sometimes, and compare each key with the table's reader: as of the newest version at
    every step, and as of the indexed one after a build. Returns the operations and the keys compared."""
    done: Counter[str] = Counter()
    request = BuildRequest(["id"], buckets=3)
    build_index(LocalEngine(), table.name, index, request)
    for _ in range(steps):
        done[table.change(chance)] += 1
        expected = table.rows()
        if chance.random() < 0.5:
            build_index(LocalEngine(), table.name, index, request)
            compared(open_index(index), expected)
            assert verify(storage_at(index)).is_sound
            done["built"] += 1
        if chance.random() < 0.1:
            compact(storage_at(index))
            rebucket(storage_at(index), chance.randrange(1, 5), order=chance.choice(["hash", "range"]))
            request = BuildRequest(["id"])
        compared(open_index(index, newest=True), expected)
        done["keys compared"] += KEYS
    return done


def compared(opened: Any, expected: list[dict[str, Any]]) -> None:
    assert opened.view.snapshot.rows == len(expected)
    found = [row for rows in opened.fetch_many(range(KEYS)) for row in rows]
    assert counted(found) == counted(expected)

"""Plans for random filters on random tables: no file with a matching row is left out, and an index leaves out exactly
the files that it covers and in which it has none of the keys."""

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

import gnomon
from gnomon.service.catalog.planning import Planner, PlanRequest, TableIndex
from tests.opened import open_index
from tests.profiles import examples
from tests.service.catalog.predicates import matches, random_filter

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("number", pa.int32()),
        ("amount", pa.decimal128(9, 2)),
        ("share", pa.float64()),
        ("ratio", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("time", pa.time64("us")),
        ("flag", pa.bool_()),
        ("bytes", pa.binary()),
    ]
)
PLANNER = Planner(1 << 26)
Spec = list[tuple[str, Transform[Any, Any]]]
SPECS: dict[str, tuple[Spec, Spec]] = {  # of the first files, and what later ones have besides
    "none": ([], []),
    "identity": ([("number", IdentityTransform())], [("name", TruncateTransform(2))]),
    "bucket": ([("id", BucketTransform(3))], [("day", MonthTransform())]),
    "times": ([("at", DayTransform()), ("name", TruncateTransform(1))], [("instant", YearTransform())]),
    "values": ([("amount", IdentityTransform()), ("time", IdentityTransform())], [("flag", IdentityTransform())]),
    "void": ([("number", TruncateTransform(10)), ("bytes", IdentityTransform())], []),
}
PARTITION_COLUMNS = {"identity": ["number"], "values": ["amount"], "void": ["bytes"]}  # of every file
KEYS = [["id"], ["name"], ["number", "id"], ["day", "name"], ["amount"], ["share"], ["instant"], ["bytes"], ["time"]]


class Written(NamedTuple):
    """A table, its rows by the path of their file, and the values of each column."""

    table: Table
    files: dict[str, list[dict[str, Any]]]
    values: dict[str, list[Any]]


def random_values(chance: Random) -> dict[str, list[Any]]:
    """The values that columns may have; some come often, so that rows meet."""
    day, at = dt.date(1968, 3, 1), dt.datetime(1969, 12, 30, 23, 59, 59, 999_999)
    days = [day + dt.timedelta(days=chance.randint(0, 1500)) for _ in range(12)]
    moments = [at + dt.timedelta(hours=chance.randint(-90, 90), microseconds=chance.randint(0, 9)) for _ in range(12)]
    return {
        "id": [*range(60), None],
        "name": ["", "a", "ab", "abc", "b", "é", "ż", "\U0001f600", "ｚ", "zz", None],
        "number": [-7, -1, 0, 1, 2, 2**31 - 1, None],
        "amount": [Decimal(one).scaleb(-2) for one in (-1000, -501, -1, 0, 1, 499, 500, 99999)] + [None],
        "share": [-1.5, -0.0, 0.0, 0.25, 1e300, math.inf, math.nan, None],
        "ratio": [-1.5, 0.0, 0.25, 3.0, math.inf, math.nan, None],
        "day": [*days, None],
        "at": [*moments, None],
        "instant": [one.replace(tzinfo=dt.UTC) for one in moments] + [None],
        "time": [dt.time(0), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999_999), None],
        "flag": [True, False, None],
        "bytes": [b"", b"\0", b"ab", b"\xff\xff", None],
    }


def write(catalog: SqlCatalog, name: str, chance: Random, version: int) -> Written:
    values = random_values(chance)
    table = catalog.create_table(f"n.{name}", SCHEMA, properties={"format-version": str(version)})
    files: dict[str, list[dict[str, Any]]] = {}
    for spec in SPECS[name.partition("_")[0]]:
        if not spec and name.startswith("void"):
            with table.update_spec() as update:
                update.remove_field("NUMBER")
        with table.update_spec() as update:
            for column, transform in spec:
                update.add_field(column, transform, column.upper())
        for _ in range(4):
            rows = [{column: chance.choice(of) for column, of in values.items()} for _ in range(chance.randint(1, 9))]
            table.append(pa.Table.from_pylist(rows, SCHEMA))
    for task in table.scan().plan_files():
        path = task.file.file_path
        files[path] = _rows_of(table, path)
    return Written(table, files, values)


def _rows_of(table: Table, path: str) -> list[dict[str, Any]]:
    """The rows of one file; the columns of its partition lie in it, too."""
    from pyarrow import parquet

    found: list[dict[str, Any]] = parquet.read_table(path.removeprefix("file://"), partitioning=None).to_pylist()
    return found


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    folder = tmp_path_factory.mktemp("catalog")
    with SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse") as made:
        made.create_namespace("n")
        yield made


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("version", [1, 2])
def test_no_file_with_a_matching_row_is_left_out(catalog: SqlCatalog, tmp_path: Path, spec: str, version: int) -> None:
    chance = Random(f"{spec} {version}")
    written = write(catalog, f"{spec}_{version}", chance, version)
    table, files = written.table, written.files
    snapshots = table.snapshots()
    source = f"iceberg:{table.metadata_location.removeprefix('file://')}"
    for place, key in enumerate(KEYS):
        at = str(tmp_path / str(place))
        behind = snapshots[chance.choice([-1, -2, len(snapshots) // 2])]
        if set(key) <= set(PARTITION_COLUMNS.get(spec, ())):  # an index by them alone is refused
            continue
        gnomon.build(None, source, at, key, table_version=str(behind.snapshot_id))
        index = open_index(at)
        covered, root = index.view.covered, index.spec.source.location
        for _ in range(examples(40)):
            filter = random_filter(chance, written.values, key)
            request = PlanRequest(filter=filter)
            full = PLANNER.plan(table.metadata, "t", request, [])
            plan = PLANNER.plan(table.metadata, "t", request, [TableIndex("index", index)])
            matching = {path for path, rows in files.items() if any(matches(filter, row) for row in rows)}
            named = [task["data-file"]["file-path"] for task in plan.body["file-scan-tasks"]]
            assert matching <= set(named), filter
            kept = [
                task["data-file"] for task in full.body["file-scan-tasks"] if task["data-file"]["file-path"] in named
            ]
            assert [task["data-file"] for task in plan.body["file-scan-tasks"]] == kept, filter
            left = {task["data-file"]["file-path"] for task in full.body["file-scan-tasks"]} - set(named)
            assert left <= {f"file://{root}/{path}" for path in covered}
            for task in (*plan.body["file-scan-tasks"], *full.body["file-scan-tasks"]):
                residual, rows = task["residual-filter"], files[task["data-file"]["file-path"]]
                assert [matches(filter, row) for row in rows] == [matches(residual, row) for row in rows], filter


def test_the_index_is_asked_for_most_filters_by_key(catalog: SqlCatalog, tmp_path: Path) -> None:
    """Else the other test would show nothing."""
    chance = Random(3)
    written = write(catalog, "none_asked", chance, 2)
    gnomon.build(
        None, f"iceberg:{written.table.metadata_location.removeprefix('file://')}", str(tmp_path / "i"), ["id"]
    )
    index = TableIndex("index", open_index(str(tmp_path / "i")))
    asked = pruned = 0
    for _ in range(200):
        request = PlanRequest(filter=random_filter(chance, written.values, ["id"]))
        plan = PLANNER.plan(written.table.metadata, "t", request, [index])
        asked += bool(plan.indexes)
        pruned += plan.planned < PLANNER.plan(written.table.metadata, "t", request, []).planned
    assert asked > 60
    assert pruned > 30

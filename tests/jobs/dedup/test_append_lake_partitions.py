"""Appends to partitioned Delta and Iceberg tables: each row lies in a file of its own partition."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new
from gnomon.jobs.dedup import target as finish_module
from gnomon.shadow.commit import open_log
from gnomon.shadow.errors import TableChanged, UsageError
from gnomon.shadow.storage import storage_at
from tests.jobs.dedup.lake_tables import PARTS, DeltaLake, IcebergLake, Lake, here, row, rows, with_column
from tests.jobs.dedup.test_append_lake import LIVE, check
from tests.opened import open_index
from tests.profiles import cases

BUCKET: Transform[Any, Any] = BucketTransform(4)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Partitioned by day and by texts that folders would escape."""
    if request.param == "delta":
        return DeltaLake(tmp_path, partition_by=["day", "part"])
    return IcebergLake(tmp_path, monkeypatch, {"day": IdentityTransform(), "part": IdentityTransform()})


def test_rows_go_to_the_partitions_of_their_values(lake: Lake, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    result = append_new(None, index, rows(30, 60), "nightly")
    assert (result.appended, result.files) == (20, 12)
    assert sum(one["appended"] for one in result.partitions.values()) == 20
    check(lake, index, LIVE)
    for part in PARTS:
        wanted = [n for n in LIVE if row(n)["part"] == part]
        if isinstance(lake, IcebergLake):
            found = lake.table().scan(EqualTo("part", part) if part is not None else IsNull("part")).to_arrow()
            assert sorted(found.column("id").to_pylist()) == wanted
        assert sum(file.rows for file in open_index(index).view.covered.values() if _is_in(file.partition, part)) >= 10
    assert append_new(None, index, rows(0, 61), "more").appended == 3
    check(lake, index, list(range(61)))


def _is_in(partition: str, part: str | None) -> bool:
    shown = {"a": "a", "b c": "b c", "é/ü%=x": "é%2Fü%25%3Dx", None: "__HIVE_DEFAULT_PARTITION__"}
    return partition.endswith(f"/part={shown[part]}")


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_partition_value_that_would_be_written_as_null_is_refused(lake: Lake, tmp_path: Path, text: str) -> None:
    index = str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    before = lake.rows()
    odd = with_column(rows(40, 42), "part", [text, text])
    with pytest.raises(UsageError, match="batch: partition column part: expected a text that is not empty, or null"):
        append_new(None, index, odd, "odd")
    assert lake.rows() == before


@pytest.mark.parametrize(
    "spec",
    cases(
        [
            {"id": BUCKET},
            {"part": BUCKET, "day": IdentityTransform()},
            {"day": DayTransform(), "part": TruncateTransform(2)},
            {"day": MonthTransform(), "id": TruncateTransform(10), "part": VoidTransform()},
        ]
    ),
    ids=str,
)
def test_rows_go_to_the_partitions_of_hidden_transforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Transform[Any, Any]]
) -> None:
    """pyiceberg prunes files by their partition values, so that a wrong one hides rows."""
    lake, index = IcebergLake(tmp_path, monkeypatch, spec), str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    assert append_new(None, index, rows(0, 40), "first").appended == 40
    assert append_new(None, index, rows(30, 60), "second").appended == 20
    check(lake, index, list(range(60)))
    table = lake.table()
    for number in range(60):
        wanted = row(number)
        tests = EqualTo("id", number) & EqualTo("day", wanted["day"].isoformat())
        part = wanted["part"]
        found = table.scan(tests & (EqualTo("part", part) if part is not None else IsNull("part"))).to_arrow()
        assert found.column("id").to_pylist() == [number]
    files = list(table.scan().plan_files())
    assert len(files) == len({file.file.file_path for file in files})
    if "part" not in spec and "day" not in spec:
        assert len(files) == 8, "a file for each bucket and append"
        assert {file.file.partition[0] for file in files} == {0, 1, 2, 3}


def test_files_of_a_partitioning_that_changed_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    real = finish_module.move_files

    def changing(*arguments: Any) -> bool:
        with lake.table().update_spec() as update:
            update.add_field("id", BUCKET)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finish_module, "move_files", changing)
        with pytest.raises(
            TableChanged, match=r"its rows have 4 values of bucket\[4\] of id: the partitioning changed"
        ):
            append_new(None, index, rows(30, 60), "nightly")
    assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    check(lake, index, LIVE)


def test_an_empty_table_takes_its_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch, {"part": IdentityTransform()}), str(tmp_path / "index")
    lake.table().delete("id >= 0")
    assert lake.files() == []
    build(None, lake.name, index, ["id"], buckets=2)
    assert append_new(None, index, rows(0, 10), "first").appended == 10
    check(lake, index, list(range(10)))
    assert open_index(index).spec.partitions == ("part",)
    assert dt.date(2026, 1, 1) == open_index(index).fetch(0)[0]["day"]


EXTREMES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.decimal128(38, 2): [decimal.Decimal(f"{sign}{'9' * 36}.99") for sign in ("-", "")],
    pa.date32(): [dt.date.min, dt.date.max],
    pa.timestamp("us"): [dt.datetime.min, dt.datetime.max],
    pa.timestamp("us", "UTC"): [dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)],
    pa.string(): ["\U0010ffff" * 40, "\0"],
    pa.binary(): [b"\xff" * 40, b"\0"],
}
TRANSFORMS: list[Transform[Any, Any]] = [
    BucketTransform(4),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]


@pytest.mark.parametrize("kind", cases(EXTREMES), ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_a_value_without_a_partition_is_refused_before_the_append_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, transform: Transform[Any, Any]
) -> None:
    """Whatever the value and the transform, the rows are in the table, or no record blocks the appends after it."""
    catalog, index = here(tmp_path, monkeypatch), str(tmp_path / "index")
    catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    table = catalog.create_table("db.t", schema)
    if not transform.can_transform(table.schema().find_type("v")):
        return
    with table.update_spec() as update:
        update.add_field("v", transform, "part")
    build(None, "iceberg:here.db.t", index, ["id"])
    expected = []
    for number, value in enumerate([*EXTREMES[kind], None]):
        batch = pa.table([[number], [value]], schema)
        refused = None
        try:
            append_new(None, index, batch, f"batch {number}")
        except UsageError as error:
            refused = error
        if refused is None:
            expected += batch.to_pylist()
        else:
            assert f"column v: the value {cast_of(value)!r} has no partition by {transform}" in str(refused)
            assert open_log(storage_at(index)).open == ()
    assert {"id": 2, "v": None} in expected
    assert catalog.load_table("db.t").scan().to_arrow().sort_by("id").to_pylist() == expected
    assert [row for one in open_index(index).fetch_many(range(3)) for row in one] == expected


def cast_of(value: Any) -> Any:
    """The value as pyiceberg's transforms take it."""
    return pa.array([value]).cast(pa.int64()).to_pylist()[0] if isinstance(value, dt.datetime) else value


ODD_TEXTS = [
    "a",
    "b c",
    "é/ü%=x",
    "a:b",
    "q?#&+",
    "back\\slash",
    "new\nline",
    "%20",
    ".",
    "..",
    "日本",
    " lead",
    "C:",
    None,
]


def test_other_readers_read_a_delta_table_after_an_append(tmp_path: Path) -> None:
    """Polars takes the values of partitions from folders, as its own writer and delta-rs lay them."""
    schema = pa.schema(
        [("id", pa.int64()), ("text", pa.string()), ("day", pa.date32()), ("n", pa.int32()), ("v", pa.string())]
    )
    columns = ["text", "day", "n"]

    def some(begin: int) -> pa.Table:
        days = [dt.date(2026, 1, 1), None]
        made = [(begin + i, text, days[i % 2], i % 3 - 1, f"v{i}") for i, text in enumerate(ODD_TEXTS)]
        return pa.Table.from_pylist([dict(zip(schema.names, one, strict=True)) for one in made], schema)

    place, index = str(tmp_path / "table"), str(tmp_path / "index")
    write_deltalake(place, some(0), partition_by=columns)
    laid = {str(path.parent) for path in (tmp_path / "table").rglob("*.parquet")}
    build(None, f"delta:{place}", index, ["id"])
    append_new(None, index, some(100), "nightly")
    assert {str(path.parent) for path in (tmp_path / "table").rglob("*.parquet")} == laid
    polars.from_arrow(some(200)).write_delta(place, mode="append")
    expected = [row for begin in (0, 100, 200) for row in some(begin).to_pylist()]
    assert polars.read_delta(place).sort("id").select(schema.names).to_dicts() == expected
    assert DeltaTable(place).to_pyarrow_table(columns=schema.names).sort_by("id").to_pylist() == expected
    files = [file.removeprefix("file://") for file in DeltaTable(place).file_uris()]
    by_folders = f"select id, v from read_parquet({files!r}, hive_partitioning = true) where n = 1 and day is not null"
    wanted = [(one["id"], one["v"]) for one in expected if one["n"] == 1 and one["day"]]
    assert duckdb.sql(f"{by_folders} order by id").fetchall() == wanted
    build(None, f"delta:{place}", index, ["id"])
    assert [row for one in open_index(index).fetch_many([row["id"] for row in expected]) for row in one] == expected


def test_other_readers_read_an_iceberg_table_after_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = IcebergLake(tmp_path, monkeypatch, {"day": IdentityTransform(), "part": IdentityTransform()})
    index = str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    append_new(None, index, rows(30, 60), "nightly")
    lake.append(rows(60, 70))
    expected = [row(number) for number in [*LIVE, *range(60, 70)]]
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # the other planner is a package of its own
    assert lake.rows() == expected
    found = polars.scan_iceberg(lake.table()).select("id", "day", "part").sort("id").collect().to_dicts()
    assert found == [{name: one[name] for name in ("id", "day", "part")} for one in expected]

"""Appends to partitioned Delta and Iceberg tables: each row lies in a file of its own partition."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_new, build
from gnomon.jobs.dedup import finish as finish_module
from gnomon.shadow import open_index
from gnomon.shadow.errors import TableChanged, UsageError
from tests.indexer.dedup.lake_tables import PARTS, DeltaLake, IcebergLake, Lake, row
from tests.indexer.dedup.test_append_lake import LIVE, batch, check

pytestmark = pytest.mark.spark

BUCKET: Transform[Any, Any] = BucketTransform(4)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Partitioned by day and by texts that folders would escape."""
    if request.param == "delta":
        return DeltaLake(tmp_path, partition_by=["day", "part"])
    return IcebergLake(tmp_path, monkeypatch, {"day": IdentityTransform(), "part": IdentityTransform()})


def test_rows_go_to_the_partitions_of_their_values(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    build(spark, lake.name, index, ["id"], buckets=2)
    result = append_new(spark, index, batch(spark, 30, 60), "nightly")
    assert (result.appended, result.files) == (20, 12)
    assert sum(one["appended"] for one in result.partitions.values()) == 20
    check(lake, index, LIVE)
    for part in PARTS:
        wanted = [n for n in LIVE if row(n)["part"] == part]
        if isinstance(lake, IcebergLake):
            found = lake.table().scan(EqualTo("part", part) if part is not None else IsNull("part")).to_arrow()
            assert sorted(found.column("id").to_pylist()) == wanted
        assert sum(file.rows for file in open_index(index).view.covered.values() if _is_in(file.partition, part)) >= 10
    assert append_new(spark, index, batch(spark, 0, 61), "more").appended == 3
    check(lake, index, list(range(61)))


def _is_in(partition: str, part: str | None) -> bool:
    shown = {"a": "a", "b c": "b c", "é/ü%=x": "é%2Fü%25%3Dx", None: "__HIVE_DEFAULT_PARTITION__"}
    return partition.endswith(f"/part={shown[part]}")


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_partition_value_that_would_be_written_as_null_is_refused(
    spark: SparkSession, lake: Lake, tmp_path: Path, text: str
) -> None:
    index = str(tmp_path / "index")
    build(spark, lake.name, index, ["id"], buckets=2)
    before = lake.rows()
    odd = batch(spark, 40, 42).withColumn("part", F.lit(text))
    with pytest.raises(UsageError, match="batch: partition column part: expected a text that is not empty, or null"):
        append_new(spark, index, odd, "odd")
    assert lake.rows() == before


@pytest.mark.parametrize(
    "spec",
    [
        {"id": BUCKET},
        {"part": BUCKET, "day": IdentityTransform()},
        {"day": DayTransform(), "part": TruncateTransform(2)},
        {"day": MonthTransform(), "id": TruncateTransform(10), "part": VoidTransform()},
    ],
    ids=["bucket", "bucket and identity", "day and truncate", "month, truncate and void"],
)
def test_rows_go_to_the_partitions_of_hidden_transforms(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Transform[Any, Any]]
) -> None:
    """pyiceberg prunes files by their partition values, so that a wrong one hides rows."""
    lake, index = IcebergLake(tmp_path, monkeypatch, spec), str(tmp_path / "index")
    build(spark, lake.name, index, ["id"], buckets=2)
    assert append_new(spark, index, batch(spark, 0, 40), "first").appended == 40
    assert append_new(spark, index, batch(spark, 30, 60), "second").appended == 20
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


def test_files_of_a_partitioning_that_changed_are_given_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    build(spark, lake.name, index, ["id"], buckets=2)
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
            append_new(spark, index, batch(spark, 30, 60), "nightly")
    assert append_new(spark, index, batch(spark, 30, 60), "nightly").appended == 20
    check(lake, index, LIVE)


def test_an_empty_table_takes_its_first_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch, {"part": IdentityTransform()}), str(tmp_path / "index")
    for number in lake.rows():
        lake.delete(number["id"])
    assert lake.files() == []
    build(spark, lake.name, index, ["id"], buckets=2)
    assert append_new(spark, index, batch(spark, 0, 10), "first").appended == 10
    check(lake, index, list(range(10)))
    assert open_index(index).spec.partitions == ("part",)
    assert dt.date(2026, 1, 1) == open_index(index).fetch(0)[0]["day"]

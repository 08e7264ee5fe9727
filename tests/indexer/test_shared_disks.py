"""Local paths when tasks may run on other machines: they are paths of local disks, and files of tasks must exist
here."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_new, build, load
from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata.snapshots import snapshot_numbers
from gnomon.shadow.storage import storage_at

pytestmark = pytest.mark.spark
PRIVATE_DISK = 'exec unshare -rm sh -c \'mount -t tmpfs none "$0" && exec "$@"\' '  # folder, program and its arguments


def _has_private_disks() -> bool:
    """Whether this system allows a process to have private disks."""
    done = subprocess.run(["sh", "-c", f"{PRIVATE_DISK} /mnt true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "lake")
    spark.range(20).select("id", F.lit("a").alias("dt")).write.partitionBy("dt").parquet(path)
    return path


def test_paths_are_of_local_disks_whatever_file_system_spark_takes_them_to_be_of(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    batch = spark.range(10, 30).select("id", F.lit("b").alias("dt")).localCheckpoint()
    spark.conf.set("fs.defaultFS", "nowhere://cluster")
    try:
        build(spark, source, str(tmp_path / "index"), ["id"])
        first = append_new(spark, str(tmp_path / "index"), batch, "first")
        second = append_new(spark, str(tmp_path / "index"), batch, "second")
        rows = load(spark, str(tmp_path / "index"), batch.select("id")).collect()
    finally:
        spark.conf.unset("fs.defaultFS")
    assert (first.appended, second.appended) == (10, 0)
    assert sorted((row.id, row.dt) for row in rows) == [(i, "a" if i < 20 else "b") for i in range(10, 30)]


@pytest.fixture
def disk(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder in place of which each task has a private disk, inside `alone`."""
    disk, python = tmp_path / "disk", tmp_path / "python"
    disk.mkdir()
    python.write_text(f"""#!/bin/sh\n{PRIVATE_DISK} {disk} {os.environ["PYSPARK_PYTHON"]} "$@"\n""")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return disk


@contextmanager
def alone(spark: SparkSession, disk: Path) -> Iterator[None]:
    """Give tasks a private disk in place of a folder."""
    context = spark.sparkContext
    there, context.pythonExec = context.pythonExec, str(disk.parent / "python")
    try:
        yield
    finally:
        context.pythonExec = there


@pytest.mark.skipif(not _has_private_disks(), reason="this system gives no mount namespaces to us")
def test_a_build_whose_tasks_wrote_to_another_disk_is_not_committed(
    spark: SparkSession, source: str, disk: Path
) -> None:
    with (
        alone(spark, disk),
        pytest.raises(StorageError, match=r"a task wrote .* bytes, and none are here"),
    ):
        build(spark, source, str(disk / "index"), ["id"])
    assert not snapshot_numbers(storage_at(str(disk / "index")))


@pytest.mark.skipif(not _has_private_disks(), reason="this system gives no mount namespaces to us")
def test_a_dedup_load_whose_tasks_wrote_to_another_disk_appends_none(
    spark: SparkSession, source: str, disk: Path, tmp_path: Path
) -> None:
    lake, index = disk / "lake", str(tmp_path / "index")
    shutil.copytree(source, lake)
    build(spark, str(lake), index, ["id"])
    before = sorted(lake.rglob("*"))
    batch = spark.range(10, 30).select("id", F.lit("b").alias("dt"))
    with (
        alone(spark, disk),
        pytest.raises(StorageError, match=r"a task wrote .* bytes, and none are here"),
    ):
        append_new(spark, index, batch, "first")
    assert sorted(lake.rglob("*")) == before
    assert append_new(spark, index, batch, "first").appended == 10

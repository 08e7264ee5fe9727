"""indexer/spark/session.py: the progress of a running job, and its duration afterwards."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_new, build
from gnomon.indexer.build.engine import SparkEngine
from gnomon.indexer.spark import session as progress
from gnomon.indexer.spark.session import spark_stage, watched
from gnomon.jobs import Progress, Stages, Step
from gnomon.shadow.errors import DamagedSource

pytestmark = pytest.mark.spark
STAGES = ["list", "describe", "write", "verify", "commit"]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.005)


def names(steps: list[Step]) -> list[str]:
    return list(dict.fromkeys(step.stage for step in steps))


def no_thread_is_left() -> bool:
    return not any(thread.name == progress.THREAD for thread in threading.enumerate())


def test_a_build_tells_its_stages_and_how_long_they_took(spark: SparkSession, tmp_path: Path) -> None:
    source, index = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    pq.write_table(pa.table({"k": range(5)}), source / "a.parquet")
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), source / "b.parquet")
    steps: list[Step] = []
    result = build(spark, str(source), index, ["k"], progress=steps.append)
    assert [name for name in names(steps) if name != "scan"] == STAGES
    assert Step("describe", 0, 2, "files") in steps
    counted = [step for step in steps if step.unit == "tasks"]
    assert all(0 <= step.done <= step.total and step.rows == 5 for step in counted)
    assert list(result.stage_seconds) == STAGES
    assert 0 < sum(result.stage_seconds.values()) <= result.seconds + 0.01
    assert (result.skipped_files, result.empty_files) == (0, 1)
    pq.write_table(pa.table({"k": range(3)}), source / "c.parquet")
    (source / "a.parquet").unlink()
    again = build(spark, str(source), index, ["k"])
    assert (again.new_files, again.vanished_files, again.skipped_files, again.empty_files) == (1, 1, 1, 0)
    nothing = build(spark, str(source), index, ["k"])
    assert (nothing.skipped_files, list(nothing.stage_seconds)) == (2, ["list"])
    assert no_thread_is_left()


def test_a_failed_build_leaves_no_thread_and_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"k": ["a" * 99] * 500}), source / "a.parquet", compression="none", use_dictionary=False)
    data = bytearray((source / "a.parquet").read_bytes())
    data[4:200] = bytes(196)
    (source / "a.parquet").write_bytes(data)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "of the caller")
    try:
        with pytest.raises(DamagedSource):
            build(spark, str(source), str(tmp_path / "index"), ["k"], progress=lambda step: None)
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "of the caller"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert no_thread_is_left()


def described(spark: SparkSession) -> str | None:
    """The description that Spark's UI shows of a job that begins now, as its tasks know it."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"text": [context.getLocalProperty("spark.job.description")]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(told, "text string").collect()
    text: str | None = row.text
    return text


@pytest.mark.parametrize("on_progress", [None, lambda step: None])
def test_spark_names_its_jobs_by_ours_and_by_their_stage(spark: SparkSession, on_progress: Progress | None) -> None:
    spark.sparkContext.setJobDescription("of the caller")
    try:
        with SparkEngine(spark).running("gnomon build /indexes/crawl"):
            with spark_stage(Stages(on_progress), spark, "write"):
                assert described(spark) == "gnomon build /indexes/crawl: write"
            assert described(spark) == "gnomon build /indexes/crawl"
        with spark_stage(Stages(on_progress), spark, "fetch"):
            assert described(spark) == "gnomon fetch"
        assert described(spark) == "of the caller"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)


def test_tasks_are_counted_while_they_run(spark: SparkSession) -> None:
    """The job runs until its tasks were seen before and after its shuffle."""
    seen: dict[str, Step] = {}
    with watched(spark, Step("sort", rows=7), lambda step: seen.__setitem__(step.stage, step)):
        for _ in range(50):
            spark.range(0, 300_000, 1, 3).repartition(2).select(
                F.max(F.sha2(F.col("id").cast("string"), 256))
            ).collect()
            if {"scan", "sort"} <= set(seen):
                break
    assert {"scan", "sort"} <= set(seen)
    assert all((step.unit, step.rows) == ("tasks", 7) and step.total > 0 for step in seen.values())


def test_an_interrupt_ends_the_thread(spark: SparkSession) -> None:
    def interrupted() -> None:
        with watched(spark, Step("write"), lambda step: None):
            assert not no_thread_is_left()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert no_thread_is_left()


def test_an_append_tells_its_stages(spark: SparkSession, tmp_path: Path) -> None:
    source, index = str(tmp_path / "source"), str(tmp_path / "index")
    spark.range(5).write.parquet(source)
    build(spark, source, index, ["id"])
    steps: list[Step] = []
    result = append_new(spark, index, spark.range(3, 9), "batch", progress=steps.append)
    assert result.appended == 4
    expected = ["bring up to date", "check and write", "commit append", "append and index"]
    assert list(result.stage_seconds) == expected
    assert set(result.stage_seconds) <= set(names(steps))
    assert {"commit", "verify"} <= set(names(steps))
    assert no_thread_is_left()

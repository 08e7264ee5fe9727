"""Hourly deliveries, appended while programs die and race: in the end the source has each delivered key once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.killable import Killable
from tests.end_to_end.replay import Figures, Replay
from tests.end_to_end.replay_targets import DeltaTarget, Folder, IcebergTarget, Target
from tests.jobs.dedup.lake_tables import here

pytestmark = pytest.mark.spark

Tell = Callable[[str], None]

SEED = "GNOMON_REPLAY_SEED"  # replaces the fixed seed
DELIVERIES, KILLS = "GNOMON_REPLAY_DELIVERIES", "GNOMON_REPLAY_KILLS"  # numbers for the long run


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """A function that prints the progress of a long run."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)

    return tell


def replayed(replay: Replay, workers: list[Killable]) -> Figures:
    begin = time.monotonic()
    try:
        replay.run(workers)
    finally:
        for worker in workers:
            worker.close()
    figures = replay.check()
    figures.starts = sum(worker.starts for worker in workers)
    figures.seconds = time.monotonic() - begin
    return figures


@pytest.mark.nightly
def test_a_morning_of_deliveries_with_kills_and_races(spark: SparkSession, tmp_path: Path, tell: Tell) -> None:
    """They use this program's Spark, which lives on."""
    morning(Folder(tmp_path / "source"), spark, tmp_path, tell)


@pytest.mark.nightly
@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
def test_a_morning_of_deliveries_to_a_table_that_others_change(
    spark: SparkSession, tmp_path: Path, format_name: str, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = morning(table(format_name, tmp_path, monkeypatch), spark, tmp_path, tell)
    assert figures.changes.total() >= 3


def test_a_morning_of_deliveries_by_spark_and_without_it(spark: SparkSession, tmp_path: Path, tell: Tell) -> None:
    """Each program finishes the appends that the other began."""
    replay = Replay(
        Folder(tmp_path / "source"), tmp_path, 11, deliveries=8, rows_each=60, kills=3, null_keys="keep", tell=tell
    )
    figures = replayed(replay, [Killable(tmp_path, "one", is_local=True), Killable(tmp_path, "two", spark)])
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])


@pytest.mark.nightly
@pytest.mark.parametrize("null_keys", ["dedup", "keep"])
def test_a_week_of_deliveries_without_spark(tmp_path: Path, null_keys: str, tell: Tell) -> None:
    seed, deliveries, kills = (
        int(os.environ.get(name, default)) for name, default in ((SEED, "3"), (DELIVERIES, "168"), (KILLS, "60"))
    )
    target = Folder(tmp_path / "source")
    replay = Replay(target, tmp_path, seed, deliveries, rows_each=300, kills=kills, null_keys=null_keys, tell=tell)
    figures = replayed(replay, [Killable(tmp_path, name, is_local=True) for name in ("one", "two", "three")])
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])
    assert figures.kills.total() >= kills


def morning(target: Target, spark: SparkSession, folder: Path, tell: Tell) -> Figures:
    seed = int(os.environ.get(SEED, "7"))
    replay = Replay(target, folder, seed, deliveries=8, rows_each=60, kills=3, null_keys="keep", tell=tell)
    figures = replayed(replay, [Killable(folder, name, spark) for name in ("one", "two")])
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])
    assert figures.kills.total() >= 3
    return figures


def table(format_name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    return DeltaTarget(folder / "table") if format_name == "delta" else IcebergTarget(here(folder, monkeypatch))


@pytest.mark.nightly
@pytest.mark.parametrize("null_keys", ["dedup", "keep"])
def test_a_week_of_hourly_deliveries_with_60_kills(
    spark: SparkSession, tmp_path: Path, null_keys: str, tell: Tell
) -> None:
    week(Folder(tmp_path / "source"), null_keys, spark, tmp_path, tell)


@pytest.mark.nightly
@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
def test_a_week_of_deliveries_with_60_kills_to_a_table_that_others_change(
    spark: SparkSession, tmp_path: Path, format_name: str, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    week(table(format_name, tmp_path, monkeypatch), "keep", spark, tmp_path, tell)


def week(target: Target, null_keys: str, spark: SparkSession, folder: Path, tell: Tell) -> None:
    """Two processes have their own Spark, which dies with them. The Spark of the third lives on."""
    seed, deliveries, kills = (
        int(os.environ.get(name, default)) for name, default in ((SEED, "1"), (DELIVERIES, "168"), (KILLS, "60"))
    )
    replay = Replay(target, folder, seed, deliveries, rows_each=300, kills=kills, null_keys=null_keys, tell=tell)
    workers = [Killable(folder, "one"), Killable(folder, "two"), Killable(folder, "three", spark)]
    figures = replayed(replay, workers)
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])
    assert figures.kills.total() >= kills

"""Hourly deliveries, appended while programs die and race: in the end the source has each delivered key once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.killable import Killable
from tests.end_to_end.replay import Figures, Replay

pytestmark = pytest.mark.spark

SEED = "GNOMON_REPLAY_SEED"  # replaces the fixed seed
DELIVERIES, KILLS = "GNOMON_REPLAY_DELIVERIES", "GNOMON_REPLAY_KILLS"  # numbers for the long run


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
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


def test_a_morning_of_deliveries_with_kills_and_races(
    spark: SparkSession, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """They use this program's Spark, which lives on."""
    replay = Replay(
        tmp_path, int(os.environ.get(SEED, "7")), deliveries=8, rows_each=60, kills=3, null_keys="keep", tell=tell
    )
    figures = replayed(replay, [Killable(tmp_path, name, spark) for name in ("one", "two")])
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])
    assert figures.kills.total() >= 3


@pytest.mark.soak
@pytest.mark.parametrize("null_keys", ["dedup", "keep"])
def test_a_week_of_hourly_deliveries_with_60_kills(
    spark: SparkSession, tmp_path: Path, null_keys: str, tell: Callable[[str], None]
) -> None:
    """Two processes have their own Spark, which dies with them. The Spark of the third lives on."""
    seed, deliveries, kills = (
        int(os.environ.get(name, default)) for name, default in ((SEED, "1"), (DELIVERIES, "168"), (KILLS, "60"))
    )
    replay = Replay(tmp_path, seed, deliveries, rows_each=300, kills=kills, null_keys=null_keys, tell=tell)
    workers = [Killable(tmp_path, "one"), Killable(tmp_path, "two"), Killable(tmp_path, "three", spark)]
    figures = replayed(replay, workers)
    tell(figures.report())
    assert (figures.duplicates_let_in, figures.rows_lost, figures.faults) == (0, 0, [])
    assert figures.kills.total() >= kills

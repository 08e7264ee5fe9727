"""The attack finds nothing: a few lakes of each run of the tests, and, for as long as asked, by hand."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.soak.attack import attack

SEED = 20_260_000


@pytest.mark.spark
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_a_random_history_of_a_lake_is_answered_right(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    tally: Counter[str] = Counter()
    assert attack(spark, tmp_path, seed, tally) is None
    assert tally["keys present"] > 20
    assert tally["keys absent"] > 20


@pytest.mark.nightly
@pytest.mark.spark
def test_random_histories_are_answered_right_for_as_long_as_asked(spark: SparkSession, tmp_path: Path) -> None:
    """`GNOMON_SOAK_MINUTES` says how long, `GNOMON_SOAK_SEED` where it begins; `python -m tests.soak.attack` prints a
    tally."""
    end = time.monotonic() + 60 * float(os.environ.get("GNOMON_SOAK_MINUTES", "10"))
    seed, tally = int(os.environ.get("GNOMON_SOAK_SEED", str(SEED))), Counter[str]()
    while time.monotonic() < end:
        assert attack(spark, tmp_path, seed, tally) is None
        seed += 1

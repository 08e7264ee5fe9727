"""The fuzzer's finds stay fixed, and its first cases are sound; `nightly` runs it for minutes."""

import os
from pathlib import Path

import pytest

from tests.btree.fuzz import FINDS, Case, judge, make_case, run
from tests.btree.mutations import SEEDS

BY_NAME = {seed.name: seed for seed in SEEDS}


@pytest.mark.parametrize("path", sorted(FINDS.glob("*")), ids=lambda path: path.name)
def test_a_find_is_answered_right_or_refused(path: Path) -> None:
    kind, rest = path.name.split("-", 1)
    origin = BY_NAME.get(rest.rsplit("-", 1)[0])  # a vector of Dione may be missing here
    judge(Case(path.read_bytes(), [origin] if origin else [], is_raw=kind == "raw" and origin is not None))


def test_some_hundred_cases_are_answered_right_or_refused() -> None:
    assert 0 < sum(judge(make_case(0, number)) for number in range(700)) < 350


def test_a_case_is_the_same_each_time_it_is_made() -> None:
    assert [make_case(5, number) for number in range(50)] == [make_case(5, number) for number in range(50)]


@pytest.mark.process
def test_a_run_counts_its_cases() -> None:
    report = run(seed=7, seconds=2, keep=False)
    assert report.finds == []
    assert report.cases > report.read > 0


@pytest.mark.nightly
def test_ten_minutes_find_nothing() -> None:
    report = run(seed=int(os.environ.get("FUZZ_SEED", "1")), seconds=600)
    assert report.finds == []

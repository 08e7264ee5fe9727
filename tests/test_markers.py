"""What the markers and the profiles promise: a test without a marker starts no process, and each case has its day."""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import profiles


def test_a_test_without_a_marker_cannot_start_a_process() -> None:
    with pytest.raises(AssertionError, match=r"test_markers.py.* calls Popen.__init__ and has none of the markers"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(AssertionError, match=r"calls posix.fork|calls os.fork"):
        os.fork()


@pytest.mark.process
def test_a_test_with_a_marker_can() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    tests = Path(__file__).parent
    folders = {part for path in tests.rglob("test_*.py") for part in path.parent.relative_to(tests).parts}
    for pattern in pytestconfig.getini("norecursedirs"):
        assert not fnmatch.filter(folders, pattern), f"pytest does not look into folders like {pattern}"


@pytest.mark.parametrize("count", range(8))
def test_each_case_of_a_kind_is_run_within_three_days(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_current", ["quick"])
    run = set()
    for day in range(5, 8):
        monkeypatch.setattr(profiles, "_today", lambda day=day: day)
        found = profiles.cases(range(count))
        assert bool(found) == bool(count)
        run |= set(found)
    assert run == set(range(count))
    monkeypatch.setattr(profiles, "_current", ["full"])
    assert profiles.cases(range(count)) == list(range(count))

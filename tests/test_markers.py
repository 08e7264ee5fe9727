"""What the markers promise: a test without one starts no process."""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest


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

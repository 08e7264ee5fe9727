"""What the markers promise: a test without one starts no process."""

import os
import subprocess
import sys

import pytest


def test_a_test_without_a_marker_cannot_start_a_process() -> None:
    with pytest.raises(AssertionError, match=r"test_markers.py.* calls Popen.__init__ and has none of the markers"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(AssertionError, match=r"calls posix.fork|calls os.fork"):
        os.fork()


@pytest.mark.process
def test_a_test_with_a_marker_can() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)

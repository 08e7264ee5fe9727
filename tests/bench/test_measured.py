"""The measurement of a command."""

import subprocess
import sys

import pytest

from bench.measured import measured

pytestmark = pytest.mark.process
HOLDS = "import subprocess, sys, time; held = bytearray(80 << 20); "
STARTS = HOLDS + "subprocess.run([sys.executable, '-c', 'import time; held = bytearray(200 << 20); time.sleep(1)'])"


def test_the_memory_of_a_command_and_of_what_it_starts_is_told_apart() -> None:
    cost = measured([sys.executable, "-c", STARTS])
    [started] = [peak for name, peak in cost.programs.items() if name != "command"]
    assert 80 < cost.programs["command"] < 200 < started
    assert cost.seconds > 1 > cost.cpu > 0


def test_a_command_that_fails_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        measured([sys.executable, "-c", "raise SystemExit(3)"])

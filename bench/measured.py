"""The cost of a whole command."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

# Runs a command, and prints its seconds, CPU seconds and peak MB of memory. It is a process of its own, since the peak
# of a process is at least that of the one that started it.
MEASURE = """
import json, os, subprocess, sys, time
begin = time.perf_counter()
_, status, used = os.wait4(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid, 0)
print(json.dumps([time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024]))
sys.exit(status != 0)
"""


class Cost(NamedTuple):
    """Seconds, CPU seconds, and the peak MB of the largest process of a command."""

    seconds: float
    cpu: float
    peak: int


def measured(command: Sequence[str]) -> Cost:
    """Run a command, whose output is thrown away. CalledProcessError where it fails."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, check=True)
    return Cost(*json.loads(done.stdout))

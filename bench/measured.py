"""The cost of a whole command."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Runs a command, and prints its seconds, its CPU seconds and those of all that it started, its peak MB of memory, then
# the peak MB of its own process and of each program that it started. It is a process of its own, since the peak of a
# process is at least that of the one that started it.
MEASURE = """
import json, os, subprocess, sys, threading, time

peaks, ticks, done = {}, {}, threading.Event()

def watch(first):
    while not done.wait(0.2):
        parents, found = {}, {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
                used = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:13]
            except (OSError, ValueError):
                continue
            parents[int(pid)] = int(fields["PPid"])
            peak = int(fields.get("VmHWM", "0 kB").split()[0]) // 1024
            found[int(pid)] = fields["Name"].strip(), peak, sum(map(int, used))
        for pid, (name, peak, used) in found.items():
            above = parents[pid]
            if pid == first:
                name, above = "command", first
            while above not in (0, first):
                above = parents.get(above, 0)
            if above == first:
                peaks[name] = max(peak, peaks.get(name, 0))
                ticks[pid] = used

begin = time.perf_counter()
started = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
watcher = threading.Thread(target=watch, args=(started.pid,))
watcher.start()
_, status, used = os.wait4(started.pid, 0)
seconds = time.perf_counter() - begin
done.set()
watcher.join()
cpu = max(used.ru_utime + used.ru_stime, sum(ticks.values()) / os.sysconf("SC_CLK_TCK"))
print(json.dumps([seconds, cpu, used.ru_maxrss // 1024, peaks]))
sys.exit(status != 0)
"""


class Cost(NamedTuple):
    """Seconds, CPU seconds (of processes that it does not wait for, as Java, up to the last 0.2 seconds), and the peak
    MB of the largest process that it waited for. `programs` has the peak MB of its own process, as "command", and of
    the largest process of each program that it started and that ran for 0.2 seconds, by name."""

    seconds: float
    cpu: float
    peak: int
    programs: Mapping[str, int]


def measured(command: Sequence[str]) -> Cost:
    """Run a command, whose output is thrown away. CalledProcessError where it fails."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, check=True)
    return Cost(*json.loads(done.stdout))

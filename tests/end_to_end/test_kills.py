"""The real command, killed during its writes and raced against itself: nothing is lost.

The test watches the index folder, and kills the command as soon as the n-th name of a kind has come (or gone). Every
other time it leaves Spark's Python workers, which have their own process group, to end by themselves.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from gnomon.shadow import open_index
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import write_source
from tests.shadow.operations import OPERATIONS, check_clean, check_rows, check_state, prepare

ROWS, RACES = 200, 3
POLL = 0.001  # seconds between two looks at the index folder

STAGED, PROBE, INDEX_FILE, FILTER = r"(^|/)_staged-", "^_shadow/probe/", r"\.btree\.avro$", r"\.filter$"
MAPS = r"\.maps$"
SPEC, LIST, SNAPSHOT = "^_shadow/spec.json$", "^_shadow/segments/[^_]", "^_shadow/snapshots/[^_]"


class Point(NamedTuple):
    """The time of a kill: when a number of new names match or, with `gone`, a number of old names are missing."""

    pattern: str
    count: int = 1
    gone: bool = False


WRITTEN = [Point(STAGED), Point(INDEX_FILE), Point(INDEX_FILE, 3), Point(FILTER), Point(LIST), Point(SNAPSHOT)]
BUILD = ["build", "SOURCE", "INDEX", "--key", "k", "--buckets", "2", "--master", "local[2]"]
POINTS = {
    "first build": (BUILD, [Point(PROBE), *WRITTEN, Point(FILTER, 3), Point(SPEC)]),
    "build of changes": (BUILD, WRITTEN),
    "page maps of what is indexed": (
        [*BUILD, "--page-maps"],
        [Point(MAPS), Point(LIST), Point(LIST, 2), Point(SNAPSHOT)],
    ),
    "flat build that merges": ([*BUILD, "--flat"], [Point(INDEX_FILE, 3), Point(LIST)]),
    "full build": ([*BUILD, "--full"], [Point(INDEX_FILE), Point(LIST), Point(SNAPSHOT)]),
    "adopt": ([*BUILD, "--adopt"], [Point(PROBE), Point(LIST), Point(LIST, 2), Point(SNAPSHOT)]),
    "compact": (["compact", "INDEX"], WRITTEN),
    "re-shard": (["rebucket", "INDEX", "--buckets", "3"], [*WRITTEN, Point(INDEX_FILE, 6), Point(FILTER, 5)]),
    "vacuum": (["vacuum", "INDEX", "--grace", "0s"], [Point("", count, gone=True) for count in (1, 2, 3, 5)]),
}


def test_every_operation_is_killed() -> None:
    without = {"build that finds files gone"}  # it writes no index files
    assert POINTS.keys() == OPERATIONS.keys() - without


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("name", POINTS)
def test_a_command_killed_where_it_writes_leaves_one_whole_snapshot(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, points = POINTS[name]
    source, index, before = tmp_path / "lake", tmp_path / "index", tmp_path / "before"
    prepare(name, source, LocalStorage(str(before)))
    storage = LocalStorage(str(index))
    command = [sys.executable, "-m", "gnomon", *({"SOURCE": str(source), "INDEX": str(index)}.get(w, w) for w in words)]
    tried: Counter[str] = Counter()
    for number, point in enumerate(points):
        shutil.rmtree(index, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, index)
        again = [points[-1 - number // 2]] * (number % 2)  # every other recovery is killed, too
        for kill in (point, *again):
            was_done = check_state(name, storage)
            tried[run_until(command, index, kill, spare_workers=bool(number % 2))] += 1
            assert check_state(name, storage) or not was_done, "what was committed is gone"
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, (point, run.stderr)
        assert check_state(name, storage), "the next run did not finish the work"
        check_clean(storage)
        check_rows(storage, OPERATIONS[name].lake)
        assert verify(storage, sample=None).faults == []
        vacuum(storage, grace_seconds=0, unnamed_seconds=0)
        assert verify(storage, sample=None).faults == []
    with capsys.disabled():
        each = ", ".join(f"{count} {what}" for what, count in tried.items())
        print(f"\n{name}: tried {tried.total()} ({each}); lost 0")


def run_until(command: list[str], index: Path, point: Point, spare_workers: bool) -> str:
    """Run a command until a point. Returns where it was killed."""
    before = names(index)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        while not reached(point, before, names(index)):
            try:
                run.wait(POLL)
            except subprocess.TimeoutExpired:
                continue
            return "ended first"
        os.killpg(run.pid, signal.SIGKILL)
        if not spare_workers:
            kill_session(run.pid)
    new, gone = names(index) - before, before - names(index)
    if any(re.search(SNAPSHOT, name) for name in new):
        return "killed after the commit"
    if gone:
        return "killed while files went"
    written = any(re.search(f"{INDEX_FILE}|{LIST}", name) for name in new)
    return "killed between the first file and the commit" if written else "killed before the first file"


def names(index: Path) -> set[str]:
    """All names in the folder, with hidden ones."""
    return {os.path.relpath(os.path.join(folder, name), index) for folder, _, found in os.walk(index) for name in found}


def reached(point: Point, before: set[str], now: set[str]) -> bool:
    found = before - now if point.gone else now - before
    return sum(re.search(point.pattern, name) is not None for name in found) >= point.count


def kill_session(leader: int) -> None:
    """Kill all processes that a command started, in all their groups."""
    killed: set[int] = set()
    while True:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        found = {pid for pid in pids - killed if session_of(pid) == leader}
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed |= found


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


# -- races -------------------------------------------------------------------------------------------------------------


def build_of(lake: Path) -> list[str]:
    build = ["build", str(lake / "source"), str(lake / "index"), "--key", "k", "--master", "local[1]"]
    return [sys.executable, "-m", "gnomon", *build]


def add(lake: Path, day: int) -> None:
    table = pa.table({"k": pa.array(range(day * ROWS, (day + 1) * ROWS), pa.int64())})
    write_source(lake / "source", {f"dt={day:03d}/a.parquet": table})


def days_found(lake: Path) -> list[int]:
    """The days with all rows; the others must have none."""
    index = open_index(str(lake / "index"))
    found = []
    for day in range(2 * RACES + 2):
        hits = [index.contains(key) for key in range(day * ROWS, (day + 1) * ROWS, 17)]
        assert all(hits) or not any(hits), f"day {day} is there in part"
        if hits[0]:
            found.append(day)
    return found


@pytest.mark.nightly
@pytest.mark.spark
def test_two_builds_at_once_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, 0)
    subprocess.run(build_of(tmp_path), check=True, capture_output=True)
    for race in range(RACES):
        add(tmp_path, race + 1)
        racers = [subprocess.Popen(build_of(tmp_path), stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [racer.wait() for racer in racers] == [0, 0]
        assert days_found(tmp_path) == list(range(race + 2))
    assert verify(storage_at(str(tmp_path / "index")), sample=None).faults == []
    with capsys.disabled():
        print(f"\n{RACES} races of two builds: lost 0")

"""The real command, killed with all that it started, and raced against itself: nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from shadow import open_index
from shadow.errors import IndexNotFound
from shadow.storage import storage_at
from shadow.vacuum import vacuum
from shadow.verify import verify
from tests.shadow.make_index import write_source

pytestmark = [pytest.mark.spark, pytest.mark.soak]
ROWS, KILLS, RACES = 200, 20, 3


def command(lake: Path) -> list[str]:
    build = ["build", str(lake / "source"), str(lake / "index"), "--key", "k", "--master", "local[1]"]
    return [sys.executable, "-m", "gnomon", *build]


def add(lake: Path, day: int) -> None:
    table = pa.table({"k": pa.array(range(day * ROWS, (day + 1) * ROWS), pa.int64())})
    write_source(lake / "source", {f"dt={day:03d}/a.parquet": table})


def days_found(lake: Path) -> list[int]:
    """The days whose rows are found, all of them or none."""
    try:
        index = open_index(str(lake / "index"))
    except IndexNotFound:
        return []
    found = []
    for day in range(KILLS + 2 * RACES + 2):
        hits = [index.contains(key) for key in range(day * ROWS, (day + 1) * ROWS, 17)]
        assert all(hits) or not any(hits), f"day {day} is there in part"
        if hits[0]:
            found.append(day)
    return found


def test_a_build_killed_at_any_time_leaves_one_whole_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(tmp_path, 0)
    begin = time.monotonic()
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    seconds = time.monotonic() - begin
    done = [0]
    ended = 0
    for day in range(1, KILLS + 1):
        add(tmp_path, day)
        with subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                process.wait(seconds * (0.6 + day / KILLS))
                ended += 1
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        found = days_found(tmp_path)
        assert found in (done, [*range(day + 1)])
        done = found
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    assert days_found(tmp_path) == list(range(KILLS + 1))
    place = storage_at(str(tmp_path / "index"))
    assert verify(place, sample=None).faults == []
    removed = vacuum(place, grace_seconds=0, unnamed_seconds=0)
    assert verify(place, sample=None).faults == []
    with capsys.disabled():
        print(f"\nkilled {KILLS - ended} of {KILLS} builds, lost 0; vacuum removed {removed.counts}")


def test_two_builds_at_once_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, 0)
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    for race in range(RACES):
        add(tmp_path, race + 1)
        racers = [subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [racer.wait() for racer in racers] == [0, 0]
        assert days_found(tmp_path) == list(range(race + 2))
    assert verify(storage_at(str(tmp_path / "index")), sample=None).faults == []
    with capsys.disabled():
        print(f"\n{RACES} races of two builds: lost 0")

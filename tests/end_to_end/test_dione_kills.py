"""Imports from Dione and exports to Dione that are killed leave nothing wrong, and the next run ends them."""

import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import build
from gnomon.jobs.dione import export_dione, import_dione
from gnomon.shadow import IndexNotFound
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.opened import open_index
from tests.profiles import examples

pytestmark = [pytest.mark.process, pytest.mark.nightly]
DAYS = ("day=1", "day=2", "day=3")
ROWS = 20_000  # of a day
KILLS = examples(25)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number, day in enumerate(DAYS):
        (tmp_path / "source" / day).mkdir(parents=True)
        keys = [f"https://example.org/{number}/{row}" for row in range(ROWS)]
        pq.write_table(pa.table({"k": keys, "n": range(ROWS)}), tmp_path / "source" / day / "a.parquet")
    return tmp_path / "source"


def killed_after(seconds: float, *words: object) -> bool:
    """Run a command, and kill it then. Whether it was still running."""
    command = [sys.executable, "-m", "gnomon", *map(str, words)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
        assert child.returncode == 0
        return False
    child.send_signal(signal.SIGKILL)
    child.wait()
    return True


def duration(*words: object) -> float:
    """The seconds that a command takes when it is not killed."""
    begin = time.perf_counter()
    assert not killed_after(600, *words)
    return time.perf_counter() - begin


def test_a_killed_import_leaves_no_index_or_a_sound_one(source: Path, tmp_path: Path) -> None:
    build(None, source, tmp_path / "built", ["k"])
    export_dione(tmp_path / "built", tmp_path / "dione", data_table="db.data")
    words = ["import-dione", tmp_path / "dione", tmp_path / "index", "--source", source]
    whole, chance, kills = duration(*words), random.Random(1), 0
    shutil.rmtree(tmp_path / "index")
    for _ in range(KILLS):
        if not killed_after(chance.uniform(0.2, 0.9) * whole, *words):
            shutil.rmtree(tmp_path / "index")
            continue
        kills += 1
        try:
            rows = open_index(tmp_path / "index").view.snapshot.rows
        except IndexNotFound:
            continue
        assert rows == len(DAYS) * ROWS  # a commit has all files
        assert verify(storage_at(tmp_path / "index"), sample=None).is_sound
    duration(*words)
    report = verify(storage_at(tmp_path / "index"), sample=None)
    assert (report.is_sound, report.entries) == (True, len(DAYS) * ROWS)
    print(f"{kills} imports killed")
    assert kills >= KILLS // 5


def test_an_export_after_killed_ones_has_every_row_once(source: Path, tmp_path: Path) -> None:
    build(None, source, tmp_path / "index", ["k"])
    words = ["export-dione", tmp_path / "index", tmp_path / "dione", "--data-table", "db.data"]
    whole, chance, kills = duration(*words), random.Random(2), 0
    shutil.rmtree(tmp_path / "dione")
    for number in range(KILLS):
        if number % 3 == 2:  # all partitions change
            keys = [f"https://example.org/new/{number}/{row}" for row in range(ROWS)]
            for day in DAYS:
                pq.write_table(pa.table({"k": keys, "n": range(ROWS)}), source / day / "a.parquet")
            build(None, source, tmp_path / "index", ["k"])
        kills += killed_after(chance.uniform(0.2, 0.9) * whole, *words)
    duration(*words)
    found = import_dione(None, tmp_path / "dione", tmp_path / "imported", source, compare_all=True)
    assert (found.left_out, found.build.rows) == ([], len(DAYS) * ROWS)
    report = verify(storage_at(tmp_path / "imported"), sample=None)
    assert (report.is_sound, report.entries) == (True, len(DAYS) * ROWS)
    print(f"{kills} exports killed")
    assert kills >= KILLS // 5

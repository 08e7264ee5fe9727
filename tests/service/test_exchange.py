"""service/exchange.py: what workers count, summed over processes, also over those that died."""

import json
import os
import subprocess
import sys
from pathlib import Path

from service.exchange import LOCK, PREFIX, Exchange, Row, Slot

COUNT: Row = ("gnomon_requests", "gnomon_requests_total", (("route", "/rows"),), 5.0)
GAUGE: Row = ("gnomon_cache_bytes", "gnomon_cache_bytes", (), 7.0)


def killed(program: str, *arguments: str) -> None:
    """Run a program that ends itself as by kill -9."""
    ended = "import os, signal, sys; from pathlib import Path; from service.exchange import *\n"
    done = subprocess.run([sys.executable, "-c", f"{ended}{program}\nos.kill(os.getpid(), 9)", *arguments], check=False)
    assert done.returncode == -9


def test_others_are_read_and_a_slot_does_not_read_itself(tmp_path: Path) -> None:
    with Exchange(2, tmp_path) as exchange:
        first, second = exchange.slot(0), exchange.slot(1)
        assert list(first.of_others()) == []
        first.write([COUNT], [GAUGE])
        assert list(first.of_others()) == []
        assert list(second.of_others()) == [COUNT, GAUGE]


def test_counts_of_a_killed_worker_stay_and_its_gauges_do_not(tmp_path: Path) -> None:
    with Exchange(2, tmp_path) as exchange:
        killed(f"Slot(sys.argv[1], 0).write([{COUNT!r}], [{GAUGE!r}])", str(exchange.folder))
        assert list(exchange.slot(1).of_others()) == [COUNT]
        assert exchange.slot(0).counts() == [COUNT], "whoever takes the slot goes on from there"


def test_the_folder_is_private_and_goes_with_its_service(tmp_path: Path) -> None:
    with Exchange(1, tmp_path) as exchange:
        assert exchange.folder.stat().st_mode & 0o077 == 0
        exchange.slot(0).write([COUNT], [])
    assert list(tmp_path.iterdir()) == []
    exchange.slot(0).write([COUNT], [])
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_service_left_is_removed_by_the_next_and_a_living_one_is_spared(tmp_path: Path) -> None:
    killed("Exchange(1, Path(sys.argv[1])).slot(0).write([], [])", str(tmp_path))
    [left] = tmp_path.iterdir()
    with Exchange(1, tmp_path) as living, Exchange(1, tmp_path) as other:
        assert not left.exists()
        assert set(tmp_path.iterdir()) == {living.folder, other.folder}


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / LOCK).touch()
    within = tmp_path / "shm"
    within.mkdir()
    (within / f"{PREFIX}x").symlink_to(target)
    with Exchange(1, within):
        assert (target / LOCK).exists()


def test_a_write_is_whole_or_not_there(tmp_path: Path) -> None:
    with Exchange(1, tmp_path) as exchange:
        slot = exchange.slot(0)
        slot.write([COUNT], [GAUGE])
        assert json.loads(slot.path.read_text())["pid"] == os.getpid()
        assert {path.name for path in exchange.folder.iterdir()} == {"0.json", LOCK}


def test_replaced_workers_are_counted(tmp_path: Path) -> None:
    with Exchange(2, tmp_path) as exchange:
        assert exchange.slot(0).restarts() == 0
        exchange.worker_died()
        exchange.worker_died()
        assert exchange.slot(0).restarts() == exchange.slot(1).restarts() == 2
    assert Slot(str(exchange.folder), 0).restarts() == 0

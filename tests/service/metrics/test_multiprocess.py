"""service/metrics/multiprocess.py: the counts of workers, summed over processes, with those that died."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon.service.metrics import multiprocess
from gnomon.service.metrics.multiprocess import ENDED, LOCK, PREFIX, Exchange, Row, Slot

COUNT: Row = ("gnomon_requests", "gnomon_requests_total", (("route", "/rows"),), 5.0)
GAUGE: Row = ("gnomon_cache_bytes", "gnomon_cache_bytes", (), 7.0)


def killed(program: str, *arguments: str) -> None:
    """Run a program that ends itself like kill -9."""
    ended = "import os, signal, sys; from pathlib import Path; from gnomon.service.metrics.multiprocess import *\n"
    done = subprocess.run([sys.executable, "-c", f"{ended}{program}\nos.kill(os.getpid(), 9)", *arguments], check=False)
    assert done.returncode == -9


def test_others_are_read_and_a_slot_does_not_read_itself(tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        first, second = exchange.slot(), exchange.slot()
        assert first.of_others() == []
        first.write([COUNT], [GAUGE])
        assert first.of_others() == []
        assert second.of_others() == [COUNT, GAUGE]


@pytest.mark.process
def test_counts_of_a_killed_worker_stay_and_its_gauges_do_not(tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        dying, living = exchange.slot(), exchange.slot()
        killed(f"Slot(sys.argv[1], sys.argv[2]).write([{COUNT!r}], [{GAUGE!r}])", dying.folder, dying.name)
        assert living.of_others() == [COUNT], "before its parent has noticed"
        exchange.ended(dying, asked=False)
        assert living.of_others() == [COUNT]
        assert not dying.path.exists()


def test_counts_of_all_that_ended_are_added_up_beside_those_that_live(tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        for asked in (True, False, False):
            slot = exchange.slot()
            slot.write([COUNT], [GAUGE])
            exchange.ended(slot, asked)
        exchange.ended(exchange.slot(), asked=True)  # a worker that never wrote
        replaced, coming = exchange.slot(), exchange.slot()
        replaced.write([COUNT], [])
        assert sum(value for *_, value in coming.of_others()) == 4 * COUNT[3]
        assert coming.restarts() == 2
        assert {path.stem for path in exchange.folder.glob("*.json")} == {ENDED, replaced.name}
    assert coming.restarts() == 0


def test_a_worker_that_ends_while_somebody_adds_up_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = multiprocess._read
    with Exchange(tmp_path) as exchange:
        asking = exchange.slot()
        for before in (True, False):  # it ends before, or after its file was read
            ending = exchange.slot()
            ending.write([COUNT], [])

            def reading(path: Path, kind: Any, ending: Slot = ending, before: bool = before) -> Any:
                if path != ending.path:
                    return read(path, kind)
                monkeypatch.setattr("gnomon.service.metrics.multiprocess._read", read)
                found = None if before else read(path, kind)
                exchange.ended(ending, asked=True)
                return read(path, kind) if found is None else found

            expected = sum(value for *_, value in asking.of_others())
            monkeypatch.setattr("gnomon.service.metrics.multiprocess._read", reading)
            assert sum(value for *_, value in asking.of_others()) == expected
            assert sum(value for *_, value in asking.of_others()) == expected


def test_the_folder_is_private_and_goes_with_its_service(tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        slot = exchange.slot()
        assert exchange.folder.stat().st_mode & 0o077 == 0
        slot.write([COUNT], [])
    assert list(tmp_path.iterdir()) == []
    slot.write([COUNT], [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_what_a_killed_service_left_is_removed_by_the_next_and_a_living_one_is_spared(tmp_path: Path) -> None:
    killed("Exchange(Path(sys.argv[1])).slot().write([], [])", str(tmp_path))
    [left] = tmp_path.iterdir()
    with Exchange(tmp_path) as living, Exchange(tmp_path) as other:
        assert not left.exists()
        assert set(tmp_path.iterdir()) == {living.folder, other.folder}


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / LOCK).touch()
    within = tmp_path / "shm"
    within.mkdir()
    (within / f"{PREFIX}x").symlink_to(target)
    with Exchange(within):
        assert (target / LOCK).exists()


def test_a_write_is_whole_or_not_there(tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        slot = exchange.slot()
        slot.write([COUNT], [GAUGE])
        assert json.loads(slot.path.read_text())["pid"] == os.getpid()
        assert {path.name for path in exchange.folder.iterdir()} == {"1.json", LOCK}


def test_a_full_disk_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Exchange(tmp_path) as exchange:
        slot = exchange.slot()
        slot.write([COUNT], [])
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", full)
            slot.write([], [])
            exchange.ended(exchange.slot(), asked=False)
        assert exchange.slot().of_others() == [COUNT]

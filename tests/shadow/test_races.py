"""Processes that commit at once: each commits, or finds that others have done its work. Nothing is lost, and no entry
counts twice."""

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import read_snapshot, snapshot_numbers
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import LocalStorage
from tests.shadow.make_index import Build, index_source, write_source
from tests.shadow.operations import KEYS, Lake, answers, check_clean, check_rows, copy_lake, look_up, table

PATIENCE = 120  # seconds to wait for a racer
STAGGER = 0.03  # seconds: some list the source before others have changed it, some after
DONE, NOTHING_LEFT = "committed", "found nothing left"


def lake_of(racer: int, turn: int) -> Lake:
    """The files of one racer after a turn: one is rewritten, one is new, the second last one is gone."""
    new = {f"p={n % 2}/{racer}-{n}.parquet": (n % len(KEYS), racer, 3) for n in range(max(0, turn - 1), turn + 1)}
    return new | {f"p=0/{racer}.parquet": (turn % len(KEYS), (turn + racer) % len(KEYS))}


def lake_of_all(racers: int, turn: int) -> Lake:
    return {path: keys for racer in range(racers) for path, keys in lake_of(racer, turn).items()}


def change(source: Path, racer: int, turn: int) -> None:
    """Change a racer's files from the last turn to this one. Each file appears whole."""
    before, now = lake_of(racer, turn - 1) if turn else {}, lake_of(racer, turn)
    for path in now:
        if now[path] != before.get(path):
            staged = source.with_name(f"staged-{racer}")
            write_source(staged, {"file": table(path, now[path])})
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged / "file", source / path)
    for path in before.keys() - now.keys():
        (source / path).unlink()


def race(racer: int, source: Path, index: Path, turns: int, own: bool, start: Barrier, said: "Queue[object]") -> None:
    """The program of each process: in each turn, change its own files (or find all changed), build and commit."""
    for turn in range(1, turns + 1):
        start.wait(PATIENCE)
        try:
            if own:
                time.sleep(random.uniform(0, STAGGER))
                change(source, racer, turn)
            build = Build(source, index, ["k"], buckets=2)
            if not own:
                start.wait(PATIENCE)  # all have written, none has committed
            said.put(DONE if build.commit().commit_id == build.segment else NOTHING_LEFT)
        except Exception as error:  # noqa: BLE001  whatever it is, the test says it
            said.put(error)


@contextmanager
def racing(racers: int, run: Callable[..., None], *arguments: object) -> Iterator[tuple[Barrier, "Queue[object]"]]:
    """Start the processes. Yields the barrier that they and the test wait at, and the queue of their results."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", __name__])
    start, said = context.Barrier(racers + 1), context.Queue()
    processes = [
        context.Process(target=run, args=(racer, *arguments, start, said), daemon=True) for racer in range(racers)
    ]
    for process in processes:
        process.start()
    yield start, said
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * racers


def run_race(folder: Path, racers: int, turns: int, own: bool) -> str:
    """Race for some turns, and check the index after each. Returns a summary."""
    source, index = folder / "lake", folder / "index"
    for racer in range(racers):
        change(source, racer, 0)
    index_source(source, index, ["k"], buckets=2)
    outcomes = []
    storage = LocalStorage(str(index))
    with racing(racers, race, source, index, turns, own) as (start, said):
        for turn in range(1, turns + 1):
            if not own:
                for racer in range(racers):
                    change(source, racer, turn)
            start.wait(PATIENCE)
            if not own:
                before = look_up(storage)
                start.wait(PATIENCE)
                seen = [look_up(storage) for _ in range(5)]  # while they commit
            outcomes += [said.get(timeout=PATIENCE) for _ in range(racers)]
            lake = lake_of_all(racers, turn)
            assert set(outcomes) <= {DONE, NOTHING_LEFT}
            assert look_up(storage) == answers(lake)
            assert own or all(one in (before, answers(lake)) for one in seen), "a reader saw half a commit"
            assert sorted(open_view(storage).covered) == sorted(lake)
            assert snapshot_numbers(storage) == list(range(1, outcomes.count(DONE) + 2)), "as many as were committed"
    check_clean(storage)
    check_rows(storage, lake)
    return (
        f"{racers} processes, {'files of their own' if own else 'the same files'}: {turns} rounds, "
        f"{outcomes.count(DONE)} committed, {outcomes.count(NOTHING_LEFT)} found nothing left, 0 lost, 0 twice"
    )


def keep_house(racer: int, index: Path, copies: Path, turns: int, start: Barrier, said: "Queue[object]") -> None:
    """The program of each process on a lake that moves each turn: half of them adopt the copy, half compact."""
    for turn in range(1, turns + 1):
        start.wait(PATIENCE)
        storage = LocalStorage(str(index))
        try:
            if racer % 2:
                done = adopt(storage, source_root(str(copies / str(turn))))[1] > 0
            else:
                done = compact_at_last(storage)
            said.put(DONE if done else NOTHING_LEFT)
        except Exception as error:  # noqa: BLE001  whatever it is, the test says it
            said.put(error)


def compact_at_last(storage: LocalStorage) -> bool:
    """Compact, again after conflicting commits. Returns whether there was anything to do."""
    while True:
        try:
            return compact(storage).committed
        except ConcurrentCommit:
            pass


def run_moves(folder: Path, racers: int, turns: int) -> str:
    """Let a lake grow and move each turn, while it is compacted, and check the index after each turn."""
    source, index, copies = folder / "lake", folder / "index", folder / "copies"
    storage = LocalStorage(str(index))
    for racer in range(racers):
        change(source, racer, 0)
    index_source(source, index, ["k"], buckets=2)
    outcomes: list[object] = []
    with racing(racers, keep_house, index, copies, turns) as (start, said):
        for turn in range(1, turns + 1):
            for racer in range(racers):
                change(source, racer, turn)
            index_source(source, index, ["k"], buckets=2)  # adds a segment, so that there is something to compact
            source = copies / str(turn)
            copy_lake(copies / str(turn - 1) if turn > 1 else folder / "lake", source)
            numbers, lake = snapshot_numbers(storage), lake_of_all(racers, turn)
            start.wait(PATIENCE)
            seen = [look_up(storage) for _ in range(5)]  # while they commit
            said_now = [said.get(timeout=PATIENCE) for _ in range(racers)]
            outcomes += said_now
            assert set(outcomes) <= {DONE, NOTHING_LEFT}
            committed = snapshot_numbers(storage)[len(numbers) :]
            operations = sorted(read_snapshot(storage, number).operation for number in committed)
            assert operations == ["adopt", "compact"], "each piece of work is done once"
            assert said_now.count(DONE) == 2
            assert seen == [answers(lake)] * 5
            check_rows(storage, lake)
            view = open_view(storage)
            assert (view.spec.source.location, len(view.segments)) == (str(source), 1)
    check_clean(storage)
    return (
        f"{racers} processes that adopt and compact: {turns} rounds, {outcomes.count(DONE)} committed, "
        f"{outcomes.count(NOTHING_LEFT)} found nothing left, 0 lost, 0 twice"
    )


@pytest.mark.process
@pytest.mark.parametrize("own", [True, False], ids=["own files", "the same files"])
@pytest.mark.parametrize("racers", [2, 4])
def test_processes_that_commit_at_once_lose_nothing(tmp_path: Path, racers: int, own: bool) -> None:
    run_race(tmp_path, racers, 5, own)


@pytest.mark.process
@pytest.mark.parametrize("racers", [2, 4])
def test_a_lake_that_moves_while_it_is_compacted_is_adopted_whole(tmp_path: Path, racers: int) -> None:
    run_moves(tmp_path, racers, 5)


@pytest.mark.nightly
@pytest.mark.parametrize("racers", [2, 4])
def test_a_hundred_moves_of_a_lake_that_is_compacted_lose_nothing(
    tmp_path: Path, racers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_moves(tmp_path, racers, 100)
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.nightly
@pytest.mark.parametrize("own", [True, False], ids=["own files", "the same files"])
@pytest.mark.parametrize("racers", [2, 4])
def test_a_hundred_rounds_of_commits_at_once_lose_nothing(
    tmp_path: Path, racers: int, own: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_race(tmp_path, racers, 100, own)
    with capsys.disabled():
        print(f"\n{report}")

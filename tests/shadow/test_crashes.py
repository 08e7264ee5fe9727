"""After any fault at any call of the store, the index is completely at the snapshot before or after, and the next run
finishes the work. So it is after a process was killed, and killed again while it recovers."""

import multiprocessing
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gnomon.shadow.errors import ShadowError
from gnomon.shadow.metadata.source_files import SourceRoot, source_root
from gnomon.shadow.storage import LocalStorage, Storage
from tests.profiles import cases, stride
from tests.shadow.faults import Call, Fault, FaultyStorage
from tests.shadow.memory_store import MemoryStorage
from tests.shadow.operations import OPERATIONS, check_clean, check_rows, check_state, prepare

IN_PROCESS = [fault for fault in Fault if fault is not Fault.KILL]
KILLED = -signal.SIGKILL


class World:
    """A source and an index before an operation, which can be tried from this state any number of times."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.operation = name, OPERATIONS[name]
        self.source, self.before = folder / "lake", MemoryStorage()
        prepare(name, self.source, self.before)
        self.root: SourceRoot = source_root(str(self.source))
        self.tried: Counter[str] = Counter()
        self.lost: list[str] = []

    def calls(self) -> list[Call]:
        """The calls of the store in an operation without a fault."""
        storage = FaultyStorage(self.before.copy())
        self.operation.run(self.root, storage)
        return storage.calls

    def points(self, fault: Fault, step: int = 1) -> Iterator[int]:
        """Every `step`-th call at which a fault has a different effect."""
        found = [number for number, call in enumerate(self.calls()) if fault.hits(call)]
        yield from found[:: stride(step)]

    def attempt(self, what: str, faults: Sequence[tuple[Fault, int]]) -> None:
        """Run with each of the faults in turn, then without any."""
        self.tried[what] += 1
        index = self.before.copy()
        try:
            for fault, at in faults:
                self._run(FaultyStorage(index, fault, at), index)
            self.operation.run(self.root, index)
            self.check_end(index)
        except Exception as error:  # noqa: BLE001  whatever it is, the report says at which points
            self.lost.append(f"{self.name}: {[(fault.value, at) for fault, at in faults]}: {error!r}")

    def _run(self, faulty: FaultyStorage, index: Storage) -> None:
        was_done = check_state(self.name, index)
        try:
            self.operation.run(self.root, faulty)
        except (ShadowError, OSError):
            is_done = check_state(self.name, index)
        else:
            is_done = check_state(self.name, index)
            assert is_done, "it said that it was done"
        assert is_done or not was_done, "what was committed is gone"

    def check_end(self, index: Storage) -> None:
        assert check_state(self.name, index), "the next run did not finish the work"
        check_clean(index)
        check_rows(index, self.operation.lake)

    def report(self) -> str:
        each = ", ".join(f"{count} {what}" for what, count in self.tried.items())
        return f"{self.name}: tried {self.tried.total()} ({each}); lost {len(self.lost)}"


@pytest.fixture(params=OPERATIONS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


def try_faults(world: World, step: int) -> None:
    """Try each kind of fault at every `step`-th call, and the most different ones at every call."""
    for fault in IN_PROCESS:
        for at in world.points(fault, 1 if fault in (Fault.FROM_THEN_ON, Fault.LOST_REPLY) else step):
            world.attempt(fault.value, [(fault, at)])


def try_faults_in_recovery(world: World, step: int) -> None:
    """Try a fault at every `step`-th call, and another at every `step`-th call of the recovery."""
    for at in world.points(Fault.FROM_THEN_ON, step):
        for again in world.points(Fault.FROM_THEN_ON, step):
            for first, second in ((Fault.FROM_THEN_ON, Fault.LOST_REPLY), (Fault.LOST_REPLY, Fault.FROM_THEN_ON)):
                world.attempt("a second fault in the recovery", [(first, at), (second, again)])


@pytest.mark.slow
def test_a_fault_at_any_call_leaves_one_whole_snapshot_and_the_next_run_finishes(world: World) -> None:
    try_faults(world, 4)
    assert world.lost == []


def test_so_does_a_second_fault_in_the_recovery(world: World) -> None:
    try_faults_in_recovery(world, 8)
    assert world.lost == []


@pytest.mark.nightly
def test_so_does_every_fault_at_every_call_and_a_second_one_at_every_call_of_the_recovery(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    try_faults(world, 1)
    try_faults_in_recovery(world, 1)
    with capsys.disabled():
        print(f"\n{world.report()}")
    assert world.lost == []


# -- processes ---------------------------------------------------------------------------------------------------------


def run_until_killed(name: str, source: str, index: str, at: int) -> None:
    """The program of the process. It ends by itself if there are fewer calls."""
    OPERATIONS[name].run(source_root(source), FaultyStorage(LocalStorage(index), Fault.KILL, at))


def in_process(name: str, source: Path, index: Path, at: int) -> int | None:
    """The exit code of a process that is killed at a call."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", __name__])
    process = context.Process(target=run_until_killed, args=(name, str(source), str(index), at))
    process.start()
    process.join()
    return process.exitcode


def kill_and_kill_again(world: World, index: Path, points: Sequence[int], seconds: Sequence[int]) -> None:
    """On a local disk: kill the operation at each of `points`, kill the recovery at each of `seconds`, then finish."""
    for at in points:
        for again in seconds:
            storage = LocalStorage(str(index))
            for info in world.before.list(hidden=True):
                storage.put_new(info.path, [world.before.read(info.path)])
            for point in (at, again):
                was_done = check_state(world.name, storage)
                code = in_process(world.name, world.source, index, point)
                assert code in (0, KILLED), f"{world.name}, killed at {at} and {again}: it ended with {code}"
                assert check_state(world.name, storage) >= max(was_done, code == 0)
            world.operation.run(world.root, storage)
            world.check_end(storage)
            world.tried["killed twice"] += 1
            shutil.rmtree(index)


@pytest.mark.process
def test_a_killed_process_leaves_one_whole_snapshot_and_so_does_one_killed_while_it_recovers(
    world: World, tmp_path: Path
) -> None:
    calls = len(world.calls())
    kill_and_kill_again(world, tmp_path / "index", cases(range(0, calls, 6)), [calls // 2])


@pytest.mark.nightly
def test_a_process_killed_at_every_call_and_again(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = len(world.calls())
    kill_and_kill_again(world, tmp_path / "index", range(calls), range(0, calls, 8))
    with capsys.disabled():
        print(f"\n{world.report()}")

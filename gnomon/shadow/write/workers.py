"""Processes that share the work of a job, and how many of them this machine has room for.

A worker is a fresh Python process, not a fork: the threads of object stores do not survive a fork. It does not import
the caller's main module either, as multiprocessing's processes do: a program without `if __name__ == "__main__"` would
run again in each of them. A worker runs this module and gets its job pickled over a link. So it may be started from any
thread, and from a daemon process. It ends when the link is closed, thus also when the caller is killed."""

import logging
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from gnomon.shadow.errors import WorkerLost
from gnomon.shadow.storage import Readable, patiently

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PROGRAM = "from gnomon.shadow.write.workers import main; main()"
PROCESS_BYTES = 300 << 20  # of memory for each worker, besides the memory that all share
MOST_WORKERS = 64
WORTH_ROWS = 2_000_000  # of a job: a start takes 0.6 s of CPU, as a build of 500,000 URLs does
IN_MEMORY = "memory://"
START_SECONDS = 120.0  # until a worker has imported Gnomon
REMOVALS = 10  # of a folder
LOOK_SECONDS = 1.0  # between two looks whether a silent process still runs
CONTROL_GROUPS = Path("/sys/fs/cgroup")
READY, VALUE, DONE, FAILED = "ready", "value", "done", "failed"

Task = TypeVar("Task")
Value = TypeVar("Value")
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Worker:
    """A process, the link to it, and the number of the task that it does; None if it waits for one."""

    process: "subprocess.Popen[bytes]"
    link: "Connection"
    number: int | None = None
    is_ready: bool = False


class Workers(Generic[Task, Value]):
    """Processes that do tasks: each calls `job` with a task and sends the values that this yields. `job`, tasks and
    values are pickled. A context manager: at its end the processes have ended, whatever they did. `folder` has their
    temporary files: the processes remove it if this one is killed.

    `number` is the number of processes that run. It is 0, and no task can be done, where fewer than two can be started,
    or the job cannot be pickled: the caller then does the work itself."""

    def __init__(self, wanted: int, job: Callable[[Task], Iterable[Value]], folder: str = "") -> None:
        self._wanted = wanted
        self._folder = folder
        self._job = job
        self._workers: list[_Worker] = []

    @property
    def number(self) -> int:
        return len(self._workers)

    def __enter__(self) -> "Workers[Task, Value]":
        try:
            job = pickle.dumps(self._job)
            self._start(job)
        except (pickle.PicklingError, TypeError, AttributeError) as error:  # what pickle raises
            logger.info("one process does the work: the job cannot be given to others: %s", error)
        except BaseException:
            self._end()
            raise
        if self.number < 2:
            self._end()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Value]]:
        """Do tasks, which begin in their order. Yields the values as they come, each with the number of its task.

        Where tasks fail, the error of the first of them in their order is raised, as one process would raise it.
        WorkerLost where a process ends before its task is done."""
        waiting = deque(enumerate(tasks))
        failed: dict[int, BaseException] = {}
        while True:
            self._give(waiting if not failed else deque())
            at_work = [one for one in self._workers if one.number is not None]
            if failed and not any(one.number < min(failed) for one in at_work if one.number is not None):
                raise failed[min(failed)]
            if not at_work:
                return
            for worker, (kind, value) in self._heard(at_work):
                assert worker.number is not None
                if kind == VALUE:
                    yield worker.number, value
                elif kind == FAILED:
                    failed[worker.number] = value
                if kind in (DONE, FAILED):
                    worker.number = None

    def _give(self, waiting: "deque[tuple[int, Task]]") -> None:
        """Give each free worker the next task."""
        for worker in self._workers:
            if worker.number is None and waiting:
                worker.number, task = waiting.popleft()
                with suppress(OSError):  # it has ended: `_heard` says so
                    worker.link.send(task)

    def _heard(self, workers: Sequence[_Worker]) -> Iterator[tuple[_Worker, tuple[str, Any]]]:
        """Wait for messages of these workers, and yield them."""
        links = {one.link: one for one in workers}
        ready = _connection().wait(list(links), LOOK_SECONDS)
        for link in ready:
            worker = links[link]
            try:
                message = worker.link.recv()
            except (EOFError, ConnectionError):
                raise _lost(worker) from None
            yield worker, message
        for worker in workers if not ready else ():
            if worker.process.poll() is not None and not worker.link.poll():
                raise _lost(worker)

    def _start(self, job: bytes) -> None:
        """Start the processes, and wait until they have imported Gnomon."""
        try:
            for _ in range(self._wanted):
                self._workers.append(_started(self._folder))
        except OSError as error:  # too many processes, or too little memory for another one
            logger.warning("%d of %d worker processes could be started: %s", self.number, self._wanted, error)
        until = monotonic() + START_SECONDS
        while starting := [one for one in self._workers if not one.is_ready]:
            try:
                for worker, _ in self._heard(starting):
                    worker.is_ready = True
                    worker.link.send_bytes(job)
                if monotonic() > until:
                    raise WorkerLost("worker processes do not start")
            except (WorkerLost, OSError) as error:
                logger.warning("one process does the work: %s", error)
                self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.link.close()
        self._workers = []


def _connection() -> Any:
    """`multiprocessing.connection`, imported where it is used: a look-up, which imports this module, uses none."""
    return import_module("multiprocessing.connection")


def _started(folder: str) -> _Worker:
    """A new process. It never gets the SIGINT of a terminal, which goes to all processes there: its caller ends it."""
    ours, theirs = _connection().Pipe()
    with theirs:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), folder],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": paths},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _Worker(process, ours)


def _lost(worker: _Worker) -> WorkerLost:
    """The error about a worker that has ended."""
    with suppress(subprocess.TimeoutExpired):
        worker.process.wait(LOOK_SECONDS)
    code = worker.process.poll()
    how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
    cause = "; if the system killed it, memory ran out" if code == -signal.SIGKILL else ""
    return WorkerLost(
        f"a worker process of this job has ended before it was done ({how}){cause}; nothing was committed, run it "
        "again with more memory or on fewer cores (taskset -c 0)"
    )


def main() -> None:
    """A worker: do the tasks that come over the link, until it is closed. Arguments of the program: the descriptor of
    the link, and the folder of temporary files."""
    link, folder = _connection().Connection(int(sys.argv[1])), sys.argv[2]
    given: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_hear, args=(link, given, folder), daemon=True).start()
    pa.set_cpu_count(1)  # the other cores have workers of their own
    sys.meta_path.insert(0, _NoPandas())
    link.send((READY, None))
    content = given.get()
    job: Callable[[Any], Iterable[Any]] | None = None
    while True:
        task = given.get()
        try:
            with patiently():
                job = job or pickle.loads(content)
                for value in job(pickle.loads(task)):
                    link.send((VALUE, value))
            link.send((DONE, None))
        except Exception as error:  # noqa: BLE001 the caller raises it
            with suppress(OSError):  # the caller has ended, and this process does at once
                link.send((FAILED, _portable(error)))


class _NoPandas(MetaPathFinder):
    """pyarrow imports pandas where it is installed, which takes 0.3 s, and no task needs it."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def _hear(link: "Connection", given: "SimpleQueue[bytes]", folder: str) -> None:
    """Receive the job and its tasks. When the caller is gone, this process removes the temporary files and ends, also
    amid its work."""
    with suppress(EOFError, OSError):
        while True:
            given.put(link.recv_bytes())
    for _ in range(REMOVALS):  # a task may still write there
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """The error, with its traceback as a note, or one with its text if it cannot be pickled."""
    trace = "".join(traceback.format_exception(error))
    with suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            error.add_note(f"in a worker process:\n{trace}")
            return error
    other = RuntimeError(f"{type(error).__name__}: {error}")
    other.add_note(f"in a worker process:\n{trace}")
    return other


def processes_for(memory: int, *storages: Readable) -> int:
    """The number of worker processes for a job on these storages whose processes share `memory` bytes: one for each
    core that this process may use, as far as the machine, or the control group, has memory for them. It is 1 for a
    store in the memory of this process, and without a Python to run."""
    if not sys.executable or getattr(sys, "frozen", False) or any(one.root.startswith(IN_MEMORY) for one in storages):
        return 1
    room = (_available_memory() - memory) // PROCESS_BYTES
    return int(max(1, min(cores(), room, MOST_WORKERS)))


def cores(groups: Path = CONTROL_GROUPS) -> int:
    """The cores that this process may use: those of its affinity, and no more than the time that its control groups
    allow, as of a container."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    shares = [float(quota) / float(period) for quota, period in _limits(groups, "cpu.max", 2) if quota != "max"]
    return max(1, math.ceil(min([count, *shares])))


def _available_memory() -> float:
    """The bytes that this process and its workers may take; infinite where the system does not say."""
    found = [float(limit) for (limit,) in _limits(CONTROL_GROUPS, "memory.max", 1) if limit != "max"]
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min(found, default=math.inf)


def _limits(groups: Path, name: str, words: int) -> Iterator[list[str]]:
    """The words of the files of this name in the control groups of this process, from its own up to the root."""
    with suppress(OSError):
        mine = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")]
        below = Path(mine[0].removeprefix("0::/")) if mine else Path()
        for folder in (groups / below, *(groups / above for above in below.parents)):
            with suppress(OSError):
                found = (folder / name).read_text().split()
                if len(found) == words:
                    yield found

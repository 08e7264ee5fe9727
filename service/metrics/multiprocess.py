"""Sums the samples of several worker processes. Each worker writes its samples to a file at intervals, and the worker
that answers `/metrics` adds up the files.

When a worker ends, even if it was killed, the parent adds its counts to the counts of all workers that ended before: no
counter ever falls. The files lie in a folder that is locked while the parent lives. A folder without a lock was left by
a service that was killed; the next service removes it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

MEMORY = Path("/dev/shm")
PREFIX = "gnomon-metrics-"
LOCK = "lock"
ENDED = "ended"  # the counts of all workers that have ended
ENDED_FILE = f"{ENDED}.json"
MOST_NAMES = 1000  # of ended workers, which are kept for a worker that is summing files

# A sample: its family, its name, its labels in order, and its value.
Row = tuple[str, str, tuple[tuple[str, str], ...], float]
S = TypeVar("S", "Samples", "Ended")


class Samples(msgspec.Struct):
    """The metrics that one worker has published. `counts` stay when it has ended, `gauges` do not."""

    pid: int = 0
    counts: list[Row] = []
    gauges: list[Row] = []


class Ended(msgspec.Struct):
    """The counts of all workers that have ended, the names of their slots, and how many ended without being told to."""

    counts: list[Row] = []
    names: list[str] = []
    unasked: int = 0


@dataclass(frozen=True)
class Slot:
    """The file in which one worker publishes its samples. The parent makes it and passes it to the worker."""

    folder: str
    name: str

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"{self.name}.json"

    def write(self, counts: Iterable[Row], gauges: Iterable[Row]) -> None:
        """Replace the samples of this process."""
        _write(self.path, Samples(os.getpid(), list(counts), list(gauges)))

    def of_others(self) -> list[Row]:
        """The samples of the other workers; only counts of those that have ended."""
        folder = Path(self.folder)
        of_each = {path.stem: _read(path, Samples) for path in folder.glob("*.json") if path.stem != ENDED}
        ended = _read(folder / ENDED_FILE, Ended)  # read after the files that it may have taken over
        rows = ended.counts
        for name, samples in of_each.items():
            if name != self.name and name not in ended.names:
                rows += samples.counts
                if _lives(samples.pid):
                    rows += samples.gauges
        return rows

    def restarts(self) -> int:
        """The number of workers that ended without being told to."""
        return _read(Path(self.folder) / ENDED_FILE, Ended).unasked


class Exchange:
    """The folder with the files. The parent of the workers makes it, and the end of the `with` block removes it. Not
    for several threads."""

    def __init__(self, within: Path | None = None) -> None:
        parent = within or (MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir()))
        _remove_stale(parent)
        made = Path(tempfile.mkdtemp(prefix="gnomon-new-", dir=parent))
        self._lock = os.open(made / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder = made.with_name(made.name.replace("gnomon-new-", PREFIX))
        made.rename(self.folder)  # from here on others find it, locked
        self._given = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def slot(self) -> Slot:
        """A new slot, for a new worker."""
        self._given += 1
        return Slot(str(self.folder), str(self._given))

    def ended(self, slot: Slot, asked: bool) -> None:
        """Take over the counts of a worker that has ended. `asked`: whether it was told to end."""
        path = self.folder / ENDED_FILE
        ended = _read(path, Ended)
        counts: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for family, name, labels, value in ended.counts + _read(slot.path, Samples).counts:
            counts[family, name, labels] = counts.get((family, name, labels), 0) + value
        names = [*ended.names, slot.name][-MOST_NAMES:]
        _write(path, Ended([(*key, value) for key, value in counts.items()], names, ended.unasked + (not asked)))
        for left in (slot.path, slot.path.with_suffix(".new")):
            left.unlink(missing_ok=True)


def _write(path: Path, content: msgspec.Struct) -> None:
    """Replace a file. An error of the file system is ignored."""
    new = path.with_suffix(".new")
    with suppress(OSError):
        new.write_bytes(msgspec.json.encode(content))
        os.replace(new, path)


def _read(path: Path, kind: type[S]) -> S:
    """The content of a file; empty before the first write, and after the file was taken over."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return kind()


def _lives(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove_stale(parent: Path) -> None:
    """Remove the folders of services of this user that have ended without doing it."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

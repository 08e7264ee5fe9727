"""A remote store, simulated in memory: it answers reads in rounds, each when all reads of the round have come."""

import threading
from collections.abc import Iterator, Sequence

from gnomon.shadow.storage import FileInfo, ReadStats
from gnomon.shadow.storage.contract import Hidden
from tests.shadow.memory_store import MemoryOpenFile, MemoryStorage

LONGEST = 30.0  # seconds that a read waits for the others of its round, which never come if reads are not concurrent


class Rounds:
    """The expected number of reads in each round. A round with too few never ends; an unexpected read fails."""

    def __init__(self, *sizes: int) -> None:
        self._left = list(sizes)
        self._here = 0
        self._round = 0
        self._changed = threading.Condition()
        self.names: list[set[str]] = [set() for _ in sizes]

    def read(self, name: str) -> None:
        with self._changed:
            number = self._round
            assert number < len(self._left), f"one read more: {name}"
            self.names[number].add(name)
            self._here += 1
            if self._here == self._left[number]:
                self._here, self._round = 0, number + 1
                self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._round > number, LONGEST)
            assert done, f"{name} is read by itself; expected {self._left[number]} reads side by side"

    @property
    def are_over(self) -> bool:
        return self._round == len(self._left)


class FarStorage(MemoryStorage):
    """Opens files on record without a call. Reads have no rounds until some are set."""

    is_remote = True

    def __init__(self, root: str = "/far") -> None:
        super().__init__(root)
        self.rounds: Rounds | None = None

    def read(self, path: str) -> bytes:
        if self.rounds is not None:
            self.rounds.read(path)
        return super().read(path)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        if self.rounds is not None:
            self.rounds.read(f"{prefix}/")
        return super().list(prefix, hidden, witness)

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> "FarFile":
        near = super().open(path, stats, known)
        return FarFile(self, path, near, stats)


class FarFile(MemoryOpenFile):
    is_remote = True

    def __init__(self, storage: FarStorage, path: str, near: MemoryOpenFile, stats: ReadStats | None) -> None:
        super().__init__(near.name, near.data, near.mtime_ns, stats if stats is not None else ReadStats())
        self._storage, self._path = storage, path

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self._storage.rounds is not None:
            self._storage.rounds.read(self._path)
        return [super(FarFile, self).read_range(*span) for span in ranges]

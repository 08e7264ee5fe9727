"""Random histories of appends: programs that interleave at any call, die at any call, and run again, while files vanish
and the index is deleted and built again. The source is compared with plain sets."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from gnomon.shadow.commit.append_log import commit_append, find_batch, mark_appended, move_files, open_log, settle
from gnomon.shadow.errors import ConcurrentCommit, ShadowError
from gnomon.shadow.metadata.append_records import APPENDED
from gnomon.shadow.storage import Storage
from tests.shadow.commit.test_append_log import begun_after
from tests.shadow.memory_store import MemoryStorage

BATCHES = {f"batch {n}": {f"key {key}" for key in range(3 * n, 3 * n + 6)} for n in range(4)}  # each overlaps the next
FOUND = (28356,)  # histories that failed: a sweep removed files that an append of the new index had staged
DEPTH = 3  # programs that run at once


class Died(Exception):
    """The program died here."""


class Copying(MemoryStorage):
    """Moves in two steps, as on object stores, between which a program may die."""

    dies = False

    def move_new(self, path: str, target: str) -> None:
        self.put_new(target, [self.read(path)])
        if self.dies:
            raise Died
        self.delete(path)


class Watched:
    """A store that reports its calls; other attributes are passed on."""

    def __init__(self, inner: Storage, called: Callable[[str], object]) -> None:
        self._inner, self._called = inner, called

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: object, **options: object) -> object:
            self._called(name)
            done = found(*arguments, **options)
            return list(done) if name == "list" and isinstance(done, Iterable) else done

        return call


class History:
    """One history. `appended` has the keys that programs reported as appended; `gone` the keys of vanished files."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index = MemoryStorage("/index")
        self.source = self.random.choice([MemoryStorage, Copying])("/source")
        self.under_way, self.appending, self.tokens = 0, 0, 0
        self.gone: set[str] = set()
        self.appended: set[str] = set()
        self.happened: Counter[str] = Counter()

    def keys(self) -> Counter[str]:
        return Counter(key for info in self.source.list() for key in json.loads(self.source.read(info.path)))

    def check(self) -> None:
        keys = self.keys()
        assert max(keys.values(), default=1) == 1, f"twice: {keys}"
        assert not self.appended - keys.keys() - self.gone, f"lost: {self.appended - keys.keys() - self.gone}"

    # -- programs ------------------------------------------------------------------------------------------------------

    def program(self, batch: str) -> None:
        """An append that others may interrupt at some calls, and that may die at one."""
        dies_at, pauses, calls = self.random.randrange(60), self.random.sample(range(40), 2), 0
        depth, self.under_way = self.under_way, self.under_way + 1

        def called(name: str) -> None:
            nonlocal calls
            calls += 1
            if calls == dies_at:
                if name == "move_new" and isinstance(self.source, Copying):
                    self.source.dies = True  # in the middle of a move
                else:
                    raise Died
            if calls in pauses and depth < DEPTH - 1:
                self.something()

        try:
            self.append(batch, Watched(self.index, called), Watched(self.source, called))  # type: ignore[arg-type]
            self.happened["ended"] += 1
        except Died:
            self.happened["died"] += 1
        except ShadowError as error:
            self.happened[type(error).__name__] += 1
        except FileNotFoundError:  # its staged files were swept
            self.happened["swept"] += 1
        finally:
            self.under_way = depth
            if isinstance(self.source, Copying):
                self.source.dies = False

    def append(self, batch: str, index: Storage, source: Storage) -> None:
        while find_batch(index, batch) is None:
            log = self.finish(index, source)
            if find_batch(index, batch) is not None:
                break
            new = BATCHES[batch] - {key for info in source.list() for key in json.loads(source.read(info.path))}
            self.tokens += 1
            if not commit_append(index, begun_after(log, index, source, batch, new, f"t{self.tokens}")):
                self.happened["number taken"] += 1
        self.appended |= BATCHES[batch]

    def finish(self, index: Storage, source: Storage) -> object:
        log = open_log(index)
        for append in log.open:
            self.appending += 1
            try:
                if move_files(index, source, append):
                    mark_appended(index, append)
            finally:
                self.appending -= 1
            settle(index, source, append, append.number)
        return log

    # -- events --------------------------------------------------------------------------------------------------------

    def something(self) -> None:
        what = self.random.choice([self.program_of_any, self.program_of_any, self.vanish, self.rebuild])
        what()

    def program_of_any(self) -> None:
        self.program(self.random.choice(sorted(BATCHES)))

    def vanish(self) -> None:
        """Remove a file whose append is marked as appended."""
        marked = {
            info.path.rpartition("-")[2].removesuffix(f".{APPENDED}") for info in self.index.list("_shadow/loads")
        }
        paths = [info.path for info in self.source.list() if info.path.rpartition("-")[2] in marked]
        if paths:
            path = self.random.choice(paths)
            self.gone |= set(json.loads(self.source.read(path)))
            self.source.delete(path)
            self.happened["vanished"] += 1

    def rebuild(self) -> None:
        """Delete the index and build it again, but not while a program moves files, which nothing would stop."""
        if not self.appending:
            self.index.delete_folder("_shadow")
            self.happened["rebuilt"] += 1

    def run(self) -> None:
        for _ in range(self.random.randrange(2, 7)):
            self.something()
            self.check()
        for batch in BATCHES:
            self.append(batch, self.index, self.source)
            self.check()
        assert not set().union(*BATCHES.values()) - self.keys().keys() - self.gone
        assert open_log(self.index).open == ()


def try_histories(seeds: Iterable[int]) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed)
        try:
            history.run()
        except BaseException as error:
            raise AssertionError(f"history {seed}, {dict(history.happened)}: {error!r}") from error
        happened += history.happened
    return happened


@pytest.mark.slow
def test_in_any_history_each_key_is_appended_once_and_none_is_lost() -> None:
    happened = try_histories([*range(320), *FOUND])
    for what in ("ended", "died", "number taken", "vanished", "rebuilt", ConcurrentCommit.__name__):
        assert happened[what] > 20, happened


@pytest.mark.nightly
def test_in_many_histories_each_key_is_appended_once_and_none_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    happened = try_histories(range(1000, 40_000))
    with capsys.disabled():
        print(f"\n{dict(happened)}")

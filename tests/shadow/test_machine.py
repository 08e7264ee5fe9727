"""Random histories of a source with concurrent builds and builds that die. Look-ups give the answers of a dict, in the
newest snapshot, in an index that stays open, and in every older snapshot."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import ShadowError
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import newest_snapshot
from gnomon.shadow.metadata.source_files import SourceRoot
from tests.profiles import examples
from tests.shadow.faults import NEVER, Fault, FaultyStorage
from tests.shadow.make_index import Build, write_source
from tests.shadow.memory_store import MemoryStorage
from tests.shadow.operations import KEYS, Answers, answers, check_clean, look_up, look_up_in, table

PATHS = ["p=a/0.parquet", "p=a/1.parquet", "p=b/0.parquet"]  # few, so that concurrent builds share files
NO_FAULT = (Fault.ONCE, NEVER)
Files = dict[str, tuple[int, tuple[int, ...]]]  # path to version (its modification time) and keys


def faults(calls: int) -> st.SearchStrategy[tuple[Fault, int]]:
    """No fault, or one at one of `calls` calls."""
    kinds = st.sampled_from([fault for fault in Fault if fault is not Fault.KILL])
    return st.one_of(st.just(NO_FAULT), st.tuples(kinds, st.integers(0, calls - 1)))


@dataclass
class Begun:
    """A build that has written its index files, the source files that it saw, and the files that the index covered
    then."""

    build: Build
    listed: Files
    base: Files


class ShadowMachine(RuleBasedStateMachine):
    """`source` has the files of the source, `covered` the files of the newest snapshot, `history` the answers of each
    snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.lake, self.index = MemoryStorage("/lake"), MemoryStorage("/index")
        self.source: Files = {}
        self.covered: Files = {}
        self.history: dict[int, Answers] = {}
        self.begun: list[Begun] = []
        self.reader: OpenIndex | None = None

    # -- the source ----------------------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(PATHS), keys=st.lists(st.sampled_from(KEYS), max_size=5))
    def write_file(self, path: str, keys: list[int]) -> None:
        """Write a new file, or replace an existing one."""
        named = table(path, tuple(keys)).replace_schema_metadata({"keys": str(keys)})  # other keys, another digest
        write_source(self.lake, {path: named})
        with self.lake.open(path) as file:
            self.source[path] = (file.mtime_ns, tuple(keys))

    @precondition(lambda self: self.source)
    @rule(data=st.data())
    def delete_file(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.source)))
        self.lake.delete(path)
        del self.source[path]

    # -- builds --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.source and len(self.begun) < 3)
    @rule(fault=faults(40))
    def begin_build(self, fault: tuple[Fault, int]) -> None:
        storage = FaultyStorage(self.index, *fault)
        try:
            build = Build(SourceRoot(self.lake), storage, ["k"], buckets=2)
        except (ShadowError, OSError):
            assert storage.has_failed
        else:
            self.begun.append(Begun(build, dict(self.source), dict(self.covered)))

    @precondition(lambda self: self.begun and self.source)
    @rule(which=st.integers(0, 2), fault=faults(12))
    def finish_build(self, which: int, fault: tuple[Fault, int]) -> None:
        """Finish a begun build. If it fails, it may be committed later."""
        begun = self.begun[which % len(self.begun)]
        storage = begun.build.storage = FaultyStorage(self.index, *fault)
        try:
            begun.build.commit()
        except (ShadowError, OSError):
            assert storage.has_failed
            committed = self.newest_id() == begun.build.segment
        else:
            committed = True
        if committed:
            self.begun.remove(begun)
            self.commit(begun)

    @precondition(lambda self: self.source and not self.begun)
    @rule(path=st.sampled_from(PATHS), keys=st.lists(st.sampled_from(KEYS), max_size=5), swapped=st.booleans())
    def race(self, path: str, keys: list[int], swapped: bool) -> None:
        """Run two builds at once while a file changes. The current state of the source counts."""
        self.begin_build(NO_FAULT)
        self.write_file(path, keys)
        self.begin_build(NO_FAULT)
        self.finish_build(int(swapped), NO_FAULT)
        self.finish_build(0, NO_FAULT)
        assert self.covered == self.source

    @precondition(lambda self: self.source and not self.begun)
    @rule()
    def build(self) -> None:
        """A build without faults covers the current source."""
        build = Build(SourceRoot(self.lake), self.index, ["k"], buckets=2)
        build.commit()
        self.commit(Begun(build, dict(self.source), dict(self.covered)))
        assert self.covered == self.source

    @precondition(lambda self: self.history and self.source)
    @rule(which=st.sets(st.sampled_from(PATHS)), fault=faults(30))
    def restore(self, which: set[str], fault: tuple[Fault, int]) -> None:
        """Give files other times, as in a restored lake. Files with the covered content are adopted, even while other
        builds run."""
        for path in which & self.source.keys():
            self.write_file(path, list(self.source[path][1]))
        storage = FaultyStorage(self.index, *fault)
        try:
            adopt(storage, SourceRoot(self.lake))
        except (ShadowError, OSError):
            assert storage.has_failed
        newest = newest_snapshot(self.index)
        assert newest is not None
        if newest.number not in self.history:
            assert newest.operation == "adopt"
            same = {path for path, (_, keys) in self.covered.items() if self.source.get(path, (0, None))[1] == keys}
            assert newest.counts["adopted"] == sum(self.covered[path] != self.source[path] for path in same)
            self.covered |= {path: self.source[path] for path in same}
            self.history[newest.number] = self.expected()

    def newest_id(self) -> str | None:
        newest = newest_snapshot(self.index)
        return newest.commit_id if newest else None

    def commit(self, begun: Begun) -> None:
        """Apply a commit to the covered files. A file has the state that the build saw, unless another build has since
        seen another state of it, or its end, and the source differs from ours."""
        for path in begun.listed.keys() | begun.base.keys():
            mine, before, now = begun.listed.get(path), begun.base.get(path), self.covered.get(path)
            if mine == before or (
                now != before and (mine is None or ((now or before) and self.source.get(path) != mine))
            ):
                continue
            if mine is None:
                del self.covered[path]
            else:
                self.covered[path] = mine
        newest = newest_snapshot(self.index)
        assert newest is not None
        self.history.setdefault(newest.number, self.expected())

    def expected(self) -> Answers:
        return answers({path: keys for path, (_, keys) in self.covered.items()})

    # -- readers -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.history)
    @rule()
    def reopen(self) -> None:
        self.reader = OpenIndex(self.index, open_view(self.index), pinned=False)

    @precondition(lambda self: self.reader)
    @rule()
    def refresh(self) -> None:
        assert self.reader is not None
        self.reader.refresh()
        assert self.reader.view.snapshot.number == max(self.history)

    @precondition(lambda self: self.reader)
    @invariant()
    def an_open_index_stays_at_its_snapshot(self) -> None:
        assert self.reader is not None
        assert look_up_in(self.reader) == self.history[self.reader.view.snapshot.number]

    @precondition(lambda self: self.history)
    @invariant()
    def the_newest_snapshot_answers_as_a_dict(self) -> None:
        assert look_up(self.index) == self.expected() == self.history[max(self.history)]

    def teardown(self) -> None:
        for number, expected in self.history.items():
            assert look_up(self.index, number) == expected
        assert (self.newest_id() is None) == (not self.history)
        check_clean(self.index)


def test_any_history_answers_as_a_dict() -> None:
    small = settings(max_examples=examples(60), stateful_step_count=30)
    run_state_machine_as_test(ShadowMachine, settings=small)


@pytest.mark.nightly
def test_a_thousand_long_histories_answer_as_a_dict() -> None:
    run_state_machine_as_test(ShadowMachine, settings=settings(max_examples=examples(600), stateful_step_count=40))

"""Changes made for one snapshot and committed one after the other: nothing is lost, nothing counts twice."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.shadow.commit.rebase import (
    BuildFailed,
    Changes,
    ConcurrentCommit,
    State,
    check_changes,
    check_read_last,
    folders_after,
    is_committed,
    is_recorded,
    nothing_left,
    rebase,
    spec_after,
)
from gnomon.shadow.metadata import Folder, source_named
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.shadow.metadata.snapshots import Snapshot
from gnomon.shadow.metadata.source_files import diff
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.storage import FileInfo
from gnomon.shadow.tables import Table, TableVersion

Source = dict[str, int]  # the source's files, each with its version, which is its modification time
SPEC = IndexSpec(Folder("/lake"), "parquet", (), (KeyColumn("k", "int"),), (), 4)


def entry(path: str, version: int) -> SourceFileEntry:
    return SourceFileEntry(path, "", 1, 1, version, "")


def segment(name: str, source: Source, dead: frozenset[int] = frozenset()) -> Segment:
    return Segment(name, (), tuple(entry(path, version) for path, version in sorted(source.items())), dead)


def listing(source: Source) -> list[FileInfo]:
    return [FileInfo(path, 1, version) for path, version in sorted(source.items())]


def state(*segments: Segment, number: int = 1) -> State:
    return State(Snapshot(number, "build", (), {}, {}, SPEC), segments)


def covered(segments: tuple[Segment, ...]) -> Source:
    """The live files; fails if one is live twice."""
    files = [file for one in segments for file in one.live.values()]
    assert len({file.path for file in files}) == len(files)
    return {file.path: file.mtime_ns for file in files}


@dataclass
class Writer:
    """A build of a listing of the source, or (without one) a compaction of some segments."""

    changes: Changes
    ours: Segment
    listed: Source | None = None


def build(name: str, base: State, source: Source) -> Writer:
    found = diff(listing(source), base.segments)
    ours = segment(name, {info.path: info.mtime_ns for info in found.to_index})
    return Writer(Changes("build", (), ours.source_files, found.dead, {}), ours, source)


def compact(name: str, base: State, chosen: frozenset[str]) -> Writer:
    ours = segment(name, covered(tuple(one for one in base.segments if one.id in chosen)))
    return Writer(Changes("compact", (), ours.source_files, {}, {}, replaced=chosen), ours)


@st.composite
def histories(draw: st.DrawFn) -> tuple[State, list[Writer], Source]:
    """A snapshot of one to three segments; writers that start from it while the source changes, in the order of their
    commits; and the source at the end."""
    version = iter(range(1, 1000))
    names = st.sets(st.sampled_from("abcde"), max_size=4)
    source: Source = {}
    segments = []
    for i in range(draw(st.integers(1, 3))):
        files = {path: next(version) for path in sorted(draw(names)) if path not in source}
        source |= files
        lost = {path: next(version) for path in sorted(draw(names)) if path not in files}
        segments.append(segment(f"base {i}", files | lost))
        paths = [file.path for file in segments[-1].source_files]
        segments[-1] = segment(f"base {i}", files | lost, frozenset(map(paths.index, lost)))
    base = state(*(one for one in segments if one.live))
    writers = []
    for i in range(draw(st.integers(1, 4))):
        for path in sorted(draw(names)):
            if draw(st.booleans()):
                source = source | {path: next(version)}
            else:
                source = {other: v for other, v in source.items() if other != path}
        if draw(st.booleans()) or not base.segments:
            writers.append(build(f"build {i}", base, source))
        else:
            ids = [one.id for one in base.segments]
            writers.append(compact(f"compact {i}", base, draw(st.frozensets(st.sampled_from(ids), min_size=1))))
    return base, draw(st.permutations(writers)), source


@given(histories())
def test_whatever_the_order_of_commits_nothing_is_lost_nothing_twice_and_nothing_undone(
    history: tuple[State, list[Writer], Source],
) -> None:
    base, writers, source = history
    now = base
    committed = []
    for number, writer in enumerate(writers, 2):
        check_changes(base, writer.changes, writer.ours)
        before = covered(now.segments)
        try:
            after = rebase(base, now, writer.changes, writer.ours, lambda: listing(source))
        except ConcurrentCommit:
            assert writer.listed is None, "a build always comes through"
            continue
        if writer.listed is None:
            assert covered(after) == before, "a compaction changes no answer"
        assert nothing_left(now, after, writer.changes) == (after == now.segments)
        now = state(*after, number=number)
        committed.append(writer)
    found = covered(now.segments)
    was = covered(base.segments)
    for writer in committed:
        if writer.listed is None:
            continue
        for path, version in writer.listed.items():
            if source.get(path) == version:
                assert found[path] == version, "what is indexed and still there counts"
        for path, version in was.items():
            if writer.listed.get(path) != version:
                assert found.get(path) != version, "what a build found changed or gone does not come back"
    known = [was, *(writer.listed for writer in committed if writer.listed is not None)]
    assert all(any(one.get(path) == version for one in known) for path, version in found.items())


BASE = state(segment("s", {"a": 1, "b": 1}), segment("t", {"c": 1}))


def test_on_its_own_base_a_build_is_what_it_was_made_to_be() -> None:
    one = build("new", BASE, {"a": 1, "b": 2, "d": 1})
    after = rebase(BASE, BASE, one.changes, one.ours)
    assert covered(after) == {"a": 1, "b": 2, "d": 1}
    assert [(each.id, set(each.dead)) for each in after] == [("s", {1}), ("new", set())]


def test_what_a_build_found_changed_is_dead_in_the_segment_it_was_moved_to() -> None:
    one = build("new", BASE, {"a": 1, "b": 2})
    now = state(segment("compacted", {"a": 1, "b": 1, "c": 1}), number=2)
    after = rebase(BASE, now, one.changes, one.ours)
    assert [(each.id, set(each.dead)) for each in after] == [("compacted", {1, 2}), ("new", set())]


def test_what_died_in_a_replaced_segment_is_dead_in_the_new_one() -> None:
    one = compact("new", BASE, frozenset("st"))
    now = state(segment("s", {"a": 1, "b": 1}, frozenset({0})), segment("t", {"c": 1}), segment("u", {"a": 2}))
    after = rebase(BASE, now, one.changes, one.ours)
    assert covered(after) == {"a": 2, "b": 1, "c": 1}
    assert [each.id for each in after] == ["u", "new"]


def test_a_file_that_came_back_and_was_indexed_meanwhile_is_not_dead() -> None:
    """The build listed the source while the file was gone; two other builds saw it go and come back."""
    base = state(segment("a", {"f": 1, "g": 1}))
    slow = build("slow", base, {"g": 1, "h": 1})
    back = state(segment("a", {"f": 1, "g": 1}, frozenset({0})), segment("b", {"f": 1}))
    after = rebase(base, back, slow.changes, slow.ours, lambda: listing({"f": 1, "g": 1, "h": 1}))
    assert covered(after) == {"f": 1, "g": 1, "h": 1}
    after = rebase(base, back, slow.changes, slow.ours, lambda: listing({"g": 1, "h": 1}))
    assert covered(after) == {"g": 1, "h": 1}


def test_a_file_that_others_found_gone_is_not_covered_in_the_state_it_had_before() -> None:
    base = state(segment("a", {"f": 1, "g": 1}))
    slow = build("slow", base, {"f": 2, "g": 1})
    gone = state(segment("a", {"f": 1, "g": 1}, frozenset({0})))
    assert covered(rebase(base, gone, slow.changes, slow.ours, lambda: listing({"g": 1}))) == {"g": 1}
    still = rebase(base, gone, slow.changes, slow.ours, lambda: listing({"f": 2, "g": 1}))
    assert covered(still) == {"f": 2, "g": 1}


def test_a_segment_that_others_replaced_is_not_replaced_again() -> None:
    one = compact("new", BASE, frozenset("s"))
    with pytest.raises(ConcurrentCommit, match="segment s was replaced or dropped by another commit"):
        rebase(BASE, state(segment("other", {"a": 1, "b": 1, "c": 1})), one.changes, one.ours)


def test_a_segment_added_while_buckets_are_changed_is_not_left_in_the_old_ones() -> None:
    ours = segment("new", {"a": 1, "b": 1, "c": 1})
    changes = Changes(
        "rebucket", (), ours.source_files, {}, {}, replaced=frozenset("st"), relaid=replace(SPEC, buckets=8)
    )
    check_changes(BASE, changes, ours)
    assert not nothing_left(BASE, rebase(BASE, BASE, changes, ours), changes)
    with pytest.raises(ConcurrentCommit, match="segment u was added by another commit while buckets or"):
        rebase(BASE, state(*BASE.segments, segment("u", {"d": 1})), changes, ours)


def test_a_file_in_two_states_is_as_the_source_holds_it_now() -> None:
    one = build("new", BASE, {"a": 1, "b": 1, "c": 1, "d": 1})
    now = state(*BASE.segments, segment("u", {"d": 2}))
    for holds, counts in (({"d": 1}, 1), ({"d": 2}, 2), ({"d": 3}, 2), ({}, 2)):
        after = rebase(BASE, now, one.changes, one.ours, lambda source=holds: listing(source))
        assert covered(after)["d"] == counts
    with pytest.raises(ConcurrentCommit, match="d: another build indexed another state of it"):
        rebase(BASE, now, one.changes, one.ours)


def test_the_source_is_listed_once_and_only_where_it_decides() -> None:
    lists: list[int] = []

    def current() -> list[FileInfo]:
        lists.append(1)
        return listing({"d": 1, "e": 1})

    one = build("new", BASE, {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1})
    rebase(BASE, state(*BASE.segments, segment("u", {"d": 1})), one.changes, one.ours, current)
    assert lists == []
    rebase(BASE, state(*BASE.segments, segment("u", {"d": 2, "e": 2})), one.changes, one.ours, current)
    assert lists == [1]


@pytest.mark.parametrize(
    ("changes", "ours", "said"),
    [
        (Changes("build", (), (), {}, {}), segment("new", {"a": 2}), "a: indexed though the index covers it already"),
        (
            Changes("compact", (), (), {}, {}, replaced=frozenset("s")),
            segment("new", {"a": 1}),
            "b: not in the segment that replaces s",
        ),
        (
            Changes("compact", (), (), {}, {}, replaced=frozenset("t")),
            segment("new", {"c": 2}),
            "c: not in the segment that replaces t",
        ),
        (
            Changes("compact", (), (), {}, {}, replaced=frozenset("x")),
            segment("new", {}),
            "replaced are not those of the snapshot",
        ),
        (
            Changes("rebucket", (), (), {}, {}, replaced=frozenset("t"), relaid=replace(SPEC, buckets=8)),
            segment("new", {"c": 1}),
            "replaced are not those of the snapshot",
        ),
        (
            Changes("build", (), (), {}, {}),
            Segment("new", (), (entry("d", 1), entry("d", 2))),
            "a source file is twice in one segment",
        ),
    ],
)
def test_changes_that_would_lose_a_file_or_count_it_twice_are_refused(
    changes: Changes, ours: Segment, said: str
) -> None:
    with pytest.raises(BuildFailed, match=said):
        check_changes(BASE, changes, ours)


def test_another_spec_or_number_of_buckets_is_not_written_to() -> None:
    other = IndexSpec(Folder("/lake"), "parquet", (), (KeyColumn("j", "int"),), (), 4)
    spec_after(State(None), State(None), other, "/index")
    spec_after(BASE, BASE, SPEC, "/index")
    with pytest.raises(
        ConcurrentCommit, match=r"/index: another program committed snapshot 1 with another spec \(keys: "
    ):
        spec_after(State(None), BASE, other, "/index")
    elsewhere = State(Snapshot(2, "adopt", (), {}, {}, replace(SPEC, source=Folder("/copy"))))
    with pytest.raises(ConcurrentCommit, match=r"source location: /lake before, /copy now"):
        spec_after(BASE, elsewhere, SPEC, "/index")
    eight = State(Snapshot(2, "rebucket", (), {}, {}, replace(SPEC, buckets=8)))
    with pytest.raises(ConcurrentCommit, match="buckets: 4 before, 8 now"):
        spec_after(BASE, eight, SPEC, "/index")
    with pytest.raises(ConcurrentCommit, match="all snapshots were removed"):
        spec_after(BASE, State(None), SPEC, "/index")


def test_columns_that_others_found_in_rows_meanwhile_are_widened_with_ours() -> None:
    """The types are those of one build of all files."""
    found = ["a bigint COMMENT 'numbers 16,0,0,1,1,1'", "a decimal(17,1) COMMENT 'numbers 16,1,0,0,1,1'", "b string"]
    base, ours, theirs = (replace(SPEC, format="jsonl", schema=schema) for schema in found)
    states = [State(Snapshot(i, "build", (), {}, {}, spec)) for i, spec in enumerate((base, theirs), 1)]
    assert spec_after(states[0], states[1], ours, "/index").schema == f"{found[1]}, b string"
    assert spec_after(states[0], states[0], ours, "/index") == ours
    assert spec_after(State(None), states[1], base, "/index").schema == f"{found[0]}, b string"
    with pytest.raises(ConcurrentCommit, match=r"with another spec \(buckets: 4 before, 8 now\)"):
        spec_after(states[0], State(Snapshot(2, "rebucket", (), {}, {}, replace(theirs, buckets=8))), ours, "/index")


def test_a_commit_is_known_again_by_its_id_or_its_segment() -> None:
    now = State(Snapshot(2, "build", (), {}, {}, SPEC, commit_id="x"), (segment("y", {"a": 1}),))
    assert [is_committed(now, commit) for commit in "xyz"] == [True, True, False]


def test_a_batch_is_committed_though_no_file_of_it_is_left() -> None:
    one = Changes("dedup", (), (), {}, {}, batch="b")
    assert not nothing_left(BASE, rebase(BASE, BASE, one, segment("new", {})), one)


def test_a_tables_folders_are_those_of_the_newest_snapshot_with_what_the_build_found_changed() -> None:
    def with_folders(folders: dict[str, str] | None) -> State:
        snapshot = state().snapshot
        assert snapshot is not None
        return State(replace(snapshot, folders=folders))

    base = with_folders({"p=1": "a", "p=2": "b", "p=3": "c"})
    now = with_folders({"p=1": "a", "p=2": "moved", "p=3": "c", "p=4": "theirs"})
    found = Changes("build", (), (), {}, {}, folders={"p=1": "ours", "p=2": "b", "p=5": "new"})
    assert folders_after(base, now, found) == {"p=1": "ours", "p=2": "moved", "p=4": "theirs", "p=5": "new"}
    assert folders_after(base, now, replace(found, folders=None)) == now.snapshot.folders  # as of a compaction
    assert folders_after(State(None), State(None), found) == found.folders
    assert folders_after(State(None), now, found)["p=2"] == "b"


@pytest.mark.parametrize(
    ("since", "is_ours_newer"),
    [
        ([], True),
        ([1, 1], True),
        ([2], True),  # another build read the same state
        ([3], False),
        ([3, 1], False),  # rolled back: the build may have read its state before
        ([2, 1], False),
        ([1, 3], False),
        ([3, 2], True),
    ],
)
@pytest.mark.parametrize("kind", ["a lake table", "a catalog table"])
def test_a_state_of_a_table_is_not_committed_after_one_that_may_be_newer(
    kind: str, since: list[int], is_ours_newer: bool
) -> None:
    """State 1 is the base's, state 2 the build's."""
    before = state().snapshot
    assert before is not None

    def recorded(number: int) -> dict[str, Any]:
        version = TableVersion("uuid", str(number))
        return {"table": version} if kind == "a lake table" else {"folders": {"p=1": f"v{number}", "p=2": "same"}}

    base, others = State(replace(before, **recorded(1))), [replace(before, **recorded(one)) for one in since]
    changes = Changes("build", (), (), {}, {}, **recorded(2))
    with nullcontext() if is_ours_newer else pytest.raises(ConcurrentCommit, match="another build committed another"):
        check_read_last(base, others, changes)
    check_read_last(base, others, replace(changes, table=None, folders=None))  # as of a compaction


def test_a_build_that_found_the_table_as_its_base_has_it_takes_back_no_newer_version() -> None:
    before = state().snapshot
    assert before is not None
    one, two = (replace(before, table=TableVersion("uuid", number)) for number in "12")
    changes = Changes("dedup", (), (), {}, {}, batch="b", table=one.table)
    check_read_last(State(one), [one, two, one], changes)
    with pytest.raises(ConcurrentCommit, match="another build committed another version of the table"):
        check_read_last(State(one), [one, two], changes)


def test_what_the_catalog_says_of_a_table_is_worth_a_commit() -> None:
    before = state().snapshot
    assert before is not None
    table = replace(before, spec=replace(SPEC, source=source_named("/lake", "db.t"), schema="k int"), folders={"": ""})
    assert is_recorded(table, replace(table, number=2))
    assert not is_recorded(table, replace(table, folders={"": "elsewhere"}))
    assert not is_recorded(table, replace(table, spec=replace(table.spec, schema="k int, more string")))
    assert is_recorded(before, replace(before, spec=replace(SPEC, schema="a string")))  # not of a table


def test_a_folder_that_was_given_to_another_partition_is_of_that_one_whoever_commits_first() -> None:
    """The files are unchanged: only the catalog has them in another partition now."""

    def file(partition: str, path: str = "a/f") -> SourceFileEntry:
        return replace(entry(path, 1), partition=partition)

    def of_table(folders: dict[str, str], *segments: Segment) -> State:
        snapshot = state().snapshot
        assert snapshot is not None
        return State(replace(snapshot, folders=folders), segments)

    def made(name: str, base: State, folders: dict[str, str], paths: list[str]) -> tuple[Changes, Segment]:
        table = Table("db.t", folders, {"p": "int"}, "k int")
        found = diff([FileInfo(path, 1, 1) for path in paths], base.segments, table)
        ours = Segment(name, (), tuple(file(table.partition_of(info.path), info.path) for info in found.to_index))
        return Changes("build", (), ours.source_files, found.dead, {}, folders=folders), ours

    def partitions(base: State, now: State, one: tuple[Changes, Segment], paths: list[str]) -> dict[str, str]:
        after = rebase(base, now, *one, lambda: [FileInfo(path, 1, 1) for path in paths])
        covered(after)
        return {each.path: each.partition for segment in after for each in segment.live.values()}

    before, later = {"p=1": "a", "p=2": "b"}, {"p=1": "b", "p=2": "a"}
    base = of_table(before, Segment("s", (), (file("p=1"),)))
    build_after = made("new", base, later, ["a/f"])
    compacted = of_table(before, Segment("compacted", (), (file("p=1"),)))
    assert partitions(base, base, build_after, ["a/f"]) == {"a/f": "p=2"}
    assert partitions(base, compacted, build_after, ["a/f"]) == {"a/f": "p=2"}

    paths = ["a/f", "a/g"]  # g is new: both builds index it
    build_before, build_after = made("old", base, before, paths), made("new", base, later, paths)
    first = of_table(before, *rebase(base, base, *build_before))
    assert partitions(base, first, build_after, paths) == {"a/f": "p=2", "a/g": "p=2"}
    first = of_table(later, *rebase(base, base, *build_after))
    assert partitions(base, first, build_before, paths) == {"a/f": "p=2", "a/g": "p=2"}

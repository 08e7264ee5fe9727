"""Compact and rebucket change the files of an index, and never its answers."""

import math
import random
import shutil
from collections import Counter
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.btree.errors import DamagedIndexFile
from gnomon.shadow.commit.publishing import Changes, new_segment_id, publish
from gnomon.shadow.errors import BuildFailed, ConcurrentCommit, SpecMismatch, UsageError
from gnomon.shadow.maintenance import compaction
from gnomon.shadow.maintenance.compaction import CompactResult, compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshot_view import View, open_view
from gnomon.shadow.metadata.snapshots import newest_snapshot, snapshot_numbers
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.verify.snapshot import verify
from gnomon.shadow.write import Workers
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source
from tests.shadow.random_lake import RandomLake, answers, rows


def view_of(index: Path) -> View:
    return open_view(storage_at(str(index)))


def covered(view: View) -> dict[str, object]:
    return dict(sorted(view.covered.items()))


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.slow
def test_answers_are_the_same_before_and_after_in_the_same_order(tmp_path: Path, seed: int) -> None:
    lake = RandomLake(tmp_path, seed, flat=seed % 3 == 2, in_ranges=seed % 2 == 1)
    for number in range(4):
        for _ in range(lake.random.randrange(1, 4)):
            lake.step()
        before, rows_before, files = answers(lake.index), rows(lake.index), covered(view_of(lake.index))
        storage = storage_at(str(lake.index))
        if number == 2:
            flat = not open_index(str(lake.index)).spec.flat
            assert rebucket(storage, flat=flat).committed
            assert open_index(str(lake.index)).spec.flat is flat
            assert_tidy(view_of(lake.index))
            assert verify(storage).faults == []
        elif number % 2:
            count = lake.random.choice([1, 2, 3, 4, 8, 13])
            made = rebucket(storage, count).buckets
            spec = open_index(str(lake.index)).spec
            assert spec.buckets == made
            assert made == count or (made < count and spec.cuts is not None)
        else:
            compact(storage)
            assert_tidy(view_of(lake.index))
        assert (answers(lake.index), rows(lake.index), covered(view_of(lake.index))) == (before, rows_before, files)
        assert not compact(storage).committed or number % 2


def assert_tidy(view: View) -> None:
    """Each folder lies in one segment, and every entry is live."""
    folders = [{view.spec.folder_of(file.partition) for file in segment.live.values()} for segment in view.segments]
    where = Counter(folder for some in folders for folder in some)
    assert set(where.values()) <= {1}
    listed = sum(file.entries for segment in view.segments for file in segment.index_files)
    assert listed == view.snapshot.rows


@pytest.mark.parametrize("seed", range(10))
def test_one_partition_may_be_compacted_alone_with_the_same_answers_but_for_their_order(
    tmp_path: Path, seed: int
) -> None:
    lake = RandomLake(tmp_path, seed, in_ranges=seed % 2 == 1)
    for _ in range(5):
        lake.step()
    storage = storage_at(str(lake.index))
    partition = lake.random.choice(sorted(view_of(lake.index).snapshot.partitions))
    before = answers(lake.index)
    compact(storage, partition)
    after = answers(lake.index)
    assert {key: sorted(found) for key, found in after.items()} == {key: sorted(one) for key, one in before.items()}
    assert len([s for s in view_of(lake.index).segments if partition in s.partition_of.values()]) == 1


VALUES = [
    (pa.string(), ["", "a", "b\u00e9", "\U0001f600", "a\x00"]),
    (pa.int32(), [0, 1, -1, 2**31 - 1]),
    (pa.float64(), [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]),
    (pa.binary(), [b"", b"\x00", b"\xff", b"\x7f"]),
    (pa.decimal128(5, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("999.99")]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [0, -1, 20000]),
    (pa.timestamp("us", "UTC"), [0, -1, 10**15]),
]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_composite_keys_of_any_type_with_a_partition_column_are_answered_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(VALUES, 3)
    seen = set()
    for number in range(4):
        for partition in ("a", "b"):
            arrays = [pa.array(chance.choices([None, *values], k=40), kind) for kind, values in kinds]
            table = pa.table(arrays, names=["c0", "c1", "c2"])
            write_source(tmp_path / "lake", {f"p={partition}/{number}.parquet": table})
            seen |= {(partition, *row.values()) for row in table.to_pylist()}
        index_source(tmp_path / "lake", tmp_path / "index", ["p", "c0", "c1", "c2"], buckets=3)
    wanted = sorted(seen, key=repr)
    before = open_index(str(tmp_path / "index")).fetch_many(wanted)
    assert sum(map(len, before)) >= 320
    for change in (compact, lambda storage: rebucket(storage, 5), lambda storage: rebucket(storage, 1)):
        change(storage_at(str(tmp_path / "index")))
        assert repr(open_index(str(tmp_path / "index")).fetch_many(wanted)) == repr(before)
        assert verify(storage_at(str(tmp_path / "index")), None).faults == []


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An index of two segments: one of the partitions a and b, one of another file in b."""
    write_source(tmp_path / "lake", {f"p={p}/1.parquet": pa.table({"k": range(40)}) for p in "ab"})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    write_source(tmp_path / "lake", {"p=b/2.parquet": pa.table({"k": [7]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    return tmp_path


def test_only_what_must_change_is_written_again(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    files = {file.path for segment in open_view(storage).segments for file in segment.index_files}
    result = compact(storage)
    assert (result.snapshot, result.segments_before, result.segments) == (3, 2, 1)
    assert (result.index_files, result.kept, result.dropped) == (1, 7, 0)
    (segment,) = open_view(storage).segments
    assert len({file.path for file in segment.index_files} & files) == 7
    snapshot = newest_snapshot(storage)
    assert snapshot is not None
    assert (snapshot.operation, snapshot.counts["segments_replaced"], snapshot.rows) == ("compact", 2, 81)


def test_a_compact_index_is_left_alone(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    compact(storage)
    before = list(storage.list(hidden=True))
    again = compact(storage)
    assert (again.committed, again.snapshot, again.index_files) == (False, 3, 0)
    assert list(storage.list(hidden=True)) == before


def test_segments_that_are_alone_in_their_partitions_stay(tmp_path: Path) -> None:
    for number in range(3):
        write_source(tmp_path / "lake", {f"p={number}/a.parquet": pa.table({"k": range(5)})})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    write_source(tmp_path / "lake", {"p=2/b.parquet": pa.table({"k": range(5)})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    before = [segment.id for segment in view_of(tmp_path / "index").segments]
    compact(storage_at(str(tmp_path / "index")))
    assert [segment.id for segment in view_of(tmp_path / "index").segments][:2] == before[:2]
    assert len(view_of(tmp_path / "index").segments) == 3


def test_entries_of_files_that_changed_or_vanished_are_dropped_with_their_partitions(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {f"p={p}/1.parquet": pa.table({"k": range(40)}) for p in "abc"})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    (tmp_path / "lake/p=a/1.parquet").unlink()
    write_source(tmp_path / "lake", {"p=b/1.parquet": pa.table({"k": [1, 2]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    before = answers(tmp_path / "index")
    result = compact(storage_at(str(tmp_path / "index")))
    assert (result.dropped, result.segments) == (80, 1)
    (segment,) = view_of(tmp_path / "index").segments
    assert {file.partition for file in segment.index_files} == {"p=b", "p=c"}
    assert answers(tmp_path / "index") == before


@pytest.mark.parametrize(
    "options", [{"order": "range"}, {"order": "hash"}, {"flat": True}, {"flat": True, "order": "range"}]
)
def test_an_index_is_rebucketed_where_a_vacuum_removed_the_files_of_a_partition_that_is_gone(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    write_source(tmp_path / "lake", {f"p={p}/1.parquet": pa.table({"k": range(40)}) for p in "abc"})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    (tmp_path / "lake/p=a/1.parquet").unlink()
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    storage = storage_at(str(tmp_path / "index"))
    assert vacuum(storage, 0, unnamed_seconds=0).files
    before = answers(tmp_path / "index")
    assert rebucket(storage, 3, **options).committed
    assert answers(tmp_path / "index") == before
    assert verify(storage).faults == []


def test_a_build_after_a_compact_or_a_rebucket_works_on_what_is_new_only(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    for number, change in enumerate((compact, lambda storage: rebucket(storage, 7))):
        change(storage)
        write_source(lake / "lake", {f"p=c/{number}.parquet": pa.table({"k": [7]})})
        snapshot = index_source(lake / "lake", lake / "index", ["k"])
        assert snapshot.rows == 82 + number
        assert len(open_index(str(lake / "index")).lookup(7)) == 4 + number
    assert open_index(str(lake / "index")).coverage().is_empty


def test_what_is_asked_for_and_cannot_be_is_said(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    with pytest.raises(UsageError, match="no partition 'p=z'; expected its folder, like"):
        compact(storage, "p=z")
    for buckets in (0, -1, 65_537):
        with pytest.raises(UsageError, match=f"buckets: expected 1 to 65536, found {buckets}"):
            rebucket(storage, buckets)
    assert rebucket(storage, 4).committed is False


def test_older_snapshots_answer_as_before(lake: Path) -> None:
    before = {number: answers(lake / "index", number) for number in (1, 2)}
    storage = storage_at(str(lake / "index"))
    compact(storage)
    rebucket(storage, 3)
    assert {number: answers(lake / "index", number) for number in (1, 2)} == before
    assert [open_index(str(lake / "index"), number).spec.buckets for number in (1, 3, 4)] == [4, 4, 3]


def test_an_index_without_rows_or_without_files_is_compacted_and_rebucketed(tmp_path: Path) -> None:
    empty = pa.table({"k": pa.array([], pa.int64())})
    for name in ("a", "b"):
        write_source(tmp_path / "lake", {f"{name}.parquet": empty})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    storage = storage_at(str(tmp_path / "index"))
    assert (compact(storage).segments, rebucket(storage, 2).buckets) == (1, 2)
    view = open_view(storage)
    publish(
        storage, view.spec, view.snapshot, Changes("build", [], [], {view.segments[0].id: frozenset([0, 1])}, {}), "x"
    )
    assert (compact(storage).committed, rebucket(storage, 3).buckets) == (False, 3)
    assert open_index(str(tmp_path / "index")).lookup(1) == []


def test_a_damaged_index_file_is_not_carried_on(lake: Path) -> None:
    """Only merged files are read: a merge finds the damage."""
    storage = storage_at(str(lake / "index"))
    file = view_of(lake / "index").segments[1].index_files[0]
    path = lake / "index" / file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedIndexFile, match=file.path):
        compact(storage)
    assert snapshot_numbers(storage) == [1, 2]


class Interrupted(LocalStorage):
    """Calls a function just before its first put of a snapshot."""

    happens = staticmethod(lambda: None)

    def put_new(self, path: str, chunks: object) -> None:
        if path.startswith("_shadow/snapshots"):
            happens, self.happens = self.happens, lambda: None
            happens()
        super().put_new(path, chunks)  # type: ignore[arg-type]


def test_of_two_at_once_one_wins_and_answers_stay_the_same(lake: Path) -> None:
    before = answers(lake / "index")
    for loses in (compact, lambda storage: rebucket(storage, 2)):
        storage = Interrupted(str(lake / "index"))
        storage.happens = lambda: rebucket(storage_at(str(lake / "index")), 9)
        with pytest.raises((ConcurrentCommit, SpecMismatch, BuildFailed)):
            loses(storage)
        assert answers(lake / "index") == before
        write_source(lake / "lake", {"p=b/3.parquet": pa.table({"k": [5]})})
        index_source(lake / "lake", lake / "index", ["k"])
        rebucket(storage_at(str(lake / "index")), 4)
        before = answers(lake / "index")


def test_a_segment_id_is_fresh_each_time(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    compact(storage)
    assert len({segment.id for segment in open_view(storage).segments} | {new_segment_id()}) == 2


def test_a_flat_index_is_compacted_whole_and_answers_the_same(tmp_path: Path) -> None:
    for number in range(3):
        for partition in ("a", "b%2F"):
            write_source(tmp_path / "lake", {f"p={partition}/{number}.parquet": pa.table({"k": range(9)})})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], flat=True)
    storage = storage_at(str(tmp_path / "index"))
    wanted = [({"k": key}, where) for key in range(10) for where in (None, {"p": "b/"}, {"p": "a"})]

    def found() -> list[object]:
        opened = open_index(str(tmp_path / "index"))
        return [opened.lookup(key, where) for key, where in wanted]

    before = found()
    with pytest.raises(UsageError, match="the index is flat; it is compacted whole"):
        compact(storage, "p=a")
    for change in (compact, lambda storage: rebucket(storage, 3)):
        assert change(storage).segments == 1
        assert found() == before
        assert verify(storage, None).faults == []


@pytest.mark.process
@pytest.mark.parametrize("change", [partial(compact), partial(rebucket, buckets=8), partial(rebucket, order="range")])
def test_several_processes_write_the_files_that_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: partial[CompactResult]
) -> None:
    for number in range(3):
        write_source(tmp_path / "lake", {f"{number}.parquet": pa.table({"k": range(number, 300)})})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=4)
    write_source(tmp_path / "lake", {"0.parquet": pa.table({"k": range(5, 10)})})  # the other entries of it are dead
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    monkeypatch.setattr(compaction, "new_segment_id", lambda: "20260101T000000-000000000000")
    monkeypatch.setattr(compaction, "WORTH_ROWS", 1)
    written, entries, shared = [], [], []
    real = Workers.run
    monkeypatch.setattr(Workers, "run", lambda *given: shared.append(given) or real(*given))
    for processes in (1, 2):
        index = shutil.copytree(tmp_path / "index", tmp_path / f"by-{processes}")
        monkeypatch.setattr(compaction, "processes_for", lambda *_, processes=processes: processes)
        change(storage_at(str(index)))
        [segment] = view_of(index).segments
        entries.append(segment.index_files)
        written.append({file.path: (index / file.path).read_bytes() for file in segment.index_files})
    assert written[0] == written[1]
    assert entries[0] == entries[1]
    assert len(shared) == (0 if change.keywords == {"order": "range"} else 1)
    assert verify(storage_at(str(tmp_path / "by-2")), None).faults == []

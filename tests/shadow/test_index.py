"""An open index answers from one snapshot, follows the newest, and never answers damage as absence."""

import copy
import datetime as dt
import multiprocessing
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from gnomon import shadow
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import (
    DamagedMetadata,
    IndexFileGone,
    IndexNotFound,
    KeyTypeError,
    ShadowError,
    SnapshotNotFound,
    SourceNotFound,
    UnknownColumn,
    UsageError,
)
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.metadata import json_files
from gnomon.shadow.metadata.snapshot_view import newest_good_view, newest_view
from gnomon.shadow.metadata.snapshots import SPEC_PATH, snapshot_path
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.profiles import stride
from tests.shadow.make_index import index_source, write_source


def add(folder: Path, day: int, keys: list[int], column: str = "k", buckets: int = 4) -> int:
    """Add a partition and index it. Returns the new snapshot."""
    write_source(folder / "lake", {f"dt={day}/a.parquet": pa.table({column: keys, "day": [day] * len(keys)})})
    return index_source(folder / "lake", folder / "index", [column], buckets).number


@pytest.fixture
def place(tmp_path: Path) -> str:
    """An index of two snapshots: keys 0..9 of day 1, then 10..19 of day 2."""
    add(tmp_path, 1, list(range(10)))
    add(tmp_path, 2, list(range(10, 20)))
    return str(tmp_path / "index")


def test_an_index_is_its_newest_snapshot_and_older_ones_stay_readable(place: str) -> None:
    newest, first = open_index(place), open_index(place, snapshot=1)
    assert (newest.view.snapshot.number, first.view.snapshot.number) == (2, 1)
    assert (newest.contains(15), first.contains(15), first.contains(5)) == (True, False, True)
    assert newest.view.snapshot.partitions == {"dt=1": 10, "dt=2": 10}
    with pytest.raises(SnapshotNotFound, match=r"snapshot 3 is not there \(there are 1 to 2\)"):
        open_index(place, snapshot=3)


def test_refresh_moves_to_the_newest_and_says_so(place: str, tmp_path: Path) -> None:
    index, pinned = open_index(place), open_index(place, snapshot=2)
    assert not index.refresh()
    add(tmp_path, 3, [100])
    assert not index.contains(100)
    assert (index.refresh(), index.refresh()) == (True, False)
    assert index.fetch(100) == [{"k": 100, "day": 3, "dt": "3"}]
    assert not pinned.refresh()
    assert not pinned.contains(100)


def test_an_index_as_it_is_here_stays_though_the_other_moves(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    here = index.here()
    add(tmp_path, 3, [100])
    assert index.refresh()
    assert (index.contains(100), here.contains(100), here.view.snapshot.number) == (True, False, 2)
    assert not here.refresh()


def test_the_newest_snapshot_that_is_good_is_found_and_why_the_newest_is_not(place: str, tmp_path: Path) -> None:
    storage = storage_at(place)
    assert newest_good_view(storage) == (newest_view(storage), None)
    add(tmp_path, 3, [100])
    add(tmp_path, 4, [101])
    for number in (2, 4):
        path = tmp_path / "index" / snapshot_path(number)
        path.write_bytes(path.read_bytes()[:50])
    view, why = newest_good_view(storage)
    assert view.snapshot.number == 3
    assert isinstance(why, DamagedMetadata)
    assert snapshot_path(4) in str(why)
    shutil.rmtree(tmp_path / "index/_shadow/segments")
    with pytest.raises(DamagedMetadata, match=snapshot_path(4)):
        newest_good_view(storage)


def test_it_is_known_whether_the_source_is_there_at_all(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    assert not index.source_is_gone()
    (tmp_path / "lake/dt=1/a.parquet").unlink()
    assert not index.source_is_gone()
    (tmp_path / "lake").rename(tmp_path / "away")
    assert index.source_is_gone()
    (tmp_path / "lake").mkdir()
    assert index.source_is_gone(), "a place where nothing is mounted"


def test_under_a_limit_all_matches_are_counted_and_no_other_row_is_read(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2] * 500, "text": [f"{i}" * 50 for i in range(1000)]})
    write_source(tmp_path / "lake", {"a.parquet": rows}, data_page_size=500, write_batch_size=10, use_dictionary=False)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index, all_, some = open_index(str(tmp_path / "index")), FetchStats(), FetchStats()
    [whole] = index.answer_many([1], stats=all_)
    [part] = index.answer_many([1], limit=3, stats=some)
    assert (part.rows, part.count, whole.count) == (whole.rows[:3], 500, 500)
    assert some.source.bytes * 10 < all_.source.bytes
    assert index.answer_many([3], limit=3)[0].count == 0


def test_an_answer_names_its_snapshot_and_its_cost(place: str) -> None:
    stats = FetchStats()
    open_index(place).fetch_many([1, 15, 99], stats=stats)
    assert (stats.snapshot, stats.source_files) == (2, 2)
    assert stats.index.nodes > 0
    assert stats.source.bytes > 0


def test_coverage_says_what_the_snapshot_does_not_cover(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    assert index.coverage().is_empty
    write_source(tmp_path / "lake", {"dt=3/a.parquet": pa.table({"k": [1]})})
    (tmp_path / "lake/dt=1/a.parquet").unlink()
    found = index.coverage()
    assert ([info.path for info in found.new], found.vanished) == (["dt=3/a.parquet"], ("dt=1/a.parquet",))
    shutil.rmtree(tmp_path / "lake")
    with pytest.raises(SourceNotFound, match="no data files there"):
        index.coverage()
    assert index.contains(5)  # the index alone needs no source


def test_rewritten_and_vanished_files_answer_with_their_new_rows_only(place: str, tmp_path: Path) -> None:
    (tmp_path / "lake/dt=2/a.parquet").unlink()
    add(tmp_path, 1, [3, 1000])
    index = open_index(place)
    assert [index.contains(key) for key in (3, 1000, 4, 15)] == [True, True, False, False]
    assert index.fetch(3) == [{"k": 3, "day": 1, "dt": "1"}]
    assert index.view.snapshot.partitions == {"dt=1": 2}
    assert open_index(place, snapshot=2).contains(15)


def test_a_vacuumed_index_file_leads_to_the_newest_snapshot(place: str, tmp_path: Path) -> None:
    stale, pinned = open_index(place), open_index(place, snapshot=2)
    old = list((tmp_path / "index/dt=1").iterdir())
    add(tmp_path, 1, [3, 1000])
    for path in old:
        path.unlink()
    assert stale.fetch(3) == [{"k": 3, "day": 1, "dt": "1"}]
    assert stale.view.snapshot.number == 3
    with pytest.raises(IndexFileGone, match=r"index/dt=1/.*\.btree\.avro: missing"):
        pinned.fetch(3)


def test_threads_that_meet_a_vacuumed_file_at_once_all_get_their_rows(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    old = list((tmp_path / "index/dt=1").iterdir())
    add(tmp_path, 1, [3])
    for path in old:
        path.unlink()
    answers = in_threads(8, lambda _: index.fetch(3))
    assert answers == [[{"k": 3, "day": 1, "dt": "1"}]] * 8


def test_an_index_made_anew_under_the_same_number_is_noticed(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    index.refresh()
    shutil.rmtree(place)
    shutil.rmtree(tmp_path / "lake")
    add(tmp_path, 8, [800], column="other", buckets=2)
    add(tmp_path, 9, [900], column="other", buckets=2)
    assert index.refresh()
    assert (index.spec.buckets, index.view.snapshot.number) == (2, 2)
    assert index.fetch(900) == [{"other": 900, "day": 9, "dt": "9"}]


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """The result or the error of the work in each thread."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, number) for number in range(count)]
    return [future.exception() or future.result() for future in futures]


@pytest.mark.slow
def test_threads_get_whole_answers_while_snapshots_are_swapped_in(tmp_path: Path) -> None:
    """Snapshot n holds days 1 to n, so an answer mixed from two snapshots would be noticed."""
    for day in (1, 2):
        add(tmp_path, day, [day, 777])
    place = str(tmp_path / "index")
    index = open_index(place, cache_bytes=100_000)  # so small that files are dropped while in use
    done = threading.Event()
    seen: set[int] = set()

    def read(number: int) -> int:
        answers = 0
        while not done.is_set() or answers < 20:
            stats = FetchStats()
            rows = index.fetch_many([777, 1, 12345], columns=["k", "dt"], stats=stats)
            assert [row["dt"] for row in rows[0]] == [str(day) for day in range(1, stats.snapshot + 1)]
            assert [len(each) for each in rows] == [stats.snapshot, 1, 0]
            seen.add(stats.snapshot)
            answers += 1
        return answers

    def write(number: int) -> int:
        try:
            for day in range(3, 9):
                add(tmp_path, day, [day, 777])
                assert index.refresh()
        finally:
            done.set()
        return 0

    outcomes = in_threads(5, lambda number: write(number) if number == 0 else read(number))
    assert [outcome for outcome in outcomes if not isinstance(outcome, int)] == []
    assert len(seen) > 1
    assert len(index.fetch(777)) == 8


# -- damage ------------------------------------------------------------------------------------------------------------


def metadata_files(place: str) -> list[Path]:
    """The files that opening an index reads. Bloom filters have their own tests."""
    shadow = Path(place) / "_shadow"
    return sorted(path for path in shadow.rglob("*") if path.is_file() and shadow / "filters" not in path.parents)


def outcome(place: str) -> object:
    """All answers of the index, or the error."""
    try:
        index = open_index(place)
        return [index.contains(key) for key in range(20)], index.view.columns
    except ShadowError as error:
        return error


NEEDED = ("spec.json", "00000000000000000002.json", ".avro")


def test_each_metadata_file_cut_or_flipped_is_named(place: str) -> None:
    sound = outcome(place)
    for path in metadata_files(place):
        data = path.read_bytes()
        needed = path.name.endswith(NEEDED)
        for at in range(0, len(data) - 1, stride(7)):  # the last byte is a line end, which may be missing
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            flipped = outcome(place)
            path.write_bytes(data[:at])
            for broken in (flipped, outcome(place)):
                if broken != sound:
                    assert isinstance(broken, DamagedMetadata)
                    assert re.match(rf"{re.escape(str(path))} at byte \d+: ", str(broken))
            assert needed == isinstance(outcome(place), DamagedMetadata)
        path.write_bytes(data)
    assert outcome(place) == sound


def test_each_metadata_file_that_is_missing_is_named(place: str) -> None:
    sound = outcome(place)
    for path in metadata_files(place):
        data = path.read_bytes()
        path.unlink()
        if path.name.endswith(("spec.json", ".avro")):
            assert isinstance(outcome(place), DamagedMetadata)
            assert str(outcome(place)).startswith(f"{path}: missing, though")
        path.write_bytes(data)
    assert outcome(place) == sound


def test_each_metadata_file_of_another_index_is_refused(place: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    add(other, 1, [1, 2], column="k2")
    add(other, 2, [3], column="k2")
    sound = outcome(place)
    strangers = metadata_files(str(other / "index"))
    for path, stranger in zip(metadata_files(place), strangers, strict=True):
        data = path.read_bytes()
        path.write_bytes(stranger.read_bytes())
        if path.name != "00000000000000000001.json":
            assert isinstance(outcome(place), DamagedMetadata), path
        path.write_bytes(data)
    assert outcome(place) == sound


def test_the_spec_of_another_index_is_named(place: str, tmp_path: Path) -> None:
    write_source(tmp_path / "other/lake", {"a.parquet": pa.table({"n": [1]})})
    index_source(tmp_path / "other/lake", tmp_path / "other/index", ["n"])
    shutil.copy(tmp_path / "other/index" / SPEC_PATH, Path(place) / SPEC_PATH)
    with pytest.raises(DamagedMetadata, match=r"index/_shadow/spec.json: not the spec that snapshot 2 was built with"):
        open_index(place)


def test_a_snapshot_of_another_index_of_the_same_spec_names_what_it_misses(place: str, tmp_path: Path) -> None:
    index_source(tmp_path / "lake", tmp_path / "second", ["k"])
    content = json_files.read(open_index(str(tmp_path / "second"))._storage, snapshot_path(1)) | {"snapshot": 3}
    (Path(place) / snapshot_path(3)).write_bytes(json_files.encode(content))
    with pytest.raises(DamagedMetadata, match=r"index/_shadow/segments/.*\.avro: missing, though the snapshot"):
        open_index(place)


def test_without_any_snapshot_there_is_no_index_yet(place: str) -> None:
    shutil.rmtree(Path(place) / "_shadow/snapshots")
    with pytest.raises(IndexNotFound, match="no snapshot yet, its first build has not ended"):
        open_index(place)


def test_damage_found_by_refresh_leaves_the_view_that_works(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    add(tmp_path, 3, [100])
    path = tmp_path / "index" / snapshot_path(3)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DamagedMetadata):
        index.refresh()
    assert (index.contains(5), index.view.snapshot.number) == (True, 2)


def test_a_question_that_cannot_be_asked_is_refused_before_anything_is_read(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    shutil.rmtree(tmp_path / "lake")
    index.check([1, "2", (3,), None], ["k", "dt"], {"dt": 1})
    for keys, columns, where, error in (
        (["x"], None, None, KeyTypeError),
        ([(1, 2)], None, None, UsageError),
        ([1], ["nothing"], None, UnknownColumn),
        ([1], None, {"day": 1}, UsageError),
    ):
        with pytest.raises(error):
            index.check(keys, columns, where)


ANSWERING: dict[str, Callable[..., Any]] = {
    "fetch_many": lambda index, keys, **options: index.fetch_many(keys, **options),
    "answer_many": lambda index, keys, **options: [one.rows for one in index.answer_many(keys, **options)],
    "answer_each": lambda index, keys, **options: [one.rows for one in index.answer_each(keys, **options)],
    "table_many": lambda index, keys, **options: [
        [row] for row in index.table_many(keys, **options).drop_columns("key_number").to_pylist()
    ],
}


@pytest.mark.parametrize("call", ANSWERING)
def test_arguments_that_are_no_list_or_number_are_refused_and_never_answered_with_nothing(
    place: str, call: str
) -> None:
    index, answer = open_index(place), ANSWERING[call]
    expected = answer(index, [1, 2])
    assert len(expected) == 2
    assert answer(index, (key for key in [1, 2])) == expected
    for keys in ("12", b"12", {"k": 1}, {1, 2}, None, 1, np.array(1), np.array([[1, 2]])):
        with pytest.raises(UsageError, match=r"keys: expected a list of keys, or a table or an array of them, found"):
            answer(index, keys)
    columns: list[Any] = ["k", b"k", (name for name in ["k"]), map(str, ["k"]), {"k"}, {"k": 1}, [1], 7]
    for names in columns:
        with pytest.raises(UsageError, match=r"columns: expected a list of column names, found"):
            answer(index, [1, 2], columns=names)
    for name in ("limit", "most_rows", "most_bytes"):
        for number in (-1, 1.5, "1", True):
            if call != "fetch_many":
                with pytest.raises(UsageError, match=f"{name}: expected a whole number from 0, found {number!r}"):
                    answer(index, [1, 2], **{name: number})
    assert answer(index, [1, 2], columns=("k",)) == [[{"k": key}] for key in (1, 2)]


def test_an_index_is_opened_with_the_arguments_that_it_has(place: str) -> None:
    for options, message in (
        ({"newest": True}, r"newest: .*/lake has no versions, as a Delta or Iceberg table has; run gnomon build"),
        ({"snapshot": "1"}, r"snapshot: expected a whole number from 0, found '1'"),
        ({"cache_folder": ""}, r"cache_folder: expected a folder on a local disk .*, found ''"),
        ({"cache_folder": "s3://a/b"}, r"cache_folder: expected a folder on a local disk .*, found 's3://a/b'"),
        ({"cache_folder": "c", "cache_folder_bytes": -1}, r"cache_folder_bytes: expected a number of bytes, 0 or more"),
    ):
        with pytest.raises(UsageError, match=message):
            open_index(place, **options)
    for wrong in (None, 7, b"/index"):
        with pytest.raises(UsageError, match=r"a place: expected a path or URL"):
            open_index(wrong)


def test_a_copy_of_an_index_answers_from_the_same_snapshot(place: str, tmp_path: Path) -> None:
    index = shadow.open_index(place, cache_bytes=1 << 20, cache_folder=tmp_path / "cache")
    pinned = shadow.open_index(place, snapshot=1)
    sent, sent_pinned = pickle.dumps(index), pickle.dumps(pinned)
    add(tmp_path, 3, list(range(20, 30)))
    for copied in (pickle.loads(sent), copy.deepcopy(index), copy.copy(index)):
        assert (copied.snapshot, len(copied), copied.fetch(15)) == (2, 20, index.fetch(15))
        assert not copied.contains(25)
        assert copied.refresh()
        assert copied.contains(25)
    for copied in (pickle.loads(sent_pinned), copy.copy(pinned)):
        assert (type(copied), copied.snapshot, copied.refresh()) == (shadow.Index, 1, False)


@pytest.mark.process
def test_an_index_goes_to_the_processes_of_a_pool(place: str) -> None:
    index = shadow.open_index(place)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(index.fetch, [5, 15, 25])) == [index.fetch(5), index.fetch(15), []]


def test_a_copy_of_an_index_whose_snapshot_a_vacuum_removed_has_the_newest_unless_it_was_asked_for(
    place: str, tmp_path: Path
) -> None:
    sent, pinned = pickle.dumps(shadow.open_index(place)), pickle.dumps(shadow.open_index(place, snapshot=2))
    add(tmp_path, 3, list(range(20, 30)))
    (Path(place) / snapshot_path(2)).unlink()
    assert pickle.loads(sent).contains(25)
    with pytest.raises(SnapshotNotFound):
        pickle.loads(pinned)


def test_an_index_tells_what_it_has_and_no_more(place: str, tmp_path: Path) -> None:
    index = shadow.open_index(place)
    assert (index.location, index.snapshot, index.keys, index.columns) == (place, 2, ["k"], ["k", "day", "dt"])
    assert (len(index), bool(index), os.fspath(index)) == (20, True, place)
    assert {name for name in dir(index) if not name.startswith("_")} == {
        *("answer_each", "answer_many", "columns", "contains", "count", "entry_tables", "fetch", "fetch_many", "get"),
        *("keys", "location", "lookup", "positions", "range", "range_pages", "range_tables", "refresh", "snapshot"),
        *("statistics", "table_many"),
    }
    job = OpenIndex.of(index)
    assert (OpenIndex.of(job), job.view, job.here()._lookup) == (job, index._view, index._lookup)


IN_COLUMNS: dict[str, Callable[[list[int]], Any]] = {
    "Arrow": pa.array,
    "Arrow, in chunks": lambda keys: pa.chunked_array([keys[:1], keys[1:]]),
    "Arrow, a dictionary of texts": lambda keys: pa.array(map(str, keys)).dictionary_encode(),
    "Arrow, floats": lambda keys: pa.array(keys, pa.float64()),
    "Arrow, a table": lambda keys: pa.table({"other": keys, "k": keys}),
    "Arrow, a batch": lambda keys: pa.record_batch({"k": keys}),
    "Arrow, a reader": lambda keys: pa.table({"k": keys}).to_reader(1),
    "numpy": np.array,
    "numpy, objects": lambda keys: np.array([keys[0], str(keys[1]), *keys[2:]], object),
    "pandas": pd.Series,
    "pandas, texts": lambda keys: pd.Series(map(str, keys)),
    "pandas, an index": pd.Index,
    "pandas, a frame": lambda keys: pd.DataFrame({"k": keys}, index=[f"row {i}" for i in range(len(keys))]),
    "Polars": polars.Series,
    "Polars, a frame": lambda keys: polars.DataFrame({"k": keys}),
    "a generator": lambda keys: (key for key in keys),
}


@pytest.mark.parametrize("form", IN_COLUMNS)
@pytest.mark.parametrize("call", ANSWERING)
def test_keys_may_come_in_columns(place: str, call: str, form: str) -> None:
    index, answer, keys = open_index(place), ANSWERING[call], [3, 17, 99, 3]
    assert answer(index, IN_COLUMNS[form](keys)) == answer(index, keys)


def test_keys_of_several_columns_come_in_a_table_by_name(tmp_path: Path) -> None:
    days = [dt.date(2026, 1, day) for day in (1, 2, 3)]
    moments = [dt.datetime(2026, 1, day, 12, tzinfo=dt.UTC) for day in (1, 2, 3)]
    rows = pa.table({"day": days, "at": pa.array(moments, pa.timestamp("ns", "UTC")), "n": [1, 2, 3]})
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": rows for p in (1, 2)})
    index_source(tmp_path / "lake", tmp_path / "index", ["at", "day", "p"])
    index = shadow.open_index(tmp_path / "index")
    listed = index.fetch_many([(moments[0], days[0], 2), (moments[2], days[2], 1), (moments[1], days[0], 1)])
    assert [len(found) for found in listed] == [1, 1, 0]
    asked = pa.table({"p": [2, 1, 1], "day": [days[0], days[2], days[0]], "at": [moments[0], moments[2], moments[1]]})
    for given in (asked, asked.to_pandas(), polars.from_arrow(asked), pa.array(asked.to_pylist())):
        assert index.fetch_many(given) == listed
    one = (pa.scalar(moments[0]), np.datetime64("2026-01-01"), pa.scalar(2))
    assert index.fetch(one) == listed[0]
    for given, message in (
        (asked.drop_columns(["day"]), r"keys: the key column day is missing; it has p, at"),
        (pa.array([1, 2]), r"keys: expected a table with the columns at, day, p, found an array of int64"),
    ):
        with pytest.raises(UsageError, match=message):
            index.fetch_many(given)


def test_a_value_that_the_type_of_a_key_does_not_hold_is_refused_in_columns_as_in_a_list(place: str) -> None:
    for keys in ([1.5], pa.array([1.5]), np.array([1.5]), pd.Series([1.5]), [pa.scalar(1.5)]):
        with pytest.raises((UsageError, KeyTypeError), match=r"k.*1\.5"):
            open_index(place).fetch_many(keys)

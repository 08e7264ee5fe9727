"""An answer stays within the caller's limits of rows and bytes, counts all matches, and fails key by key."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.jobs.build import write_btree
from gnomon.shadow import Answer, StalePointer, UnknownColumn
from gnomon.shadow.errors import BeyondBound, DamagedIndexFile, OutOfTime
from gnomon.shadow.fetch.results import answers
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.storage.waiting import within
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

WIDTH = 1000  # bytes of a text


def lake(folder: Path, rows: dict[int, int], flat: bool = False, files: int = 1) -> OpenIndex:
    """An index of keys, each with the given number of rows in each of `files` files."""
    keys = [key for key, count in rows.items() for _ in range(count)]
    texts = [f"{key}.{n} ".ljust(WIDTH, "x") for n, key in enumerate(keys)]
    table = pa.table({"k": keys, "n": range(len(keys)), "text": texts})
    write_source(folder / "lake", {f"dt={i}/a.parquet": table for i in range(files)}, use_dictionary=False)
    index_source(folder / "lake", folder / "index", ["k"], buckets=2, flat=flat)
    return open_index(str(folder / "index"))


def said(answers: Sequence[Answer | Exception]) -> list[object]:
    """The number of rows of each key, or the unit of the exceeded limit."""
    return [one.unit if isinstance(one, BeyondBound) else len(one.rows) for one in answers if not _other(one)]


def _other(one: object) -> bool:
    return isinstance(one, Exception) and not isinstance(one, BeyondBound)


def test_more_rows_than_an_answer_takes_are_refused_with_their_number(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 5, 2: 30})
    assert len(index.answer_many([2], most_rows=30)[0].rows) == 30
    with pytest.raises(BeyondBound, match=r"the key has 30 rows; an answer takes 29 at most") as caught:
        index.answer_many([2], most_rows=29)
    assert (caught.value.unit, caught.value.most, caught.value.count) == ("rows", 29, 30)
    with pytest.raises(BeyondBound, match=r"the key has 30 rows, and the keys before it 5; an answer takes 34 at most"):
        index.answer_many([1, 2], most_rows=34)
    [answer] = index.answer_many([2], limit=3, most_rows=3)
    assert (len(answer.rows), answer.count) == (3, 30)


def test_a_key_with_too_many_rows_leaves_room_for_the_others(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 5, 2: 30, 3: 5, 4: 5})
    answers = index.answer_each([1, 2, 3, 99, 4], most_rows=12)
    assert said(answers) == [5, "rows", 5, 0, "rows"]
    assert said(index.answer_each([2, 2, 1], limit=2, most_rows=5)) == [2, 2, "rows"]


@pytest.mark.parametrize("files", [1, 3])
def test_a_key_with_too_many_bytes_leaves_room_for_the_others(tmp_path: Path, files: int) -> None:
    index = lake(tmp_path, {1: 5, 2: 200, 3: 5, 4: 5}, files=files)
    most = 12 * files * (WIDTH + 30)
    assert said(index.answer_each([1, 2, 3], most_bytes=most)) == [5 * files, "bytes", 5 * files]
    assert said(index.answer_each([2, 1, 3, 99], most_bytes=most)) == ["bytes", 5 * files, 5 * files, 0]
    full = index.answer_each([1, 3, 4, 99], most_bytes=most)
    assert said(full)[:3] == [5 * files, 5 * files, "bytes"]
    assert "ask for fewer keys at a time" in str(full[2])
    assert said(index.answer_each([2], ["n"], most_bytes=most)) == [200 * files], "only what is asked for counts"
    with pytest.raises(
        BeyondBound, match=rf"the key has {200 * files} rows, \d+ of which take [\d,]+ bytes; an answer"
    ):
        index.answer_many([2], most_bytes=most)


def test_bounds_do_not_change_what_is_answered(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 5, 2: 70, 3: 6}, files=2)
    plain = index.answer_many([3, 99, 2, 1, 2], where=None)
    assert index.answer_each([3, 99, 2, 1, 2], most_rows=1000, most_bytes=1 << 30) == plain
    assert index.answer_many([2, 3], limit=4, most_rows=8, most_bytes=1 << 20) == [
        Answer(index.fetch(2)[:4], 140),
        Answer(index.fetch(3)[:4], 12),
    ]


def test_of_many_keys_asked_together_none_is_left_out_whatever_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = lake(tmp_path, {1: 5, 2: 70})

    def each(*given: Any) -> Any:
        return answers(*given[:-1], replace(given[-1], each=True))  # as in answer_each

    monkeypatch.setattr("gnomon.shadow.index.answers", each)
    with pytest.raises(BeyondBound, match="the key has 70 rows"):
        index.answer_many([1, 2], most_rows=30)


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_matches_are_counted_in_arrow_as_one_by_one(
    tmp_path: Path, flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = lake(tmp_path, {1: 500, 2: 3, 3: 400}, flat=flat, files=3)
    write_source(tmp_path / "lake", {"dt=1/a.parquet": pa.table({"k": [1, 3], "n": [7, 8], "text": ["a", "b"]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])  # the file before is dead
    index.refresh()
    questions = [[1], [1, 2, 3, 99], [1, 1]]
    for where in (None, {"dt": "1"}, {"dt": "2"}):
        for limit in (1, 450, 600):
            for keys in questions:
                monkeypatch.undo()
                expected = index.answer_many(keys, ["k", "n", "dt"], where, limit, most_rows=10_000)
                monkeypatch.setattr("gnomon.shadow.lookup.point.MOST_OBJECTS", 50)
                assert index.answer_many(keys, ["k", "n", "dt"], where, limit, most_rows=10_000) == expected
    assert index.answer_many([1], limit=1, most_rows=1)[0].count == 1001


@pytest.mark.slow
def test_a_key_of_very_many_rows_is_refused_in_little_memory(tmp_path: Path) -> None:
    rows = 100_000
    write_btree(
        pa.table({"k": [1] * rows, "v": pa.array(range(rows), pa.int64())}), tmp_path / "index", ["k"], buckets=1
    )
    index = open_index(str(tmp_path / "index"))
    tracemalloc.start()
    try:
        with pytest.raises(BeyondBound, match=r"the key has 100,000 rows; an answer takes 10 at most"):
            index.answer_many([1], most_rows=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 250 * rows, "an object for each entry takes twice as much"


def test_folders_of_values_keep_the_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [1] * 100 + [2] * 2 + [3] * 2
    table = pa.table({"k": keys, "v": [f"{n} ".ljust(WIDTH) for n in range(len(keys))]})
    write_btree(table, tmp_path / "index", ["k"], buckets=2)
    for objects in (50_000, 10):
        monkeypatch.setattr("gnomon.shadow.lookup.point.MOST_OBJECTS", objects)
        index = open_index(str(tmp_path / "index"))
        assert said(index.answer_each([2, 1, 3], most_rows=10)) == [2, "rows", 2]
        assert said(index.answer_each([2, 1, 3], most_bytes=10 * WIDTH)) == [2, "bytes", 2]
        assert said(index.answer_each([2, 3], most_bytes=3 * WIDTH)) == [2, "bytes"]
        with pytest.raises(BeyondBound, match="the key has 100 rows"):
            index.get(1, most_bytes=10 * WIDTH)
        assert len(index.get(1, limit=3, most_rows=3)) == 3
        assert index.answer_many([1], limit=3, most_bytes=10 * WIDTH)[0].count == 100


def test_a_file_that_fails_fails_its_keys_and_no_others(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 2}, files=1)
    write_source(tmp_path / "lake", {"dt=5/b.parquet": pa.table({"k": [2, 3], "n": [0, 0], "text": ["", ""]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index.refresh()
    (tmp_path / "lake/dt=5/b.parquet").write_bytes(b"changed")
    answers = index.answer_each([2, 1, 99, 3])
    assert [type(one) for one in answers] == [StalePointer, Answer, Answer, StalePointer]
    assert [len(one.rows) for one in answers if isinstance(one, Answer)] == [2, 0]
    with pytest.raises(StalePointer):
        index.answer_many([1, 2])
    with pytest.raises(UnknownColumn):
        index.answer_each([2], ["nothing"])


def test_an_index_file_that_fails_fails_its_keys_and_no_others(tmp_path: Path) -> None:
    index = lake(tmp_path, dict.fromkeys(range(20), 1))
    path = sorted(Path(index.location).glob("dt=0/*.avro"))[0]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))
    answers = open_index(index.location).answer_each(list(range(20)))
    failed = [one for one in answers if isinstance(one, DamagedIndexFile)]
    good = [one for one in answers if isinstance(one, Answer)]
    assert failed
    assert good
    assert len(failed) + len(good) == 20
    assert all(len(one.rows) == 1 for one in good)


def test_a_deadline_ends_every_kind_of_answer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    index = lake(tmp_path / "rows", {1: 2})
    write_btree(pa.table({"k": [1], "v": [2]}), tmp_path / "values", ["k"], buckets=2)
    values = open_index(str(tmp_path / "values"))
    for one in (index, values):
        with within(0):
            for ask in (one.fetch, one.contains, one.get, lambda key, one=one: one.table_many([key])):
                with pytest.raises(OutOfTime, match="waited for"):
                    ask(1)
            with pytest.raises(OutOfTime):
                one.answer_each([1])
        assert one.contains(1)
        assert one.fetch(1)


def test_what_is_held_in_memory_is_told(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 2})
    assert {name: counts[:2] for name, counts in index.cache_counts().items()} == {
        "index_files": (0, 0), "leaves": (0, 0), "filters": (0, 0), "source_files": (0, 0), "source_pages": (0, 0),
    }  # fmt: skip
    for _ in range(3):
        index.fetch(1)
    counts = index.cache_counts()
    assert (counts["index_files"].hits, counts["index_files"].misses) == (2, 1)
    assert (counts["source_files"].hits, counts["source_files"].misses) == (2, 1)
    assert counts["index_files"].bytes > 0


def test_after_a_refresh_no_cache_answers_what_was_before(tmp_path: Path) -> None:
    index = lake(tmp_path, {1: 2, 2: 1})
    before = index.fetch(1)
    assert before == index.fetch(1)
    write_source(tmp_path / "lake", {"dt=0/a.parquet": pa.table({"k": [2, 1], "n": [7, 8], "text": ["new", "newer"]})})
    with pytest.raises(StalePointer):
        index.fetch(1)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    with pytest.raises(StalePointer):
        index.fetch(1)
    assert index.refresh()
    assert index.fetch(1) == [{"k": 1, "n": 8, "text": "newer", "dt": "0"}]
    assert index.fetch(2) == [{"k": 2, "n": 7, "text": "new", "dt": "0"}]


def test_rows_that_are_read_in_shares_come_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = lake(tmp_path, dict.fromkeys(range(40), 3), files=2)
    keys = [*range(39, -1, -2), *range(0, 40, 2)]
    expected, tables = index.answer_many(keys), index.table_many(keys)
    monkeypatch.setattr("gnomon.shadow.fetch.results.SHARE_BYTES", 5000)
    assert index.answer_many(keys, most_bytes=1 << 30) == expected
    assert index.table_many(keys, most_bytes=1 << 30).equals(tables)

"""Rows of Delta and Iceberg tables deleted and replaced by key: one commit of the table, through deaths and races."""

import datetime as dt
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import gnomon
from gnomon.jobs.build import build
from gnomon.jobs.dedup import ChangeResult, append_new, delete, read_batch, upsert
from gnomon.jobs.dedup import row_search as search_module
from gnomon.shadow import UsageError
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.dedup.lake_tables import ROWS, DeltaLake, IcebergLake, IcebergUpgraded, Lake, row, rows, with_column
from tests.jobs.dedup.test_append_lake import die_after
from tests.opened import open_index
from tests.profiles import cases

VECTORS = {"delta.enableDeletionVectors": "true"}
LOCAL_KINDS = ["delta vectors", "delta rewritten", "iceberg positions", "iceberg rewritten"]
KINDS = [
    *LOCAL_KINDS,
    pytest.param("iceberg vectors", marks=pytest.mark.store),  # pyiceberg writes version 3 through REST catalogs alone
]
REWRITTEN = {f"write.{one}.mode": "copy-on-write" for one in ("delete", "update", "merge")}
FIRST = {n: row(n) for n in range(40) if n not in (7, 8)}

Model = dict[int, dict[str, Any]]


def made(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table whose rows are deleted in one way, in no need of a server."""
    if kind.startswith("delta"):
        return DeltaLake(root, configuration=VECTORS if kind == "delta vectors" else None)
    return IcebergLake(root, monkeypatch, properties=REWRITTEN if kind == "iceberg rewritten" else None)


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "iceberg vectors":
        return IcebergUpgraded(tmp_path, monkeypatch, request.getfixturevalue("iceberg_rest"))
    return made(request.param, tmp_path, monkeypatch)


@pytest.fixture
def index(lake: Lake, tmp_path: Path) -> str:
    build(None, lake.name, str(tmp_path / "index"), ["id"], buckets=2)
    return str(tmp_path / "index")


def changed(numbers: range | list[int], part: str = "changed") -> pa.Table:
    """Rows with these keys that differ from those that are there."""
    return pa.Table.from_pylist([{**row(number), "part": part} for number in numbers], ROWS)


def after(*tables: pa.Table, without: Any = (), of: Model = FIRST) -> Model:
    """The rows of a table after upserts of batches and deletes."""
    model = dict(of)
    for table in tables:
        model |= {one["id"]: {**one, "info": row(one["id"])["info"]} for one in table.to_pylist()}
    return {number: one for number, one in model.items() if number not in without}


def check(lake: Lake, index: str, model: Model) -> None:
    """The table's own reader and the index have exactly these rows, once each."""
    expected = [model[number] for number in sorted(model)]
    assert [{name: one[name] for name in ROWS.names} for one in lake.rows()] == expected
    assert by_polars(lake) == [one["id"] for one in expected]
    answers = open_index(index).fetch_many(range(max(model) + 5))
    found = [[{name: one[name] for name in ROWS.names} for one in answer] for answer in answers]
    assert [one for answer in found for one in answer] == expected
    assert verify(storage_at(index)).faults == []


def by_polars(lake: Lake) -> list[int]:
    """The keys by Polars, which reads deletion vectors and position deletes itself; pyiceberg reads position deletes of
    several data files for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        if isinstance(lake, DeltaLake):
            found = polars.scan_delta(lake.root, storage_options=lake.options)
        else:
            assert isinstance(lake, IcebergLake)
            found = polars.scan_iceberg(lake.table())
        return found.select("id").collect()["id"].sort().to_list()


def commits(lake: Lake) -> int:
    if isinstance(lake, DeltaLake):
        return lake.table().version()
    assert isinstance(lake, IcebergLake)
    return len(lake.table().snapshots())


def nothing_is_left(lake: Lake) -> bool:
    assert isinstance(lake, DeltaLake | IcebergLake)
    return not (Path(lake.root) / "_gnomon").exists()


# -- deletes -----------------------------------------------------------------------------------------------------------


def test_a_delete_removes_the_rows_of_its_keys_by_one_commit(lake: Lake, index: str) -> None:
    before = commits(lake)
    result = delete(None, index, [3, 4, 7, 39, 1000])
    assert (result.rows_read, result.deleted_keys, result.rows_deleted) == (5, 3, 3)
    assert commits(lake) == before + 1
    check(lake, index, after(without=(3, 4, 39)))
    assert delete(None, index, [3, 4]).rows_deleted == 0
    assert delete(None, index, pa.table({"id": ["5", "6"]})).rows_deleted == 2
    check(lake, index, after(without=(3, 4, 5, 6, 39)))
    assert nothing_is_left(lake)


def test_keys_and_batches_come_in_any_form_of_columns_and_an_open_index_for_its_place(lake: Lake, index: str) -> None:
    opened, given = gnomon.open_index(index), rows(50, 52)
    for number, batch in enumerate(
        [given.to_pandas(types_mapper=pd.ArrowDtype), polars.from_arrow(given), given.to_reader(), given]
    ):
        assert append_new(None, opened, batch, f"new-{number}").appended == 2 * (number == 0)
    assert upsert(None, opened, polars.from_arrow(rows(50, 53)), "changed").rows_deleted == 2
    table = pa.table({"id": ["6"], "other": [None]})
    columns = [np.array([2]), pd.Series([3]), polars.DataFrame({"id": [4]}), (key for key in [5]), table.to_reader()]
    for keys in columns:
        assert delete(None, opened, keys).rows_deleted == 1
    check(lake, index, after(rows(50, 53), without=(2, 3, 4, 5, 6)))
    for wrong in ("7", {"id": 7}, 7):
        with pytest.raises(UsageError, match=r"keys: expected a list of keys, or a table or an array of them, found"):
            delete(None, opened, wrong)
    with pytest.raises(UsageError, match=r"batch: expected a table of Arrow, pandas or Polars, .*, found list"):
        append_new(None, opened, [1], "wrong")
    with pytest.raises(UsageError, match=r"batch: Expected bytes, got a 'int' object; Conversion failed for column id"):
        append_new(None, opened, pd.DataFrame({"id": [b"1", 2]}), "wrong")


def test_a_delete_with_a_name_is_done_once(lake: Lake, index: str) -> None:
    assert delete(None, index, [3, 4], "gdpr-17").rows_deleted == 2
    lake.append(rows(3, 5))
    again = delete(None, index, [3, 4], "gdpr-17")
    assert (again.known_batch, again.rows_deleted) == (True, None)
    with pytest.raises(UsageError, match=r"'gdpr-17' was appended by snapshot .* with other rows"):
        delete(None, index, [3], "gdpr-17")
    assert delete(None, index, [3]).rows_deleted == 1
    check(lake, index, after(without=(3,)))


def test_a_dry_run_counts_and_writes_nothing(lake: Lake, index: str) -> None:
    lake.append(rows(50, 52))
    before, files = commits(lake), len(list(Path(index).rglob("*")))
    result = delete(None, index, [3, 50, 1000], dry_run=True)
    assert (result.rows_deleted, result.files_changed, result.deleted_keys) == (2, 2, 2)
    assert (commits(lake), len(list(Path(index).rglob("*")))) == (before, files)
    assert nothing_is_left(lake)


def test_rows_that_the_index_does_not_cover_yet_are_deleted(lake: Lake, index: str) -> None:
    lake.append(rows(50, 55))
    lake.append(rows(3, 4))
    assert delete(None, index, [3, 51]).rows_deleted == 3
    check(lake, index, after(rows(50, 55), without=(3, 51)))


def test_all_rows_of_a_table_can_be_deleted(lake: Lake, index: str) -> None:
    assert delete(None, index, list(range(40))).rows_deleted == 38
    assert lake.rows() == []
    assert upsert(None, index, rows(1, 3), "anew").written == 2
    check(lake, index, after(without=range(40), of={1: row(1), 2: row(2)}) or {1: row(1), 2: row(2)})


def test_older_versions_keep_deleted_rows(lake: Lake, index: str) -> None:
    before = open_index(index).view.snapshot
    delete(None, index, [3])
    assert before.table is not None
    older = open_index(index, table_version=before.table.version)
    assert [one["id"] for one in older.fetch(3)] == [3]
    if isinstance(lake, IcebergLake):
        assert 3 in lake.table().scan(snapshot_id=int(before.table.version)).to_arrow()["id"].to_pylist()


def test_a_null_in_a_key_to_delete_is_refused(lake: Lake, index: str) -> None:
    with pytest.raises(UsageError, match="keys: 1 nulls in id; leave these keys out"):
        delete(None, index, pa.table({"id": pa.array([1, None], pa.int64())}))
    check(lake, index, FIRST)


# -- upserts -----------------------------------------------------------------------------------------------------------


def test_an_upsert_replaces_and_adds_rows_by_one_commit(lake: Lake, index: str) -> None:
    before, batch = commits(lake), changed(range(35, 45))
    result = upsert(None, index, batch, "nightly")
    assert (result.written, result.updated, result.rows_deleted) == (10, 5, 5)
    assert commits(lake) == before + 1
    check(lake, index, after(batch))
    again = upsert(None, index, batch, "nightly")
    assert (again.known_batch, again.written) == (True, 0)
    with pytest.raises(UsageError, match=r"'nightly' was appended by snapshot .* with other rows"):
        upsert(None, index, changed(range(35, 46)), "nightly")
    assert append_new(None, index, rows(30, 50), "others").appended == 5
    check(lake, index, after(batch, rows(45, 50)))
    assert nothing_is_left(lake)


def test_update_only_leaves_new_keys_out(lake: Lake, index: str) -> None:
    result = upsert(None, index, changed(range(35, 45)), "nightly", update_only=True)
    assert (result.written, result.updated, result.absent) == (5, 5, 5)
    check(lake, index, after(changed(range(35, 40))))


def test_a_change_feed_inserts_updates_and_deletes_in_one_commit(lake: Lake, index: str) -> None:
    before = commits(lake)
    feed = pa.concat_tables([changed([1, 50, 2, 3]), changed([2, 60])])
    feed = feed.append_column("op", pa.array(["u", "c", "u", "D", "delete", "d"]))
    feed = feed.append_column("seq", pa.array([1, 1, 1, 1, 2, 1]))
    with pytest.raises(UsageError, match="seq is not a column of the source"):
        upsert(None, index, feed, "feed", order_by=["seq"], delete_where="op")
    feed = feed.drop_columns("seq")
    with pytest.raises(UsageError, match=r"two rows have the key id 2, and nothing says which is the last"):
        upsert(None, index, feed, "feed", delete_where="op")
    result = upsert(None, index, feed, "feed", order_by=["op desc"], delete_where="op")  # delete < u
    assert (result.written, result.deleting, result.duplicates_in_batch) == (2, 3, 1)
    assert (result.updated, result.deleted_keys, result.rows_deleted) == (1, 2, 3)
    assert commits(lake) == before + 1
    check(lake, index, after(changed([1, 50]), without=(2, 3)))


def test_rows_with_null_in_a_column_can_delete(lake: Lake, index: str) -> None:
    batch = with_column(changed([1, 2, 50]), "day", [None, row(2)["day"], None])
    result = upsert(None, index, batch, "feed", delete_where_null="day")
    assert (result.written, result.deleting, result.rows_deleted) == (1, 2, 2)
    check(lake, index, after(changed([2]), without=(1,)))


def test_a_mark_in_a_column_of_the_table_is_refused(lake: Lake, index: str) -> None:
    with pytest.raises(UsageError, match="delete_where: part is a column of the table"):
        upsert(None, index, changed([1]), "b", delete_where="part")
    assert nothing_is_left(lake)


def test_marks_that_are_neither_are_refused(lake: Lake, index: str) -> None:
    feed = changed([1]).append_column("op", pa.array(["update_preimage"]))
    with pytest.raises(UsageError, match=r"batch: column op: expected true, false, or one of d, .*found 'update_pre"):
        upsert(None, index, feed, "feed", delete_where="op")
    with pytest.raises(UsageError, match="no column gone, which marks deletes"):
        upsert(None, index, changed([1]), "feed", delete_where="gone")
    check(lake, index, FIRST)


def test_the_last_row_of_a_key_counts(lake: Lake, index: str) -> None:
    batch = pa.concat_tables([changed([1, 2], "x"), changed([1, 2], "z"), changed([1, 2], "y")])
    result = upsert(None, index, batch, "nightly", order_by=["part"])
    assert (result.written, result.duplicates_in_batch) == (2, 4)
    check(lake, index, after(changed([1, 2], "z")))
    upsert(None, index, batch, "other order", order_by=["part desc"])
    check(lake, index, after(changed([1, 2], "x")))


def test_a_key_with_several_rows_is_refused_unless_all_are_replaced(lake: Lake, index: str) -> None:
    lake.append(rows(5, 7))
    message = r"2 keys of the batch have several rows, such as id 5 with 2; --all .*; nothing was changed"
    with pytest.raises(UsageError, match=message):
        upsert(None, index, changed(range(4, 8)), "nightly")
    result = upsert(None, index, changed(range(4, 8)), "nightly", replace_all=True)
    assert (result.written, result.updated, result.rows_deleted) == (4, 3, 5)
    check(lake, index, after(changed(range(4, 8))))


def run_ends(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


ENCODINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "plain": lambda values: values,
    "dictionary": lambda values: values.dictionary_encode(),
    "run ends": run_ends,
    "large": lambda values: values.cast(pa.large_string()),
    "dictionary of large": lambda values: values.cast(pa.large_string()).dictionary_encode(),
    "run ends of large": lambda values: run_ends(values.cast(pa.large_string())),
    "views": lambda values: values.cast(pa.string_view()),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_is_taken_in_each_encoding_of_arrow(tmp_path: Path, encoding: str) -> None:
    """As key, partition, value and mark, of an Arrow table and of a Parquet file."""
    given = pa.table({"k": ["a", "b", "c"], "part": ["x", "y", "z"], "v": ["1", "2", "3"]})
    write_deltalake(str(tmp_path / "table"), given, partition_by=["part"])
    index = str(tmp_path / "index")
    build(None, f"delta:{tmp_path}/table", index, ["k"])
    encode = ENCODINGS[encoding]
    texts = {"k": ["b", "c", "d"], "part": ["z", "x", "new"], "v": ["4", "5", "6"], "op": ["u", "delete", "i"]}
    batch = pa.table({name: encode(pa.array(values)) for name, values in texts.items()})
    result = upsert(None, index, batch, "table", delete_where="op")
    assert (result.written, result.deleting, result.rows_deleted) == (2, 1, 2)
    if not encoding.startswith("run ends"):  # which Parquet has not
        pq.write_table(batch, tmp_path / "batch.parquet")
        again = upsert(None, index, read_batch(None, tmp_path / "batch.parquet", index), "file", delete_where="op")
        assert (again.written, again.rows_deleted) == (2, 2)
    assert delete(None, index, pa.table({"k": encode(pa.array(["a"]))})).rows_deleted == 1
    found = polars.read_delta(str(tmp_path / "table")).sort("k").rows()
    assert found == [("b", "z", "4"), ("d", "new", "6")]


def test_a_column_that_is_there_twice_is_refused(lake: Lake, index: str) -> None:
    batch = changed([1])
    for name in ("id", "part"):
        with pytest.raises(UsageError, match=f"{name} is there more than once; nothing was written"):
            upsert(None, index, batch.append_column(name, batch[name]), "nightly")
    marked = batch.append_column("op", pa.array(["i"])).append_column("op", pa.array(["i"]))
    with pytest.raises(UsageError, match="op, which marks deletes, is there more than once"):
        upsert(None, index, marked, "nightly", delete_where="op")
    with pytest.raises(UsageError, match="the key column id is there more than once"):
        delete(None, index, pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]))
    check(lake, index, FIRST)


SHOWN = [
    (pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)]), '"2026-01-02T03:04:05.000006Z"'),
    (pa.array([dt.datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("us")), '"2026-01-02T03:04:05"'),
    (pa.array([253402300800000001], pa.timestamp("us")), '"+10000-01-01T00:00:00.000001"'),  # not a time of Python
    (pa.array([dt.date(2026, 1, 2)]), '"2026-01-02"'),
    (pa.array([Decimal("-1.50")], pa.decimal128(9, 2)), '"-1.50"'),
    (pa.array([-0.0]), "0.0"),
    (pa.array([b"\xff"]), '"/w=="'),
    (pa.array(["é"]), '"é"'),
]


@pytest.mark.parametrize(("key", "text"), SHOWN)
def test_a_refusal_names_the_key_as_answers_show_it(tmp_path: Path, key: pa.Array, text: str) -> None:
    table = pa.table({"k": key, "v": pa.array([1])})
    write_deltalake(str(tmp_path / "table"), pa.concat_tables([table, table]))
    index = str(tmp_path / "index")
    build(None, f"delta:{tmp_path}/table", index, ["k"])
    with pytest.raises(UsageError, match=re.escape(f"1 keys of the batch have several rows, such as k {text} with 2")):
        upsert(None, index, table, "nightly")
    with pytest.raises(UsageError, match=re.escape(f"two rows have the key k {text}, and nothing says")):
        upsert(None, index, pa.concat_tables([table, table]), "nightly")


def test_null_keys_of_a_batch_are_refused_left_out_or_values(lake: Lake, index: str) -> None:
    batch = with_column(changed([1, 2]), "id", [1, None])
    with pytest.raises(UsageError, match="a row has a null in its key"):
        upsert(None, index, batch, "refused")
    assert upsert(None, index, batch, "left out", null_keys="reject").rejected == 1
    check(lake, index, after(changed([1])))
    for _ in range(2):
        upsert(None, index, batch, f"value {_}", null_keys="dedup")
    assert sum(one["id"] is None for one in lake.rows()) == 1


# -- deaths, races, and what others do meanwhile -----------------------------------------------------------------------


def meanwhile(lake: Lake) -> dict[str, tuple[Callable[[], None], Callable[[Model], Model]]]:
    """Commits of other programs, each with the rows of the table after it."""
    return {
        "nothing": (lambda: None, lambda model: model),
        "append": (lambda: lake.append(rows(100, 105)), lambda model: after(rows(100, 105), of=model)),
        "same key": (lambda: lake.append(rows(38, 39)), lambda model: model),
        "delete": (lambda: lake.delete(3), lambda model: after(without=(3,), of=model)),
        "delete changed": (lambda: lake.delete(38), lambda model: model),
        "compact": (lake.compact, lambda model: model),
        "widen": (lake.widen, lambda model: model),
    }


OTHERS = ["append", "same key", "delete", "delete changed", "compact", "widen"]


@pytest.mark.parametrize("other", OTHERS)
def test_what_others_commit_between_look_up_and_commit_is_seen(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    change, effect = meanwhile(lake)[other]
    real, seen = search_module.RowSearch.newest, list[int]()

    def looked(self: search_module.RowSearch, build_index: Callable[[], object]) -> Any:
        found = real(self, build_index)
        seen.append(1)
        if len(seen) == 2:  # the first look is the check before the record
            change()
        return found

    monkeypatch.setattr(search_module.RowSearch, "newest", looked)
    batch = changed(range(35, 45))
    result = upsert(None, index, batch, "nightly", replace_all=True)
    assert result.written == 10
    check(lake, index, effect(after(batch)))
    assert nothing_is_left(lake)


# A batch that is not on record yet has to have the columns of the table that its next run finds.
REFUSED = ("staged_of", "widen")
STEPS = ["staged_of", "commit_append", "move_files", "commit_change", "clear_attempts", "mark_appended", "settle"]


@pytest.mark.parametrize(
    ("step", "other"), cases([one for one in product(STEPS, ["nothing", *OTHERS]) if one != REFUSED])
)
def test_a_change_that_died_is_finished_once(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, step: str, other: str
) -> None:
    batch = changed(range(35, 45))

    def run() -> ChangeResult:
        return upsert(None, index, batch, "nightly", replace_all=True)

    die_after(step, monkeypatch, run)
    is_committed = step in ("commit_change", "clear_attempts", "mark_appended", "settle")
    change, effect = meanwhile(lake)[other]
    change()
    result = run()
    assert result.known_batch == (step == "settle")
    expected = effect(after(batch))
    if is_committed and other == "delete changed":
        expected = after(without=(38,), of=expected)
    if is_committed and other == "same key":  # it came after the change
        assert [one["id"] for one in lake.rows()].count(38) == 2
        assert delete(None, index, [38]).rows_deleted == 2
        expected = after(without=(38,), of=expected)
    build(None, lake.name, index, ["id"])
    check(lake, index, expected)
    assert nothing_is_left(lake)
    assert len(lake.appends()) == (2 if is_committed and other == "same key" else 1)


def test_changes_that_run_at_once_leave_one_row_of_each_key(lake: Lake, index: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(upsert, None, index, changed(range(30, 60), "one"), "one")
        two = pool.submit(upsert, None, index, changed(range(50, 70), "two"), "two")
        assert (one.result().written, two.result().written) == (30, 20)
    found = lake.rows()
    assert [one["id"] for one in found] == [*sorted(after(without=range(30, 70))), *range(30, 70)]
    assert {one["part"] for one in found if 50 <= one["id"] < 60} in ({"one"}, {"two"})
    check(lake, index, {one["id"]: {name: one[name] for name in ROWS.names} for one in found})


@pytest.mark.parametrize("is_after", [True, False])
def test_a_change_that_another_program_did_meanwhile_is_done_without_numbers(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    """The other program commits the batch after (before) this one puts a file of its attempt, of which none is left."""
    more = [pa.concat_tables([rows(40, 42), rows(60, 61)]), pa.concat_tables([rows(42, 44), rows(61, 62)])]
    for table in more:
        lake.append(table)
    batch, real, results = changed(range(35, 45)), LocalStorage.put_new, list[ChangeResult]()
    turn = ["first"]

    def put(self: LocalStorage, path: str, chunks: Any) -> None:
        is_first = path.startswith("gnomon") and bool(turn) and bool(turn.pop())
        if is_after or not is_first:
            real(self, path, chunks)
        if is_first:
            monkeypatch.setattr(LocalStorage, "put_new", real)
            with ThreadPoolExecutor(1) as pool:
                results.append(pool.submit(upsert, None, index, batch, "nightly").result())
            if not is_after:
                real(self, path, chunks)

    monkeypatch.setattr(LocalStorage, "put_new", put)
    results.append(upsert(None, index, batch, "nightly"))
    assert [(one.rows_deleted, one.updated, one.files_changed) for one in results[:1]] == [(9, 9, 3)]
    assert [(one.rows_deleted, one.updated, one.bytes_written) for one in results[1:]] == [(None, None, None)]
    check(lake, index, after(*more, batch))
    assert isinstance(lake, DeltaLake | IcebergLake)
    files = [str(path) for path in Path(lake.root).rglob("*") if path.is_file()]
    attempt = re.compile(r"/gnomon[^/]*/(?:deletion_vector_)?([^/.]+)")
    assert len({found[1] for found in map(attempt.search, files) if found}) == 1, (
        "the files of the attempt that lost are gone"
    )


WHAT = ["delete", "upsert", "feed", "update", "append", "foreign append", "foreign delete", "compact"]


@pytest.mark.parametrize("seed", cases(range(6)))
def test_random_changes_give_the_rows_of_a_model(lake: Lake, index: str, seed: int) -> None:
    """Deletes, upserts, change feeds and appends by Gnomon, and what others do."""
    chance, model = random.Random(seed), dict(FIRST)
    for step in range(12):
        numbers = chance.sample(range(80), chance.randint(1, 20))
        what = chance.choice(WHAT)
        batch = changed(numbers, f"{step}")
        if what == "delete":
            delete(None, index, numbers)
            model = after(without=numbers, of=model)
        elif what in ("upsert", "update"):
            upsert(None, index, batch, f"batch {step}", update_only=what == "update")
            model = after(
                batch if what == "upsert" else changed([n for n in numbers if n in model], f"{step}"), of=model
            )
        elif what == "feed":
            flags = [chance.random() < 0.5 for _ in numbers]
            feed = batch.append_column("gone", pa.array(flags))
            upsert(None, index, feed, f"batch {step}", delete_where="gone")
            kept = [n for n, gone in zip(numbers, flags, strict=True) if not gone]
            lost = [n for n, gone in zip(numbers, flags, strict=True) if gone]
            model = after(changed(kept, f"{step}"), without=lost, of=model)
        elif what == "append":
            append_new(None, index, batch, f"batch {step}")
            model = after(changed([n for n in numbers if n not in model], f"{step}"), of=model)
        elif what == "foreign append":
            new = changed([n for n in numbers if n not in model], f"{step}")
            if new.num_rows:
                lake.append(new)
            model = after(new, of=model)
        elif what == "foreign delete":
            lake.delete(numbers[0])
            model = after(without=numbers[:1], of=model)
        elif model:
            lake.compact()
        assert [one["id"] for one in lake.rows()] == sorted(model), (seed, step, what)
    build(None, lake.name, index, ["id"])
    if model:
        check(lake, index, model)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_files_that_others_own_are_never_changed(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(rows(0, 10), tmp_path / "source" / "a.parquet")
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["id"])
    for change in (
        lambda: delete(None, str(tmp_path / "index"), [1]),
        lambda: delete(None, str(tmp_path / "index"), [1], dry_run=True),
        lambda: upsert(None, str(tmp_path / "index"), rows(1, 2), "nightly"),
    ):
        with pytest.raises(UsageError, match=r"its rows are not changed: others own these files.*--pointers-only"):
            change()
    assert [path.name for path in (tmp_path / "source").rglob("*")] == ["a.parquet"]

"""Arrow answers have the rows of JSON answers, in the types of the source, for every query."""

import datetime as dt
import decimal
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.jobs.build import write_btree
from gnomon.shadow import UsageError
from gnomon.shadow.errors import BeyondBound
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Two days; the second has a wider number, and a column more."""
    day = dt.date(2026, 1, 1)
    first = pa.table(
        {"k": [1, 1, 2], "n": pa.array([1, 2, 3], pa.int32()), "d": [day] * 3, "l": [[1], [], None], "t": list("abc")}
    )
    second = pa.table(
        {"k": [2, 1], "n": pa.array([1 << 40, 5], pa.int64()), "d": [None, day], "l": [[2], [3]], "more": [0.5, None]}
    )
    write_source(tmp_path / "lake", {"dt=1/a.parquet": first, "dt=2/a.parquet": second})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    return str(tmp_path / "index")


def test_rows_come_key_by_key_in_the_types_of_the_source(place: str) -> None:
    index = open_index(place)
    table = index.table_many([2, 99, 1, 2])
    assert table.schema.names == ["key_number", *index.view.columns]
    assert table["key_number"].to_pylist() == [0, 0, 2, 2, 2, 3, 3]
    kinds = {field.name: field.type for field in table.schema}
    assert (kinds["n"], kinds["d"], kinds["more"]) == (pa.int64(), pa.date32(), pa.float64())
    assert (kinds["dt"], kinds["key_number"]) == (pa.string(), pa.int64())
    expected = [row for rows in index.fetch_many([2, 99, 1, 2]) for row in rows]
    assert table.drop_columns(["key_number"]).to_pylist() == expected
    assert json.loads(table.schema.metadata[b"gnomon.counts"]) == [2, 0, 3, 2]
    assert table.schema.metadata[b"gnomon.snapshot"] == b"1"


def test_an_empty_answer_has_the_columns_in_their_types(place: str) -> None:
    index = open_index(place)
    empty = index.table_many([99], ["more", "dt", "d"])
    assert empty.num_rows == 0
    assert empty.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.date32()]
    assert index.table_many([], ["k"]).schema.names == ["key_number", "k"]


def test_limits_bounds_and_where_hold(place: str) -> None:
    index = open_index(place)
    table = index.table_many([1, 2], ["t"], limit=1)
    assert (table.num_rows, json.loads(table.schema.metadata[b"gnomon.counts"])) == (2, [3, 2])
    assert index.table_many([1], ["n"], {"dt": "2"})["n"].to_pylist() == [5]
    with pytest.raises(BeyondBound, match="the key has 3 rows"):
        index.table_many([1], most_rows=2)
    with pytest.raises(BeyondBound):
        index.table_many([1], most_bytes=10)
    assert index.table_many([1], [])["key_number"].to_pylist() == [0, 0, 0]


def test_the_name_of_the_first_column_is_not_one_of_the_others(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": [1], "key_number": ["x"]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    table = open_index(str(tmp_path / "index")).table_many([1])
    assert table.to_pylist() == [{"key_number_1": 0, "k": 1, "key_number": "x"}]


def test_types_that_have_nothing_in_common_are_named(tmp_path: Path) -> None:
    tables = {"dt=1/a.parquet": pa.table({"k": [1], "v": ["x"]}), "dt=2/a.parquet": pa.table({"k": [1], "v": [[1]]})}
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    kinds = r"column v has the types string, list<.*> in the source files of these rows, and no Arrow type holds all"
    with pytest.raises(UsageError, match=kinds):
        open_index(str(tmp_path / "index")).table_many([1])


def test_the_types_are_those_of_the_files_of_the_rows_whatever_other_files_have(tmp_path: Path) -> None:
    """A file that another program rewrote has timestamps without a zone, and text where there was a number."""
    utc = pa.table({"k": [1, 2], "at": pa.array([1, 2], pa.timestamp("us", "UTC")), "v": pa.array([7, None])})
    naive = pa.table({"k": [2, 3], "at": pa.array([3, 4], pa.timestamp("us")), "v": ["x", "y"], "more": [0.5, 1.5]})
    write_source(tmp_path / "lake", {"dt=1/a.parquet": utc, "dt=2/a.parquet": naive})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index = open_index(str(tmp_path / "index"))
    first, last = index.table_many([1]), index.table_many([3])
    assert first.schema.field("at").type == pa.timestamp("us", "UTC")
    assert (first.schema.field("v").type, first["v"].to_pylist()) == (pa.int64(), [7])
    assert (first.schema.field("more").type, first["more"].to_pylist()) == (pa.float64(), [None])
    assert last.schema.field("at").type == pa.timestamp("us")
    assert last["v"].to_pylist() == ["y"]
    with pytest.raises(UsageError, match="column v has the types int64, string in the"):
        index.table_many([2])
    both = index.table_many([2], ["at"])["at"]  # the time without a zone is in UTC
    assert (both.type, both.cast(pa.int64()).to_pylist()) == (pa.timestamp("us", "UTC"), [2, 3])
    assert index.table_many([2], ["k"])["k"].to_pylist() == [2, 2]
    assert index.table_many([2], where={"dt": "1"})["at"].type == pa.timestamp("us", "UTC")


def test_no_digit_is_lost_to_a_common_type(tmp_path: Path) -> None:
    tables = {
        "dt=1/a.parquet": pa.table({"k": [1], "v": pa.array([decimal.Decimal("1" * 20)], pa.decimal128(38, 18))}),
        "dt=2/a.parquet": pa.table({"k": [1], "v": [0.1]}),
        "dt=3/a.parquet": pa.table({"k": [2], "v": pa.array([2**53 + 1])}),
        "dt=4/a.parquet": pa.table({"k": [2], "v": [0.5]}),
    }
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index = open_index(str(tmp_path / "index"))
    for key in (1, 2):
        with pytest.raises(UsageError, match=r"column v has the types .* no Arrow type holds all of its values"):
            index.table_many([key])
    assert [row["v"] for row in index.fetch(2)] == [2**53 + 1, 0.5]


AROUND = [lambda kind: pa.struct([("a", kind)]), pa.list_, lambda kind: pa.map_(pa.string(), kind)]


@pytest.mark.parametrize("around", AROUND)
def test_no_digit_within_a_value_is_lost_to_a_common_type(
    tmp_path: Path, around: Callable[[pa.DataType], pa.DataType]
) -> None:
    exact, rough = around(pa.decimal128(38, 2)), around(pa.float64())
    one: object = decimal.Decimal("12345678901234567.91")
    wrapped = {"struct": {"a": one}, "list": [one], "map": [("a", one)]}[str(exact).partition("<")[0]]
    tables = {"a.parquet": pa.table({"k": [1], "v": pa.array([wrapped], exact)})}
    tables["b.parquet"] = pa.table({"k": [2], "v": pa.nulls(1, rough)})
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index = open_index(str(tmp_path / "index"))
    assert index.table_many([1])["v"].to_pylist() == [wrapped]
    with pytest.raises(UsageError, match="column v has the types"):
        index.table_many([1, 2])


def test_a_folder_of_values_gives_its_entries(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2, 1], "v": ["a", "b", None], "n": pa.array([1, 2, 3], pa.int32())})
    write_btree(table, tmp_path / "index", ["k"], buckets=2)
    index = open_index(str(tmp_path / "index"))
    found = index.table_many([2, 1, 9])
    assert found["key_number"].to_pylist() == [0, 1, 1]
    assert found.drop_columns(["key_number"]).to_pylist() == index.fetch(2) + index.fetch(1)
    assert found.schema.field("n").type == pa.int32()
    assert index.table_many([9], ["v"]).schema.types == [pa.int64(), pa.string()]
    assert index.table_many([1], []).num_rows == 2

"""Partition folders mean what Spark and Hive mean by them; what they would not agree on is refused."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from btree.keys import arrow_type
from shadow.errors import SourceNotFound, UsageError
from shadow.partitions import (
    asked_values,
    check_where,
    matches,
    partition_array,
    partition_columns,
    partition_folders,
    partition_of,
    partition_values,
    stored_partition,
)
from shadow.values import python_values


@pytest.mark.parametrize(
    ("path", "partition"),
    [
        ("f.parquet", ""),
        ("dt=1/f.parquet", "dt=1"),
        ("dt=1/country=de/f.parquet", "dt=1/country=de"),
        ("plain/f.parquet", ""),
        ("dt=1/HIVE_UNION_SUBDIR_1/f.parquet", "dt=1"),
        ("data/dt=1/c=de/sub/f.parquet", "dt=1/c=de"),
        ("dt=1/a=b.parquet", "dt=1"),
        ("a=b.parquet", ""),
    ],
)
def test_a_files_partition_is_its_folders_with_a_value(path: str, partition: str) -> None:
    assert partition_of(path) == partition


@pytest.mark.parametrize(
    ("partition", "values"),
    [
        ("", {}),
        ("dt=2026-01-01/n=007", {"dt": "2026-01-01", "n": "007"}),
        ("p=a%2Fb", {"p": "a/b"}),
        ("p=a%20b c", {"p": "a b c"}),
        ("p=a=b=c", {"p": "a=b=c"}),
        ("p=", {"p": ""}),
        ("p=__HIVE_DEFAULT_PARTITION__", {"p": None}),
        ("p%2Fq=1", {"p/q": "1"}),
        ("p=%C3%BC", {"p": "ü"}),
        ("p=ü", {"p": "ü"}),
        ("p=%FF", {"p": "\xff"}),
        ("p=%2541", {"p": "%41"}),
        ("p=100%", {"p": "100%"}),
        ("p=a+b", {"p": "a+b"}),
        ("P=DE", {"P": "DE"}),
    ],
)
def test_values_are_text_with_escapes_undone_once(partition: str, values: dict[str, str | None]) -> None:
    assert partition_values(partition) == values


def test_all_files_share_the_partition_columns() -> None:
    assert partition_columns(["dt=1/c=de/f", "dt=1/c=DE/f", "dt=2/c=x=y/sub/f"], "/lake") == ("dt", "c")
    assert partition_columns(["t/data/dt=1/f", "t/data/dt=2/sub/g"], "/lake") == ("dt",)
    assert partition_columns(["f", "plain/g"], "/lake") == ()
    assert partition_columns([], "/lake") == ()


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["dt=1/f", "g"], "/lake: its files do not share the same partition columns: dt at dt=1/f; none at g"),
        (["dt=1/f", "dt=1/c=2/f"], "dt at dt=1/f; dt/c at dt=1/c=2/f"),
        (["dt=1/f", "DT=1/f"], "dt at dt=1/f; DT at DT=1/f"),
        (["a=1/b=1/f", "b=1/a=1/f"], "a/b at a=1/b=1/f; b/a at b=1/a=1/f"),
        (["t1/dt=1/f", "t1/dt=2/f", "t2/dt=1/f"], "lie below different folders (t1/dt=1/f; t2/dt=1/f); name one"),
        (["dt=1/f", "t2/dt=1/f"], "lie below different folders (dt=1/f; t2/dt=1/f); name one"),
        (
            ["t1/dt=1/f", "t1/f"],
            "do not share the same partition columns: dt at t1/dt=1/f; none at t1/f",
        ),
        (["dt=1/sub/c=1/f"], "/lake/dt=1/sub/c=1/f: a plain folder between partition folders"),
        (["dt=1/dt=2/f"], "/lake/dt=1/dt=2/f: expected partition folders that each name another column"),
        (["=1/f"], "/lake/=1/f: expected partition folders that each name another column"),
    ],
)
def test_folders_that_mean_no_one_table_are_refused(paths: list[str], said: str) -> None:
    with pytest.raises(SourceNotFound) as caught:
        partition_columns(paths, "/lake")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("2026-01-01", "2026-01-01"),
        (dt.date(2026, 1, 1), "2026-01-01"),
        (7, "7"),
        (True, "true"),
        (None, None),
        ("__HIVE_DEFAULT_PARTITION__", None),
        ("", ""),
    ],
)
def test_a_value_asked_for_is_taken_as_the_text_of_a_folder(asked: object, text: str | None) -> None:
    assert check_where({"p": asked}, ("p",)) == {"p": text}


def test_a_column_that_is_no_partition_column_is_refused() -> None:
    with pytest.raises(UsageError, match=r"where: x is not a partition column \(there are: dt, c\)"):
        check_where({"x": 1}, ("dt", "c"))
    assert check_where(None, ()) == {}


def test_values_match_exactly_and_case_counts() -> None:
    values = {"c": "DE", "n": None}
    assert matches(values, {})
    assert matches(values, {"c": "DE", "n": None})
    assert not matches(values, {"c": "de"})
    assert not matches(values, {"n": ""})


@pytest.mark.parametrize(
    ("kind", "texts", "value"),
    [
        ("int", ["7", "007", "+7"], 7),
        ("bigint", ["20201004", "020201004"], 20201004),
        ("date", ["2020-10-04"], dt.date(2020, 10, 4)),
        ("decimal(6,2)", ["1.5", "1.50"], decimal.Decimal("1.50")),
        ("boolean", ["true"], True),
        ("double", ["0.5", "5e-1"], 0.5),
        (
            "timestamp",
            ["2020-10-04 01:02:03", "2020-10-04T01:02:03Z"],
            dt.datetime(2020, 10, 4, 1, 2, 3, tzinfo=dt.UTC),
        ),
        ("string", ["007"], "007"),
    ],
)
def test_values_of_a_type_are_found_however_they_are_written(kind: str, texts: list[str], value: object) -> None:
    types = {"p": kind}
    for text in texts:
        there = stored_partition(partition_folders({"p": text}), types)
        for asked in (value, *texts):
            assert matches(there, check_where({"p": asked}, ("p",), types))
        assert not matches(there, check_where({"p": None}, ("p",), types))
        assert python_values(partition_array(there["p"], kind, 2)) == [value, value]
        assert python_values(partition_array(None, kind, 1)) == [None]
    column = pa.array([value, None], arrow_type(kind))
    assert asked_values(column, kind, "p") == [there["p"], None]
    assert asked_values(pa.array([texts[-1], None]), kind, "p") == [there["p"], None]


def test_partition_folders_are_named_as_hive_names_them_and_read_back() -> None:
    values = {"p": "a/b=%é {[\x01", "q r": "__HIVE_DEFAULT_PARTITION__"}
    folders = partition_folders(values)
    assert folders == "p=a%2Fb%3D%25é %7B%5B%01/q r=__HIVE_DEFAULT_PARTITION__"
    assert stored_partition(folders, {}) == {"p": values["p"], "q r": None}


def test_a_value_that_is_not_of_the_partition_columns_type_is_refused() -> None:
    with pytest.raises(UsageError, match=r"where: column p: expected int, found 'x'"):
        check_where({"p": "x"}, ("p",), {"p": "int"})
    with pytest.raises(UsageError, match="column p of type int: found values of Arrow type double"):
        asked_values(pa.array([1.5]), "int", "p")

"""Partition folders are read as in Spark and Hive; folders on which these disagree are refused."""

import datetime as dt
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pytest

from gnomon.btree.key_types import Stored, key_type
from gnomon.shadow.errors import PartitionNotFound, SourceNotFound, UsageError
from gnomon.shadow.tables.partitions import (
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
from gnomon.shadow.values.row_values import python_values


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


def named(asked: object, *there: str | None) -> set[Stored]:
    """The values of a text column that a requested value names."""
    return set(check_where({"p": asked}, ("p",), {}, {"p": there})["p"])


@pytest.mark.parametrize(
    ("asked", "there", "found"),
    [
        ("2026-01-01", ["2026-01-01", "2026-01-02"], {"2026-01-01"}),
        (dt.date(2026, 1, 1), ["2026-01-01", "20260101", "2026-01-02", "x"], {"2026-01-01", "20260101"}),
        (
            dt.datetime(2026, 1, 1),
            ["2026-01-01", "2026-01-01 00:00:00", "2026-01-01 01:00:00"],
            {"2026-01-01", "2026-01-01 00:00:00"},
        ),
        (
            dt.datetime(2026, 1, 1, 1),
            ["2026-01-01", "2026-01-01 01:00:00", "2026-01-01T01:00:00Z"],
            {"2026-01-01 01:00:00", "2026-01-01T01:00:00Z"},
        ),
        (
            dt.datetime(2026, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            ["2026-01-01 01:00:00", "2026-01-01 02:00:00"],
            {"2026-01-01 01:00:00"},
        ),
        (np.datetime64("2026-01-01"), ["2026-01-01"], {"2026-01-01"}),
        (7, ["7", "07", "007", "70", "x", None], {"7", "07", "007"}),
        (np.int64(7), ["07", "08"], {"07"}),
        (7.0, ["07", "7.0", "7.5"], {"07", "7.0"}),
        (decimal.Decimal("1.50"), ["1.5", "1.51"], {"1.5"}),
        ("7", ["7", "07"], {"7"}),
        ("7", ["06", "07"], {"07"}),
        ("07", ["7"], {"7"}),
        (True, ["true", "True", "1"], {"true", "True"}),
        (uuid.UUID(int=1), [str(uuid.UUID(int=1))], {str(uuid.UUID(int=1))}),
        (None, ["", None], {None}),
        ("__HIVE_DEFAULT_PARTITION__", ["", None], {None}),
        ("", ["", None], {""}),
        (["a", "b"], ["a", "b", "c"], {"a", "b"}),
        ({"a", None}, ["a", None, "c"], {"a", None}),
        (np.array([6, 7]), ["06", "07", "08"], {"06", "07"}),
        (np.array(["2026-01-01"], "datetime64[ns]"), ["2026-01-01", "1767225600000000000"], {"2026-01-01"}),
        (np.array("a"), ["a"], {"a"}),
    ],
)
def test_a_value_asked_for_names_the_folders_that_read_as_it(
    asked: object, there: list[str | None], found: set[str | None]
) -> None:
    assert named(asked, *there) == found


@pytest.mark.parametrize("asked", ["2026-01-03", 8, "8", dt.date(2026, 1, 3), True, None, "DE", ["2026-01-01", "x"]])
def test_a_value_that_no_partition_has_is_said_with_those_there_are(asked: object) -> None:
    with pytest.raises(PartitionNotFound, match=r"where: no partition has p=.*; p has the values 07, 2026-01-01, de"):
        named(asked, "2026-01-01", "07", "de")


def test_of_many_values_the_ends_are_named_and_long_ones_are_cut() -> None:
    days = [f"2026-01-{day:02}" for day in range(1, 32)]
    with pytest.raises(PartitionNotFound, match=r"has p=x{100}\.\.\.; p has 31 values, from 2026-01-01 to 2026-01-31$"):
        named("x" * 1000, *days)
    with pytest.raises(PartitionNotFound, match="there are no partitions"):
        named("x")


@pytest.mark.parametrize("asked", [b"07", {"a": 1}, object(), [b"07"], [["07"]], dt.time(7), np.bytes_(b"07")])
def test_a_value_of_another_kind_is_refused(asked: object) -> None:
    with pytest.raises(
        UsageError, match="where: column p: expected text, a number, a boolean, a date or a datetime, found"
    ):
        named(asked, "07", "b'07'")


def test_a_where_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UsageError, match=r"where: x is not a partition column \(there are: dt, c\)"):
        check_where({"x": 1}, ("dt", "c"), {}, {"dt": [], "c": []})
    with pytest.raises(UsageError, match=r"where: expected partition columns with their values, like .*, found 'dt=1'"):
        check_where("dt=1", ("dt",), {}, {"dt": ["1"]})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="where: p has an empty list of values"):
        named([], "07")
    assert check_where(None, (), {}, {}) == {}


def test_values_match_exactly_and_case_counts() -> None:
    values = {"c": "DE", "n": None}
    assert matches(values, {})
    assert matches(values, {"c": {"DE", "FR"}, "n": {None}})
    assert not matches(values, {"c": {"de"}})
    assert not matches(values, {"n": {""}})


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
            assert matches(there, check_where({"p": asked}, ("p",), types, {"p": {there["p"], None}}))
        assert not matches(there, check_where({"p": None}, ("p",), types, {"p": {there["p"], None}}))
        assert python_values(partition_array(there["p"], kind, 2)) == [value, value]
        assert python_values(partition_array(None, kind, 1)) == [None]
    column = pa.array([value, None], key_type(kind).arrow)
    assert asked_values(column, kind, "p") == [there["p"], None]
    assert asked_values(pa.array([texts[-1], None]), kind, "p") == [there["p"], None]


def test_partition_folders_are_named_as_hive_names_them_and_read_back() -> None:
    values = {"p": "a/b=%é {[\x01", "q r": "__HIVE_DEFAULT_PARTITION__"}
    folders = partition_folders(values)
    assert folders == "p=a%2Fb%3D%25é %7B%5B%01/q r=__HIVE_DEFAULT_PARTITION__"
    assert stored_partition(folders, {}) == {"p": values["p"], "q r": None}


def test_a_value_that_is_not_of_the_partition_columns_type_is_refused() -> None:
    with pytest.raises(UsageError, match=r"where: column p: expected int, found 'x'"):
        check_where({"p": "x"}, ("p",), {"p": "int"}, {"p": {7}})
    with pytest.raises(PartitionNotFound, match=r"where: no partition has p=8; p has the values 7"):
        check_where({"p": "8"}, ("p",), {"p": "int"}, {"p": {7}})
    days = {0, 1}  # dates in stored form
    with pytest.raises(PartitionNotFound, match=r"p=1970-01-03; p has the values 1970-01-01, 1970-01-02"):
        check_where({"p": dt.date(1970, 1, 3)}, ("p",), {"p": "date"}, {"p": days})
    with pytest.raises(UsageError, match="column p: expected int, found values of Arrow type double"):
        asked_values(pa.array([1.5]), "int", "p")


def test_microseconds_and_timestamps_without_a_zone_name_the_same_partitions() -> None:
    micros = pa.array([0, -1, None, 253402300800000000])
    assert asked_values(micros, "timestamp_ntz", "p") == [0, -1, None, 253402300800000000]
    assert asked_values(micros.view(pa.timestamp("us")), "timestamp_ntz", "p") == [0, -1, None, 253402300800000000]

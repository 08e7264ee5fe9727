"""Pointers to rows: the right row or an error, for every key type, for odd names, and for files that changed."""

import datetime as dt
import decimal
import math
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.btree.blocks import LookupStats
from gnomon.shadow.errors import BeyondBound, DamagedSource, KeyTypeError, StalePointer, UnknownColumn
from gnomon.shadow.fetch.fetcher import Located
from gnomon.shadow.fetch.source_files import FetchReads
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup.plan import ParsedKey
from gnomon.shadow.metadata.spec import KeyColumn
from gnomon.shadow.storage.local import LocalFile
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

D = decimal.Decimal
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NS = 1767270600_123456789
NAN = float("nan")
AT = dt.datetime(2026, 1, 1, 12, 30, 0, 123000)


def opened(folder: Path, tables: dict[str, pa.Table], keys: list[str], **options: Any) -> OpenIndex:
    write_source(folder / "lake", tables)
    index_source(folder / "lake", folder / "index", keys, **options)
    return open_index(str(folder / "index"))


# Column values (null last), an absent key, and other forms of the first key.
KEYS: dict[str, tuple[pa.DataType, list[Any], Any, list[Any]]] = {
    "string": (pa.string(), ["", "a/b?", "Straße 日本", "\U0001f600", None], "b", []),
    "large_string": (pa.large_string(), ["x", "y", None], "z", []),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None], "z", []),
    "boolean": (pa.bool_(), [True, None], False, ["true"]),
    "tinyint": (pa.int8(), [-128, 127, None], 0, ["-128"]),
    "smallint": (pa.int16(), [-(2**15), 0, None], 1, []),
    "int": (pa.int32(), [-(2**31), 0, 2**31 - 1, None], 1, []),
    "bigint": (pa.int64(), [-(2**63), 0, 2**63 - 1, None], 1, [str(-(2**63))]),
    "float": (pa.float32(), [0.1, -0.0, math.inf, -math.inf, NAN, None], 1.0, ["0.1"]),
    "double": (pa.float64(), [-0.0, 0.1, math.inf, 5e-324, NAN, None], 1.0, [0.0, "0", 0]),
    "date": (pa.date32(), [dt.date(1582, 10, 4), dt.date.max, None], dt.date.min, ["1582-10-04"]),
    "timestamp_us": (
        pa.timestamp("us", "UTC"),
        [AT.replace(tzinfo=dt.UTC), None],
        "2026-01-01T00:00:00Z",
        ["2026-01-01T12:30:00.123Z", "2026-01-01T13:30:00.123+01:00", AT],
    ),
    "timestamp_ms": (pa.timestamp("ms", "Europe/Berlin"), [AT.replace(tzinfo=dt.UTC), None], "1969-12-31", [AT]),
    "timestamp_ntz": (pa.timestamp("us"), [AT, None], "2026-01-01", ["2026-01-01T12:30:00.123"]),
    "timestamp_s": (pa.timestamp("s"), [AT.replace(microsecond=0), None], AT, []),
    "decimal_short": (
        pa.decimal128(9, 2),
        [D("-1.28"), D("0.00"), D("1234567.89"), None],
        D(1),
        ["-1.28", D("-1.280")],
    ),
    "decimal_long": (pa.decimal128(38, 10), [D(10) ** 27, D("-0.0000000001"), None], D(1), ["1e27"]),
    "binary": (pa.binary(), [b"\xff\x00", b"", b"\x7f", None], b"x", ["/wA="]),
    "large_binary": (pa.large_binary(), [b"\xff", None], b"x", []),
    "fixed": (pa.binary(2), [b"\xff\x00", b"ab", None], b"x", ["/wA="]),
    "uint8": (pa.uint8(), [255, 0, None], 7, ["255"]),
    "uint16": (pa.uint16(), [2**16 - 1, 0, None], 7, []),
    "uint32": (pa.uint32(), [2**32 - 1, 0, None], 7, ["4294967295"]),
    "uint64": (pa.uint64(), [2**64 - 1, 0, None], 7, ["18446744073709551615", D(2**64 - 1)]),
    "half": (pa.float16(), [np.float16(0.1), np.float16(-0.0), np.float16(NAN), None], 1.0, [0.1, "0.1", "0.09997559"]),
    "uuid": (
        pa.uuid(),
        [ID.bytes, bytes(16), None],
        uuid.uuid4(),
        [ID, str(ID), str(ID).upper(), ID.hex, "ABEiM0RVZneImaq7zN3u/w=="],
    ),
    "time_s": (pa.time32("s"), [dt.time(12, 30), dt.time(0), None], "12:31", ["12:30", "12:30:00.000", 45_000_000]),
    "time_ms": (pa.time32("ms"), [dt.time(12, 30, 0, 5000), None], 5, ["12:30:00.005", 45000005]),
    "time_us": (pa.time64("us"), [dt.time(0, 0, 0, 1), dt.time.max, None], "24:00:00", ["00:00:00.000001", 1]),
    "time_ns": (pa.time64("ns"), [86399_999_999_999, 0, None], "12:30", ["23:59:59.999999999"]),
    "timestamp_ns": (
        pa.timestamp("ns", "Europe/Berlin"),
        [NS, -1, -(2**63), 2**63 - 1, None],
        "2026-01-01",
        ["2026-01-01T12:30:00.123456789Z", "2026-01-01T13:30:00.123456789+01:00", pd.Timestamp(NS, tz="Asia/Tokyo")],
    ),
    "timestamp_ntz_ns": (
        pa.timestamp("ns"),
        [NS // 1000 * 1000, 1, None],
        NS,
        ["2026-01-01T12:30:00.123456", AT.replace(microsecond=123456), pd.Timestamp(NS // 1000 * 1000)],
    ),
    "decimal256": (pa.decimal256(38, 2), [D("-1.28"), D(10) ** 35, None], D(1), ["-1.280"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_key_of_every_type_is_written_found_and_fetched(tmp_path: Path, kind: str) -> None:
    arrow, values, absent, forms = KEYS[kind]
    table = pa.table({"n": range(len(values)), "k": pa.array(values, arrow)})
    index = opened(tmp_path, {"a.parquet": table, "b.parquet": table.slice(1)}, ["k"], buckets=3)
    for n, value in enumerate(values):
        rows = index.fetch(value, columns=["n"])
        assert [row["n"] for row in rows] == ([n] if n == 0 else [n, n])
    for form in forms:
        assert [row["n"] for row in index.fetch(form)] == [0]
    assert index.fetch(absent) == []
    assert not index.contains(absent)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("uuid", "00112233-4455-6677-8899-aabbccddee", "expected uuid (36 characters, or bytes), found '00112233-"),
        ("uuid", 5, "expected uuid"),
        ("uint64", -1.5, "expected uint64, found -1.5"),
        ("time_ms", "12:30:00.0005", "expected time(ms) (like 12:30:00.5, no finer than its unit), found '12:30:"),
        ("time_us", "12:60", "expected time(us)"),
        ("time_us", "24:00:01", "expected time(us)"),
        ("time_us", "45000000", "expected time(us)"),
        ("time_us", dt.time(1, tzinfo=dt.UTC), "expected time(us)"),
        ("time_us", dt.datetime(2026, 1, 1), "expected time(us)"),
        (
            "timestamp_ns",
            "2026-01-01T00:00:00.1234567891",
            "expected timestamp(ns) (like 2026-01-01T00:00:00.123456789Z)",
        ),
        ("timestamp_ns", "2300-01-01", "expected timestamp(ns)"),
        ("timestamp_ns", "1767270600123456789", "expected timestamp(ns)"),
        ("timestamp_ntz_ns", "2026-01-01T00:00:00.123456789Z", "expected timestamp_ntz(ns) (like"),
        ("half", "x", "expected half, found 'x'"),
    ],
)
def test_a_key_that_is_not_of_the_sources_type_is_refused_with_that_type(
    tmp_path: Path, kind: str, wrong: object, message: str
) -> None:
    index = opened(tmp_path, {"a.parquet": pa.table({"k": pa.array(KEYS[kind][1], KEYS[kind][0])})}, ["k"])
    with pytest.raises(KeyTypeError, match=re.escape(f"key column k: {message}")):
        index.fetch(wrong)


def test_files_of_one_source_may_differ_in_the_type_that_a_key_is_mapped_from(tmp_path: Path) -> None:
    tables = {
        "a.parquet": pa.table({"k": pa.array([5, None], pa.uint32()), "h": pa.array([np.float16(0.1)] * 2)}),
        "b.parquet": pa.table({"k": pa.array([-5, 5], pa.int64()), "h": pa.array([0.1, 2.0], pa.float32())}),
        "c.parquet": pa.table({"k": pa.nulls(1), "h": pa.nulls(1)}),
    }
    index = opened(tmp_path, tables, ["k"], include=["h"])
    assert index.spec.keys == (KeyColumn("k", "bigint", source_type="uint32"),)
    assert [len(index.fetch(key)) for key in (5, -5, "5", None)] == [2, 1, 2, 2]
    by_half = opened(tmp_path / "half", tables, ["h"])
    exact = float(np.float32(0.1))
    assert [[row["k"] for row in by_half.fetch(key)] for key in (0.1, exact, 2)] == [[5, None], [-5], [5]]


def test_zeros_are_one_key_and_so_are_nans(tmp_path: Path) -> None:
    table = pa.table({"k": [0.0, -0.0, NAN, -NAN], "n": range(4)})
    index = opened(tmp_path, {"a.parquet": table}, ["k"])
    assert [row["n"] for row in index.fetch(-0.0)] == [0, 1]
    assert [row["n"] for row in index.fetch("NaN")] == [2, 3]


def test_a_composite_key_with_nulls_finds_exactly_its_rows(tmp_path: Path) -> None:
    keys = [(a, b) for a in ("x", None, "") for b in (1, None, -1)]
    table = pa.table({"a": [a for a, _ in keys], "b": pa.array([b for _, b in keys], pa.int16()), "n": range(9)})
    index = opened(tmp_path, {"a.parquet": table}, ["b", "a"])
    for n, (a, b) in enumerate(keys):
        assert [row["n"] for row in index.fetch((b, a))] == [n]
        assert [row["n"] for row in index.fetch({"a": a, "b": b})] == [n]
    assert index.fetch((0, "x")) == []


ODD = [
    "user id",
    "a.b",
    "a_x2e_b",
    "`tick`",
    "a,b",
    "日本",
    "metadata",
    "data_offset",
    "data_filename",
    "ID",
    "id",
    "1st",
    "'",
]


def test_columns_of_odd_names_work_as_keys_and_in_answers(tmp_path: Path) -> None:
    table = pa.table({name: pa.array([i, i + 100], pa.int32()) for i, name in enumerate(ODD)})
    index = opened(tmp_path, {"a.parquet": table}, ODD)
    assert list(index.view.columns) == ODD
    assert index.fetch({name: i + 100 for i, name in enumerate(ODD)}) == [{name: i + 100 for i, name in enumerate(ODD)}]
    assert index.fetch(tuple(range(len(ODD))), columns=["a.b", "a_x2e_b"]) == [{"a.b": 1, "a_x2e_b": 2}]


def test_included_columns_stand_in_the_index(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "a.b": ["x", None]})
    index = opened(tmp_path, {"a.parquet": table}, ["k"], include=["a.b"])
    found = index.find([ParsedKey((1,)), ParsedKey((2,))], LookupStats())
    assert [hit.included for hits in found for hit in hits] == [("x",), (None,)]


def test_a_partition_column_is_the_text_of_its_folder_even_where_the_files_have_it(tmp_path: Path) -> None:
    table = pa.table({"k": [1], "dt": [20260101], "v": ["x"]})
    index = opened(tmp_path, {"dt=007/a.parquet": table}, ["k"])
    assert index.fetch(1) == [{"k": 1, "v": "x", "dt": "007"}]
    assert index.fetch(1, columns=["dt"]) == [{"dt": "007"}]


def test_a_column_some_files_lack_is_null_there_as_a_key_too(tmp_path: Path) -> None:
    tables = {
        "a.parquet": pa.table({"k": [1, None], "n": [0, 1]}),
        "b.parquet": pa.table({"n": [2], "extra": ["x"]}),
    }
    index = opened(tmp_path, tables, ["k"])
    assert index.fetch(None) == [{"k": None, "n": 1, "extra": None}, {"k": None, "n": 2, "extra": "x"}]
    assert index.fetch(None, columns=["k"]) == [{"k": None}, {"k": None}]


def test_duplicates_come_from_all_partitions_and_segments(tmp_path: Path) -> None:
    opened(tmp_path, {f"p={p}/a.parquet": pa.table({"k": [7, 7], "n": [0, 1]}) for p in "ab"}, ["k"])
    index = opened(tmp_path, {"p=a/b.parquet": pa.table({"k": [7], "n": [2]})}, ["k"])
    assert [(row["p"], row["n"]) for row in index.fetch(7)] == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_rows_come_in_the_order_of_the_keys_and_of_their_hits(tmp_path: Path) -> None:
    tables = {f"p={p}/a.parquet": pa.table({"k": [1, 2, 1], "n": [0, 1, 2]}) for p in "ab"}
    index = opened(tmp_path, tables, ["k"])
    one = [("a", 0), ("a", 2), ("b", 0), ("b", 2)]
    two = [("a", 1), ("b", 1)]
    for keys, expected in (([1, 2, 3], [one, two, []]), ([2, 1, 2], [two, one, two]), ([], [])):
        answers = index.fetch_many(keys, columns=["p", "n"])
        assert [[(row["p"], row["n"]) for row in rows] for rows in answers] == expected


def test_columns_come_as_asked_and_once(tmp_path: Path) -> None:
    index = opened(tmp_path, {"p=1/a.parquet": pa.table({"k": [1], "a": [2]})}, ["k"])
    assert [list(row) for row in index.fetch(1, columns=["p", "a", "p"])] == [["p", "a"]]
    assert index.fetch(1, columns=[]) == [{}]
    with pytest.raises(UnknownColumn, match="the source has no column x; it has k, a, p"):
        index.fetch(1, columns=["a", "x"])
    with pytest.raises(KeyTypeError):
        index.fetch("x")


def test_one_file_in_a_partition_folder_is_a_source_of_its_own(tmp_path: Path) -> None:
    write_source(tmp_path, {"dt=1/f.parquet": pa.table({"k": [1], "dt": ["own"]})})
    index_source(tmp_path / "dt=1/f.parquet", tmp_path / "index", ["k", "dt"])
    assert open_index(str(tmp_path / "index")).fetch((1, "own")) == [{"k": 1, "dt": "own"}]


# -- files that changed since they were indexed ------------------------------------------------------------------------

FILE = "p=1/a.parquet"


@pytest.fixture
def index(tmp_path: Path) -> OpenIndex:
    return opened(tmp_path, {FILE: pa.table({"k": range(100), "v": [f"value {i:03}" for i in range(100)]})}, ["k"])


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def remake(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(0, 1))


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_file_above(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"")


@pytest.mark.parametrize("change", [truncate, append, remake, Path.unlink, to_folder, to_file_above])
@pytest.mark.parametrize("cached", [False, True])
def test_a_changed_file_is_refused(
    index: OpenIndex, tmp_path: Path, change: Callable[[Path], object], cached: bool
) -> None:
    if cached:
        assert index.fetch(5)
    change(tmp_path / "lake" / FILE)
    with pytest.raises(StalePointer, match=r"since it was indexed.*; run gnomon build INDEX again") as caught:
        index.fetch(5)
    assert caught.value.path == f"{tmp_path}/lake/{FILE}"
    assert index.contains(5)  # the index alone still has it
    assert index.fetch(1000) == []


def forge(path: Path, data: bytes) -> None:
    before = path.stat()
    assert len(data) == before.st_size
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_forged_to_the_same_size_and_time_is_known_by_its_footer(tmp_path: Path) -> None:
    path = tmp_path / "lake" / FILE
    pair = [pa.table({"k": pa.array(keys, pa.int64())}) for keys in ([1, 2, 3], [3, 2, 1])]
    options = {"compression": "none", "use_dictionary": False, "write_statistics": True}
    write_source(tmp_path / "lake", {FILE: pair[0].append_column("v", [["a", "b", "c"]])}, **options)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    before = path.stat()
    write_source(tmp_path / "lake", {FILE: pair[0].append_column("v", [["a", "b", "d"]])}, **options)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StalePointer, match="the file is not the one that was indexed") as caught:
        open_index(str(tmp_path / "index")).fetch(1)
    assert caught.value.path == str(path)


def test_a_row_with_another_key_is_refused_when_even_the_footer_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "lake" / FILE
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    table = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
    write_source(tmp_path / "lake", {FILE: table}, **options)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    data = path.read_bytes()
    one, two = (value.to_bytes(8, "little") for value in (1, 2))
    forge(path, data.replace(one + two, two + one))
    assert path.read_bytes() != data
    index = open_index(str(tmp_path / "index"))
    with pytest.raises(StalePointer, match="row 0 does not hold the key it was indexed under") as caught:
        index.fetch(1)
    assert caught.value.path == str(path)
    with pytest.raises(StalePointer, match="row 1"):
        index.fetch(2, columns=["v"])  # the key is checked, though it is not a requested column
    assert index.fetch(3) == [{"k": 3, "v": "c", "p": "1"}]


def test_many_rows_of_a_file_are_read_by_numbers_and_their_keys_compared_by_column(tmp_path: Path) -> None:
    tables = {
        "p=1/a.parquet": pa.table({"k": [1.5, NAN, None, -0.0], "v": list("abcd")}),
        "p=2/b.parquet": pa.table({"v": list("ef")}),
    }
    index = opened(tmp_path, tables, ["k"])
    pointers = np.array([[3, 0], [1, 0], [2, 0], [1, 0]])
    keys = {"k": pa.array([0.0, NAN, None, NAN])}
    table = index.files.read("p=1/a.parquet", pointers, keys, ["p", "v"], FetchReads())
    assert table.to_pylist() == [{"p": "1", "v": value} for value in "dbcb"]
    assert index.files.read("p=1/a.parquet", pointers, {}, ["v"], FetchReads())["v"].to_pylist() == list("dbcb")
    nulls = {"k": pa.nulls(2, pa.float64())}  # of a file that lacks the column
    assert index.files.read("p=2/b.parquet", pointers[:2] * 0, nulls, ["v"], FetchReads())["v"].to_pylist() == ["e"] * 2
    for wrong in ([1.5, NAN, None, NAN], [0.0, None, None, NAN], [0.0, NAN, NAN, NAN]):
        with pytest.raises(StalePointer, match=r"row [312] does not hold the key it was indexed under"):
            index.files.read("p=1/a.parquet", pointers, {"k": pa.array(wrong, pa.float64())}, ["v"], FetchReads())
    with pytest.raises(StalePointer, match=r"lake/p=3/c.parquet: snapshot 1 of the index does not cover this file"):
        index.files.read("p=3/c.parquet", pointers, {}, ["v"], FetchReads())
    assert index.files.units("p=1/a.parquet", pointers[:, 0], FetchReads()).tolist() == [0] * 4


def test_types_are_told_by_the_files_that_can_be_read(tmp_path: Path) -> None:
    tables = {"a.parquet": pa.table({"k": [1], "v": ["a"]}), "b.parquet": pa.table({"k": [2], "w": [1.5]})}
    index = opened(tmp_path, tables, ["k"])
    index.files.check_file("b.parquet")
    (tmp_path / "lake/b.parquet").unlink()
    with pytest.raises(StalePointer, match=r"b.parquet: the file is gone"):
        index.files.check_file("b.parquet")
    assert [schema.names for _, schema in index.schemas(["k", "v"])] == [["k", "v"]]
    with pytest.raises(StalePointer, match=r"b.parquet: the file is gone"):  # only this file has the column w
        list(index.schemas(["v", "w"]))


@pytest.mark.process
def test_a_first_fetch_is_not_slowed_by_imports_it_does_not_need(index: OpenIndex) -> None:
    """pyarrow imports pandas when it can, which takes a third of a second."""
    code = """
import gnomon, sys
index = gnomon.open_index(sys.argv[1])
index.get(5), index.fetch(5), index.fetch_many([5] * 30)
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, index.location], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_damaged_source_file_is_named(index: OpenIndex, tmp_path: Path) -> None:
    path = tmp_path / "lake" / FILE
    data = path.read_bytes()
    forge(path, data[:-1] + b"x")
    with pytest.raises(DamagedSource) as caught:
        index.fetch(5)
    assert (caught.value.path, caught.value.offset) == (str(path), len(data) - 4)


def test_a_file_rewritten_in_place_while_it_is_read_gives_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key's page would have the old bytes, the value's page the new ones."""
    tables = [pa.table({"k": list(range(200)), "v": [f"{text}{i:03}" * 50 for i in range(200)]}) for text in "ab"]
    index = opened(tmp_path, {"a.parquet": tables[0]}, ["k"])
    write_source(tmp_path / "other", {"a.parquet": tables[1]})
    path, rewritten = tmp_path / "lake/a.parquet", (tmp_path / "other/a.parquet").read_bytes()
    assert len(rewritten) == path.stat().st_size
    read = LocalFile._read

    def read_and_rewrite(self: LocalFile, offset: int, length: int) -> bytes:
        data = read(self, offset, length)
        if self.name == str(path) and offset > 0:
            with path.open("r+b") as file:
                file.write(rewritten)
        return data

    assert open_index(index.location).fetch(7, ["v"]) == [{"v": "a007" * 50}]
    monkeypatch.setattr(LocalFile, "_read", read_and_rewrite)
    with pytest.raises(StalePointer, match=r"the file changed since it was indexed \(its time differs\)"):
        index.fetch(7, ["v"])


MOST_CALLS = 900  # of Python and C in a fetch of a known row of four columns


def numbered(rows: int) -> pa.Table:
    """Rows with flat columns of the usual types."""
    names = [f"https://a.example/{i}" for i in range(rows)]
    kinds = ["a", "b"] * (rows // 2)
    return pa.table({"n": range(rows), "url": names, "share": [i / 7 for i in range(rows)], "kind": kinds})


def test_a_row_of_known_pages_is_fetched_in_few_calls_and_without_arrow(tmp_path: Path) -> None:
    index = opened(tmp_path, {"p.parquet": numbered(2000)}, ["n"])
    wanted = index.fetch(7)
    for row in range(0, 2000, 100):
        index.fetch(row)
    calls: list[str] = []

    def note(frame: Any, event: str, called: Any) -> None:
        if event == "c_call":
            calls.append(f"{getattr(called, '__module__', None) or type(getattr(called, '__self__', None)).__module__}")
        elif event == "call":
            calls.append(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        found = index.fetch(7)
    finally:
        sys.setprofile(None)
    assert found == wanted == [{"n": 7, "url": "https://a.example/7", "share": 1.0, "kind": "b"}]
    if kernel.COMPILED:
        assert len(calls) <= MOST_CALLS
        assert not [name for name in calls if name.startswith(("pyarrow", "numpy"))]


def test_a_known_row_of_long_letters_counts_its_bytes(tmp_path: Path) -> None:
    rows = pa.table({"n": range(100), "text": ["\U0001f600" * 100] * 100})
    index = opened(tmp_path, {"p.parquet": rows}, ["n"])
    for _ in range(3):  # from the second time on the page is known
        with pytest.raises(BeyondBound):
            index.answer_many([7], ["text"], most_bytes=300)
        assert index.answer_many([7], ["text"], most_bytes=500)[0].rows == [{"text": "\U0001f600" * 100}]


@pytest.mark.parametrize("keys", [["n"], ["url"], ["n", "url"]])
def test_a_known_row_that_does_not_hold_its_key_is_refused(keys: list[str], tmp_path: Path) -> None:
    index = opened(tmp_path, {"p.parquet": numbered(2000)}, keys)
    for row in (7, 8):
        index.fetch(_key_of(row, keys))
    state = index._current.state
    [[own], [other]] = index.find([ParsedKey(_key_of(7, keys)), ParsedKey(_key_of(8, keys))], LookupStats())
    fetcher = state.required_fetcher()
    [part] = fetcher.parts([Located(own, _key_of(7, keys))], ["share"], FetchReads(), as_values=True)
    assert part.values is not None or not kernel.COMPILED
    with pytest.raises(StalePointer, match="row 8 does not hold the key it was indexed under"):
        list(fetcher.parts([Located(other, _key_of(7, keys))], ["share"], FetchReads(), as_values=True))


def _key_of(row: int, keys: list[str]) -> tuple[Any, ...]:
    values = {"n": row, "url": f"https://a.example/{row}"}
    return tuple(values[name] for name in keys)

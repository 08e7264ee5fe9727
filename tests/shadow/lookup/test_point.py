"""Keys to pointers: every covered row of a key, no row that is not covered, and no answer from a wrong file."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.btree.errors import DamagedIndexFile, KeyTypeError
from gnomon.shadow.errors import IndexFileGone, PartitionNotFound, UsageError
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import index_files, point
from gnomon.shadow.lookup.plan import ParsedKey, parse_key
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.sources import Pointer
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


def spec(*keys: KeyColumn) -> IndexSpec:
    return IndexSpec(Folder("/lake"), "parquet", ("dt",), keys, (), 4)


ONE = spec(KeyColumn("id", "int"))
TWO = spec(KeyColumn("a", "string"), KeyColumn("dt", "string", True), KeyColumn("b", "decimal(4,2)"))


@pytest.mark.parametrize("key", [7, "7", (7,), [7], {"id": 7}])
def test_a_one_column_key_is_taken_in_every_form(key: object) -> None:
    assert parse_key(key, ONE) == ParsedKey((7,))


@pytest.mark.parametrize("key", [("x", "2026", "1.50"), {"b": "1.5", "dt": 2026, "a": "x"}])
def test_a_composite_key_is_taken_in_key_order_or_by_name(key: object) -> None:
    assert parse_key(key, TWO) == ParsedKey(("x", 150), (("dt", "2026"),))


def test_nulls_stay_nulls() -> None:
    assert parse_key(None, ONE) == ParsedKey((None,))
    assert parse_key((None, None, None), TWO) == ParsedKey((None, None), (("dt", None),))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("x", "the key has 3 columns (a, dt, b); found 1 values"),
        (("x", 1), "found 2 values"),
        ({"a": 1}, "the key needs the columns a, dt, b; found a"),
        ({"a": 1, "dt": 1, "b": 1, "c": 1}, "found a, dt, b, c"),
        ({}, "found none"),
    ],
)
def test_a_key_of_another_shape_is_refused(key: object, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_key(key, TWO)


def test_a_value_of_another_type_names_its_column() -> None:
    with pytest.raises(KeyTypeError, match="key column id: expected int, found 'x'"):
        parse_key("x", ONE)


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int32())})


@pytest.fixture
def index(tmp_path: Path) -> OpenIndex:
    """Keys 0..9 in each of two partitions, 3 in one of them twice; a second segment adds a partition."""
    tables = {"dt=1/a.parquet": rows(*range(10), 3), "dt=2/a.parquet": rows(*range(10))}
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["id"])
    write_source(tmp_path / "lake", {"dt=1/b.parquet": rows(3), "dt=3/a.parquet": rows(3, 100)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"])
    return open_index(str(tmp_path / "index"))


def places(pointers: list[Pointer]) -> list[tuple[str, int]]:
    return [(pointer.data_filename, pointer.data_offset) for pointer in pointers]


def test_every_duplicate_is_found_by_partition_then_segment_then_row(index: OpenIndex) -> None:
    assert places(index.lookup(3)) == [
        ("dt=1/a.parquet", 3),
        ("dt=1/a.parquet", 10),
        ("dt=1/b.parquet", 0),
        ("dt=2/a.parquet", 3),
        ("dt=3/a.parquet", 0),
    ]


def test_a_partition_narrows_the_look_up(index: OpenIndex) -> None:
    assert places(index.lookup(3, where={"dt": 1})) == [
        ("dt=1/a.parquet", 3),
        ("dt=1/a.parquet", 10),
        ("dt=1/b.parquet", 0),
    ]
    assert places(index.lookup(3, where={"dt": ["2", 3]})) == [("dt=2/a.parquet", 3), ("dt=3/a.parquet", 0)]
    assert index.partitions_asked(3, {"dt": ["3", "2"]}) == ["dt=2", "dt=3"]
    for ask in (index.lookup, index.contains, index.get, index.fetch):
        with pytest.raises(PartitionNotFound, match="where: no partition has dt=4; dt has the values 1, 2, 3"):
            ask(3, where={"dt": "4"})
    assert index.contains(100)
    assert not index.contains(100, where={"dt": "1"})
    assert index.lookup(101) == []


def test_a_look_up_opens_one_bucket_and_opens_it_once(index: OpenIndex) -> None:
    first, second = FetchStats(), FetchStats()
    index.fetch(100, columns=[], where={"dt": "3"}, stats=first)
    index.fetch(100, columns=[], where={"dt": "3"}, stats=second)
    assert (first.index.reads, first.index.nodes) == (1, 1)
    assert (second.index.reads, second.index.nodes) == (0, 1)
    assert first.snapshot == 2


def files_of(index: OpenIndex, partition: str) -> list[Path]:
    return sorted((Path(index.location) / partition).glob("*.btree.avro"))


def outcome(index: OpenIndex, key: int, where: dict[str, object] | None = None) -> object:
    """The result of a look-up: the places of the rows, or the error."""
    try:
        return places(index.lookup(key, where))
    except (DamagedIndexFile, IndexFileGone) as error:
        return error


def some_keys_fail(index: OpenIndex, error: type[Exception], said: str) -> None:
    """Check that some key of partition 2 reaches the broken file, and that none is answered as absent."""
    outcomes = [outcome(index, key, {"dt": "2"}) for key in range(10)]
    failures = [one for one in outcomes if isinstance(one, Exception)]
    assert failures
    assert [] not in outcomes
    assert all(isinstance(failure, error) and said in str(failure) for failure in failures)


def test_a_missing_index_file_is_named(index: OpenIndex) -> None:
    path = files_of(index, "dt=2")[0]
    path.unlink()
    some_keys_fail(index, IndexFileGone, f"{path}: missing, though the snapshot names it")


@pytest.mark.parametrize("change", [-1, 1])
def test_an_index_file_cut_or_grown_is_named_with_the_place(index: OpenIndex, change: int) -> None:
    path = files_of(index, "dt=2")[0]
    data = path.read_bytes()
    path.write_bytes((data + b"x")[: len(data) + change])
    at = min(len(data), len(data) + change)
    some_keys_fail(
        index, DamagedIndexFile, f"{path} at byte {at}: expected {len(data)} bytes, found {len(data) + change}"
    )


def test_every_flipped_byte_of_a_small_index_file_is_noticed(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": rows(*range(50))})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], buckets=1)
    (path,) = (tmp_path / "index").glob("*.btree.avro")
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(DamagedIndexFile, match="expected CRC") as caught:
            open_index(str(tmp_path / "index")).contains(7)
        assert (caught.value.path, caught.value.offset) == (str(path), 0)


def swap(one: Path, other: Path) -> None:
    """Exchange the bytes of two files. Their sizes must be equal, so that only the content shows the exchange."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@pytest.fixture
def no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as for files that are too large to be read whole, whose CRC is not checked."""
    monkeypatch.setattr(index_files._IndexFile, "_is_sound", lambda file, data: True)


@pytest.mark.usefixtures("no_checksums")
def test_index_files_of_equal_size_that_changed_places_are_noticed(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"p=1/a.parquet": rows(7), "p=2/a.parquet": rows(8), "p=3/a.parquet": rows(7)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], buckets=64)
    one, two, three = (next((tmp_path / "index" / name).glob("*.avro")) for name in ("p=1", "p=2", "p=3"))
    assert one.stat().st_size == two.stat().st_size == three.stat().st_size
    for other, key in ((two, 8), (three, 7)):
        swap(one, other)
        with pytest.raises(DamagedIndexFile, match="not the index file of 1 entries that was written") as caught:
            open_index(str(tmp_path / "index")).lookup(key, where={"p": other.parent.name[2:]})
        assert (caught.value.path, caught.value.offset) == (str(other), 0)
        swap(one, other)
    assert open_index(str(tmp_path / "index")).lookup(8)


def test_an_index_file_of_an_index_with_other_columns_is_noticed(tmp_path: Path) -> None:
    for name, kind in (("a", pa.int32()), ("b", pa.int64())):
        write_source(tmp_path / name, {"f.parquet": pa.table({"id": pa.array([5], kind)})})
        index_source(tmp_path / name, tmp_path / f"{name}_index", ["id"], buckets=1)
    target, other = (next((tmp_path / f"{name}_index").glob("*.avro")) for name in ("a", "b"))
    target.write_bytes(other.read_bytes())
    with pytest.raises(DamagedIndexFile) as caught:
        open_index(str(tmp_path / "a_index")).lookup(5)
    assert caught.value.path == str(target)


def test_thousands_of_index_files_need_no_file_handles(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {f"p={i}/a.parquet": rows(1) for i in range(40)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], buckets=1)
    index = open_index(str(tmp_path / "index"))
    assert len(index.lookup(1)) == 40
    opened = [os.readlink(handle) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    assert [path for path in opened if path.startswith(str(tmp_path))] == []


def test_a_partition_column_of_the_key_names_the_partition(tmp_path: Path) -> None:
    write_source(
        tmp_path / "lake", {"c=DE/a.parquet": rows(1), "c=de/a.parquet": rows(1), "c=x%2Fy z/a.parquet": rows(1)}
    )
    index_source(tmp_path / "lake", tmp_path / "index", ["c", "id"])
    index = open_index(str(tmp_path / "index"))
    assert places(index.lookup(("DE", 1))) == [("c=DE/a.parquet", 0)]
    assert places(index.lookup({"id": 1, "c": "de"})) == [("c=de/a.parquet", 0)]
    assert places(index.lookup(("x/y z", 1))) == [("c=x%2Fy z/a.parquet", 0)]
    assert index.lookup(("De", 1)) == []
    assert index.lookup(("DE", 1), where={"c": "de"}) == []
    assert index.lookup(("DE", 1), where={"c": "DE"}) != []
    assert index.partitions_asked(("DE", 1), {"c": "de"}) == []


def test_partitions_that_exist_but_not_together_are_said(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"c=de/h=07/a.parquet": rows(1), "c=fr/h=08/a.parquet": rows(1)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"])
    index = open_index(str(tmp_path / "index"))
    assert places(index.lookup(1, where={"c": "de", "h": 7})) == [("c=de/h=07/a.parquet", 0)]
    with pytest.raises(PartitionNotFound, match="where: no partition has c=de and h=8 together"):
        index.lookup(1, where={"c": "de", "h": 8})


def test_hives_null_partition_is_asked_for_as_none_or_by_its_name(tmp_path: Path) -> None:
    null = "p=__HIVE_DEFAULT_PARTITION__/a.parquet"
    write_source(tmp_path / "lake", {null: rows(1), "p=/a.parquet": rows(1), "p=None/a.parquet": rows(1)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"])
    index = open_index(str(tmp_path / "index"))
    assert places(index.lookup(1, where={"p": None})) == [(null, 0)]
    assert places(index.lookup(1, where={"p": "__HIVE_DEFAULT_PARTITION__"})) == [(null, 0)]
    assert places(index.lookup(1, where={"p": ""})) == [("p=/a.parquet", 0)]
    assert [row["p"] for row in index.fetch(1)] == ["", "None", None]


@pytest.mark.skipif(not kernel.COMPILED, reason="the loops in Python make more calls")
def test_a_look_up_of_one_key_in_memory_makes_few_calls(tmp_path: Path) -> None:
    """Calls of Python functions, which say more of the time of a look-up than a clock does on a busy machine."""
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"id": pa.array(range(60_000), pa.int64())})})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], buckets=2)
    index = open_index(str(tmp_path / "index"))

    def calls(ask: Callable[[int], object], key: int) -> int:
        ask(key)
        counted = Counter[str]()
        sys.setprofile(lambda frame, event, of: counted.update([event]))
        try:
            ask(key)
        finally:
            sys.setprofile(None)
        return counted["call"]

    absent = [60_000 + number for number in range(20)]
    assert not any(index.contains(key) for key in absent)  # so that filters pay, and are in memory
    keys = range(1, 60_000, 1777)
    assert median(calls(index.contains, key) for key in keys) <= 100
    assert median(calls(index.lookup, key) for key in keys) <= 100
    assert median(calls(index.contains, key) for key in absent) <= 55


@pytest.mark.parametrize("flat", [True, False], ids=["flat", "partitioned"])
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_many_keys_have_the_hits_that_each_has_alone(
    flat: bool, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(3)
    for day in (1, 2, 3):
        ids = [dice.choice([None, *range(400)]) for _ in range(900)]
        rows = {"id": pa.array(ids, pa.int64()), "name": [f"n{(one or 0) % 3}" for one in ids], "x": range(900)}
        write_source(tmp_path / "lake", {f"dt=2026-01-0{day}/a.parquet": pa.table(rows)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id", "name"], include=["x"], buckets=2, flat=flat)
    index = open_index(str(tmp_path / "index"))
    wanted = [(dice.choice([None, *range(500)]), f"n{dice.randrange(4)}") for _ in range(600)]  # some several times
    for where in (None, {"dt": "2026-01-02"}, {"dt": ["2026-01-01", "2026-01-03"]}):
        answers = []
        for many in (1, 1 << 60):
            monkeypatch.setattr(point, "MANY", many)
            answers.append(index.answer_many(wanted, where=where, limit=limit))
        assert answers[0] == answers[1]
        assert sum(answer.count for answer in answers[0]) > 100

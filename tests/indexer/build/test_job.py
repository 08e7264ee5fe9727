"""The build job on small sources."""

import datetime as dt
import decimal
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon import shadow
from gnomon.btree import BTreeError, BTreeReader, bucket_of
from gnomon.btree.keys import key_array
from gnomon.indexer import build
from gnomon.shadow.errors import SourceNotFound, UnknownColumn, UnsupportedFormat
from gnomon.shadow.storage import storage_at
from tests.opened import open_index

build_module = importlib.import_module("gnomon.jobs.build.job")  # `gnomon.jobs.build.job` is the function


def pages(begin: int, end: int) -> pa.Table:
    numbers = range(begin, end)
    return pa.table(
        {
            "url": [f"https://example.org/{i}/é?q=%20" for i in numbers],
            "n": pa.array(numbers, pa.int64()),
            "html": [f"<p>page {i}</p>" * 20 for i in numbers],
        }
    )


def write(root: Path, path: str, table: pa.Table, **options: object) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / path, **options)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    write(root, "dt=2026-01-01/a.parquet", pages(0, 300))
    write(root, "dt=2026-01-01/b.parquet", pages(300, 400))
    write(root, "dt=2026-01-02/a.parquet", pages(350, 500), write_page_index=True)
    (root / "_SUCCESS").touch()
    return root


def test_every_row_is_found_by_its_key_and_no_other(source: Path, tmp_path: Path) -> None:
    result = build(None, str(source), str(tmp_path / "index"), ["url"])
    assert (result.snapshot, result.rows_indexed, result.rows, result.new_files) == (1, 550, 550, 3)
    index = open_index(str(tmp_path / "index"))
    keys = [f"https://example.org/{i}/é?q=%20" for i in range(510)]
    for i, rows in enumerate(index.fetch_many(keys)):
        days = ["2026-01-01"] * (i < 400) + ["2026-01-02"] * (350 <= i < 500)
        assert [row["dt"] for row in rows] == days
        assert all(row["n"] == i and row["html"] == f"<p>page {i}</p>" * 20 for row in rows)


def test_a_second_build_does_nothing_and_a_new_partition_is_all_that_is_indexed(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    build(None, str(source), location, ["url"])
    again = build(None, str(source), location, ["url"])
    assert not again.committed
    assert (again.snapshot, again.rows_indexed) == (1, 0)
    write(source, "dt=2026-01-03/a.parquet", pages(500, 600))
    before = set((tmp_path / "index").rglob("*.btree.avro"))
    third = build(None, str(source), location, ["url"])
    assert (third.snapshot, third.new_files, third.rows_indexed, third.rows) == (2, 1, 100, 650)
    fresh = set((tmp_path / "index").rglob("*.btree.avro")) - before
    assert {path.parent.name for path in fresh} == {"dt=2026-01-03"}
    assert open_index(location).fetch("https://example.org/599/é?q=%20", ["n"]) == [{"n": 599}]


def test_a_lost_spec_is_an_error_until_the_next_build_puts_it_back(source: Path, tmp_path: Path) -> None:
    index, spec = str(tmp_path / "index"), tmp_path / "index/_shadow/spec.json"
    build(None, str(source), index, ["url"])
    written = spec.read_bytes()
    for lose in (spec.unlink, lambda: spec.write_bytes(written.replace(b"url", b"urk"))):
        lose()
        with pytest.raises(shadow.DamagedMetadata, match=r"_shadow/spec\.json"):
            open_index(index)
        assert not build(None, str(source), index, ["url"]).committed
        assert spec.read_bytes() == written
        assert open_index(index).view.snapshot.number == 1


def test_a_damaged_index_is_mended_by_a_full_build_and_by_nothing_else(source: Path, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    first = build(None, str(source), index, ["url"], include=["n"])
    for path in (tmp_path / "index").rglob("*.btree.avro"):
        path.write_bytes(path.read_bytes()[:-1])
    assert not build(None, str(source), index, ["url"], include=["n"]).committed
    with pytest.raises(shadow.DamagedIndexFile):
        open_index(index).lookup("https://example.org/99/é?q=%20")
    with pytest.raises(shadow.SpecMismatch):
        build(None, str(source), index, ["n"], full=True)
    result = build(None, str(source), index, ["url"], include=["n"], full=True)
    assert (result.snapshot, result.rows, result.new_files) == (2, first.rows, first.new_files)
    assert open_index(index).fetch("https://example.org/99/é?q=%20", ["n"]) == [{"n": 99}]


def test_a_copy_whose_new_files_do_not_fit_is_not_taken_over(source: Path, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    build(None, str(source), index, ["url"])
    shutil.copytree(source, tmp_path / "copy")
    write(tmp_path / "copy", "dt=2026-02-01/new.parquet", pa.table({"url": [1, 2]}))
    with pytest.raises(shadow.UsageError, match="column url is int64, elsewhere in the source it is string"):
        build(None, str(tmp_path / "copy"), index, ["url"], adopt=True)
    assert open_index(index).view.snapshot.number == 1
    with pytest.raises(shadow.SpecMismatch, match="or say --adopt where SOURCE is a copy"):
        build(None, str(tmp_path / "copy"), index, ["url"])


def test_a_changed_file_is_indexed_anew_and_a_vanished_one_dropped(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    build(None, str(source), location, ["url"])
    write(source, "dt=2026-01-02/a.parquet", pages(1000, 1010))
    (source / "dt=2026-01-01/b.parquet").unlink()
    result = build(None, str(source), location, ["url"])
    assert (result.changed_files, result.vanished_files, result.rows) == (1, 1, 310)
    index = open_index(location)
    assert index.fetch("https://example.org/450/é?q=%20") == []
    assert index.fetch("https://example.org/350/é?q=%20") == []
    assert [row["n"] for row in index.fetch("https://example.org/1005/é?q=%20")] == [1005]
    assert index.coverage().is_empty


def test_entries_lie_in_the_bucket_of_their_key_and_in_order(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    assert build(None, str(source), location, ["url"], buckets=7).index_files == 14
    view = open_index(location).view
    storage = storage_at(location)
    seen = 0
    for entry in view.segments[0].index_files:
        assert entry.path.endswith(f"_{entry.bucket:05d}.btree.avro")
        with storage.open(entry.path) as reader:
            keys = [key for key, _ in BTreeReader(reader).scan()]
        assert keys == sorted(keys)
        assert {bucket_of(key, ("string",), 7) for key in keys} == {entry.bucket}
        seen += len(keys)
    assert seen == 550


def test_keys_of_every_type_spark_knows_come_back(tmp_path: Path) -> None:
    rows = 64
    columns = {
        "boolean": pa.array([i % 3 == 0 for i in range(rows)]),
        "tinyint": pa.array([i - 30 for i in range(rows)], pa.int8()),
        "smallint": pa.array([i * 500 - 9000 for i in range(rows)], pa.int16()),
        "int": pa.array([i * 10**7 - 10**8 for i in range(rows)], pa.int32()),
        "bigint": pa.array([i * 10**17 - 10**18 for i in range(rows)], pa.int64()),
        "float": pa.array([i / 3 - 5 for i in range(rows - 2)] + [float("nan"), -0.0], pa.float32()),
        "double": pa.array([i / 7 - 5 for i in range(rows - 2)] + [float("nan"), -0.0], pa.float64()),
        "date": pa.array([dt.date(1900 + i * 3, 2, 3) for i in range(rows)]),
        "timestamp": pa.array(
            [dt.datetime(1930 + i, 2, 3, 4, 5, 6, 7) for i in range(rows)], pa.timestamp("us", "UTC")
        ),
        "timestamp_ntz": pa.array([dt.datetime(1930 + i, 2, 3, 4, 5, 6, 7) for i in range(rows)], pa.timestamp("us")),
        "decimal": pa.array([decimal.Decimal(i * 1001 - 30000) / 100 for i in range(rows)], pa.decimal128(12, 2)),
        "wide": pa.array([decimal.Decimal(i - 20) * 10**20 for i in range(rows)], pa.decimal128(30, 3)),
        "binary": pa.array([bytes([i, 255 - i]) * (i % 5) for i in range(rows)]),
        "string": pa.array([None if i == 9 else chr(0x1F600 + i) * (i % 4) for i in range(rows)]),
    }
    table = pa.table({**columns, "n": pa.array(range(rows))})
    write(tmp_path / "source", "all.parquet", table)
    for name in columns:
        location = str(tmp_path / f"index-{name}")
        build(None, str(tmp_path / "source"), location, [name, "n"], buckets=3)
        index = open_index(location)
        values = table.column(name).to_pylist()
        found = index.fetch_many([(value, i) for i, value in enumerate(values)], ["n"])
        assert found == [[{"n": i}] for i in range(rows)], name


def test_composite_keys_may_name_a_partition_column(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    build(None, str(source), location, ["dt", "n", "url"])
    index = open_index(location)
    url = "https://example.org/360/é?q=%20"
    assert [row["dt"] for row in index.fetch({"dt": "2026-01-02", "n": 360, "url": url})] == ["2026-01-02"]
    assert [row["dt"] for row in index.fetch(("2026-01-01", 360, url))] == ["2026-01-01"]
    assert index.fetch(("2026-01-03", 360, url)) == []
    assert index.fetch(("2026-01-01", 361, url)) == []


def test_included_columns_stand_in_the_index(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    build(None, str(source), location, ["url"], include=["n"])
    with storage_at(location).open(open_index(location).view.segments[0].index_files[0].path) as reader:
        tree = BTreeReader(reader)
        assert tree.schema.values[0].name == "n"
        assert all(key[0] == f"https://example.org/{value[0]}/é?q=%20" for key, value in tree.scan())


def test_one_file_is_a_source_without_partition_columns(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    assert build(None, str(source / "dt=2026-01-01/b.parquet"), location, ["n"]).rows == 100
    assert sorted(open_index(location).fetch(310)[0]) == ["html", "n", "url"]


def test_paths_with_odd_characters_are_read(tmp_path: Path) -> None:
    root = tmp_path / "a [b] {c} %20 é + & #"
    write(root, "name=x%2Fy z/part [1] {2} é%41.parquet", pages(0, 50))
    write(root, "name=__HIVE_DEFAULT_PARTITION__/p.parquet", pages(50, 60))
    location = str(tmp_path / "index")
    assert build(None, str(root), location, ["n"]).rows == 60
    index = open_index(location)
    assert index.fetch(7, ["name"]) == [{"name": "x/y z"}]
    assert index.fetch(7, ["n"], {"name": "x/y z"}) == [{"n": 7}]
    assert index.fetch(55, ["name"]) == [{"name": None}]


def test_column_names_that_avro_cannot_hold_are_kept(tmp_path: Path) -> None:
    names = ["user id", "a.b", "back`tick", "metadata", "data_offset", "ключ"]
    table = pa.table({name: [f"{name} {i}" for i in range(20)] for name in names})
    write(tmp_path / "source", "p.parquet", table)
    for name in names:
        location = str(tmp_path / f"index-{names.index(name)}")
        build(None, str(tmp_path / "source"), location, [name])
        assert open_index(location).fetch(f"{name} 7")[0] == {other: f"{other} 7" for other in names}


def test_columns_spark_cannot_read_do_no_harm(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b"],
            "time": pa.array([1, 2], pa.time64("ns")),
            "half": pa.array([1.0, 2.5]).cast(pa.float16()),
            "unsigned": pa.array([1, 2**64 - 1], pa.uint64()),
        }
    )
    write(tmp_path / "source", "p.parquet", table)
    location = str(tmp_path / "index")
    build(None, str(tmp_path / "source"), location, ["k"])
    assert open_index(location).fetch("b", ["unsigned", "half"]) == [{"unsigned": 2**64 - 1, "half": 2.5}]


def test_a_file_without_the_key_column_has_null_keys(source: Path, tmp_path: Path) -> None:
    write(source, "dt=2026-01-02/c.parquet", pages(0, 5).drop_columns(["url"]))
    location = str(tmp_path / "index")
    assert build(None, str(source), location, ["url"]).rows == 555
    rows = open_index(location).fetch({"url": None})
    assert sorted(row["n"] for row in rows) == [0, 1, 2, 3, 4]
    assert all(row["url"] is None for row in rows)


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda root: [path.unlink() for path in root.rglob("*.parquet")], SourceNotFound, "no data files"),
        (lambda root: (root / "dt=2026-01-01/b.parquet").write_bytes(b"no"), shadow.SourceError, "b.parquet"),
        (
            lambda root: (root / "dt=2026-01-01/b.parquet").write_bytes(b""),
            SourceNotFound,
            "a file of no bytes is none",
        ),
        (
            lambda root: (root / "dt=2026-01-01/b.parquet").write_bytes(b"a,b\n1,2\n" * 9),
            UnsupportedFormat,
            "b.parquet",
        ),
        (lambda root: cut(root / "dt=2026-01-01/b.parquet"), shadow.SourceError, "b.parquet"),
        (lambda root: write(root, "x/p.parquet", pages(0, 1)), SourceNotFound, "partition columns"),
    ],
    ids=["empty", "short", "zero bytes", "not parquet", "truncated", "mixed folders"],
)
def test_a_bad_source_is_refused_and_leaves_nothing_a_later_build_trips_over(
    source: Path, tmp_path: Path, spoil: object, error: type[Exception], says: str
) -> None:
    good = tmp_path / "good"
    source.rename(good)
    write(source, "dt=2026-01-01/b.parquet", pages(0, 10))
    spoil(source)
    location = str(tmp_path / "index")
    with pytest.raises(error, match=says):
        build(None, str(source), location, ["url"])
    assert build(None, str(good), location, ["n"]).rows == 550


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_wrong_requests_are_refused(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    with pytest.raises(UnknownColumn, match=r"no column link; it has url, n, html, dt"):
        build(None, str(source), location, ["link"])
    with pytest.raises(shadow.UsageError, match="partition columns alone"):
        build(None, str(source), location, ["dt"])
    with pytest.raises(SourceNotFound, match="no such file or folder"):
        build(None, str(tmp_path / "nowhere"), location, ["url"])
    assert not (tmp_path / "index").exists()
    build(None, str(source), location, ["url"])
    with pytest.raises(shadow.SpecMismatch, match=r"keys: url string.* in the index, n asked for"):
        build(None, str(source), location, ["n"])
    with pytest.raises(shadow.SpecMismatch, match="buckets: 1 in the index, 9 asked for"):
        build(None, str(source), location, ["url"], buckets=9)


def test_a_file_whose_key_has_another_type_is_refused(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    build(None, str(source), location, ["n"])
    write(source, "dt=2026-01-02/c.parquet", pa.table({"n": pa.array([1], pa.int32())}))
    with pytest.raises(shadow.UsageError, match=r"c.parquet: column n is int32, elsewhere in the source it is bigint"):
        build(None, str(source), location, ["n"])


def test_what_spark_would_mix_up_is_refused(source: Path, tmp_path: Path) -> None:
    write(source, "dt=2026-01-02/c.parquet", pages(0, 5).rename_columns(["URL", "n", "html"]))
    with pytest.raises(shadow.UsageError, match=r"c.parquet: column URL differs from url in case only"):
        build(None, str(source), str(tmp_path / "index"), ["url"])
    write(tmp_path / "odd", "p.parquet", pa.table({"_metadata": [1]}))
    with pytest.raises(shadow.UsageError, match="column _metadata: Spark or Gnomon uses this name"):
        build(None, str(tmp_path / "odd"), str(tmp_path / "index"), ["_metadata"])


def test_payload_columns_that_differ_in_case_only_between_files_are_refused(tmp_path: Path) -> None:
    lake, index = tmp_path / "lake", str(tmp_path / "index")
    write(lake, "a.parquet", pa.table({"id": [1], "v": ["a"]}))
    write(lake, "c.parquet", pa.table({"id": [3]}))
    build(None, str(lake), index, ["id"])
    write(lake, "b.parquet", pa.table({"id": [2], "V": ["b"]}))
    for again in (index, str(tmp_path / "other")):
        with pytest.raises(shadow.UsageError, match=r"b.parquet: column V differs from v, which other files have, in"):
            build(None, str(lake), again, ["id"])
    write(lake, "a.parquet", pa.table({"id": [1], "V": ["a"]}))
    with pytest.raises(shadow.UsageError, match="or say --full if no file has that name any more"):
        build(None, str(lake), index, ["id"])
    assert build(None, str(lake), index, ["id"], full=True).rows == 3
    write(lake, "b.parquet", pa.table({"id": [2], "v": ["b"], "V": ["c"]}))  # two columns
    build(None, str(lake), str(tmp_path / "both"), ["id"])
    assert open_index(str(tmp_path / "both")).fetch(2) == [{"id": 2, "v": "b", "V": "c"}]


def test_a_name_that_columns_share_means_the_first_also_as_a_key_and_when_included(tmp_path: Path) -> None:
    arrays = [pa.array([1, 2]), pa.array([4, 5]), pa.array(["x", "y"])]
    write(tmp_path / "lake", "a.parquet", pa.Table.from_arrays(arrays, names=["id", "id", "name"]))
    for keys, include, key in ((["id"], [], 2), (["name"], ["id"], "y")):
        index = str(tmp_path / f"by {keys}")
        build(None, str(tmp_path / "lake"), index, keys, include=include)
        assert open_index(index).fetch(key) == [{"id": 2, "name": "y"}]


def test_a_decimal_of_more_digits_than_its_type_is_refused_with_file_and_column(tmp_path: Path) -> None:
    """pandas once wrote such files. The bytes of the source are wrong, not those of the index."""
    wide = pa.array([decimal.Decimal("12345.67")], pa.decimal128(38, 2))
    too_wide = pa.Array.from_buffers(pa.decimal128(4, 2), 1, wide.buffers())
    with pytest.raises(BTreeError, match=r"column price: a value has more digits than its type; expected decimal\(4,2"):
        key_array(too_wide, "decimal(4,2)", "price")
    write(tmp_path / "lake", "a.parquet", pa.table({"price": too_wide, "v": [1]}))
    with pytest.raises(UnsupportedFormat, match=r"a.parquet: column price: cannot be indexed: a value has more digits"):
        build(None, str(tmp_path / "lake"), str(tmp_path / "index"), ["price"])


def test_an_index_lies_in_a_folder_outside_of_its_source(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    for source_path, index in ((source, source / "index"), (tmp_path / "link", source / "index")):
        with pytest.raises(shadow.UsageError, match="the index would lie among the files of its source"):
            build(None, str(source_path), str(index), ["url"])
    (tmp_path / "file").touch()
    for index in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(shadow.ShadowError, match="expected a folder for the index"):
            build(None, str(source), str(index), ["url"])
    with pytest.raises(shadow.UsageError, match="an empty path"):
        build(None, "", str(tmp_path / "index"), ["url"])


def test_what_happens_to_the_source_meanwhile_is_refused_or_left_to_the_next_build(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that vanishes after the listing, or vanishes or changes during the scan: nothing is committed. A partition
    that is added during the build is reported as not covered; the next build indexes only it."""
    location = str(tmp_path / "index")
    file = source / "dt=2026-01-02/a.parquet"
    sound = file.read_bytes()

    def meanwhile(step: str, what: Callable[[], object]) -> None:
        real = getattr(build_module, step)
        monkeypatch.setattr(build_module, step, lambda *given: (what(), real(*given))[1])

    for step, what, says in (
        ("describe", file.unlink, "vanished while the source was listed"),
        ("describe", lambda: file.write_bytes(sound + b" "), "changed while the source was listed"),
        ("check_unchanged", file.unlink, "changed while it was being indexed"),
        ("check_unchanged", lambda: write(source, "dt=2026-01-02/a.parquet", pages(0, 9)), "while it was being"),
    ):
        meanwhile(step, what)
        with pytest.raises(shadow.StalePointer, match=says):
            build(None, str(source), location, ["url"])
        monkeypatch.undo()
        file.write_bytes(sound)
        assert not (tmp_path / "index/_shadow/snapshots").exists()
    meanwhile("check_unchanged", lambda: write(source, "dt=2026-01-03/a.parquet", pages(900, 950)))
    assert build(None, str(source), location, ["url"]).rows == 550
    monkeypatch.undo()
    assert [info.path for info in open_index(location).coverage().new] == ["dt=2026-01-03/a.parquet"]
    result = build(None, str(source), location, ["url"])
    assert (result.new_files, result.rows_indexed, result.rows) == (1, 50, 600)


def test_partition_values_with_escaped_characters_and_empty_partitions(tmp_path: Path) -> None:
    odd = ["a%2Fb", "x%3D1", "ü ß", "%25", "__HIVE_DEFAULT_PARTITION__", "2026-01-01 10%3A00"]
    source, location = tmp_path / "source", str(tmp_path / "index")
    for i, value in enumerate(odd):
        write(source, f"p={value}/a.parquet", pages(10 * i, 10 * i + 10))
    write(source, "p=nothing/a.parquet", pages(0, 1).slice(1))
    (source / "p=folder").mkdir()
    assert build(None, str(source), location, ["url"]).rows == 60
    index = open_index(location)
    shown = [row["p"] for i in range(6) for row in index.fetch(f"https://example.org/{10 * i}/é?q=%20")]
    assert shown == ["a/b", "x=1", "ü ß", "%", None, "2026-01-01 10:00"]
    assert index.fetch("https://example.org/0/é?q=%20", where={"p": "a/b"})[0]["n"] == 0
    assert index.coverage().is_empty


def test_a_flat_index_is_one_set_of_buckets_over_all_partitions(source: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    assert build(None, str(source), location, ["url"], include=["n"], buckets=3, flat=True).index_files == 3
    index = open_index(location)
    for i in (0, 299, 360, 499):
        days = ["2026-01-01"] * (i < 400) + ["2026-01-02"] * (350 <= i < 500)
        assert [row["dt"] for row in index.fetch(f"https://example.org/{i}/é?q=%20")] == days
    key = "https://example.org/360/é?q=%20"
    assert [row["n"] for row in index.fetch(key, where={"dt": "2026-01-02"})] == [360]
    entries = [dict(zip(("n", "dt"), value[:2], strict=True)) for value in _values(tmp_path / "index")]
    assert {entry["dt"] for entry in entries} == {"2026-01-01", "2026-01-02"}
    write(source, "dt=__HIVE_DEFAULT_PARTITION__/a.parquet", pages(900, 910))
    assert build(None, str(source), location, ["url"], include=["n"]).rows == 560
    assert {value[1] for value in _values(tmp_path / "index")} == {"2026-01-01", "2026-01-02", None}
    with pytest.raises(shadow.SpecMismatch, match="layout: flat in the index, partitioned asked for"):
        build(None, str(source), location, ["url"], include=["n"], flat=False)


def _values(index: Path) -> list[tuple[object, ...]]:
    storage = storage_at(str(index))
    trees = [BTreeReader(storage.open(path.name)) for path in index.glob("*.btree.avro")]
    return [value for tree in trees for _, value in tree.scan()]

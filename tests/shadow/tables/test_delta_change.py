"""Rows of a Delta table are deleted in one commit, which others can read, and which loses no other commit's rows."""

import base64
import json
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

import gnomon
from gnomon.shadow.errors import StorageError, TableChanged, UsageError
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.tables import NewFile, TableCommit, append_target, commit_to_table
from gnomon.shadow.tables.delta import READ_BY_DELTALAKE, count_rows, read_content
from gnomon.shadow.tables.delta_change import check_deletes, clear_attempts, commit_change
from gnomon.shadow.tables.delta_log import read_adds, read_vectors, vector_file, with_wide_bounds
from gnomon.shadow.tables.lake_append import Change, Deleted
from tests.golden.tables import TABLES, Table

VECTORS = {"delta.enableDeletionVectors": "true"}
Find = Callable[[], Deleted]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make(tmp_path / "t", VECTORS)


def make(path: Path, properties: dict[str, str] | None = None, partition_by: list[str] | None = None) -> Path:
    """A table of 300 rows in three commits."""
    for first in (0, 100, 200):
        ids = range(first, first + 100)
        rows = pa.table({"id": ids, "k": [f"k{i % 2}" for i in ids], "text": [f"t{i}" for i in ids]})
        write_deltalake(str(path), rows, mode="append", partition_by=partition_by, configuration=properties)
        properties = None
    return path


def planned(table: Path, number: int = 1, writer: str = "w") -> TableCommit:
    return TableCommit(f"delta:{table}", read_content(str(table), None).version.uuid, writer, number, ())


def ids(table: Path, version: int | None = None) -> list[int]:
    opened = DeltaTable(str(table), version=version)
    found = QueryBuilder().register("t", opened).execute("select id from t order by id").read_all()
    return pa.table(found)["id"].to_pylist()


def finds(table: Path, wanted: Iterable[int]) -> Find:
    """Looks ids up in the files of the newest version, without the help of an index."""

    def look() -> Deleted:
        content = read_content(str(table), None)
        dead, hits = content.deleted(), dict[str, BitMap64]()
        for path in content.files:
            listed = pq.ParquetFile(table / path).read(columns=["id"])["id"].to_pylist()
            rows = BitMap64([row for row, one in enumerate(listed) if one in set(wanted)]) - dead.get(path, BitMap64())
            if rows:
                hits[path] = rows
        return Deleted(content.version, hits)

    return look


def delete(table: Path, wanted: Iterable[int], number: int = 1) -> Change | None:
    return commit_change(str(table), planned(table, number), [], finds(table, wanted))


def log_of(table: Path, version: int) -> Path:
    return table / f"_delta_log/{version:020d}.json"


def actions(table: Path, version: int, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log_of(table, version).read_text().splitlines()]
    return [line[kind] for line in lines if line.get(kind)]


def change_log(table: Path, change: Callable[[dict[str, Any]], None], version: int = 0) -> None:
    """Change the actions of a version in place."""
    lines = [json.loads(line) for line in log_of(table, version).read_text().splitlines()]
    for line in lines:
        change(line)
    log_of(table, version).write_text("\n".join(map(json.dumps, lines)))


def put_properties(
    table: Path, features: list[str], properties: dict[str, str], readers: list[str] | None = None
) -> None:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
            if readers is not None:
                action["protocol"].update(minReaderVersion=3, readerFeatures=readers)
        if "metaData" in action:
            action["metaData"]["configuration"].update(properties)

    change_log(table, change)


def own_files(table: Path) -> list[Path]:
    """The files that attempts wrote."""
    return sorted(path for path in table.glob("gnomon*/**/*") if path.is_file())


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [None, ["k"]])
@pytest.mark.parametrize("properties", [VECTORS, {}])
def test_deleted_rows_are_gone_for_all_readers_and_stay_at_older_versions(
    tmp_path: Path, properties: dict[str, str], partition_by: list[str] | None
) -> None:
    table = make(tmp_path / "t", {**properties, "delta.checkpointInterval": "2"}, partition_by)
    assert check_deletes(str(table)) == ("deletion vectors" if properties else "copy-on-write")
    live, states = set(range(300)), {2: set(range(300))}
    for number, wanted in enumerate([{5}, set(range(0, 120, 7)), set(range(100)), {0, 250, 299}, set()], 1):
        gone = wanted & live
        change = delete(table, wanted, number)
        live -= gone
        states[2 + number] = set(live)
        assert change.rows == len(gone)
        assert delete(table, live, number) is None, "a number is committed once"
        clear_attempts(str(table), planned(table, number))
        assert polars.scan_delta(str(table)).select("id").collect()["id"].sort().to_list() == sorted(live)
        gnomon.build(None, f"delta:{table}", str(tmp_path / "index"), keys=["id"])
        index = gnomon.open_index(str(tmp_path / "index"), newest=True)
        assert {i for i in range(300) if index.lookup(i)} == live
    for version, rows in states.items():
        assert ids(table, version) == sorted(rows)
    assert list((table / "_delta_log").glob("*.checkpoint.parquet")), "checkpoints at each second version"
    texts = polars.scan_delta(str(table)).collect().sort("id").rows()
    assert sorted(texts) == sorted((i, f"k{i % 2}", f"t{i}") for i in live)


def test_escaped_names_of_partitions_and_of_the_table_are_followed(tmp_path: Path) -> None:
    table = tmp_path / "t é 100%25"
    for properties in (VECTORS, {}):
        rows = pa.table({"id": [1, 2, 3, 4], "k": ["a b", "c%20d", "a b", None]})
        write_deltalake(str(tmp_path / "made"), rows, partition_by=["k"], configuration=properties)
        shutil.move(tmp_path / "made", table)
        assert delete(table, [1, 4]).rows == 2
        assert read_content(str(table), None).files.keys() == {
            path for path in read_content(str(table), None).files if (table / path).exists()
        }
        shutil.move(table, tmp_path / "made")  # deltalake does not read the other name
        assert ids(tmp_path / "made") == [2, 3]
        shutil.rmtree(tmp_path / "made")


def test_files_are_added_by_the_commit_that_deletes(table: Path) -> None:
    target = append_target(f"delta:{table}", {})
    pq.write_table(pa.table({"id": [5, 1000], "k": ["x", "y"], "text": ["new", "new"]}), table / "new 1%.parquet")
    file = NewFile("new 1%.parquet", (table / "new 1%.parquet").stat().st_size, 2, "")
    assert commit_change(str(table), planned(table), [file], finds(table, [5]))[:2] == (1, 1)
    assert ids(table) == [*range(5), *range(5, 300), 1000]
    assert [one["operation"] for one in actions(table, 3, "commitInfo")] == ["MERGE"]
    commit_to_table(planned(table, 2), [])
    assert target.uuid == planned(table).uuid


def test_a_file_goes_only_if_its_own_footer_says_that_no_row_stays(table: Path) -> None:
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["stats"] = json.dumps({"numRecords": 3})

    change_log(table, change)
    delete(table, range(3))
    assert ids(table) == list(range(3, 300))
    delete(table, range(100), 2)
    assert ids(table) == list(range(100, 300))
    assert len(read_content(str(table), None).files) == 2


def test_a_vector_that_the_table_may_not_renew_is_rewritten_into_the_file(table: Path) -> None:
    delete(table, [1, 2])
    DeltaTable(str(table)).alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    assert check_deletes(str(table)) == "copy-on-write"
    assert delete(table, [3], 2)[:2] == (1, 1)
    assert ids(table) == [0, *range(4, 300)]
    assert not [one for one in actions(table, 5, "add") if one.get("deletionVector")]


def test_a_data_file_elsewhere_gets_its_vector_in_this_table(tmp_path: Path, table: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(table / "_delta_log", clone / "_delta_log")
    for version in range(3):

        def change(action: dict[str, Any]) -> None:
            if "add" in action:
                action["add"]["path"] = f"file://{table}/{action['add']['path']}"

        change_log(clone, change, version)
    hits = {path: BitMap64([0]) for path in read_content(str(clone), None).files}
    found = Deleted(read_content(str(clone), None).version, hits)
    assert commit_change(str(clone), planned(clone), [], lambda: found)[:2] == (3, 3)
    assert ids(clone) == [i for i in range(300) if i % 100]
    assert ids(table) == list(range(300))
    assert len(own_files(clone)) == 1
    assert not own_files(table)


REFUSED = {"delta_changes", "delta_widened"}  # change files; deltalake does not read vectors of widened columns
TABLES_OF_SPARK = [one for one in TABLES if one.format == "delta" and one.name not in REFUSED]


@pytest.mark.parametrize("of_spark", TABLES_OF_SPARK, ids=str)
def test_a_table_of_spark_loses_only_the_rows_that_are_deleted(tmp_path: Path, of_spark: Table) -> None:
    """The vectors of Spark stay, whatever the columns are named in the files, and the forms of the checkpoints."""
    table = tmp_path / "t"
    shutil.copytree(of_spark.path, table)
    before, hits = rows_in_files(table), dict[str, BitMap64]()
    for number, (path, rows) in enumerate(sorted(before.items())):
        if taken := sorted(rows)[::2] if number % 3 else sorted(rows)[:1]:
            hits[path] = BitMap64(taken)
    found = Deleted(read_content(str(table), None).version, hits)
    change = commit_change(str(table), planned(table), [], lambda: found)
    assert change.rows == sum(map(len, hits.values()))
    expected = [
        row for path, rows in before.items() for number, row in rows.items() if number not in hits.get(path, ())
    ]
    assert sorted(row for rows in rows_in_files(table).values() for row in rows.values()) == sorted(expected)
    found_rows = QueryBuilder().register("t", DeltaTable(str(table))).execute("select count(*) from t").read_all()
    assert pa.table(found_rows).column(0)[0].as_py() == len(expected)


def rows_in_files(table: Path) -> dict[str, dict[int, str]]:
    """The live rows of each file by their ordinals, with the columns that are in the file."""
    content = read_content(str(table), None)
    dead = content.deleted()
    return {
        path: {
            number: f"{content.files[path].partition} {row}"
            for number, row in enumerate(pq.ParquetFile(table / path).read().to_pylist())
            if number not in dead.get(path, ())
        }
        for path in content.files
    }


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_keeps_what_it_said_of_a_file(table: Path) -> None:
    stats = '{"numRecords":100,"minValues":{"price":123456789012345678901234.50},"tightBounds":true,"x":1e400}'
    more = {"tags": {"a": "b"}, "baseRowId": 7, "defaultRowCommitVersion": 0, "clusteringProvider": "c", "later": [1]}

    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"].update(more, stats=stats)

    change_log(table, change)
    old = actions(table, 0, "add")[0]
    delete(table, [7])
    delete(table, [8], 2)
    first, second = actions(table, 3, "add")[0], actions(table, 4, "add")[0]
    wide = stats.replace("true", "false").replace(" ", "")
    for add in (first, second):
        assert add["stats"].replace(" ", "") == wide
        assert {**add, "stats": "", "deletionVector": 0} == {**old, "stats": "", "deletionVector": 0}
    removed = actions(table, 4, "remove")[0]
    assert removed["deletionVector"] == first["deletionVector"]
    assert {
        key: removed[key] for key in ("tags", "baseRowId", "defaultRowCommitVersion", "size", "partitionValues")
    } == {key: old[key] for key in ("tags", "baseRowId", "defaultRowCommitVersion", "size", "partitionValues")}
    assert (removed["dataChange"], removed["extendedFileMetadata"]) == (True, True)
    assert removed["deletionTimestamp"] > 0


@pytest.mark.parametrize(
    "text", ["{}", None, '{"minValues":{"tightBounds":true,"s":"\\"tightBounds\\":true"},"n":NaN}']
)
def test_only_the_bounds_mark_and_the_rows_of_statistics_change(text: str | None) -> None:
    found = json.loads(with_wide_bounds(text, 9), parse_constant=str)
    expected = {**json.loads(text or "{}", parse_constant=str), "numRecords": 9, "tightBounds": False}
    assert found == expected


def test_statistics_of_a_rewritten_file_bound_its_rows(tmp_path: Path) -> None:
    table = tmp_path / "t"
    days = pa.array([10, 20, 30, 40], pa.int32()).cast(pa.date32())
    columns = {"id": [1, 2, 3, 4], "day": days, "short": ["d", "é", "b", None], "long": ["x" * 33] * 4}
    nested = {"part": [{"id": 9}] * 4, "ratio": [0.5, 1.5, 2.5, 3.5]}
    write_deltalake(str(table), pa.table({**columns, **nested}))
    delete(table, [1])
    stats = json.loads(actions(table, 1, "add")[0]["stats"])
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {"id": 2, "day": "1970-01-21", "short": "b"}
    assert stats["maxValues"] == {"id": 4, "day": "1970-02-10", "short": "é"}
    assert stats["nullCount"] == {"id": 0, "day": 0, "short": 1, "long": 0, "ratio": 0}


def test_commit_times_grow_where_the_table_asks_for_them(table: Path) -> None:
    put_properties(
        table,
        ["deletionVectors", "inCommitTimestamp"],
        {"delta.enableInCommitTimestamps": "true"},
        ["deletionVectors"],
    )
    later = int(time.time() * 1000) + 10**9

    def change(action: dict[str, Any]) -> None:
        if "commitInfo" in action:
            action["commitInfo"]["inCommitTimestamp"] = later

    change_log(table, change, 2)
    delete(table, [1])
    first = json.loads(log_of(table, 3).read_text().splitlines()[0])
    assert first["commitInfo"]["inCommitTimestamp"] == later + 1


FORMS = ["classic", "several parts", "v2 parquet", "v2 json", "parsed"]


def write_form(table: Path, form: str) -> None:
    """Rewrite the checkpoint of version 3 in another form of the protocol."""
    log = table / "_delta_log"
    classic = log / f"{3:020d}.checkpoint.parquet"
    rows, hint = pq.read_table(classic), json.loads((log / "_last_checkpoint").read_text())
    kind = rows.schema.field("add").type
    if form == "several parts":
        for part in range(3):
            pq.write_table(
                rows.take(list(range(part, len(rows), 3))),
                log / f"{3:020d}.checkpoint.{part + 1:010d}.{3:010d}.parquet",
            )
        hint["parts"] = 3
    elif form == "parsed":
        adds = rows["add"].combine_chunks()
        parsed = pa.StructArray.from_arrays([pa.array([77] * len(rows), pa.int64())], ["numRecords"])
        names = [one.name for one in kind if one.name not in ("stats", "stats_parsed")]
        parts = [adds.field(name) for name in names]
        made = pa.StructArray.from_arrays([*parts, parsed], [*names, "stats_parsed"], mask=adds.is_null())
        pq.write_table(rows.set_column(rows.schema.get_field_index("add"), "add", made), classic)
    elif form.startswith("v2"):
        (log / "_sidecars").mkdir()
        pq.write_table(rows.select(["add", "remove"]), log / "_sidecars/part 1.parquet", row_group_size=2)
        name = f"{3:020d}.checkpoint.{uuid4()}.{form.split()[1]}"
        sidecar = {"path": "part%201.parquet", "sizeInBytes": 1, "modificationTime": 1}
        if form == "v2 json":
            (log / name).write_text(
                json.dumps({"checkpointMetadata": {"version": 3}}) + "\n" + json.dumps({"sidecar": sidecar})
            )
        else:
            pq.write_table(pa.table({"sidecar": [None, sidecar]}), log / name)
        hint["v2Checkpoint"] = {"path": name}
    if form not in ("classic", "parsed"):
        classic.unlink()
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    for version in range(3):
        log_of(table, version).unlink()


@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_entries_are_the_same_from_each_form_of_a_checkpoint(tmp_path: Path, form: str, hinted: bool) -> None:
    table = make(tmp_path / "t", VECTORS, ["k"])
    delete(table, [1, 100])
    paths = set(read_content(str(table), None).files)
    known = read_adds(storage_at(str(table)), 3, paths)
    DeltaTable(str(table)).create_checkpoint()
    write_form(table, form)
    if not hinted:
        (table / "_delta_log/_last_checkpoint").write_text("{damaged")
    log_of(table, 3).write_text("")  # so that the checkpoint is needed
    found = read_adds(storage_at(str(table)), 3, paths)
    for path, add in found.items():
        expected = {key: value for key, value in known[path].items() if value is not None}
        if form == "parsed":
            expected["stats"] = '{"numRecords": 77}'
        assert json.loads(add.pop("stats"))["numRecords"] == json.loads(expected.pop("stats"))["numRecords"]
        assert {key: value for key, value in add.items() if value is not None} == expected
    assert found.keys() == known.keys()


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        (f"{1:020d}.json", None, "is gone"),
        (f"{1:020d}.json", b'{"add": {"pa', "damaged"),
        (f"{1:020d}.json", b"[]", "damaged"),
        (f"{1:020d}.json", b'{"add": {"size": 1}}', "damaged"),
        (f"{2:020d}.json", b"", "not have it"),
    ],
)
def test_a_log_that_lacks_an_entry_is_an_error_that_names_the_file(
    table: Path, file: str, content: bytes | None, what: str
) -> None:
    paths = set(read_content(str(table), None).files)
    if content is None:
        (table / "_delta_log" / file).unlink()
    else:
        (table / "_delta_log" / file).write_bytes(content)
    with pytest.raises(StorageError, match=what) as caught:
        read_adds(storage_at(str(table)), 2, paths)
    assert file in str(caught.value) or what == "not have it"


def test_a_damaged_checkpoint_is_an_error_that_names_the_file(table: Path) -> None:
    paths = set(read_content(str(table), None).files)
    DeltaTable(str(table)).create_checkpoint()
    checkpoint = table / f"_delta_log/{2:020d}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-40])
    with pytest.raises(StorageError, match=r"checkpoint\.parquet: damaged"):
        read_adds(storage_at(str(table)), 2, paths)


# -- vectors -----------------------------------------------------------------------------------------------------------


def descriptor_of(table: Path, kind: str, rows: BitMap64) -> dict[str, Any]:
    """A vector of another writer."""
    token = UUID(int=77)
    made = vector_file("x1", token, [BitMap64([9]), rows])
    (table / "x1").mkdir(exist_ok=True)
    (table / made.path).write_bytes(b"".join(made.chunks))
    found = made.descriptors[1]
    if kind == "p":
        return {**found, "storageType": "p", "pathOrInlineDv": f"file://{table}/{made.path}"}
    if kind == "i":
        data = made.chunks[5]
        padded = base64.b85encode(data, pad=True)
        python = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
        z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
        inline = padded.decode().translate(str.maketrans(python, z85))
        return {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(data), "cardinality": len(rows)}
    return found


@pytest.mark.parametrize("kind", ["u", "p", "i"])
def test_a_vector_of_another_writer_is_kept(table: Path, kind: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = descriptor_of(table, kind, BitMap64([3, 50, 2**33]) - BitMap64([2**33]))

    change_log(table, change)
    assert ids(table) == [i for i in range(300) if i not in (3, 50)]
    assert delete(table, [4])[:2] == (1, 1)
    assert ids(table) == [i for i in range(300) if i not in (3, 4, 50)]
    assert actions(table, 3, "remove")[0]["deletionVector"]["storageType"] == kind


@pytest.mark.parametrize("interval", ["100", "1"])
def test_vectors_of_more_files_than_deltalake_reads_are_read_and_merged(tmp_path: Path, interval: str) -> None:
    table, files = tmp_path / "t", 2 * READ_BY_DELTALAKE
    rows = pa.table({"id": range(3 * files), "k": [i // 3 for i in range(3 * files)]})
    properties = {**VECTORS, "delta.checkpointInterval": interval}
    write_deltalake(str(table), rows, partition_by=["k"], configuration=properties)
    source = read_content(str(table), None)
    for number, row in enumerate((0, 2), 1):
        found = Deleted(source.version, dict.fromkeys(source.files, BitMap64([row])))
        assert commit_change(str(table), planned(table, number), [], lambda found=found: found)[:2] == (files, files)
        source = read_content(str(table), None)
    assert source.deleted() == dict.fromkeys(source.files, BitMap64([0, 2]))
    older = source.version._replace(version="1", metadata="")
    assert read_content(str(table), older).deleted() == dict.fromkeys(source.files, BitMap64([0]))
    with pytest.raises(UsageError, match=f"more than {READ_BY_DELTALAKE} files have deletion vectors"):
        count_rows(str(table), source.version)


def test_vectors_have_the_layout_of_the_protocol() -> None:
    rows = BitMap64([1, 5, 2**32 + 3])
    made = vector_file("abc", UUID(int=1), [rows])
    version, size, data, crc = made.chunks
    assert (version, size, crc) == (b"\x01", struct.pack(">i", len(data)), struct.pack(">I", zlib.crc32(data)))
    assert struct.unpack_from("<iq", data) == (1681511377, 2)
    assert struct.unpack_from("<i", data, 12) == (0,)
    assert made.path == "abc/deletion_vector_00000000-0000-0000-0000-000000000001.bin"
    assert made.descriptors[0]["pathOrInlineDv"] == "abc" + "0" * 19 + "1"


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda data: b"\x02" + data[1:], "file of version"),
        (lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "another CRC"),
        (lambda data: data[:-6], "expected"),
        (lambda data: b"", "expected"),
        (None, "is gone"),
    ],
)
def test_a_damaged_vector_is_an_error_that_names_its_file(
    table: Path, damage: Callable[[bytes], bytes] | None, what: str
) -> None:
    delete(table, [1])
    vector = own_files(table)[0]
    if damage is None:
        vector.unlink()
    else:
        vector.write_bytes(damage(vector.read_bytes()))
    add = actions(table, 3, "add")[0]
    with pytest.raises(StorageError, match=what) as caught:
        read_vectors(storage_at(str(table)), {add["path"]: add})
    assert vector.name in str(caught.value)


@pytest.mark.parametrize(
    ("member", "value", "what"),
    [
        ("cardinality", 5, "1 rows, expected 5"),
        ("sizeInBytes", 3, "expected 3"),
        ("storageType", "r", "unknown storage type 'r'"),
        ("pathOrInlineDv", "~", "damaged"),
    ],
)
def test_a_vector_that_is_not_the_described_one_is_an_error(table: Path, member: str, value: Any, what: str) -> None:
    delete(table, [1])
    add = actions(table, 3, "add")[0]
    add["deletionVector"][member] = value
    with pytest.raises(StorageError, match=what):
        read_vectors(storage_at(str(table)), {add["path"]: add})


def test_rows_that_a_file_lacks_are_refused_and_nothing_is_left(table: Path) -> None:
    content = read_content(str(table), None)
    found = Deleted(content.version, {next(iter(content.files)): BitMap64([100])})
    with pytest.raises(StorageError, match=r"rows to delete that are not in this file.*ordinals below 100.*found 100"):
        commit_change(str(table), planned(table), [], lambda: found)
    with pytest.raises(StorageError, match="whose log does not have it"):
        commit_change(str(table), planned(table), [], lambda: Deleted(content.version, {"none": BitMap64([1])}))
    assert not own_files(table)
    assert DeltaTable(str(table)).version() == 2


# -- races -------------------------------------------------------------------------------------------------------------


def optimize(table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()


def append(table: Path) -> None:
    rows = pa.table({"id": [1000], "k": ["k0"], "text": ["new"]})
    write_deltalake(str(table), rows, mode="append")


def delete_others(table: Path) -> None:
    commit_change(str(table), planned(table, 1, "other"), [], finds(table, [8, 9, 150]))


def delete_same(table: Path) -> None:
    DeltaTable(str(table)).delete("id = 5")


def restore(table: Path) -> None:
    DeltaTable(str(table)).restore(1)


RACES: dict[Callable[[Path], None], set[int]] = {
    append: {*range(300), 1000} - {5, 105},
    delete_others: set(range(300)) - {5, 105, 8, 9, 150},
    delete_same: set(range(300)) - {5, 105},
    optimize: set(range(300)) - {5, 105},
    restore: set(range(200)) - {5, 105},
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("properties", [VECTORS, {}])
@pytest.mark.parametrize("race", RACES)
def test_no_commit_of_others_is_lost_and_no_row_comes_back(
    tmp_path: Path, race: Callable[[Path], None], properties: dict[str, str], late: bool
) -> None:
    """Another commit comes before the look-up, or (`late`) after it."""
    table, looks = make(tmp_path / "t", properties), []
    find = finds(table, [5, 105])

    def look() -> Deleted:
        looks.append(1)
        found = find() if late else None
        if len(looks) == 1:
            race(table)
        return found or find()

    commit_change(str(table), planned(table), [], look)
    assert ids(table) == sorted(RACES[race])
    assert len(looks) == (2 if late else 1)
    kept = {one["add"]["path"] for version in range(10) for one in lines_of(table, version) if one.get("add")}
    vectors = [path for path in own_files(table) if path.suffix == ".bin"]
    assert len(vectors) == (0 if not properties else 2 if race is delete_others else 1), "lost attempts leave nothing"
    assert {str(path.relative_to(table)) for path in own_files(table) if path.suffix == ".parquet"} <= kept


def lines_of(table: Path, version: int) -> list[dict[str, Any]]:
    path = log_of(table, version)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_programs_that_commit_the_same_number_at_once_commit_it_once(table: Path) -> None:
    done, start, of = list[Change | None](), Barrier(4), planned(table)

    def run() -> None:
        start.wait()
        done.append(commit_change(str(table), of, [], finds(table, range(50))))

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [change.rows for change in done if change is not None] == [50]
    assert DeltaTable(str(table)).version() == 3
    assert ids(table) == list(range(50, 300))
    clear_attempts(str(table), of)
    assert len(own_files(table)) == 1


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_reply_is_no_lost_commit(table: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool) -> None:
    real, of = LocalStorage.put_new, planned(table)

    def put(self: LocalStorage, path: str, chunks: Iterable[bytes]) -> None:
        if is_written or not path.startswith("_delta_log"):
            real(self, path, chunks)
        if path.startswith("_delta_log"):
            raise StorageError("no reply", path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_new", put)
        if is_written:
            assert commit_change(str(table), of, [], finds(table, [5])).rows == 1
        else:
            with pytest.raises(StorageError, match="the commit failed, and is not in the table"):
                commit_change(str(table), of, [], finds(table, [5]))
            clear_attempts(str(table), of)
            assert own_files(table), "it is not in the table, so that nothing is removed"
    again = commit_change(str(table), of, [], finds(table, [5]))
    assert (again is None) == is_written
    assert ids(table) == [i for i in range(300) if i != 5]
    clear_attempts(str(table), of)
    assert len(own_files(table)) == 1
    assert ids(table) == [i for i in range(300) if i != 5]


def test_files_of_dead_attempts_go_and_those_of_the_commit_stay(tmp_path: Path) -> None:
    for properties in (VECTORS, {}):
        table = make(tmp_path / str(len(properties)), properties)
        delete(table, [5, 105])
        kept = own_files(table)
        folder = table / kept[0].relative_to(table).parts[0]
        dead = [folder / f"deletion_vector_{uuid4()}.bin", folder / str(uuid4()) / "k=1" / "0.parquet"]
        for path in dead:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        clear_attempts(str(table), planned(table, 2))
        clear_attempts(str(table), of_another_table(table))
        assert own_files(table) == sorted([*kept, *dead])
        append(table)
        clear_attempts(str(table), planned(table))
        assert own_files(table) == kept
        assert ids(table) == [*(i for i in range(300) if i not in (5, 105)), 1000]


def of_another_table(table: Path) -> TableCommit:
    return TableCommit(f"delta:{table}", str(uuid4()), "w", 1, ())


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "properties", "reason"),
    [
        (["appendOnly"], {"delta.appendOnly": "true"}, r"takes no deletes \(delta.appendOnly is true\)"),
        (["changeDataFeed"], {"delta.enableChangeDataFeed": "TRUE"}, r"change files.*\(delta.enableChangeDataFeed"),
        ([], {"delta.setTransactionRetentionDuration": "interval 1 day"}, "forgets which commits it has"),
        (["rowTracking", "domainMetadata"], {}, "tracks its rows"),
        (["icebergCompatV1"], {}, "must know icebergCompatV1"),
        (["icebergCompatV2"], {}, "must know icebergCompatV2"),
        (["coordinatedCommits-preview"], {}, "must know coordinatedCommits-preview"),
        (["aFutureOne"], {}, "must know aFutureOne"),
    ],
)
def test_a_table_whose_rows_are_not_deleted_here_is_refused_by_name(
    tmp_path: Path, features: list[str], properties: dict[str, str], reason: str
) -> None:
    table = make(tmp_path / "t")
    put_properties(table, features, properties)
    with pytest.raises(UsageError, match=f"no rows can be deleted from this table: .*{reason}"):
        check_deletes(str(table))


def test_a_table_whose_catalog_commits_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    features = ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"]
    put_properties(table, features, {}, ["catalogManaged", "vacuumProtocolCheck"])
    with pytest.raises(UsageError, match=r"the table has the feature catalogManaged"):
        check_deletes(str(table))


def test_a_rule_that_comes_between_stops_the_commit(table: Path) -> None:
    of = planned(table)

    def look() -> Deleted:
        DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "true"})
        return finds(table, [5])()

    with pytest.raises(TableChanged, match="takes no deletes"):
        commit_change(str(table), of, [], look)
    assert ids(table) == list(range(300))
    assert not own_files(table)


def test_another_table_of_the_name_is_not_changed(table: Path) -> None:
    with pytest.raises(TableChanged, match="the table was replaced"):
        commit_change(str(table), of_another_table(table), [], finds(table, [5]))
    assert ids(table) == list(range(300))

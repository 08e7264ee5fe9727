"""The proof that keys are erased: never while a file below the table, or one of a version, holds a row with them. The
truth is a read of every such file by pyarrow."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from gnomon.__main__ import main
from gnomon.jobs.build import build
from gnomon.jobs.dedup import delete, upsert
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.search import erasure, prove_erased
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import TableCommit
from gnomon.shadow.tables.iceberg_snapshot import FileEntry, prepare
from gnomon.sources.types import FIELD_ID
from tests.golden.tables import TABLES
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, here, row, rows
from tests.jobs.dedup.test_change import VECTORS, changed, die_after

GOLDEN = {table.name: table for table in TABLES}
LIVE, BRANCH, DELETED_ROW, OLD_VERSION, EQUALITY_DELETE, NO_VERSION = (one.value for one in erasure.Hold)
ABSENT = 4242  # a key that no version has

AnyLake = DeltaLake | IcebergLake


@pytest.fixture(params=["delta vectors", "delta rewritten", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyLake:
    if request.param == "iceberg":
        return IcebergLake(tmp_path, monkeypatch)
    return DeltaLake(tmp_path, configuration=VECTORS if request.param == "delta vectors" else None)


@pytest.fixture
def index(lake: AnyLake, tmp_path: Path) -> str:
    build(None, lake.name, str(tmp_path / "index"), ["id"], buckets=2)
    return str(tmp_path / "index")


def prove(index: str, *keys: object) -> erasure.Erasure:
    return prove_erased(storage_at(index), list(keys))


def reasons(found: erasure.Erasure) -> set[str]:
    return {one.hold for one in found.holders}


def rows_of(key: int, *folders: str | Path) -> set[tuple[str, int]]:
    """The file and the number of each row with a key, in all Parquet files below some folders."""
    found = set()
    for folder in folders:
        for path in Path(folder).rglob("*.parquet"):
            table = pq.ParquetFile(path).read()
            if "_delta_log" not in path.parts and "id" in table.column_names:
                found |= {(str(path), row) for row, value in enumerate(table["id"].to_pylist()) if value == key}
    return found


def check(index: str, key: int, *folders: str | Path) -> erasure.Erasure:
    """The proof names exactly the rows that the files hold."""
    found = prove(index, key)
    assert {(one.file, one.row) for one in found.holders} == rows_of(key, *folders)
    assert found.failures == []
    assert found.is_proven == (not found.holders)
    return found


def maintain(lake: AnyLake) -> None:
    """Remove what only older versions need, as the table's own maintenance does: pyiceberg removes no files."""
    if isinstance(lake, DeltaLake):
        lake.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
        return
    table = lake.table()
    current = table.current_snapshot()
    assert current is not None
    older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    tasks = list(lake.table().scan().plan_files())
    kept = {one.file.file_path for one in tasks} | {d.file_path for one in tasks for d in one.delete_files}
    for path in (Path(lake.root) / "data").rglob("*.parquet"):
        if f"file://{path}" not in kept:
            path.unlink()


# -- what holds a key --------------------------------------------------------------------------------------------------


def test_a_key_is_proven_erased_only_after_the_maintenance_of_the_table(lake: AnyLake, index: str) -> None:
    lake.append(rows(50, 55))
    assert reasons(check(index, 3, lake.root)) >= {LIVE}
    assert delete(None, index, [3, 52]).rows_deleted == 2
    is_rewritten = (
        isinstance(lake, DeltaLake) and "delta.enableDeletionVectors" not in lake.table().metadata().configuration
    )
    for key in (3, 52):
        found = check(index, key, lake.root)
        assert reasons(found) - {OLD_VERSION} == (set() if is_rewritten else {DELETED_ROW})
        assert reasons(found)
    maintain(lake)
    for key in (3, 52):
        assert reasons(check(index, key, lake.root)) == (set() if is_rewritten else {DELETED_ROW})
    lake.compact()
    maintain(lake)
    for key in (3, 52):
        found = check(index, key, lake.root)
        assert (found.is_proven, found.holders) == (True, [])
    assert found.index_entries > 0  # of the index itself
    assert reasons(check(index, 4, lake.root)) == {LIVE}
    assert check(index, ABSENT, lake.root).is_proven


def test_each_row_that_a_file_holds_is_named(lake: AnyLake, index: str) -> None:
    """With an index that is late, and one that covers some versions."""
    upsert(None, index, changed(range(35, 45)), "nightly")
    lake.append(rows(60, 62))
    lake.delete(60)
    lake.compact()
    lake.append(rows(38, 39))
    for key in (0, 7, 36, 38, 42, 60, 61, 70):
        check(index, key, lake.root)
    build(None, lake.name, index, ["id"])
    assert main(["compact", index]) == 0
    assert main(["vacuum", index, "--grace", "0s"]) == 0
    for key in (0, 7, 36, 38, 42, 60, 61, 70):
        check(index, key, lake.root)


def test_several_keys_are_proven_together(lake: AnyLake, index: str) -> None:
    delete(None, index, [3])
    found = prove(index, 3, ABSENT, 4, "04", 3)
    assert {one.key for one in found.holders} <= {0, 2, 3, 4}
    assert {(one.file, one.row) for one in found.holders} == rows_of(3, lake.root) | rows_of(4, lake.root)
    assert not found.is_proven
    with pytest.raises(UsageError, match="no keys: there is nothing to prove"):
        prove(index)


# -- files that no version lists ---------------------------------------------------------------------------------------


def with_ids(table: pa.Table) -> pa.Table:
    """With the field ids of an Iceberg table."""
    fields = [field.with_metadata({FIELD_ID: str(at)}) for at, field in enumerate(table.schema, 1)]
    return table.cast(pa.schema(fields))


def write_avro(table: pa.Table, path: Path) -> None:
    field = {"name": "id", "type": "long", "field-id": 1}
    schema = {"type": "record", "name": "row", "fields": [field]}
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), table.select(["id"]).to_pylist())


def write_orc(table: pa.Table, path: Path) -> None:
    fields = [pa.field(f.name, f.type, metadata={"iceberg.id": str(at)}) for at, f in enumerate(table.schema, 1)]
    orc.write_table(table.cast(pa.schema(fields)), path)


def numbered(name: str, number: int, kind: pa.DataType | None = None) -> pa.Field:
    return pa.field(name, kind or pa.int64(), metadata={FIELD_ID: str(number)})


IDS = pa.table({"id": pa.array([1, ABSENT], pa.int64())})
POSITIONS = [numbered("file_path", 2147483546, pa.string()), numbered("pos", 2147483545)]
FOUND, UNKNOWN, NOTHING = "found", "unknown", "nothing"
Content = pa.Table | bytes | Callable[[pa.Table, Path], None]
ORPHANS: dict[str, tuple[str, Content, str]] = {
    "a failed write": ("data/part-0.parquet", IDS, FOUND),
    "no ending": ("data/part-0", IDS, FOUND),
    "capitals": ("data/PART.PARQUET", IDS, FOUND),
    "a temporary file": ("data/part-0.parquet.tmp", IDS, FOUND),
    "a hidden file": ("data/.part-0.parquet", IDS, FOUND),
    "a hidden folder": ("_temporary/0/_attempt/part-0.parquet", IDS, FOUND),
    "change data": ("_change_data/cdc-0.parquet", IDS, FOUND),
    "below Iceberg's metadata": ("metadata/part-0.parquet", IDS, FOUND),
    "below Delta's log": ("_delta_log/part-0.parquet", IDS, FOUND),
    "a narrower type": ("data/a.parquet", pa.table({"id": IDS["id"].cast(pa.int32())}), FOUND),
    "another case of the name": ("data/a.parquet", pa.table({"ID": IDS["id"]}), FOUND),
    "Avro": ("data/part-0.avro", write_avro, FOUND),
    "Avro without an ending": ("data/part-0", write_avro, FOUND),
    "ORC": ("data/part-0.orc", write_orc, FOUND),
    "another type": ("data/a.parquet", pa.table({"id": IDS["id"].cast(pa.string())}), UNKNOWN),
    "another name": ("data/a.parquet", pa.table([IDS["id"]], pa.schema([numbered("key", 77)])), UNKNOWN),
    "CSV": ("data/export.csv", b"id\n4242\n", UNKNOWN),
    "JSON lines": ("data/export.jsonl", b'{"id": 4242}\n', UNKNOWN),
    "compressed": ("data/part-0.parquet.gz", b"\x1f\x8b\x08\x00", UNKNOWN),
    "damaged": ("data/part-0.parquet", b"PAR1\x00\x00", UNKNOWN),
    "cut off": ("data/part-0.parquet", b"PAR1" + bytes(2000), UNKNOWN),
    "damaged Avro": ("data/part-0.avro", b"Obj\x01\x04\x16", UNKNOWN),
    "damaged ORC": ("data/part-0.orc", b"ORC" + bytes(50), UNKNOWN),
    "empty": ("data/part-0.parquet", b"", NOTHING),
    "a mark of Spark": ("_SUCCESS", b"", NOTHING),
    "a checksum": ("data/.part-0.parquet.crc", b"crc\x00\x00\x00\x02\x00", NOTHING),
    "a deletion vector": ("deletion_vector_8c9a66e0-7b0c-4b4e-9a15-1f1b5d7f0a11.bin", b"\x01abc", NOTHING),
    "Puffin": ("data/dv.puffin", b"PFA1PFA1", NOTHING),
    "position deletes": ("data/a.parquet", pa.table([["x"], [ABSENT]], pa.schema(POSITIONS)), NOTHING),
    "position deletes with rows": (
        "data/a.parquet",
        pa.table(
            [["x"], [1], [{"id": ABSENT}]],
            pa.schema([*POSITIONS, numbered("row", 2147483544, pa.struct([numbered("id", 1)]))]),
        ),
        UNKNOWN,
    ),
}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_file_that_no_version_lists_is_searched_or_is_a_failure(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake: AnyLake = DeltaLake(tmp_path) if kind == "delta" else IcebergLake(tmp_path, monkeypatch)
    build(None, lake.name, str(tmp_path / "index"), ["id"])
    for orphan, (name, content, expected) in ORPHANS.items():
        path = Path(lake.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, pa.Table):
            has_ids = content.schema.field(0).metadata is not None
            pq.write_table(with_ids(content) if kind == "iceberg" and not has_ids else content, path)
        else:
            content(IDS, path)
        found = prove(str(tmp_path / "index"), ABSENT)
        held = [(str(path), NO_VERSION)] if expected == FOUND else []
        assert [(one.file, one.hold) for one in found.holders] == held, orphan
        named = [True] if expected == UNKNOWN else []
        assert [failure.startswith(f"{path}") for failure in found.failures] == named, (orphan, found.failures)
        assert found.is_proven == (expected == NOTHING)
        path.unlink()


def test_a_file_without_field_ids_is_not_taken_for_one_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path, monkeypatch)
    build(None, lake.name, str(tmp_path / "index"), ["id"])
    pq.write_table(IDS, f"{lake.root}/data/part-0.parquet")
    [failure] = prove(str(tmp_path / "index"), ABSENT).failures
    assert "part-0.parquet: the file has no field ids" in failure


def test_expired_files_that_are_still_there_are_found(lake: AnyLake, index: str) -> None:
    """Also by the index of a later version, which does not cover them."""
    lake.append(rows(50, 55))
    lake.delete(52)
    if isinstance(lake, DeltaLake):
        lake.table().create_checkpoint()
        newest = lake.table().version()
        for number in range(newest):
            (Path(lake.root) / f"_delta_log/{number:020d}.json").unlink()
    else:
        table = lake.table()
        current = table.current_snapshot()
        assert current is not None
        older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(older).commit()
    assert reasons(check(index, 52, lake.root)) == {NO_VERSION}
    shutil.rmtree(index)
    build(None, lake.name, index, ["id"])
    assert reasons(check(index, 52, lake.root)) == {NO_VERSION}


@pytest.mark.parametrize("step", ["staged_of", "commit_append"])
def test_files_of_an_unfinished_change_are_failures_until_it_is_finished(
    lake: AnyLake, index: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def run() -> Any:
        return upsert(None, index, changed([ABSENT]), "nightly")

    die_after(step, monkeypatch, run)
    found = prove(index, ABSENT)
    assert any("an append or change that is not finished; run its command again" in one for one in found.failures)
    assert not found.is_proven
    run()
    assert reasons(check(index, ABSENT, lake.root)) == {LIVE}
    assert check(index, ABSENT + 1, lake.root).is_proven


def test_a_table_that_changes_during_the_search_is_not_proven(
    lake: AnyLake, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = erasure.find_all_versions

    def late(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        lake.append(rows(50, 51))
        return found

    monkeypatch.setattr(erasure, "find_all_versions", late)
    found = prove(index, ABSENT)
    assert (found.is_proven, found.holders) == (False, [])
    [failure] = found.failures
    assert "another program changed the table during the search" in failure


def test_a_listed_file_that_another_has_replaced_is_a_failure(lake: AnyLake, index: str) -> None:
    """The index knows the rows of the file that was there."""
    [path] = [Path(one.removeprefix("file://")) for one in lake.files()]
    table = pq.ParquetFile(path).read()
    pq.write_table(pa.concat_tables([table, rows(ABSENT, ABSENT + 1).cast(table.schema)]), path)
    found = prove(index, ABSENT)
    assert not found.is_proven
    assert [failure.startswith(str(path)) for failure in found.failures] == [True]


def test_a_damaged_index_is_not_taken_for_one_without_the_key(lake: AnyLake, index: str) -> None:
    for file in Path(index).rglob("*.btree.avro"):
        file.write_bytes(b"\xff" * file.stat().st_size)
    found = prove(index, 3)
    assert found.failures
    assert {(one.file, one.row) for one in found.holders} == rows_of(3, lake.root)
    assert not prove(index, ABSENT).is_proven


# -- folders elsewhere, branches, equality deletes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["write.data.path", "write.object-storage.path"])
def test_files_in_a_folder_outside_the_table_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake, elsewhere = IcebergLake(tmp_path, monkeypatch), tmp_path / "elsewhere"
    elsewhere.mkdir()
    build(None, lake.name, str(tmp_path / "index"), ["id"])
    with lake.table().transaction() as transaction:
        transaction.set_properties({name: f"file://{elsewhere}"})
    if name == "write.data.path":
        lake.append(rows(50, 55))
        assert rows_of(52, elsewhere)
        assert delete(None, str(tmp_path / "index"), [52]).rows_deleted == 1
        assert reasons(check(str(tmp_path / "index"), 52, lake.root, elsewhere)) == {DELETED_ROW}
        lake.compact()
        maintain(lake)
        assert reasons(check(str(tmp_path / "index"), 52, lake.root, elsewhere)) == {NO_VERSION}
    pq.write_table(with_ids(IDS), elsewhere / "orphan.parquet")
    assert reasons(check(str(tmp_path / "index"), ABSENT, lake.root, elsewhere)) == {NO_VERSION}
    (elsewhere / "orphan.parquet").unlink()
    assert check(str(tmp_path / "index"), ABSENT, lake.root, elsewhere).is_proven


def test_a_table_that_was_moved_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only an older version has the key, in a file of the new place."""
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    build(None, lake.name, index, ["id"])
    place = SetLocationUpdate(location=f"file://{tmp_path}/moved")
    with lake.table().transaction() as transaction:
        transaction._apply((place,))
    lake.append(rows(ABSENT, ABSENT + 1))
    lake.table().delete("id >= 0")
    found = prove(index, ABSENT)
    assert not found.is_proven
    assert {"the table was moved" in one for one in found.failures} == {True}
    build(None, lake.name, str(tmp_path / "anew"), ["id"])
    assert reasons(check(str(tmp_path / "anew"), ABSENT, lake.root, tmp_path / "moved")) == {OLD_VERSION}
    assert reasons(check(str(tmp_path / "anew"), 3, lake.root, tmp_path / "moved")) == {OLD_VERSION}


def test_a_row_of_a_branch_or_a_tag_is_named_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No delete of main's rows removes it."""
    table = GOLDEN["iceberg_branches"]
    build(None, f"iceberg:{table.versions[-1].metadata}", str(tmp_path / "golden"), ["id"])
    [holder] = prove(str(tmp_path / "golden"), 100).holders  # appended to a branch alone
    assert (holder.hold, "DROP BRANCH" in holder.remedy) == (BRANCH, True)
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    build(None, lake.name, index, ["id"])
    current = lake.table().current_snapshot()
    assert current is not None
    lake.table().manage_snapshots().create_tag(current.snapshot_id, "kept").commit()
    lake.delete(3)
    assert reasons(check(index, 3, lake.root)) == {OLD_VERSION}
    table_now = lake.table()
    table_now.manage_snapshots().rollback_to_snapshot(table_now.snapshots()[0].snapshot_id).commit()
    check(index, 3, lake.root)
    check(index, 39, lake.root)


@pytest.mark.parametrize("name", ["iceberg_equality_deletes", "iceberg_equality_scopes"])
def test_a_file_of_equality_deletes_holds_its_keys(tmp_path: Path, name: str) -> None:
    """The truth are the files of the table that have nothing but columns of the key."""
    table = GOLDEN[name]
    index = str(tmp_path / "index")
    build(None, f"iceberg:{table.versions[-1].metadata}", index, ["id"])
    held = {}
    for path in Path(table.path).rglob("*.parquet"):
        read = pq.ParquetFile(path).read()
        if "id" in read.column_names:
            for row, key in enumerate(read["id"].to_pylist()):
                held.setdefault(key, set()).add((str(path), row))
    keys = sorted(key for key in held if key is not None)
    found = prove(index, *keys)
    of_key = {key: {(one.file, one.row) for one in found.holders if one.key == at} for at, key in enumerate(keys)}
    assert (of_key, found.failures) == ({key: held[key] for key in keys}, [])
    assert any(one.hold == EQUALITY_DELETE for one in found.holders)
    assert prove(index, 10**6).is_proven


def keys_of(table: Any) -> list[list[Any]]:
    """The keys that Spark reads at any version that is not gone, whose key is that of the last one."""
    last = [version for version in table.versions if version.rows()][-1]
    there = [version for version in table.versions if version.key == last.key and not version.gone]
    found = {json.dumps([one[name] for name in last.key]) for version in there for one in version.rows()}
    return [json.loads(one) for one in sorted(found)]


@pytest.mark.parametrize("name", sorted(GOLDEN.keys() - {"delta_widened", "iceberg_equality_scopes"}))
def test_no_key_of_a_table_that_spark_wrote_is_erased(name: str, tmp_path: Path) -> None:
    """Renamed and mapped columns, clones, branches, other formats, deletes of each kind, and what VACUUM leaves."""
    table, index = GOLDEN[name], str(tmp_path / "index")
    source = f"delta:{table.path}" if table.format == "delta" else f"iceberg:{table.versions[-1].metadata}"
    build(None, source, index, list(table.versions[-1].key))
    keys = keys_of(table)
    found = prove(index, *keys, *[[10**6]])
    assert found.failures == []
    assert {one.key for one in found.holders} == set(range(len(keys)))


def test_equality_deletes_outside_the_folders_of_the_table_hold_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    build(None, lake.name, index, ["id"])
    path, table = tmp_path / "aside.parquet", lake.table()
    pq.write_table(with_ids(IDS), path)
    record = {"content": 2, "file_path": f"file://{path}", "file_format": "PARQUET", "record_count": 2}
    entry = FileEntry(0, (), {**record, "file_size_in_bytes": path.stat().st_size, "equality_ids": [1]})
    planned = TableCommit(lake.name, str(table.metadata.table_uuid), "other", 1, ())
    prepare(table, planned, "other", [entry]).send()
    assert [(one.file, one.hold) for one in prove(index, ABSENT).holders] == [(str(path), EQUALITY_DELETE)]
    assert (str(path), 0, EQUALITY_DELETE) in {(one.file, one.row, one.hold) for one in prove(index, 1).holders}
    path.unlink()
    assert not prove(index, ABSENT).is_proven  # the version cannot be read


# -- keys of other types, and tables that changed ----------------------------------------------------------------------

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TYPED = {  # values of a column, and other texts of the first one
    "day": (pa.array([dt.date(2026, 1, 2), dt.date(2026, 1, 3)]), ["2026-01-02"]),
    "price": (pa.array([Decimal("1.10"), Decimal("2.20")], pa.decimal128(9, 2)), ["1.1", "1.10", "11e-1"]),
    "at": (pa.array([NOON, NOON + dt.timedelta(1)], pa.timestamp("us", "UTC")), ["2026-01-01 13:00+01:00"]),
    "f": (pa.array([float("nan"), 1.0]), ["NaN"]),
    "zero": (pa.array([-0.0, 1.0]), ["0", "-0.0"]),
    "raw": (pa.array([b"\x00\xff", b""]), ["AP8="]),
    "text": (pa.array(["é", "e"]), ["é"]),
}


@pytest.mark.parametrize("column", TYPED)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_keys_are_compared_by_value_and_not_by_text(
    kind: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, texts = TYPED[column]
    held, others = pa.table({"k": values[:1]}), pa.table({"k": values[1:]})
    if kind == "delta":
        root, name = tmp_path / "t", f"delta:{tmp_path}/t"
        write_deltalake(str(root), others)
        at = DeltaTable(str(root))
    else:
        catalog = here(tmp_path, monkeypatch)
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", others.schema)
        made.append(others)
        root, name, held = Path(made.location().removeprefix("file://")), "iceberg:here.db.t", with_ids(held)
    index = str(tmp_path / "index")
    build(None, name, index, ["k"])
    assert all(prove(index, text).is_proven for text in texts)
    (root / "data").mkdir(exist_ok=True)
    pq.write_table(held, root / "data/orphan.parquet")
    for text in texts:
        assert reasons(prove(index, text)) == {NO_VERSION}, text
    (root / "data/orphan.parquet").unlink()
    if kind == "delta":
        write_deltalake(at, held, mode="append")
        DeltaTable(str(root)).delete("true")
    else:
        catalog.load_table("db.t").append(held)
        catalog.load_table("db.t").overwrite(others)
    for text in texts:  # in a version that the index does not cover
        assert reasons(prove(index, text)) == {OLD_VERSION}, text


def test_a_partition_column_in_the_key_is_searched_in_all_forms_of_the_table(tmp_path: Path) -> None:
    """A table that was partitioned by the key, or is now: its values lie in the log, or in the files."""
    data = pa.table({"id": pa.array([1, ABSENT], pa.int64()), "v": ["a", "b"]})
    none = pa.table({"id": pa.array([5], pa.int64()), "v": ["c"]})
    for name, before, after in (("to files", ["id"], []), ("to folders", [], ["id"]), ("type", ["id"], [])):
        root = str(tmp_path / name)
        write_deltalake(root, data, partition_by=before)
        kept = none.set_column(0, "id", none["id"].cast(pa.string())) if name == "type" else none
        write_deltalake(root, kept, mode="overwrite", schema_mode="overwrite", partition_by=after)
        index = str(tmp_path / f"index {name}")
        build(None, f"delta:{root}", index, ["id", "v"])
        found = prove(index, [str(ABSENT), "b"])
        assert not found.is_proven, name
        assert (reasons(found), bool(found.failures)) == ((set(), True) if name == "type" else ({OLD_VERSION}, False))
        assert name == "type" or prove(index, [str(ABSENT + 1), "b"]).is_proven


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_key_with_a_partition_column_is_proven_within_its_partition(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition of a file that no version lists is unknown. It counts for each key that its columns fit."""
    lake: AnyLake = (
        DeltaLake(tmp_path, ["part"])
        if kind == "delta"
        else IcebergLake(tmp_path, monkeypatch, {"part": IdentityTransform()})
    )
    index = str(tmp_path / "index")
    build(None, lake.name, index, ["part", "id"])
    for number in (1, 2, 4, 8):
        found = prove(index, [row(number)["part"], number])
        assert {(one.file, one.row) for one in found.holders} == rows_of(number, lake.root)
        assert (bool(found.holders), found.failures) == (True, [])
        other = prove(index, ["other", number])
        assert (other.is_proven, other.failures) == (True, [])
    delete(None, index, [[row(2)["part"], 2]])
    assert {(one.file, one.row) for one in prove(index, [row(2)["part"], 2]).holders} == rows_of(2, lake.root)
    pq.write_table(with_ids(IDS) if kind == "iceberg" else IDS, f"{lake.root}/orphan.parquet")
    assert reasons(prove(index, ["other", ABSENT])) == {NO_VERSION}
    assert prove(index, ["other", ABSENT + 1]).is_proven


def test_a_key_column_that_was_dropped_and_added_again_is_searched_in_old_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    with lake.table().update_schema() as update:
        update.delete_column("id")
    with lake.table().update_schema() as update:
        update.add_column("id", LongType())
    build(None, lake.name, index, ["id"])
    assert open_index(index).fetch(3) == []
    assert reasons(check(index, 3, lake.root)) == {LIVE, OLD_VERSION}
    assert check(index, 50, lake.root).is_proven


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_to_do_and_files_a_report(
    lake: AnyLake, index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    delete(None, index, [3])
    capsys.readouterr()
    assert main(["find", index, "3", str(ABSENT), "--prove-erased", "--json"]) == 1
    out, err = capsys.readouterr()
    [line] = out.splitlines()
    report = json.loads(line)
    assert (report["table"], report["keys"], report["is_proven"], report["failures"]) == (lake.name, 2, False, [])
    assert {(one["key"], one["file"], one["row"]) for one in report["holders"]} == {
        ("3", *one) for one in rows_of(3, lake.root)
    }
    assert dt.datetime.fromisoformat(report["began"]).utcoffset() == dt.timedelta(0)
    assert report["files_by_index"] + report["files_scanned"] >= len(lake.files())
    assert "entries of these keys in the index" in err
    assert main(["find", index, "3", "--prove-erased"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("not erased: 1 key, ")
    assert all(line.startswith("3: row 3 of ") for line in lines[:-1])
    assert main(["find", index, str(ABSENT), "--prove-erased"]) == 0
    assert capsys.readouterr().out.startswith("erased: 1 key, 0 rows in files; searched ")
    (Path(lake.root) / "left.csv").write_text("id\n4242\n")
    assert main(["find", index, str(ABSENT), "--prove-erased"]) == 3
    out, err = capsys.readouterr()
    assert (out.startswith("not proven: "), "left.csv: a file in the table's folders" in err) == (True, True)

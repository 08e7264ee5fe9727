"""A commit deletes the rows of an Iceberg table that it was given, adds its files, and touches no other row: pyiceberg
reads the table, by its own code."""

import errno
import hashlib
import io
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.config import Config
from pyiceberg.utils.decimal import decimal_to_unscaled
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from pyroaring import BitMap64

from gnomon.shadow.errors import SourceError, StorageError, TableChanged, UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import (
    LakeContent,
    NewFile,
    TableCommit,
    commit_to_table,
    iceberg_change,
    lake_source,
    last_number,
)
from gnomon.shadow.tables.iceberg import version_of
from gnomon.shadow.tables.iceberg_append import data_files
from gnomon.shadow.tables.iceberg_change import check_deletes, clear_attempts, commit_change
from gnomon.shadow.tables.iceberg_files import ManifestReader, comparable
from gnomon.shadow.tables.iceberg_snapshot import FileEntry, Prepared, Removed, prepare
from gnomon.shadow.tables.lake_append import Change, Deleted, Look
from gnomon.sources.avro import numbers_of_rows
from gnomon.sources.types import FIELD_ID
from tests.golden.tables import TABLES
from tests.golden.tables import Table as GoldenTable
from tests.golden.tables.values import exact
from tests.profiles import cases

PLACE, NAME, WRITER = "here.db.t", "iceberg:here.db.t", "gnomon.test"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "v", StringType(), required=False),
    NestedField(3, "price", DecimalType(9, 2), required=False),
    NestedField(4, "day", DateType(), required=False),
)
ARROW = pa.schema(
    pa.field(name, kind, metadata={FIELD_ID: str(number)})
    for number, (name, kind) in enumerate(
        {"id": pa.int64(), "v": pa.string(), "price": pa.decimal128(9, 2), "day": pa.date32()}.items(), 1
    )
)
PARTITIONS = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "the price"),
    PartitionField(4, 1001, DayTransform(), "day_day"),
    PartitionField(1, 1002, BucketTransform(4), "id_bucket"),
)


class Lake:
    """A table of a catalog. `commits` is the number of the last commit."""

    def __init__(self, catalog: Catalog, version: int, spec: PartitionSpec | None = None, **properties: str) -> None:
        self.catalog, self.commits = catalog, 0
        named = {key.replace("_", "."): value for key, value in properties.items()}
        made = catalog.create_table(
            "db.t",
            SCHEMA,
            partition_spec=spec or PartitionSpec(),
            properties={"format-version": str(version), **named},
        )
        if version == 3 and isinstance(catalog, SqlCatalog):  # pyiceberg leaves this member out
            path = Path(made.metadata_location.removeprefix("file://"))
            path.write_text(json.dumps(json.loads(path.read_text()) | {"next-row-id": 0}))
        self.root = Path(made.location().removeprefix("file://"))
        self.uuid = str(made.metadata.table_uuid)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.t")

    def planned(self) -> TableCommit:
        self.commits += 1
        return TableCommit(NAME, self.uuid, WRITER, self.commits, ("",))

    def new_files(self, ids: Iterable[int]) -> list[NewFile]:
        """Files of rows, one for each partition."""
        rows = rows_of(ids)
        if not self.table.spec().fields:
            return [self._file(rows)]
        return [self._file(rows.slice(place, 1)) for place in range(rows.num_rows)]

    def _file(self, rows: pa.Table) -> NewFile:
        (self.root / "data").mkdir(parents=True, exist_ok=True)
        name = f"data/new-{len(list((self.root / 'data').iterdir()))}.parquet"
        pq.write_table(rows, self.root / name)
        return NewFile(name, (self.root / name).stat().st_size, rows.num_rows, "")

    def append(self, ids: Iterable[int]) -> None:
        commit_to_table(self.planned(), self.new_files(ids))

    def look(self, ids: Iterable[int]) -> Look:
        """Looks rows up by their ids, by a scan of the data files."""
        wanted = np.array(sorted(ids))

        def look() -> Deleted:
            content = lake_source(NAME).content
            masked, rows = content.deleted(), {}
            for path in content.files:
                found = pq.read_table(storage_at(content.root).root + "/" + path, columns=["id"])["id"].to_numpy()
                hit = BitMap64(np.flatnonzero(np.isin(found, wanted)).astype(np.uint64)) - masked.get(path, BitMap64())
                if hit:
                    rows[path] = hit
            return Deleted(content.version, rows)

        return look

    def delete(self, ids: Iterable[int], new: Sequence[NewFile] = ()) -> Change | None:
        return commit_change(PLACE, self.planned(), new, self.look(ids))

    def ids(self, snapshot: int | None = None) -> list[int]:
        """The rows as pyiceberg reads them; it checks that they are whole."""
        found = self.table.scan(snapshot_id=snapshot).to_arrow().sort_by("id")
        ids: list[int] = found["id"].to_pylist()
        assert found.equals(rows_of(ids).cast(found.schema))
        content = lake_source(NAME, "" if snapshot is None else str(snapshot)).content
        masked = sum(map(len, content.deleted().values()))
        of_files = sum(pq.read_metadata(f"{content.root}/{path}").num_rows for path in content.files)
        assert of_files - masked == len(ids)
        return ids

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


def rows_of(ids: Iterable[int]) -> pa.Table:
    ids = list(ids)
    days, prices = [18_000 + one % 3 for one in ids], [one % 2 - 1 if one % 7 else None for one in ids]
    columns = [ids, [f"row {one}" for one in ids], pa.array(prices, pa.int64()).cast(pa.decimal128(21, 2)), days]
    return pa.table(
        [
            pa.array(column).cast(kind)
            for column, kind in zip(columns, [pa.int64(), pa.string(), pa.decimal128(9, 2), pa.int32()], strict=True)
        ],
        names=ARROW.names,
    ).cast(ARROW)


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A version of the format. pyiceberg has the code that writes metadata of version 3, but refuses to."""
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    number: int = request.param
    return number


def test_rows_are_deleted_and_older_versions_keep_them(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(100))
    lake.append(range(100, 200))
    assert check_deletes(PLACE) == ("position deletes" if version == 2 else "deletion vectors")
    expected = {lake.table.current_snapshot().snapshot_id: list(range(200))}
    gone: set[int] = set()
    for batch in ([3, 5, 150], [4], [5, 6, 199], range(100)):
        change = lake.delete(batch)
        assert change.rows == len({*batch} - gone)
        assert change.bytes > 0
        gone |= {*batch}
        expected[lake.table.current_snapshot().snapshot_id] = [one for one in range(200) if one not in gone]
        for snapshot, ids in expected.items():
            assert lake.ids(snapshot) == ids
    lake.append(range(3, 7))
    assert lake.ids() == sorted([*(one for one in range(200) if one not in gone), *range(3, 7)])


def entries(table: Table) -> list[dict[str, Any]]:
    """The entries of the manifests of the newest snapshot, with their record in the list of manifests."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = []
    for record in fastavro.reader(table.io.new_input(snapshot.manifest_list).open()):
        manifest = fastavro.reader(table.io.new_input(record["manifest_path"]).open())
        assert manifest.metadata["content"] == ("deletes" if record["content"] else "data")
        found += [{**entry, "list": record} for entry in manifest]
    return found


def path_of(bounds: list[dict[str, Any]]) -> bytes:
    """The bound of the column file_path."""
    return next(bytes(one["value"]) for one in bounds if one["key"] == 2147483546)


def test_a_file_of_position_deletes_has_few_positions(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a data file reads such a file whole, and skips the others by the bounds of their paths."""
    monkeypatch.setattr(iceberg_change, "POSITIONS_IN_FILE", 4)
    lake = Lake(catalog, 2)
    for begin in range(0, 50, 10):
        lake.append(range(begin, begin + 10))
    gone = [0, 1, 10, 11, 20, *range(30, 39), 40]
    assert lake.delete(gone)[:2] == (15, 5)
    assert lake.ids() == [one for one in range(50) if one not in gone]
    deletes = [one["data_file"] for one in entries(lake.table) if one["data_file"]["content"] == 1]
    counts = sorted(one["record_count"] for one in deletes)
    assert (sum(counts), counts[-1]) == (15, 9)
    assert len(counts) <= 4
    bounds = sorted((path_of(one["lower_bounds"]), path_of(one["upper_bounds"])) for one in deletes)
    assert all(high < low for (_, high), (low, _) in pairwise(bounds))


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_rows_of_all_partitions_and_specs_are_deleted(catalog: Catalog, version: int, granularity: str) -> None:
    lake = Lake(catalog, version, PARTITIONS, write_delete_granularity=granularity)
    lake.append(range(30))
    lake.append(range(30, 60))
    with lake.table.update_spec() as update:
        update.remove_field("the price")
    lake.append(range(60, 70))
    gone = [0, 1, 7, 8, 30, 43, 61, 66]
    assert lake.delete(gone)[:3] == (8, 8, lake_bytes(lake))
    assert lake.ids() == [one for one in range(70) if one not in gone]
    deletes = [one for one in entries(lake.table) if one["data_file"]["content"] == 1]
    assert {one["list"]["partition_spec_id"] for one in deletes} == {0, 1}
    partitions = [(one["list"]["partition_spec_id"], str(one["data_file"]["partition"])) for one in deletes]
    if granularity == "partition" and version == 2:
        assert len(partitions) == len(set(partitions)) < 8
    else:
        assert len(partitions) == 8
        assert all(one["data_file"]["referenced_data_file"] for one in deletes)
    for value in ("-1.00", "0.00"):  # the partitions of the list of manifests prune it
        found = lake.table.scan(f"price == {value}").to_arrow()["id"].to_pylist()
        assert sorted(found) == [
            one for one in range(70) if one % 7 and one % 2 - 1 == float(value) and one not in gone
        ]


def lake_bytes(lake: Lake) -> int:
    """The bytes of the files that the newest snapshot added."""
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    token = snapshot.summary["gnomon.attempt"]
    return sum((lake.root / path).stat().st_size for path in lake.files() if token in path)


def test_one_commit_deletes_and_adds(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    new = lake.new_files([3, 4, 20])
    assert lake.delete([3, 4], new).rows == 2
    assert lake.ids() == [*range(10), 20]
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    size = {path.name: path.stat().st_size for path in (lake.root / "data").rglob("*.*")}
    kind = "dvs" if version == 3 else "position-delete-files"
    found = snapshot.summary.additional_properties
    deletes = next(one["data_file"] for one in entries(lake.table) if one["data_file"]["content"] == 1)
    bytes_of_deletes = deletes["content_size_in_bytes"] if version == 3 else deletes["file_size_in_bytes"]
    added = size[Path(new[0].path).name] + bytes_of_deletes
    assert snapshot.summary.operation.value == "overwrite"
    assert found == {
        "added-data-files": "1",
        "added-records": "3",
        "added-delete-files": "1",
        "added-position-deletes": "2",
        f"added-{kind}": "1",
        "added-files-size": str(added),
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-records": "13",
        "total-delete-files": "1",
        "total-position-deletes": "2",
        "total-equality-deletes": "0",
        "total-files-size": str(size["new-0.parquet"] + added),
        "gnomon.append": f"{WRITER}/2",
        "gnomon.attempt": found["gnomon.attempt"],
    }
    lake.delete([3])
    found = lake.table.current_snapshot().summary.additional_properties
    assert lake.table.current_snapshot().summary.operation.value == "delete"
    assert (found["total-position-deletes"], found["total-records"]) == ("3", "13")


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_commit_without_rows_makes_a_snapshot_without_changes(catalog: Catalog, version: int, is_empty: bool) -> None:
    lake = Lake(catalog, version)
    if not is_empty:
        lake.append(range(10))
    before = lake.table.current_snapshot()
    change = lake.delete([99])
    assert change is not None
    assert change[:2] == (0, 0)
    assert last_number(NAME, lake.uuid, WRITER) == lake.commits
    head = lake.table.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id == (None if before is None else before.snapshot_id)
    assert lake.ids() == ([] if is_empty else list(range(10)))
    lake.append([20])
    assert lake.ids() == ([20] if is_empty else [*range(10), 20])


def test_a_program_that_slept_does_not_set_the_number_back(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing to delete: the commits of others change no row, but are in the table."""
    lake = Lake(catalog, version)
    lake.append(range(10))
    first, second, real, slept = lake.planned(), lake.planned(), iceberg_change._commit, list[int]()

    def late(prepared: Prepared) -> None:
        if not slept:
            slept.append(1)
            for planned in (first, second):
                assert commit_change(PLACE, planned, [], lake.look([99])) is not None
        real(prepared)

    monkeypatch.setattr(iceberg_change, "_commit", late)
    assert commit_change(PLACE, first, [], lake.look([99])) is None
    assert last_number(NAME, lake.uuid, WRITER) == second.number
    assert commit_change(PLACE, second, [], lake.look([5])) is None
    assert lake.ids() == list(range(10))


def test_a_commit_is_done_once(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    planned, new = lake.planned(), lake.new_files([20])
    assert commit_change(PLACE, planned, new, lake.look([1])).rows == 1
    files = lake.files()
    assert commit_change(PLACE, planned, new, lake.look([2])) is None
    assert (lake.ids(), lake.files()) == ([0, *range(2, 10), 20], files)


@pytest.mark.parametrize(
    "meanwhile", ["append", "delete the same", "delete others", "compact", "schema", "spec", "property", "rollback"]
)
@pytest.mark.parametrize("after_look", [False, True])
def test_a_foreign_commit_during_an_attempt_is_seen(
    catalog: Catalog, version: int, meanwhile: str, after_look: bool
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    first = lake.table.current_snapshot()
    lake.append(range(10, 20))
    others = iter(range(1000, 2000))

    def other_commit(files: Sequence[NewFile], look: Look) -> None:
        commit_change(PLACE, TableCommit(NAME, lake.uuid, f"other.{next(others)}", 1, ()), files, look)

    def evolve() -> None:
        with lake.table.update_schema() as update:
            update.add_column("more", StringType())

    def repartition() -> None:
        with lake.table.update_spec() as update:
            update.add_field("id", BucketTransform(3), "b")

    def set_property() -> None:
        with lake.table.transaction() as transaction:
            transaction.set_properties({"a": "b"})

    def roll_back() -> None:
        lake.table.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()

    changes: dict[str, tuple[Callable[[], object], list[int]]] = {
        "append": (lambda: other_commit(lake.new_files([3, 40]), lake.look([])), [40]),
        "delete the same": (lambda: other_commit([], lake.look([3, 15])), []),
        "delete others": (lambda: other_commit([], lake.look([4, 16])), []),
        "compact": (lambda: compact(lake), []),
        "schema": (evolve, []),
        "spec": (repartition, []),
        "property": (set_property, []),
        "rollback": (roll_back, []),
    }
    gone = {3, 15} | ({4, 16} if meanwhile == "delete others" else set())
    calls = []

    def look() -> Deleted:
        calls.append(1)
        found = lake.look([3, 15])() if after_look else None
        if len(calls) == 1:
            changes[meanwhile][0]()
        return found or lake.look([3, 15])()

    new = lake.new_files([3])
    planned = lake.planned()
    commit_change(PLACE, planned, new, look)
    rows = range(10) if meanwhile == "rollback" else range(20)
    table = lake.table.scan().to_arrow()
    assert sorted(table["id"].to_pylist()) == sorted(
        [*(one for one in rows if one not in gone), *changes[meanwhile][1], 3]
    )
    assert len(calls) <= 2
    tokens = {path.split("/")[2] for path in lake.files() if f"-{planned.number}/" in path}
    assert tokens <= {lake.table.current_snapshot().summary["gnomon.attempt"]}


def compact(lake: Lake) -> None:
    """Rewrite all data files, as another program does."""
    table = lake.table
    ids = table.scan().to_arrow()["id"].to_pylist()
    new = data_files(table, NAME, lake.new_files(ids))
    live = {
        Removed(one["list"]["content"], one["data_file"]["file_path"], one["data_file"].get("content_offset"))
        for one in entries(table)
        if one["status"] != 2
    }
    planned = TableCommit(NAME, lake.uuid, "compaction", 1, ())
    prepare(table, planned, "compacted", new, live, Operation.REPLACE).send()


def test_a_table_that_was_replaced_keeps_its_rows(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    look, planned = lake.look([3]), lake.planned()

    def replacing() -> Deleted:
        found = look()
        catalog.drop_table("db.t")
        Lake(catalog, version).append(range(10))
        return found

    with pytest.raises(TableChanged, match="the table was replaced"):
        commit_change(PLACE, planned, [], replacing)
    assert lake.ids() == list(range(10))


def test_old_metadata_is_removed_if_the_table_asks_for_it(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    with lake.table.transaction() as transaction:
        transaction.set_properties(
            {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
        )
    lake.append(range(10))
    for number in range(4):
        lake.delete([number])
    assert len(list((lake.root / "metadata").glob("*.metadata.json"))) == 3
    assert lake.ids() == list(range(4, 10))


# -- commits that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CommitFailedException("conflict"), OSError("connection reset")])
@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_reply_neither_loses_nor_repeats_the_commit(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch, error: Exception, arrives: bool
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    planned, new, before = lake.planned(), lake.new_files([3]), lake.files()
    real, calls = SqlCatalog.commit_table, []

    def losing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return real(*arguments)
        if arrives:
            real(*arguments)
        raise error

    monkeypatch.setattr(SqlCatalog, "commit_table", losing)
    if arrives or isinstance(error, CommitFailedException):
        assert commit_change(PLACE, planned, new, lake.look([3, 4])).rows == 2
    else:
        with pytest.raises(StorageError, match="the commit failed, and is not in the table"):
            commit_change(PLACE, planned, new, lake.look([3, 4]))
        assert len(lake.files() - before) >= 3, "it may still arrive"
        assert commit_change(PLACE, planned, new, lake.look([3, 4])).rows == 2
        clear_attempts(PLACE, planned)
    assert lake.ids() == [one for one in range(10) if one != 4]
    token = lake.table.current_snapshot().summary["gnomon.attempt"]
    assert {path for path in lake.files() if f"-{planned.number}/" in path and token not in path} == set()


def test_a_commit_that_the_catalog_refuses_leaves_nothing(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    before = lake.files()

    def refusing(*arguments: Any) -> Any:
        raise BadRequestError("not this way")

    monkeypatch.setattr(SqlCatalog, "commit_table", refusing)
    with pytest.raises(TableChanged, match="the catalog refuses the commit"):
        lake.delete([3])
    assert lake.files() == before


def test_files_stay_while_it_cannot_be_told_whether_the_commit_arrived(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    planned, real = lake.planned(), SqlCatalog.commit_table
    look = lake.look([3])

    def unreadable(*arguments: Any) -> Any:
        raise OSError("connection reset")

    def losing(*arguments: Any) -> Any:
        real(*arguments)
        monkeypatch.setattr(SqlCatalog, "load_table", unreadable)
        raise CommitFailedException("conflict")

    monkeypatch.setattr(SqlCatalog, "commit_table", losing)
    readable = SqlCatalog.load_table
    with pytest.raises(StorageError, match="connection reset"):
        commit_change(PLACE, planned, [], look)
    monkeypatch.setattr(SqlCatalog, "load_table", readable)
    assert commit_change(PLACE, planned, [], look) is None
    assert lake.ids() == [0, 1, 2, *range(4, 10)]


@pytest.mark.parametrize("where", ["data", "metadata"])
def test_an_attempt_whose_files_cannot_be_written_leaves_none(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    before, real = lake.files(), PyArrowFileIO.new_output

    def full(self: PyArrowFileIO, location: str) -> Any:
        if "/snap-" in location:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, location)

    if where == "metadata":
        monkeypatch.setattr(PyArrowFileIO, "new_output", full)
    else:
        (lake.root / "data" / f"gnomon-{hashlib.sha256(WRITER.encode()).hexdigest()[:16]}-2").write_bytes(b"")
        before = lake.files()
    with pytest.raises(StorageError):
        lake.delete([3])
    assert lake.files() == before


def test_only_files_of_attempts_that_lost_are_removed(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    lake.delete([1])
    planned = TableCommit(NAME, lake.uuid, WRITER, 2, ())
    [folder] = [path for path in (lake.root / "data").iterdir() if path.is_dir()]
    dead = folder / "0123456789abcdef" / "00000-deletes.parquet"
    dead.parent.mkdir()
    dead.write_bytes(b"dead")
    clear_attempts(PLACE, TableCommit(NAME, lake.uuid, WRITER, 3, ()))  # which is not in the table
    assert dead.exists()
    clear_attempts(PLACE, planned)
    assert not dead.parent.exists()
    assert lake.ids() == [0, *range(2, 10)]
    dead.parent.mkdir()
    dead.write_bytes(b"dead")
    first = lake.table.snapshots()[-1].snapshot_id
    lake.append([50])
    lake.table.maintenance.expire_snapshots().by_id(first).commit()
    clear_attempts(PLACE, planned)
    assert dead.exists(), "no snapshot tells which attempt was the one"
    assert lake.ids() == [0, *range(2, 10), 50]


# -- refusals and damage -----------------------------------------------------------------------------------------------


def test_tables_whose_rows_are_not_deleted_are_refused_by_name(catalog: Catalog) -> None:
    lake = Lake(catalog, 2)
    lake.append(range(10))
    found = lake.look([3])()
    with pytest.raises(UsageError, match="its index names a metadata file"):
        check_deletes(lake.table.metadata_location)
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    written = json.loads(path.read_text())
    for changes, reason in (
        ({"format-version": 3}, "its metadata has no next-row-id"),
        ({"format-version": 3, "next-row-id": 0}, "it has format version 3, which pyiceberg writes through REST"),
        ({"properties": {"encryption.key-id": "k"}}, "it is encrypted"),
    ):
        path.write_text(json.dumps(written | changes))
        with pytest.raises(UsageError, match=f"no rows can be deleted from this table: {reason}"):
            check_deletes(PLACE)
        with pytest.raises(TableChanged, match=reason):
            commit_change(PLACE, lake.planned(), [], lambda: found)
    catalog.drop_table("db.t")
    Lake(catalog, 1)
    with pytest.raises(UsageError, match="it has format version 1, which has no deletes"):
        check_deletes(PLACE)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: {path: BitMap64([10]) for path in rows}, "rows to delete: expected a row of the 10 rows"),
        (lambda rows: rows | {"data/none.parquet": BitMap64([1])}, "in a data file that the table's version does not"),
        (None, "a file of equality deletes that the table's version does not have"),
    ],
)
def test_rows_that_the_version_does_not_have_are_an_error_and_nothing_is_committed(
    catalog: Catalog, version: int, change: Any, reason: str
) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    found, before = lake.look([3])(), lake.table.metadata_location
    wrong = found._replace(rows=change(found.rows)) if change else found._replace(dropped=frozenset(["file:///none"]))
    with pytest.raises(SourceError, match=reason):
        commit_change(PLACE, lake.planned(), [], lambda: wrong)
    assert lake.table.metadata_location == before


def test_a_data_file_that_is_listed_twice_is_an_error(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    data = foreign(lake, "a.parquet", parquet(rows_of(range(10))), record_count=10)
    add(lake, data, data)
    found = Deleted(version_of(lake.table, lake.table.current_snapshot()), {"data/a.parquet": BitMap64([3])})
    with pytest.raises(SourceError, match=r"a\.parquet: .* that the table's version lists twice"):
        commit_change(PLACE, lake.planned(), [], lambda: found)


@pytest.mark.parametrize("broken", ["list", "manifest"])
def test_damaged_metadata_is_an_error_and_nothing_is_committed(catalog: Catalog, version: int, broken: str) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    found, before = lake.look([3])(), lake.table.metadata_location
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    path = snapshot.manifest_list if broken == "list" else snapshot.manifests(lake.table.io)[0].manifest_path
    Path(path.removeprefix("file://")).write_bytes(b"Obj\x01 broken")
    with pytest.raises(SourceError, match="not an Avro file of Iceberg") as caught:
        commit_change(PLACE, lake.planned(), [], lambda: found)
    assert str(caught.value).startswith(path)
    assert lake.table.metadata_location == before


# -- deletes before, other formats -------------------------------------------------------------------------------------


def foreign(lake: Lake, name: str, data: bytes, **record: Any) -> FileEntry:
    """Write a file as another engine does, of any kind. Returns its entry."""
    (lake.root / "data").mkdir(exist_ok=True)
    (lake.root / "data" / name).write_bytes(data)
    location = f"{lake.table.location()}/data/{name}"
    members = {"content": 0, "file_path": location, "file_format": "PARQUET", "file_size_in_bytes": len(data)}
    return FileEntry(lake.table.spec().spec_id, (), members | record)


def add(lake: Lake, *added: FileEntry) -> None:
    prepare(lake.table, TableCommit(NAME, lake.uuid, "other", 1, ()), "other", added).send()


def parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue())


def test_equality_deletes_are_replaced_by_the_rows_that_they_delete(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    ids = parquet(pa.table([pa.array([3, 4])], pa.schema([ARROW.field("id")])))
    files = [foreign(lake, name, ids, content=2, record_count=2, equality_ids=[1]) for name in ("a", "b")]
    add(lake, *files)
    dropped, other = (one.record["file_path"] for one in files)
    lake.append([3])  # after the deletes
    content = lake_source(NAME).content
    assert {one.location for one in content.equality_deletes()} == {dropped, other}
    [first] = [path for path in content.files if path.endswith("new-0.parquet")]
    found = Deleted(content.version, {first: BitMap64([3, 4])}, frozenset([dropped]))
    assert commit_change(PLACE, lake.planned(), [], lambda: found).rows == 2
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["removed-equality-delete-files"] == "1"
    assert snapshot.summary["total-equality-deletes"] == "2"
    [left] = lake_source(NAME).content.equality_deletes()
    assert left.location == other
    live = [one for one in entries(lake.table) if one["status"] != 2]
    assert {one["data_file"]["file_path"]: one["sequence_number"] for one in live}[other] == 2
    content = lake_source(NAME).content
    found = Deleted(content.version, {first: BitMap64([0])}, frozenset([other]))
    commit_change(PLACE, lake.planned(), [], lambda: found)
    assert lake.ids() == [1, 2, 3, *range(5, 10)]


def test_rows_of_avro_files_are_deleted_by_the_numbers_of_their_pointers(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    out = io.BytesIO()
    schema = AvroSchemaConversion().iceberg_to_avro(SCHEMA, "row")
    rows = [{"id": one, "v": f"row {one}", "price": None, "day": 1} for one in range(5000)]
    fastavro.writer(out, fastavro.parse_schema(schema), rows, sync_interval=1000)
    add(lake, foreign(lake, "rows.avro", out.getvalue(), file_format="AVRO", record_count=5000))
    gone = [0, 4, 2500, 2501, 4999]
    with storage_at(str(lake.root)).open("data/rows.avro") as reader:
        numbers = numbers_of_rows(reader, np.array(gone))
    for share in (numbers[:2], numbers[2:]):
        found = Deleted(lake_source(NAME).content.version, {"data/rows.avro": BitMap64(share.astype(np.uint64))})
        assert commit_change(PLACE, lake.planned(), [], lambda: found).rows == len(share)  # noqa: B023
    [masked] = lake_source(NAME).content.deleted().values()
    assert list(masked) == numbers.tolist()
    ordinals = [one["data_file"] for one in entries(lake.table) if one["data_file"]["content"] == 1]
    if version == 2:
        read = [pq.read_table(one["file_path"].removeprefix("file://"))["pos"].to_pylist() for one in ordinals]
        assert sorted(row for rows in read for row in rows) == gone
    found = found._replace(version=lake_source(NAME).content.version, rows={"data/rows.avro": BitMap64([17])})
    with pytest.raises(SourceError, match="rows to delete"):
        commit_change(PLACE, lake.planned(), [], lambda: found)


def test_an_upgraded_table_keeps_its_position_deletes_in_vectors(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    lake = Lake(catalog, 2, write_delete_granularity="partition")
    lake.append(range(10))
    lake.append(range(10, 20))
    lake.delete([1, 11])
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.delete.granularity": "file"})
    lake.delete([2, 12, 13])
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}))
    assert lake.ids() == [0, *range(3, 11), *range(14, 20)]
    lake.delete([3, 4])
    assert lake.ids() == [0, *range(5, 11), *range(14, 20)]
    lake.delete([5, 15])
    assert lake.ids() == [0, *range(6, 11), 14, *range(16, 20)]
    live = [one["data_file"] for one in entries(lake.table) if one["status"] != 2 and one["data_file"]["content"] == 1]
    assert sorted((one["file_format"], one["record_count"]) for one in live) == [
        ("PARQUET", 2),  # names both data files
        ("PUFFIN", 4),
        ("PUFFIN", 5),
    ]
    assert lake.table.metadata.next_row_id == 20, "each row got an id"
    assert sorted(row_ids(lake).values()) == [0, 10]


def row_ids(lake: Lake) -> dict[str, int | None]:
    """The id of the first row of each data file."""
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    reader = ManifestReader(1 << 20, lake.table.io)
    live = reader.live_files(snapshot.manifest_list, lake.table.specs(), NAME)
    return {one.path: one.first_row_id for one in live.data}


def test_a_data_file_has_one_vector_and_rows_keep_their_ids(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    lake = Lake(catalog, 3)
    lake.append(range(10))
    lake.append(range(10, 30))
    first = row_ids(lake)
    assert sorted(first.values()) == [0, 10]
    lake.delete([1, 11, 12])
    lake.delete([2], lake.new_files([2]))
    assert row_ids(lake).items() > first.items()
    assert sorted(row_ids(lake).values()) == [0, 10, 30]
    assert lake.table.metadata.next_row_id == 31
    found = entries(lake.table)
    vectors = [one for one in found if one["data_file"]["content"] == 1]
    assert sorted((one["status"], one["data_file"]["record_count"]) for one in vectors) == [(0, 2), (1, 2), (2, 1)]
    for one in vectors:
        puffin = PuffinFile(Path(one["data_file"]["file_path"].removeprefix("file://")).read_bytes())
        [blob] = [blob for blob in puffin.footer.blobs if blob.offset == one["data_file"]["content_offset"]]
        assert blob.length == one["data_file"]["content_size_in_bytes"]
        assert blob.properties["referenced-data-file"] == one["data_file"]["referenced_data_file"]
        assert blob.properties["cardinality"] == str(one["data_file"]["record_count"])
        assert (blob.type, blob.snapshot_id, blob.sequence_number) == ("deletion-vector-v1", -1, -1)
    assert lake.ids() == [0, *range(2, 11), *range(13, 30)]


def test_an_upgraded_list_of_manifests_without_counts_is_refused(catalog: Catalog) -> None:
    lake = Lake(catalog, 2)
    lake.append(range(10))
    found = lake.look([3])()
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    schema: Any = reader.writer_schema
    schema["fields"] = [one for one in schema["fields"] if one["name"] != "existing_rows_count"]
    out = io.BytesIO()
    fastavro.writer(out, schema, list(reader))
    path.write_bytes(out.getvalue())
    with pytest.raises(TableChanged, match="a list of manifests without existing_rows_count; run rewrite_manifests"):
        commit_change(PLACE, lake.planned(), [], lambda: found)


# -- copy-on-write -----------------------------------------------------------------------------------------------------


def test_copy_on_write_rewrites_only_the_files_that_have_the_rows(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version, PARTITIONS, write_delete_mode="copy-on-write", write_merge_mode="copy-on-write")
    assert check_deletes(PLACE) == "copy-on-write"
    with lake.table.update_spec() as update:
        update.remove_field("id_bucket")
    for start in (0, 50):
        commit_to_table(lake.planned(), grouped(lake, range(start, start + 50)))
    with lake.table.update_spec() as update:
        update.remove_field("day_day")
    expected = {lake.table.current_snapshot().snapshot_id: list(range(100))}
    first = {one["data_file"]["file_path"]: one["data_file"] for one in entries(lake.table)}
    whole = [one for one in range(50) if one % 7 == 0 and one % 3 == 0]  # all rows of one file
    gone = {3, 53, *whole}
    change = lake.delete(gone)
    assert (change.rows, change.files) == (len(gone), 3)
    assert lake.ids() == [one for one in range(100) if one not in gone]
    expected[lake.table.current_snapshot().snapshot_id] = lake.ids()
    found = entries(lake.table)
    assert {one["data_file"]["content"] for one in found} == {0}
    assert sorted(one["status"] for one in found if one["status"]) == [1, 1, 2, 2, 2]
    new = [one["data_file"] for one in found if one["status"] == 1]
    old = [first[one["data_file"]["file_path"]] for one in found if one["status"] == 2]
    assert {str(one["partition"]) for one in new} <= {str(one["partition"]) for one in old}
    assert {one["list"]["partition_spec_id"] for one in found if one["status"] == 1} == {1}
    summary = lake.table.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert (summary["total-records"], summary["total-data-files"]) == (str(100 - len(gone)), str(len(first) - 1))
    change = lake.delete([4, 54], lake.new_files([4, 200]))
    assert change.rows == 2
    assert lake.ids() == sorted([*(one for one in range(100) if one not in {*gone, 54}), 200])
    for snapshot, ids in expected.items():
        assert lake.ids(snapshot) == ids
    for value in ("-1.00", "0.00"):
        found = lake.table.scan(f"price == {value} and id < 100").to_arrow()["id"].to_pylist()
        assert sorted(found) == [one for one in lake.ids() if one < 100 and one % 7 and one % 2 - 1 == float(value)]


def grouped(lake: Lake, ids: Iterable[int]) -> list[NewFile]:
    """A file for each partition of price and day."""
    groups: dict[object, list[int]] = {}
    for one in ids:
        groups.setdefault((one % 2 if one % 7 else None, one % 3), []).append(one)
    return [lake._file(rows_of(group)) for group in groups.values()]


def test_copy_on_write_keeps_rows_deleted_that_were_so_before(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(10))
    lake.append(range(10, 20))
    lake.delete([1, 11])
    ids = parquet(pa.table([pa.array([3, 4])], pa.schema([ARROW.field("id")])))
    add(lake, foreign(lake, "equal", ids, content=2, record_count=2, equality_ids=[1]))
    lake.append([4])
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": "copy-on-write"})
    lake.delete([2])
    content = lake_source(NAME).content
    [path] = [one for one in content.files if "gnomon" in one]
    assert pq.read_table(f"{content.root}/{path}", columns=["id"])["id"].to_pylist() == [0, *range(3, 10)]
    [deletes] = content.equality_deletes()
    assert deletes.files == {path, *(one for one in content.files if one.endswith("new-1.parquet"))}, (
        "as before: the rows 3 and 4 of the rewritten file stay deleted, and the row 4 that came later does not"
    )
    live = [one["data_file"] for one in entries(lake.table) if one["status"] != 2 and one["data_file"]["content"] == 1]
    assert len(live) == 1, "the deletes of the rewritten file are gone"


def test_copy_on_write_of_version_3_keeps_the_ids_of_rows(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    lake = Lake(catalog, 3, write_delete_mode="copy-on-write")
    lake.append(range(10))
    lake.append(range(10, 20))
    for gone in ([11], [3, 13]):  # the file of the first rewrite is rewritten, too
        lake.delete(gone)
    content = lake_source(NAME).content
    found = [pq.read_table(f"{content.root}/{path}") for path in content.files]
    for table in found:
        first = table["id"][0].as_py() // 10
        assert table["_row_id"].to_pylist() == table["id"].to_pylist()
        assert set(table["_last_updated_sequence_number"].to_pylist()) == {first + 1}
        ids = [table.schema.field(name).metadata[FIELD_ID] for name in table.schema.names[-2:]]
        assert ids == [b"2147483540", b"2147483539"]
    assert len(found) == 2
    assert lake.ids() == [one for one in range(20) if one not in (3, 11, 13)]
    bounds = [one["data_file"]["lower_bounds"] for one in entries(lake.table) if one["status"] == 1]
    assert all(bounds), "the statistics are known"


def test_copy_on_write_of_a_table_from_version_1_keeps_all_other_rows(catalog: Catalog) -> None:
    lake = Lake(catalog, 1)
    lake.table.append(rows_of(range(10)))
    lake.append(range(10, 20))
    assert lake.ids() == list(range(20))
    with lake.table.transaction() as transaction:
        transaction.upgrade_table_version(2)
        transaction.set_properties({"write.delete.mode": "copy-on-write"})
    lake.delete([3])
    assert lake.ids() == [one for one in range(20) if one != 3]
    with lake.table.update_schema() as update:
        update.rename_column("v", "w")
    with lake.table.update_schema() as update:
        update.add_column("v", LongType())
    lake.delete([13])
    found = lake.table.scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [one for one in range(20) if one not in (3, 13)]
    assert set(found["v"].to_pylist()) == {None}
    newest = lake.table.current_snapshot().snapshot_id
    newest = [one["data_file"] for one in entries(lake.table) if (one["status"], one["snapshot_id"]) == (1, newest)]
    assert [one["lower_bounds"] for one in newest] == [None], "its column v is not the table's"


def test_copy_on_write_of_a_file_that_is_not_parquet_is_refused(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version, write_merge_mode="copy-on-write")
    lake.append(range(3))
    out = io.BytesIO()
    rows = [{"id": one, "v": f"row {one}", "price": None, "day": 1} for one in range(10)]
    fastavro.writer(out, fastavro.parse_schema(AvroSchemaConversion().iceberg_to_avro(SCHEMA, "row")), rows)
    add(lake, foreign(lake, "rows.avro", out.getvalue(), file_format="AVRO", record_count=10))
    with storage_at(str(lake.root)).open("data/rows.avro") as reader:
        rows = {"data/rows.avro": BitMap64(numbers_of_rows(reader, np.array([3])).astype(np.uint64))}
    found, before, new = Deleted(lake_source(NAME).content.version, rows), lake.files(), lake.new_files([50])
    with pytest.raises(TableChanged, match=r"rows\.avro: .* and this data file has the format avro"):
        commit_change(PLACE, lake.planned(), new, lambda: found)
    assert lake.files() == before | {new[0].path}
    assert commit_change(PLACE, lake.planned(), [], lambda: found).rows == 1, "a delete alone is merge-on-read"


# -- partition values --------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "uuid": (UUIDType(), [uuid.uuid4().bytes, None]),
    "decimal": (DecimalType(38, 10), [Decimal("-1234567890123456789012345678.0000000001"), Decimal("0E-10")]),
    "same decimal": (DecimalType(38, 10), [Decimal("0.0000000007"), None]),
    "double": (DoubleType(), [-0.0, float("nan")]),
    "float": (FloatType(), [0.5, None]),
    "time": (TimeType(), [86_399_999_999, 0]),
    "timestamp": (TimestampType(), [-1, 253_402_300_799_999_999]),
    "with zone": (TimestamptzType(), [1, None]),
    "date": (DateType(), [-719_162, 2_932_896]),
    "text, ä/=": (StringType(), ["", "ä/=%"]),
    "bytes": (BinaryType(), [b"", b"\x00\xff"]),
    "flag": (BooleanType(), [True, False]),
}


def test_partition_values_of_all_types_are_as_they_were_in_manifests_that_are_written_anew(
    catalog: Catalog, version: int
) -> None:
    columns = [NestedField(at, name, kind, required=False) for at, (name, (kind, _)) in enumerate(VALUES.items(), 1)]
    spec = PartitionSpec(
        *(PartitionField(one.field_id, 999 + one.field_id, IdentityTransform(), f"p {one.name}") for one in columns)
    )
    made = catalog.create_table(
        "db.u", Schema(*columns), partition_spec=spec, properties={"format-version": str(version)}
    )
    if version == 3:
        path = Path(made.metadata_location.removeprefix("file://"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"next-row-id": 0}))
    planned = TableCommit("iceberg:here.db.u", str(made.metadata.table_uuid), WRITER, 1, ())
    record = {"content": 0, "file_format": "PARQUET", "record_count": 1, "file_size_in_bytes": 9}
    rows = [tuple(values[at] for _, values in VALUES.values()) for at in (0, 1, 0)]
    new = [FileEntry(made.spec().spec_id, row, record | {"file_path": f"file:///f{at}"}) for at, row in enumerate(rows)]
    table = catalog.load_table("db.u")
    prepare(table, planned, "a", new).send()
    table = catalog.load_table("db.u")
    before = partitions_of(table)
    assert before == {f"file:///f{at}": stored(row) for at, row in enumerate(rows)}
    prepare(table, planned, "b", [], {Removed(0, "file:///f2")}, Operation.DELETE).send()
    table = catalog.load_table("db.u")
    del before["file:///f2"]
    assert partitions_of(table) == before
    [record] = {one["list"]["manifest_path"]: one["list"] for one in entries(table)}.values()
    summaries = dict(zip(VALUES, record["partitions"], strict=True))
    assert (summaries["double"]["contains_nan"], summaries["uuid"]["contains_null"]) == (True, True)
    for name, (kind, values) in VALUES.items():
        known = [to_bytes(kind, one) for one in values if one is not None and one == one]
        assert {summaries[name]["lower_bound"], summaries[name]["upper_bound"]} == {*known}
    assert {task.file.file_path for task in table.scan("flag == false").plan_files()} == {"file:///f1"}


def partitions_of(table: Table) -> dict[str, Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    live = ManifestReader(1 << 20, table.io).live_files(snapshot.manifest_list, table.specs(), "t")
    return {one.path: comparable(map(plain, one.partition)) for one in live.data}


def stored(row: Iterable[Any]) -> Any:
    return comparable(plain(decimal_to_unscaled(one) if isinstance(one, Decimal) else one) for one in row)


def plain(value: Any) -> Any:
    return "NaN" if value != value else value


def test_files_lie_where_the_table_puts_them(catalog: Catalog, version: int, tmp_path: Path) -> None:
    data, metadata = tmp_path / "elsewhere" / "d", tmp_path / "elsewhere" / "m"
    lake = Lake(catalog, version, write_data_path=f"file://{data}", write_metadata_path=f"file://{metadata}/")
    lake.append(range(10))
    clear_attempts(PLACE, TableCommit(NAME, lake.uuid, WRITER, 1, ()))  # without a folder
    lake.delete([3])
    token = lake.table.current_snapshot().summary["gnomon.attempt"]
    [file] = [path for path in data.rglob("*") if path.is_file()]
    assert file.parent.name == token
    assert len([one for one in metadata.iterdir() if token in one.name]) == 2
    clear_attempts(PLACE, TableCommit(NAME, lake.uuid, WRITER, 2, ()))
    assert lake.ids() == [one for one in range(10) if one != 3]


def test_iceberg_s_own_catalog_takes_the_commits(
    iceberg_rest: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It checks the ids of rows, and pyiceberg writes no metadata."""
    for name, value in {"TYPE": "rest", "URI": iceberg_rest}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HERE__{name}", value)
    monkeypatch.delenv("PYICEBERG_CATALOG__HERE__WAREHOUSE")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with closing(load_catalog("here")) as rest:
        rest.create_namespace_if_not_exists("db")
        lake = Lake(rest, 3, PARTITIONS)
        lake.append(range(10))
        lake.delete([1, 2])
        lake.delete([1, 3], lake.new_files([3, 10]))
        with lake.table.transaction() as transaction:
            transaction.set_properties({"write.delete.mode": "copy-on-write"})
        lake.delete([4, 10])
        assert lake.ids() == [0, 3, *range(5, 10)]
        rest.drop_table("db.t")
        first = Lake(rest, 1, PARTITIONS)  # whose rows can be appended
        first.append(range(3))
        first.append(range(3, 6))
        assert first.ids() == list(range(6))
        rest.drop_table("db.t")


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_any_history_leaves_the_rows_that_it_should_at_each_version(catalog: Catalog, version: int, seed: int) -> None:
    """Appends, deletes, upserts and changes of the way, at random, against a set of numbers."""
    random = Random(seed)
    lake = Lake(catalog, version)
    live: set[int] = set()
    expected: dict[int, set[int]] = {}
    for _ in range(25):
        some = {number for number in range(60) if random.random() < 0.2}
        match random.randrange(6):
            case 0:
                if new := some - live:
                    lake.append(new)
                    live |= new
            case 1 | 2:
                assert lake.delete(some).rows == len(some & live)
                live -= some
            case 3 | 4:
                assert lake.delete(some, lake.new_files(some)).rows == len(some & live)
                live |= some
            case 5:
                keys = ["write.delete.mode", "write.merge.mode", "write.delete.granularity"]
                values = [random.choice(["copy-on-write", "merge-on-read"]) for _ in range(2)]
                values.append(random.choice(["file", "partition"]))
                with lake.table.transaction() as transaction:
                    transaction.set_properties(dict(zip(keys, values, strict=True)))
        if (snapshot := lake.table.current_snapshot()) is not None:
            expected[snapshot.snapshot_id] = set(live)
    for snapshot_id, rows in expected.items():
        assert lake.ids(snapshot_id) == sorted(rows)
    assert len(expected) > 10


def test_programs_that_commit_at_once_all_do_and_each_once(catalog: Catalog, version: int) -> None:
    lake = Lake(catalog, version)
    lake.append(range(40))
    new = lake.new_files([100])
    same = TableCommit(NAME, lake.uuid, "same", 1, ())
    others = [TableCommit(NAME, lake.uuid, f"other.{number}", 1, ()) for number in range(3)]
    calls = [partial(commit_change, PLACE, same, new, lake.look([0]))] * 2
    calls += [partial(commit_change, PLACE, one, [], lake.look([at + 1, 5])) for at, one in enumerate(others)]
    with ThreadPoolExecutor(len(calls)) as pool:
        done = [future.result() for future in [pool.submit(call) for call in calls]]
    assert [one.rows for one in done[:2] if one is not None] == [1]
    assert sum(one.rows for one in done if one is not None) == 5
    assert lake.ids() == [4, *range(6, 40), 100]


# -- tables of Spark ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.parametrize("golden", cases([one for one in TABLES if one.format == "iceberg"]), ids=str)
def test_rows_of_tables_that_spark_wrote_are_deleted_and_no_others(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: GoldenTable, mode: str
) -> None:
    """The table's own files are only read: the commits write elsewhere."""
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    for number, version in enumerate(golden.versions):
        if version.gone or version.version == -1:
            continue  # its files are gone, or it has none
        place = f"here.db.t{number}"
        table = catalog.register_table(f"db.t{number}", version.metadata)
        if table.format_version == 1:
            with pytest.raises(UsageError, match="format version 1"):
                check_deletes(place)
            continue
        paths = {f"write.{kind}.path": f"file://{tmp_path}/{number}/{kind}" for kind in ("data", "metadata")}
        update = SetPropertiesUpdate(updates={**paths, "write.delete.mode": mode})
        catalog.commit_table(table, (), (update,))
        content = lake_source(f"iceberg:{place}").content
        masked = {path: BitMap64(rows) for path, rows in content.deleted().items()}
        wanted = {path: rows for path in content.files if (rows := a_row(content, path, masked.get(path, BitMap64())))}
        if mode == "copy-on-write":
            wanted = {path: rows for path, rows in wanted.items() if content.files[path].format == "parquet"}
        planned = TableCommit(f"iceberg:{place}", content.version.uuid, WRITER, 1, ())
        found = Deleted(content.version, wanted)
        assert commit_change(place, planned, [], lambda: found).rows == len(wanted)  # noqa: B023
        after = lake_source(f"iceberg:{place}").content
        if mode == "merge-on-read":
            assert after.files == content.files
            expected = {path: masked.get(path, BitMap64()) | wanted.get(path, BitMap64()) for path in after.files}
        else:
            assert {path for path in content.files if path not in after.files} == wanted.keys()
            expected = {path: rows for path, rows in masked.items() if path not in wanted}
        assert after.deleted() == {path: rows for path, rows in expected.items() if rows}
        assert {one.location for one in after.equality_deletes()} == {
            one.location for one in content.equality_deletes()
        }
        if not content.equality_deletes() and {one.format for one in content.files.values()} <= {"parquet"}:
            rows_before, rows_after = (
                Counter(str(exact(row)) for row in one.scan().to_arrow().to_pylist())
                for one in (table, catalog.load_table(f"db.t{number}"))
            )
            assert rows_before.total() == version.row_count
            assert rows_after <= rows_before
            assert (rows_before - rows_after).total() == len(wanted)


def a_row(content: LakeContent, path: str, masked: BitMap64) -> BitMap64:
    """The number of a live row of a file, as pointers have it; none if it has none."""
    where, kind = f"{content.root}/{path}", content.files[path].format
    if kind == "avro":
        with Path(where).open("rb") as file:
            count = sum(1 for _ in fastavro.reader(file))
        with storage_at(content.root).open(path) as reader:
            numbers = numbers_of_rows(reader, np.arange(count)).tolist()
    else:
        numbers = range(pq.read_metadata(where).num_rows if kind == "parquet" else orc.ORCFile(where).nrows)
    return BitMap64([one for one in numbers if one not in masked][:1])

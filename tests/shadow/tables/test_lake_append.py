"""Tables to which Gnomon does not append are refused before anything is written, with the reason."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from gnomon.shadow.errors import StorageError, TableChanged, UsageError
from gnomon.shadow.tables import NewFile, TableCommit, append_target, commit_to_table, delta_append, last_number
from gnomon.sources.types import FIELD_ID

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]})


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    write_deltalake(str(tmp_path / "t"), ROWS)
    return tmp_path / "t"


def change_log(table: Path, change: Any) -> None:
    """Change the actions of the first version of a Delta table."""
    log = table / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("feature", ["rowTracking", "clustering", "icebergCompatV2", "identityColumns", "aFutureOne"])
def test_a_delta_table_with_a_writer_feature_that_is_not_kept_is_refused(delta: Path, feature: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}

    change_log(delta, change)
    with pytest.raises(UsageError, match=r"no rows can be appended to this table|log cannot be read") as caught:
        append_target(f"delta:{delta}", {})
    assert feature in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("delta.columnMapping.mode", "name", r"maps its columns to other names in files \(delta.columnMapping.mode"),
        ("delta.constraints.positive", "id > 0", r"checks its rows, .* \(delta.constraints.positive\)"),
        ("delta.setTransactionRetentionDuration", "interval 1 day", r"forgets which appends it has, .* \(delta\.setT"),
    ],
)
def test_a_delta_table_that_asks_more_of_its_rows_is_refused(delta: Path, key: str, value: str, reason: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"][key] = value

    change_log(delta, change)
    with pytest.raises(UsageError, match=f"no rows can be appended to this table: it {reason}"):
        append_target(f"delta:{delta}", {})


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("delta.generationExpression", "v is a generated column"),
        ("delta.invariants", "v is a column with an invariant"),
        ("delta.identity.start", "v is an identity column"),
    ],
)
def test_a_delta_column_with_a_rule_is_refused(delta: Path, key: str, reason: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][1]["metadata"][key] = 1 if key == "delta.identity.start" else "upper(id)"
            action["metaData"]["schemaString"] = json.dumps(schema)

    change_log(delta, change)
    with pytest.raises(UsageError, match=reason):
        append_target(f"delta:{delta}", {})


def test_a_required_item_of_a_delta_column_is_refused(tmp_path: Path) -> None:
    items = pa.list_(pa.field("element", pa.string(), nullable=False))
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(pa.schema([("id", pa.int64()), ("tags", items)])))
    with pytest.raises(UsageError, match="tags has a field or an item that must not be null"):
        append_target(f"delta:{tmp_path}/t", {})


def test_a_partition_type_whose_text_is_not_certain_is_refused(delta: Path) -> None:
    with pytest.raises(UsageError, match=r"its partition column at is timestamp, and only string, .* are written"):
        append_target(f"delta:{delta}", {"at": "timestamp"})


def test_an_iceberg_table_without_a_catalog_is_refused(catalog: Catalog) -> None:
    made = catalog.create_table("db.t", ROWS.schema)
    with pytest.raises(
        UsageError, match=r"its index names a metadata file, .*; build another index, of iceberg:CATALOG"
    ):
        append_target(f"iceberg:{made.metadata_location.removeprefix('file://')}", {})


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (NestedField(2, "u", UUIDType(), required=False), "u is of type uuid, which is not written"),
        (
            NestedField(2, "s", StructType(NestedField(3, "a", LongType(), required=True)), required=False),
            "it has a field a within a column that must not be null",
        ),
        (
            NestedField(2, "l", ListType(3, StringType(), element_required=True), required=False),
            "it has a field element within a column that must not be null",
        ),
    ],
)
def test_an_iceberg_column_that_cannot_be_written_is_refused(
    catalog: Catalog, column: NestedField, reason: str
) -> None:
    catalog.create_table("db.t", IcebergSchema(NestedField(1, "id", LongType(), required=False), column))
    with pytest.raises(UsageError, match=f"no rows can be appended to this table: {reason}"):
        append_target("iceberg:here.db.t", {})


def test_an_iceberg_table_whose_metadata_pyiceberg_cannot_write_is_refused(catalog: Catalog) -> None:
    made = catalog.create_table("db.t", ROWS.schema)
    path = Path(made.metadata_location.removeprefix("file://"))
    written = json.loads(path.read_text())
    for changes, reason in (
        ({"format-version": 3}, "its metadata has no next-row-id"),
        ({"format-version": 3, "next-row-id": 0}, "it has format version 3, which pyiceberg writes through REST"),
        ({"properties": {"encryption.key-id": "k"}}, "it is encrypted"),
    ):
        path.write_text(json.dumps(written | changes))
        with pytest.raises(UsageError, match=f"no rows can be appended to this table: {reason}"):
            append_target("iceberg:here.db.t", {})


def test_an_iceberg_partition_field_within_a_struct_is_refused(catalog: Catalog) -> None:
    inner = StructType(NestedField(3, "at", TimestampType(), required=False))
    schema = IcebergSchema(NestedField(1, "id", LongType()), NestedField(2, "s", inner, required=False))
    spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))
    catalog.create_table("db.t", schema, partition_spec=spec)
    with pytest.raises(UsageError, match="its partition field at_day is of a field within a column"):
        append_target("iceberg:here.db.t", {})


def test_an_iceberg_partitioning_that_dropped_the_index_s_column_is_refused(catalog: Catalog) -> None:
    made = catalog.create_table("db.t", ROWS.schema)
    with made.update_spec() as update:
        update.add_field("v", IdentityTransform())
    assert append_target("iceberg:here.db.t", {"v": "string"}).split is None
    with catalog.load_table("db.t").update_spec() as update:
        update.remove_field("v")
    with pytest.raises(UsageError, match="its partitioning changed: v is no identity partition of new files any more"):
        append_target("iceberg:here.db.t", {"v": "string"})


# -- commits -----------------------------------------------------------------------------------------------------------


def new_file(root: Path, name: str, table: pa.Table) -> NewFile:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
    return NewFile(name, path.stat().st_size, table.num_rows, "")


@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
def test_a_commit_is_done_once_and_only_for_its_own_table(catalog: Catalog, delta: Path, format_name: str) -> None:
    if format_name == "delta":
        name, root, uuid = f"delta:{delta}", delta, str(DeltaTable(str(delta)).metadata().id)
        rows = ROWS
    else:
        made = catalog.create_table("db.t", ROWS.schema)
        made.append(ROWS)
        name, uuid = "iceberg:here.db.t", str(made.metadata.table_uuid)
        root = Path(made.location().removeprefix("file://"))
        ids = [pa.field(one.name, one.type, metadata={FIELD_ID: str(i + 1)}) for i, one in enumerate(ROWS.schema)]
        rows = ROWS.cast(pa.schema(ids))
    file = new_file(root, "data/new.parquet", rows)
    planned = TableCommit(name, uuid, "gnomon.test", 5, ("",))
    assert last_number(name, uuid, "gnomon.test") == 0
    for _ in range(2):
        commit_to_table(planned, [file])
        assert last_number(name, uuid, "gnomon.test") == 5
        assert count(catalog, delta, format_name) == 4
    other = TableCommit(name, "another", "gnomon.test", 6, ("",))
    with pytest.raises(TableChanged, match="the table was replaced: expected the table with id another, found"):
        commit_to_table(other, [file])
    next_one = TableCommit(name, uuid, "gnomon.test", 6, ("",))
    with pytest.raises(TableChanged, match=r"none\.parquet: this new file is gone"):
        commit_to_table(next_one, [file._replace(path="data/none.parquet")])
    with pytest.raises(TableChanged, match=r"this new file has .* bytes and 2 rows, expected .* bytes and 3 rows"):
        commit_to_table(next_one, [file._replace(rows=3)])
    lacking = new_file(root, "data/other.parquet", ROWS.rename_columns(["id", "w"]))
    with pytest.raises(TableChanged, match=r"other.parquet: column .* in this new file, the table has"):
        commit_to_table(next_one, [lacking])
    broken = root / "data/broken.parquet"
    broken.write_bytes((root / file.path).read_bytes()[:-9] + b"\xff" * 9)
    with pytest.raises(TableChanged, match=r"broken\.parquet: this new file cannot be read"):
        commit_to_table(next_one, [file._replace(path="data/broken.parquet")])
    assert count(catalog, delta, format_name) == 4


def iceberg_append(catalog: Catalog) -> tuple[Path, TableCommit, NewFile]:
    """The root of a new table of two rows, and an append of two more, whose file is written."""
    made = catalog.create_table("db.t", ROWS.schema)
    made.append(ROWS)
    ids = [pa.field(one.name, one.type, metadata={FIELD_ID: str(i + 1)}) for i, one in enumerate(ROWS.schema)]
    root = Path(made.location().removeprefix("file://"))
    file = new_file(root, "data/new.parquet", ROWS.cast(pa.schema(ids)))
    return root, TableCommit("iceberg:here.db.t", str(made.metadata.table_uuid), "gnomon.test", 5, ("",)), file


def test_a_commit_that_a_catalog_reports_as_failed_although_it_has_it_stays_whole(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a client that sends a commit again after a lost reply, and then conflicts with itself."""
    _, planned, file = iceberg_append(catalog)
    real, calls = SqlCatalog.commit_table, []

    def losing(*arguments: Any) -> None:
        calls.append(real(*arguments))
        raise CommitFailedException("conflict")

    monkeypatch.setattr(SqlCatalog, "commit_table", losing)
    commit_to_table(planned, [file])
    assert len(calls) == 1
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 4


def test_an_append_leaves_no_connection_to_the_catalog_open(catalog: Catalog) -> None:
    _, planned, file = iceberg_append(catalog)
    commit_to_table(planned, [file])
    catalog.close()
    opened = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert not [one for one in opened if one.endswith("/catalog.db")]


def test_a_commit_that_failed_leaves_no_manifests(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    root, planned, file = iceberg_append(catalog)
    real, calls = SqlCatalog.commit_table, []

    def second(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise CommitFailedException("conflict")
        return real(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", second)
    commit_to_table(planned, [file])
    found = catalog.load_table("db.t")
    named = {one.manifest_list for one in found.snapshots()}
    named |= {one.manifest_path for snapshot in found.snapshots() for one in snapshot.manifests(found.io)}
    assert {f"file://{path}" for path in (root / "metadata").glob("*.avro")} == named
    assert found.scan().to_arrow().num_rows == 4


def count(catalog: Catalog, delta: Path, format_name: str) -> int:
    """The rows by the table's own reader."""
    if format_name == "delta":
        return int(DeltaTable(str(delta)).to_pyarrow_table().num_rows)
    return catalog.load_table("db.t").scan().to_arrow().num_rows


def test_a_log_that_fails_after_the_table_was_opened_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": [1]}))
    table = DeltaTable(place)
    (tmp_path / "t/_delta_log/00000000000000000000.json").unlink()
    with pytest.raises(StorageError, match=f"^delta:{place}: its log cannot be read .*; run it again") as raised:
        delta_append.number_of(table, place, str(table.metadata().id), "w")
    assert len(str(raised.value).splitlines()) == 1

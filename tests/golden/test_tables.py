"""The rows that Spark read from the tables of tests/golden/tables, against readers that are not Spark."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import StaticTable

from tests.golden import tables
from tests.golden.tables import TABLES, Table, Version
from tests.golden.tables.values import exact_rows
from tests.profiles import cases

REFUSED = {
    "delta_widened": (DeltaError, "Unsupported table features required: .TypeWidening."),
    "iceberg_equality_deletes": (ValueError, "PyIceberg does not yet support equality deletes"),
    "iceberg_equality_scopes": (ValueError, "PyIceberg does not yet support equality deletes"),
    "iceberg_equality_formats": (ValueError, "PyIceberg does not yet support equality deletes"),
    "iceberg_formats": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_avro_blocks": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_avro_evolved": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_avro_types": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_defaults": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_formats_evolved": (ValueError, "Unsupported file format: FileFormat.AVRO"),
    "iceberg_orc_types": (ValueError, "Unsupported schema projection from timestamp"),
}
WIDENED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5,2)": pa.decimal128(5, 2),
    "decimal(20,4)": pa.decimal128(20, 4),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
}


def read_delta(version: Version) -> pa.Table:
    """The rows by deltalake."""
    opened = DeltaTable(version.table.path, version=version.version)
    return pa.table(QueryBuilder().register("t", opened).execute("SELECT * FROM t").read_all())


def read_iceberg(version: Version) -> pa.Table:
    """The rows by pyiceberg."""
    return StaticTable.from_metadata(version.metadata).scan().to_arrow()


READERS: dict[str, Callable[[Version], pa.Table]] = {"delta": read_delta, "iceberg": read_iceberg}


def read_widened(version: Version) -> pa.Table:
    """The rows of a Delta table without partitions and deletion vectors: its log replayed, each file cast."""
    root = Path(version.table.path)
    files: dict[str, None] = {}
    for number in range(version.version + 1):
        for line in (root / f"_delta_log/{number:020}.json").read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "remove":
                del files[action["path"]]
            elif kind == "add":
                files[action["path"]] = None
    schema = pa.schema([(name, WIDENED[kind]) for name, kind in version.columns.items()])
    return pa.concat_tables(
        [schema.empty_table(), *(pa.parquet.read_table(root / file).cast(schema) for file in files)]
    )


def read_with_deletes(version: Version) -> pa.Table:
    """The rows of an Iceberg table whose files have its columns in order. A position delete removes rows of files that
    were committed before it or with it, an equality delete rows of files that were committed before it: files of its
    partition, or all files if it has no partition."""
    opened = StaticTable.from_metadata(version.metadata)
    names = {field.field_id: field.name for field in opened.schema().fields}
    entries = list(live_entries(opened))
    by_position: dict[tuple[str, int], int] = {}
    by_value: list[tuple[ManifestEntry, list[str], set[tuple[object, ...]]]] = []
    for entry in entries:
        number, file = entry.sequence_number or 0, entry.data_file
        if file.content == DataFileContent.POSITION_DELETES:
            for row in read_file(file).to_pylist():
                place = row["file_path"], row["pos"]
                by_position[place] = max(number, by_position.get(place, 0))
        elif file.content == DataFileContent.EQUALITY_DELETES:
            columns = [names[number] for number in file.equality_ids or []]
            values = {tuple(row[name] for name in columns) for row in read_file(file).to_pylist()}
            by_value.append((entry, columns, values))
    rows: list[dict[str, Any]] = []
    for entry in entries:
        number, file = entry.sequence_number or 0, entry.data_file
        if file.content == DataFileContent.DATA:
            deletes = [delete[1:] for delete in by_value if applies(delete[0], entry, opened)]
            for position, row in enumerate(read_file(file).rename_columns(list(version.columns)).to_pylist()):
                if by_position.get((file.file_path, position), -1) < number and not any(
                    tuple(row[name] for name in columns) in values for columns, values in deletes
                ):
                    rows.append(row)
    return pa.Table.from_pylist(rows, schema=opened.schema().as_arrow())


def applies(delete: ManifestEntry, data: ManifestEntry, opened: StaticTable) -> bool:
    """Whether an equality delete file applies to a data file."""
    one, other = delete.data_file, data.data_file
    everywhere = opened.specs()[one.spec_id].is_unpartitioned()
    same = (one.spec_id, one.partition) == (other.spec_id, other.partition)
    return (delete.sequence_number or 0) > (data.sequence_number or 0) and (everywhere or same)


def live_entries(opened: StaticTable) -> Iterator[ManifestEntry]:
    """The entries of all live files of the current snapshot."""
    snapshot = opened.current_snapshot()
    for manifest in snapshot.manifests(opened.io) if snapshot else []:
        yield from manifest.fetch_manifest_entry(opened.io, discard_deleted=True)


def read_file(file: DataFile) -> pa.Table:
    """All rows of a Parquet, ORC or Avro file."""
    path = file.file_path.removeprefix("file:")
    if file.file_format == FileFormat.AVRO:
        with open(path, "rb") as opened:
            return pa.Table.from_pylist(list(fastavro.reader(opened)))
    return (pa.orc if file.file_format == FileFormat.ORC else pa.parquet).read_table(path)


BY_HAND: dict[str, Callable[[Version], pa.Table]] = {
    "delta_widened": read_widened,
    "iceberg_equality_deletes": read_with_deletes,
    "iceberg_equality_scopes": read_with_deletes,
    "iceberg_equality_formats": read_with_deletes,
    "iceberg_formats": read_with_deletes,
}


READ_TWICE = [table for table in TABLES if table.name in BY_HAND or table.name not in REFUSED]


@pytest.mark.parametrize("table", cases(READ_TWICE), ids=str)
def test_a_second_reader_reads_the_same_rows_at_each_version(table: Table) -> None:
    read = BY_HAND.get(table.name, READERS[table.format])
    for version in table.versions:
        if not version.gone:
            rows = read(version)
            assert rows.column_names == list(version.columns)
            assert exact_rows(rows, version.key) == version.rows(), version


@pytest.mark.parametrize("table", [table for table in TABLES if table.name in REFUSED], ids=str)
def test_a_reader_by_hand_is_used_only_where_the_library_refuses(table: Table) -> None:
    error, message = REFUSED[table.name]
    with pytest.raises(error, match=message):
        [READERS[table.format](version) for version in table.versions]


def test_a_second_reader_refuses_versions_whose_files_are_deleted() -> None:
    gone = [version for table in TABLES for version in table.versions if version.gone]
    assert {version.table.format for version in gone} == {"delta", "iceberg"}
    for version in gone:
        with pytest.raises(Exception, match=r"[Nn]o such file|not found"):
            READERS[version.table.format](version)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_each_version_has_the_rows_and_columns_of_its_description(table: Table) -> None:
    assert len({(version.version, version.metadata) for version in table.versions}) == len(table.versions) > 1
    for version in table.versions:
        rows = version.rows()
        assert len(rows) == version.row_count
        assert all(list(row) == list(version.columns) for row in rows)
        assert len({tuple(row[name] for name in version.key) for row in rows}) == len(rows)


def test_a_damaged_copy_of_a_table_is_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PLACE", str(tmp_path))
    unpack = tables.unpacked.__wrapped__
    place = unpack(TABLES[0])
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    first, second, *_ = files
    first.unlink()
    second.write_bytes(b"x" + files[second][1:])
    (place / "table" / "other").touch()
    assert unpack(TABLES[0]) == place
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == files
    assert sorted(tmp_path.iterdir()) == [tmp_path / ".lock", place]
    shutil.rmtree(place)
    assert unpack(TABLES[0]) == place

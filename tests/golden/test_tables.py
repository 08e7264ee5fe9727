"""The rows that Spark read from the tables of tests/golden/tables, against readers that are not Spark."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from tests.golden import tables
from tests.golden.tables import TABLES, Table, Version
from tests.golden.tables.values import exact_rows

# Tables that the second reader does not read, or reads otherwise than Spark.
UNREAD: dict[str, str] = {}


def read_delta(table: Table, version: Version) -> pa.Table:
    opened = DeltaTable(table.path, version=version.version)
    return pa.table(QueryBuilder().register("t", opened).execute("SELECT * FROM t").read_all())


def read_iceberg(_table: Table, version: Version) -> pa.Table:
    return StaticTable.from_metadata(version.metadata).scan().to_arrow()


READERS: dict[str, Callable[[Table, Version], pa.Table]] = {"delta": read_delta, "iceberg": read_iceberg}


@pytest.mark.parametrize("table", [table for table in TABLES if table.name not in UNREAD], ids=str)
def test_a_second_reader_reads_the_same_rows_at_each_version(table: Table) -> None:
    for version in table.versions:
        read = READERS[table.format](table, version)
        assert read.column_names == list(version.columns)
        assert exact_rows(read, table.key) == version.rows(), version


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_each_version_has_the_rows_and_columns_of_its_description(table: Table) -> None:
    assert len({(version.version, version.metadata) for version in table.versions}) == len(table.versions) > 1
    for version in table.versions:
        rows = version.rows()
        assert all(list(row) == list(version.columns) for row in rows)
        assert len({tuple(row[name] for name in table.key) for row in rows}) == len(rows)


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
    assert list(tmp_path.iterdir()) == [place]
    shutil.rmtree(place)
    assert unpack(TABLES[0]) == place

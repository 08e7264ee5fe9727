"""An export in the layout of the draft Iceberg index, on tables that Spark wrote, read back by pyarrow and DuckDB."""

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset
from pyiceberg import types as iceberg_types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform

from gnomon.__main__ import main
from gnomon.btree.hash_columns import iceberg_hashes
from gnomon.jobs.build import BuildRequest
from gnomon.jobs.build.job import build_index
from gnomon.jobs.local import LocalEngine
from gnomon.shadow.errors import UsageError
from gnomon.shadow.maintenance import DRAFT, export_iceberg_index
from gnomon.shadow.metadata import open_view
from gnomon.shadow.storage import storage_at
from tests.golden.tables import TABLES, Table, Version
from tests.golden.tables.values import exact
from tests.shadow.make_index import index_source, write_source
from tests.shadow.values_folder import write_folder

BY_NAME = {table.name: table for table in TABLES}
PATH, POSITION = "source_file_path", "source_file_pos"


def indexed(table: Table, version: Version, key: tuple[str, ...], index: str) -> None:
    if table.format == "delta":
        build_index(LocalEngine(), f"delta:{table.path}", index, BuildRequest(key, table_version=str(version.version)))
    else:
        build_index(LocalEngine(), f"iceberg:{version.metadata}", index, BuildRequest(key))


def exported(index: str, out: str, **options: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The JSON file of an export, and the entries of its tracking file."""
    done = export_iceberg_index(storage_at(index), open_view(storage_at(index)), storage_at(out), **options)
    described = json.loads(Path(done.metadata).read_text())
    leafs = pq.read_table(described["snapshots"][0]["index-data"]).to_pylist()
    assert (done.leafs, done.rows) == (len(leafs), sum(leaf["record_count"] for leaf in leafs))
    return described, leafs


def deleting(table: Table) -> Version:
    return next(version for version in table.versions if version.operation.startswith("delete") and version.rows())


CASES = [
    ("delta_vectors", ("id",)),
    ("delta_vectors", ("name", "id")),
    ("iceberg_vectors", ("id",)),
    ("iceberg_position_deletes", ("id",)),
    ("iceberg_orc_evolved", ("id",)),
    ("iceberg_position_deletes", ("name", "id")),
]


@pytest.mark.parametrize(("name", "key"), CASES)
def test_the_leafs_have_exactly_the_live_rows_in_the_order_of_the_draft(
    name: str, key: tuple[str, ...], tmp_path: Path
) -> None:
    """In leaf files of 50 rows, in several passes over the index. Each pointer leads to a row with the key."""
    table = BY_NAME[name]
    version = deleting(table)
    indexed(table, version, key, str(tmp_path / "index"))
    described, leafs = exported(str(tmp_path / "index"), str(tmp_path / "out"), leaf_rows=50, rows_at_once=60)
    assert len(leafs) > len(version.rows()) // 50
    rows = [row for leaf in leafs for row in pq.read_table(leaf["location"]).to_pylist()]
    expected = sorted(repr([exact(row[one]) for one in key]) for row in version.rows())
    assert sorted(repr([exact(row[one]) for one in key]) for row in rows) == expected
    files: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        path = row[PATH].removeprefix("file:")
        if path not in files:
            files[path] = dataset(path, format=path.rpartition(".")[2]).to_table(columns=list(key)).to_pylist()
        assert files[path][row[POSITION]] == {one: row[one] for one in key}
    kind = iceberg_types.LongType() if key[0] == "id" else iceberg_types.StringType()
    bucket = BucketTransform(256).transform(kind)
    order = [(bucket(row[key[0]]), *(row[one] for one in key), row[PATH], row[POSITION]) for row in rows]
    assert order == sorted(order)
    last = 0
    for leaf in leafs:
        last += leaf["record_count"]
        bound = leaf["content_stats"]["index_key_upper_bound"]
        assert tuple(bound.values()) == order[last - 1][: 1 + len(key)]
        own = order[last - leaf["record_count"] : last]
        assert leaf["content_stats"]["upper_bounds"][POSITION] == max(row[-1] for row in own)
        assert leaf["content_stats"]["lower_bounds"][key[0]] == min(row[1] for row in own)
    by_duckdb = duckdb.sql(f"SELECT * FROM read_parquet({[leaf['location'] for leaf in leafs]!r})").fetchall()
    assert by_duckdb == [tuple(row[one] for one in (*key, PATH, POSITION)) for row in rows]
    assert described["index-keys"]["arguments"][0]["arguments"][0] == 256


def test_the_field_ids_paths_and_names_are_those_of_the_table(tmp_path: Path) -> None:
    table = BY_NAME["iceberg_vectors"]
    version = deleting(table)
    indexed(table, version, ("id",), str(tmp_path / "index"))
    described, [leaf] = exported(str(tmp_path / "index"), str(tmp_path / "out"))
    found = pq.ParquetFile(leaf["location"])
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in found.schema_arrow}
    assert ids == {"id": 1, PATH: 2147483538, POSITION: 2147483537}
    assert found.metadata.metadata[b"draft-commit"] == DRAFT.encode()
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"
    metadata = json.loads(Path(version.metadata).read_text())
    assert described["table-uuid"] == metadata["table-uuid"]
    [snapshot] = described["snapshots"]
    assert snapshot["source-table-snapshot-id"] == metadata["current-snapshot-id"]
    assert described["properties"]["draft-commit"] == DRAFT
    assert described["index-values"]["result-type"]["fields"] == [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2147483538, "name": PATH, "required": True, "type": "string"},
        {"id": 2147483537, "name": POSITION, "required": True, "type": "long"},
    ]
    paths = set(found.read().column(PATH).to_pylist())
    assert paths
    assert all(path.startswith(metadata["location"] + "/data/") for path in paths)


HASHED = [
    ("bigint", iceberg_types.LongType(), pa.int64(), [0, 34, -1, 2**62]),
    ("int", iceberg_types.IntegerType(), pa.int32(), [0, 34, -(2**31)]),
    ("date", iceberg_types.DateType(), pa.date32(), [dt.date(2017, 11, 16), dt.date(1903, 2, 1)]),
    ("timestamp_ntz", iceberg_types.TimestampType(), pa.timestamp("us"), [dt.datetime(2017, 11, 16, 22, 31, 8)]),
    ("decimal(9,2)", iceberg_types.DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("14.20"), Decimal("-1.28")]),
    ("decimal(38,0)", iceberg_types.DecimalType(38, 0), pa.decimal128(38, 0), [Decimal(10**30), Decimal(-(10**20))]),
    (
        "string",
        iceberg_types.StringType(),
        pa.string(),
        ["", "i", "ic", "ice", "iceb", "iceberg", "é" * 100],
    ),
    ("binary", iceberg_types.BinaryType(), pa.binary(), [b"\x00\x01\x02\x03", b"\xff" * 999]),
]


@pytest.mark.parametrize(("kind", "iceberg", "arrow", "values"), HASHED, ids=lambda one: str(one)[:14])
def test_each_hash_is_the_one_of_pyiceberg(kind: str, iceberg: Any, arrow: pa.DataType, values: list[Any]) -> None:
    function = BucketTransform(2**31 - 1)
    found = iceberg_hashes(pa.array([*values, None, values[0]], arrow), kind)
    hashed = [int(one & 0x7FFFFFFF) % (2**31 - 1) for one in found]
    expected = [(function.transform(iceberg)(one)) for one in values]
    assert hashed[: len(values)] == expected
    assert hashed[-1] == expected[0]


def test_a_null_key_comes_first(tmp_path: Path) -> None:
    table = BY_NAME["iceberg_types"]
    indexed(table, table.versions[-1], ("id",), str(tmp_path / "index"))
    _, leafs = exported(str(tmp_path / "index"), str(tmp_path / "out"), leaf_rows=10)
    keys = [row["id"] for leaf in leafs for row in pq.read_table(leaf["location"]).to_pylist()]
    assert len(keys) == table.versions[-1].row_count
    assert [place for place, key in enumerate(keys) if key is None] == [0]


def test_what_the_draft_cannot_hold_and_folders_with_files_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": [1]})})
    index_source(tmp_path / "source", tmp_path / "plain", ["id"])
    plain = storage_at(str(tmp_path / "plain"))
    with pytest.raises(UsageError, match="the index of an Iceberg or Delta table"):
        export_iceberg_index(plain, open_view(plain), storage_at(str(tmp_path / "out")))
    write_folder(tmp_path / "values", pa.table({"id": [1], "v": ["a"]}), ["id"])
    values = storage_at(str(tmp_path / "values"))
    with pytest.raises(UsageError, match="a key-value folder has no pointers"):
        export_iceberg_index(values, open_view(values), storage_at(str(tmp_path / "out")))
    table = BY_NAME["delta_vectors"]
    index = str(tmp_path / "index")
    indexed(table, deleting(table), ("id",), index)
    (tmp_path / "out").mkdir()
    assert main(["export", index, str(tmp_path / "out"), "--iceberg-index"]) == 2
    assert main(["export", index, str(tmp_path / "new")]) == 2
    assert main(["export", index, str(tmp_path / "new"), "--iceberg-index", "--json"]) == 0
    with pytest.raises(UsageError, match="has files"):
        export_iceberg_index(storage_at(index), open_view(storage_at(index)), storage_at(str(tmp_path / "new")))


def test_a_table_with_avro_files_is_refused(tmp_path: Path) -> None:
    """Pointers into them are no row numbers. Those into ORC files are."""
    index = str(tmp_path / "index")
    table = BY_NAME["iceberg_avro_evolved"]
    indexed(table, table.versions[1], ("id",), index)
    with pytest.raises(UsageError, match=r"\.avro: the index has no row numbers of an Avro file"):
        export_iceberg_index(storage_at(index), open_view(storage_at(index)), storage_at(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_key_of_uuids_is_refused(tmp_path: Path) -> None:
    """The index holds it as text, and Iceberg hashes its bytes."""
    catalog = SqlCatalog("here", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    schema = Schema(iceberg_types.NestedField(1, "id", iceberg_types.UUIDType()))
    table = catalog.create_table("db.t", schema=schema)
    table.append(pa.table({"id": pa.array([uuid.uuid4().bytes for _ in range(3)], pa.uuid())}))
    catalog.close()
    index = str(tmp_path / "index")
    build_index(
        LocalEngine(), f"iceberg:{table.metadata_location.removeprefix('file://')}", index, BuildRequest(("id",))
    )
    with pytest.raises(UsageError, match="a key of this type is not exported"):
        export_iceberg_index(storage_at(index), open_view(storage_at(index)), storage_at(str(tmp_path / "out")))

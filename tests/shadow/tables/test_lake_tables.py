"""A folder of a Delta, Iceberg, Hudi, Lance or Paimon table, or of a streaming query, is recognised."""

from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata.snapshots import Snapshot, commit, snapshot_path
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables.plain_files import check_plain_files, table_among, table_around
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "v": [f"v{i}" for i in range(20)]})
MARKS = {
    "Delta Lake table": ["_delta_log/00000000000000000000.json"],
    "Iceberg table": ["metadata/00000-6d1c7c3e.metadata.json"],
    "Hudi table": [".hoodie/hoodie.properties"],
    "Lance dataset": ["_versions/1.manifest"],
    "Paimon table": ["snapshot/snapshot-1", "manifest/manifest-5e2a-0"],
    "Spark streaming sink": ["_spark_metadata/0"],
}


def delta_table(root: Path) -> Path:
    deltalake.write_deltalake(str(root), ROWS)
    deltalake.DeltaTable(str(root)).delete("id = 5")
    return root


def iceberg_table(root: Path) -> Path:
    root.mkdir()
    catalog = SqlCatalog("here", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", schema=ROWS.schema)
    made.append(ROWS)
    catalog.close()
    return Path(made.location().removeprefix("file://"))


@pytest.mark.parametrize("format_name", MARKS)
@pytest.mark.parametrize("place", ["at", "above", "below"])
def test_metadata_at_above_or_below_the_root_names_the_table(tmp_path: Path, format_name: str, place: str) -> None:
    root = {"at": "lake/t", "above": "lake/t/data/dt=1", "below": "lake"}[place]
    write_source(tmp_path, {"lake/t/data/dt=1/a.parquet": ROWS, "lake/t/b.parquet": ROWS})
    for mark in MARKS[format_name]:
        (tmp_path / "lake/t" / mark).parent.mkdir(parents=True)
        (tmp_path / "lake/t" / mark).write_bytes(b"{}")
    files, found = source_root(str(tmp_path / root)).listing()
    assert found is not None
    assert (found.format, found.root) == (format_name, str(tmp_path / "lake/t"))
    assert found.file == min(MARKS[format_name])
    assert not any(file.path.endswith(("properties", "00.json", "_metadata/0", "1.manifest")) for file in files)


def test_tables_of_real_writers_are_found(tmp_path: Path) -> None:
    for made, format_name in (
        (delta_table(tmp_path / "delta"), "Delta Lake table"),
        (iceberg_table(tmp_path / "iceberg"), "Iceberg table"),
    ):
        for root in (made, made / "data", made.parent):
            found = source_root(str(root)).listing().lake_table if root.exists() else None
            assert found is None or (found.format, found.root) == (format_name, str(made))
        assert source_root(str(made)).listing().lake_table


def test_one_file_of_a_table_belongs_to_it(tmp_path: Path) -> None:
    file = next(delta_table(tmp_path / "t").glob("*.parquet"))
    found = source_root(str(file)).listing().lake_table
    assert found is not None
    assert found.root == str(tmp_path / "t")


def test_a_folder_that_is_a_link_into_a_table_belongs_to_it(tmp_path: Path) -> None:
    write_source(tmp_path, {"t/dt=1/a.parquet": ROWS, "t/_delta_log/0.json": ROWS})
    (tmp_path / "link").symlink_to(tmp_path / "t/dt=1")
    found = source_root(str(tmp_path / "link")).listing().lake_table
    assert found is not None
    assert found.root == str(tmp_path / "t")


@pytest.mark.parametrize(
    "paths",
    [
        ["snapshot/snapshot-1"],
        ["manifest/manifest-1"],
        ["metadata/readme.json", "metadata/a.parquet"],
        ["_versions/a.parquet", "delta_log/0.json", "_delta_log_/0.json", "hoodie/hoodie.properties"],
        ["a/_delta_log"],
        ["snapshot/snapshot-1", "b/manifest/manifest-1"],
    ],
)
def test_other_names_are_no_table(paths: list[str]) -> None:
    assert table_among("/lake", paths) is None


def test_nothing_above_a_plain_folder_is_taken_for_a_table(tmp_path: Path) -> None:
    assert table_around(str(tmp_path)) is None


def test_a_table_on_an_object_store_is_found() -> None:
    storage = storage_at("memory://lake-tables/lake/t")
    for path in ("_delta_log/00000000000000000000.json", "part-0/a.parquet"):
        storage.put_new(path, [b"{}"])
    for root in ("lake/t", "lake", "lake/t/part-0"):
        found = source_root(f"memory://lake-tables/{root}").listing().lake_table
        assert found is not None
        assert found.root == "memory://lake-tables/lake/t"


def test_the_refusal_names_format_place_and_what_to_do(tmp_path: Path) -> None:
    found = source_root(str(delta_table(tmp_path / "t"))).listing().lake_table
    with pytest.raises(UsageError, match=r"a Delta Lake table at /.*/t \(_delta_log/0+\.json is there\).*; copy it"):
        check_plain_files(found, "t", "copy it")
    check_plain_files(None, "t", "copy it")


def test_an_index_made_of_a_tables_files_is_told_apart_from_one_that_was_asked_for(tmp_path: Path) -> None:
    """Versions that did not look for tables made such an index; the spec of an index made with --as-files has the
    flag."""
    source = delta_table(tmp_path / "t")
    index_source(source, tmp_path / "index", ["id"])
    index = open_index(str(tmp_path / "index"))
    difference = index.coverage()
    assert difference.lake_table is not None
    assert len(index.fetch(5)) == 1, "the row that the table deleted"
    storage = storage_at(str(tmp_path / "index"))
    [fault] = verify(storage).faults
    assert fault.path == str(source)
    assert "a Delta Lake table" in fault.what
    snapshot = index.view.snapshot
    asked = replace(snapshot, spec=replace(snapshot.spec, source=replace(snapshot.spec.source, as_files=True)))
    write_snapshot_again(tmp_path / "index", asked)
    assert open_index(str(tmp_path / "index")).spec.source.as_files
    assert verify(storage).is_sound


def write_snapshot_again(index: Path, snapshot: Snapshot) -> None:
    (index / snapshot_path(snapshot.number)).unlink()
    commit(storage_at(str(index)), snapshot)

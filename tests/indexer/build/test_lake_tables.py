"""Indexes of Delta and Iceberg tables that Spark wrote, at each version, against the rows that Spark reads."""

from ast import literal_eval
from collections import defaultdict
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import filter_new, load, read_index
from gnomon.indexer.build import SparkEngine
from gnomon.jobs.build import BuildRequest, LocalEngine, build_metadata, plan
from gnomon.jobs.build.job import build_index
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import (
    DamagedMetadata,
    IndexBehind,
    KeyTypeError,
    SourceNotFound,
    SpecMismatch,
    StalePointer,
    UsageError,
)
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshots import commit, newest_snapshot
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import LakeSource, lake_source
from gnomon.shadow.verify.snapshot import verify
from tests.golden.tables import TABLES, Table, Version
from tests.golden.tables.values import exact
from tests.opened import open_index
from tests.profiles import cases
from tests.spark_fixtures import to_arrow

Rows = list[dict[str, Any]]


def bring_to(spark: SparkSession | None, version: Version, index: str, key: tuple[str, ...] = ()) -> bool:
    """Build the index for a version of a table, in this process where there is no session. Returns whether it took a
    job."""
    name = f"iceberg:{version.metadata}" if version.metadata else f"delta:{version.table.path}"
    as_of = None if version.metadata else str(version.version)
    request = BuildRequest(key or version.key, table_version=as_of)
    if build_metadata(plan(name, index, request), request) is not None:
        return False
    build_index(SparkEngine(spark) if spark is not None else LocalEngine(), name, index, request)
    return True


def same(found: Rows, expected: Rows) -> bool:
    """Whether rows are the same: names and exact values, in any order of columns and rows."""
    shown = [sorted((name, repr(exact(value))) for name, value in row.items()) for row in found]
    return sorted(shown) == sorted(sorted((name, repr(value)) for name, value in row.items()) for row in expected)


def check(opened: OpenIndex, version: Version, key: tuple[str, ...], all_keys: set[tuple[Any, ...]]) -> None:
    """Compare every row of the version, and the absence of all other keys, in each reader."""
    expected: dict[tuple[Any, ...], Rows] = defaultdict(list)
    keys = {}
    for row in version.rows():
        shown = tuple(repr(row[name]) for name in key)
        expected[shown].append(row)
        keys[shown] = [row[name] for name in key]
    assert opened.view.snapshot.rows == len(version.rows())
    for shown, rows in zip(keys, opened.fetch_many([*keys.values()]), strict=True):
        assert same(rows, expected[shown]), shown
    for absent in all_keys - keys.keys():
        with suppress(KeyTypeError):  # a key of a later version, of a wider type
            assert not opened.fetch([literal_eval(part) for part in absent])
            assert not opened.contains([literal_eval(part) for part in absent])


REFUSED = {  # tables, some of whose versions are not read: what the error says
    "iceberg_equality_deletes": "equality deletes are read where their columns are the key of the index",
}
KEYS = {"iceberg_equality_scopes": ("id",)}  # the key of the deletes, where it is not the one that tells rows apart
REBUILT = {  # tables, one of whose versions needs another index: what the error says
    "delta_renamed": "build to another folder",
    "delta_widened": "build to another folder",
    "iceberg_evolved": "build to another folder",
    "iceberg_equality_formats": "build to another folder",
    "iceberg_avro_evolved": "build to another folder",
    "iceberg_orc_evolved": "build to another folder",
    "iceberg_formats_evolved": "build to another folder",
    "iceberg_partitions": "say --full",
}


@pytest.mark.parametrize("table", cases(TABLES[::6]), ids=str)
def test_each_version_answers_as_spark_reads_it_when_spark_builds(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    follow(spark, table, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("table", cases(TABLES), ids=str)
def test_each_version_answers_as_spark_reads_it(table: Table, tmp_path: Path) -> None:
    follow(None, table, tmp_path)


def follow(spark: SparkSession | None, table: Table, tmp_path: Path) -> None:
    """One index follows the table from version to version. A key or partition column with another name or type asks for
    another index."""
    index, refused, rebuilt = str(tmp_path / "0"), 0, 0
    versions = [version for version in table.versions if version.gone or version.rows()]
    key = KEYS.get(table.name, versions[0].key)
    for number, version in enumerate(versions):
        if version.gone:
            with pytest.raises((SourceNotFound, StalePointer)):
                bring_to(spark, version, str(tmp_path / f"gone-{number}"))
            continue
        try:
            bring_to(spark, version, index, key)
        except SpecMismatch as error:
            assert REBUILT[table.name] in str(error)  # noqa: PT017 - most versions need no other index
            index, key, rebuilt = str(tmp_path / str(number)), version.key, rebuilt + 1
            bring_to(spark, version, index, key)
        except UsageError as error:
            assert REFUSED[table.name] in str(error)  # noqa: PT017 - most versions are not refused
            refused += 1
            continue
        check(open_index(index), version, key, all_keys(table, key))
        report = verify(storage_at(index), sample=None)
        assert report.is_sound, report.faults
    assert (bool(refused), bool(rebuilt)) == (table.name in REFUSED, table.name in REBUILT)


@pytest.mark.parametrize("table", cases(TABLES), ids=str)
def test_an_index_of_the_first_version_reads_the_newest_one_through(table: Table, tmp_path: Path) -> None:
    """All changes between two versions, of rows and of columns, by the log of the table alone."""
    first = next(version for version in table.versions if not version.gone and version.rows())
    newest, key, index = table.versions[-1], KEYS.get(table.name, first.key), str(tmp_path / "index")
    name = f"iceberg:{newest.metadata}" if newest.metadata else f"delta:{table.path}"
    refused = "another folder" if table.name in REBUILT else None
    with pytest.raises((IndexBehind, UsageError), match=refused) if refused else nullcontext():
        build_index(LocalEngine(), name, index, BuildRequest(key, table_version=str(first.version)))
        check(open_index(index, newest=True), newest, key, all_keys(table, key))


def all_keys(table: Table, key: tuple[str, ...]) -> set[tuple[Any, ...]]:
    """The keys of all versions with these key columns."""
    versions = [version for version in table.versions if set(key) <= version.columns.keys() and not version.gone]
    return {tuple(repr(row[name]) for name in key) for version in versions for row in version.rows()}


def test_a_default_is_found_as_a_key(spark: SparkSession, tmp_path: Path) -> None:
    """In the index, in joins, and by every row, also of files that lack the column."""
    table, index = next(one for one in TABLES if one.name == "iceberg_defaults"), str(tmp_path / "index")
    version = next(one for one in table.versions if one.operation == "delete by a default")
    build_index(SparkEngine(spark), f"iceberg:{version.metadata}", index, BuildRequest(["whole"], include=["flag"]))
    expected = [row for row in version.rows() if row["whole"] == 7]
    assert 0 < len(expected) < version.row_count
    opened = open_index(index)
    assert same(opened.fetch(7), expected)
    assert same(opened.fetch(None), [row for row in version.rows() if row["whole"] is None])
    asked = spark.createDataFrame([(7,)], "whole int")
    loaded = to_arrow(load(spark, index, asked)).to_pylist(maps_as_pydicts="strict")
    assert same(loaded, expected)
    entries = read_index(spark, index).where("whole = 7").collect()
    assert [row["flag"] for row in entries] == [True] * len(expected)
    assert verify(storage_at(index), sample=None).is_sound


def with_deletes() -> list[Table]:
    """The tables whose files have deleted rows."""
    return [table for table in TABLES if "vectors" in table.name or "blocks" in table.name]


@pytest.mark.parametrize("table", cases(with_deletes()), ids=str)
def test_deleted_rows_are_in_no_reader(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """A join, SQL, the check of a batch, Arrow, and the same after a compaction and other buckets."""
    index, [key] = str(tmp_path / "index"), table.key
    before, after = deleting(table)
    bring_to(spark, before, index)
    assert not bring_to(spark, after, index), "a version that only deletes needs no Spark"
    live, dead = keys_of(after), keys_of(before) - keys_of(after)
    assert dead
    for change in (None, lambda: compact(storage_at(index)), lambda: rebucket(storage_at(index), 3)):
        if change is not None:
            change()
        opened = open_index(index)
        both = sorted(live | dead)
        assert opened.view.snapshot.rows == len(live)
        assert [len(rows) for rows in opened.fetch_many(both)] == [int(one in live) for one in both]
        assert set(opened.table_many(both)[key].to_pylist()) == live
        asked = spark.createDataFrame([(one,) for one in both], f"`{key}` bigint")
        assert {row[key] for row in load(spark, index, asked).collect()} == live
        assert {row[key] for row in filter_new(spark, index, asked).collect()} == dead
        table_of_index = read_index(spark, index)
        assert table_of_index.count() == len(live)
        assert {row[key] for row in table_of_index.collect()} == live
        assert table_of_index.where(f"`{key}` = {min(dead)}").count() == 0
        assert verify(storage_at(index), sample=None).is_sound
    assert open_index(index, table_version=version_of(before)).contains(min(dead))
    vacuum(storage_at(index), grace_seconds=0)
    assert not open_index(index).contains(min(dead))
    assert list((tmp_path / "index/_shadow/masks").iterdir()), "the newest snapshot needs its masks"


def keys_of(version: Version) -> set[int]:
    [key] = version.table.key
    return {row[key] for row in version.rows()}


def version_of(version: Version) -> str:
    return str(version.version)


def deleting(table: Table) -> tuple[Version, Version]:
    """A version, and the next one, which only deletes rows."""
    pairs = pairwise(table.versions)
    return next(
        (one, other) for one, other in pairs if other.operation.startswith("delete") and keys_of(other) < keys_of(one)
    )


def test_damaged_masks_are_refused(tmp_path: Path) -> None:
    """A flipped byte and a missing file are errors of the open and of verify, and never rows."""
    table = with_deletes()[0]
    index = str(tmp_path / "index")
    bring_to(None, deleting(table)[1], index)
    [file] = (tmp_path / "index/_shadow/masks").iterdir()
    data = file.read_bytes()
    for damaged in (bytes([*data[:-20], data[-20] ^ 1, *data[-19:]]), data[:-1], None):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(DamagedMetadata, match=r"_shadow/masks/.*run gnomon build INDEX --full"):
            open_index(index)
        assert not verify(storage_at(index)).is_sound


def test_verify_finds_masks_that_are_not_the_tables(tmp_path: Path) -> None:
    """The masks of another version, whole and with the right checksum."""
    table = with_deletes()[0]
    before, after = deleting(table)
    storage = storage_at(str(tmp_path / "index"))
    bring_to(None, before, storage.root)
    bring_to(None, after, storage.root)
    newest = newest_snapshot(storage)
    assert newest is not None
    other = replace(newest, number=newest.number + 1, masks=None, partitions={"": newest.rows + newest.masks.rows})
    commit(storage, other)
    report = verify(storage)
    assert any("other rows of it are deleted" in fault.what for fault in report.faults)


class WithCatalog(LocalEngine):
    """An engine whose catalog knows one lake table."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def read_table(self, source: str) -> LakeSource:
        return lake_source(self._name)


@pytest.mark.parametrize("source", ["delta", "table"])
def test_a_build_of_some_partitions_is_refused(tmp_path: Path, source: str) -> None:
    """A snapshot records one version of the table: the files of other partitions would be missing without a word."""
    table = next(table for table in TABLES if table.format == "delta")
    name, request = f"delta:{table.path}", BuildRequest(table.key, partitions=[])
    with pytest.raises(UsageError, match="covers a version of a lake table as a whole"):
        build_index(WithCatalog(name), name if source == "delta" else "table:db.t", str(tmp_path / "index"), request)
    assert not (tmp_path / "index").exists()

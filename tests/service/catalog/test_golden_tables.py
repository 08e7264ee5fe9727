"""Plans of tables that Spark wrote, at each of their versions: the live files and their deletes are those that the
index's own reader of Iceberg finds, and every live row's file is planned by its key, whatever version the index is
of."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyroaring import BitMap64

import gnomon
from gnomon.service.catalog.planning import Plan, Planner, PlanRequest, TableIndex
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import ShadowError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import LakeContent, LakeSource
from gnomon.shadow.tables.iceberg_deletes import deletion_vector, pointer_numbers, position_deletes
from gnomon.shadow.tables.iceberg_files import Paths
from tests.golden.tables import TABLES, Version, unpacked
from tests.opened import open_index

VERSIONS = [version for table in TABLES if table.format == "iceberg" for version in table.versions if not version.gone]
NAMES = [f"{version.table.name}-{version.table.versions.index(version)}" for version in VERSIONS]


PLANNER = Planner(1 << 24)
MOST_KEYS = 6  # of a version


def static_table(version: Version) -> StaticTable:
    unpacked(version.table)
    return _static_table(version.metadata)


_static_table = cache(StaticTable.from_metadata)


def plan(version: Version, filter: Any = None, index: OpenIndex | None = None) -> Plan:
    number = version.version if version.version != -1 else None
    request = PlanRequest(snapshot_id=number, filter=filter)
    indexes = [TableIndex("index", OpenIndex.of(index))] if index is not None else []
    return PLANNER.plan(static_table(version).metadata, version.table.name, request, indexes)


def content_of(version: Version) -> LakeContent:
    unpacked(version.table)
    return LakeSource(f"iceberg:{version.metadata}").content


def paths_of(content: LakeContent, version: Version) -> Paths:
    return Paths(content.root, static_table(version).metadata.location)


@pytest.mark.parametrize("version", VERSIONS, ids=NAMES)
def test_a_plan_names_the_live_files_with_their_deletes(version: Version) -> None:
    content, body = content_of(version), plan(version).body
    paths, deletes = paths_of(content, version), body["delete-files"]
    planned = {paths.path(task["data-file"]["file-path"]): task for task in body["file-scan-tasks"]}
    with_rows = {path for path in content.files if planned.get(path) or path in planned}
    assert with_rows == planned.keys() <= content.files.keys()
    for path in content.files.keys() - planned.keys():
        assert not _rows(content, path), "a file with rows is left out"
    deleted = content.deleted()
    by_values: dict[str, set[str]] = {}
    for one in content.equality_deletes():
        for path in one.files:
            by_values.setdefault(path, set()).add(one.location)
    for path, task in planned.items():
        applied = [deletes[place] for place in task.get("delete-file-references", ())]
        assert _deleted(paths, task["data-file"], applied) == deleted.get(path, BitMap64())
        found = {one["file-path"] for one in applied if one["content"] == "equality-deletes"}
        assert found == by_values.get(path, set())


def _rows(content: LakeContent, path: str) -> int:
    from pyarrow import parquet

    return int(parquet.read_metadata(f"{content.root}/{path}").num_rows)


def _deleted(paths: Paths, data: Mapping[str, Any], applied: list[dict[str, Any]]) -> BitMap64:
    """The deleted rows of a data file by the files of deletes that its task names, read as a reader would."""
    found = BitMap64()
    for one in applied:
        if one["content"] != "position-deletes":
            continue
        raw, where = Path(storage_at(one["file-path"]).root).read_bytes(), one["file-path"]
        if one["file-format"] == "puffin":
            assert one["referenced-data-file"] == data["file-path"]
            found |= deletion_vector(raw, where, one["content-offset"], one["content-size-in-bytes"])
        else:
            for location, numbers in position_deletes(raw, where, one["file-format"]):
                if location == data["file-path"]:
                    found |= BitMap64(numbers)
    if data["file-format"] == "avro" and found:
        return pointer_numbers(paths, data["file-path"], found)
    return found


def index_of(version: Version, folder: str) -> gnomon.Index | None:
    """The index of a version, by its key; None where no index can be of it."""
    unpacked(version.table)
    at = f"{folder}/{version.table.name}-{version.table.versions.index(version)}"
    return None if version.version == -1 else _index(version.metadata, at, version.key)


@cache
def _index(metadata: str, at: str, key: tuple[str, ...]) -> gnomon.Index | None:
    try:
        gnomon.build(None, f"iceberg:{metadata}", at, [*key])
    except ShadowError:
        return None
    return open_index(at)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("indexes"))


@pytest.mark.parametrize("version", VERSIONS, ids=NAMES)
def test_a_key_plans_the_file_of_each_of_its_rows_with_an_index_of_any_version(version: Version, folder: str) -> None:
    own = index_of(version, folder)
    if own is None:
        pytest.skip("no index can be of this version")
    paths, versions = paths_of(content_of(version), version), version.table.versions
    keys = [{name: row[name] for name in version.key} for row in version.rows()]
    for of in (versions[0], version, versions[-1]):
        index = None if of.gone else index_of(of, folder)
        for key in keys[:: len(keys) // MOST_KEYS + 1]:
            filter = _equal(key)
            if filter is None or index is None:
                continue
            found, without = plan(version, filter, index), plan(version, filter)
            named = {task["data-file"]["file-path"] for task in found.body["file-scan-tasks"]}
            assert {hit.data_filename for hit in own.lookup(key)} <= {paths.path(path) for path in named}
            kept = [task for task in without.body["file-scan-tasks"] if task["data-file"]["file-path"] in named]
            assert _comparable(found.body) == _comparable({**without.body, "file-scan-tasks": kept})
            assert len(named) == len(kept)
            assert found.indexes or found.unused["index"][0] == "column" or of.key != version.key


def _comparable(body: Mapping[str, Any]) -> list[Any]:
    """The tasks of a plan, each with its deletes in place of their numbers. An index also narrows the residual to the
    keys that a file has, which `test_random_predicates` checks row by row."""
    deletes = body["delete-files"]
    return [
        (task["data-file"], [deletes[place] for place in task.get("delete-file-references", ())])
        for task in body["file-scan-tasks"]
    ]


def _equal(key: Mapping[str, Any]) -> Any:
    """The filter for a key as truth files have it; None for a value that JSON has no literal for."""
    parts = []
    for name, value in key.items():
        if value is None:
            parts.append({"type": "is-null", "term": name})
        elif isinstance(value, (int, str, bool)):
            parts.append({"type": "eq", "term": name, "value": value})
        else:
            return None
    found = parts[0]
    for part in parts[1:]:
        found = {"type": "and", "left": found, "right": part}
    return found

"""A key in all versions of a lake table, on tables that Spark wrote, against the rows that Spark reads."""

import gzip
import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow.errors import DamagedSource, SourceNotFound, UsageError
from gnomon.shadow.search import AllVersions, VersionedRow, find_all_versions
from gnomon.shadow.search.all_versions import NO_VERSION
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import MAIN
from tests.golden.tables import TABLES, Table, Version
from tests.profiles import cases
from tests.shadow.make_index import index_source, write_source

BY_NAME = {table.name: table for table in TABLES}
NAMES = [
    "delta_vectors",
    "delta_partitions",
    "delta_clone",
    "delta_mapped_by_id",
    "delta_tracked",
    "iceberg_upgraded",
    "delta_types",
    "iceberg_types",
    "iceberg_vectors",
    "iceberg_position_deletes",
    "iceberg_rewritten",
    "iceberg_branches",
    "iceberg_equality_deletes",  # some by other columns than the key
    "iceberg_equality_scopes",
    "iceberg_hidden_partitions",
]
KEYS = {"iceberg_equality_scopes": ("id",)}  # the index of another key, by which the deletes are


def key_of(table: Table) -> tuple[str, ...]:
    return KEYS.get(table.name, table.key)


def history(table: Table) -> list[Version]:
    """The versions that the table's own line of history has: an Iceberg version of the same snapshot is no new one."""
    known = [version for version in table.versions if version.version >= 0]
    return [list(same)[-1] for _, same in groupby(known, key=lambda version: version.version)]


def name_of(table: Table, at: str = "") -> str:
    if table.format == "delta":
        return f"delta:{at or table.path}"
    return f"iceberg:{table.versions[-1].metadata}"


def make(table: Table, index: str, versions: list[Version], at: str = "") -> None:
    """The index of a table at these versions, one build after the other."""
    for version in versions:
        build_index(
            LocalEngine(), name_of(table, at), index, BuildRequest(key_of(table), table_version=str(version.version))
        )


def lives(found: AllVersions, key: int, line: list[str]) -> list[int]:
    """How many of the found rows of a key are live at each version of the main line of history."""
    count = [0] * len(line)
    for row in found.rows:
        if row.branch != MAIN or row.key != key:
            continue
        begins = [i for i, name in enumerate(line) if name == row.first]
        ends = [
            i for i, name in enumerate(line) if name == row.last and row.removed_by in (line[i + 1 : i + 2] or [None])
        ]
        begin, end = max((b, e) for b in begins for e in ends if b <= e)
        for i in range(begin, end + 1):
            count[i] += 1
    return count


def keys_of(table: Table) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in key_of(table)) for version in history(table) for row in version.rows()}


@pytest.mark.parametrize("covered", [pytest.param("oldest", marks=pytest.mark.slow), "newest", "several"])
@pytest.mark.parametrize("name", cases(NAMES))
def test_each_key_is_live_in_exactly_the_versions_in_which_spark_reads_it(
    name: str, covered: str, tmp_path: Path
) -> None:
    table = BY_NAME[name]
    versions = history(table)
    with_rows = [version for version in versions if version.rows()]
    chosen = {"oldest": with_rows[:1], "newest": with_rows[-1:], "several": with_rows[:4]}[covered]
    index = str(tmp_path / "index")
    make(table, index, chosen)
    truth = [Counter(tuple(row[one] for one in key_of(table)) for row in version.rows()) for version in versions]
    line = [str(version.version) for version in versions]
    keys = sorted(keys_of(table), key=repr)
    absent = tuple([10**6] * len(key_of(table)))
    found = find_all_versions(storage_at(index), [*map(list, keys), list(absent)])
    assert not found.failures
    for place, key in enumerate([*keys, absent]):
        assert lives(found, place, line) == [counts[key] for counts in truth], key
    assert all(row.on_disk for row in found.rows)
    assert found.indexed > 0
    assert found.scanned > 0 or covered != "oldest"


def test_rows_of_branches_and_of_staged_snapshots_are_found(tmp_path: Path) -> None:
    """Key 100 was appended to a branch alone; key 5 is live on every line of history."""
    table = BY_NAME["iceberg_branches"]
    make(table, str(tmp_path / "index"), history(table)[-1:])
    found = find_all_versions(storage_at(str(tmp_path / "index")), [100, 5])
    metadata = json.loads(gzip.decompress(Path(table.versions[-1].metadata).read_bytes()))
    other = metadata["refs"]["other"]["snapshot-id"]
    known = {row["snapshot-id"] for row in metadata["snapshots"]}
    [only] = [row for row in found.rows if row.key == 0]
    assert (only.branch, only.last, only.removed_by) == ("other", str(other), None)
    branches = {row.branch for row in found.rows if row.key == 1}
    [staged] = branches - {MAIN, "other"}
    assert branches == {MAIN, "other", staged}
    assert int(staged.removeprefix("snapshot ")) in known


def rewritten(place: Path) -> None:
    """Damage a Parquet file: its size stays."""
    data = bytearray(place.read_bytes())
    data[-20:-8] = b"\xff" * 12
    place.write_bytes(data)


def copied(name: str, place: Path) -> Table:
    """A copy of a Delta table, which a test may change."""
    table = BY_NAME[name]
    shutil.copytree(table.path, place)
    return table


def test_a_vacuumed_file_is_reported_as_gone_and_its_rows_as_unknown(tmp_path: Path) -> None:
    """The index of the newest version knows nothing of the files that VACUUM removed."""
    table = BY_NAME["delta_vacuumed"]
    versions = history(table)
    make(table, str(tmp_path / "index"), versions[-1:])
    keys = sorted(keys_of(table))
    found = find_all_versions(storage_at(str(tmp_path / "index")), [list(key) for key in keys])
    there = [version for version in versions if not version.gone and version.rows()]
    truth = [Counter((row["id"],) for row in version.rows()) for version in there]
    line = [str(version.version) for version in there]
    assert not found.failures
    assert found.gone
    assert not any(Path(path).exists() for path in found.gone)
    for place, key in enumerate(keys):
        assert lives(found, place, line) == [counts[key] for counts in truth]


def test_rows_of_a_removed_file_that_the_index_covers_are_found_and_not_on_disk(tmp_path: Path) -> None:
    table = copied("delta_vectors", tmp_path / "table")
    versions = history(table)
    index = str(tmp_path / "index")
    make(table, index, [versions[2], versions[9]], at=str(tmp_path / "table"))
    before = find_all_versions(storage_at(index), list(range(200)))
    newest = {row.file for row in before.rows if row.removed_by is None}
    removed = {row.file for row in before.rows} - newest
    assert removed
    for file in removed:
        Path(file).unlink()
    after = find_all_versions(storage_at(index), list(range(200)))
    assert not after.failures
    known = [row for row in before.rows if row.file not in after.gone]
    assert after.rows == [replace(row, on_disk=row.file not in removed) for row in known]
    assert set(after.gone) < removed
    assert any(not row.on_disk for row in after.rows)


def test_versions_whose_log_is_gone_are_named_and_answered_by_kept_snapshots(tmp_path: Path) -> None:
    table = copied("delta_vectors", tmp_path / "table")
    index = str(tmp_path / "index")
    make(table, index, [history(table)[3], history(table)[12]], at=str(tmp_path / "table"))
    assert (tmp_path / "table/_delta_log/00000000000000000010.checkpoint.parquet").exists()
    for number in range(11):
        (tmp_path / f"table/_delta_log/{number:020d}.json").unlink()
    keys = sorted(keys_of(table))
    found = find_all_versions(storage_at(index), [list(key) for key in keys])
    assert not found.failures
    assert found.expired == [str(number) for number in range(10)]
    assert found.versions == ["10", "11", "12"]
    known = [version for version in history(table) if version.version in (3, 10, 11, 12)]
    truth = [Counter((row["id"],) for row in version.rows()) for version in known]
    for place, key in enumerate(keys):
        assert lives(found, place, ["3", "10", "11", "12"]) == [counts[key] for counts in truth]


def test_expired_snapshots_are_named(tmp_path: Path) -> None:
    table = BY_NAME["iceberg_expired"]
    versions = [version for version in history(table) if not version.gone]
    make(table, str(tmp_path / "index"), versions[:1])
    keys = sorted(keys_of(table))
    found = find_all_versions(storage_at(str(tmp_path / "index")), [list(key) for key in keys])
    assert (found.failures, found.gone) == ([], [])
    assert found.expired == [str(next(version for version in history(table)[::-1] if version.gone).version)]
    truth = [Counter((row["id"],) for row in version.rows()) for version in versions]
    for place, key in enumerate(keys):
        assert lives(found, place, [str(version.version) for version in versions]) == [one[key] for one in truth]


def test_orphans_are_scanned_when_asked_for(tmp_path: Path) -> None:
    table = copied("delta_vectors", tmp_path / "table")
    index = str(tmp_path / "index")
    make(table, index, history(table)[-1:], at=str(tmp_path / "table"))
    pq.write_table(pa.table({"id": pa.array([7, 10**6], pa.int64())}), tmp_path / "table/left.parquet")
    assert not find_all_versions(storage_at(index), [10**6]).rows
    [row] = find_all_versions(storage_at(index), [10**6], orphans=True).rows
    assert row == VersionedRow(0, f"{tmp_path}/table/left.parquet", 1, "", None, None, None, NO_VERSION, True)


def test_a_damaged_file_and_a_lost_file_of_the_newest_version_make_the_result_incomplete(tmp_path: Path) -> None:
    table = copied("delta_vectors", tmp_path / "table")
    index = str(tmp_path / "index")
    make(table, index, history(table)[1:2], at=str(tmp_path / "table"))
    keys = list(range(200))
    whole = find_all_versions(storage_at(index), keys)
    damaged, lost, *_ = sorted({row.file for row in whole.rows if row.removed_by is None})
    rewritten(Path(damaged))
    Path(lost).unlink()
    found = find_all_versions(storage_at(index), keys)
    assert {type(error) for error in found.failures} == {DamagedSource, SourceNotFound}
    assert all(any(file in str(error) for error in found.failures) for file in (damaged, lost))
    assert found.rows == [row for row in whole.rows if row.file not in (damaged, lost)]


def test_a_damaged_index_file_is_named_and_its_files_are_scanned(tmp_path: Path) -> None:
    table = BY_NAME["delta_vectors"]
    index = tmp_path / "index"
    make(table, str(index), history(table)[2:3])
    whole = find_all_versions(storage_at(str(index)), [5])
    for file in index.rglob("*.avro"):
        if "_shadow" not in file.parts:
            file.write_bytes(b"\xff" * file.stat().st_size)
    found = find_all_versions(storage_at(str(index)), [5])
    assert len(found.failures) == 1
    assert found.rows == whole.rows
    assert (found.indexed, found.scanned) == (0, whole.indexed + whole.scanned)


def test_a_plain_source_has_no_versions(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": [1]})})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    with pytest.raises(UsageError, match="not the index of a Delta or Iceberg table"):
        find_all_versions(storage_at(str(tmp_path / "index")), [1])


def test_the_command_prints_rows_and_says_by_its_exit_code_whether_bytes_are_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = copied("delta_vectors", tmp_path / "table")
    index = str(tmp_path / "index")
    make(table, index, history(table)[-1:], at=str(tmp_path / "table"))
    expected = find_all_versions(storage_at(index), [5]).rows
    assert main(["find", index, "5", "--all-versions", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{**row.to_json(), "key": "5"} for row in expected]
    assert main(["find", index, "5", "--all-versions"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"5: on disk; live from version {expected[0].first} to {expected[0].last}")
    assert "searched 13 versions" in err
    assert main(["find", index, str(10**6), "--all-versions"]) == 1
    assert main(["find", index, "5"]) == 2
    shutil.rmtree(index)
    make(table, index, history(table)[1:2], at=str(tmp_path / "table"))
    for row in expected:
        rewritten(Path(row.file))
    assert main(["find", index, "5", "--all-versions"]) == 3
    assert "incomplete" in capsys.readouterr().err

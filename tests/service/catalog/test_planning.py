"""Plans of scans: ranges, snapshots, statistics, and indexes that cannot be asked."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

import gnomon
from gnomon.service.catalog import planning
from gnomon.service.catalog.filters import InvalidPlan
from gnomon.service.catalog.planning import Plan, Planner, PlanRequest, PlanTask, TableIndex
from gnomon.shadow.errors import SourceNotFound
from tests.opened import open_index

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FILES, ROWS = 12, 10
PLANNER = Planner(1 << 26)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse") as made:
        made.create_namespace("n")
        yield made


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = catalog.create_table("n.t", SCHEMA)
    for number in range(FILES):
        append(made, range(number, FILES * ROWS, FILES))
    return made


def append(table: Table, ids: Any) -> None:
    table.append(pa.table({"id": list(ids), "name": [f"row {one}" for one in ids]}, schema=SCHEMA))


def index_of(table: Table, folder: Path, keys: list[str], version: int | None = None) -> TableIndex:
    at = str(folder / "-".join(keys))
    source = f"iceberg:{table.metadata_location.removeprefix('file://')}"
    gnomon.build(None, source, at, keys, table_version=None if version is None else str(version))
    return TableIndex("index", open_index(at))


def plan(table: Table, *indexes: TableIndex, task: PlanTask | None = None, **request: Any) -> Plan:
    return PLANNER.plan(table.metadata, "n.t", PlanRequest(**request), indexes, task)


def equal(value: Any, term: str = "id") -> dict[str, Any]:
    return {"type": "eq", "term": term, "value": value}


def paths(found: Plan) -> list[str]:
    return [task["data-file"]["file-path"] for task in found.body["file-scan-tasks"]]


def all_ranges(table: Table, *indexes: TableIndex, **request: Any) -> list[str]:
    """The files of a plan and of all of its ranges."""
    first = plan(table, *indexes, **request)
    found, tokens = paths(first), list(first.body["plan-tasks"])
    while tokens:
        task = PlanTask.of_token(tokens.pop(0))
        further = plan(table, *indexes, task=task, **{**request, "snapshot_id": task.request.snapshot_id})
        assert further.live == 0
        found += paths(further)
        tokens += further.body["plan-tasks"]
    return found


def test_a_key_is_one_file(table: Table, tmp_path: Path) -> None:
    index = index_of(table, tmp_path, ["id"])
    for key in range(FILES * ROWS):
        found = plan(table, index, filter=equal(key))
        assert (found.planned, found.live, found.indexes) == (1, FILES, ["index"])
    assert plan(table, index, filter=equal(-1)).planned == 0


def test_a_large_plan_comes_in_ranges(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = paths(plan(table))
    monkeypatch.setattr(planning, "MOST_TASKS", 5)
    assert len(plan(table).body["file-scan-tasks"]) == 5
    assert all_ranges(table) == whole
    index = index_of(table, tmp_path, ["id"])
    some = {"type": "in", "term": "id", "values": list(range(7))}
    assert sorted(all_ranges(table, index, filter=some)) == sorted(all_ranges(table, filter=some)[:7])


def test_a_large_filter_is_not_repeated_beyond_measure(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"type": "not-in", "term": "name", "values": [f"absent {number}" for number in range(100)]}
    whole = all_ranges(table, filter=many)
    size = len(str(many))
    monkeypatch.setattr(planning, "MOST_FILTER_BYTES", 3 * size)
    first = plan(table, filter=many)
    assert 1 <= len(paths(first)) <= 3
    assert len(first.body["plan-tasks"]) >= 1
    assert all_ranges(table, filter=many) == whole
    monkeypatch.setattr(planning, "MOST_FILTER_BYTES", 1)
    monkeypatch.setattr(planning, "MOST_TASKS", 4)
    assert len(plan(table, filter=many).body["plan-tasks"]) == 1
    assert all_ranges(table, filter=many) == whole


def test_ranges_stay_those_of_one_snapshot_while_table_and_index_move_on(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_TASKS", 2)
    whole = paths(plan(table)), set(all_ranges(table))
    old = index_of(table, tmp_path, ["id"], table.snapshots()[3].snapshot_id)
    some = {"type": "in", "term": "id", "values": list(range(FILES))}
    first = plan(table, old, filter=some)
    append(table, [500])
    table.delete("id < 3")
    new = index_of(table, tmp_path, ["id"])
    for indexes in ([old], [new], []):
        found = set(paths(first))
        for token in first.body["plan-tasks"]:
            task = PlanTask.of_token(token)
            found |= set(paths(PLANNER.plan(table.metadata, "n.t", task.request, indexes, task)))
        assert found == whole[1]


def test_rows_that_were_deleted_since_are_found_in_the_snapshot_that_has_them(table: Table, tmp_path: Path) -> None:
    before = table.current_snapshot()
    assert before is not None
    table.delete("id = 17")
    index = index_of(table, tmp_path, ["id"])
    assert plan(table, index, filter=equal(17)).planned == 0
    assert plan(table, index, filter=equal(17), snapshot_id=before.snapshot_id).planned == 1


def test_appended_files_between_two_snapshots(table: Table, tmp_path: Path) -> None:
    ids = [one.snapshot_id for one in table.snapshots()]
    index = index_of(table, tmp_path, ["id"])
    found = plan(table, index, start_snapshot_id=ids[2], end_snapshot_id=ids[5])
    assert (found.planned, found.indexes) == (3, [])
    assert set(paths(found)) <= set(paths(plan(table, snapshot_id=ids[5])))
    assert not set(paths(found)) & set(paths(plan(table, snapshot_id=ids[2])))
    table.delete("id = 5")
    newest = table.current_snapshot()
    assert newest is not None
    assert plan(table, start_snapshot_id=ids[-1], end_snapshot_id=newest.snapshot_id).planned == 0
    with pytest.raises(InvalidPlan, match="an ancestor"):
        plan(table, start_snapshot_id=ids[5], end_snapshot_id=ids[2])


def test_statistics_are_told_where_they_are_asked_for(table: Table) -> None:
    [task] = plan(table, filter=equal(0, "id"), stats_fields=["id"]).body["file-scan-tasks"][:1]
    file = next(
        one.file for one in table.scan("id = 0").plan_files() if one.file.file_path == task["data-file"]["file-path"]
    )
    shown = task["data-file"]
    for name in ("column_sizes", "value_counts", "null_value_counts"):
        assert shown[name.replace("_", "-")] == {"keys": [1], "values": [getattr(file, name)[1]]}
    for name in ("lower_bounds", "upper_bounds"):
        assert shown[name.replace("_", "-")] == {"keys": [1], "values": [getattr(file, name)[1].hex()]}
    assert "lower-bounds" not in plan(table).body["file-scan-tasks"][0]["data-file"]
    assert "lower-bounds" not in plan(table, stats_fields=[]).body["file-scan-tasks"][0]["data-file"]


def test_a_renamed_key_is_found_until_another_column_has_its_name(table: Table, tmp_path: Path) -> None:
    index = index_of(table, tmp_path, ["id"])
    with table.update_schema() as change:
        change.rename_column("id", "key")
    found = plan(table, index, filter=equal(17, "key"))
    assert (found.planned, found.indexes) == (1, ["index"])
    with table.update_schema() as change:
        change.add_column("id", LongType())
    append_new = pa.table({"key": [1], "name": ["x"], "id": [17]})
    table.append(append_new)
    found = plan(table, index, filter=equal(17))
    assert (found.planned > 0, found.unused["index"][0]) == (True, "column")


def test_a_name_that_another_column_took_is_known_without_the_old_schemas(table: Table, tmp_path: Path) -> None:
    index = index_of(table, tmp_path, ["id"])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("id")
        change.add_column("later", LongType())
    with table.update_schema() as change:
        change.rename_column("later", "id")
    table.append(pa.table({"name": ["x"], "id": [17]}))
    newest = table.metadata.model_copy(update={"schemas": [table.schema()]})
    found = PLANNER.plan(newest, "n.t", PlanRequest(filter=equal(17)), [index])
    assert (found.planned > 0, found.unused["index"][0]) == (True, "column")
    absent = PLANNER.plan(newest, "n.t", PlanRequest(filter={"type": "is-null", "term": "id"}), [index])
    assert absent.planned == FILES  # the files of before have no such column


PAYLOAD = pa.struct([("order", pa.struct([("id", pa.int64())])), ("lines", pa.list_(pa.struct([("id", pa.int64())])))])
NESTED = "payload.order.id"


def structs(ids: Any) -> pa.Table:
    """Rows whose key is in a struct, with nulls on the way."""
    orders = [None if one % 10 == 9 else {"order": {"id": one} if one % 10 != 8 else None, "lines": []} for one in ids]
    return pa.table({"payload": pa.array(orders, PAYLOAD), "z": pa.array(ids, pa.int64())})


def test_a_key_in_a_struct_is_found_until_another_field_has_its_name(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.s", structs([0]).schema)
    for number in range(FILES):
        table.append(structs(range(number * ROWS, number * ROWS + ROWS)))
    index = index_of(table, tmp_path, [NESTED])
    for key in range(FILES * ROWS):
        found = plan(table, index, filter=equal(key, NESTED))
        assert (found.planned, found.indexes) == (key % 10 < 8, ["index"])
    assert plan(table, index, filter={"type": "is-null", "term": NESTED}).planned == FILES
    assert plan(table, index, filter=equal(17, "z")).unused["index"][0] == "filter"
    assert plan(table, index, filter=equal(17, "payload.lines.element.id")).unused["index"][0] == "filter"
    with table.update_schema() as change:
        change.rename_column("payload.order", "purchase")
    found = plan(table, index, filter=equal(17, "payload.purchase.id"))
    assert (found.planned, found.indexes) == (1, ["index"])
    with table.update_schema() as change:
        change.add_column(("payload", "order"), StructType(NestedField(1000, "id", LongType(), required=False)))
    found = plan(table, index, filter=equal(17, NESTED))
    assert (found.planned > 0, found.unused["index"][0]) == (True, "column")


def test_a_range_has_the_schema_of_its_plan(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_TASKS", 5)
    some = {"type": "not-eq", "term": "name", "value": "none"}
    first = plan(table, filter=some)
    with table.update_schema() as change:
        change.rename_column("name", "title")
    with table.update_schema() as change:
        change.rename_column("id", "name")
    tasks = [PlanTask.of_token(token) for token in first.body["plan-tasks"]]
    further = [PLANNER.plan(table.metadata, "n.t", task.request, [], task) for task in tasks]
    assert len({*paths(first), *(path for one in further for path in paths(one))}) == FILES


def test_a_file_that_is_listed_twice_is_planned_twice(table: Table, tmp_path: Path) -> None:
    first = next(iter(table.scan("id = 0").plan_files())).file
    index = index_of(table, tmp_path, ["id"])
    with table.transaction() as change, change.update_snapshot().fast_append() as append_again:
        append_again.append_data_file(first)
        append_again.append_data_file(first)
    for found in (plan(table, filter=equal(0)), plan(table, index, filter=equal(0))):
        assert paths(found).count(first.file_path) == 3


def test_an_index_of_the_new_name_is_asked(table: Table, tmp_path: Path) -> None:
    with table.update_schema() as change:
        change.rename_column("name", "title")
    index = index_of(table, tmp_path, ["title"])
    found = plan(table, index, filter=equal("row 17", "title"))
    assert (found.planned, found.indexes) == (1, ["index"])


def test_a_widened_key_is_planned_in_full(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.narrow", pa.schema([("id", pa.int32())]))
    table.append(pa.table({"id": pa.array([1, 5], pa.int32())}))
    table.append(pa.table({"id": pa.array([2, 4], pa.int32())}))
    index = index_of(table, tmp_path, ["id"])
    assert plan(table, index, filter=equal(3)).planned == 0
    with table.update_schema() as change:
        change.update_column("id", LongType())
    found = plan(table, index, filter=equal(3))
    assert (found.planned, found.unused["index"][0]) == (2, "column")


def test_a_composite_key_in_any_order(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.two", pa.schema([("country", pa.string()), ("id", pa.int64())]))
    for number in range(6):
        table.append(pa.table({"country": ["de", "fr"], "id": [number, 9 - number]}))
    index = index_of(table, tmp_path, ["country", "id"])
    both = {"type": "and", "left": equal(3), "right": equal("de", "country")}
    assert plan(table, index, filter=both).planned == 1
    assert plan(table, index, filter=equal(3)).unused["index"][0] == "filter"
    absent = {"type": "and", "left": equal(3), "right": equal("fr", "country")}
    assert plan(table, index, filter=absent).planned == 0


def test_two_indexes_each_leave_files_out(table: Table, tmp_path: Path) -> None:
    indexes = index_of(table, tmp_path, ["id"]), index_of(table, tmp_path, ["name"])._replace(name="other")
    same = {"type": "and", "left": equal(17), "right": equal("row 17", "name")}
    different = {"type": "and", "left": equal(17), "right": equal("row 18", "name")}
    assert plan(table, *indexes, filter=same).planned == 1
    assert plan(table, *indexes, filter=different).planned == 0
    assert plan(table, *indexes, filter=different).indexes == ["index", "other"]


def test_an_index_that_cannot_be_read_is_planned_in_full(table: Table, tmp_path: Path) -> None:
    index = index_of(table, tmp_path, ["id"])
    for file in (tmp_path / "id").rglob("*.avro"):
        if "_shadow" not in file.parts:
            file.write_bytes(b"damage")
    found = plan(table, index, filter=equal(17))
    assert (found.indexes, found.unused["index"][0]) == ([], "error")
    assert set(paths(found)) == set(paths(plan(table, filter=equal(17))))
    shutil.rmtree(tmp_path / "id")
    assert set(paths(plan(table, index, filter=equal(17)))) == set(paths(plan(table, filter=equal(17))))


def test_metadata_that_is_gone_is_an_error_and_never_no_files(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(SourceNotFound, match="gone"):
        plan(table)


def test_a_table_without_rows_has_no_tasks(catalog: SqlCatalog) -> None:
    assert plan(catalog.create_table("n.empty", SCHEMA), filter=equal(1)).body["file-scan-tasks"] == []


def test_a_column_of_text_is_added_and_filtered(table: Table, tmp_path: Path) -> None:
    index = index_of(table, tmp_path, ["id"])
    with table.update_schema() as change:
        change.add_column("extra", StringType())
    both = {"type": "and", "left": equal(17), "right": {"type": "is-null", "term": "extra"}}
    assert plan(table, index, filter=both).planned == 1

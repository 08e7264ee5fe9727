"""A key in a struct: an index by a path gives the answers of an index by a column with the same values.

Each format has the same rows, in three files: structs that are null at each level, null keys, and keys that are in
several rows and files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog

from gnomon.btree.keys import type_of_arrow
from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new, delete, upsert
from gnomon.jobs.load import load
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import IndexBehind, ShadowError, SpecMismatch, UnknownColumn, UsageError
from gnomon.shadow.search import find_all_versions
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from gnomon.sources import open_writer, style_of
from gnomon.sources.types import parse_ddl
from tests.golden.tables import TABLES, Table
from tests.jobs.dedup.lake_tables import here
from tests.opened import open_index

KEY, FLAT = "payload.order.id", "k"
PATH = ("payload", "order", "id")
ORDER = pa.struct([("id", pa.string()), ("lines", pa.list_(pa.struct([("id", pa.string())]))), ("n", pa.int64())])
PAYLOAD = pa.struct([("blob", pa.string()), ("id", pa.string()), ("order", ORDER)])
SCHEMA = pa.schema([(FLAT, pa.string()), ("payload", PAYLOAD), ("z", pa.int64())])
FILES, ROWS = 3, 240
SAMPLE = [*(f"k{i}" for i in range(0, 62, 3)), "absent", None]


def row(number: int) -> dict[str, Any]:
    key = None if number % 7 == 0 else f"k{number * 31 % 60}"
    order: dict[str, Any] | None = {"id": key, "n": number, "lines": [{"id": f"l{number}"}] * (number % 3)}
    order = None if number % 13 == 0 else order
    payload = None if number % 11 == 0 else {"blob": "x" * (number % 50), "order": order, "id": f"other {number}"}
    return {"z": number, "payload": payload, FLAT: None if payload is None or order is None else key}


def rows(begin: int, end: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in range(begin, end)], SCHEMA)


def parts() -> list[pa.Table]:
    return [rows(begin, begin + ROWS // FILES) for begin in range(0, ROWS, ROWS // FILES)]


def written(format: str, table: pa.Table, path: Path) -> None:
    """A file with small pages, row groups, stripes and blocks."""
    if format == "parquet v1":
        pq.write_table(table, path, row_group_size=17, data_page_size=64, use_dictionary=False)
    elif format == "parquet v2":
        pq.write_table(table, path, row_group_size=31, data_page_size=64, data_page_version="2.0", compression="zstd")
    elif format == "orc":
        orc.write_table(table, path, stripe_size=64, batch_size=16, dictionary_key_size_threshold=0.9)
    else:
        writer = open_writer(style_of(None, format), table.schema, path.name)
        for batch in table.to_batches(max_chunksize=23):
            writer.write(batch)
        path.write_bytes(writer.finish())


ENDINGS = {"parquet v1": "parquet", "parquet v2": "parquet", "orc": "orc", "avro": "avro", "jsonl": "jsonl"}


def folder(format: str, root: Path, tables: list[pa.Table]) -> str:
    root.mkdir()
    for number, table in enumerate(tables):
        written(format, table, root / f"{number}.{ENDINGS[format]}")
    return str(root)


def delta(root: Path, tables: list[pa.Table]) -> str:
    for table in tables:
        write_deltalake(str(root), table, mode="append")
    return f"delta:{root}"


def iceberg(catalog: Catalog, tables: list[pa.Table]) -> str:
    catalog.create_namespace_if_not_exists("db")
    made = catalog.create_table("db.t", tables[0].schema)
    for table in tables:
        made.append(table)
    return "iceberg:here.db.t"


FORMATS = [*ENDINGS, "delta", "iceberg"]


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The rows in a format; the name of the source."""
    if request.param == "delta":
        return delta(tmp_path / "source", parts())
    if request.param == "iceberg":
        return iceberg(here(tmp_path, monkeypatch), parts())
    return folder(request.param, tmp_path / "source", parts())


def both(source: str, tmp_path: Path, **options: Any) -> tuple[OpenIndex, OpenIndex]:
    """An index by the field, and one by the column."""
    build(None, source, tmp_path / "nested", [KEY], **options)
    build(None, source, tmp_path / "flat", [FLAT], **options)
    return open_index(tmp_path / "nested"), open_index(tmp_path / "flat")


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: one["z"])


def flat_key(text: str) -> str:
    return text.replace(KEY, FLAT)


def check_alike(nested: OpenIndex, flat: OpenIndex) -> None:
    """Both indexes give the same answers, and rows of the source's columns alone."""
    assert nested.view.columns == flat.view.columns == tuple(SCHEMA.names)
    assert nested.lookup("k31") == flat.lookup("k31") != []
    for key in SAMPLE:
        assert in_order(nested.fetch({KEY: key})) == in_order(flat.fetch({FLAT: key}))
        assert nested.get((key,), columns=["z"]) == flat.get((key,), columns=["z"])
    assert {row[FLAT] for row in nested.fetch("k31")} == {"k31"}
    assert nested.fetch("k31")[0].keys() == set(SCHEMA.names)
    table = nested.table_many(SAMPLE, columns=["z", "payload"])
    assert table.equals(flat.table_many(SAMPLE, columns=["z", "payload"]))
    assert table.num_rows > 100
    for bounds in ({}, {"low": "k2", "high": "k4"}, {"prefix": "k5"}, {"reverse": True}):
        ranged = [(flat_key(repr(one)), one["z"]) for one in nested.range(**bounds)]
        assert ranged == [(repr(one), one["z"]) for one in flat.range(**bounds)] != []
        assert nested.count(**{name: value for name, value in bounds.items() if name != "reverse"}) >= len(ranged) > 0


def check_sound(index: Path) -> None:
    assert not verify(storage_at(str(index)), None).faults


def test_answers_are_those_of_a_column(source: str, tmp_path: Path) -> None:
    nested, flat = both(source, tmp_path, include=["z"])
    check_alike(nested, flat)
    check_sound(tmp_path / "nested")
    [key] = nested.spec.keys
    assert (key.name, key.path, key.type) == (KEY, PATH, "string")


def test_a_load_is_that_of_a_column(source: str, tmp_path: Path) -> None:
    both(source, tmp_path)
    keys = pa.table({KEY: pa.array(SAMPLE, pa.string()), "tag": range(len(SAMPLE))})
    for options in ({}, {"how": "left"}, {"null_safe": True}, {"columns": ["z"]}):
        found = load(None, tmp_path / "nested", keys, **options).read_all()
        wanted = load(None, tmp_path / "flat", keys.rename_columns([FLAT, "tag"]), **options).read_all()
        names = [name for name in found.column_names if name not in (KEY, FLAT)]
        assert found.column_names[:2] == [KEY, "tag"]
        assert found.num_rows == wanted.num_rows > 50
        assert sorted(map(repr, found.select(names).to_pylist())) == sorted(map(repr, wanted.select(names).to_pylist()))


def test_the_key_of_a_sample_may_be_in_its_struct(tmp_path: Path) -> None:
    nested, _ = both(folder("parquet v1", tmp_path / "source", parts()), tmp_path)
    sample = rows(0, 40).select(["payload"]).slice(3)
    found = load(None, tmp_path / "nested", sample, ["z"]).read_all()
    assert found.num_rows == sum(len(nested.fetch(row(n)[FLAT])) for n in range(3, 40) if row(n)[FLAT] is not None)
    with pytest.raises(UsageError, match="the source has a column payload, too"):
        load(None, tmp_path / "nested", sample)
    with pytest.raises(UsageError, match=rf"the key column {KEY} is missing; it has z"):
        load(None, tmp_path / "nested", pa.table({"z": [1]}))
    with pytest.raises(UsageError, match="column payload is string here"):
        load(None, tmp_path / "nested", pa.table({"payload": ["k1"]}))


def test_an_append_adds_each_key_once(source: str, tmp_path: Path) -> None:
    both(source, tmp_path, include=["z"])
    new = rows(ROWS, ROWS + 50)
    fresh = [*(f"new {n // 2}" for n in range(48)), "k1", None]
    payload = [{"blob": None, "order": {"id": key, "n": 1, "lines": []}, "id": None} for key in fresh]
    batch = new.set_column(1, SCHEMA.field(1), pa.array(payload, PAYLOAD))
    batch = batch.set_column(0, SCHEMA.field(0), pa.array(fresh, pa.string()))
    done = append_new(None, tmp_path / "nested", batch, "one")
    assert (done.appended, done.already_loaded, done.duplicates_in_batch) == (24, 2, 24)
    assert append_new(None, tmp_path / "nested", batch, "one").known_batch
    assert [one["payload"]["order"]["id"] for one in open_index(tmp_path / "nested").fetch("new 5")] == ["new 5"]
    build(None, source, tmp_path / "flat", [FLAT], ["z"])
    check_alike(open_index(tmp_path / "nested"), open_index(tmp_path / "flat"))
    with pytest.raises(UsageError, match=rf"{KEY} is not a column of the source"):
        append_new(None, tmp_path / "nested", batch.append_column(KEY, batch.column(0)), "two")


def test_new_and_changed_files_are_followed(tmp_path: Path) -> None:
    for format in ENDINGS:
        place = tmp_path / format
        place.mkdir()
        source = folder(format, place / "source", parts()[:2])
        both(source, place)
        written(format, parts()[2], place / "source" / f"2.{ENDINGS[format]}")
        written(format, rows(500, 520), place / "source" / f"0.{ENDINGS[format]}")
        nested, flat = both(source, place)
        check_alike_in_part(nested, flat)
        check_sound(place / "nested")


def check_alike_in_part(nested: OpenIndex, flat: OpenIndex) -> None:
    for key in SAMPLE:
        assert in_order(nested.fetch({KEY: key})) == in_order(flat.fetch({FLAT: key}))
    assert nested.count() == flat.count()


def test_a_partition_column_and_a_field_together_are_a_key(tmp_path: Path) -> None:
    for number, table in enumerate(parts()):
        (tmp_path / f"source/dt={number}").mkdir(parents=True)
        pq.write_table(table, tmp_path / f"source/dt={number}/a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["dt", KEY, "z"])
    index = open_index(tmp_path / "index")
    one = row(101)
    [found] = index.fetch({"dt": "1", KEY: one[FLAT], "z": 101})
    assert found == {**one, "dt": "1"}
    assert index.fetch({"dt": "2", KEY: one[FLAT], "z": 101}) == []


# -- what is no key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("payload", UsageError, r"0.parquet: column payload of type struct<.* cannot be stored in an index"),
        ("payload.order", UsageError, r"column payload.order of type struct<.* cannot be stored in an index"),
        ("payload.order.lines", UsageError, r"column payload.order.lines of type list<.* cannot be stored in an index"),
        ("payload.order.lines.id", UsageError, r"leads through payload.order.lines, which is list<.* and no struct"),
        ("payload.order.lines.element.id", UsageError, r"leads through payload.order.lines, which is list<"),
        ("m.key", UsageError, r"column m.key leads through m, which is map<.* within structs alone"),
        ("payload.order.none", UnknownColumn, r"the source has no column payload.order.none; it has k, payload, z, m"),
        ("z.id", UnknownColumn, r"the source has no column z.id"),
        ("payload.", UnknownColumn, r"the source has no column payload\."),
    ],
)
def test_what_is_no_leaf_of_structs_is_no_key(tmp_path: Path, key: str, error: type[Exception], message: str) -> None:
    table = rows(0, 9).append_column("m", pa.array([[("a", 1)]] * 9, pa.map_(pa.string(), pa.int64())))
    source = folder("parquet v1", tmp_path / "source", [table])
    with pytest.raises(error, match=message):
        build(None, source, tmp_path / "index", [key])
    assert not (tmp_path / "index/_shadow").exists()


def test_formats_without_structs_have_no_such_column(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.csv").write_text("payload,z\nx,1\n")
    with pytest.raises(UnknownColumn, match=rf"the source has no column {KEY}; it has payload, z"):
        build(None, tmp_path / "source", tmp_path / "index", [KEY])


def test_an_included_column_is_no_field(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumn, match=rf"the source has no column {KEY}"):
        build(None, folder("parquet v1", tmp_path / "source", parts()), tmp_path / "index", ["z"], [KEY])


# -- names with dots ---------------------------------------------------------------------------------------------------


def dotted(tmp_path: Path, *tables: pa.Table) -> str:
    return folder("parquet v2", tmp_path / "source", list(tables))


def test_a_column_with_the_whole_name_comes_first(tmp_path: Path) -> None:
    table = rows(0, 30).append_column(KEY, pa.array([f"top {n}" for n in range(30)]))
    build(None, dotted(tmp_path, table), tmp_path / "index", [KEY])
    index = open_index(tmp_path / "index")
    [found] = index.fetch("top 5")
    assert (found["z"], found[KEY], index.spec.keys[0].path) == (5, "top 5", ())
    assert index.fetch("k31") == []
    assert json.loads((tmp_path / "index/_shadow/spec.json").read_text())["format_version"] == 1
    pq.write_table(rows(30, 40), tmp_path / "source/later.parquet")  # it lacks the column: all its keys are null
    build(None, tmp_path / "source", tmp_path / "index", [KEY])
    assert len(open_index(tmp_path / "index").fetch({KEY: None})) == 10


def test_a_later_file_with_a_column_of_the_name_is_refused(tmp_path: Path) -> None:
    source = dotted(tmp_path, rows(0, 30))
    build(None, source, tmp_path / "index", [KEY])
    pq.write_table(rows(30, 40).append_column(KEY, pa.array(["top"] * 10)), tmp_path / "source/later.parquet")
    with pytest.raises(UsageError, match=rf"later.parquet: has a column {KEY}, elsewhere .* a field of"):
        build(None, source, tmp_path / "index", [KEY])


def test_names_of_fields_may_hold_dots(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([{"b.c": 1, "b": {"d": 2}}] * 3)})
    source = dotted(tmp_path, table)
    build(None, source, tmp_path / "index", ["a.b.c", "a.b.d"])
    assert [key.path for key in open_index(tmp_path / "index").spec.keys] == [("a", "b.c"), ("a", "b", "d")]
    assert len(open_index(tmp_path / "index").fetch((1, 2))) == 3
    pq.write_table(pa.table({"a": pa.array([{"b.c": 1, "b": {"c": 2}}] * 3)}), tmp_path / "source/0.parquet")
    with pytest.raises(UsageError, match=r"column a.b.c may be \('a', 'b.c'\) and \('a', 'b', 'c'\)"):
        build(None, source, tmp_path / "other", ["a.b.c"])


# -- files that differ -------------------------------------------------------------------------------------------------


def with_payload(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"z": pa.array(range(len(values)), pa.int64()), "payload": pa.array(values, kind)})


def struct_of(kind: pa.DataType, name: str = "id") -> pa.DataType:
    return pa.struct([("order", pa.struct([(name, kind)]))])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (with_payload(["x"], pa.string()), r"column payload is string here, no struct with a field order"),
        (with_payload([{"order": 1}], pa.struct([("order", pa.int64())])), r"payload.order is int64 here, no struct"),
        (with_payload([[]], pa.list_(PAYLOAD)), r"column payload is list<.* here, no struct with a field order"),
        (with_payload([None], struct_of(pa.int64())), rf"column {KEY} is int64, elsewhere in the source it is string"),
        (with_payload([None], struct_of(pa.string(), "ID")), rf"payload.order.ID differs from {KEY} in case only"),
        (rows(0, 3).rename_columns([FLAT, "Payload", "z"]), rf"Payload differs from {KEY} in case only"),
    ],
)
def test_a_file_in_which_the_path_is_another_is_refused(tmp_path: Path, table: pa.Table, message: str) -> None:
    source = dotted(tmp_path, rows(0, 30))
    build(None, source, tmp_path / "index", [KEY])
    pq.write_table(table, tmp_path / "source/later.parquet")
    with pytest.raises(UsageError, match=f"later.parquet: .*{message}"):
        build(None, source, tmp_path / "index", [KEY])
    assert open_index(tmp_path / "index").view.snapshot.number == 1


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"z": pa.array([1, 2, 3], pa.int64())}),
        with_payload([{"order": {"n": 1}}, None, {"order": None}], struct_of(pa.int64(), "n")),
        with_payload([{"x": 1}, None, {"x": 1}], pa.struct([("x", pa.int64())])),
        with_payload([None] * 3, pa.null()),
        with_payload([None] * 3, struct_of(pa.null())),
    ],
)
def test_the_keys_of_a_file_without_the_field_are_null(tmp_path: Path, table: pa.Table) -> None:
    source = dotted(tmp_path, rows(1, 6), table)
    build(None, source, tmp_path / "index", [KEY])
    index = open_index(tmp_path / "index")
    assert len(index.fetch({KEY: None})) == 3
    assert len(index.fetch(row(2)[FLAT])) == 1
    check_sound(tmp_path / "index")


def test_a_field_of_nulls_alone_is_text_as_a_column_of_nulls_is(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.jsonl").write_text('{"payload":{"id":null},"k":null}\n{"payload":null,"k":null}\n')
    for key in ("payload.id", FLAT):
        build(None, tmp_path / "source", tmp_path / key, [key])
    (tmp_path / "source/b.jsonl").write_text('{"payload":{"id":5},"k":5}\n')
    for key in ("payload.id", FLAT):
        build(None, tmp_path / "source", tmp_path / key, [key])
        index = open_index(tmp_path / key)
        assert (len(index.fetch("5")), len(index.fetch({key: None})), index.spec.keys[0].type) == (1, 2, "string")
        check_sound(tmp_path / key)


def test_an_older_program_refuses_the_index(tmp_path: Path) -> None:
    build(None, dotted(tmp_path, rows(0, 30)), tmp_path / "index", [KEY])
    spec = json.loads((tmp_path / "index/_shadow/spec.json").read_text())
    assert (spec["format_version"], spec["keys"][0]["path"]) == (2, list(PATH))  # it knows version 1 alone
    assert spec["keys"][0]["column"] == "payload_x2e_order_x2e_id"


# -- Delta and Iceberg -------------------------------------------------------------------------------------------------


def test_deletes_and_replacements_by_key_are_those_of_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lakes: list[Callable[[], str]] = [
        lambda: delta(tmp_path / "source", parts()),
        lambda: iceberg(here(tmp_path, monkeypatch), parts()),
    ]
    for number, make in enumerate(lakes):
        source, place = make(), tmp_path / str(number)
        place.mkdir()
        nested, flat = both(source, place)
        gone, before = len(nested.fetch("k31")), nested.count()
        done = delete(None, place / "nested", [{KEY: "k31"}])
        assert done.rows_deleted == gone > 1
        done = delete(None, place / "nested", pa.table({KEY: ["k1", "absent"]}))
        gone += done.rows_deleted
        assert open_index(place / "nested").count() == before - gone
        order = {"id": "k2", "n": -1, "lines": []}
        batch = [{"z": 1000, "payload": {"blob": "new", "order": order, "id": None}, FLAT: "k2"}]
        replaced = len(nested.fetch("k2"))
        rows_of_batch = pa.Table.from_pylist(batch, SCHEMA)
        with pytest.raises(ShadowError, match=rf"several rows, such as {KEY} \"k2\""):
            upsert(None, place / "nested", rows_of_batch, "refused")
        done = upsert(None, place / "nested", rows_of_batch, "one", replace_all=True)
        assert (done.rows_deleted, done.written) == (replaced, 1)
        build(None, source, place / "flat", [FLAT])
        nested, flat = open_index(place / "nested"), open_index(place / "flat")
        assert [one["z"] for one in nested.fetch("k2")] == [1000]
        check_alike_in_part(nested, flat)
        assert nested.fetch("k31") == []
        check_sound(place / "nested")


def test_the_newest_version_and_all_versions_are_read(tmp_path: Path) -> None:
    source = delta(tmp_path / "source", parts())
    nested, flat = both(source, tmp_path)
    before = len(nested.fetch("k31"))
    DeltaTable(str(tmp_path / "source")).delete("k = 'k31' and z < 100")
    write_deltalake(str(tmp_path / "source"), rows(ROWS, ROWS + 60), mode="append")
    newest = [open_index(index.location, newest=True) for index in (nested, flat)]
    check_alike_in_part(*newest)
    assert len(newest[0].fetch("k31")) != before
    build(None, source, tmp_path / "nested", [KEY])
    found, wanted = (find_all_versions(storage_at(one.location), ["k31"]) for one in (nested, flat))
    assert not found.failures
    assert [(one.row, one.how) for one in found.rows] == [(one.row, one.how) for one in wanted.rows] != []


@pytest.mark.parametrize(
    "renamed", [("payload.order.id", "number"), ("payload.order", "purchase"), ("payload", "data")]
)
def test_a_rename_in_an_iceberg_table_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: tuple[str, str]
) -> None:
    catalog = here(tmp_path, monkeypatch)
    source = iceberg(catalog, parts())
    nested, flat = both(source, tmp_path, include=["z"])
    with catalog.load_table("db.t").update_schema() as update:
        update.rename_column(*renamed)
    with catalog.load_table("db.t").update_schema() as update:  # another field gets the former name
        if renamed[0] == KEY:
            update.add_column(("payload", "order", "id"), update._schema.find_type("z"))
    check_alike(open_index(nested.location), open_index(flat.location))
    build(None, source, tmp_path / "flat", [FLAT], ["z"])
    with pytest.raises(SpecMismatch, match=rf"column {KEY} is .* by now.*; build to another folder"):
        build(None, source, tmp_path / "nested", [KEY], ["z"])
    path = list(PATH)
    path[renamed[0].count(".")] = renamed[1]
    build(None, source, tmp_path / "again", [".".join(path)])
    again = open_index(tmp_path / "again")
    assert in_order([{"z": one["z"]} for one in again.fetch("k31")]) == in_order(flat.fetch("k31", columns=["z"]))
    check_sound(tmp_path / "again")


@pytest.mark.parametrize(("key", "other"), [(FLAT, "spare"), ("payload.id", "payload.blob")])
def test_a_field_that_took_the_name_of_the_key_is_not_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, other: str
) -> None:
    catalog = here(tmp_path, monkeypatch)
    source = iceberg(catalog, [table.append_column("spare", table.column(FLAT)) for table in parts()])
    build(None, source, tmp_path / "index", [key])
    for before, after in ((key, "gone"), (other, key.rpartition(".")[2])):
        with catalog.load_table("db.t").update_schema() as update:
            update.rename_column(before, after)
    with pytest.raises(SpecMismatch, match=f"column {key} is another one by now than when .* was indexed; run gnomon"):
        build(None, source, tmp_path / "index", [key])
    with pytest.raises(IndexBehind, match=f"column {key}"):
        open_index(tmp_path / "index", newest=True)
    build(None, source, tmp_path / "index", [key], full=True)
    found = open_index(tmp_path / "index").fetch(row(20)[FLAT] if key == FLAT else row(20)["payload"]["blob"])
    assert 20 in [one["z"] for one in found]
    check_sound(tmp_path / "index")


def test_a_rename_of_another_field_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = here(tmp_path, monkeypatch)
    source = iceberg(catalog, parts())
    both(source, tmp_path)
    with catalog.load_table("db.t").update_schema() as update:
        update.rename_column("payload.order.n", "number")
    catalog.load_table("db.t").append(
        pa.Table.from_pylist([{FLAT: "k31", "payload": {"order": {"id": "k31", "number": 5}}, "z": 7777}], None).cast(
            catalog.load_table("db.t").schema().as_arrow()
        )
    )
    nested, flat = both(source, tmp_path)
    assert in_order(nested.fetch("k31")) == in_order(flat.fetch("k31"))
    assert 7777 in [one["z"] for one in nested.fetch("k31")]
    assert {one["payload"]["order"]["number"] for one in nested.fetch("k31")} >= {5}


def test_a_rename_in_a_delta_table_with_column_mapping_changes_no_answer(tmp_path: Path) -> None:
    [table] = [table for table in TABLES if table.name == "delta_renamed"]
    source = f"delta:{table.path}"
    build(None, source, tmp_path / "index", ["address.zip"], table_version="6")
    wanted = {one["address"]["zip"]: one["id"] for one in table.versions[6].rows()}
    index = open_index(tmp_path / "index")
    assert {zip: index.fetch(zip)[0]["id"] for zip in wanted} == wanted
    check_sound(tmp_path / "index")
    with pytest.raises(SpecMismatch, match=r"column address.zip is not there by now, .*; build to another folder"):
        build(None, source, tmp_path / "index", ["address.zip"], table_version="8")
    build(None, source, tmp_path / "again", ["address.postcode"], table_version="10")
    again = open_index(tmp_path / "again")
    for postcode in [1, *wanted]:
        rows_of = [one for one in table.versions[10].rows() if one["address"]["postcode"] == postcode]
        assert sorted(one["id"] for one in again.fetch(postcode)) == sorted(one["id"] for one in rows_of)
    check_sound(tmp_path / "again")


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The fields of structs that can be keys."""

    def below(field: pa.Field, name: str) -> list[str]:
        if pa.types.is_struct(field.type):
            return [one for child in field.type for one in below(child, f"{name}.{child.name}")]
        return [name] if "." in name and type_of_arrow(field.type) is not None else []

    return [one for field in schema for one in below(field, field.name)]


STRUCTS = [table for table in TABLES if any("struct<" in kind for kind in table.versions[-1].columns.values())]


@pytest.mark.parametrize("table", STRUCTS, ids=str)
def test_a_table_of_spark_is_indexed_by_each_field_of_its_structs(table: Table, tmp_path: Path) -> None:
    last = table.versions[-1]
    source = f"{table.format}:{last.metadata or table.path}"
    build(None, source, tmp_path / "flat", list(last.key))
    flat = open_index(tmp_path / "flat")
    everything = list(flat.range())
    assert len(everything) == last.row_count
    for path in leaf_paths(parse_ddl(flat.spec.schema)):
        build(None, source, tmp_path / path, [path])
        nested = open_index(tmp_path / path)
        assert len(nested.spec.keys[0].path) > 1
        by_value: dict[str, list[str]] = {}
        values: dict[str, Any] = {}
        for one in everything:
            value: Any = one
            for part in path.split("."):
                value = None if value is None else value[part]
            by_value.setdefault(repr(value), []).append(repr(one))
            values[repr(value)] = value
        for text, rows_of in by_value.items():
            assert sorted(map(repr, nested.fetch({path: values[text]}))) == sorted(rows_of)
        check_sound(tmp_path / path)

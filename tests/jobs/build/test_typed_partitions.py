"""A partition value is the one that the table's metadata has, whatever its type, in every answer about the index."""

import datetime as dt
import io
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg import types as iceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from gnomon.jobs.build import BuildRequest, LocalEngine, build
from gnomon.jobs.build.job import build_index
from gnomon.jobs.dedup import append_new
from gnomon.shadow.errors import IndexBehind, SpecMismatch, UsageError
from gnomon.shadow.metadata import read_snapshot
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import partition_values, stored_partition
from gnomon.shadow.tables.partitions import typed_folders
from gnomon.shadow.values import python_values, to_json
from gnomon.shadow.verify import verify
from tests.jobs.dedup.lake_tables import configure
from tests.opened import open_index
from tests.profiles import cases

NULL_TEXT = "__HIVE_DEFAULT_PARTITION__"
FIELD_ID = {"PARQUET:field_id": "1"}
# Beyond Python's dates: pyiceberg cannot write them.
FAR_DAYS, FAR_MICROS = (-735525, -719529, 2932897), (-62135596800000001, 253402300800000000)
FAR = {"date": FAR_DAYS, "timestamp": FAR_MICROS, "timestamp_ntz": FAR_MICROS}
MOMENTS = (0, 1, -1, 1767225600123456, 253402300799999999, -62135596800000000, *FAR_MICROS)
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e30)
TEXTS = ("a", "null", "NULL", NULL_TEXT, " a ", "a/b=c%20d", "ü", "true", "1", "%5F", ".", "..", "#?&+\\", "2026-01-01")
ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(38,10)": pa.decimal128(38, 10),
    "decimal(5,2)": pa.decimal128(5, 2),
}
# Values in the form of Iceberg's manifests and of Arrow's buffers; each is a partition of its own.
VALUES: dict[str, Sequence[Any]] = {
    "boolean": (True, False),
    "byte": (-(1 << 7), (1 << 7) - 1, 0),
    "short": (-(1 << 15), (1 << 15) - 1),
    "integer": (-(1 << 31), (1 << 31) - 1, 0),
    "long": (-(1 << 63), (1 << 63) - 1),
    "float": (*FLOATS, 1.401298464324817e-45, 3.4028234663852886e38, 0.10000000149011612),
    "double": (*FLOATS, 5e-324, 1.7976931348623157e308, 0.1),
    "string": TEXTS,
    "binary": (b"\0\x01\x7f", b"a/b", b"null", NULL_TEXT.encode()),
    "date": (0, -1, 20454, -719162, 2932896, *FAR_DAYS),
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
    "decimal(38,10)": (Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal("0.0000000000")),
    "decimal(5,2)": (Decimal("999.99"), Decimal("-999.99"), Decimal("1.50")),
}
ICEBERG = {
    "boolean": iceberg.BooleanType(),
    "integer": iceberg.IntegerType(),
    "long": iceberg.LongType(),
    "float": iceberg.FloatType(),
    "double": iceberg.DoubleType(),
    "string": iceberg.StringType(),
    "binary": iceberg.BinaryType(),
    "date": iceberg.DateType(),
    "timestamp": iceberg.TimestamptzType(),
    "timestamp_ntz": iceberg.TimestampType(),
    "decimal(38,10)": iceberg.DecimalType(38, 10),
    "decimal(5,2)": iceberg.DecimalType(5, 2),
}


def array_of(kind: str, values: Sequence[Any]) -> pa.Array:
    arrow = ARROW[kind]
    if pa.types.is_temporal(arrow):
        return pa.array(values, pa.int32() if arrow.bit_width == 32 else pa.int64()).view(arrow)
    return pa.array(values, arrow)


def shown(value: Any) -> str:
    """A value that tells -0.0 from 0.0, and its type."""
    return f"{type(value).__name__} {value!r}"


def written(value: Any) -> Any:
    """A value as a JSON answer has it."""
    return json.loads(to_json(value))


def delta_text(kind: str, value: Any) -> str | None:
    """The text of Delta's log, as its protocol has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if kind == "date" or kind.startswith("timestamp"):
        text = str(written(python_values(array_of(kind, [value]))[0]))
        return text.replace("T", " ") if kind == "timestamp_ntz" else text
    return "NaN" if value != value else str(value).replace("inf", "Infinity")


def delta_table(tmp_path: Path, kind: str, values: Sequence[Any]) -> str:
    root = tmp_path / "delta"
    (root / "_delta_log").mkdir(parents=True)
    fields = [
        {"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("id", "long"), ("p", kind))
    ]
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
        "configuration": {},
    }
    log: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    log.append({"metaData": metadata})
    for i, value in enumerate(values):
        path = root / f"{i}.parquet"
        pq.write_table(pa.table({"id": [i]}), path)
        add = {"path": path.name, "size": path.stat().st_size, "modificationTime": 1, "dataChange": True}
        log.append({"add": {**add, "partitionValues": {"p": delta_text(kind, value)}}})
    (root / f"_delta_log/{0:020d}.json").write_text("\n".join(map(json.dumps, log)))
    return f"delta:{root}"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("here", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")) as found:
        found.create_namespace("ns")
        yield found


def append_files(table: Table, values: Sequence[tuple[Any, ...]], first: int = 0) -> None:
    """Add a file of one row for each partition, without its partition columns, as a table from Hive has them."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for i, partition in enumerate(values, first):
            location = f"{table.location()}/data/{i}.parquet"
            path = Path(location.removeprefix("file://"))
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [i]}).cast(pa.schema([pa.field("id", pa.int64(), metadata=FIELD_ID)])), path)
            append.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=location,
                    file_format=FileFormat.PARQUET,
                    partition=Record(*partition),
                    record_count=1,
                    file_size_in_bytes=path.stat().st_size,
                    spec_id=table.spec().spec_id,
                )
            )


def iceberg_table(catalog: SqlCatalog, kind: str, values: Sequence[Any]) -> str:
    columns = iceberg.NestedField(1, "id", iceberg.LongType()), iceberg.NestedField(2, "p", ICEBERG[kind])
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("ns.t", Schema(*columns), partition_spec=spec)
    append_files(table, [(value,) for value in values])
    return f"iceberg:{catalog.load_table('ns.t').metadata_location}"


CASES = cases([("delta", kind) for kind in VALUES] + [("iceberg", kind) for kind in ICEBERG])


@pytest.mark.parametrize(("form", "kind"), CASES, ids=map("-".join, CASES))
def test_every_answer_has_the_partition_values_of_the_tables_metadata(
    form: str, kind: str, tmp_path: Path, catalog: SqlCatalog
) -> None:
    values = [one for one in VALUES[kind] if form == "delta" or one not in FAR.get(kind, ())]
    values += ["", None] if (form, kind) == ("iceberg", "string") else [None]  # Delta has no empty text
    name = delta_table(tmp_path, kind, values) if form == "delta" else iceberg_table(catalog, kind, values)
    expected = python_values(array_of(kind, values))
    for keys, flat in ((["id"], True), (["id", "p"], False)):
        index = str(tmp_path / f"index-{len(keys)}")
        build_index(LocalEngine(), name, index, BuildRequest(keys, buckets=1, flat=flat))
        check_answers(index, len(keys), expected, kind)


def test_an_index_with_the_text_of_an_older_version_answers_and_a_build_writes_it_anew(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_deltalake(table, pa.table({"id": [0, 1, 2], "p": [True, False, None]}), partition_by=["p"])
    assert partition_values(typed_folders({"p": True}, {"p": "boolean"})) == {"p": "true"}
    assert stored_partition("p=True", {"p": "boolean"}) == stored_partition("p=true", {"p": "boolean"}) == {"p": True}
    build(None, f"delta:{table}", tmp_path / "index", ["id"])
    assert [row["p"] for i in range(3) for row in open_index(tmp_path / "index").fetch(i)] == [True, False, None]


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.bool_(), (True, False)),
        (pa.int8(), (-128, 0, 127)),
        (pa.int64(), (-(1 << 63), (1 << 63) - 1)),
        (pa.string(), ("null", "a/b=c%20d", "ü", "%5F", "#?&+\\", " ")),
        (pa.date32(), (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    ],
    ids=str,
)
@pytest.mark.parametrize("scope", ["table", "partition"])
def test_an_append_keeps_the_values_of_typed_partitions(
    arrow: pa.DataType, values: Sequence[Any], scope: str, tmp_path: Path
) -> None:
    old = pa.table({"id": pa.array([0, 1], pa.int64()), "p": pa.array([values[0], None], arrow)})
    write_deltalake(tmp_path / "t", old, partition_by=["p"])
    build(None, f"delta:{tmp_path}/t", tmp_path / "index", ["id"])
    new = pa.table({"id": [0, 1, *range(2, 2 + len(values))], "p": pa.array([values[0], None, *values], arrow)})
    append_new(None, tmp_path / "index", new, "b", scope=scope)
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("id")
    assert found.to_pylist() == new.to_pylist()
    opened = open_index(tmp_path / "index")
    assert [row for one in opened.fetch_many(range(len(new))) for row in one] == new.to_pylist()


def check_answers(index: str, keys: int, expected: Sequence[Any], kind: str) -> None:
    opened = open_index(index)
    assert verify(storage_at(index), None).is_sound
    asked = [(i, value)[:keys] if keys > 1 else i for i, value in enumerate(expected)]
    rows = opened.fetch_many(asked)
    assert [[(row["id"], shown(row["p"])) for row in some] for some in rows] == [
        [(i, shown(value))] for i, value in enumerate(expected)
    ]
    assert all(map(opened.contains, asked))
    table = opened.table_many(asked)
    assert table.schema.field("p").type == ARROW[kind]
    assert sorted(map(shown, python_values(table.column("p")))) == sorted(map(shown, expected))
    for i, value in enumerate(expected):
        for said in (value, written(value)):
            where = {"p": said}
            [row] = opened.fetch(asked[i], where=where)
            assert shown(row["p"]) == shown(value)
            named = [j for j in range(len(expected)) if keys == 1 and opened.fetch(j, where=where)]
            same = [j for j, one in enumerate(expected) if one == value or (one != one and value != value)]
            assert named == (same if keys == 1 else [])
    for null in (None, *([] if NULL_TEXT in expected else [NULL_TEXT])):
        assert opened.fetch(asked[-1], where={"p": null}) == [{"id": len(expected) - 1, "p": None}]


def changed_spec(catalog: SqlCatalog, *changes: tuple[str, str]) -> Table:
    with catalog.load_table("ns.t").update_spec() as update:
        for what, column in changes:
            getattr(update, what)(column)
    return catalog.load_table("ns.t")


ROWS = pa.table({"id": [0, 1], "p": ["a", "b"], "q": ["x", "y"]})
LATER = pa.table({"id": [2, 3], "p": ["a", "c"], "q": ["x", "z"]})
EVOLUTIONS = {  # the columns before, the changes, and the partition columns of the index afterwards
    "more": (["p"], [("add_identity", "q")], ("p",)),
    "first": ([], [("add_identity", "q")], ()),
    "fewer": (["p"], [("remove_field", "p")], ()),
    "one of two": (["p", "q"], [("remove_field", "p")], ("q",)),
    "none of two": (["p", "q"], [("remove_field", "p"), ("remove_field", "q")], ()),
    "another": (["p"], [("remove_field", "p"), ("add_identity", "q")], ()),
}


@pytest.mark.parametrize("keys", [["id"], ["id", "p"]], ids=len)
@pytest.mark.parametrize("name", cases(EVOLUTIONS))
def test_an_index_goes_on_when_the_partition_columns_of_its_table_change(
    name: str, keys: list[str], tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, changes, after = EVOLUTIONS[name]
    configure(monkeypatch, type="sql", **catalog.properties)
    catalog.create_table("ns.t", ROWS.schema)
    index, source = tmp_path / "index", "iceberg:here.ns.t"
    changed_spec(catalog, *(("add_identity", column) for column in before)).append(ROWS)
    build(None, source, index, keys)
    changed_spec(catalog, *changes).append(LATER)
    expected = [*ROWS.to_pylist(), *LATER.to_pylist()]
    asked = [row["id"] if len(keys) == 1 else (row["id"], row["p"]) for row in expected]
    if set(before) <= set(after):
        assert [row for rows in open_index(index, newest=True).fetch_many(asked) for row in rows] == expected
    else:
        with pytest.raises(IndexBehind, match=r"not partitioned by it any more.*run gnomon build INDEX again"):
            open_index(index, newest=True).fetch(asked[0])
    for full in (False, True):
        assert build(None, source, index, keys, full=full).rows == 4
        opened = open_index(index)
        assert [row for rows in opened.fetch_many(asked) for row in rows] == expected
        assert full or opened.spec.partitions == after
        assert verify(storage_at(str(index)), None).is_sound
    assert not build(None, source, index, keys, flat=None if after else True).committed
    assert open_index(index, newest=True).fetch_many(asked) == [[row] for row in expected]
    catalog.load_table("ns.t").append(LATER)
    assert build(None, source, index, keys).rows == 6


def test_appends_go_on_after_a_build_of_a_table_that_is_not_partitioned_any_more(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not with the scope of a partition: a row of one former partition would be a copy of that of another."""
    configure(monkeypatch, type="sql", **catalog.properties)
    index, source, other = tmp_path / "index", "iceberg:here.ns.t", ROWS.set_column(1, "p", [["z", "z"]])
    catalog.create_table("ns.t", ROWS.schema)
    changed_spec(catalog, ("add_identity", "p")).append(ROWS)
    build(None, source, index, ["id"])
    assert append_new(None, index, other, "1", scope="partition").appended == 2
    changed_spec(catalog, ("remove_field", "p"))
    with pytest.raises(UsageError, match="the index follows with the first build after such a file"):
        append_new(None, index, LATER, "2")
    catalog.load_table("ns.t").append(LATER.slice(1))
    build(None, source, index, ["id"])
    assert append_new(None, index, LATER, "2").appended == 1
    with pytest.raises(UsageError, match="scope partition: the source has no partition columns"):
        append_new(None, index, LATER.set_column(1, "p", [["z", "z"]]), "3", scope="partition")
    found = catalog.load_table("ns.t").scan().to_arrow().to_pylist()
    expected = [row for table in (ROWS, other, LATER) for row in table.to_pylist()]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert verify(storage_at(str(index)), None).is_sound


@pytest.mark.parametrize("keys", [["id"], ["f", "id"]], ids=len)
def test_equality_deletes_delete_what_java_has_equal(keys: list[str], tmp_path: Path, catalog: SqlCatalog) -> None:
    """A NaN equals a NaN, -0.0 is not 0.0: in keys, in partitions, and in the choice of the files."""
    columns = [iceberg.NestedField(1, "id", iceberg.LongType()), iceberg.NestedField(2, "f", iceberg.DoubleType())]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "f")) if keys == ["id"] else PartitionSpec()
    table = catalog.create_table("ns.t", Schema(*columns), partition_spec=spec)
    values = [0.0, -0.0, math.nan, 1.5]
    add(table, DataFileContent.DATA, [([7] * 4, values, ())] if keys != ["id"] else [([7], [f], (f,)) for f in values])
    deleted = [-0.0, math.nan]
    if keys == ["id"]:
        add(table, DataFileContent.EQUALITY_DELETES, [([7], [f], (f,)) for f in deleted], [1, 2])
    else:
        add(table, DataFileContent.EQUALITY_DELETES, [([7] * 2, deleted, ())], [1, 2])
    index = tmp_path / "index"
    build(None, f"iceberg:{catalog.load_table('ns.t').metadata_location}", index, keys)
    opened = open_index(index)
    asked = [7] if keys == ["id"] else [(f, 7) for f in (0.0, 1.5, math.nan)]
    found = [shown(row["f"]) for rows in opened.fetch_many(asked) for row in rows]
    assert sorted(found) == sorted(map(shown, (0.0, 1.5)))
    assert opened.view.snapshot.rows == 2


def add(
    table: Table,
    content: DataFileContent,
    files: Sequence[tuple[Sequence[int], Sequence[float], tuple[Any, ...]]],
    equality_ids: list[int] | None = None,
) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for ids, floats, partition in files:
            path = (
                Path(table.location().removeprefix("file://"))
                / f"data/{len(list(Path(table.location()[7:]).rglob('*')))}.parquet"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            schema = pa.schema(
                [
                    pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
                    pa.field("f", pa.float64(), metadata={"PARQUET:field_id": "2"}),
                ]
            )
            pq.write_table(pa.table([ids, floats], schema=schema), path)
            append.append_data_file(
                DataFile.from_args(
                    content=content,
                    file_path=f"file://{path}",
                    file_format=FileFormat.PARQUET,
                    partition=Record(*partition),
                    record_count=len(ids),
                    file_size_in_bytes=path.stat().st_size,
                    equality_ids=equality_ids,
                    spec_id=table.spec().spec_id,
                )
            )


def test_an_index_follows_an_iceberg_table_to_another_place_and_says_what_it_cannot_prove(
    tmp_path: Path, catalog: SqlCatalog
) -> None:
    """Adoption keeps the covered version until a build has indexed the later one."""
    table = catalog.create_table("ns.t", ROWS.schema)
    table.append(ROWS.slice(0, 1))
    table.append(ROWS.slice(1))
    index, first = tmp_path / "index", table.metadata_location
    build(None, f"iceberg:{first}", index, ["id"])
    table.append(LATER)
    table.delete("id = 0")
    old, new = Path(table.location().removeprefix("file://")), tmp_path / "moved"
    move_table(old, new)
    newest = f"iceberg:{new}/metadata/{Path(table.metadata_location).name}"
    with pytest.raises(SpecMismatch, match="--adopt"):
        build(None, newest, index, ["id"])
    done = build(None, newest, index, ["id"], adopt=True)
    opened = open_index(index)
    assert (done.rows, opened.spec.source.location, opened.view.snapshot.rows) == (3, str(new), 3)
    assert opened.fetch_many([0, 1, 2, 3]) == [[], [ROWS.to_pylist()[1]], *([row] for row in LATER.to_pylist())]
    assert verify(storage_at(str(index)), None).is_sound
    history = [read_snapshot(storage_at(str(index)), number) for number in (1, 2, 3)]
    versions = [one.table.version for one in history if one.table is not None]
    assert [one.operation for one in history] == ["build", "adopt", "build"]
    assert versions[0] == versions[1] != versions[2]


def test_verify_of_an_expired_iceberg_version_says_what_it_cannot_check(tmp_path: Path, catalog: SqlCatalog) -> None:
    table, index = catalog.create_table("ns.t", ROWS.schema), tmp_path / "index"
    table.append(ROWS)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    folder = Path(table.location().removeprefix("file://"))
    shutil.copy(table.metadata_location.removeprefix("file://"), folder / "metadata/v1.metadata.json")
    build(None, f"iceberg:{folder}", index, ["id"])
    assert not verify(storage_at(str(index)), None).unchecked
    table.append(LATER)
    table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    shutil.copy(table.metadata_location.removeprefix("file://"), folder / "metadata/v2.metadata.json")
    (folder / "metadata/v1.metadata.json").unlink()
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    report = verify(storage_at(str(index)), None)
    assert (report.faults, len(report.unchecked), report.rows_compared > 0) == ([], 1, True)


def move_table(old: Path, new: Path) -> None:
    """Copy an Iceberg table, and write its metadata with the new location."""
    shutil.copytree(old, new)
    for file in (new / "metadata").glob("*.json"):
        file.write_text(file.read_text().replace(f"file://{old}", f"file:{new}"))
    for file in (new / "metadata").glob("*.avro"):
        data = io.BytesIO(file.read_bytes())
        reader = fastavro.reader(data)
        records = elsewhere(list(reader), f"file://{old}", f"file:{new}")
        with file.open("wb") as out:
            fastavro.writer(out, reader.writer_schema, records)


def elsewhere(value: Any, old: str, new: str) -> Any:
    """A value with another text in place of an old one."""
    if isinstance(value, list):
        return [elsewhere(one, old, new) for one in value]
    if isinstance(value, dict):
        return {name: elsewhere(one, old, new) for name, one in value.items()}
    return value.replace(old, new) if isinstance(value, str) else value


def test_a_file_without_a_former_partition_column_is_refused(tmp_path: Path, catalog: SqlCatalog) -> None:
    """Its value is only in the metadata of the table, as in files that came from Hive."""
    columns = iceberg.NestedField(1, "id", iceberg.LongType()), iceberg.NestedField(2, "p", iceberg.StringType())
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table, index = catalog.create_table("ns.t", Schema(*columns), partition_spec=spec), tmp_path / "index"
    append_files(table, [("a",), (None,)])
    build(None, f"iceberg:{catalog.load_table('ns.t').metadata_location}", index, ["id"])
    assert open_index(index).fetch_many([0, 1]) == [[{"id": 0, "p": "a"}], [{"id": 1, "p": None}]]
    changed_spec(catalog, ("remove_field", "p")).append(pa.table({"id": [2], "p": ["c"]}))
    newest = f"iceberg:{catalog.load_table('ns.t').metadata_location}"
    for full in (False, True):
        with pytest.raises(UsageError, match=r"0.parquet: .*lacks a column by which"):
            build(None, newest, index, ["id"], full=full)
    with pytest.raises(UsageError, match="lacks a column by which"):
        build(None, newest, tmp_path / "other", ["id"])

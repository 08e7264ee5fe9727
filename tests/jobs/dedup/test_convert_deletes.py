"""Equality deletes become position deletes or deletion vectors, and the rows of the table stay the same: those that
Spark reads before, and that pyiceberg, which refuses equality deletes, reads afterwards."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3

from gnomon.__main__ import main
from gnomon.jobs.build import build
from gnomon.jobs.dedup import change as change_module
from gnomon.jobs.dedup import convert_equality_deletes, delete
from gnomon.jobs.dedup.row_search import equality_deleted
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import TableCommit, lake_source
from gnomon.shadow.tables.iceberg_snapshot import FileEntry, prepare
from gnomon.shadow.verify.snapshot import verify
from tests.golden.tables import TABLES, Version
from tests.golden.tables.values import exact
from tests.jobs.dedup.lake_tables import here
from tests.profiles import examples
from tests.shadow.tables.test_iceberg_change import ARROW, NAME, Lake, foreign, parquet

GOLDEN = {table.name: table for table in TABLES if table.name.startswith("iceberg_equality")}
KEYS = [*range(12), None]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    with closing(here(tmp_path, monkeypatch)) as found:
        found.create_namespace("db")
        yield found


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A version of the format. pyiceberg has the code that writes metadata of version 3, but refuses to."""
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    number: int = request.param
    return number


def state(*folders: str | Path) -> set[tuple[str, int]]:
    files = (path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return {(str(path), path.stat().st_size) for path in files}


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Whether rows are the same, in any order, with exact values."""
    shown = [sorted((name, repr(exact(value))) for name, value in one.items()) for one in found]
    return sorted(shown) == sorted(sorted((name, repr(value)) for name, value in one.items()) for one in expected)


# -- tables that Spark and Iceberg's Java library wrote ----------------------------------------------------------------


def registered(catalog: Catalog, golden: Version, name: str, root: Path) -> str:
    """The name of a table of the catalog that begins with a golden version. All its new files lie below `root`."""
    table = catalog.register_table(f"db.{name}", golden.metadata)
    with table.transaction() as transaction:
        places = {f"write.{kind}.path": f"file://{root}/{name}/{kind}" for kind in ("data", "metadata")}
        transaction.set_properties(places)
    return f"iceberg:here.db.{name}"


def golden_versions() -> list[Any]:
    return [
        pytest.param(version, key, id=f"{table.name}-{number}")
        for table in GOLDEN.values()
        for number, version in enumerate(table.versions)
        for key in ([("id",)] if table.name != "iceberg_equality_scopes" else [("id",), ("id", "part")])
        if version.version >= 0
    ]


@pytest.mark.parametrize(("golden", "key"), golden_versions())
def test_the_rows_of_a_table_stay_those_that_spark_reads(
    catalog: Catalog, tmp_path: Path, golden: Version, key: tuple[str, ...]
) -> None:
    name, index = registered(catalog, golden, "t", tmp_path), str(tmp_path / "index")
    values = sum(one.rows.num_rows for one in lake_source(name).content.equality_deletes())
    before = state(golden.table.path), catalog.load_table("db.t").metadata_location
    others = {column for one in lake_source(name).content.equality_deletes() for column in one.rows.column_names}
    if others - {*key, "part"} or (others and not others >= set(key)):
        with pytest.raises(UsageError, match="equality deletes are read where their columns are the key of the index"):
            build(None, name, index, list(key))
        return
    build(None, name, index, list(key))
    keys = sorted({tuple(one[column] for column in key) for one in golden.rows()}, key=repr)
    rows_before = state(tmp_path)
    looked = convert_equality_deletes(index, dry_run=True)
    assert (looked.dry_run, looked.rows_read) == (True, values)
    assert (state(tmp_path), catalog.load_table("db.t").metadata_location) == (rows_before, before[1])
    done = convert_equality_deletes(index)
    assert (done.rows_read, done.rows_deleted, done.files_changed) == (
        values,
        looked.rows_deleted,
        looked.files_changed,
    )
    content = lake_source(name).content
    assert list(content.equality_deletes()) == []
    assert state(golden.table.path) == before[0]
    assert (done.table_version == looked.table_version) == (values == 0)
    if {file.format for file in content.files.values()} <= {"parquet"}:
        assert same(catalog.load_table("db.t").scan().to_arrow().to_pylist(), golden.rows())
    answers = open_index(index).fetch_many([list(one) for one in keys])
    assert same([one for answer in answers for one in answer], golden.rows())
    assert verify(storage_at(index)).faults == []
    again = convert_equality_deletes(index)
    assert (again.rows_read, again.rows_deleted, again.table_version) == (0, 0, done.table_version)


# -- random histories --------------------------------------------------------------------------------------------------


class Model:
    """A table and its rows: `rows` has the key of each live row by a text that is unique to the row."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.rows: dict[str, int | None] = {}
        self.steps = 0

    def commit(self, deleted: list[int | None], added: list[int | None], files: int = 1) -> None:
        """Delete rows by key, and add others by the same commit, which the deletes leave."""
        self.steps += 1
        entries = []
        for at in range(files if deleted else 0):
            share = deleted[at::files]
            table = pa.table([pa.array(share, pa.int64())], pa.schema([ARROW.field("id")]))
            name = f"equality-{self.steps}-{at}.parquet"
            record = {"content": 2, "record_count": len(share), "equality_ids": [1]}
            entries.append(foreign(self.lake, name, parquet(table), **record))
        self.rows = {text: key for text, key in self.rows.items() if key not in deleted}
        if added:
            texts = [f"{self.steps}.{at}" for at in range(len(added))]
            columns = [pa.array(added, pa.int64()), texts, pa.nulls(len(added)), pa.nulls(len(added))]
            arrays = [pa.array(one).cast(field.type) for one, field in zip(columns, ARROW, strict=True)]
            data = parquet(pa.Table.from_arrays(arrays, schema=ARROW))
            entries.append(foreign(self.lake, f"rows-{self.steps}.parquet", data, record_count=len(added)))
            self.rows |= dict(zip(texts, added, strict=True))
        self.put(*entries)

    def put(self, *entries: FileEntry) -> None:
        token = f"other-{len(self.lake.table.snapshots())}"
        prepare(self.lake.table, TableCommit(NAME, self.lake.uuid, "other", 1, ()), token, entries).send()

    def check(self, index: str) -> None:
        """pyiceberg and the index read these rows."""
        found = self.lake.table.scan().to_arrow()
        assert dict(zip(found["v"].to_pylist(), found["id"].to_pylist(), strict=True)) == self.rows
        assert found.num_rows == len(self.rows)
        self.check_index(index)

    def check_index(self, index: str) -> None:
        opened = open_index(index, newest=True)
        answers = [one for answer in opened.fetch_many(KEYS) for one in answer]
        assert {one["v"]: one["id"] for one in answers} == self.rows
        assert len(answers) == len(self.rows)


@pytest.mark.parametrize("seed", range(examples(8)))
def test_random_histories_keep_their_rows(catalog: Catalog, version: int, tmp_path: Path, seed: int) -> None:
    """Deletes of keys that come back, in the same commit or later; deletes of each kind in between; an index that is
    late; and tables that ask for copy-on-write."""
    chance, index = Random(seed), str(tmp_path / "index")
    properties = {"write_delete_mode": "copy-on-write"} if seed % 4 == 3 else {}
    model = Model(Lake(catalog, version, **properties))
    model.commit([], chance.choices(KEYS, k=10))
    build(None, NAME, index, ["id"])
    for _ in range(2):
        for _ in range(chance.randint(1, 5)):
            what = chance.choice(["append", "delete", "upsert", "rows", "build"])
            some = chance.sample(KEYS, chance.randint(1, 4))
            if what == "append":
                model.commit([], some)
            elif what == "delete":
                model.commit(some, [], chance.randint(1, 2))
            elif what == "upsert":
                model.commit(some, some[:2] + some[:1])
            elif what == "build":
                build(None, NAME, index, ["id"])
            elif keys := [one for one in some if one is not None]:
                delete(None, index, keys)
                model.rows = {text: key for text, key in model.rows.items() if key not in keys}
        model.check_index(index)
        deletes = lake_source(NAME).content.equality_deletes()
        result = convert_equality_deletes(index)
        assert result.rows_read == sum(one.rows.num_rows for one in deletes)
        assert list(lake_source(NAME).content.equality_deletes()) == []
        model.check(index)
        if model.rows:
            assert verify(storage_at(index)).faults == []


def convert(model: Model, index: str) -> None:
    convert_equality_deletes(index)


MEANWHILE: dict[str, Callable[[Model, str], None]] = {
    "append of a deleted key": lambda model, index: model.commit([], [3, 7]),
    "delete": lambda model, index: model.commit([4], []),
    "upsert": lambda model, index: model.commit([5], [5]),
    "other converter": convert,
}


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("other", MEANWHILE)
def test_what_others_commit_between_look_and_commit_is_seen(
    catalog: Catalog, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, look: int
) -> None:
    model, index = Model(Lake(catalog, version)), str(tmp_path / "index")
    model.commit([], list(range(10)))
    model.commit([3, 4, 1000], [4])
    build(None, NAME, index, ["id"])
    looks = []

    def looked(*arguments: Any) -> Any:
        found = equality_deleted(*arguments)
        looks.append(1)
        if len(looks) == look:
            MEANWHILE[other](model, index)
        return found

    monkeypatch.setattr(change_module, "equality_deleted", looked)
    convert_equality_deletes(index)
    model.check_index(index)
    convert_equality_deletes(index)
    model.check(index)
    assert list(lake_source(NAME).content.equality_deletes()) == []


# -- the command, and what is refused ----------------------------------------------------------------------------------


def test_the_command_counts_and_says_what_it_did(
    catalog: Catalog, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, index = Model(Lake(catalog, version)), str(tmp_path / "index")
    model.commit([], list(range(10)))
    model.commit([3, 4, 1000], [4])
    build(None, NAME, index, ["id"])
    way = "position deletes" if version == 2 else "deletion vectors"
    assert main(["convert-deletes", index, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"would replace 3 equality deletes, which delete 2 rows of 1 file, by {way}, from version ")
    assert main(["convert-deletes", index, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows_read"], result["rows_deleted"], result["way"]) == (3, 2, way)
    assert main(["convert-deletes", index]) == 0
    assert "there are no equality deletes" in capsys.readouterr().out
    model.commit([7, 3000], [])
    assert main(["convert-deletes", index]) == 0
    out = capsys.readouterr().out
    assert f"2 equality deletes replaced; they delete 1 row of 1 file, now by {way} of " in out
    model.check(index)
    model.commit([5000], [])  # deletes no row
    assert main(["convert-deletes", index]) == 0
    assert "1 equality delete replaced; they delete 0 rows of 0 files" in capsys.readouterr().out
    model.check(index)
    assert list(lake_source(NAME).content.equality_deletes()) == []


def test_deletes_by_other_columns_are_refused_and_nothing_is_written(
    catalog: Catalog, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, index = Model(Lake(catalog, version)), str(tmp_path / "index")
    model.commit([], list(range(10)))
    build(None, NAME, index, ["id"])
    texts = pa.table([["1.3"]], pa.schema([ARROW.field("v")]))
    record = {"content": 2, "record_count": 1, "equality_ids": [2]}
    model.put(foreign(model.lake, "by-text.parquet", parquet(texts), **record))
    before = state(tmp_path)
    for words in ([], ["--dry-run"], ["--json"]):
        assert main(["convert-deletes", index, *words]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        [line] = err.splitlines()
        assert "by-text.parquet: equality deletes are read where their columns are the key of the index" in line
    assert state(tmp_path) == before


def test_an_index_of_a_metadata_file_and_a_table_of_version_1_are_refused(
    catalog: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = GOLDEN["iceberg_equality_deletes"].versions[3]
    build(None, f"iceberg:{golden.metadata}", str(tmp_path / "static"), ["id"])
    first = catalog.create_table("db.t", ARROW, properties={"format-version": "1"})
    first.append(pa.Table.from_arrays([pa.array([1]), ["a"], *[pa.nulls(1)] * 2], names=ARROW.names).cast(ARROW))
    build(None, NAME, str(tmp_path / "first"), ["id"])
    before = state(tmp_path, golden.table.path)
    for index, says in (("static", "its index names a metadata file"), ("first", "it has format version 1")):
        assert main(["convert-deletes", str(tmp_path / index)]) == 2
        assert says in capsys.readouterr().err
    assert state(tmp_path, golden.table.path) == before

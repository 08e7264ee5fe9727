"""Appends to Delta and Iceberg tables: each key once by the table's own commit, through deaths and races."""

import datetime as dt
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyarrow import orc
from pyiceberg.exceptions import BadRequestError

from gnomon.jobs.build import build
from gnomon.jobs.dedup import Origin, append_new, as_rows, read_batch
from gnomon.jobs.dedup import append as append_module
from gnomon.jobs.dedup import target as finish_module
from gnomon.shadow import open_index
from gnomon.shadow.errors import StorageError, TableChanged
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import delta_append, iceberg_append
from gnomon.shadow.verify.snapshot import verify
from gnomon.sources import UnsupportedFormat
from gnomon.sources.types import FIELD_ID
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, Lake, row, rows, with_column
from tests.profiles import cases

local_rows = sys.modules[as_rows.__module__]
FORMATS = ["delta", "iceberg"]
LIVE = [n for n in range(60) if n not in (7, 8)]  # after an append of the rows 30 to 59


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return DeltaLake(tmp_path) if request.param == "delta" else IcebergLake(tmp_path, monkeypatch)


@pytest.fixture
def index(lake: Lake, tmp_path: Path) -> str:
    build(None, lake.name, str(tmp_path / "index"), ["id"], buckets=2)
    return str(tmp_path / "index")


def check(lake: Lake, index: str, numbers: list[int]) -> None:
    """The table's own reader and the index have exactly these rows, once each."""
    expected = [row(number) for number in numbers]
    assert [{name: one[name] for name in expected[0]} for one in lake.rows()] == expected
    answers = open_index(index).fetch_many(range(max(numbers) + 5))
    found = [[{name: one[name] for name in expected[0]} for one in answer] for answer in answers]
    assert [one for answer in found for one in answer] == expected
    assert verify(storage_at(index)).faults == []


def die_after(step: str, monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Run an append, or a change, that dies after a step."""
    module = next(one for one in (append_module, finish_module, local_rows) if hasattr(one, step))
    real = getattr(module, step)

    def dying(*arguments: object, **named: object) -> object:
        real(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, step, dying)
        with pytest.raises(KeyboardInterrupt):
            run()


def nightly(index: str) -> Callable[[], object]:
    """An append of the rows 30 to 59."""
    return lambda: append_new(None, index, rows(30, 60), "nightly")


def module_of(lake: Lake) -> ModuleType:
    return delta_append if isinstance(lake, DeltaLake) else iceberg_append


def test_an_append_commits_the_new_rows_to_the_table(lake: Lake, index: str) -> None:
    result = append_new(None, index, rows(30, 60), "nightly")
    assert (result.rows_read, result.already_loaded, result.appended) == (30, 10, 20)
    check(lake, index, LIVE)
    again = append_new(None, index, rows(30, 60), "nightly")
    assert (again.known_batch, again.appended) == (True, 0)
    other = append_new(None, index, rows(0, 65), "with deleted keys")
    assert (other.appended, other.already_loaded) == (7, 58), "a deleted key is new again"
    check(lake, index, list(range(65)))


def test_the_first_append_builds_the_index(lake: Lake, tmp_path: Path) -> None:
    index, origin = str(tmp_path / "made"), Origin(lake.name, ["id"])
    assert append_new(None, index, rows(30, 60), "first", origin=origin).appended == 20
    assert append_new(None, index, rows(55, 62), "second", origin=origin).appended == 2
    check(lake, index, [*LIVE, 60, 61])


@pytest.mark.parametrize(
    ("step", "meanwhile"),
    cases(
        [
            ("staged_of", "nothing"),
            ("commit_append", "nothing"),
            ("commit_append", "append"),
            ("commit_append", "delete"),
            ("commit_append", "compact"),
            ("commit_append", "widen"),
            ("move_files", "nothing"),
            ("move_files", "append"),
            ("commit_to_table", "nothing"),
            ("commit_to_table", "delete"),
            ("commit_to_table", "compact"),
            ("mark_appended", "compact"),
            ("settle", "nothing"),
        ]
    ),
)
def test_an_append_that_died_is_finished_once(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, step: str, meanwhile: str
) -> None:
    die_after(step, monkeypatch, nightly(index))
    changes: dict[str, Callable[[], None]] = {
        "append": lambda: lake.append(rows(100, 105)),
        "delete": lambda: lake.delete(3),
        "compact": lake.compact,
        "widen": lake.widen,
        "nothing": lambda: None,
    }
    changes[meanwhile]()
    result = append_new(None, index, rows(30, 60), "nightly")
    assert (result.known_batch, result.appended) == ((True, 0) if step == "settle" else (False, 20))
    more = range(100, 105) if meanwhile == "append" else ()
    check(lake, index, [*(n for n in LIVE if n != 3 or meanwhile != "delete"), *more])
    assert len(lake.appends()) == 1
    assert not (Path(storage_of(lake)) / "_gnomon").exists()


def name_of(location: str) -> str:
    return location.rpartition("/")[2]


def storage_of(lake: Lake) -> str:
    assert isinstance(lake, (DeltaLake, IcebergLake))
    return lake.root


def test_programs_that_finish_an_append_at_once_commit_it_once(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either commits."""
    die_after("move_files", monkeypatch, nightly(index))
    module, barrier, first = module_of(lake), threading.Barrier(2, timeout=60), threading.local()
    real = module._commit  # type: ignore[attr-defined]

    def together(*arguments: object) -> None:
        if not getattr(first, "is_done", False):
            first.is_done = True
            barrier.wait()
        real(*arguments)

    monkeypatch.setattr(module, "_commit", together)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(append_new, None, index, rows(30, 60), "nightly") for _ in range(2)]
        assert {run.result().appended for run in runs} <= {0, 20}
    check(lake, index, LIVE)
    assert len(lake.appends()) == 1


def test_appends_with_common_keys_that_run_at_once_add_each_key_once(lake: Lake, index: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(append_new, None, index, rows(30, 60), "one")
        two = pool.submit(append_new, None, index, rows(50, 70), "two")
        assert one.result().appended + two.result().appended == 30
    check(lake, index, [*LIVE, *range(60, 70)])


@pytest.mark.parametrize("kind", [DeltaError, TimeoutError, ValueError, NotImplementedError, Exception])
def test_a_commit_whose_reply_was_lost_counts(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Libraries raise errors of their parts as any kind, also in what they do after the commit."""
    module = module_of(lake)
    real = module._commit  # type: ignore[attr-defined]

    def losing(*arguments: object) -> None:
        real(*arguments)
        raise kind("no reply")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_commit", losing)
        assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    assert append_new(None, index, rows(30, 60), "nightly").known_batch
    check(lake, index, LIVE)
    assert len(lake.appends()) == 1


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_commit_that_failed_says_so_and_blocks_no_later_append(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """A refusal comes again each time, so that the append is given up; a failing store or catalog may work again."""
    if is_refused:
        error = DeltaProtocolError("no") if isinstance(lake, DeltaLake) else BadRequestError("no")
        expected, what = TableChanged, "refuses the commit .*no.*; append 1 of batch 'nightly' was given up"
    else:
        error = DeltaError("no") if isinstance(lake, DeltaLake) else TimeoutError("no")
        expected, what = StorageError, "the commit failed, and is not in the table .*no.*; run it again"

    def failing(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module_of(lake), "_commit", failing)
        with pytest.raises(expected, match=what):
            append_new(None, index, rows(30, 60), "nightly")
    assert append_new(None, index, rows(35, 40), "other").appended == 0
    done = append_new(None, index, rows(30, 60), "nightly")
    assert (done.known_batch, done.appended) == ((False, 20) if is_refused else (True, 0))
    check(lake, index, LIVE)


def test_staged_files_that_no_longer_fit_are_given_up_and_the_batch_can_run_again(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after("commit_append", monkeypatch, nightly(index))
    lake.retype()
    before = len(lake.rows())
    message = (
        "column info is struct<.*> in this new file, the table has .*; append 1 of batch 'nightly' was given up, and "
        "none of its 20 rows is in .*; run the command with that batch again"
    )
    with pytest.raises(TableChanged, match=message):
        append_new(None, index, rows(30, 60), "nightly")
    assert len(lake.rows()) == before
    fitting = rows(30, 60).drop_columns("info").append_column("info", pa.array(map(str, range(30, 60))))
    assert append_new(None, index, fitting, "nightly").appended == 60 - 30 - max(before - 28, 0)
    numbers = [one["id"] for one in lake.rows()]
    assert len(numbers) == len(set(numbers)) == before + 60 - 30 - max(before - 28, 0)


@pytest.mark.parametrize("step", ["commit_append", "move_files"])
def test_files_that_a_clean_up_removed_before_the_commit_are_noticed(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    die_after(step, monkeypatch, nightly(index))
    live = {name_of(path) for path in lake.files()}
    for path in Path(storage_of(lake)).rglob("*.parquet"):
        if path.name not in live:
            path.unlink()
    with pytest.raises(TableChanged, match=r"is gone: perhaps the table's clean-up .* batch 'nightly' was given up"):
        append_new(None, index, rows(0, 1), "another")
    assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    check(lake, index, LIVE)


def test_an_append_that_another_program_gave_up_is_not_taken_for_done(
    lake: Lake, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program pauses before its commit. Another one finds the files gone, gives the append up and commits the next
    one, whose number is higher."""
    module, paused = module_of(lake), list[int]()
    real = module._commit  # type: ignore[attr-defined]
    live = {name_of(path) for path in lake.files()}

    def pausing(*arguments: object) -> None:
        if not paused:
            paused.append(1)
            for path in Path(storage_of(lake)).rglob("*.parquet"):
                if path.name not in live:
                    path.unlink()
            with pytest.raises(TableChanged, match="was given up"):
                append_new(None, index, rows(60, 62), "another")
            assert append_new(None, index, rows(60, 62), "another").appended == 2
        real(*arguments)

    monkeypatch.setattr(module, "_commit", pausing)
    message = r"another program gave up append 1 of batch 'nightly'; run the command with that batch again"
    with pytest.raises(TableChanged, match=message):
        append_new(None, index, rows(30, 60), "nightly")
    check(lake, index, [*(n for n in range(40) if n not in (7, 8)), 60, 61])
    assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    check(lake, index, [*LIVE, 60, 61])


def test_a_compaction_with_vacuum_after_the_commit_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = DeltaLake(tmp_path), str(tmp_path / "index")
    build(None, lake.name, index, ["id"], buckets=2)
    die_after("commit_to_table", monkeypatch, nightly(index))
    lake.compact()
    removed = lake.table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert any("-nightly-" in path for path in removed)
    assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    check(lake, index, LIVE)


def test_an_index_that_was_deleted_and_built_again_goes_on(lake: Lake, index: str, tmp_path: Path) -> None:
    append_new(None, index, rows(30, 60), "nightly")
    Path(index).rename(tmp_path / "old")
    build(None, lake.name, index, ["id"], buckets=2)
    assert append_new(None, index, rows(30, 65), "nightly").appended == 5
    check(lake, index, [*LIVE, *range(60, 65)])


def test_an_index_of_a_backup_does_not_take_a_newer_append_for_its_own(lake: Lake, index: str, tmp_path: Path) -> None:
    append_new(None, index, rows(30, 45), "first")
    storage = storage_at(index)
    backup = {info.path: storage.read(info.path) for info in storage.list(hidden=True)}
    append_new(None, index, rows(45, 60), "second")
    storage.delete_folder("_shadow")
    for path, data in backup.items():
        if path.startswith("_shadow"):
            storage.put_new(path, [data])
    assert append_new(None, index, rows(55, 70), "third").appended == 10
    check(lake, index, [*LIVE, *range(60, 70)])


def test_a_known_key_of_another_writer_counts_from_the_next_append_on(lake: Lake, index: str) -> None:
    lake.append(rows(40, 50))
    assert append_new(None, index, rows(30, 60), "nightly").appended == 10
    check(lake, index, LIVE)


def test_a_table_keeps_one_number_for_all_appends_of_an_index(lake: Lake, index: str) -> None:
    for i in range(3):
        append_new(None, index, rows(40 + i, 41 + i), f"batch {i}")
    marks = [one.rpartition("/") for one in lake.appends()]
    assert [number for _, _, number in marks] == ["3", "2", "1"]
    (writer,) = {one for one, _, _ in marks}
    if isinstance(lake, DeltaLake):
        assert lake.table().transaction_version(writer) == 3
    elif isinstance(lake, IcebergLake):
        assert {name: value for name, value in lake.table().properties.items() if "gnomon" in name} == {writer: "3"}


def test_a_required_column_takes_no_null(tmp_path: Path) -> None:
    lake, index = DeltaLake(tmp_path), str(tmp_path / "index")
    log = tmp_path / "table/_delta_log/00000000000000000000.json"
    text = log.read_text()
    name = '{\\"name\\":\\"day\\",\\"type\\":\\"date\\",\\"nullable\\":true'
    assert name in text
    log.write_text(text.replace(name, name.replace("true", "false")))
    build(None, lake.name, index, ["id"], buckets=2)
    nulls = with_column(rows(40, 42), "day", [None, None])
    with pytest.raises(UnsupportedFormat, match="column day: required"):
        append_new(None, index, nulls, "nulls")
    assert append_new(None, index, rows(30, 60), "nightly").appended == 20
    check(lake, index, LIVE)


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_type_comes_back_from_the_table_s_own_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
    first = {
        "id": 1,
        "flag": True,
        "small": 2**31 - 1,
        "one": 0.1,
        "two": -0.0,
        "money": Decimal("-1.50"),
        "day": dt.date(1, 1, 1),
        "at": at.replace(tzinfo=dt.UTC),
        "local": at,
        "raw": b"\x00\xff",
        "text": "é\n",
    }
    nulls = dict.fromkeys(first) | {"id": 2}
    types = [pa.int64(), pa.bool_(), pa.int32(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.date32()]
    types += [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.binary(), pa.string()]
    schema = pa.schema(list(zip(first, types, strict=True)))
    wanted = pa.Table.from_pylist([first, nulls], schema)
    lake = IcebergLake(tmp_path, monkeypatch)
    if format_name == "delta":
        name, root = f"delta:{tmp_path}/types", str(tmp_path / "types")
        DeltaTable.create(root, DeltaSchema.from_arrow(schema))
    else:
        name, root = "iceberg:here.db.types", ""
        lake.catalog.create_table("db.types", schema)
    index = str(tmp_path / "index")
    build(None, name, index, ["id"], buckets=1)
    pq.write_table(wanted, tmp_path / "batch.parquet")
    assert append_new(None, index, wanted, "all").appended == 2
    found = DeltaTable(root).to_pyarrow_table() if root else lake.catalog.load_table("db.types").scan().to_arrow()
    assert found.sort_by("id").to_pylist() == wanted.to_pylist()
    answers = open_index(index).fetch_many([1, 2])
    assert [one for answer in answers for one in answer] == wanted.to_pylist()


def ids_of_others(kind: pa.DataType) -> pa.DataType:
    """A type whose fields have the field ids of another table."""
    if pa.types.is_struct(kind):
        fields = reversed(list(enumerate(kind, 1)))
        return pa.struct([pa.field(f.name, f.type, metadata={FIELD_ID: str(at)}) for at, f in fields][::-1])
    return kind


@pytest.mark.parametrize("form", ["parquet", "field ids", "orc", "jsonl"])
def test_nested_values_of_a_batch_file_are_those_of_the_file(lake: Lake, index: str, tmp_path: Path, form: str) -> None:
    """The table knows its fields by ids, which files of a batch do not have, or have for other fields."""
    batch, path = rows(50, 60), tmp_path / ("batch.jsonl" if form == "jsonl" else "batch")
    if form == "jsonl":
        shown = [{**one, "day": str(one["day"])} for one in map(row, range(50, 60))]
        path.write_text("".join(json.dumps(one) + "\n" for one in shown))
    elif form == "orc":
        orc.write_table(batch, path)
    else:
        ids = [{FIELD_ID: str(9 - at)} for at in range(batch.num_columns)]
        fields = [pa.field(f.name, ids_of_others(f.type), metadata=of) for f, of in zip(batch.schema, ids, strict=True)]
        pq.write_table(batch.cast(pa.schema(fields)) if form == "field ids" else batch, path)
    assert append_new(None, index, read_batch(None, str(path), index), "files").appended == 10
    assert lake.rows()[-10:] == [row(number) for number in range(50, 60)]

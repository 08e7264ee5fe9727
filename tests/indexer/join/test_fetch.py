"""A task of a load reads each byte about once, yields bounded pieces, and returns every row or its error. The tasks run
in this process, without Spark."""

import io
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from gnomon.indexer.join import load_rows as fetch
from gnomon.indexer.join.load_rows import FetchSpec, PointedFiles
from gnomon.indexer.spark.tasks import open_in_worker
from gnomon.jobs.load import ERROR, FILE, OFFSET, SIZE, SUB_OFFSET, FetchCounters, row_reader
from gnomon.shadow import OpenIndex, StalePointer
from gnomon.shadow.storage import storage_at
from gnomon.sources import FORMATS, DamagedSource, open_source
from tests.indexer.test_formats import CASES, as_table, put
from tests.opened import open_index
from tests.shadow.fetch.test_fetcher import forge
from tests.shadow.make_index import index_source
from tests.sources.readers import BytesReader

PAGES: dict[str, Any] = {"data_page_size": 20_000, "write_page_checksum": True}
ROOT = Path(__file__).parents[3]
ROWS = 4000


def as_parquet(rows: list[tuple[int, str]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(as_table(rows), out, row_group_size=1000, use_dictionary=False, **PAGES)
    return out.getvalue()


def as_orc(rows: list[tuple[int, str]]) -> bytes:
    out = io.BytesIO()
    orc.write_table(as_table(rows), out, stripe_size=100_000, batch_size=1000, compression="zlib")
    return out.getvalue()


WRITERS: dict[str, Callable[[list[tuple[int, str]]], bytes]] = {"parquet": as_parquet, "orc": as_orc}


class Lake:
    """One file of a format, its index, and pointers to all of its rows."""

    def __init__(self, folder: Path, name: str) -> None:
        self.case = CASES[name]._replace(write=WRITERS.get(name, CASES[name].write))
        self.rows = [(i % 350, f'é line {i}\nof, "{random.Random(i).randbytes(200).hex()}"') for i in range(ROWS)]
        self.path = folder / "source" / put(folder / "source", "a", self.rows, name, self.case)
        index_source(folder / "source", folder / "index", [self.case.number], format=name)
        self.location = str(folder / "index")
        data = self.path.read_bytes()
        source = open_source(BytesReader(data, "a"), name)
        batches = source.scan(BytesReader(data, "a"), [self.case.number])
        table = pa.Table.from_batches(batches).rename_columns(["__gnomon_key_0", OFFSET, SUB_OFFSET, SIZE])
        table = table.append_column(FILE, pa.array([self.path.name] * ROWS)).append_column("n", pa.array(range(ROWS)))
        self.pointers = table.take(list(range(ROWS)))
        self.columns = [self.case.number, self.case.text]

    def fetched(self, pointers: pa.Table, report: bool = False, chunk: int = 7) -> tuple[pa.Table, FetchCounters]:
        """The result of a task for pointers in batches of `chunk`."""
        self.batches = list(self.answer(pointers, report, chunk))
        return pa.Table.from_batches(self.batches), self.counters

    def answer(self, pointers: pa.Table, report: bool = False, chunk: int = 7) -> Iterator[pa.RecordBatch]:
        self.counters = FetchCounters()
        kinds = [StringType() if self.case.kind is str else LongType(), StringType()]
        fields = [StructField("n", LongType()), *map(StructField, self.columns, kinds)]
        fields += [StructField(ERROR, StringType())] if report else []
        files = PointedFiles.of_index(open_index(self.location), ["__gnomon_key_0"])
        spec = FetchSpec(files, ["n"], self.columns, StructType(fields), report)
        return fetch._fetch(spec)(iter(pointers.to_batches(max_chunksize=chunk)), self.counters)

    def expected(self) -> list[tuple[int, Any, str]]:
        return [(n, self.case.kind(number), text) for n, (number, text) in enumerate(self.rows)]


@pytest.fixture(params=CASES)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    open_in_worker.cache_clear()
    monkeypatch.setattr(row_reader, "READ_BYTES", 400_000)
    monkeypatch.setattr(row_reader, "OUT_BYTES", 200_000)
    yield Lake(tmp_path, request.param)
    open_in_worker.cache_clear()


def rows_in(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_load_of_all_rows_reads_each_byte_about_once(lake: Lake) -> None:
    lake.fetched(lake.pointers.slice(0, 1))  # reads the file's metadata
    table, counters = lake.fetched(lake.pointers)
    assert rows_in(table) == lake.expected()
    size = lake.path.stat().st_size
    assert size > 2 * row_reader.READ_BYTES
    assert 0.9 * size < counters.source_bytes < 1.4 * size  # page headers, and guesses of lengths, add some
    assert (counters.rows, counters.tasks, counters.unreadable) == (ROWS, 1, 0)


@pytest.mark.slow
def test_a_row_that_is_asked_for_often_is_read_once(lake: Lake) -> None:
    few = lake.pointers.take(list(range(0, ROWS, 100)))
    _, once = lake.fetched(few)
    places = [i for i in range(few.num_rows) for _ in range(30)]
    table, often = lake.fetched(few.take(places))
    assert rows_in(table) == [lake.expected()[100 * i] for i in places]
    assert often.source_bytes <= once.source_bytes  # the metadata is in memory


def test_what_is_handed_on_is_bounded_by_bytes_and_not_by_rows(lake: Lake) -> None:
    lake.fetched(lake.pointers, chunk=ROWS)
    most = max(batch.nbytes for batch in lake.batches)
    assert most <= 1.2 * row_reader.OUT_BYTES
    assert len(lake.batches) <= 4 * sum(batch.nbytes for batch in lake.batches) / row_reader.OUT_BYTES


@pytest.mark.slow
def test_of_a_damaged_file_the_sound_rows_come_and_the_others_say_why(lake: Lake) -> None:
    data = bytearray(lake.path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(byte ^ 0xFF for byte in data[middle : middle + 40])
    forge(lake.path, bytes(data))
    with pytest.raises((DamagedSource, StalePointer)):
        lake.fetched(lake.pointers)
    table, counters = lake.fetched(lake.pointers, report=True)
    assert table["n"].to_pylist() == list(range(ROWS))
    sound = [row[:3] for row in rows_in(table) if row[3] is None]
    assert sound == [row for row in lake.expected() if row[0] in {n for n, *_ in sound}]
    lost = [row for row in rows_in(table) if row[3] is not None]
    assert 0 < len(lost) == counters.unreadable < ROWS / 2
    assert len(sound) + len(lost) == ROWS
    assert all(
        row[1:3] == (None, None) and row[3].startswith(str(lake.path)) and "; pointer (" in row[3] for row in lost
    )


def test_a_value_that_does_not_fit_is_told_of_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, "parquet")
    texts = [b"\xff" if n % 10 == 0 else b"abc" for n in range(91)]  # the first one, and the last
    table = pa.table({"id": range(91), "text": pa.array(texts, pa.binary())})
    pq.write_table(table, lake.path)
    shutil.rmtree(tmp_path / "index")
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    index = open_index(lake.location)
    spec = replace(index.spec, options=(("declared", "id bigint, text string"),))
    view = replace(index.view, snapshot=replace(index.view.snapshot, spec=spec))
    monkeypatch.setattr(fetch, "open_in_worker", lambda at: OpenIndex(storage_at(lake.location), view, pinned=True))
    counters = FetchCounters()
    fields = [StructField("n", LongType()), StructField("text", StringType()), StructField(ERROR, StringType())]
    spec = FetchSpec(PointedFiles.of_index(index, []), ["n"], ["text"], StructType(fields), True)
    batches = fetch._fetch(spec)(iter(lake.pointers.slice(0, 91).to_batches()), counters)
    found = rows_in(pa.Table.from_batches(batches))
    assert [(n, text) for n, text, _ in found] == [(n, "abc" if n % 10 else None) for n in range(91)]
    assert [n for n, _, error in found if error is not None] == list(range(0, 91, 10))
    assert all("does not fit the declared type" in error for _, _, error in found if error is not None)


@pytest.mark.parametrize("gone", [True, False])
def test_rows_of_a_file_that_is_another_one_now_are_all_told(lake: Lake, gone: bool) -> None:
    lake.path.unlink()
    if not gone:
        lake.path.write_bytes(lake.case.write(lake.rows[:50]))
    with pytest.raises(StalePointer):
        lake.fetched(lake.pointers)
    table, counters = lake.fetched(lake.pointers, report=True)
    assert counters.unreadable == table.num_rows == ROWS
    why = "the file is gone since it was indexed" if gone else "the file changed since it was indexed"
    assert all(text.startswith(f"{lake.path}: {why}") for text in table[ERROR].to_pylist())


def test_an_index_made_anew_in_the_same_place_is_not_the_one_that_a_worker_has_open(tmp_path: Path) -> None:
    for _ in range(2):
        lake = Lake(tmp_path, "parquet")
        assert open_index(lake.location).view.snapshot.number == 1
        table, _ = lake.fetched(lake.pointers.slice(0, 10))
        assert rows_in(table) == lake.expected()[:10]
        shutil.rmtree(tmp_path / "index")


def test_every_format_says_whether_its_pointers_count_rows() -> None:
    assert {name for name, format in FORMATS.items() if format.by_ordinal} == {"parquet", "orc"}


MEMORY = """
import sys
from pathlib import Path
from tests.indexer.join.test_fetch import large_rows_fetched
print(large_rows_fetched(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


def large_rows_fetched(folder: Path, row_bytes: int, rows: int) -> int:
    """Load all rows of a file with large rows. Returns by how many bytes the peak memory of this process grew."""
    (folder / "source").mkdir()
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(folder / "source/a", schema, compression="none", write_batch_size=1) as writer:
        for n in range(rows):
            writer.write_table(pa.table([[n], [f"{n:09}" * (row_bytes // 9)]], schema=schema))
    index_source(folder / "source", folder / "index", ["id"])
    lake = Lake.__new__(Lake)
    lake.case, lake.columns, lake.location = CASES["parquet"], ["id", "text"], str(folder / "index")
    columns = [pa.array(range(rows)), pa.array(range(rows)), pa.array([0] * rows), pa.array([row_bytes] * rows)]
    names = ["__gnomon_key_0", OFFSET, SUB_OFFSET, SIZE, FILE, "n"]
    pointers = pa.table([*columns, pa.array(["a"] * rows), pa.array(range(rows))], names=names)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = 0
    for batch in lake.answer(pointers, chunk=rows):
        assert batch.nbytes < 2 * max(row_bytes, row_reader.OUT_BYTES)
        assert batch["text"][0].as_py()[:9] == f"{batch['id'][0].as_py():09}"
        seen += batch.num_rows
    assert seen == rows
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@pytest.mark.process
@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(1_000_000, 300), pytest.param(10_000_000, 100, marks=pytest.mark.nightly)],
    ids=["1 MB", "10 MB"],
)
def test_memory_is_bounded_whatever_the_rows_weigh(tmp_path: Path, row_bytes: int, rows: int) -> None:
    """The rows have 300 MB, or 1 GB. The load runs in a separate process, like a worker."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path), str(row_bytes), str(rows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 230_000_000

"""jobs/build/engine.py: builds by several processes give the index that one process gives, and end as one does."""

import csv
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import gnomon.jobs.files.source_files as files_module
from gnomon.jobs import Progress, Step
from gnomon.jobs.build import BuildRequest, BuildResult, LocalEngine, build, build_index, engine
from gnomon.shadow.errors import SourceError, WorkerLost
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from gnomon.shadow.write import workers as workers_module
from gnomon.shadow.write.entry_sorter import FOLDER
from gnomon.shadow.write.workers import cores
from tests.golden.tables import TABLES
from tests.opened import open_index

pytestmark = pytest.mark.process
job = importlib.import_module("gnomon.jobs.build.job")  # in the package, `build` is the function
ROOT = Path(__file__).parents[3]
SEGMENT = "20260101T000000-000000000000"
NOT_COMPARED = ("_shadow/snapshots", "_shadow/spec.json", "_shadow/segments", "_shadow/probe")  # times and commit ids


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, in which none is left at the end, and no process runs on."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = children()
    yield folder
    assert list(folder.glob(f"{FOLDER}*")) == []
    assert children() == before


def children() -> set[int]:
    """The worker processes of this one."""
    found = {int(one) for path in Path("/proc/self/task").glob("*/children") for one in path.read_text().split()}
    return {one for one in found if workers_module.PROGRAM in Path(f"/proc/{one}/cmdline").read_text()}


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that builds one source by one process and by two, and compares."""
    monkeypatch.setattr(job, "new_segment_id", lambda: SEGMENT)

    def compare(request: BuildRequest, source: str = "", memory: int = 1 << 30) -> BuildResult:
        source = source or str(tmp_path / "source")
        [one, two] = [
            build_index(LocalEngine(memory, processes=n), source, str(tmp_path / f"by-{n}"), request) for n in (1, 2)
        ]
        expected, found = (data_files(tmp_path / f"by-{n}") for n in (1, 2))
        assert list(found) == list(expected)
        assert [name for name in expected if found[name] != expected[name]] == []
        assert two.rows_indexed == one.rows_indexed > 0
        [[by_one], [by_two]] = [open_index(tmp_path / f"by-{n}").view.segments for n in (1, 2)]
        assert (by_two.index_files, by_two.source_files) == (by_one.index_files, by_one.source_files)
        return two

    return compare


def data_files(index: Path) -> dict[str, bytes]:
    """The index files, Bloom filters and masks of an index."""
    files = {str(path.relative_to(index)): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()}
    return {name: data for name, data in files.items() if not name.startswith(NOT_COMPARED)}


def write(path: Path, seed: int, rows: int) -> None:
    """Rows with keys that are in other files, too."""
    random, number = np.random.default_rng(seed), np.arange(rows) + seed * rows
    keys = pa.array([None if n % 11 == 0 else f"https://a.example/{n}é" for n in random.integers(0, 5000, rows)])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": keys, "n": number}), path, row_group_size=max(rows // 5, 1))


def test_many_files_in_partitions_give_the_same_index(both: Any, tmp_path: Path) -> None:
    for i in range(30):
        write(tmp_path / f"source/dt={i % 4}/{i}.parquet", i, 1 + 40 * i)
    both(BuildRequest(["k"], ["n"], buckets=3))


@pytest.mark.parametrize("order", ["hash", "range"])
def test_ranges_of_one_big_file_give_the_same_index(
    both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(files_module, "LEAST_SPLIT", 1000)
    write(tmp_path / "source/a.parquet", 1, 30_000)
    both(BuildRequest(["k"], ["n"], buckets=4, order=order))


def text_rows(rows: int) -> Sequence[tuple[int, str]]:
    return [(i % 700, f'é line {i}, of "{i % 5}"' * (1 + i % 3)) for i in range(rows)]


def write_csv(path: Path) -> None:
    with path.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *text_rows(20_000), (1, "a", "ragged"), (2,)])


def write_jsonl(path: Path) -> None:
    lines = (json.dumps({"id": i, "text": text}) + "\n" for i, text in text_rows(20_000))
    path.with_suffix(".jsonl").write_text("".join(lines))


def write_orc(path: Path) -> None:
    ids, texts = zip(*text_rows(20_000), strict=True)
    orc.write_table(pa.table({"id": ids, "text": texts}), path, stripe_size=4096, batch_size=64)


@pytest.mark.parametrize("write_file", [write_csv, write_jsonl, write_orc])
def test_ranges_of_a_file_of_any_format_give_the_same_index_and_counts(
    both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_file: Any
) -> None:
    monkeypatch.setattr(files_module, "LEAST_SPLIT", 50_000)
    (tmp_path / "source").mkdir()
    write_file(tmp_path / "source/a")
    made = both(BuildRequest(["text"], ["id"], buckets=2))
    assert (made.rows_indexed, made.ragged_rows) == ((20_002, 2) if write_file is write_csv else (20_000, 0))


@pytest.mark.parametrize("name", ["delta_vectors", "iceberg_position_deletes"])
def test_a_table_with_deleted_rows_gives_the_same_index(both: Any, tmp_path: Path, name: str) -> None:
    [table] = [one for one in TABLES if one.name == name]
    version = next(one for one in reversed(table.versions) if not one.gone)
    source = f"iceberg:{version.metadata}" if version.metadata else f"delta:{table.path}"
    as_of = None if version.metadata else str(version.version)
    both(BuildRequest(version.key, table_version=as_of), source)
    assert verify(storage_at(str(tmp_path / "by-2")), None).is_sound


def test_entries_beyond_the_memory_give_the_same_index(both: Any, tmp_path: Path) -> None:
    for i in range(45):  # with 135 index files: two of them share a temporary file
        write(tmp_path / f"source/dt={i}/a.parquet", i, 2000)
    both(BuildRequest(["k"], ["n"], buckets=3, flat=False), memory=5 << 16)


def test_a_bucket_beyond_the_memory_is_built_as_in_any_memory(both: Any, tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 1, 20_000)
    both(BuildRequest(["k"], ["n"]), memory=1 << 20)
    files = data_files(tmp_path / "by-1")
    for n in (1, 2):
        shutil.rmtree(tmp_path / f"by-{n}")
    both(BuildRequest(["k"], ["n"]))
    assert data_files(tmp_path / "by-1") == files


def test_the_first_damaged_file_is_the_error_and_nothing_is_committed(tmp_path: Path) -> None:
    for i in range(12):
        write(tmp_path / f"source/{i:02d}.parquet", i, 5000)
    for name in ("11", "05", "06"):
        path = tmp_path / f"source/{name}.parquet"
        data = bytearray(path.read_bytes())
        data[200:400] = bytes(200)
        path.write_bytes(data)
    errors = []
    for n in (1, 2):
        with pytest.raises(SourceError, match=r"05\.parquet") as caught:
            build_index(LocalEngine(processes=n), str(tmp_path / "source"), str(tmp_path / "i"), BuildRequest(["k"]))
        errors.append(caught.value.to_json())
    assert errors[0] == errors[1]
    assert not list((tmp_path / "i").rglob("*.json"))


def test_each_scanned_file_is_a_step(tmp_path: Path) -> None:
    for i in range(9):
        write(tmp_path / f"source/{i}.parquet", i, 100)
    steps: list[Step] = []
    build_index(
        LocalEngine(processes=2), str(tmp_path / "source"), str(tmp_path / "i"), BuildRequest(["k"]), steps.append
    )
    written = [step for step in steps if step.stage == "write"]
    assert written == [Step("write", done, 9, "files", 900) for done in range(10)]


def build_with(tmp_path: Path, at_first_step: Any) -> None:
    for i in range(20):
        write(tmp_path / f"source/{i}.parquet", i, 1000)

    def progress(step: Step) -> None:
        if step.stage == "write" and step.done == 1:
            at_first_step()

    told: Progress = progress
    build_index(LocalEngine(processes=2), str(tmp_path / "source"), str(tmp_path / "i"), BuildRequest(["k"]), told)


def test_a_killed_process_is_one_clear_line(tmp_path: Path) -> None:
    before = children()

    def kill() -> None:
        for process in children() - before:
            os.kill(process, signal.SIGKILL)

    with pytest.raises(WorkerLost, match=r"\(SIGKILL\); if the system killed it, memory ran out; nothing was commit"):
        build_with(tmp_path, kill)
    assert not list((tmp_path / "i").rglob("*.json"))


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build_with(tmp_path, interrupt)


# It has no `if __name__ == "__main__"`.
PROGRAM = """
import sys
from gnomon.jobs.build import BuildRequest, LocalEngine, build_index

def wait(step):
    if step.stage == "write" and step.done == 1 and sys.argv[3] == "wait":
        print("begun", flush=True)
        sys.stdin.read()

request = BuildRequest(["k"])
print(build_index(LocalEngine(processes=2), sys.argv[1], sys.argv[2], request, wait).rows_indexed, flush=True)
"""


def test_a_program_without_a_guard_of_its_main_module_builds(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 1, 500)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(tmp_path / "source"), str(tmp_path / "i"), "go"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("500\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_program_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    for i in range(20):
        write(tmp_path / f"source/{i}.parquet", i, 1000)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "source"), str(tmp_path / "i"), "wait"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert len(of_session(process.pid)) == 3
        assert len(list(tmp_path.glob(f"{FOLDER}*"))) == 1
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.kill()
        _, errors = process.communicate()
    until = time.monotonic() + 10
    while of_session(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert of_session(process.pid) == []
    assert errors.count("Traceback") == (1 if number == signal.SIGINT else 0)
    assert list(tmp_path.glob(f"{FOLDER}*")) == []


def of_session(session: int) -> list[int]:
    """The processes of a session that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def test_a_daemon_process_builds_with_others(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 1, 500)
    daemon = get_context("spawn").Process(
        target=_build, args=(str(tmp_path / "source"), str(tmp_path / "i")), daemon=True
    )
    daemon.start()
    daemon.join()
    assert daemon.exitcode == 0
    assert open_index(tmp_path / "i").view.snapshot.number == 1


def _build(source: str, index: str) -> None:
    build_index(LocalEngine(processes=2), source, index, BuildRequest(["k"]))


def test_processes_read_and_write_a_store(s3_root: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 1, 500)
    storage_at(f"{s3_root}/source").put_new("a.parquet", [(tmp_path / "a.parquet").read_bytes()])
    _build(f"{s3_root}/source", f"{s3_root}/index")
    assert verify(storage_at(f"{s3_root}/index"), None).is_sound


def test_small_builds_and_stores_in_memory_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    write(tmp_path / "source/a.parquet", 1, 500)
    build(None, tmp_path / "source", tmp_path / "i", ["k"])
    monkeypatch.setattr(engine, "WORTH_ROWS", 1)
    monkeypatch.setattr(workers_module, "cores", lambda: 2)
    build(None, tmp_path / "source", "memory://of-this-test/i", ["k"])
    with pytest.raises(AssertionError, match="a process was started"):
        build(None, tmp_path / "source", tmp_path / "j", ["k"])


@pytest.mark.parametrize("fault", ["not started", "not pickled", "ends at its start", "no temporary folder"])
def test_one_process_builds_where_others_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    write(tmp_path / "source/a.parquet", 1, 500)
    if fault == "not started":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    elif fault == "not pickled":
        monkeypatch.setattr(engine, "partial", lambda function, *given: lambda *more: function(*given, *more))
    elif fault == "ends at its start":
        monkeypatch.setattr(workers_module, "PROGRAM", "raise SystemExit(1)")
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    _build(str(tmp_path / "source"), str(tmp_path / "i"))
    assert open_index(tmp_path / "i").fetch("none") == []


def test_there_are_as_many_processes_as_the_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "cores", lambda: 8)
    for room, expected in ((0, 1), (3, 3), (20, 8)):
        available = 1000 + room * workers_module.PROCESS_BYTES
        monkeypatch.setattr(workers_module, "_available_memory", lambda available=available: available)
        assert workers_module.processes_for(1000) == expected


def test_a_worker_does_without_pandas_also_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    task = "__import__('pyarrow').array([1]).to_pylist() + ['pandas' in __import__('sys').modules]"
    with workers_module.Workers[str, object](2, eval, str(tmp_path / "none")) as workers:
        assert [found for _, found in workers.run([task])] == [1, False]


def test_cores_are_those_that_the_control_group_allows(tmp_path: Path) -> None:
    all_cores = len(os.sched_getaffinity(0))
    assert cores(tmp_path) == all_cores
    for text, expected in (("150000 100000\n", min(2, all_cores)), ("50000 100000\n", 1), ("max 100000\n", all_cores)):
        (tmp_path / "cpu.max").write_text(text)
        assert cores(tmp_path) == expected

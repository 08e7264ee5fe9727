"""The fuzzer's finds stay fixed, its first cases pass, and it detects faults of a reader; `nightly` runs it for
minutes."""

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from gnomon.sources import StalePointer
from gnomon.sources.registry import FORMATS
from gnomon.sources.text.text_file import TextFile
from tests.sources.fuzz import FINDS, SEEDS, Case, Judge, Limits, Report, attempt, kept, kept_case, make_case, run
from tests.sources.readers import BytesReader

pytestmark = pytest.mark.process


CASES = 150  # of each format
TIGHT = Limits(cpu_seconds=1)
IMPATIENT = Limits(wall_seconds=2)

Fetch = Callable[..., pa.Table]
Pointers = Sequence[tuple[int, int]]


def try_again(folder: Path, judge: Judge = attempt) -> Report:
    paths = kept(folder)
    return run(partial(kept_case, paths), cases=len(paths), judge=judge)


def test_finds_are_answered_right_or_refused() -> None:
    report = try_again(FINDS)
    assert report.finds == []
    assert report.outcomes.total() == len(kept(FINDS)) > 0


@pytest.mark.parametrize("format", SEEDS)
def test_the_first_cases_of_a_format_are_answered_right_or_refused(format: str) -> None:
    report = run(partial(make_case, format, 1), cases=CASES)
    assert report.finds == []
    assert report.outcomes.total() == CASES
    assert set(report.outcomes) == {"rows", "error"}


def test_every_format_has_sound_files() -> None:
    assert set(SEEDS) == set(FORMATS)


def test_a_case_is_the_same_each_time_it_is_made() -> None:
    assert [make_case("avro", 5, i) for i in range(50)] == [make_case("avro", 5, i) for i in range(50)]


def other_row(fetch: Fetch, reader: BytesReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
    return fetch(reader, [(reader.data.index(b"2|b"), 0)] * len(pointers), columns)


def row_too_many(fetch: Fetch, reader: BytesReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
    return fetch(reader, [*pointers, *pointers], columns)


def lose(fetch: Fetch, reader: BytesReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
    raise StalePointer("no record begins there", reader.name)


def fail(*_: object) -> pa.Table:
    raise IndexError("list index out of range")


def spin(*_: object) -> pa.Table:
    while True:
        pass


def wait(*_: object) -> pa.Table:
    time.sleep(3600)
    raise AssertionError


def grow(*_: object) -> pa.Table:
    return pa.table({"id": [pa.allocate_buffer(1 << 30) for _ in range(100)]})


def die(*_: object) -> pa.Table:
    os.abort()


FAULTS: dict[Callable[..., pa.Table], str] = {
    other_row: r"AssertionError: row at .* is another one when it is fetched",
    row_too_many: r"AssertionError: row at .* is another one when it is fetched",
    lose: r"AssertionError: row at .* was scanned and cannot be fetched",
    fail: r"IndexError: list index out of range",
    spin: r"more than 1 s of the processor",
    grow: r"ArrowMemoryError: .*",
    die: rf"the process died: -{signal.SIGABRT.value}",
}


def faulty_case(number: int) -> Case:
    """A sound file with the name of the reader's fault; no fault after the last one."""
    return file_for([*(fault.__name__ for fault in FAULTS), "none"][number])


def waiting_case(number: int) -> Case:
    return file_for(wait.__name__)


def file_for(fault: str) -> Case:
    return Case("csv", f"id|name\n1|{fault}\n2|b\n".encode(), {"delimiter": "|"})


def faulty(case: Case) -> str:
    """`attempt` with a reader of text that has the fault."""
    fetch = TextFile.fetch
    fault = {fault.__name__.encode(): fault for fault in (*FAULTS, wait)}.get(case.data.split(b"|")[2].split()[0])
    if fault is None:
        return attempt(case)
    with patch.object(TextFile, "fetch", lambda self, *asked: fault(partial(fetch, self), *asked)):
        return attempt(case)


def test_every_fault_is_found_and_kept_and_the_run_goes_on(tmp_path: Path) -> None:
    report = run(faulty_case, cases=len(FAULTS) + 1, keep=tmp_path, judge=faulty, limits=TIGHT)
    assert report.outcomes == {"find": len(FAULTS), "rows": 1}
    for number, (message, find) in enumerate(zip(FAULTS.values(), report.finds, strict=True)):
        assert re.fullmatch(rf"csv-[0-9a-f]{{8}}: case {number}: {message}", find)
    places = {path.name: number for number, path in enumerate(kept(tmp_path))}
    for number, find in enumerate(report.finds):
        assert kept_case(kept(tmp_path), places[find.split(":")[0]]) == faulty_case(number)


def test_a_reader_that_waits_is_found() -> None:
    (find,) = run(waiting_case, cases=1, judge=faulty, limits=IMPATIENT).finds
    assert find.endswith(": case 0: no answer within 2 s")


def test_a_kept_find_is_reported_until_it_is_mended(tmp_path: Path) -> None:
    run(faulty_case, cases=1, keep=tmp_path, judge=faulty)
    (find,) = try_again(tmp_path, faulty).finds
    assert find.endswith("is another one when it is fetched")
    assert try_again(tmp_path).outcomes == {"rows": 1}


@pytest.mark.nightly
@pytest.mark.parametrize("format", SEEDS)
def test_ten_minutes_find_nothing(format: str) -> None:
    report = run(partial(make_case, format, int(os.environ.get("FUZZ_SEED", "1"))), seconds=600, keep=FINDS)
    assert report.finds == []
    assert set(report.outcomes) == {"rows", "error"}

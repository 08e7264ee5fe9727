"""A mutation fuzzer of data files: python -m tests.sources.fuzz --format avro --minutes 10 --seed 1

A case is a sound file with some bits, bytes, cuts or splices changed. The fuzzer opens and scans it, and fetches its
rows by their pointers. A case is a find unless it ends with rows or a SourceError that names the file: another
exception, a fetch with another row than the scan, too much memory or time, a dead process. Case i of seed n is the same
as long as the sound files are. Finds are stored in tests/golden/fuzz_sources; test_fuzz.py tries them again.
"""

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import SourceError, open_source
from gnomon.sources.pointers import OFFSET, SUB_OFFSET
from tests.sources import orc_files, parquet_files
from tests.sources.avro_files import avro_seeds
from tests.sources.readers import BytesReader
from tests.sources.sequence_files import sequence_seeds
from tests.sources.text_seeds import csv_seeds, jsonl_seeds

FINDS = Path(__file__).parents[1] / "golden" / "fuzz_sources"
OPTIONS = ".options"  # the suffix of the file with a find's options
NAME = "fuzz/case"
ROWS_FETCHED = 40  # of a case
CASES_PER_PROCESS = 2000
START_SECONDS = 600.0  # until such a process must have started

Seeds = Callable[[], list[tuple[bytes, Mapping[str, str]]]]
# Each format with its sound files and their options.
SEEDS: dict[str, Seeds] = {
    "parquet": parquet_files.seeds,
    "avro": avro_seeds,
    "orc": lambda: [(data, {}) for data in orc_files.seeds()],
    "sequence": sequence_seeds,
    "csv": csv_seeds,
    "jsonl": jsonl_seeds,
}
LAX_SCANS = ("parquet",)  # formats whose fetch finds damage that the scan, with another decoder, does not notice


class Case(NamedTuple):
    """A file and its options."""

    format: str
    data: bytes
    options: Mapping[str, str]


class Limits(NamedTuple):
    """The limits of a case."""

    cpu_seconds: float = 10  # of all threads: the machine may be busy with other work
    wall_seconds: float = 600  # for a case that hangs without using the processor
    memory_bytes: int = 4 << 30  # of the address space of the process


class Report(NamedTuple):
    """The number of cases of each result ("rows", "error", "find"), and a description of each find."""

    outcomes: Counter[str]
    finds: list[str]


Judge = Callable[[Case], str]


def mutate(rnd: Random, data: bytes, other: bytes) -> bytes:
    """The file with one to four changes; `other` is a file for splices."""
    changed = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        if not changed:
            break
        at = rnd.randrange(len(changed))
        kind = rnd.randrange(8)
        if kind == 0:
            changed[at] ^= 1 << rnd.randrange(8)
        elif kind == 1:
            changed[at] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        elif kind == 2:
            changed[at : at + rnd.randrange(1, 9)] = rnd.randbytes(rnd.randrange(9))
        elif kind == 3:
            del changed[at : at + rnd.randrange(1, 65)]
        elif kind == 4:
            changed[at:at] = changed[at : at + rnd.randrange(1, 65)]
        elif kind == 5:
            del changed[at:]
        elif kind == 6:
            begin = rnd.randrange(len(other) or 1)
            changed[at : at + 64] = other[begin : begin + rnd.randrange(1, 129)]
        else:
            changed[at : at + 4] = rnd.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"))
    return bytes(changed)


def make_case(format: str, seed: int, number: int) -> Case:
    """Case `number` of a run."""
    rnd = Random(f"{seed}:{number}")
    seeds = SEEDS[format]()
    data, options = rnd.choice(seeds)
    return Case(format, mutate(rnd, data, rnd.choice(seeds)[0]), options)


def attempt(case: Case) -> str:
    """Read a file. Returns the result, "rows" or "error". AssertionError, or any other, is a find."""
    reader = BytesReader(case.data, NAME)
    try:
        source = open_source(reader, case.format, case.options)
        names = list(dict.fromkeys(source.schema.names))
        scanned: list[tuple[tuple[int, int], tuple[object, ...]]] = []
        for batch in source.scan(reader, names):
            rows = _rows(pa.Table.from_batches([batch]).select(range(len(names))).slice(0, ROWS_FETCHED))
            pointers = zip(batch[OFFSET].to_pylist(), batch[SUB_OFFSET].to_pylist(), strict=True)
            scanned += list(zip(pointers, rows, strict=False))
    except SourceError as error:
        return _refused(error)
    for pointer, row in Random(len(case.data)).sample(scanned, min(len(scanned), ROWS_FETCHED)):
        try:
            fetched = source.fetch(reader, [pointer], names)
        except SourceError as error:
            if case.format in LAX_SCANS:
                return _refused(error)
            raise AssertionError(f"row at {pointer} was scanned and cannot be fetched") from None
        assert repr(_rows(fetched)) == repr([row]), f"row at {pointer} is another one when it is fetched"
    return "rows"


def _refused(error: SourceError) -> str:
    assert error.path == NAME, f"the error does not name the file: {error}"
    return "error"


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows as values; a text that is not UTF-8 as its bytes."""
    return list(zip(*map(python_values, table.columns), strict=True))


def _worker(make: Callable[[int], Case], judge: Judge, limits: Limits, numbers: range, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    for number in numbers:
        pipe.send(("begins", number))
        case = make(number)
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)  # its signal ends the process
        try:
            pipe.send(("ends", judge(case)))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is a find
            pipe.send(("find", f"{type(error).__name__}: {error}"[:300]))
        signal.setitimer(signal.ITIMER_PROF, 0)
    pipe.send(("done", None))


def run(
    make: Callable[[int], Case],
    cases: int = sys.maxsize,
    seconds: float = float("inf"),
    keep: Path | None = None,
    judge: Judge = attempt,
    limits: Limits = Limits(),  # noqa: B008  immutable
) -> Report:
    """Try cases 0, 1, 2 ... up to a number or a time limit, in a process that may die. Finds are written into the
    folder `keep`. `make` and `judge` run in that process, and must be functions of a module."""
    report = Report(Counter(), [])
    end, number = time.monotonic() + seconds, 0
    while number < cases and time.monotonic() < end:
        number = _some(make, judge, limits, range(number, min(cases, number + CASES_PER_PROCESS)), end, keep, report)
    return report


def _some(
    make: Callable[[int], Case],
    judge: Judge,
    limits: Limits,
    numbers: range,
    end: float,
    keep: Path | None,
    report: Report,
) -> int:
    """Try cases in one process, until all are done, one ends the process, or the time is over. Returns the next
    number."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_worker, args=(make, judge, limits, numbers, theirs))
    child.start()
    theirs.close()
    number, patience = numbers.start, START_SECONDS
    try:
        while time.monotonic() < end:
            if not ours.poll(min(patience, max(end - time.monotonic(), 0))):
                if time.monotonic() < end:
                    _found(make, number, f"no answer within {patience:g} s", keep, report)
                return number + 1
            patience = limits.wall_seconds
            what, value = ours.recv()
            if what == "begins":
                number = value
            elif what == "ends":
                report.outcomes[value] += 1
            elif what == "find":
                _found(make, number, value, keep, report)
            else:
                return numbers.stop
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGPROF
        died = f"more than {limits.cpu_seconds:g} s of the processor" if late else f"the process died: {child.exitcode}"
        _found(make, number, died, keep, report)
    finally:
        child.kill()
        child.join()
    return number + 1


def _found(make: Callable[[int], Case], number: int, what: str, keep: Path | None, report: Report) -> None:
    case = make(number)
    name = f"{case.format}-{zlib.crc32(case.data):08x}"
    report.outcomes["find"] += 1
    report.finds.append(f"{name}: case {number}: {what}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / name).write_bytes(case.data)
        if case.options:
            (keep / (name + OPTIONS)).write_text(json.dumps(case.options) + "\n")


def kept(folder: Path) -> list[Path]:
    """The finds in a folder."""
    return sorted(path for path in folder.iterdir() if path.suffix != OPTIONS)


def kept_case(paths: Sequence[Path], number: int) -> Case:
    """The case of a find."""
    path = paths[number]
    options = path.with_name(path.name + OPTIONS)
    return Case(path.name.split("-")[0], path.read_bytes(), json.loads(options.read_text()) if options.exists() else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", required=True, choices=sorted(SEEDS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=os.getpid())
    asked = parser.parse_args()
    report = run(partial(make_case, asked.format, asked.seed), seconds=asked.minutes * 60, keep=FINDS)
    print(f"{asked.format}, seed {asked.seed}: {report.outcomes.total():,} cases: {dict(report.outcomes)}")
    for find in report.finds:
        print(find)
    return 1 if report.finds else 0


if __name__ == "__main__":
    sys.exit(main())

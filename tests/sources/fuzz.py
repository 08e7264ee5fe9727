"""A mutation fuzzer of data files: python -m tests.sources.fuzz --format avro --minutes 10 --seed 1

A case is a sound file with some bits, bytes, cuts or splices changed. It is opened, scanned, its rows are fetched by
their pointers. A case is a find when anything happens but rows or a SourceError: another exception, a fetch that does
not give the row that the scan gave, more memory or time than is fair, a dead process. Case i of seed n is always the
same. Finds are kept in tests/golden/fuzz_sources; test_fuzz.py tries them again.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pyarrow as pa

from shadow.values import python_values
from sources import SourceError, open_source
from sources.pointer import OFFSET, SUB_OFFSET
from tests.sources import orc_files, parquet_files
from tests.sources.avro_files import avro_seeds
from tests.sources.readers import BytesReader
from tests.sources.sequence_files import sequence_seeds
from tests.sources.text_seeds import csv_seeds, jsonl_seeds

FINDS = Path(__file__).parents[1] / "golden" / "fuzz_sources"
CASE_SECONDS = 10  # of the processor: this machine may be busy with other things
MEMORY_BYTES = 4 << 30  # of the process
ROWS_FETCHED = 40  # of a case
CASES_PER_PROCESS = 2000

Seeds = Callable[[], list[tuple[bytes, Mapping[str, str]]]]
# Format to its sound files, with the options they are opened with: a line a format.
SEEDS: dict[str, Seeds] = {
    "parquet": parquet_files.seeds,
    "avro": avro_seeds,
    "orc": lambda: [(data, {}) for data in orc_files.seeds()],
    "sequence": sequence_seeds,
    "csv": csv_seeds,
    "jsonl": jsonl_seeds,
}
LAX_SCANS = ("parquet",)  # formats whose fetch finds damage that the scan, another decoder's, reads over


def mutate(rnd: Random, data: bytes, other: bytes) -> bytes:
    """The file with one to four changes; `other` is one to splice with."""
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


def case(format: str, seed: int, number: int) -> tuple[bytes, Mapping[str, str]]:
    """Case `number` of a run."""
    rnd = Random(f"{seed}:{number}")
    seeds = SEEDS[format]()
    data, options = rnd.choice(seeds)
    return mutate(rnd, data, rnd.choice(seeds)[0]), options


def attempt(format: str, data: bytes, options: Mapping[str, str]) -> str:
    """Read a file; what came of it: "rows" or "error". AssertionError, or any other, is a find."""
    reader = BytesReader(data, "fuzz/case")
    try:
        source = open_source(reader, format, options)
        names = list(dict.fromkeys(source.schema.names))
        scanned: list[tuple[tuple[int, int], tuple[object, ...]]] = []
        for batch in source.scan(reader, names):
            rows = _rows(pa.Table.from_batches([batch]).select(range(len(names))).slice(0, ROWS_FETCHED))
            pointers = zip(batch[OFFSET].to_pylist(), batch[SUB_OFFSET].to_pylist(), strict=True)
            scanned += list(zip(pointers, rows, strict=False))
    except SourceError:
        return "error"
    for pointer, row in Random(len(data)).sample(scanned, min(len(scanned), ROWS_FETCHED)):
        try:
            fetched = source.fetch(reader, [pointer], names)
        except SourceError:
            if format in LAX_SCANS:
                return "error"
            raise AssertionError(f"row at {pointer} was scanned and cannot be fetched") from None
        assert repr(_rows(fetched)) == repr([row]), f"row at {pointer} is another one when it is fetched"
    return "rows"


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows as values; a text that is not UTF-8 as its bytes."""
    return list(zip(*map(python_values, table.columns), strict=True))


def _worker(format: str, seed: int, first: int, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for number in range(first, first + CASES_PER_PROCESS):
        pipe.send(("begins", number))
        signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
        try:
            pipe.send(("ends", attempt(format, *case(format, seed, number))))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is a find
            pipe.send(("find", f"{type(error).__name__}: {error}"[:300]))
        signal.setitimer(signal.ITIMER_PROF, 0)
    pipe.send(("done", None))


def run(format: str, seed: int, seconds: float) -> tuple[Counter[str], list[str]]:
    """Try cases for so long, each process some thousands of them; the outcomes, and what was found."""
    outcomes: Counter[str] = Counter()
    finds: list[str] = []
    end, number = time.monotonic() + seconds, 0
    context = multiprocessing.get_context("spawn")
    while time.monotonic() < end:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_worker, args=(format, seed, number, theirs))
        child.start()
        theirs.close()
        try:
            while time.monotonic() < end:
                what, value = ours.recv()
                if what == "done":
                    break
                if what == "begins":
                    number = value
                    continue
                if what == "find":
                    finds.append(_keep(format, seed, number, value))
                outcomes[value if what == "ends" else "find"] += 1
            number += 1
        except EOFError:  # the process died
            child.join()
            finds.append(_keep(format, seed, number, f"the process died: {child.exitcode}"))
            outcomes["find"] += 1
            number += 1
        finally:
            child.kill()
            child.join()
    return outcomes, finds


def _keep(format: str, seed: int, number: int, what: str) -> str:
    data, _ = case(format, seed, number)
    FINDS.mkdir(parents=True, exist_ok=True)
    path = FINDS / f"{format}-{zlib.crc32(data):08x}"
    path.write_bytes(data)
    return f"{path.name}: case {number} of seed {seed}: {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", required=True, choices=sorted(SEEDS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=os.getpid())
    asked = parser.parse_args()
    outcomes, finds = run(asked.format, asked.seed, asked.minutes * 60)
    print(f"{asked.format}, seed {asked.seed}: {outcomes.total():,} cases: {dict(outcomes)}")
    for find in finds:
        print(find)
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())

"""A mutation fuzzer of index files: python -m tests.btree.fuzz --minutes 10 --seed 1

A case is a sound file with some mutations: bits, bytes, cuts, blocks, splices of two files; or header values, record
counts and records, with all lengths and checksums corrected. A case is a find unless it ends with an answer or
DamagedIndexFile: another exception, too much memory or time, a crash.

- Raw cases of files with checksums must give the entries of their original file.
- In all others `get` and `check` must agree with `scan`.

Case i of seed n is always the same. Finds are stored in tests/golden/fuzz; test_fuzz.py tries them again.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from gnomon.btree import BTreeReader, DamagedIndexFile
from gnomon.btree.keys import KeyBatch, order_key, stored_array
from tests.btree.files import NAME, Entry, opened
from tests.btree.mutations import SEEDS, Seed, mutate_behind_checksums, mutate_bytes

FINDS = Path(__file__).parents[1] / "golden" / "fuzz"
CASE_SECONDS = 5.0
MEMORY_BYTES = 1 << 30  # beyond the memory of the interpreter and its libraries
ASKED = 5  # keys to look up in a case


class Case(NamedTuple):
    """A damaged file, its original, and whether its checksums were corrected."""

    data: bytes
    origins: list[Seed]
    is_raw: bool

    @property
    def name(self) -> str:
        kind = "raw" if self.is_raw else "behind"
        return f"{kind}-{self.origins[0].name}-{zlib.crc32(self.data):08x}.btree.avro"


class Wrong(Exception):
    """A wrong answer."""


class TooSlow(Exception):
    """A case took more than CASE_SECONDS."""


def make_case(seed: int, number: int) -> Case:
    """Case `number` of a run."""
    rnd = Random(f"{seed}:{number}")
    origin = rnd.choice(SEEDS)
    if rnd.random() < 0.4:
        data, other = mutate_bytes(rnd, origin)
        return Case(data, [origin, *other], is_raw=True)
    return Case(mutate_behind_checksums(rnd, origin), [origin], is_raw=False)


def judge(case: Case) -> bool:
    """Whether the file can be read. Wrong where it is read wrongly."""
    entries = examine(case.data)
    if entries is None:
        return False
    if case.is_raw and all(origin.is_checked for origin in case.origins):
        known = [repr(origin.entries) for origin in case.origins]
        if repr(entries) not in known:
            raise Wrong("other entries than those of the file it was made from")
    return True


def examine(data: bytes) -> list[Entry] | None:
    """The entries of a file; None if it is refused. Wrong where two ways to read it disagree."""
    try:
        tree = opened(data)
        entries = list(tree.scan())
    except DamagedIndexFile as error:
        _check_message(error, data)
        return None
    step = len(entries) // ASKED + 1
    for key, _ in entries[::step]:
        expected = [value for other, value in entries if order_key(other) == order_key(key)]
        found = _answer(data, lambda key=key: tree.get(key))  # type: ignore[misc]
        if found is not None and repr(found) != repr(expected):
            raise Wrong(f"get({key!r}) does not agree with scan")
    _check_batch(tree, entries, data)
    batches = _answer(data, lambda: sum(batch.num_rows for batch in tree.scan_batches()))
    if batches not in (None, len(entries)):
        raise Wrong("the batches of a scan have other rows")
    if _answer(data, tree.check) not in (None, len(entries)):
        raise Wrong("check does not agree with scan")
    return entries


def _check_batch(tree: BTreeReader, entries: list[Entry], data: bytes) -> None:
    """Raise Wrong where a look-up of all keys at once finds another number of entries of a key."""
    counts = Counter(order_key(key) for key, _ in entries)
    keys = list({order_key(key): key for key, _ in entries}.values())
    types = tree.schema.key_types
    wanted = KeyBatch([stored_array([key[i] for key in keys], kind) for i, kind in enumerate(types)], types)
    value = tree.schema.values[0].name
    found = _answer(data, lambda: [key for some in tree.match(wanted.keys, [value]) for key in some.keys.tolist()])
    if found is not None and Counter(found) != Counter(dict(enumerate(counts[key] for key in sorted(counts)))):
        raise Wrong("a batch of all keys does not agree with scan")


def _answer(data: bytes, ask: Any) -> Any:
    try:
        return ask()
    except DamagedIndexFile as error:
        _check_message(error, data)
    return None


def _check_message(error: DamagedIndexFile, data: bytes) -> None:
    if error.path != NAME or not 0 <= error.offset <= len(data):
        raise Wrong(f"an error that names {error.path} at {error.offset}")


# -- a run ---------------------------------------------------------------------------------------------------------


def work(seed: int, start: int, seconds: float, progress: str) -> None:
    """Try cases from `start` on. Prints `find NUMBER why`, and at the end `done NEXT`. `progress` holds the current
    case."""
    examine(SEEDS[0].data)  # so that imports do not count as memory of a case
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, taken + MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _too_slow)
    end, number, read = time.monotonic() + seconds, start, 0
    with open(progress, "r+b", buffering=0) as file:
        while time.monotonic() < end:
            os.pwrite(file.fileno(), b"%20d" % number, 0)
            signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)
            try:
                read += judge(make_case(seed, number))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is a find)
                print("find", number, type(error).__name__, str(error)[:200].replace("\n", " "), flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            number += 1
    print("done", number, read, flush=True)


def _too_slow(_signal: int, _frame: object) -> None:
    raise TooSlow(f"more than {CASE_SECONDS} s")


class Report(NamedTuple):
    """The result of a run."""

    cases: int
    read: int  # cases that were read as sound
    finds: list[str]


def run(seed: int, seconds: float, keep: bool = True) -> Report:
    """Fuzz in a child process, which is restarted after a crash."""
    end, number, read = time.monotonic() + seconds, 0, 0
    finds: list[str] = []
    while (left := end - time.monotonic()) > 0:
        with tempfile.NamedTemporaryFile() as progress:
            command = [sys.executable, "-m", "tests.btree.fuzz", "--seed", str(seed)]
            command += ["--work", str(number), str(left), progress.name]
            child = subprocess.run(command, capture_output=True, text=True, check=False)
            numbers = []
            for line in child.stdout.splitlines():
                kind, at, why = line.split(" ", 2)
                if kind == "find":
                    numbers.append((int(at), why))
                else:
                    number, read = int(at), read + int(why)
            if child.returncode:
                crashed = int(progress.read() or b"0")
                numbers.append((crashed, f"crash {child.returncode} {child.stderr[-300:]}"))
                number = crashed + 1
        for at, why in numbers:
            finds.append(f"{seed}:{at} {make_case(seed, at).name} {why}")
            if keep:
                FINDS.mkdir(exist_ok=True)
                (FINDS / make_case(seed, at).name).write_bytes(make_case(seed, at).data)
    return Report(number, read, finds)


def main() -> int:
    """Run the fuzzer. Returns exit code 1 if it found something."""
    parser = argparse.ArgumentParser(description="Fuzz the reader of index files.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=3, metavar=("START", "SECONDS", "PROGRESS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        start, seconds, progress = arguments.work
        work(arguments.seed, int(start), float(seconds), progress)
        return 0
    report = run(arguments.seed, arguments.minutes * 60)
    print(f"{report.cases} cases, {report.read} of them read, {len(report.finds)} finds")
    print("\n".join(report.finds))
    return 1 if report.finds else 0


if __name__ == "__main__":
    sys.exit(main())

"""Programs that build, append and commit to one Delta or Iceberg table at once: the index never goes back, each key is
appended once, and other readers read the table."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars
import pytest
from pyiceberg.transforms import IdentityTransform

from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new
from gnomon.shadow.errors import ConcurrentCommit, StorageError
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, row, rows
from tests.opened import open_index

SECONDS = 3.0
FOREIGN = 10_000  # the first id of rows that other programs write
OURS = 400  # ids of batches
BATCH = 40


class WentBack(Exception):
    """A snapshot has fewer rows than one before it, though no row was deleted."""


def race_on_a_table(place: Path, chance: random.Random, patch: pytest.MonkeyPatch, tally: Counter[str]) -> list[str]:
    """Let programs race for some seconds. Returns what is wrong in the end."""
    place.mkdir(parents=True)
    parts = chance.choice([[], ["day"], ["day", "part"]])
    lake: DeltaLake | IcebergLake = (
        DeltaLake(place, parts)
        if chance.random() < 0.5
        else IcebergLake(place, patch, {name: IdentityTransform() for name in parts})
    )
    index, end, lock = str(place / "index"), time.monotonic() + SECONDS, threading.Lock()
    build(None, lake.name, index, ["id"], buckets=2)
    foreign = iter(range(FOREIGN, FOREIGN + 10**6, 5))

    def write(_: random.Random) -> None:
        with lock:
            first = next(foreign)
        lake.append(rows(first, first + 5))

    def append(one: random.Random) -> None:
        first = one.randrange(OURS - BATCH)
        append_new(None, index, rows(first, first + BATCH), f"batch {one.getrandbits(60)}")

    doings: dict[str, Callable[[random.Random], Any]] = {
        "table: foreign commits": write,
        "table: appends": append,
        "table: builds": lambda _: build(None, lake.name, index, ["id"]),
        "table: compactions": lambda _: compact(storage_at(index)),
    }

    def work(number: int) -> None:
        one = random.Random(number)
        while time.monotonic() < end:
            [name] = one.choices(list(doings), [2, 3, 4, 1])
            try:
                doings[name](one)
            except (ConcurrentCommit, StorageError) as error:  # others came first; run again
                tally[f"{name}, {type(error).__name__}"] += 1
            else:
                tally[name] += 1

    def watch() -> None:
        most = 0
        while time.monotonic() < end:
            found = open_index(index).view.snapshot.rows
            if found < most:
                raise WentBack(f"{most} rows, then {found}")
            most = found

    with ThreadPoolExecutor(4) as pool:
        runs = [*(pool.submit(work, chance.getrandbits(32)) for _ in range(3)), pool.submit(watch)]
    wrong = [f"{type(run.exception()).__name__}: {run.exception()}" for run in runs if run.exception() is not None]
    append_new(None, index, rows(0, 1), "the last batch")  # finishes what is open
    build(None, lake.name, index, ["id"])
    ids = [one["id"] for one in lake.rows()]
    if len(ids) != len(set(ids)):
        wrong.append(f"{len(ids) - len(set(ids))} keys are twice in the table")
    answers = open_index(index).fetch_many(ids)
    wrong += [f"id {number}: {found}" for number, found in zip(ids, answers, strict=True) if found != [row(number)]][:3]
    wrong += [str(fault) for fault in verify(storage_at(index), None).faults[:3]]
    if isinstance(lake, DeltaLake) and sorted(polars.read_delta(lake.root)["id"].to_list()) != ids:
        wrong.append("Polars reads other rows")
    tally.update({"tables raced for": 1, "keys of raced tables": len(ids)})
    return wrong

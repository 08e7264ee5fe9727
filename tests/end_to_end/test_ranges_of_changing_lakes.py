"""Readers page through ranges of keys while a lake changes and its index is built, compacted, cut anew and vacuumed."""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.btree.keys import order_key
from gnomon.jobs.build import build
from gnomon.shadow import FetchStats, OpenIndex
from gnomon.shadow.errors import SnapshotNotFound, StalePointer
from gnomon.shadow.fetch import Query
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.maintenance import compact, rebucket, vacuum
from gnomon.shadow.storage import storage_at
from tests.opened import open_index

SEED = "GNOMON_RANGES_SEED"  # replaces the fixed seed
LASTING = ["p=a/1.parquet", "p=a/5.parquet", "p=b/3.parquet"]  # never rewritten
CHANGING = ["p=a/0.parquet", "p=a/3.parquet", "p=b/9.parquet", "p=c/1.parquet"]
ROWS = 150  # of a lasting file
KEYS = [None, *range(60)]
PATIENCE_SECONDS = 120

Row = tuple[int | None, int, str]  # key, number, file


@dataclass
class Reader:
    """One reader. It refreshes its index between pages, and counts what it sees and what is wrong."""

    folder: Path
    chance: random.Random
    lasting: Counter[Row]
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def run(self, is_over: Callable[[], bool]) -> None:
        index = open_index(str(self.folder / "index"))
        try:
            while not is_over():
                reverse = self.chance.random() < 0.5
                if self.chance.random() < 0.7:
                    self._paged(index, reverse)
                else:
                    self._whole(index, reverse)
        except Exception as error:  # noqa: BLE001  whatever it is, the test says it
            self.faults.append(f"{type(error).__name__}: {error}")

    def _paged(self, index: OpenIndex, reverse: bool) -> None:
        """All pages of a range, each of the newest snapshot. The rows of a key may come again where the file of the
        last row of a page was rewritten."""
        size, after, seen, may_repeat = self.chance.choice([3, 20, 100]), None, list[Row](), set[int | None]()
        snapshots, is_last = set[int](), False
        while not is_last:
            index.refresh()
            stats = FetchStats()
            try:
                page = index.first_page(RangeQuery(reverse=reverse, limit=size, after=after), Query([], stats))
            except StalePointer:  # the source before the next build
                self.counts["pages of changed files"] += 1
                time.sleep(0.01)
                continue
            rows = [as_row(row) for row in page.rows]
            seen += rows
            snapshots.add(stats.snapshot)
            is_last = page.is_last
            after = page.cursor.text(index.spec) if page.cursor is not None else after
            if rows and rows[-1][2] not in LASTING:
                may_repeat.add(rows[-1][0])
            self.counts["pages"] += 1
        self.counts["passes"] += 1
        self.counts["passes over several snapshots"] += len(snapshots) > 1
        self._check(seen, reverse, may_repeat, f"pages of {size}")

    def _whole(self, index: OpenIndex, reverse: bool) -> None:
        """All rows of a range, of one snapshot. A vacuum without grace may end it."""
        index.refresh()
        try:
            seen = [as_row(row) for row in index.range(reverse=reverse)]
        except (StalePointer, SnapshotNotFound) as error:
            self.counts[f"{type(error).__name__} of a whole range"] += 1
            return
        self.counts["whole ranges"] += 1
        self._check(seen, reverse, set(), "a whole range")

    def _check(self, seen: list[Row], reverse: bool, may_repeat: set[int | None], what: str) -> None:
        way = "backward" if reverse else "forward"
        keys = [order_key(row[:1]) for row in seen]
        if keys != sorted(keys, reverse=reverse):
            self.faults.append(f"{what}, {way}: not in key order")
        found = Counter(row for row in seen if row[2] in LASTING)
        self.faults += [f"{what}, {way}: {row} is missing" for row in (self.lasting - found)]
        twice = Counter(seen) - Counter(set(seen))
        self.faults += [f"{what}, {way}: {row} comes again" for row in twice if row[0] not in may_repeat]
        self.counts["rows"] += len(seen)


def as_row(row: dict[str, Any]) -> Row:
    return row["k"], row["n"], row["file"]


class Writer:
    """The lake and its index. Each file appears whole; its rows have numbers that no other rows have."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self._numbers = folder, chance, itertools.count()
        self.lasting = Counter(row for path in LASTING for row in self.write(path, ROWS))
        self.write(CHANGING[0], 40)
        self.build(buckets=3)

    def write(self, path: str, count: int) -> list[Row]:
        rows = [(self.chance.choice(KEYS), next(self._numbers), path) for _ in range(count)]
        columns = [pa.array([row[0] for row in rows], pa.int64()), [row[1] for row in rows], [path] * count]
        staged, place = self.folder / "staged", self.folder / "lake" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(zip(("k", "n", "file"), columns, strict=True))), staged)
        os.replace(staged, place)
        return rows

    def build(self, **options: Any) -> None:
        build(None, str(self.folder / "lake"), str(self.folder / "index"), ["k"], accept_vanished=True, **options)

    def turn(self) -> None:
        chance, storage = self.chance, storage_at(str(self.folder / "index"))
        path = chance.choice(CHANGING)
        if (self.folder / "lake" / path).exists() and chance.random() < 0.3:
            (self.folder / "lake" / path).unlink()
        else:
            self.write(path, chance.choice([1, 40, 200]))
        self.build()
        if chance.random() < 0.3:
            compact(storage)
        if chance.random() < 0.5:
            rebucket(storage, chance.randrange(1, 7), chance.random() < 0.5, chance.choice(["hash", "range"]))
        if chance.random() < 0.5:
            vacuum(storage, 0, unnamed_seconds=0)


def read_while_it_changes(folder: Path, seed: int, readers: int, turns: int) -> None:
    writer = Writer(folder, random.Random(seed))
    those = [Reader(folder, random.Random(seed * 100 + number), writer.lasting) for number in range(readers)]
    ended = threading.Event()
    threads = [threading.Thread(target=one.run, args=(ended.is_set,), daemon=True) for one in those]
    for thread in threads:
        thread.start()
    try:
        for _ in range(turns):
            writer.turn()
    finally:
        ended.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    counts = sum((one.counts for one in those), Counter[str]())
    faults = [fault for one in those for fault in one.faults]
    print(f"{readers} readers, {turns} turns of a writer: {dict(counts)}, {len(faults)} wrong")
    assert not faults, "\n".join([f"{len(faults)} wrong", *faults[:5]])
    assert counts["passes over several snapshots"] > 0


def test_pages_are_whole_while_builds_commit(tmp_path: Path) -> None:
    read_while_it_changes(tmp_path, 1, readers=3, turns=15)


@pytest.mark.nightly
def test_many_pages_are_whole_while_builds_commit(tmp_path: Path) -> None:
    read_while_it_changes(tmp_path, int(os.environ.get(SEED, "2")), readers=4, turns=400)

"""Random histories of random lakes, against an oracle: `python -m tests.soak.attack --minutes 60 --seed 1`.

Each lake lives through builds, appends, compactions, rebuckets, vacuums, copies and rewritten, removed and touched
files. Each step is followed by look-ups of present and absent keys, also in older snapshots. A right answer has the
rows of the oracle at that snapshot; if one of their files changed since, it must be refused. Then an index follows a
Delta or Iceberg table with a partition column of a random type, and programs race on another table.
"""

import argparse
import contextlib
import datetime as dt
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from gnomon.indexer import append_new, build, load
from gnomon.indexer.spark.session import local_session
from gnomon.indexer.spark.types import key_spark_type
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import FilesVanished, SnapshotNotFound, SourceError, SourceNotFound
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshots import snapshot_numbers
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.indexer.build.test_random_lake import WRITTEN, follow, random_table
from tests.opened import open_index
from tests.soak.lake import LIST, Lake, Row, read_file, same
from tests.soak.table_races import race_on_a_table

STEPS = 14
TABLE_STEPS = 6
KEYS_ASKED = 30
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


class Wrong(Exception):
    """The product answered something else than the oracle."""


class World:
    """A lake, its index, and what each snapshot of it must answer: `known` has, by snapshot, the rows by path and the
    state of the file that they come from."""

    def __init__(self, spark: SparkSession, root: Path, seed: int, tally: Counter[str]) -> None:
        self.spark, self.root, self.tally = spark, root, tally
        self.chance = random.Random(seed)
        self.lake = Lake(root / "lake", self.chance)
        self.index = root / "index"
        self.known: dict[int, dict[str, tuple[int, list[Row]]]] = {}
        self.layout: dict[str, Any] = {
            "flat": self.chance.choice([None, True, False]),
            "buckets": self.chance.choice([None, 1, 3, 8]),
            "page_maps": self.lake.format == "parquet" and self.chance.random() < 0.3,
            "include": [
                name
                for name, kind in self.lake.columns.items()
                if name not in self.lake.keys and kind != LIST and self.chance.random() < 0.3
            ],
        }
        self.steps: list[str] = []

    # -- steps ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            self.lake.write()
        self.step(self.build)
        doings: list[tuple[int, Callable[[], None]]] = [
            (6, self.change_and_build),
            (2, self.change),
            (2, self.build),
            (2, self.compact),
            (2, self.rebucket),
            (2, self.vacuum),
            (1, self.adopt),
            (3, self.dedup),
            (1, self.killed),
            (2, self.load),
        ]
        for _ in range(STEPS):
            weights = [weight for weight, _ in doings]
            [(_, doing)] = self.chance.choices(doings, weights)
            self.step(doing)
        self.lake.touch_forged()
        self.step(self.build)
        report = verify(storage_at(str(self.index)), None)
        self.tally["verified"] += 1
        if not report.is_sound or report.not_covered:
            raise Wrong(
                f"verify after the last build: {[str(fault) for fault in report.faults[:3]]} {report.not_covered[:3]}"
            )

    def step(self, doing: Callable[[], None]) -> None:
        self.steps.append(doing.__name__)
        doing()
        self.tally[doing.__name__] += 1
        self.ask()

    def build(self) -> None:
        lake, layout = self.lake, dict(self.layout)
        if self.known:  # as the index is by now
            layout |= {"flat": None, "buckets": None}
        result = build(
            self.spark, str(lake.root), str(self.index), lake.keys, options=lake.options, accept_vanished=True, **layout
        )
        self.note(result.snapshot)

    def change(self) -> None:
        lake = self.lake
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice(
                [
                    lake.write,
                    lambda: lake.write(self.chance.choice(sorted(lake.files))),
                    lake.remove,
                    lake.touch,
                    lake.place_empty_file,
                    lake.rewrite_with_its_time_put_back,
                ]
            )()

    def change_and_build(self) -> None:
        self.change()
        self.build()

    def compact(self) -> None:
        self.note_same(compact(storage_at(str(self.index))).snapshot)

    def rebucket(self) -> None:
        flat = self.chance.choice([None, True, False]) if self.lake.partitions else None
        buckets = self.chance.choice([1, 2, 5]) if flat is None or self.chance.random() < 0.5 else None
        self.note_same(rebucket(storage_at(str(self.index)), buckets, flat).snapshot)

    def vacuum(self) -> None:
        vacuum(storage_at(str(self.index)), grace_seconds=0, keep=self.chance.choice([1, 1, 3]))
        self.forget_vacuumed()

    def adopt(self) -> None:
        lake = self.lake
        self.build()
        lake.copy_elsewhere()
        result = build(
            self.spark, str(lake.root), str(self.index), lake.keys, include=self.layout["include"], adopt=True
        )
        self.note_same(result.snapshot)
        self.known = {result.snapshot: self.known[max(self.known)]}  # older ones name the place that is gone

    def dedup(self) -> None:
        """Append rows, of which some are there, and some come twice; each new key is appended once."""
        lake, chance = self.lake, self.chance
        if lake.format in ("csv", "jsonl"):
            return
        texts = {name: chance.choice(["1", "new part"]) for name in lake.partitions}
        known = [row for data in lake.files.values() for row in data.rows[:5]]
        rows = [{**row, **texts} for row in (*known, *lake.rows(chance.randint(1, 30)))]
        chance.shuffle(rows)
        fields = [
            StructField(name, ArrayType(LongType()) if kind == LIST else key_spark_type(kind))
            for name, kind in lake.columns.items()
        ]
        fields += [StructField(name, key_spark_type("string")) for name in lake.partitions]
        batch = self.spark.createDataFrame([tuple(row[f.name] for f in fields) for row in rows], StructType(fields))
        covered = open_index(str(self.index)).view.covered
        try:
            result = append_new(self.spark, str(self.index), batch, f"batch {len(self.steps)}")
        except FilesVanished:
            if all(path in lake.files for path in covered):
                raise
            self.tally["dedup refused"] += 1
            return
        there = {self.key_of(row) for data in lake.files.values() for row in data.rows}
        new = {self.key_of(row) for row in rows} - there
        appended = [path for path in open_index(str(self.index)).view.covered if path not in lake.files]
        found: list[str] = []
        for path in appended:
            of_file = [{name: row[name] for name in lake.columns} for row in read_file(lake.root / path, lake.format)]
            lake.put(path, of_file, dict(texts))
            found += [self.key_of(row) for row in lake.files[path].rows]
        if sorted(found) != sorted(new) or result.appended != len(new):
            raise Wrong(f"dedup appended {result.appended} rows, {len(set(found))} keys; expected {len(new)}")
        self.note(result.snapshot)

    def killed(self) -> None:
        """A command is killed at a random moment, and then run to its end."""
        name, *options = self.chance.choice([("compact",), ("vacuum", "--grace", "0s"), ("rebucket", "--buckets", "4")])
        command = [sys.executable, "-m", "gnomon", name, str(self.index), *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.chance.uniform(0.3, 2.5))
            process.kill()
        subprocess.run(command, capture_output=True, check=True)
        self.note_same(open_index(str(self.index)).view.snapshot.number)
        self.forget_vacuumed()

    def load(self) -> None:
        """Rows of many keys at once by Spark, where no file changed."""
        self.lake.touch_forged()
        self.build()
        lake = self.lake
        fields = [StructField(name, key_spark_type(lake.columns.get(name, "string"))) for name in lake.keys]
        rows = [row for data in lake.files.values() for row in data.rows[:3]]
        keys = {self.key_of(row): tuple(row[name] for name in lake.keys) for row in rows}
        if not keys:
            return
        frame = self.spark.createDataFrame(list(keys.values()), StructType(fields))
        got = load(self.spark, str(self.index), frame, null_safe=True).collect()
        found = Counter(self.key_of(row.asDict()) for row in got)
        expected = Counter(self.key_of(row) for data in lake.files.values() for row in data.rows)
        wrong = [key for key in keys if found[key] != expected[key]]
        self.tally["rows loaded"] += len(got)
        if wrong or found.keys() - keys.keys():
            raise Wrong(f"load: {len(wrong)} keys with another number of rows, first {wrong[:1]}")

    # -- asking --------------------------------------------------------------------------------------------------------

    def key_of(self, row: Row) -> str:
        """The key of a row, as text; 0.0 and -0.0 are one key."""
        return repr([_plain(row[name]) for name in self.lake.keys])

    def note(self, snapshot: int) -> None:
        """The expected answers of a snapshot: the current source."""
        self.known[snapshot] = {path: (data.state, data.rows) for path, data in self.lake.files.items()}

    def note_same(self, snapshot: int) -> None:
        """A snapshot that answers as the newest known one does."""
        self.known.setdefault(snapshot, self.known[max(self.known)])

    def forget_vacuumed(self) -> None:
        numbers = set(snapshot_numbers(storage_at(str(self.index))))
        self.known = {number: files for number, files in self.known.items() if number in numbers}

    def ask(self) -> None:
        numbers = [max(self.known), self.chance.choice(sorted(self.known))]
        for number in dict.fromkeys(numbers):
            try:
                index = open_index(str(self.index), None if number == max(self.known) else number)
            except SnapshotNotFound:
                continue
            self.tally["snapshots asked"] += 1
            files = self.known[number]
            rows = [row for _, of_file in files.values() for row in of_file]
            self.chance.shuffle(rows)
            keys = {self.key_of(row): row for row in rows[:KEYS_ASKED]}
            for _ in range(5):
                row = {**self.lake.rows(1)[0], **dict.fromkeys(self.lake.partitions, "1")}
                keys[self.key_of(row)] = row
            for text, row in keys.items():
                self.ask_key(index, number, text, {name: row[name] for name in self.lake.keys})

    def ask_key(self, index: OpenIndex, number: int, text: str, key: Row) -> None:
        files = self.known[number]
        expected = [row for _, rows in files.values() for row in rows if self.key_of(row) == text]
        holding = [path for path, (_, rows) in files.items() if any(self.key_of(row) == text for row in rows)]
        changed = [path for path in holding if self.is_other(path, files[path][0])]
        try:
            found = index.fetch(key)
        except SourceError:
            if not changed:
                raise
            self.tally["stale refused"] += 1
            return
        self.tally["keys present" if expected else "keys absent"] += 1
        left = list(expected)
        for row in found:
            match = next((one for one in left if all(same(one[name], row[name]) for name in one)), None)
            if match is None:
                raise Wrong(f"snapshot {number}, key {text}: found {row}, expected one of {left[:2]}")
            left.remove(match)
        if left:
            raise Wrong(f"snapshot {number}, key {text}: {len(left)} of {len(expected)} rows missing, first {left[0]}")

    def is_other(self, path: str, state: int) -> bool:
        data = self.lake.files.get(path)
        return data is None or data.state != state or data.is_forged


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, dt.datetime):  # Spark hands instants over without a zone, in that of the session
        return (value.astimezone(dt.UTC) if value.tzinfo else value).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def follow_a_table(place: Path, seed: int, tally: Counter[str]) -> None:
    """Let an index follow a Delta or Iceberg table with a partition column of a random type."""
    chance = random.Random(seed)
    form, kind = chance.choice(WRITTEN)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        done = follow(random_table(form, kind, place, patch), str(place / "index of a table"), chance, TABLE_STEPS)
    tally.update({"tables": 1, "keys of tables": done["keys compared"], f"{form} by {kind}": 1})


def attack(spark: SparkSession, root: Path, seed: int, tally: Counter[str]) -> str | None:
    """Try one lake. Returns the error with the steps that led to it; None without an error. The folder of a lake with
    an error stays."""
    place = root / f"lake-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    world = World(spark, place, seed, tally)
    tally["lakes"] += 1
    try:
        world.run()
        world.steps.append("follow_a_table")
        follow_a_table(place, seed, tally)
        world.steps.append("race_on_a_table")
        with pytest.MonkeyPatch.context() as patch:
            if wrong := race_on_a_table(place / "race", random.Random(seed), patch, tally):
                raise Wrong("; ".join(wrong))
    except SourceNotFound:  # text without rows has no bytes, and a source of no bytes is none
        if any((world.lake.root / path).stat().st_size for path in world.lake.files):
            raise
        tally["lakes without bytes"] += 1
    except Exception as error:  # noqa: BLE001 any error is reported with its lake, and the next lake is tried
        kind = "wrong" if isinstance(error, Wrong) else "failed"
        tally[kind] += 1
        lake = world.lake
        told = (
            f"seed {seed}: {kind}: {type(error).__name__}: {str(error)[:600]}\n   {lake.format}, keys {lake.keys} of "
        )
        told += f"{lake.columns}, partitions {lake.partitions}; steps {' '.join(world.steps)}"
        return told if isinstance(error, Wrong) else f"{told}\n{traceback.format_exc(limit=-4)}"
    shutil.rmtree(place)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first lake; the next one has the next number")
    parser.add_argument("--lakes", type=int, default=10**9)
    asked = parser.parse_args()
    spark = local_session("local[1]", SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    tally: Counter[str] = Counter()
    end = time.monotonic() + asked.minutes * 60
    root = Path(tempfile.mkdtemp(prefix="gnomon-attack-"))
    for seed in range(asked.seed, asked.seed + asked.lakes):
        if time.monotonic() > end:
            break
        if told := attack(spark, root, seed, tally):
            print(told, flush=True)
    spark.stop()
    print("tried: " + ", ".join(f"{count:,} {what}" for what, count in sorted(tally.items())), flush=True)
    return 1 if tally["wrong"] or tally["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Deliveries of an invented crawl, and their replay: appends that are delivered twice, race, and are killed.

Plain Python has the expected source: the delivered rows of each key. Where null keys are kept, each batch appends its
own, so that a second append of a batch is noticed.
"""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.end_to_end.dedup_child import STEPS
from tests.end_to_end.killable import Answer, How, Kill, Killable

HOURS = 24  # deliveries per day
KEYS = ["url", "n"]
FIRST_DAY = dt.date(2026, 3, 2)
SCHEMA = pa.schema([("url", pa.string()), ("n", pa.int64()), ("payload", pa.string()), ("dt", pa.string())])
FETCHED = 300  # keys whose rows are fetched at the end

Key = tuple[str | None, int | None]
Row = tuple[str | None, int | None, str, str]


@dataclass(frozen=True)
class Delivery:
    name: str
    folder: Path
    rows: list[Row]


def day(hour: int) -> str:
    return str(FIRST_DAY + dt.timedelta(days=hour // HOURS))


def make_deliveries(random: Random, folder: Path, count: int, rows_each: int) -> list[Delivery]:
    """Make one delivery per hour: new keys, some of other days; keys of earlier hours; keys that come twice; nulls."""
    deliveries: list[Delivery] = []
    for hour in range(count):
        rows: list[Row] = []
        for i in range(random.randint(rows_each // 2, rows_each)):
            kind, payload, when = random.random(), f"{hour}:{i}", day(hour)
            if kind < 0.15 and deliveries:
                url, n, _, before = random.choice(random.choice(deliveries).rows)
                rows.append((url, n, payload, before if random.random() < 0.7 else when))
            elif kind < 0.23 and rows:
                url, n, _, before = random.choice(rows)
                rows.append((url, n, payload, before if random.random() < 0.7 else day(hour + HOURS)))
            elif kind < 0.27:
                url = random.choice([None, f"https://é/{hour % 5}"])
                rows.append((url, random.choice([None, hour % 7]), payload, when))
            else:
                late = random.choice([0] * 9 + [-1])  # a row of the previous day
                rows.append((f"https://é/{hour}/{i}", i % 3, payload, day(max(0, hour + late * HOURS))))
        random.shuffle(rows)
        delivery = Delivery(f"hour {hour:03d}", folder / f"{hour:03d}", rows)
        delivery.folder.mkdir(parents=True)
        cut = random.randrange(len(rows))
        for number, part in enumerate((rows[:cut], rows[cut:])):
            columns = [list(column) for column in zip(*part, strict=True)] or [[] for _ in SCHEMA]
            pq.write_table(pa.table(columns, schema=SCHEMA), delivery.folder / f"part-{number}.parquet")
        deliveries.append(delivery)
    return deliveries


def make_schedule(random: Random, deliveries: list[Delivery]) -> list[tuple[Delivery, str]]:
    """Deliveries and the ids of their batches, in the order in which they come: some late, some again under the same
    id, some again under another."""
    coming: list[tuple[float, Delivery, str]] = []
    for hour, delivery in enumerate(deliveries):
        coming.append((hour + (random.uniform(0, 6) if random.random() < 0.2 else 0), delivery, delivery.name))
        for name, share in ((delivery.name, 0.1), (f"{delivery.name}, again", 0.08)):
            if random.random() < share:
                coming.append((hour + random.uniform(0, 30), delivery, name))
    return [(delivery, name) for _, delivery, name in sorted(coming, key=lambda one: one[0])]


@dataclass
class Figures:
    """The counts and the faults of a replay."""

    seed: int
    batches: int = 0
    runs: int = 0
    races: int = 0
    builds: int = 0
    starts: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    hows: Counter[str] = field(default_factory=Counter)
    rows_delivered: int = 0
    rows_in_source: int = 0
    duplicates_let_in: int = 0
    rows_lost: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def report(self) -> str:
        hit = "".join(f"\n    {count:3d} {where}" for where, count in self.kills.most_common())
        how = ", ".join(f"{count} of {what}" for what, count in self.hows.most_common())
        return (
            f"replay of seed {self.seed}: {self.batches} batches, {self.runs} runs of them, {self.races} races, "
            f"{self.builds} builds, {self.kills.total()} kills ({how}), {self.starts} processes\n  killed at{hit}\n"
            f"  rows delivered {self.rows_delivered:,}, in the source {self.rows_in_source:,}; duplicates let in "
            f"{self.duplicates_let_in}, rows lost {self.rows_lost}; {self.seconds:.0f} s"
            + "".join(f"\n  FAULT {fault}" for fault in self.faults)
        )


class Readers:
    """A reader of the source. Each look reads the new files; no file may change."""

    def __init__(self, source: Path, null_keys: str) -> None:
        self.source, self.null_keys = source, null_keys
        self.files: dict[str, tuple[int, int]] = {}
        self.rows: list[Row] = []

    def look(self) -> Iterator[str]:
        """Read the new files, and yield the faults."""
        seen = {str(path.relative_to(self.source)): path for path in self.source.rglob("*.parquet")}
        seen = {name: path for name, path in seen.items() if "/_" not in f"/{name}"}
        yield from (f"{name} is gone" for name in self.files.keys() - seen.keys())
        for name, path in sorted(seen.items()):
            status = path.stat()
            fingerprint = status.st_size, status.st_mtime_ns
            if name in self.files:
                if self.files[name] != fingerprint:
                    yield f"{name} was changed"
                continue
            self.files[name] = fingerprint
            try:
                table = pq.ParquetFile(path).read()
            except (pa.ArrowException, OSError) as error:
                yield f"{name} cannot be read: {error}"
                continue
            value = path.parent.name.removeprefix("dt=")
            self.rows += zip(*[column.to_pylist() for column in table.columns], [value] * len(table), strict=True)
        keys = Counter(row[:2] for row in self.rows if self.null_keys == "dedup" or None not in row[:2])
        if twice := [key for key, count in keys.items() if count > 1]:
            yield f"{len(twice)} keys are there twice, {twice[0]} among them"


class Replay:
    """Appends deliveries to a source that begins with the first of them."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        deliveries: int,
        rows_each: int,
        kills: int,
        null_keys: str,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` is called with each fault when it is found, and with the progress."""
        self.null_keys, self.tell = null_keys, tell
        self.random, self.figures, self.kills = Random(seed), Figures(seed), kills
        self.source, self.index = folder / "source", folder / "index"
        self.deliveries = make_deliveries(self.random, folder / "deliveries", deliveries, rows_each)
        self.schedule = make_schedule(self.random, self.deliveries[1:])
        self.figures.batches = len(self.schedule)
        self.figures.rows_delivered = sum(len(delivery.rows) for delivery, _ in self.schedule)
        self.begun: Counter[str] = Counter()
        self.named: dict[str, Delivery] = {}
        self.append_seconds = 4.0
        self.readers = Readers(self.source, null_keys)
        self._write_first()

    def _write_first(self) -> None:
        """Write the existing data: the first delivery, each key once, without null keys."""
        first: dict[Key, Row] = {}
        for row in self.deliveries[0].rows:
            if None not in row[:2]:
                first.setdefault(row[:2], row)
        folders: dict[str, list[Row]] = defaultdict(list)
        self.first = list(first.values())
        for row in self.first:
            folders[row[3]].append(row)
        for when, rows in folders.items():
            (self.source / f"dt={when}").mkdir(parents=True)
            columns = [list(column) for column in zip(*rows, strict=True)][:3]
            pq.write_table(
                pa.table(columns, schema=pa.schema(list(SCHEMA)[:3])), self.source / f"dt={when}/first.parquet"
            )

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, workers: list[Killable]) -> None:
        """Append the whole schedule with the workers. Sometimes two of them run at once, and each night a build."""
        self._do(workers[0], "build", str(self.source), str(self.index), KEYS)
        waiting, done, nights = list(self.schedule), 0, 0
        while waiting or self.figures.kills.total() < self.kills:
            self.random.shuffle(workers)
            if not waiting:  # no other delivery, if a kill hits nothing
                waiting.append((self.random.choice(self.deliveries[1:]), f"once more {self.figures.runs}"))
            jobs = [waiting.pop(0)]
            if waiting and self.random.random() < 0.15:  # the next delivery, or the same one
                jobs.append(waiting.pop(0) if self.random.random() < 0.7 else jobs[0])
            is_night = done // HOURS > nights
            if is_night:
                nights += 1
                self.tell(f"night {nights}: {done} batches, {self.figures.kills.total()} kills, {len(waiting)} to come")
            killed = self._round(workers, jobs, is_night, len(waiting))
            done += len(jobs) - len(killed)
            for job in killed:  # at once, or after others
                waiting.insert(0 if self.random.random() < 0.6 else self.random.randrange(5), job)
            self._fault(self.readers.look())
        self._do(workers[0], "build", str(self.source), str(self.index), KEYS)

    def _round(
        self, workers: list[Killable], jobs: list[tuple[Delivery, str]], is_night: bool, left: int
    ) -> list[tuple[Delivery, str]]:
        """Run some appends at once, with a build at night. Returns the killed ones."""
        plans = [(worker, self._kill(worker, left), job) for worker, job in zip(workers, jobs, strict=False)]
        self.figures.races += len(plans) > 1
        with ThreadPoolExecutor(3) as pool:
            appends = [pool.submit(self._append, worker, job, kill) for worker, kill, job in plans]
            if is_night:
                spare = workers[len(plans)]
                kill = self._kill(spare, left)
                night = pool.submit(self._do, spare, "build", str(self.source), str(self.index), KEYS, kill=kill)
                night.result()
                self._do(spare, "compact", str(self.index))
            answers = [append.result() for append in appends]
        return [job for job, answer in zip(jobs, answers, strict=True) if answer.killed]

    def _kill(self, worker: Killable, left: int) -> Kill | None:
        """The time at which to kill the worker's next command, if at all."""
        wanted = self.kills - self.figures.kills.total()
        if wanted <= 0 or self.random.random() > min(0.7, 1.3 * wanted / (left + 1)):
            return None
        if worker.jvm is None:
            worker.how = self.random.choice([How.ALL, How.DRIVER])
        kind = self.random.random()
        if kind < 0.45:
            return Kill(step=self.random.choice(list(STEPS)), count=self.random.choice([1, 1, 2]))
        if kind < 0.65:
            return Kill(staged_in=self.source / "_gnomon", seconds=self.random.uniform(0, 0.05))
        return Kill(seconds=self.random.uniform(0, self.append_seconds))

    def _append(self, worker: Killable, job: tuple[Delivery, str], kill: Kill | None) -> Answer:
        delivery, name = job
        self.begun[name] += 1
        self.named[name] = delivery
        answer = self._do(worker, "append", str(self.index), str(delivery.folder), name, self.null_keys, kill=kill)
        self.figures.runs += 1
        if answer.done:
            self.append_seconds = 0.7 * self.append_seconds + 0.3 * answer.done["seconds"]
            self._fault(self._wrong(answer.done, delivery, name))
        return answer

    def _wrong(self, result: dict[str, Any], delivery: Delivery, name: str) -> Iterator[str]:
        """Yield the faults of a result."""
        if result["known_batch"]:
            if self.begun[name] == 1:
                yield f"{name}: said to be known when it first came"
            return
        parts = ("duplicates_in_batch", "already_loaded", "appended")
        counts = {part: result[part] for part in parts} | {"rejected": result.get("rejected", 0)}
        if result["rows_read"] != len(delivery.rows) or sum(counts.values()) != len(delivery.rows):
            yield f"{name}: {len(delivery.rows)} rows, its result says {result['rows_read']} and {counts}"

    def _do(self, worker: Killable, what: str, *words: object, kill: Kill | None = None) -> Answer:
        answer = worker.ask(what, *words, kill=kill)
        self.figures.builds += what == "build"
        if answer.killed:
            self.figures.kills[f"{answer.killed}{'' if what == 'append' else f' of a {what}'}"] += 1
            self.figures.hows[worker.how.value] += 1
        if answer.error:
            self._fault([f"{what} {words[-2:]}: {answer.error}"])
        return answer

    def _fault(self, faults: Iterable[str]) -> None:
        for fault in faults:
            self.figures.faults.append(fault)
            self.tell(f"FAULT {fault}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def check(self) -> Figures:
        """Compare the source with the deliveries."""
        figures = self.figures
        self._fault(self.readers.look())
        delivered: dict[Key, set[Row]] = defaultdict(set)
        kept: Counter[Row] = Counter()  # rows with null keys, of which each counts
        for row in (*self.first, *(row for delivery in self.named.values() for row in delivery.rows)):
            delivered[row[:2]].add(row)
            kept[row] += self._is_kept(row)
        rows = self.readers.rows
        there = Counter(row[:2] for row in rows if not self._is_kept(row))
        there_kept = Counter(row for row in rows if self._is_kept(row))
        figures.rows_in_source = len(rows)
        figures.duplicates_let_in = there.total() - len(there) + (there_kept - kept).total()
        figures.rows_lost = (kept - there_kept).total()
        figures.rows_lost += sum(key not in there and not self._is_kept(key) for key in delivered)
        if odd := [row for row in rows if row not in delivered.get(row[:2], ())]:
            self._fault([f"{len(odd)} rows that nobody delivered, {odd[0]} among them"])
        self._fault(self._wrong_in_index(delivered))
        return figures

    def _is_kept(self, row: Sequence[object]) -> bool:
        return self.null_keys == "keep" and None in row[:2]

    def _wrong_in_index(self, delivered: dict[Key, set[Row]]) -> Iterator[str]:
        index = open_index(str(self.index))
        if missing := [key for key in delivered if not index.contains(key)]:
            yield f"{len(missing)} keys are not in the index, {missing[0]} among them"
        once = [key for key in delivered if not self._is_kept(key)]
        for key in self.random.sample(once, min(FETCHED, len(once))):
            found = [tuple(row[name] for name in SCHEMA.names) for row in index.fetch(key)]
            if len(found) != 1 or found[0] not in delivered[key]:
                yield f"{key} fetches {found}"
        if not index.coverage().is_empty:
            yield "files of the source are not indexed"
        yield from (f"verify: {fault}" for fault in verify(storage_at(str(self.index))).faults)
        if index.view.snapshot.rows != self.figures.rows_in_source:
            yield f"the index has {index.view.snapshot.rows} rows, the source {self.figures.rows_in_source}"

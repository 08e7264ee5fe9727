"""The replay of deliveries (`replay_deliveries`): appends that are delivered twice, race, and are killed. Other
programs change a lake table meanwhile (`replay_targets`).

Plain Python has the expected source: the delivered rows of each key. Where null keys are kept, each batch appends its
own, so that a second append of a batch is noticed. A key that another program deleted may only be there again if a
batch with it ended after the deletion, and must be if such a batch began after it.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.end_to_end.killable import Answer, How, Kill, Killable
from tests.end_to_end.replay_deliveries import HOURS, Delivery, day, foreign_url, make_deliveries, make_schedule
from tests.end_to_end.replay_targets import Key, Row, Target
from tests.opened import open_index

KEYS = ["url", "n"]
FETCHED = 300  # keys whose rows are fetched at the end
# The errors of an append to a table that changed: nothing of it was appended, and it runs again. The second one comes
# of a batch whose columns were those of the table before.
GIVEN_UP, OTHER_COLUMNS = "none of its", "its columns are not the source's"


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
    waits: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    other_columns: int = 0
    rows_delivered: int = 0
    rows_in_source: int = 0
    duplicates_let_in: int = 0
    rows_lost: int = 0
    keys_tried: int = 0
    keys_wrong: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def report(self) -> str:
        hit = "".join(f"\n    {count:3d} {where}" for where, count in self.kills.most_common())
        how = ", ".join(f"{count} of {what}" for what, count in self.hows.most_common())
        changes = ", ".join(f"{count} {what}" for what, count in self.changes.most_common()) or "none"
        return (
            f"replay of seed {self.seed}: {self.batches} batches, {self.runs} runs of them, {self.races} races, "
            f"{self.builds} builds, {self.kills.total()} kills ({how}), {self.starts} processes\n  killed at{hit}\n"
            f"  waited while others committed {self.waits.total()} times; changes by other programs: {changes}\n"
            f"  appends given up {self.given_up}, run again with other columns {self.other_columns}\n"
            f"  rows delivered {self.rows_delivered:,}, in the source {self.rows_in_source:,}; duplicates let in "
            f"{self.duplicates_let_in}, rows lost {self.rows_lost}; keys tried {self.keys_tried:,}, wrong "
            f"{self.keys_wrong}; {self.seconds:.0f} s" + "".join(f"\n  FAULT {fault}" for fault in self.faults)
        )


class Ledger:
    """What happened when, by a counter: when each batch first began and ended, and the last deletion of each key."""

    def __init__(self) -> None:
        self._clock = count(1)
        self.begun: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.deleted: dict[Key, tuple[int, int]] = {}

    def begin(self, name: str) -> None:
        self.begun.setdefault(name, next(self._clock))

    def end(self, name: str) -> None:
        self.ended.setdefault(name, next(self._clock))

    def delete(self, keys: Sequence[Key], delete: Callable[[Sequence[Key]], None]) -> None:
        begin = next(self._clock)
        delete(keys)
        self.deleted |= dict.fromkeys(keys, (begin, next(self._clock)))

    def expects(self, key: Key, names: Iterable[str]) -> bool | None:
        """Whether a key of some batches, of which all ended, must be there; None where it may."""
        if key not in self.deleted:
            return True
        begin, end = self.deleted[key]
        if any(self.begun[name] > end for name in names):
            return True
        return None if any(self.ended[name] > begin for name in names) else False


class Replay:
    """Appends deliveries to a source that begins with the first of them. A night comes after `night` of them."""

    night = HOURS
    races, meddling, at_steps = 0.15, 0.3, 0.45  # shares: of two batches at once, changes by others meanwhile, kills

    def __init__(
        self,
        target: Target,
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
        self.target, self.index = target, folder / "index"
        self.deliveries = self._make_deliveries(folder / "deliveries", deliveries, rows_each)
        self.schedule = make_schedule(self.random, self.deliveries[1:])
        self.figures.batches = len(self.schedule)
        self.figures.rows_delivered = sum(len(delivery.rows) for delivery, _ in self.schedule)
        self.begun: Counter[str] = Counter()
        self.named: dict[str, Delivery] = {}
        self.append_seconds = 4.0
        self.ledger = Ledger()
        self.columns: dict[str, dict[str, str | None]] = {}  # of a batch, when it first came
        self.foreign = count()
        self._write_first()

    def _make_deliveries(self, folder: Path, number: int, rows_each: int) -> list[Delivery]:
        return make_deliveries(self.random, folder, number, rows_each)

    def _write_first(self) -> None:
        """Write the existing data: the first delivery, each key once, without null keys."""
        first: dict[Key, Row] = {}
        for row in self.deliveries[0].rows:
            if None not in row[:2]:
                first.setdefault(row[:2], row)
        self.named["first"] = Delivery("first", Path(), list(first.values()))
        self.ledger.begin("first")
        self.target.write_first(self.named["first"].rows)
        self.ledger.end("first")

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, workers: list[Killable]) -> None:
        """Append the whole schedule with the workers. Sometimes two of them run at once, and each night a build."""
        self._do(workers[0], "build", self.target.name, str(self.index), KEYS)
        self._fault(self._look())
        waiting, done, nights = list(self.schedule), 0, 0
        while waiting or self.figures.kills.total() < self.kills:
            self.random.shuffle(workers)
            if not waiting:  # no other delivery, if a kill hits nothing
                waiting.append((self.random.choice(self.deliveries[1:]), f"once more {self.figures.runs}"))
            jobs = [waiting.pop(0)]
            if waiting and self.random.random() < self.races:  # the next delivery, or the same one
                jobs.append(waiting.pop(0) if self.random.random() < 0.7 else jobs[0])
            is_night = done // self.night > nights
            if is_night:
                nights += 1
                self.tell(f"night {nights}: {done} batches, {self.figures.kills.total()} kills, {len(waiting)} to come")
            left = self._round(workers, jobs, is_night, len(waiting))
            done += len(jobs) - len(left)
            for job in left:  # at once, or after others
                waiting.insert(0 if self.random.random() < 0.6 else self.random.randrange(5), job)
            if self.random.random() < (0.6 if left else 0.25):
                self._change(is_quiet=True)()
            self._fault(self._look())
        self._do(workers[0], "build", self.target.name, str(self.index), KEYS)

    def _round(
        self, workers: list[Killable], jobs: list[tuple[Delivery, str]], is_night: bool, left: int
    ) -> list[tuple[Delivery, str]]:
        """Run some appends at once, with a build at night and a change by another program. Returns those to run
        again."""
        for delivery, name in jobs:
            self.named[name] = delivery
            self.columns.setdefault(name, self.target.columns)
        plans = [(worker, self._kill(worker, left), job) for worker, job in zip(workers, jobs, strict=False)]
        self.figures.races += len(plans) > 1
        with ThreadPoolExecutor(4) as pool:
            change = pool.submit(self._change(is_quiet=False)) if self.random.random() < self.meddling else None
            appends = [pool.submit(self._append, worker, job, kill) for worker, kill, job in plans]
            if is_night:
                spare = workers[len(plans)]
                kill = self._kill(spare, left)
                night = pool.submit(self._do, spare, "build", self.target.name, str(self.index), KEYS, kill=kill)
                night.result()
                self._do(spare, "compact", str(self.index))
            answers = [append.result() for append in appends]
            if change is not None:
                change.result()
        return [job for job, answer in zip(jobs, answers, strict=True) if answer.killed or self._is_again(answer)]

    def _change(self, is_quiet: bool) -> Callable[[], None]:
        """A change by another program. A quiet one needs that no append runs, though killed ones may be unfinished."""
        changes = self._foreign_changes(is_quiet)
        name = self.random.choice([*changes] or [""])
        pause = 0 if is_quiet else self.random.uniform(0, self.append_seconds)

        def change() -> None:
            if not name:
                return
            time.sleep(pause)
            try:
                changes[name]()
            except Exception as error:  # noqa: BLE001  any error is a fault
                self._fault([f"{name}: {type(error).__name__}: {error}"])
            self.figures.changes[name] += 1

        return change

    def _foreign_changes(self, is_quiet: bool) -> dict[str, Callable[[], object]]:
        """The changes by other programs that may come now."""
        target = self.target
        if not target.changes:
            return {}
        changes = {"append": self._foreign_append(), "delete": self._foreign_delete()} | dict(target.changes)
        return changes | dict(target.quiet_changes if is_quiet else {})

    def _foreign_append(self) -> Callable[[], None]:
        """An append by another program of a key that no batch had until now. Later ones may have it."""
        begun = {row[:2] for delivery in self.named.values() for row in delivery.rows}
        url = next(url for url in map(foreign_url, self.foreign) if (url, 0) not in begun)
        delivery = Delivery(url, Path(), [(url, 0, "foreign", day(0))])

        def append() -> None:
            self.named[delivery.name] = delivery
            self.ledger.begin(delivery.name)
            self.target.append(delivery.rows)
            self.ledger.end(delivery.name)

        return append

    def _foreign_delete(self) -> Callable[[], None]:
        keys = [row[:2] for row in self.target.rows if None not in row[:2]]
        return partial(self.ledger.delete, self.random.sample(keys, min(3, len(keys))), self.target.delete)

    def _is_again(self, answer: Answer) -> bool:
        """Whether an append to a table did nothing because the table changed."""
        return bool(self.target.changes) and (GIVEN_UP in answer.error or OTHER_COLUMNS in answer.error)

    def _kill(self, worker: Killable, left: int) -> Kill | None:
        """The time at which to kill the worker's next command, if at all."""
        wanted = self.kills - self.figures.kills.total()
        if wanted <= 0 or self.random.random() > min(0.7, 1.3 * wanted / (left + 1)):
            return None
        if worker.jvm is None:
            worker.how = self.random.choice([How.ALL, How.DRIVER])
        kind = self.random.random()
        if kind < self.at_steps:
            return Kill(step=self.random.choice(self.target.steps), count=self.random.choice([1, 1, 2]))
        if kind < self.at_steps + 0.2:
            return Kill(staged_in=self.target.staging, seconds=self.random.uniform(0, 0.05))
        return Kill(seconds=self.random.uniform(0, self.append_seconds))

    def _append(self, worker: Killable, job: tuple[Delivery, str], kill: Kill | None) -> Answer:
        delivery, name = job
        self.begun[name] += 1
        self.ledger.begin(name)
        words = (str(self.index), str(delivery.folder), name, self.null_keys, self.columns[name])
        answer = self._do(worker, "append", *words, kill=kill)
        self.figures.runs += 1
        if OTHER_COLUMNS in answer.error:
            self.columns[name] = self.target.columns
        if answer.done:
            self.ledger.end(name)
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
        if answer.error and self._is_again(answer):
            self.figures.given_up += GIVEN_UP in answer.error
            self.figures.other_columns += OTHER_COLUMNS in answer.error
        elif answer.error:
            self._fault([f"{what} {words[-2:]}: {answer.error}"])
        return answer

    def _look(self) -> Iterator[str]:
        """Read the source, and yield the faults."""
        yield from self.target.look()
        keys = Counter(row[:2] for row in self.target.rows if not self._is_kept(row))
        if twice := [key for key, found in keys.items() if found > 1]:
            yield f"{len(twice)} keys are there twice, {twice[0]} among them"

    def _fault(self, faults: Iterable[str]) -> None:
        for fault in faults:
            self.figures.faults.append(fault)
            self.tell(f"FAULT {fault}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def check(self) -> Figures:
        """Compare the source with the deliveries."""
        figures = self.figures
        self._fault(self._look())
        delivered: dict[Key, set[Row]] = defaultdict(set)
        names: dict[Key, set[str]] = defaultdict(set)
        kept: Counter[Row] = Counter()  # rows with null keys, of which each counts
        for name, row in ((name, row) for name, delivery in self.named.items() for row in delivery.rows):
            delivered[row[:2]].add(row)
            names[row[:2]].add(name)
            kept[row] += self._is_kept(row)
        rows = self.target.rows
        there = Counter(row[:2] for row in rows if not self._is_kept(row))
        there_kept = Counter(row for row in rows if self._is_kept(row))
        figures.rows_in_source = len(rows)
        figures.duplicates_let_in = there.total() - len(there) + (there_kept - kept).total()
        expected = {key: self.ledger.expects(key, names[key]) for key in delivered if not self._is_kept(key)}
        figures.rows_lost = (kept - there_kept).total()
        figures.rows_lost += sum(key not in there for key, must in expected.items() if must)
        if back := [key for key, must in expected.items() if must is False and key in there]:
            self._fault([f"{len(back)} deleted keys came back, {back[0]} among them"])
        if odd := [row for row in rows if row not in delivered.get(row[:2], ())]:
            self._fault([f"{len(odd)} rows that nobody delivered, {odd[0]} among them"])
        self._fault(self._wrong_in_index(delivered))
        return figures

    def _is_kept(self, row: Sequence[object]) -> bool:
        return self.null_keys == "keep" and None in row[:2]

    def _wrong_in_index(self, delivered: dict[Key, set[Row]]) -> Iterator[str]:
        index = open_index(str(self.index))
        rows: dict[Key, list[Row]] = defaultdict(list)
        for row in self.target.rows:
            rows[row[:2]].append(row)
        if wrong := [key for key in delivered if index.contains(key) != (key in rows)]:
            yield f"{len(wrong)} keys are in the source or in the index alone, {wrong[0]} among them"
        columns = [name for name, of in self.target.columns.items() if of is not None]
        once = [key for key in delivered if not self._is_kept(key)]
        sample = self.random.sample(once, min(FETCHED, len(once)))
        for key, answer in zip(sample, index.fetch_many(sample), strict=True):
            found = [tuple(row[name] for name in columns) for row in answer]
            if found != rows[key]:
                yield f"{key} fetches {found}, the source has {rows[key]}"
        if not index.coverage().is_empty:
            yield "files of the source are not indexed"
        yield from (f"verify: {fault}" for fault in verify(storage_at(str(self.index))).faults)
        if index.view.snapshot.rows != self.figures.rows_in_source:
            yield f"the index has {index.view.snapshot.rows} rows, the source {self.figures.rows_in_source}"

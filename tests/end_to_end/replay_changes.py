"""The replay of changes: deletes, upserts, change feeds and appends of a lake table by key, which are killed, race, and
come twice, while other programs change the table (`replay_targets`), or roll it back.

Plain Python has the expected rows of each version. The history of the table names the batch or the foreign change that
made a version, so that its rows follow from those of the version before. Each version is read once by the table's own
reader. A change that was killed is in the history or not; after its batch has ended, it is there once.

Two things may depend on what was there between the beginning of a batch and its commit: an append leaves out keys that
were there, an update keys that were not. There, either outcome is right."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.jobs.dedup.row_digest import row_count
from gnomon.shadow import OpenIndex
from gnomon.shadow.commit import Append
from gnomon.shadow.commit.append_log import read_log
from gnomon.shadow.errors import SnapshotNotFound
from gnomon.shadow.metadata import read_append
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.end_to_end.dedup_child import STEPS
from tests.end_to_end.killable import Answer, Kill, Killable
from tests.end_to_end.replay import GIVEN_UP, KEYS, OTHER_COLUMNS, Figures, Replay
from tests.end_to_end.replay_deliveries import Delivery, day
from tests.end_to_end.replay_targets import SCHEMA, Key, LakeTable, Made, Row, as_table
from tests.opened import open_index

Rows = Mapping[Key, tuple[Row, ...]]

KINDS = ["delete", "unnamed delete", "upsert", "upsert", "update", "feed", "feed", "append"]
POOL = 150  # keys that changes name
DAYS = 3
FETCHED = 25  # keys that are fetched after each round
MOST_FILES = 60  # of the table, before other programs compact it
# The errors of a change that others were in the way of: it runs again.
SEVERAL, FIRST = "have several rows", "came first"
GIVEN_UP_BATCH = re.compile(r"append \d+ of batch '([^']*)' was given up")


@dataclass(frozen=True)
class Change(Delivery):
    """A change. Of its rows, those with a flag in `deleting` only delete."""

    kind: str = ""
    deleting: tuple[bool, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def last(self) -> dict[Key, tuple[Row, bool]]:
        """The row of each key that counts, and whether it only deletes."""
        found: dict[Key, tuple[Row, bool]] = {}
        for row, deletes in zip(self.rows, self.deleting, strict=True):
            if None in row[:2] and self.options.get("null_keys") == "reject":
                continue
            if row[:2] not in found or row[2] > found[row[:2]][0][2]:
                found[row[:2]] = row, deletes
        return found


def key(number: int) -> Key:
    return f"https://é/{number}", None if number % 29 == 28 else number % 3


def make_changes(random: Random, folder: Path, number: int, rows_each: int) -> list[Delivery]:
    """Make the first rows and the changes after them."""
    first = [(*key(at), f"first:{at}", day(24 * (at % DAYS))) for at in range(POOL // 2)]
    made: list[Delivery] = [Delivery("first", Path(), [row for row in first if None not in row[:2]])]
    unnamed = 0
    for at in range(number):
        kind = random.choice(KINDS)
        size = random.randint(1, rows_each)
        if kind == "unnamed delete":
            unnamed += 1
            size = unnamed  # tells its record from others
        keys = [key(one) for one in random.sample(range(POOL), size + 10)]
        has_nulls = kind in ("upsert", "feed", "update") and random.random() < 0.3
        if not has_nulls:
            keys = [one for one in keys if None not in one]
        keys = keys[:size]
        options: dict[str, Any] = {}
        deleting = [False] * len(keys)
        if "delete" in kind:
            deleting = [True] * len(keys)
        elif kind != "append":
            if random.random() < 0.5:
                keys += random.choices(keys, k=len(keys) // 3)  # twice in the batch
                deleting = [False] * len(keys)
                options["order_by"] = ["payload"]
            options["null_keys"] = random.choice(["reject", "dedup"]) if has_nulls else "refuse"
            if kind == "update":
                options["update_only"] = True
            if kind == "feed":
                options["delete_where"] = "op"
                deleting = [random.random() < 0.4 for _ in keys]
        rows = [(*one, f"{at:03d}:{place:04d}", day(24 * random.randrange(DAYS))) for place, one in enumerate(keys)]
        both = list(zip(rows, deleting, strict=True))
        random.shuffle(both)
        change = Change(
            f"change {at:03d}" if kind != "unnamed delete" else f"unnamed {size}",
            folder / f"{at:03d}.parquet",
            [row for row, _ in both],
            kind,
            tuple(flag for _, flag in both),
            options,
        )
        table = as_table(change.rows)
        if "delete" in kind:
            table = table.select(KEYS)
        if kind == "feed":
            table = table.append_column("op", pa.array(["d" if flag else "u" for flag in change.deleting]))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, change.folder)
        made.append(change)
    return made


class Book:
    """The expected rows of each version, in the order in which the versions came."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows | None] = {}  # None for a version inside a change of another program
        self.timeline: list[Rows] = []

    def add(self, version: str, rows: Rows) -> None:
        self.rows[version] = rows
        self.come(rows)

    def come(self, rows: Rows) -> None:
        """Note that a version is the newest one now."""
        if not self.timeline or self.timeline[-1] is not rows:
            self.timeline.append(rows)


class ChangeReplay(Replay):
    """Changes a lake table by key."""

    night = 6
    races, meddling, at_steps = 0.3, 0.4, 0.6
    waiting = 0.5  # share of the rounds without a kill in which a program waits at a step while others commit
    target: LakeTable

    def __init__(
        self, target: LakeTable, folder: Path, seed: int, changes: int, kills: int, tell: Callable[[str], None]
    ) -> None:
        self.book, self.effects = Book(), dict[str, Callable[[Rows], Rows]]()
        self.since: dict[str, int] = {}  # of a batch: the place in the timeline at which it began
        self.replaces_all: set[str] = set()
        self.records: dict[str, Append] = {}  # by the mark in the table's history
        self.marks: dict[str, list[str]] = defaultdict(list)  # of each batch, those in the table's history
        self.by_mark: dict[str, Made] = {}
        self.attempts: set[str] = set()  # that committed
        self.results: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[tuple[str, str]] = []
        self.ended: set[str] = set()
        self.gone: set[str] = set()  # versions that cannot be read any more
        self.tags = 1
        super().__init__(target, folder, seed, changes + 1, rows_each=40, kills=kills, null_keys="dedup", tell=tell)
        target.steps = tuple(STEPS)

    def _make_deliveries(self, folder: Path, number: int, rows_each: int) -> list[Delivery]:
        return make_changes(self.random, folder, number - 1, rows_each)

    def _write_first(self) -> None:
        self.target.write_first(self.deliveries[0].rows)
        for made in self.target.versions():
            self.book.add(made.version, grouped(self.target.at(made.version)))

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _append(self, worker: Killable, job: tuple[Delivery, str], kill: Kill | None) -> Answer:
        change, name = job
        assert isinstance(change, Change)
        if change.kind == "unnamed delete":
            name = change.name
            self.named[name], self.columns[name] = change, {}
        self.begun[name] += 1
        self.since.setdefault(name, len(self.book.timeline) - 1)
        index, path = str(self.index), str(change.folder)
        columns, options = self.columns[name], dict(change.options)
        if change.kind == "unnamed delete":
            answer = self._do(worker, "delete", index, path, None, kill=kill)
        elif change.kind == "delete":
            answer = self._do(worker, "delete", index, path, name, kill=kill)
        elif change.kind == "append":
            answer = self._do(worker, "append", index, path, name, "dedup", columns, kill=kill)
        else:
            if change.kind == "feed":
                columns = {**columns, "op": "op"}
            options["replace_all"] = name in self.replaces_all
            answer = self._do(worker, "upsert", index, path, name, columns, options, kill=kill)
        self.figures.runs += 1
        if OTHER_COLUMNS in answer.error:
            self.columns[name] = self.target.columns
        if SEVERAL in answer.error:
            given_up = GIVEN_UP_BATCH.search(answer.error)
            self.refused.append((given_up[1] if given_up else name, answer.error))
        if answer.done:
            self.append_seconds = 0.7 * self.append_seconds + 0.3 * answer.done["seconds"]
            self.results.append((name, answer.done))
        return answer

    def _is_again(self, answer: Answer) -> bool:
        return any(word in answer.error for word in (GIVEN_UP, OTHER_COLUMNS, SEVERAL, FIRST))

    def _round(
        self, workers: list[Killable], jobs: list[tuple[Delivery, str]], is_night: bool, left: int
    ) -> list[tuple[Delivery, str]]:
        if is_night or self.random.random() > self.waiting:
            return super()._round(workers, jobs, is_night, left)
        extra = [  # so that the one that waits is far behind
            (self.random.choice(self.deliveries[1:]), f"meanwhile {self.figures.runs}.{at}")
            for at in range(self.random.choice([0, 0, 1, 3]))
        ]
        for delivery, name in (*jobs, *extra):
            self.named[name] = delivery
            self.columns.setdefault(name, self.target.columns)
        job, others, answers = jobs[0], jobs[1:], dict[int, Answer]()
        change = self._change(is_quiet=False) if self.random.random() < self.meddling or not others else None
        is_first = self.random.random() < 0.5
        step = self.random.choice(self.target.steps)

        def meanwhile() -> None:
            self.figures.waits[step] += 1
            if change is not None and is_first:
                change()
            for at, other in enumerate(others, 1):
                answers[at] = self._append(workers[1], other, self._kill(workers[1], left))
            if change is not None and not is_first:
                change()
            for other in extra:
                self._append(workers[1], other, None)

        answers[0] = self._append(workers[0], job, Kill(step=step, meanwhile=meanwhile))
        done = {at for at, answer in answers.items() if not answer.killed and not self._is_again(answer)}
        return [one for at, one in enumerate(jobs) if at not in done]

    # -- other programs ------------------------------------------------------------------------------------------------

    def _change(self, is_quiet: bool) -> Callable[[], None]:
        if is_quiet:
            self._fault(self._look())  # the versions until now, which may be gone after it
        return super()._change(is_quiet)

    def _foreign_changes(self, is_quiet: bool) -> dict[str, Callable[[], object]]:
        target, random, now = self.target, self.random, self.book.timeline[-1]
        if target.files() > MOST_FILES and "compaction" in target.changes:
            return {"compaction": self._tagged(target.changes["compaction"], lambda rows: rows)}
        new = [(*key(POOL + at), f"foreign:{self.tags}", day(0)) for at in random.sample(range(50), 4)]
        known = [one for one, rows in now.items() if None not in one and len(rows) == 1]
        few = random.sample(known, min(3, len(known)))
        more = [(*one, f"foreign:{self.tags}", day(24)) for one in few]
        older = [one for one, rows in self.book.rows.items() if rows is not None and one not in self.gone]
        back = random.choice(older[-6:])
        new = [row for row in new if None not in row[:2] and row[:2] not in now]
        twice = more[: random.choice([0, 0, 1])]  # keys with several rows
        changes = {
            "append": self._tagged(partial(target.append, [*new, *twice]), partial(_appended, [*new, *twice])),
            "delete": self._tagged(partial(target.delete, few), partial(_without, few)),
            "merge": self._tagged(partial(target.merge, [*new, *more]), partial(_merged, [*new, *more])),
            "rollback": self._tagged(partial(target.go_back, back), lambda _: self.book.rows[back] or {}),
        }
        for name in [one for one in target.changes if one in ("compaction", "new column")]:
            changes[name] = self._tagged(target.changes[name], lambda rows: rows)
        if "expiry" in target.changes:
            changes["expiry"] = partial(target.expire, [one for one in self.book.rows if one != target.head()])
        if not [*new, *twice]:
            del changes["append"]
        if not few:
            del changes["delete"], changes["merge"]
        if is_quiet:
            for name in ("vacuum", "removal of orphan files"):
                if name in target.quiet_changes:
                    changes[name] = self._cleaned(target.quiet_changes[name])
        return changes

    def _tagged(self, change: Callable[[], object], effect: Callable[[Rows], Rows]) -> Callable[[], object]:
        def run() -> None:
            self.tags += 1
            self.target.tag = f"{self.tags}"
            self.effects[self.target.tag] = effect
            change()

        return run

    def _cleaned(self, clean: Callable[[], object]) -> Callable[[], object]:
        """A change after which older versions cannot be read."""

        def run() -> None:
            self._tagged(clean, lambda rows: rows)()
            self.gone |= self.book.rows.keys() - {self.target.head()}

        return run

    # -- the judges ----------------------------------------------------------------------------------------------------

    def _look(self) -> Iterator[str]:
        """Read the versions that are new, the newest one and an older one, and yield the faults."""
        target, book = self.target, self.book
        for path in (self.index / "_shadow" / "loads").glob("[0-9]*.json"):
            record = read_append(storage_at(str(self.index)), int(path.stem))
            if record.table is not None:
                self.records[f"{record.table.writer}/{record.table.number}"] = record
        versions = target.versions()
        for made in versions:
            if made.version not in book.rows:
                yield from self._new_version(made, versions)
        head = target.head()
        self.gone |= book.rows.keys() - {made.version for made in versions}
        now = book.rows.get(head)
        if now is None:
            yield f"version {head}, the newest one, is in no history"
            return
        book.come(now)
        target.rows = [row for rows in now.values() for row in rows]
        yield from self._judge_results()
        yield from self._differences(f"newest version {head}", grouped(target.at(head)), now)
        if self.random.random() < 0.3:
            yield from self._differences(f"Polars at version {head}", grouped(target.polars()), now)
        older = [one for one, rows in book.rows.items() if rows is not None and one not in self.gone]
        if older:
            one = self.random.choice(older)
            yield from self._differences(f"older version {one}", grouped(target.at(one)), book.rows[one] or {})
            yield from self._fetched_older(one)
        if not self.index.exists():
            return
        yield from self._fetched(open_index(str(self.index), newest=True), head, now, FETCHED)
        built = open_index(str(self.index))
        if built.view.snapshot.table is not None and built.view.snapshot.table.version == head:
            yield from self._fetched(built, head, now, FETCHED)
            if self.random.random() < 0.1:  # files of an older version may be gone
                yield from (f"verify: {fault}" for fault in verify(storage_at(str(self.index))).faults)

    def _new_version(self, made: Made, versions: Sequence[Made]) -> Iterator[str]:
        book, of = self.book, {one.version: one for one in versions}
        if made.attempt:
            self.attempts.add(made.attempt)
        if made.tag and any(one.parent == made.version and one.tag == made.tag for one in versions):
            book.rows[made.version] = None
            return
        parent = made.parent
        while book.rows.get(parent) is None and parent in of:
            parent = of[parent].parent
        before, actual = book.rows.get(parent), grouped(self.target.at(made.version))
        where = f"version {made.version}"
        if before is None:
            yield f"{where} follows {parent}, which was never seen"
        elif made.append:
            yield from self._new_commit(made, before, actual)
        elif made.tag:
            yield from self._differences(f"{where} ({made.tag})", actual, self.effects[made.tag](before))
        else:
            yield from self._differences(f"{where} (nobody's)", actual, before)
        book.add(made.version, actual)

    def _new_commit(self, made: Made, before: Rows, actual: Rows) -> Iterator[str]:
        """The faults of a version that Gnomon committed."""
        where, record = f"version {made.version}", self.records.get(made.append)
        if record is None:
            yield f"{where} has the mark {made.append}, and no record has it"
            return
        name = self._name_of(record)
        change = self.named.get(name)
        if not isinstance(change, Change):
            yield f"{where} is of batch {record.batch}, which nobody began"
            return
        self.marks[name].append(made.append)
        self.by_mark[made.append] = made
        if made.append in self.marks[name][:-1] or (len(self.marks[name]) > 1 and change.kind != "unnamed delete"):
            yield f"{where}: batch {name} was committed again: {self.marks[name]}"
        seen = [*self.book.timeline[self.since[name] :], before]
        twice = [one for one in change.last() if len(before.get(one, ())) > 1]
        planned = record.table.change if record.table is not None else None
        if twice and change.kind in ("upsert", "feed") and planned is not None and not planned.replaces_all:
            yield f"{where}: batch {name} replaced a key of several rows, {twice[0]}, unasked"
        expected = after(change, before, seen, actual)
        yield from self._differences(f"{where} ({name}, {change.kind})", actual, expected)

    def _name_of(self, record: Append) -> str:
        return f"unnamed {row_count(record.content)}" if record.batch.startswith("delete ") else record.batch

    def _judge_results(self) -> Iterator[str]:
        """The results of the changes that ended."""
        void = read_log(storage_at(str(self.index))).void
        for name, why in self.refused:
            change = self.named[name]
            assert isinstance(change, Change)
            if not any(len(rows.get(one, ())) > 1 for rows in self._seen(name) for one in change.last()):
                yield f"{name}: no key of it has several rows: {why}"
            self.replaces_all.add(name)
        for name, result in self.results:
            self.ended.add(name)
            yield from self._wrong(result, self.named[name], name)
            if change_of(self.named[name]).kind == "unnamed delete":
                continue
            alive = [mark for mark, one in self.records.items() if one.batch == name and one.number not in void]
            if len(alive) != 1:
                yield f"{name}: ended with the records {alive}"
            elif self.marks[name] != alive:
                yield f"{name}: ended with the record {alive}, the table has {self.marks[name]}"
            else:
                yield from self._wrong_counts(name, result, self.by_mark[alive[0]])
        for mark in self.by_mark:
            if self.records[mark].number in void:
                yield f"{mark} was given up, and is in the table"
        self.results, self.refused = [], []

    def _seen(self, name: str) -> list[Rows]:
        return self.book.timeline[self.since[name] :]

    def _wrong(self, result: dict[str, Any], delivery: Delivery, name: str) -> Iterator[str]:
        change = change_of(delivery)
        if change.kind == "append":
            yield from super()._wrong(result, delivery, name)
        elif result["known_batch"]:
            if self.begun[name] == 1:
                yield f"{name}: said to be known when it first came"
        else:
            parts = ("duplicates_in_batch", "rejected", "absent", "deleting", "written")
            counts = {part: result[part] for part in parts}
            if result["rows_read"] != len(change.rows) or sum(counts.values()) != len(change.rows):
                yield f"{name}: {len(change.rows)} rows, its result says {result['rows_read']} and {counts}"

    def _wrong_counts(self, name: str, result: dict[str, Any], made: Made) -> Iterator[str]:
        before, rows = self.book.rows.get(made.parent), self.book.rows.get(made.version)
        if before is None or rows is None or result.get("rows_deleted") is None:
            return
        keys = [
            one
            for one, (row, deletes) in change_of(self.named[name]).last().items()
            if deletes or rows.get(one) == (row,)
        ]
        gone = sum(len(before.get(one, ())) for one in keys)
        if result["rows_deleted"] != gone:
            yield f"{name}: its result says {result['rows_deleted']} rows deleted; there were {gone}"

    def _differences(self, where: str, actual: Rows, expected: Rows) -> Iterator[str]:
        keys = actual.keys() | expected.keys()
        wrong = sorted((one for one in keys if actual.get(one) != expected.get(one)), key=str)
        self.figures.keys_tried += len(keys)
        self.figures.keys_wrong += len(wrong)
        if wrong:
            shown = f"{wrong[0]} is {actual.get(wrong[0])}, expected {expected.get(wrong[0])}"
            yield f"{where}: {len(wrong)} keys are wrong; {shown}"

    def _fetched(self, index: OpenIndex, version: str, rows: Rows, most: int) -> Iterator[str]:
        """Compare the answers of an index with the rows of a version: of keys that are there and of others."""
        keys = sorted({*rows, *map(key, range(POOL + 50))}, key=str)
        keys = self.random.sample(keys, min(most, len(keys)))
        answers = index.fetch_many(keys)
        found = grouped([tuple(row[name] for name in SCHEMA.names) for answer in answers for row in answer])
        expected = {one: rows[one] for one in keys if one in rows}
        yield from self._differences(f"index at version {version}", found, expected)
        numbers = [(len(answer), len(expected.get(one, ()))) for one, answer in zip(keys, answers, strict=True)]
        if any(answer != of_key for answer, of_key in numbers):
            yield f"index at version {version}: answers are of other keys"

    def _fetched_older(self, version: str) -> Iterator[str]:
        try:
            index = open_index(str(self.index), table_version=version)
        except SnapshotNotFound:  # the index had no snapshot of it
            return
        yield from self._fetched(index, version, self.book.rows[version] or {}, FETCHED)

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, worker: Killable) -> None:
        """A change of nothing, which finishes what others left, and a build."""
        keys = self.index.parent / "nothing.parquet"
        pq.write_table(pa.table({"url": ["nothing"], "n": [0]}), keys)
        self.named["the end"] = Change("the end", keys, [("nothing", 0, "", "")], "delete", (True,))
        self.columns["the end"] = self.target.columns
        self._append(worker, (self.named["the end"], "the end"), None)
        self._do(worker, "build", self.target.name, str(self.index), KEYS)

    def check(self) -> Figures:
        figures, target = self.figures, self.target
        self._fault(self._look())
        rows = self.book.timeline[-1]
        figures.rows_in_source = sum(map(len, rows.values()))
        storage, index = storage_at(str(self.index)), open_index(str(self.index))
        if missing := [name for one, name in self.schedule if not {name, one.name} & self.ended]:
            self._fault([f"batches that never ended: {missing}"])
        if open_ := read_log(storage).open:
            self._fault([f"appends are open: {[one.batch for one in open_]}"])
        if target.staging.exists():
            self._fault([f"staged files are left: {sorted(map(str, target.staging.rglob('*')))}"])
        self._fault(self._fetched(index, "at the end", rows, 10 * POOL))
        self._fault(f"verify: {fault}" for fault in verify(storage).faults)
        if index.view.snapshot.rows != figures.rows_in_source or not index.coverage().is_empty:
            self._fault([f"the index has {index.view.snapshot.rows} rows, the table {figures.rows_in_source}"])
        for version, expected in self.book.rows.items():
            if expected is not None and version not in self.gone:
                self._fault(self._differences(f"version {version}", grouped(target.at(version)), expected))
        kept = {path for one in target.named_files(self.attempts) for path in Path(target.root).glob(one)}
        there = {path for one in ("gnomon*", "data/gnomon-*") for path in Path(target.root).glob(f"{one}/**/*")}
        void = read_log(storage).void  # attempts of changes that were given up are left to the table's clean-up
        given_up = {one.table.number for one in self.records.values() if one.number in void and one.table is not None}
        numbers = {path: re.findall(r"/gnomon-?[0-9a-f]+[n-](\d+)/", str(path))[-1:] for path in there - kept}
        if strays := sorted(
            str(path) for path, number in numbers.items() if path.is_file() and not set(map(int, number)) & given_up
        ):
            self._fault([f"{len(strays)} files of lost attempts are left: {strays[:3]}"])
        return figures


def change_of(delivery: Delivery) -> Change:
    assert isinstance(delivery, Change)
    return delivery


def grouped(rows: Sequence[Row]) -> Rows:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[:2]].append(row)
    return {one: tuple(sorted(of_key)) for one, of_key in found.items()}


def after(change: Change, before: Rows, seen: Sequence[Rows], actual: Rows) -> Rows:
    """The rows after a change. `seen` are those that were there since it began. Where they leave a choice, `actual`
    tells what was chosen."""
    rows = dict(before)
    for one, (row, deletes) in change.last().items():
        was_there, was_absent = any(one in other for other in seen), any(one not in other for other in seen)
        old = before.get(one, ())
        if deletes:
            rows.pop(one, None)
            continue
        new: tuple[Row, ...] = (row,)
        choices = [new]
        if change.kind == "append":
            choices = [tuple(sorted((*old, row)))] if was_absent else []
            choices += [old] if was_there else []
        elif change.kind == "update":
            choices = [new] if old else []
            choices += [old] if was_absent else []
        chosen = actual.get(one, ()) if actual.get(one, ()) in choices else choices[0]
        rows[one] = chosen
        if not chosen:
            del rows[one]
    return rows


def _appended(new: Sequence[Row], before: Rows) -> Rows:
    return grouped([*(row for rows in before.values() for row in rows), *new])


def _without(keys: Sequence[Key], before: Rows) -> Rows:
    return {one: rows for one, rows in before.items() if one not in set(keys)}


def _merged(new: Sequence[Row], before: Rows) -> Rows:
    return {**before, **{row[:2]: (row,) * max(1, len(before.get(row[:2], ()))) for row in new}}

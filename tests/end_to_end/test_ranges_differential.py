"""Ranges of keys of random lakes, compared with DuckDB's rows of the same files in the same order."""

import io
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import IdentityTransform

from gnomon.__main__ import main
from gnomon.btree import BTreeWriter
from gnomon.jobs.build import build
from gnomon.jobs.dedup import delete
from gnomon.service.settings.table import Settings
from gnomon.shadow import FetchStats, OpenIndex
from gnomon.shadow.fetch import Query
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.maintenance import compact, rebucket, vacuum
from gnomon.shadow.storage import storage_at
from tests.jobs.dedup.lake_tables import here
from tests.opened import open_index
from tests.profiles import examples
from tests.service.lake import Client
from tests.shadow.key_values import VALUES

SEED = "GNOMON_RANGES_SEED"  # replaces the seed of the long run
LAKES = "GNOMON_RANGES_LAKES"  # the lakes of a kind in the long run
SQL_TYPES = {"decimal": "decimal(9,2)", "timestamp": "timestamp", "string": "varchar", "binary": "blob"}
PARTS = ["a", "b", "c"]
NEVER_NULL = 0.6  # of the lakes: their rows can be deleted by key


class Lake(Protocol):
    """A source of rows in some of PARTS, which other programs change. `name` is the one for a build, `kinds` are the
    types that its keys may have. `can_delete`: Gnomon deletes rows of it by key."""

    name: str
    root: str
    kinds: Sequence[str]
    partitioned: bool
    can_delete: bool

    def add(self, rows: pa.Table) -> None: ...

    def rewrite(self, chance: random.Random, rows: Callable[[], pa.Table]) -> None:
        """Remove a file, or write other rows to it; in a table, write all its rows to other files."""

    def files(self) -> list[str]:
        """The paths of the live files below `root`."""


class Folder:
    """Parquet files in a folder, or in `p=` folders of it."""

    kinds: Sequence[str] = tuple(VALUES)
    can_delete = False

    def __init__(self, root: Path, schema: pa.Schema, partitioned: bool) -> None:
        self.name = self.root = str(root / "lake")
        self.partitioned, self._made = partitioned, 0

    def add(self, rows: pa.Table) -> None:
        for part in rows.column("p").unique().to_pylist():
            some = rows.filter(pa.compute.equal(rows.column("p"), part)).drop_columns("p")
            folder = f"p={part}/" if self.partitioned else ""
            self._made += 1
            self._write(
                f"{folder}f{self._made}.parquet",
                some if self.partitioned else some.append_column("p", [[part] * len(some)]),
            )

    def rewrite(self, chance: random.Random, rows: Callable[[], pa.Table]) -> None:
        files = self.files()
        path = chance.choice(files)
        if len(files) > 1 and chance.random() < 0.4:
            (Path(self.root) / path).unlink()
            return
        other = rows().drop_columns("p")
        self._write(path, other if self.partitioned else other.append_column("p", [["a"] * len(other)]))

    def _write(self, path: str, rows: pa.Table) -> None:
        whole = Path(self.root) / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, whole, row_group_size=100)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in Path(self.root).rglob("*.parquet"))


class Delta:
    """A Delta table whose deleted rows are in deletion vectors."""

    kinds: Sequence[str] = tuple(VALUES)
    can_delete = True

    def __init__(self, root: Path, schema: pa.Schema, partitioned: bool) -> None:
        self.root, self.partitioned = str(root / "lake"), partitioned
        self.name = f"delta:{self.root}"
        by = ["p"] if partitioned else None
        write_deltalake(
            self.root, schema.empty_table(), partition_by=by, configuration={"delta.enableDeletionVectors": "true"}
        )

    def add(self, rows: pa.Table) -> None:
        write_deltalake(self.root, rows, mode="append")

    def rewrite(self, chance: random.Random, rows: Callable[[], pa.Table]) -> None:
        DeltaTable(self.root).optimize.compact()

    def files(self) -> list[str]:
        return [uri.removeprefix(f"{self.root}/") for uri in DeltaTable(self.root).file_uris()]


class Iceberg:
    """An Iceberg table whose deleted rows are in files of positions."""

    kinds: Sequence[str] = tuple(kind for kind in VALUES if kind != "tinyint")
    can_delete = True

    def __init__(self, catalog: Catalog, schema: pa.Schema, partitioned: bool, name: str) -> None:
        catalog.create_namespace_if_not_exists("db")
        self._catalog, self._name, self.partitioned = catalog, f"db.{name}", partitioned
        made = catalog.create_table(self._name, schema)
        if partitioned:
            with made.update_spec() as update:
                update.add_field("p", IdentityTransform())
        self.name, self.root = f"iceberg:here.{self._name}", made.location().removeprefix("file://")

    def add(self, rows: pa.Table) -> None:
        self._catalog.load_table(self._name).append(rows)

    def rewrite(self, chance: random.Random, rows: Callable[[], pa.Table]) -> None:
        table = self._catalog.load_table(self._name)
        table.overwrite(table.scan().to_arrow())

    def files(self) -> list[str]:
        tasks = self._catalog.load_table(self._name).scan().plan_files()
        return [task.file.file_path.removeprefix("file://").removeprefix(f"{self.root}/") for task in tasks]


class Ends(NamedTuple):
    """The ends of a range as `RangeQuery` takes them."""

    low: tuple[Any, ...] | None = None
    high: tuple[Any, ...] | None = None
    prefix: tuple[Any, ...] | None = None
    inclusive: bool = False


class Rows:
    """The rows of a snapshot in DuckDB, and the ranges that its SQL answers. Equal keys have the order of their files'
    paths, then of their places in the file."""

    def __init__(self, lake: Lake, deleted: set[int], keys: Sequence[str], kinds: dict[str, str]) -> None:
        self.keys, self.kinds = keys, kinds
        self._stored = [key for key in keys if key in kinds]
        self._db = duckdb.connect()
        typed = [f"{key} {SQL_TYPES.get(kinds[key], kinds[key])}" for key in self._stored]
        self._db.execute(f"create table live ({', '.join(typed)}, n bigint, p varchar, file varchar, place bigint)")
        for path in lake.files():
            part = f"'{path.partition('p=')[2][:1]}'" if lake.partitioned else "p"
            self._db.execute(
                f"insert into live select {', '.join(self._stored)}, n, {part}, ?, file_row_number "
                "from read_parquet(?, file_row_number = true, hive_partitioning = false)",
                [path, f"{lake.root}/{path}"],
            )
        if deleted:
            self._db.execute("delete from live where n in (select unnest(?))", [sorted(deleted)])

    def sample(self, chance: random.Random, count: int) -> list[tuple[Any, ...]]:
        """The keys of some rows, without those with NaN or null."""
        rows = self._db.execute(f"select {', '.join(self.keys)} from live order by file, place").fetchall()
        sound = [row for row in rows if all(value is not None and value == value for value in row)]
        return chance.sample(sound, min(count, len(sound)))

    def with_keys(self, keys: Sequence[tuple[Any, ...]]) -> set[int]:
        """The numbers of the rows of keys."""
        found: set[int] = set()
        for key in keys:
            where, values = self._equal(key)
            found |= {n for (n,) in self._db.execute(f"select n from live where {where}", values).fetchall()}
        return found

    def count(self, ends: Ends, parts: Sequence[str] | None) -> int:
        where, values = self._where(ends, parts)
        return int(self._db.execute(f"select count(*) from live where {where}", values).fetchall()[0][0])

    def range(self, ends: Ends, parts: Sequence[str] | None, reverse: bool) -> list[tuple[Any, ...]]:
        """The rows in key order: the key, the number, the file and the place in it."""
        where, values = self._where(ends, parts)
        way = "desc nulls last" if reverse else "asc nulls first"
        order = ", ".join(f"{column} {way}" for column in (*self._stored, "encode(file)", "place"))
        sql = f"select {', '.join((*self.keys, 'n', 'file', 'place'))} from live where {where} order by {order}"
        return self._db.execute(sql, values).fetchall()

    def statistics(self) -> tuple[int, int, int, list[int]]:
        """The numbers of rows, distinct keys, rows with a null in the key, and rows of the most frequent keys."""
        grouped = f"select count(*) as c from live group by {', '.join(self.keys)}"
        rows, keys = self._db.execute(f"select coalesce(sum(c), 0), count(*) from ({grouped})").fetchall()[0]
        has_null = " or ".join(f"{key} is null" for key in self.keys)
        nulls = self._db.execute(f"select count(*) from live where {has_null}").fetchall()[0][0]
        most = self._db.execute(f"{grouped} order by c desc limit 10").fetchall()
        return int(rows), keys, nulls, [count for (count,) in most]

    def _where(self, ends: Ends, parts: Sequence[str] | None) -> tuple[str, list[Any]]:
        conditions, values = ["true"], list[Any]()

        def add(condition: tuple[str, list[Any]], negated: bool = False) -> None:
            conditions.append(f"not ({condition[0]})" if negated else f"({condition[0]})")
            values.extend(condition[1])

        for end in (ends.low, ends.high, ends.prefix):
            if end is not None:
                add(self._parts(end))
        if ends.low is not None:
            add(self._less(self._own(ends.low)), negated=True)
        if ends.high is not None:
            high = self._own(ends.high)
            less, equal = self._less(high), self._equal_own(high)
            add((f"({less[0]}) or ({equal[0]})", less[1] + equal[1]) if ends.inclusive else less)
        if ends.prefix is not None:
            add(self._begins(self._own(ends.prefix)))
        if parts is not None:
            add(("p in (select unnest(?::varchar[]))", [list(parts)]))
        return " and ".join(conditions), values

    def _own(self, given: Sequence[Any]) -> list[tuple[str, Any]]:
        """The stored key columns of the beginning of a key, with their values."""
        return [(key, value) for key, value in zip(self.keys, given, strict=False) if key in self.kinds]

    def _parts(self, given: Sequence[Any]) -> tuple[str, list[Any]]:
        named = [value for key, value in zip(self.keys, given, strict=False) if key not in self.kinds]
        return (" and ".join("p = ?" for _ in named) or "true"), named

    def _equal(self, key: Sequence[Any]) -> tuple[str, list[Any]]:
        part, own = self._parts(key), self._equal_own(self._own(key))
        return f"({part[0]}) and ({own[0]})", part[1] + own[1]

    def _equal_own(self, own: Sequence[tuple[str, Any]]) -> tuple[str, list[Any]]:
        terms = [self._same(*one) for one in own]
        return " and ".join(term for term, _ in terms) or "true", [value for _, some in terms for value in some]

    def _same(self, key: str, value: Any) -> tuple[str, list[Any]]:
        return (f"{key} is null", []) if value is None else (f"coalesce({key} = {self._cast(key)}, false)", [value])

    def _less(self, own: Sequence[tuple[str, Any]]) -> tuple[str, list[Any]]:
        """Whether a key is less than all keys that begin with these values: null is the least value."""
        choices, values = ["false"], list[Any]()
        for i, (key, value) in enumerate(own):
            if value is not None:
                equal = self._equal_own(own[:i])
                choices.append(f"({equal[0]}) and ({key} is null or {key} < {self._cast(key)})")
                values += [*equal[1], value]
        return " or ".join(choices), values

    def _begins(self, own: Sequence[tuple[str, Any]]) -> tuple[str, list[Any]]:
        if not own or not isinstance(own[-1][1], str | bytes):
            return self._equal_own(own)
        *before, (key, last) = own
        equal = self._equal_own(before)
        text = last.encode() if isinstance(last, str) else last
        data = f"encode({key})" if self.kinds[key] == "string" else key
        return f"({equal[0]}) and coalesce(starts_with(hex({data}), ?), false)", [*equal[1], text.hex().upper()]

    def _cast(self, key: str) -> str:
        return f"cast(? as {SQL_TYPES.get(self.kinds[key], self.kinds[key])})"


class Trial:
    """A random lake with its index. Each step changes it; `check` asks some ranges of it."""

    def __init__(
        self, lake_of: Callable[[pa.Schema, bool], Lake], kinds: Sequence[str], folder: Path, seed: int
    ) -> None:
        self.chance, self.index = random.Random(seed), str(folder / "index")
        chance = self.chance
        names = [f"k{i}" for i in range(chance.choice([1, 1, 1, 2, 3]))]
        self.kinds = {name: chance.choice(kinds) for name in names}
        self._nulls = 0.0 if chance.random() < NEVER_NULL else 0.1
        partitioned = chance.random() < 0.6
        self.keys = [*(["p"] if partitioned and chance.random() < 0.2 else []), *names]
        fields = [pa.field(name, VALUES[kind][0]) for name, kind in self.kinds.items()]
        self.schema = pa.schema([*fields, ("n", pa.int64()), ("p", pa.string())])
        self.lake = lake_of(self.schema, partitioned)
        self._made = 0
        self.deleted: set[int] = set()
        self.past: dict[int, Rows] = {}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.what = f"seed {seed}: {type(self.lake).__name__}, keys {[self.kinds.get(key, key) for key in self.keys]}"
        self.lake.add(self.rows())
        flat = chance.choice([None, False, True]) if partitioned else None
        build(
            None,
            self.lake.name,
            self.index,
            self.keys,
            buckets=chance.randrange(1, 6),
            flat=flat,
            order=chance.choice(["hash", "range"]),
        )
        self.remember()

    def value(self, name: str) -> Any:
        return VALUES[self.kinds[name]][1](self.chance)

    def rows(self) -> pa.Table:
        count = self.chance.choice([1, 5, 60, 300])
        columns = {
            name: pa.array(
                [None if self.chance.random() < self._nulls else self.value(name) for _ in range(count)],
                VALUES[kind][0],
            )
            for name, kind in self.kinds.items()
        }
        begin, self._made = self._made, self._made + count
        parts = [self.chance.choice(PARTS) for _ in range(count)]
        return pa.table({**columns, "n": pa.array(range(begin, begin + count)), "p": parts}).cast(self.schema)

    def remember(self) -> None:
        view = open_index(self.index).view
        self.past[view.snapshot.number] = Rows(self.lake, self.deleted, self.keys, self.kinds)

    def step(self) -> None:
        chance, storage = self.chance, storage_at(self.index)
        rewritten = chance.random()
        if rewritten < 0.3:
            self.lake.rewrite(chance, self.rows)
        if rewritten > 0.2:
            self.lake.add(self.rows())
        build(None, self.lake.name, self.index, self.keys, accept_vanished=True)
        self.remember()
        if self.lake.can_delete and chance.random() < 0.6:
            self._delete()
        turn = chance.random()
        if turn < 0.3:
            compact(storage)
        elif turn < 0.7:
            flat = chance.choice([None, False, True]) if self.lake.partitioned else None
            rebucket(storage, chance.randrange(1, 9), flat, chance.choice(["hash", "range"]))
        self.remember()
        if chance.random() < 0.2:
            vacuum(storage, 0, unnamed_seconds=0)
            self.past = dict(list(self.past.items())[-1:])

    def _delete(self) -> None:
        now = self.past[max(self.past)]
        if gone := now.sample(self.chance, self.chance.choice([1, 5])):
            numbers = now.with_keys(gone)
            delete(None, self.index, gone)
            self.deleted |= numbers
            self.counts["deleted rows"] += len(numbers)
            self.remember()

    # -- ranges --------------------------------------------------------------------------------------------------------

    def check(self, ranges: int) -> None:
        opened = open_index(self.index)
        masks = sum(bool(segment.masks) for segment in opened.view.segments)
        self.counts["masked segments"] += masks
        found, expected = opened.statistics(), self.past[max(self.past)].statistics()
        if (
            counted := (found.rows, found.distinct_keys, found.null_rows, [rows for _, rows in found.frequent])
        ) != expected:
            self.faults.append(f"{self.what}: statistics {counted}, expected {expected}")
        self.counts["statistics"] += 1
        for _ in range(ranges):
            snapshot = self.chance.choice(list(self.past)) if self.chance.random() < 0.2 else None
            asked = opened if snapshot is None else open_index(self.index, snapshot)
            ends, where, reverse = self.ends(), self.where(asked), self.chance.random() < 0.5
            self.counts["ranges"] += 1
            try:
                fault = self.compare(asked, ends, where, reverse, snapshot)
            except Exception as error:  # noqa: BLE001  (each is a fault)
                fault = f"{type(error).__name__}: {error}"
            if fault:
                self.counts["wrong"] += 1
                self.faults.append(
                    f"{self.what}: {ends}, where {where}, reverse {reverse}, snapshot {snapshot}: {fault}"
                )

    def compare(self, opened: OpenIndex, ends: Ends, where: Any, reverse: bool, snapshot: int | None) -> str:
        """The first difference between the answers of the index and DuckDB's; "" for none."""
        rows = self.past[snapshot or max(self.past)]
        parts = None if where is None else [where["p"]] if isinstance(where["p"], str) else where["p"]
        expected = rows.range(ends, parts, reverse)
        self.counts["rows"] += len(expected)
        ends_of = {
            "low": ends.low,
            "high": ends.high,
            "prefix": ends.prefix,
            "inclusive": ends.inclusive,
            "where": where,
        }
        if (count := opened.count(**ends_of)) != len(expected) or count != rows.count(ends, parts):
            return f"count {count}, expected {len(expected)}"
        limit = self.chance.choice([None, 0, 1, 7, 100])
        places = [row[-2:] for row in expected[:limit]]
        query = RangeQuery(**ends_of, reverse=reverse, limit=limit)
        tables = list(opened.entry_tables(query))
        columns = [table.select(["data_filename", "data_offset"]).to_pydict().values() for table in tables]
        if (found := [pair for column in columns for pair in zip(*column, strict=True)]) != places:
            return difference(found, places)
        if snapshot is not None:
            return ""  # files that it covers may be gone
        shown = [repr(row[:-2]) for row in expected]
        got = [
            repr(tuple(row[name] for name in (*self.keys, "n")))
            for row in opened.range(**ends_of, reverse=reverse, limit=limit)
        ]
        if got != shown[:limit]:
            return difference(got, shown[:limit])
        arrow = [row for table in opened.range_tables(query, ["n"]) for row in table.column("n").to_pylist()]
        numbers = [row[-3] for row in expected]
        if arrow != numbers[:limit]:
            return difference(arrow, numbers[:limit])
        return self.paged(opened, RangeQuery(**ends_of, reverse=reverse), numbers)

    def paged(self, opened: OpenIndex, query: RangeQuery, expected: list[int]) -> str:
        """The pages of a range, joined."""
        size = self.chance.choice([7, 40, 1000])
        found, after, pages, is_last = list[int](), None, 0, False
        while not is_last and pages < len(expected) // size + 2:
            page = opened.first_page(replace(query, limit=size, after=after), Query([], FetchStats(), columns=["n"]))
            found += [row["n"] for row in page.rows]
            after = None if page.cursor is None else page.cursor.text(opened.spec)
            is_last, pages = page.is_last, pages + 1
        self.counts["pages"] += pages
        return difference(found, expected) if found != expected or not is_last else ""

    def check_other_faces(self) -> None:
        """Compare ranges by HTTP, page by page, and by the command, where the key is one text."""
        if list(self.kinds.values()) != ["string"] or self.keys != ["k0"]:
            return
        client, rows = Client(Settings(indexes=[self.index])), self.past[max(self.past)]
        for reverse in (False, True):
            prefix = self.chance.choice(["", "a", "ab", "é", "zz"])
            numbers = [row[1] for row in rows.range(Ends(prefix=(prefix,)), None, reverse)]
            found = list(by_http(client, prefix, reverse))
            if found != numbers:
                self.faults.append(f"{self.what}: HTTP, {prefix!r}: {difference(found, numbers)}")
            with redirect_stdout(io.StringIO()) as out:
                main(["get", self.index, "--prefix", prefix, "--columns", "n", *["--reverse"] * reverse])
            found = [json.loads(line)["n"] for line in out.getvalue().splitlines()]
            if found != numbers:
                self.faults.append(f"{self.what}: gnomon get, {prefix!r}: {difference(found, numbers)}")
            self.counts["prefixes by HTTP and command"] += 1

    def ends(self) -> Ends:
        """Random ends: of all columns of the key or the first ones; some are the keys of rows."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.1:
            return Ends()
        if kind < 0.4:
            return Ends(prefix=self._short(self._beginning()))
        low, high = self._beginning(), self._beginning()
        if self.keys[0] == "p":  # both name one partition
            high = (low[0], *high[1:])
        if chance.random() < 0.25:
            return Ends(low=low)
        return Ends(None if chance.random() < 0.3 else low, high, inclusive=chance.random() < 0.5)

    def _beginning(self) -> tuple[Any, ...]:
        count = self.chance.randrange(1, len(self.keys) + 1)
        chosen = [self.chance.choice(PARTS) if name == "p" else self._end(name) for name in self.keys[:count]]
        return tuple(chosen)

    def _end(self, name: str) -> Any:
        return None if self.chance.random() < 0.05 else self.value(name)

    def _short(self, begin: tuple[Any, ...]) -> tuple[Any, ...]:
        """With the beginning of its last value, where that is a text."""
        last = begin[-1]
        if isinstance(last, str | bytes) and self.keys[len(begin) - 1] != "p":
            return (*begin[:-1], last[: self.chance.randrange(len(last) + 1)])
        return begin

    def where(self, opened: OpenIndex) -> dict[str, Any] | None:
        if not self.lake.partitioned or self.chance.random() < 0.6:
            return None
        known = sorted({str(values["p"]) for values in opened.view.partition_values.values()})
        return {"p": self.chance.choice([known[0], known[-1], known[:2]])} if known else None


def by_http(client: Client, prefix: str, reverse: bool) -> Iterator[int]:
    target = f"/rows?_prefix={quote(prefix, safe='')}&_columns=n&_limit=17{'&_reverse=true' * reverse}"
    while target:
        response = client.get(target)
        if response.status_code == 404:
            return
        answer = response.json()
        yield from (row["n"] for row in answer["rows"])
        target = answer.get("next", "")


def difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    pairs = enumerate(zip(found, expected, strict=False))
    place = next((i for i, (one, other) in pairs if one != other), min(len(found), len(expected)))
    some = slice(place, place + 3)
    return f"{len(found)} rows, expected {len(expected)}; at {place} {found[some]}, expected {expected[some]}"


LAKES_OF = ["folder", "delta", "iceberg"]


def tried(
    kind: str, folder: Path, seeds: Sequence[int], steps: int, ranges: int, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Check random lakes of a kind. Index files have small nodes, so that their trees are high."""
    monkeypatch.setattr("gnomon.shadow.lookup.index_files.BTreeWriter", partial(BTreeWriter, node_bytes=512))
    catalog = here(folder, monkeypatch) if kind == "iceberg" else None
    counts, faults = Counter[str](), list[str]()
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        of_files = Folder if kind == "folder" else Delta
        lake_of = partial(Iceberg, catalog, name=f"t{seed}") if catalog else partial(of_files, place)
        kinds: Sequence[str] = Iceberg.kinds if catalog else tuple(VALUES)
        with monkeypatch.context() as small:
            chance = random.Random(seed)
            small.setattr("gnomon.shadow.index.PAGE_ROWS", chance.choice([7, 50, 1000]))
            small.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", chance.choice([3, 64, 4096]))
            trial = Trial(lake_of, kinds, place, seed)
            for _ in range(steps):
                trial.check(ranges)
                trial.step()
            trial.check(ranges)
            trial.check_other_faces()
        counts += trial.counts
        faults += trial.faults
    print(f"{kind}: {len(seeds)} lakes, {dict(counts)}")
    assert not faults, "\n".join([f"{len(faults)} of {counts['ranges']} ranges are wrong", *faults[:5]])
    return counts


@pytest.mark.parametrize("kind", LAKES_OF)
def test_ranges_of_random_lakes_are_duckdbs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = tried(kind, tmp_path, (1, 5011), steps=3, ranges=examples(60), monkeypatch=monkeypatch)
    assert counts["rows"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("kind", LAKES_OF)
def test_thousands_of_ranges_of_random_lakes_are_duckdbs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, lakes = int(os.environ.get(SEED, "1000")), int(os.environ.get(LAKES, "30"))
    tried(kind, tmp_path, range(begin, begin + lakes), steps=5, ranges=20, monkeypatch=monkeypatch)

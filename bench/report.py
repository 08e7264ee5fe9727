"""The page docs/benchmarks.md, made of bench/results: `make bench-report`, or `python -m bench.report`.

`SECTIONS` says which columns and rows of the results the page shows. The newest run that has such a table counts.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.page import RESULTS, head, row

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
WIDTH = 120
OLD = "rows of the batch that are old"
RunFacts = dict[str, Any]  # a run as `page.Report` records it
START = """
`make bench-report` writes this page from `bench/results/`, which has all rows and columns of each result, the versions
of the libraries, and older runs. With `--record` a workload adds its result there; `--help` shows options for smaller
runs.

All contenders of a table had the same rows, on one machine, in turns, and gave the same answers. They are warm unless
the table says *cold*. Compare the ratios, not the times. *Load* is the load of the machine when measuring began. The
machine, unless a run names another: {machine}.
"""


class Shown(NamedTuple):
    """A table of the page: rows of all tables of a run that have these columns and a title that matches `titles`. A row
    is shown where its texts, with ` | ` between them, match `rows`. Both are regular expressions."""

    columns: Sequence[str]
    rows: str = ""
    titles: str = ""


class Section(NamedTuple):
    """A workload on the page: what it measures, its tables, and what was learned."""

    heading: str
    workload: str
    measures: str
    shown: Sequence[Shown]
    learned: str = ""


MANY = ("get_many µs a key", "contains_many µs a key")
DELAYS = "store with the delays of S3"
SECTIONS = (
    Section(
        "Fetch by key",
        "fetch",
        """All columns of the row of a URL, 1 to 9 KB, as Python values for one caller, from a made-up crawl in six
        partitions. *Pages known*: its pages were read before, and are not in memory.""",
        [Shown(["", "p50 ms", "p99 ms", "read a fetch", "extra disk"], "^(?!.*absent)", "as Spark writes it")],
        """A copy in SQLite or Lance answers as fast or faster, but needs its disk and a load each night. The time of a
        scan grows with the table, that of Gnomon with the partitions. The goals of 0.6 ms in process (page known) and
        1.5 ms over HTTP are missed.""",
    ),
    Section(
        "Known pages",
        "known_pages",
        """The same fetch with [compiled loops](internals/kernel.md) and with loops in Python. `build
        --page-maps deep` records [deep maps](guide/build.md#page-maps).""",
        [Shown(["state", "in Python, ms", "compiled, ms", "compiled, read KB"], "as Spark writes it")],
    ),
    Section(
        "Iceberg engines through an index",
        "catalog",
        """Spark with and without [gnomon catalog](guide/iceberg-catalog.md) on two equal tables of 10,000 files, whose
        keys lie in the files at random. The index is of the first version.""",
        [Shown(["statement", "keys", "with, s", "without, s", "times", "files with", "files without", "read with"])],
        """Spark's own work is the rest: 1,000 keys lie in 955 files, which are read and, by MERGE and DELETE, get a
        file of deletes each.""",
    ),
    Section(
        "Rows changed by key",
        "change",
        """[Deletes and upserts](guide/change.md) in tables of 10,000 files, whose keys lie in the files at random.
        *Read* and *written* are bytes of the process with its libraries, of Spark those of its tasks. A contender is
        given up after the time shown.""",
        [
            Shown(["change", "keys", "contender", "s", "times Gnomon's", "read", "written", "peak"], titles=", 10,"),
            Shown(["change", "keys", "contender", "s", "times Gnomon's", "read", "written", "peak"], titles=", 100,"),
        ],
        """deltalake rewrites files, so that its time grows with the table, and a change of most files of a small table
        is faster there. Gnomon's time is that of the table's metadata, and of the keys.""",
    ),
    Section(
        "Ranges of keys",
        "ranges",
        """The first 100 keys and rows of prefixes and ranges that have 1,000 keys each, of 100 million URLs that lie in
        100 files at random. Then pages of 5 million URLs from a store that takes 100 ms to its first byte.""",
        [
            Shown(["first", "contender", "extra data", "first ms", "p50 ms", "longest ms"], titles="Local"),
            Shown(["100 ms to the first byte", "buckets", "what", "ms", "requests", "one after another"]),
        ],
        """A hundred rows lie in a hundred pages of each of four columns, which are decoded; a copy has them together.
        [Two orders of buckets](internals/decisions/ranges-of-keys.md) says when ranges pay.""",
    ),
    Section(
        "Formats",
        "formats",
        """Fetches in process from the same 20,000 pages, as one file of each format.""",
        [Shown(["p50 ms", "read a fetch"], r"^Gnomon in process \|")],
        """The time depends on the smallest unit that a reader can read: some rows in Avro, some hundred in Parquet,
        10,000 in ORC.""",
    ),
    Section(
        "The B-Tree file",
        "btree",
        """One index file beside other files that find entries by key, in one thread; then nodes of other sizes and
        codecs.""",
        [
            Shown(["", "write", "bytes an entry", "get µs", *MANY, "scan"], "^(?!plain)", "URLs"),
            Shown(["", "bytes an entry", "get µs", *MANY], "^(?!plain)", "bigint"),
            Shown(["codec, node before compression", "bytes an entry", "get µs"], "^(deflate, (8|16)|zst.*, 8|Dione)"),
        ],
        """Many keys in one call are found fastest where the leaves are in memory; one key by RocksDB, which searches a
        block by bisection. Any Avro reader reads our file. Deflate and 8 KiB stay the default: zstandard is optional in
        Avro readers, and longer nodes make look-ups slower.""",
    ),
    Section(
        "One large index file",
        "large",
        """A hundred million entries in one bucket. A *cold* file was never opened.""",
        [
            Shown(["bytes", "bytes an entry", "nodes", "levels", "memory, most"]),
            Shown(["look-up", "dependent reads, most", "bytes, mean", "p50 µs"]),
        ],
    ),
    Section(
        "Many keys in one index file",
        "match",
        """CPU time of a task of a join or an append: *find* looks up key by key, *match* all sorted keys in Arrow.
        *There* is the share of keys that exist.""",
        [Shown(["keys", "there", "find, µs a key", "match, µs a key", "way"], r"^string \| (10,000|1,000,000) ")],
    ),
    Section(
        "Builds",
        "build",
        """An index of narrow, unsorted rows, with read-back, filters and commit, beside Spark's own shuffle, sort and
        Parquet write of the same entries.""",
        [Shown(["", "wall s", "µs of CPU an entry", "bytes an entry"], "", "^(1|10|50),000,000 ")],
        """Gnomon also sorts equal keys by file and row, so that the same source gives the same bytes.""",
    ),
    Section(
        "Engines",
        "engines",
        """Whole commands, with their start, by Spark and in one process. Both wrote the same bytes.""",
        [Shown(["", "local: s", "local: peak MB", "Spark: s", "Spark: peak MB"])],
        """On one machine Spark's start is most of its time.""",
    ),
    Section(
        "Dione",
        "dione",
        """Dione's job and readers on Spark 3.5.3, beside Gnomon.""",
        [Shown(["", "Dione", "Gnomon by Spark", "Gnomon without Spark"], r"^(index|one row by its key|rows of)")],
    ),
    Section(
        "Partitions",
        "partitions",
        """Look-ups that name no partition, in an index in partitions and in a flat one (`build --flat`).""",
        [Shown(["layout", "partitions", "present key µs", "absent key µs"])],
        """A look-up checks the filter of each partition; a flat index has one set of filters.""",
    ),
    Section(
        "Lake tables",
        "tables",
        """Delta and Iceberg tables with deletion vectors, beside their readers (DuckDB sees no deletes here); builds in
        one process after changes; and commands on tables of 100,000 files.""",
        [
            Shown(["", "1 key, ms", "10 keys, ms", "1,000 keys, ms", "1,000 keys, CPU ms", "10,000 keys, ms"]),
            Shown(["after", "Delta, ms", "Iceberg, ms"]),
            Shown(["", "s", "peak memory MB"]),
        ],
        """Ten thousand keys lie in nearly all pages: DuckDB scans them on all cores in less time. Pages of the Iceberg
        table have 20,000 rows, which take 40 MB where rows are wide.""",
    ),
    Section(
        "Row ids and compaction",
        "repoint",
        """After a compaction: a build of the new files, or new pointers for the old entries by row lineage.""",
        [Shown(["way", "s"], r"\| all \|")],
        """**Decision: builds do not use row lineage.** The writes dominate both ways, and Spark would have to shuffle
        the row ids.""",
    ),
    Section(
        "Loads",
        "load",
        """The rows of a share of the keys of a table of rows of 5 KB, beside Spark's joins; then 0.1 % of the keys of
        smaller tables, in seconds.""",
        [
            Shown(["rows wanted", "contender", "s"], r"^(0\.1|1) %.*(Gnomon|join)", " of 5 KB, 5"),
            Shown(["table", "Gnomon load", "sort-merge join", "broadcast join"]),
        ],
        """On two cores a load is faster than a sort-merge join from about 0.1 GB, and than a broadcast join from about
        0.5 GB.""",
    ),
    Section(
        "Appends",
        "dedup",
        """A batch of a million rows, of which a share is old: the check for new rows, and the whole append, which
        Gnomon also indexes.""",
        [
            Shown([OLD, "contender", "s"], "^(1|90)%.*(Gnomon|anti)", "narrow.*check.*into (1|50),"),
            Shown([OLD, "contender", "s"], "^10%.*(Gnomon|anti)", "narrow.*append.*into (1|50),"),
        ],
        """If most of a batch is old and the table is small, the anti join is faster.""",
    ),
    Section(
        "The service under load",
        "serve",
        """Requests at constant rates, timed from when they were due: the greatest rate with a p99 of at most 250 ms,
        half of it, and a tenth; then 500 requests a second. *Requests a CPU s* counts the CPU of all processes of the
        service. Then rows in process from a store with 100 ms to the first byte, and from one with the
        delays of S3 (p50 63, p99 78 ms); the memory in ten minutes; and shorter runs with compiled loops.""",
        [
            Shown(
                ["load", "requested/s", "p50 ms", "p99 ms", "requests a CPU s"],
                "^(greatest|half|a tenth|warm, .* 500 )",
                "^(Gnomon, Parquet|SQLite|hello)",
            ),
            Shown(["store with 100 ms to the first byte", "p50 ms", "one after another"], "first fetch"),
            Shown([DELAYS, "p50 ms", "p99 ms", "GETs", "one after another", "dollars a million rows"]),
            Shown(["memory", "at the start", "after a tenth", "at the end"]),
        ],
        """The goal of 1,200 requests a second with one worker is met. That of 1,500 for a second of CPU is met at the
        greatest load and, for warm keys, at 1,000 a second (1,724), and missed at lower rates, where hello's figure
        falls, too. Missed are 2,000 requests a second with two workers, which share two cores with the generator, and
        4,000 for a second of CPU for absent keys: hello has 2,614 at 500 a second. So are those of a row from a store
        with the delays of S3, 140 ms cold and 75 ms with a warm [cache folder](operations/cache-folder.md): a read
        takes 63 ms there, and an answer waits for the slowest of those that are made side by side. The time of a
        request, sampled [before](internals/flame-before.png) and [later](internals/flame-now.png), when FastAPI was
        still there: 54 % for the row, 27 % for the rest of the service, 12 % for uvicorn, Starlette, FastAPI and
        asyncio, 7 % for writes to the socket.""",
    ),
    Section(
        "The service under misuse",
        "overload",
        """The settings of `deploy/gnomon.toml` in 2 GiB of memory, while another client asks for single keys.""",
        [Shown(["load", "memory", "singles right", "p99 ms"])],
    ),
)


def page(folder: Path = RESULTS) -> str:
    """The text of the page. ValueError where a result lacks a table or a row that the page shows."""
    results = {one.workload: json.loads((folder / f"{one.workload}.json").read_text())["runs"] for one in SECTIONS}
    [(machine, _)] = Counter(run["machine"] for runs in results.values() for run in runs).most_common(1)
    start = START.format(machine=machine).strip()
    return "\n\n".join(["# Benchmarks", start, *(_section(one, results[one.workload], machine) for one in SECTIONS)])


def _section(section: Section, runs: Sequence[RunFacts], machine: str) -> str:
    parts, last = [f"## {section.heading}", _wrapped(section.measures)], None
    for shown in section.shown:
        try:
            run, table = _newest(runs, shown)
        except LookupError as error:
            raise ValueError(f"bench/results/{section.workload}.json: {error}") from error
        parts += [f"    {run['command']}", *_facts(run, machine)] if run is not last else []
        parts.append(table)
        last = run
    return "\n\n".join([*parts, _wrapped(section.learned)]).rstrip() + ("\n" if section is SECTIONS[-1] else "")


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False, break_long_words=False)


def _facts(run: RunFacts, machine: str) -> list[str]:
    """The line about a run, where something is known about it."""
    named = {"": run["date"], "commit ": run["commit"], "load ": run["load"]}
    known = [f"{name}{fact}" for name, fact in named.items() if fact is not None]
    known += [run["machine"]] if run["machine"] not in (None, machine) else []
    return [f"{'; '.join(known)}."] if known else []


def _newest(runs: Sequence[RunFacts], shown: Shown) -> tuple[RunFacts, str]:
    """The newest run that has such tables, and their rows as one table in Markdown. LookupError where there is none."""
    for run in runs:
        tables = [one for one in run["tables"] if set(shown.columns) <= set(one["columns"])]
        if tables := [one for one in tables if re.search(shown.titles, one["title"])]:
            return run, _table(tables, shown)
    raise LookupError(f"no run has a table {shown.titles!r} with the columns {', '.join(shown.columns)}")


def _table(tables: Sequence[dict[str, Any]], shown: Shown) -> str:
    """The rows. Where there are several tables, the first row of each has its title in a column before the others."""
    several = len(tables) > 1
    lines = head([*([""] if several else []), *shown.columns])
    for table in tables:
        places = [table["columns"].index(column) for column in shown.columns]
        chosen = [cells for cells in table["rows"] if re.search(shown.rows, " | ".join(cells))]
        if not chosen:
            raise LookupError(f"no row of {table['title']!r} matches {shown.rows!r}")
        for cells in chosen:
            title = [table["title"] if cells is chosen[0] else ""] if several else []
            lines.append(row([*title, *(cells[place] for place in places)]))
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())

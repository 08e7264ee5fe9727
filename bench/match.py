"""Many keys against the entries of one index file, as in a task of a join or an append: `python -m bench.match`.

The index has made-up entries (no source is read) with text and with bigint keys. The figures are CPU time of one
process. The table goes to standard output.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer

from bench.btree import WrongAnswer
from bench.large import batches as url_batches
from bench.large import url
from bench.page import RecordOption, Report, digits, head, row
from gnomon.btree.keys import stored_values
from gnomon.commands.output import say
from gnomon.shadow import OpenIndex
from gnomon.shadow.commit.rebase import Changes
from gnomon.shadow.lookup.batch import MatchStats
from gnomon.shadow.lookup.index_files import write_index_file
from gnomon.shadow.lookup.plan import ParsedKey
from gnomon.shadow.maintenance.compaction import publish_build
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.manifests import SourceFileEntry
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.storage import storage_at
from gnomon.shadow.storage.contract import probe
from tests.opened import open_index

BENCH = "bench.match"
LIBRARIES = ("gnomon-index", "pyarrow", "numpy", "isal")
SEGMENT = "bench"
STEP = 7  # between two bigint keys; those between are absent
MOST_ONE_BY_ONE = 100_000  # keys; more take minutes
COLUMNS = (
    "", "keys", "there", "find, µs a key", "match, µs a key", "times", "holds, µs a key", "read", "way",
)  # fmt: skip

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Workload(NamedTuple):
    """Entries with keys of a type: key `i` of the present ones, and of the absent ones."""

    kind: str
    present: Callable[[int], Any]
    absent: Callable[[int], Any]


WORKLOADS = (
    Workload("bigint", lambda i: i * STEP, lambda i: i * STEP + 3),
    Workload("string", url, lambda i: url(i) + "x"),
)


def entries_of(kind: str, entries: int) -> Iterator[pa.Table]:
    """The entries in key order."""
    at = 0
    for batch in url_batches(entries):
        key = batch["url"] if kind == "string" else pa.array(np.arange(at, at + len(batch)) * STEP)
        at += len(batch)
        yield batch.drop_columns(["url"]).add_column(0, "k", key)


def make(folder: Path, kind: str, entries: int) -> OpenIndex:
    """An index of one bucket."""
    shutil.rmtree(folder, ignore_errors=True)
    storage = storage_at(str(folder))
    probe(storage)
    spec = IndexSpec(Folder(f"{folder}-source"), "parquet", (), (KeyColumn("k", kind),), (), 1)
    file = write_index_file(storage, spec, SEGMENT, "", 0, entries_of(kind, entries))
    names = next(entries_of(kind, 1000))["data_filename"].unique().to_pylist()
    sources = [SourceFileEntry(f"{name}", "", entries // len(names), 1, 1, "") for name in names]
    publish_build(storage, spec, None, Changes("build", [file], sources, {}, {"k": kind}), SEGMENT, None)
    return open_index(str(folder))


class Cost(NamedTuple):
    """Microseconds of CPU per key, keys found, and the work done."""

    micros: float
    found: int
    stats: MatchStats


def ask(folder: Path, keys: pa.Array, way: str) -> Cost:
    """Look the keys up in an index that was just opened. Opening does not count."""
    index, stats = open_index(str(folder)), MatchStats()
    batch = pa.record_batch({"k": keys})
    begin = time.process_time()
    if way == "find":
        wanted = [ParsedKey((value,)) for value in stored_values(keys, index.spec.key_types[0])]
        found = sum(map(bool, index.find(wanted, stats)))
    elif way == "match":
        found = sum(len(some.rows) for some in index.match_pieces(batch, {}, stats))
    else:
        found = index.holds(batch, {}, stats).true_count
    return Cost((time.process_time() - begin) * 1e6 / len(keys), found, stats)


def line(folder: Path, workload: Workload, entries: int, count: int, share: float) -> list[str]:
    """The cells for this number of keys, sorted, of which `share` exist."""
    chance = random.Random(count)
    there = round(count * share)
    some = chance.sample(range(entries), count)
    keys = [workload.present(i) for i in some[:there]] + [workload.absent(i) for i in some[there:]]
    array = pa.array(sorted(keys))
    costs = {
        way: ask(folder, array, way) for way in ("find", "match", "holds") if way != "find" or count <= MOST_ONE_BY_ONE
    }
    for way, cost in costs.items():
        if cost.found != there:
            raise WrongAnswer(f"{way} found {cost.found} of {there} keys")
    match, find = costs["match"], costs.get("find")
    stats = match.stats
    ways = {"key by key": stats.files_by_key, "leaf by leaf": stats.files_by_leaf, "whole": stats.files_read_whole}
    way = next((name for name, files in ways.items() if files), "filter alone")
    return [
        workload.kind,
        f"{count:,}",
        f"{share:.0%}",
        digits(find.micros) if find else "",
        digits(match.micros),
        f"{find.micros / match.micros:.0f}x" if find else "",
        digits(costs["holds"].micros),
        f"{stats.bytes / 1e6:,.1f} MB",
        way,
    ]


def measure(entries: int, counts: Sequence[int], folder: Path) -> str:
    """The results as Markdown."""
    lines = head(COLUMNS)
    for workload in WORKLOADS:
        say(f"{workload.kind}: writing {entries:,} entries ...")
        make(folder, workload.kind, entries)
        for count in counts:
            for share in (1.0, 0.5, 0.0):
                lines.append(row(line(folder, workload, entries, count, share)))
                say(lines[-1])
        shutil.rmtree(folder)
    return "\n".join(lines) + "\n"


@app.command()
def match(
    entries: Annotated[int, typer.Option(help="Entries of the index.", min=1000)] = 10_000_000,
    keys: Annotated[int, typer.Option(help="The largest number of keys.", min=1000)] = 1_000_000,
    folder: Annotated[Path, typer.Option(help="Where the index goes; replaces it.")] = Path(".bench/match"),
    record: RecordOption = False,
) -> None:
    """Look up 1000 keys, and ten times as many until the most, in one index file."""
    report = Report(BENCH, LIBRARIES, {"entries": entries, "keys": keys})
    counts = [count for count in (10**power for power in range(3, 10)) if count <= keys]
    report.say(measure(entries, counts, folder))
    report.record(record)


if __name__ == "__main__":
    app()

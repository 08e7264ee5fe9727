"""From the hits of keys to their rows, and what that cost."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from btree.reader import LookupStats
from shadow.entries import entry_rows
from shadow.fetch import Fetcher, FetchReads, Located
from shadow.lookup import Hit, Wanted
from shadow.view import View


@dataclass
class FetchStats:
    """What an answer cost: the index look-up, the reads of the source (and of its page maps), microseconds of each,
    source files touched."""

    snapshot: int = 0
    index: LookupStats = field(default_factory=LookupStats)
    source: FetchReads = field(default_factory=FetchReads)
    source_files: int = 0
    lookup_us: int = 0
    fetch_us: int = 0


@dataclass(frozen=True)
class Answer:
    """The rows of a key, and of how many matches they are (a limit may leave some out)."""

    rows: list[dict[str, Any]]
    count: int


def answers(
    view: View,
    fetcher: Fetcher | None,
    wanted: Sequence[Wanted],
    found: Sequence[Sequence[Hit]],
    columns: Sequence[str],
    limit: int | None,
    stats: FetchStats,
) -> list[Answer]:
    """The rows that the hits of each key lead to; without a fetcher, of a folder of values, the entries themselves."""
    begin = time.perf_counter_ns()
    chosen = [hits[:limit] for hits in found]
    if fetcher is None:
        rows: Iterator[dict[str, Any]] = chain.from_iterable(entry_rows(view, wanted, chosen, columns))
    else:
        located = [Located(hit, key.stored) for key, hits in zip(wanted, chosen, strict=True) for hit in hits]
        rows = iter(fetcher.rows(located, columns, stats.source))
        stats.source_files = len({one.hit.file for one in located})
    made = [Answer([next(rows) for _ in hits], len(all_)) for hits, all_ in zip(chosen, found, strict=True)]
    stats.fetch_us += (time.perf_counter_ns() - begin) // 1000
    return made

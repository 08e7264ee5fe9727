"""Source files that are opened while the index is still asked which of them holds a key: far away, what they say of
themselves then comes in the round of the index file. Only where few can hold it, for most are not needed."""

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.shadow.fetch.fetcher import Fetcher, FetchReads
from gnomon.shadow.fetch.results import FetchStats
from gnomon.shadow.lookup import InFile, covered_in
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Begun
from gnomon.sources import SourceFile

FEW_SOURCES = 8  # of a question


class _Opening(NamedTuple):
    """A source file that was begun, and what that has cost so far."""

    fetcher: Fetcher
    file: SourceFileEntry
    begun: Begun[SourceFile]
    reads: FetchReads


class Ahead:
    """What is opened ahead for one question, until that is answered."""

    def __init__(self, stats: FetchStats) -> None:
        self._stats = stats
        self._openings: list[_Opening] = []

    def begin(self, fetcher: Fetcher, spec: IndexSpec, files: Sequence[InFile]) -> None:
        """Open what source files the entries of these index files may name, where they are few."""
        for file in _named(spec, files):
            reads = FetchReads()
            begun = fetcher.begin(file, reads, self._stats.trace)
            if begun is not None:
                self._openings.append(_Opening(fetcher, file, begun, reads))

    def end(self) -> None:
        """Count what was read. Where each step is told, what was not needed is waited for, so that all costs are."""
        for fetcher, file, begun, reads in self._openings:
            fetcher.end(file)
            if self._stats.trace is not None:
                begun.settle()
            self._stats.source.add(reads)
        self._openings = []


def _named(spec: IndexSpec, files: Sequence[InFile]) -> Sequence[SourceFileEntry]:
    """The live source files among those that index files may name; none where they are many."""
    found: dict[str, SourceFileEntry] = {}
    for segment, entry, _ in files:
        for file in covered_in(spec, segment, entry.partition):
            if file.path in segment.live:
                found[file.path] = file
                if len(found) > FEW_SOURCES:
                    return []
    return list(found.values())

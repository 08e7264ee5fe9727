"""Source files opened during the index look-up. The metadata of a remote source file then arrives in the same round
trip as the index file. This is done only where few files can hold the key, since most of them are not needed."""

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.shadow.fetch.costs import FetchReads, FetchStats
from gnomon.shadow.fetch.fetcher import Fetcher
from gnomon.shadow.lookup import InFile, covered_in
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Begun
from gnomon.sources import SourceFile

FEW_SOURCES = 8  # of a query


class _Opening(NamedTuple):
    """A source file whose read has begun, and the cost so far."""

    fetcher: Fetcher
    file: SourceFileEntry
    begun: Begun[SourceFile]
    reads: FetchReads


class Ahead:
    """The source files that are opened ahead for one query, until it is answered."""

    def __init__(self, stats: FetchStats) -> None:
        self._stats = stats
        self._openings: list[_Opening] = []

    def begin(self, fetcher: Fetcher, spec: IndexSpec, files: Sequence[InFile]) -> None:
        """Open the source files that the entries of these index files may name, where they are few."""
        for file in _named(spec, files):
            reads = FetchReads()
            begun = fetcher.files.begin(file, reads, self._stats.trace)
            if begun is not None:
                self._openings.append(_Opening(fetcher, file, begun, reads))

    def end(self) -> None:
        """Count the reads. If steps are recorded, also wait for the unneeded reads, so that the cost is complete."""
        for fetcher, file, begun, reads in self._openings:
            fetcher.files.end(file)
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

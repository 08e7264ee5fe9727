"""The outcomes of all foreign files as a table: `pytest tests/sources -k corpora -s` prints it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from gnomon.sources import SourceError

COLUMNS = ("format", "class", "files", "rows listed", "equal by scan", "equal by pointer", "read whole", "refused")


@dataclass
class Outcome:
    """The outcome of a file: the number of listed rows, of equal rows in a scan, and of equal rows by pointer; and the
    error in place of rows or after them. A test sets these after its comparison."""

    entry: Mapping[str, str]
    listed: int
    scanned: int = 0
    fetched: int = 0
    error: SourceError | None = None

    @property
    def kind(self) -> tuple[str, str]:
        return self.entry["format"], self.entry["class"]

    @property
    def whole(self) -> bool:
        return self.error is None and self.scanned == self.fetched == self.listed

    def __str__(self) -> str:
        rows = f"{self.listed} rows listed, {self.scanned} equal by scan, {self.fetched} by pointer"
        refused = f"; refused: {type(self.error).__name__}: {self.error}" if self.error else ""
        return f"{' '.join(self.kind)} {self.entry['file']}: {rows}{refused}"


class Tally:
    """The outcomes of a run."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}

    def of(self, entry: Mapping[str, str]) -> Outcome:
        return self._outcomes.setdefault(entry["file"], Outcome(entry, int(entry["expected_rows"] or 0)))

    def report(self) -> str:
        """A line per file, and a table of sums per format and class."""
        outcomes = sorted(self._outcomes.values(), key=lambda one: (one.kind, one.entry["file"]))
        return "\n".join([*map(str, outcomes), "", *table(outcomes)])


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """The sums of outcomes, which are sorted by kind."""
    rows: list[tuple[str, ...]] = [COLUMNS, ("---", "---", *["---:"] * (len(COLUMNS) - 2))]
    for kind, members in groupby(outcomes, lambda one: one.kind):
        group = list(members)
        sums = [
            len(group),
            sum(one.listed for one in group),
            sum(one.scanned for one in group),
            sum(one.fetched for one in group),
            sum(one.whole for one in group),
            sum(one.error is not None for one in group),
        ]
        rows.append((*kind, *(f"{number:,}" for number in sums)))
    return [f"| {' | '.join(row)} |" for row in rows]

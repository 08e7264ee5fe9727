"""The table of foreign files has exactly the compared rows."""

from gnomon.sources import SourceError
from tests.sources.tally import COLUMNS, Tally


def entry(file: str, kind: str, rows: str) -> dict[str, str]:
    return {"file": file, "format": "avro", "class": kind, "expected_rows": rows}


def test_a_file_is_read_whole_only_when_every_listed_row_came_by_scan_and_by_pointer() -> None:
    tally = Tally()
    for file, scanned, fetched in (("a", 3, 3), ("b", 3, 2), ("c", 0, 3), ("d", 0, 0)):
        outcome = tally.of(entry(file, "good", "3"))
        outcome.scanned, outcome.fetched = scanned, fetched
        assert tally.of(entry(file, "good", "3")) is outcome
    tally.of(entry("e", "bad", "")).error = SourceError("no block begins at this position", "e", 16)
    lines = tally.report().splitlines()
    assert lines[0] == "avro bad e: 0 rows listed, 0 equal by scan, 0 by pointer; refused: SourceError: " + str(
        SourceError("no block begins at this position", "e", 16)
    )
    assert lines[1] == "avro good a: 3 rows listed, 3 equal by scan, 3 by pointer"
    assert lines[-4] == f"| {' | '.join(COLUMNS)} |"
    assert lines[-2:] == ["| avro | bad | 1 | 0 | 0 | 0 | 0 | 1 |", "| avro | good | 4 | 12 | 6 | 8 | 1 | 0 |"]

"""Foreign files whose pointers are ordinals (Parquet, ORC): their listed rows, by scan and by pointer."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pyarrow as pa

from gnomon.sources import SourceFile, open_source
from gnomon.sources.pointers import OFFSET
from tests.sources.corpora import canonical, expected_of, reader_of
from tests.sources.tally import Outcome

SINGLES = 12  # rows of each file that are also fetched alone

Rows = Mapping[int, Mapping[str, Any]]


def expected_rows(entry: dict[str, str]) -> dict[int, dict[str, Any]]:
    """The listed rows by ordinal. Of columns with the same name, it has the first, as our reader does."""
    return {one.ordinal: dict(reversed(one.row.get("$pairs", [*one.row.items()]))) for one in expected_of(entry)}


def names_of(source: SourceFile) -> list[str]:
    return list(dict.fromkeys(source.schema.names))


def check_fetch(entry: dict[str, str], expected: Rows, canon: ModuleType, outcome: Outcome) -> None:
    """Check that every listed row is equal when fetched by its pointer."""
    reader = reader_of(entry)
    source = open_source(reader, entry["format"])
    names = names_of(source)
    asked = [*expected][::2] + [*expected][1::2]
    got = canonical(source.fetch(reader, [(ordinal, 0) for ordinal in asked], names), canon)
    for ordinal, row in zip(asked, got, strict=True):
        assert canon.same(expected[ordinal], row), f"row {ordinal}"
    for ordinal in [*expected][:: max(len(expected) // SINGLES, 1)]:
        (alone,) = canonical(source.fetch(reader, [(ordinal, 0)], names), canon)
        assert canon.same(expected[ordinal], alone), f"row {ordinal}"
    outcome.fetched = len(asked)


def check_scan(entry: dict[str, str], expected: Rows, canon: ModuleType, outcome: Outcome) -> int:
    """Check that the scan gives the listed rows at their ordinals. Returns its number of rows."""
    reader = reader_of(entry)
    source = open_source(reader, entry["format"])
    names = names_of(source)
    seen = compared = 0
    for batch in source.scan(reader, names):
        assert batch.column(len(names)).to_pylist() == list(range(seen, seen + batch.num_rows))
        assert batch.schema.names[len(names)] == OFFSET
        wanted = [i for i in range(batch.num_rows) if seen + i in expected]
        table = pa.Table.from_batches([batch]).select(range(len(names)))
        rows = canonical(table.take(pa.array(wanted, pa.int64())), canon)
        assert all(canon.same(expected[seen + i], row) for i, row in zip(wanted, rows, strict=True))
        seen += batch.num_rows
        compared += len(rows)
    assert seen == source.rows
    outcome.scanned = compared
    return seen

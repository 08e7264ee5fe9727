"""Parquet files that other people's writers made, row by row."""

import json
import re
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from sources import SourceError, open_source
from sources.contract import SourceFile
from sources.pointer import OFFSET
from tests.sources.corpora import canonical, expected_of, files_of, load_canon, needs_corpora, reader_of
from tests.sources.readers import BytesReader
from tests.sources.tally import Outcome

SINGLES = 12  # rows of each file that are also fetched alone

pytestmark = needs_corpora


@pytest.fixture(scope="module")
def canon() -> ModuleType:
    return load_canon()


def expected_rows(entry: dict[str, str]) -> dict[int, dict[str, Any]]:
    """Rows by ordinal, as listed; of columns that share a name the first, which is what the name means to us."""
    rows = {one.ordinal: dict(reversed(one.row.get("$pairs", [*one.row.items()]))) for one in expected_of(entry)}
    return {i: cut_to_microseconds(row) for i, row in rows.items()} if entry["int96"] == "True" else rows


def names_of(source: SourceFile) -> list[str]:
    return list(dict.fromkeys(source.schema.names))


def first_rows(reader: BytesReader) -> pa.Table:
    source = open_source(reader, "parquet")
    return source.fetch(reader, [(row, 0) for row in range(min(source.rows, 50))], names_of(source))


def cut_to_microseconds(row: dict[str, Any]) -> dict[str, Any]:
    """As INT96 is read (docs/pointers.md)."""
    cut: dict[str, Any] = json.loads(re.sub(r"(T\d\d:\d\d:\d\d\.\d{6})\d+", r"\1", json.dumps(row)))
    return cut


def check_fetch(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    """Every listed row comes back from its own pointer."""
    reader = reader_of(entry)
    source = open_source(reader, "parquet")
    expected = expected_rows(entry)
    names = names_of(source)
    asked = [*expected][::2] + [*expected][1::2]
    got = canonical(source.fetch(reader, [(ordinal, 0) for ordinal in asked], names), canon)
    for ordinal, fetched in zip(asked, got, strict=True):
        assert canon.same(expected[ordinal], fetched), f"row {ordinal}"
    for ordinal in [*expected][:: max(len(expected) // SINGLES, 1)]:
        (alone,) = canonical(source.fetch(reader, [(ordinal, 0)], names), canon)
        assert canon.same(expected[ordinal], alone), f"row {ordinal}"
    outcome.fetched = len(asked)


def check_scan(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> int:
    """The scan gives the listed rows at their ordinals; how many rows it gives."""
    reader = reader_of(entry)
    source = open_source(reader, "parquet")
    names = names_of(source)
    listed = expected_rows(entry)
    seen = compared = 0
    for batch in source.scan(reader, names):
        assert batch.column(len(names)).to_pylist() == list(range(seen, seen + batch.num_rows))
        assert batch.schema.names[len(names)] == OFFSET
        wanted = [i for i in range(batch.num_rows) if seen + i in listed]
        rows = canonical(pa.table(batch).select(range(len(names))).take(wanted), canon)
        assert all(canon.same(listed[seen + i], row) for i, row in zip(wanted, rows, strict=True))
        seen += batch.num_rows
        compared += len(rows)
    assert seen == source.rows
    outcome.scanned = compared
    return seen


@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    check_fetch(entry, canon, outcome)


@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_scan_of_a_good_file_gives_the_listed_rows_at_their_ordinals(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    assert check_scan(entry, canon, outcome) == int(entry["rows"])


@pytest.mark.parametrize("entry", files_of("parquet", "bad", "bad-partial", "encrypted", "unreadable"))
def test_a_file_that_cannot_be_read_gives_an_error_that_names_it(entry: dict[str, str], outcome: Outcome) -> None:
    reader = reader_of(entry)
    with pytest.raises(SourceError) as caught:
        first_rows(reader)
    assert caught.value.path == entry["file"]
    outcome.error = caught.value


@pytest.mark.parametrize("entry", files_of("parquet", "disputed", "other-reader"))
def test_a_file_readers_disagree_on_gives_the_listed_rows_or_an_error(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    try:
        check_fetch(entry, canon, outcome)
        check_scan(entry, canon, outcome)
    except SourceError as error:
        assert error.path == entry["file"]  # noqa: PT017 - an error is as right as the rows
        outcome.error = error

"""Parquet files of other writers, row by row."""

import json
import re
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from gnomon.sources import SourceError, open_source
from tests.sources.by_ordinal import check_fetch, check_scan, expected_rows, names_of
from tests.sources.corpora import files_of, needs_corpora, reader_of
from tests.sources.readers import BytesReader
from tests.sources.tally import Outcome

pytestmark = needs_corpora


def first_rows(reader: BytesReader) -> pa.Table:
    source = open_source(reader, "parquet")
    return source.fetch(reader, [(row, 0) for row in range(min(source.rows, 50))], names_of(source))


def cut_to_microseconds(row: dict[str, Any]) -> dict[str, Any]:
    """The row with INT96 times in microseconds (docs/reference/formats-and-types.md)."""
    cut: dict[str, Any] = json.loads(re.sub(r"(T\d\d:\d\d:\d\d\.\d{6})\d+", r"\1", json.dumps(row)))
    return cut


def listed_rows(entry: dict[str, str]) -> dict[int, dict[str, Any]]:
    rows = expected_rows(entry)
    return {i: cut_to_microseconds(row) for i, row in rows.items()} if entry["int96"] == "True" else rows


@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    check_fetch(entry, listed_rows(entry), canon, outcome)


@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_scan_of_a_good_file_gives_the_listed_rows_at_their_ordinals(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    assert check_scan(entry, listed_rows(entry), canon, outcome) == int(entry["rows"])


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
        check_fetch(entry, listed_rows(entry), canon, outcome)
        check_scan(entry, listed_rows(entry), canon, outcome)
    except SourceError as error:
        assert error.path == entry["file"]  # noqa: PT017 - an error is as right as the rows
        outcome.error = error

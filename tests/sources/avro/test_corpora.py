"""Avro files of other writers, row by row."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import SourceError, open_source
from gnomon.sources.contract import SourceFile
from tests.sources.corpora import expected_of, files_of, needs_corpora, reader_of
from tests.sources.readers import BytesReader
from tests.sources.source_contract import pointers_of
from tests.sources.tally import Outcome

SINGLES = 12  # rows of each file that are also fetched alone

pytestmark = needs_corpora


def rows_of(entry: dict[str, str], table: pa.Table, names: list[str], canon: ModuleType) -> list[Any]:
    """The canonical rows; a row that is not a record is its value."""
    columns = [[canon.canon(value) for value in python_values(table[name])] for name in names]
    if entry["nested"] == "not a record":
        return columns[0]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def scanned(
    entry: dict[str, str], reader: BytesReader, source: SourceFile, canon: ModuleType
) -> tuple[list[tuple[tuple[int, int], Any]], SourceError | None]:
    """Each row with its pointer, and the error that ended the scan, if any."""
    found: list[tuple[tuple[int, int], Any]] = []
    names = source.schema.names
    try:
        for batch in source.scan(reader, names):
            rows = rows_of(entry, pa.table(batch), names, canon)
            found += zip(pointers_of([batch]), rows, strict=True)
    except SourceError as error:
        return found, error
    return found, None


def check_fetch(
    entry: dict[str, str],
    reader: BytesReader,
    source: SourceFile,
    asked: list[tuple[tuple[int, int], Any]],
    canon: ModuleType,
) -> int:
    """Check that rows are equal when fetched by their pointers, together and alone. Returns their number."""
    names = source.schema.names
    table = source.fetch(reader, [pointer for pointer, _ in asked], names)
    for (pointer, expected), row in zip(asked, rows_of(entry, table, names, canon), strict=True):
        assert canon.same(expected, row), pointer
    for pointer, expected in asked[:: max(len(asked) // SINGLES, 1)]:
        (row,) = rows_of(entry, source.fetch(reader, [pointer], names), names, canon)
        assert canon.same(expected, row), pointer
    return len(asked)


@pytest.mark.parametrize("entry", files_of("avro", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "avro")
    found, error = scanned(entry, reader, source, canon)
    assert error is None
    assert len(found) == int(entry["rows"])
    listed = expected_of(entry)
    for one in listed:
        assert found[one.ordinal][0] == (one.position, one.in_block), f"row {one.ordinal}"
        assert canon.same(one.row, found[one.ordinal][1]), f"row {one.ordinal}"
    outcome.scanned = len(listed)
    asked = [(found[one.ordinal][0], one.row) for one in listed[::2] + listed[1::2]]
    outcome.fetched = check_fetch(entry, reader, source, asked, canon)


@pytest.mark.parametrize("entry", files_of("avro", "good"))
def test_splits_of_a_good_file_give_each_pointer_once(entry: dict[str, str]) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "avro")
    whole = pointers_of(source.scan(reader, []))
    for target in (reader.size // 9 + 1, reader.size // 2):
        splits = source.splits(target)
        assert [pointer for split in splits for pointer in pointers_of(source.scan(reader, [], split))] == whole


@pytest.mark.parametrize("entry", files_of("avro", "bad", "bad-partial"))
def test_a_damaged_file_gives_the_listed_rows_and_an_error_that_names_it(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "avro")
    found, error = scanned(entry, reader, source, canon)
    assert error is not None
    assert error.path == entry["file"]
    listed = expected_of(entry)
    assert len(found) == len(listed)
    for one, (pointer, row) in zip(listed, found, strict=True):
        assert pointer == (one.position, one.in_block)
        assert canon.same(one.row, row)
    outcome.scanned, outcome.error = len(listed), error
    outcome.fetched = check_fetch(entry, reader, source, found, canon)


@pytest.mark.parametrize("entry", files_of("avro", "unreadable"))
def test_a_file_of_another_version_is_refused_by_name(entry: dict[str, str], outcome: Outcome) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(reader_of(entry), "avro")
    assert caught.value.path == entry["file"]
    outcome.error = caught.value


@pytest.mark.parametrize("entry", files_of("avro", "disputed", "other-reader"))
def test_a_file_readers_disagree_on_gives_the_listed_rows(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "avro")
    found, error = scanned(entry, reader, source, canon)
    assert error is None or error.path == entry["file"]
    listed = expected_of(entry)
    assert len(found) == len(listed)
    assert all(canon.same(one.row, row) for one, (_, row) in zip(listed, found, strict=True))
    outcome.scanned, outcome.error = len(listed), error
    outcome.fetched = check_fetch(entry, reader, source, found, canon)

"""CSV and JSON files of other writers, row by row."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from gnomon.sources import SourceError, SourceFile, open_source
from gnomon.sources.pointers import OFFSET, SIZE
from tests.sources.corpora import Expected, expected_of, files_of, needs_corpora, reader_of
from tests.sources.tally import Outcome
from tests.sources.text_corpora import options_of, row_agrees

SINGLES = 12  # rows of each file that are also fetched alone

pytestmark = needs_corpora


def open_entry(entry: dict[str, str]) -> tuple[Any, SourceFile]:
    reader = reader_of(entry)
    return reader, open_source(reader, {"json": "jsonl"}.get(entry["format"], entry["format"]), options_of(entry))


def rows_of(entry: dict[str, str]) -> list[Expected]:
    """The listed rows without blank lines, which are not rows, as in Spark."""
    return [one for one in expected_of(entry) if one.row != []]


GOOD = [*files_of("csv", "good"), *files_of("json", "good")]
DAMAGED = [*files_of("csv", "bad", "bad-partial"), *files_of("json", "bad", "bad-partial", "not-line-delimited")]


@pytest.mark.parametrize("entry", [one for one in GOOD if "latin-1" not in one.values[0]["note"]])
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    reader, source = open_entry(entry)
    expected = {one.position: one for one in rows_of(entry)}
    outcome.listed = len(expected)
    scanned, seen = 0, 0
    for batch in source.scan(reader, source.schema.names):
        scanned += batch.num_rows
        places = [i for i, offset in enumerate(batch[OFFSET].to_pylist()) if offset in expected]
        some = pa.table(batch).take(places)
        seen += len(places)
        for offset, row in zip(some[OFFSET].to_pylist(), some.select(source.schema.names).to_pylist(), strict=True):
            assert row_agrees(expected[offset].row, row, source.schema, canon), offset
    assert seen == len(expected)
    outcome.scanned = seen
    if len(expected) == int(entry["rows"]):
        assert scanned == len(expected)
    positions = list(expected)
    fetched = source.fetch(reader, [(position, 0) for position in positions[::-1]], source.schema.names).to_pylist()
    for position, row in zip(positions[::-1], fetched, strict=True):
        assert row_agrees(expected[position].row, row, source.schema, canon), position
    step = max(len(positions) // SINGLES, 1)
    for position in positions[:: step if entry["compression"] == "none" else len(positions)]:
        (alone,) = source.fetch(reader, [(position, 0)], source.schema.names).to_pylist()
        assert row_agrees(expected[position].row, alone, source.schema, canon), position
    outcome.fetched = len(positions)


@pytest.mark.parametrize("entry", [one for one in GOOD if "latin-1" in one.values[0]["note"]])
def test_a_file_in_another_encoding_is_refused_where_that_shows(entry: dict[str, str], outcome: Outcome) -> None:
    reader, source = open_entry(entry)
    with pytest.raises(SourceError, match="not UTF-8") as caught:
        list(source.scan(reader, source.schema.names))
    assert caught.value.path == entry["file"]
    outcome.error = caught.value


@pytest.mark.parametrize("entry", DAMAGED)
def test_a_damaged_file_gives_the_rows_before_the_damage_and_then_an_error(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    reader, source = open_entry(entry)
    expected = rows_of(entry)
    errors = [i for i, one in enumerate(expected) if isinstance(one.row, dict) and "raw" in one.row]
    before = expected[: min(errors, default=0)]
    batches: list[pa.RecordBatch] = []
    with pytest.raises(SourceError) as caught:
        batches.extend(source.scan(reader, source.schema.names))
    rows = [
        (offset, row)
        for batch in batches
        for offset, row in zip(
            batch[OFFSET].to_pylist(), pa.table(batch).select(source.schema.names).to_pylist(), strict=True
        )
    ]
    assert caught.value.path == entry["file"]
    assert caught.value.offset is not None
    assert [offset for offset, _ in rows] == [one.position for one in before][: len(rows)]
    assert all(row_agrees(one.row, row, source.schema, canon) for one, (_, row) in zip(before, rows, strict=False))
    if entry["class"] == "bad-partial":
        assert len(rows) == len(before)
    outcome.listed, outcome.scanned, outcome.error = len(before), len(rows), caught.value
    pointers = [(offset, 0) for offset, _ in rows]
    fetched = source.fetch(reader, pointers, source.schema.names).to_pylist()
    assert all(row_agrees(one.row, row, source.schema, canon) for one, row in zip(before, fetched, strict=False))
    outcome.fetched = len(fetched)


@pytest.mark.parametrize("entry", GOOD)
def test_a_compressed_file_is_refused_with_the_reason(entry: dict[str, str]) -> None:
    if entry["compression"] == "none":
        return
    with pytest.raises(SourceError, match=r"cannot be read from the middle.* whole_file=true"):
        open_source(reader_of(entry), "csv")


def test_sizes_are_those_of_the_records() -> None:
    entry = next(one.values[0] for one in GOOD if one.values[0]["file"].endswith("withNewlines.csv"))
    reader, source = open_entry(entry)
    (batch,) = source.scan(reader, [])
    assert sum(batch[SIZE].to_pylist()) == len(reader.data) - len(batch) + (not reader.data.endswith(b"\n"))

"""SequenceFiles of other writers (Hadoop, Hive, Nutch, Spark, Go), row by row."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from gnomon.sources import SourceError, UnsupportedFormat, open_source
from gnomon.sources.contract import SourceFile
from gnomon.sources.pointers import OFFSET, SUB_OFFSET
from gnomon.sources.sequence.writables import CLASS, writable_of
from tests.sources.corpora import canonical, expected_of, files_of, needs_corpora, reader_of
from tests.sources.tally import Outcome

SINGLES = 12  # rows of each file that are also fetched alone
WHOLE = ["key", "value"]

pytestmark = needs_corpora


def rows_of(table: pa.Table, source: SourceFile, canon: ModuleType) -> list[dict[str, Any]]:
    """Canonical rows; values of an unknown class have its name."""
    rows = canonical(table, canon)
    for name in WHOLE:
        written = (source.schema.field(name).metadata or {})[CLASS].decode()
        if writable_of(written) is writable_of("unknown"):
            for row in rows:
                row[name] = {"$w": written, **row[name]}
    return rows


@pytest.mark.parametrize("entry", files_of("seq", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "sequence")
    table = pa.Table.from_batches(source.scan(reader, WHOLE))
    listed = expected_of(entry)
    assert table.num_rows == int(entry["rows"])
    ordinals = [one.ordinal for one in listed]
    rows = rows_of(table.select(WHOLE).take(ordinals), source, canon)
    offsets, sub_offsets = (table[name].take(ordinals).to_pylist() for name in (OFFSET, SUB_OFFSET))
    for one, row, pointer in zip(listed, rows, zip(offsets, sub_offsets, strict=True), strict=True):
        assert canon.same(one.row, row), f"row {one.ordinal}"
        assert pointer == (one.position, one.in_block), f"row {one.ordinal}"
    outcome.scanned = len(listed)
    asked = listed[::2] + listed[1::2]
    fetched = source.fetch(reader, [(one.position or 0, one.in_block or 0) for one in asked], WHOLE)
    for one, row in zip(asked, rows_of(fetched, source, canon), strict=True):
        assert canon.same(one.row, row), f"row {one.ordinal}"
    for one in listed[:: max(len(listed) // SINGLES, 1)]:
        alone = source.fetch(reader, [(one.position or 0, one.in_block or 0)], WHOLE)
        assert canon.same(one.row, rows_of(alone, source, canon)[0]), f"row {one.ordinal}"
    outcome.fetched = len(asked)


@pytest.mark.parametrize("entry", files_of("seq", "good"))
def test_splits_of_a_good_file_give_each_row_once(entry: dict[str, str]) -> None:
    reader = reader_of(entry)
    source = open_source(reader, "sequence")
    whole = pa.Table.from_batches(source.scan(reader, ["key"]))
    for target in (20_000, reader.size // 3 + 1):
        parts = [batch for split in source.splits(target) for batch in source.scan(reader, ["key"], split)]
        assert pa.Table.from_batches(parts).equals(whole)


@pytest.mark.parametrize("entry", files_of("seq", "bad", "bad-partial", "unreadable", "disputed", "other-reader"))
def test_a_damaged_file_gives_the_rows_before_the_damage_and_an_error(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    reader = reader_of(entry)
    listed = {one.ordinal: one for one in expected_of(entry)}
    seen = compared = 0
    error = None
    try:
        source = open_source(reader, "sequence")
        for batch in source.scan(reader, WHOLE):
            rows = rows_of(pa.table(batch).select(WHOLE), source, canon)
            for ordinal, row in enumerate(rows, seen):
                assert ordinal not in listed or canon.same(listed[ordinal].row, row), f"row {ordinal}"
                compared += ordinal in listed
            seen += batch.num_rows
    except SourceError as caught:
        error = caught
        assert error.path == entry["file"]
    outcome.scanned, outcome.error = compared, error
    if entry["class"] in ("bad", "bad-partial"):
        assert error is not None
    if entry["class"] == "bad-partial":
        assert seen == int(entry["rows_read"])
        pointers = [(one.position or 0, one.in_block or 0) for one in listed.values()]
        fetched = rows_of(source.fetch(reader, pointers, WHOLE), source, canon)
        for one, row in zip(listed.values(), fetched, strict=True):
            assert canon.same(one.row, row), f"row {one.ordinal}"
        outcome.fetched = len(fetched)


@pytest.mark.parametrize("entry", files_of("rcfile", "wrong-format"))
def test_an_rcfile_is_refused_by_its_name(entry: dict[str, str], outcome: Outcome) -> None:
    with pytest.raises(UnsupportedFormat, match="a Hive RCFile, not a SequenceFile") as caught:
        open_source(reader_of(entry), "sequence")
    assert caught.value.path == entry["file"]
    outcome.error = caught.value

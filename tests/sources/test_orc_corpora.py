"""ORC files that other people's writers made, row by row."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from sources import SourceError, open_source
from sources.pointer import OFFSET
from tests.sources.corpora import canonical, expected_of, files_of, load_canon, needs_corpora, reader_of
from tests.sources.source_contract import Sample, read_all
from tests.sources.tally import Outcome

SINGLES = 12  # rows of each file that are also fetched alone

pytestmark = needs_corpora


@pytest.fixture(scope="module")
def canon() -> ModuleType:
    return load_canon()


def expected_rows(entry: dict[str, str]) -> dict[int, dict[str, Any]]:
    """Rows by ordinal, as listed; of columns that share a name the first, which is what the name means to us."""
    return {one.ordinal: dict(reversed(one.row.get("$pairs", [*one.row.items()]))) for one in expected_of(entry)}


def check_fetch(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> int:
    """Every listed row comes back from its own pointer; how many there were."""
    reader = reader_of(entry)
    source = open_source(reader, "orc")
    expected = expected_rows(entry)
    names = list(dict.fromkeys(source.schema.names))
    asked = [*expected][::2] + [*expected][1::2]
    got = canonical(source.fetch(reader, [(ordinal, 0) for ordinal in asked], names), canon)
    for ordinal, row in zip(asked, got, strict=True):
        assert canon.same(expected[ordinal], row), f"row {ordinal}"
    for ordinal in [*expected][:: max(len(expected) // SINGLES, 1)]:
        (alone,) = canonical(source.fetch(reader, [(ordinal, 0)], names), canon)
        assert canon.same(expected[ordinal], alone), f"row {ordinal}"
    outcome.fetched = len(expected)
    return len(expected)


def check_scan(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> int:
    """The scan gives the listed rows at their ordinals; how many rows it gives."""
    reader = reader_of(entry)
    source = open_source(reader, "orc")
    names = list(dict.fromkeys(source.schema.names))
    listed = expected_rows(entry)
    seen = compared = 0
    for batch in source.scan(reader, names):
        assert batch[OFFSET].to_pylist() == list(range(seen, seen + batch.num_rows))
        wanted = [i for i in range(batch.num_rows) if seen + i in listed]
        table = pa.Table.from_batches([batch]).select(range(len(names)))
        rows = canonical(table.take(pa.array(wanted, pa.int64())), canon)
        assert all(canon.same(listed[seen + i], row) for i, row in zip(wanted, rows, strict=True))
        seen += batch.num_rows
        compared += len(rows)
    assert seen == source.rows
    outcome.scanned = compared
    return seen


@pytest.mark.parametrize("entry", files_of("orc", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    assert check_fetch(entry, canon, outcome) == int(entry["expected_rows"])


@pytest.mark.parametrize("entry", files_of("orc", "good"))
def test_scan_of_a_good_file_gives_the_listed_rows_at_their_ordinals(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    assert check_scan(entry, canon, outcome) == int(entry["rows"])


@pytest.mark.parametrize("entry", files_of("orc", "disputed", "other-reader", "encrypted"))
def test_a_file_readers_disagree_on_gives_the_listed_rows(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    """Encrypted columns come as their writer masked them, as in every reader that has no keys."""
    listed = int(entry["expected_rows"])
    assert check_fetch(entry, canon, outcome) == check_scan(entry, canon, outcome) == listed


@pytest.mark.parametrize("entry", files_of("orc", "bad", "bad-partial", "unreadable"))
def test_a_file_that_cannot_be_read_gives_an_error_that_names_it(entry: dict[str, str], outcome: Outcome) -> None:
    reader = reader_of(entry)
    with pytest.raises(SourceError) as caught:
        read_all(Sample(reader.data, "orc", [], 0, cut_is_seen=False), reader)
    assert caught.value.path == entry["file"]
    outcome.error = caught.value

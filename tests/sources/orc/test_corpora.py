"""ORC files of other writers, row by row."""

from types import ModuleType

import pytest

from gnomon.sources import SourceError
from tests.sources.by_ordinal import check_fetch, check_scan, expected_rows
from tests.sources.corpora import files_of, needs_corpora, reader_of
from tests.sources.source_contract import Sample, read_all
from tests.sources.tally import Outcome

pytestmark = needs_corpora


@pytest.mark.parametrize("entry", files_of("orc", "good"))
def test_every_listed_row_of_a_good_file_comes_back(entry: dict[str, str], canon: ModuleType, outcome: Outcome) -> None:
    check_fetch(entry, expected_rows(entry), canon, outcome)


@pytest.mark.parametrize("entry", files_of("orc", "good"))
def test_scan_of_a_good_file_gives_the_listed_rows_at_their_ordinals(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    assert check_scan(entry, expected_rows(entry), canon, outcome) == int(entry["rows"])


@pytest.mark.parametrize("entry", files_of("orc", "disputed", "other-reader", "encrypted"))
def test_a_file_readers_disagree_on_gives_the_listed_rows(
    entry: dict[str, str], canon: ModuleType, outcome: Outcome
) -> None:
    """Encrypted columns have the masked values of their writer, as in every reader without keys."""
    expected = expected_rows(entry)
    check_fetch(entry, expected, canon, outcome)
    assert check_scan(entry, expected, canon, outcome) == outcome.scanned == int(entry["expected_rows"])


@pytest.mark.parametrize("entry", files_of("orc", "bad", "bad-partial", "unreadable"))
def test_a_file_that_cannot_be_read_gives_an_error_that_names_it(entry: dict[str, str], outcome: Outcome) -> None:
    reader = reader_of(entry)
    with pytest.raises(SourceError) as caught:
        read_all(Sample(reader.data, "orc", [], 0, cut_is_seen=False), reader)
    assert caught.value.path == entry["file"]
    outcome.error = caught.value

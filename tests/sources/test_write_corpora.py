"""Files in the styles of other writers: the rows of each foreign file are written in its style and read back."""

import pickle
from collections import Counter
from collections.abc import Mapping

import pytest

from gnomon.sources import UnsupportedFormat, check_written, open_source, open_writer, style_of
from tests.sources.corpora import entries, needs_corpora, reader_of
from tests.sources.text_corpora import options_of

MOST_BYTES = 300_000  # of a file in the daily run
REFUSED = {  # why, and of how many files at most
    "parquet": {"it is required, but is read as nulls": 1},
    "avro": {"a recursive type": 2},
    "orc": {"an instant before 1970 has a fraction of a second": 1},
    "csv": {"no columns; expected one or more": 1},
    "json": {},
}

pytestmark = needs_corpora


def rewritten(entry: Mapping[str, str]) -> str:
    """Write the rows of a file in its style. Returns the error text if it is refused."""
    format, options = entry["format"], {}
    if format in ("csv", "json"):
        format, options = {"json": "jsonl"}.get(format, format), options_of(entry)
    own = reader_of(entry)
    source = open_source(own, format, options)
    batches = [batch.select(source.schema.names) for batch in source.scan(own, source.schema.names)]
    try:
        style = pickle.loads(pickle.dumps(style_of(own, format, options)))
        path = f"new{style.ending}"
        writer = open_writer(style, source.schema, path)
        for batch in batches:
            writer.write(batch)
    except UnsupportedFormat as error:
        return str(error)
    check_written(writer.finish(), format, options, path, batches)
    return ""


def check_all(format: str, most_bytes: int) -> None:
    good = [
        one for one in entries() if one["format"] == format and one["class"] == "good" and "latin-1" not in one["note"]
    ]
    some = [one for one in good if int(one["size"]) <= most_bytes]
    outcomes = Counter(rewritten(one) for one in some)
    refused = {why: sum(outcomes[each] for each in outcomes if why in each) for why in REFUSED[format]}
    print(f"{format}: {outcomes['']} of {len(some)} files written and read back, refused: {refused}")
    assert sum(outcomes.values()) == outcomes[""] + sum(refused.values()), outcomes
    assert all(refused[why] <= most for why, most in REFUSED[format].items()), outcomes


@pytest.mark.parametrize("format", list(REFUSED))
@pytest.mark.slow
def test_rows_of_a_good_file_are_written_as_it_is_and_read_back(format: str) -> None:
    check_all(format, MOST_BYTES)


@pytest.mark.nightly
@pytest.mark.parametrize("format", list(REFUSED))
def test_rows_of_every_good_file_are_written_as_it_is_and_read_back(format: str) -> None:
    check_all(format, 1 << 62)

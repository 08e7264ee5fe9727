"""service/api/responses.py: the media type that a caller prefers, and never one that it does not accept."""

import pytest

from gnomon.service.api.responses import ARROW, CSV, JSON, chosen, chosen_encoding
from gnomon.service.errors import NotAcceptable


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ([], JSON),
        ([""], JSON),
        ([" , ;"], JSON),
        (["*/*"], JSON),
        (["application/*"], JSON),
        ([JSON], JSON),
        ([ARROW], ARROW),
        ([ARROW.upper()], ARROW),
        ([f"{ARROW}, */*"], ARROW),
        ([f"*/*, {ARROW}"], ARROW),
        ([f"{ARROW}, application/json"], JSON),
        ([f"{ARROW}, application/json;q=0.9"], ARROW),
        ([f"{ARROW};q=0.5, application/json ; q=0.4"], ARROW),
        ([f"{ARROW};q=0.1, */*;q=0.2"], JSON),
        ([f"{ARROW};q=0, */*"], JSON),
        (["application/json;q=0, */*"], ARROW),
        (["text/html", ARROW], ARROW),
        (["application/json; charset=utf-8"], JSON),
        (["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], JSON),
        ([f"{ARROW};q=2"], JSON),
        (["no type at all"], JSON),
        ([CSV], CSV),
        (["text/*, application/json;q=0.9"], CSV),
        ([f"{ARROW};q=0.001"], ARROW),
    ],
)
def test_the_type_that_is_liked_best_is_chosen(accept: list[str], expected: str) -> None:
    assert chosen(accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "*/*;q=0", "application/json;q=0", "image/*, text/plain;q=0.5"])
def test_nothing_that_is_taken_is_an_error_that_names_what_there_is(accept: str) -> None:
    with pytest.raises(NotAcceptable, match=f"there are {JSON}, {ARROW}, {CSV}"):
        chosen([accept])


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ([], ""),
        (["br"], ""),
        (["gzip, zstd"], "gzip"),
        (["gzip;q=0.5, zstd"], "zstd"),
        (["*"], "gzip"),
        (["gzip;q=0, *;q=0.5"], "zstd"),
        (["identity, gzip;q=0.5"], ""),
        (["identity, gzip"], "gzip"),
        (["identity;q=0.5", "gzip"], "gzip"),
        (["identity;q=0, gzip;q=0.1"], "gzip"),
        (["gzip;q=0"], ""),
    ],
)
def test_the_coding_that_is_liked_best_is_chosen(accept: list[str], expected: str) -> None:
    assert chosen_encoding(accept) == expected


def test_a_header_of_any_size_takes_time_by_its_length() -> None:
    assert chosen(["a/b;q=0.1," * 100_000 + ARROW]) == ARROW
    assert chosen([";" * 1_000_000]) == JSON

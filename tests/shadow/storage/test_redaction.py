"""The words of a library's error: one line, without times, colours, trees and secrets."""

import errno

import pytest

from gnomon.shadow.storage import without_secrets, words_of

OF_DELTALAKE = (
    "Kernel error -> Generic S3 error\n"
    "    \x1b[31m↳\x1b[0m Error performing GET http://store:9/lake?prefix=t&sig=secret in 1.776223429s, "
    "after 10 retries, max_retries\n      \x1b[31m↳\x1b[0m 10, retry_timeout\n"
    "       \x1b[31m↳\x1b[0m 180s  - Server returned non-2xx status code\n"
    "        \x1b[31m↳\x1b[0m 503 Service Unavailable\n"
    '         \x1b[31m↳\x1b[0m <?xml version="1.0"?>\n<Error><Code>SlowDown</Code><Message>x</Message></Error>\n'
)


def test_the_user_and_the_query_of_a_web_address_are_not_shown() -> None:
    text = "https://me:secret@host/a?token=secret (see 'http://host/b#secret'), s3://bucket/a?b"
    assert without_secrets(text) == "https://host/a (see 'http://host/b'), s3://bucket/a?b"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(OF_DELTALAKE),
            "Kernel error -> Generic S3 error: Error performing GET http://store:9/lake, after 10 retries - "
            "Server returned non-2xx status code: 503 Service Unavailable SlowDown",
        ),
        (ValueError("bad JSON\n   0: <unknown>\n   1: start_thread"), "bad JSON"),
        (ValueError("GET https://me:secret@host/a?token=secret: refused in 173.649µs"), "GET https://host/a: refused"),
        (
            ValueError("(see http://host/a?b=c), took 3 tries in 12ms\n\nDebug source: X"),
            "(see http://host/a), took 3 tries",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "/a/b\nc"), "No such file: /a/b c"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (ValueError("x" * 1000), "x" * 300),
        (ValueError(), ""),
    ],
)
def test_the_words_of_an_error_are_one_line_without_times_and_secrets(error: Exception, words: str) -> None:
    assert words_of(error) == words

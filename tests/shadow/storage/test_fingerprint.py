"""The comparison of a file with the one on record."""

import pytest

from gnomon.shadow.storage import FileInfo
from gnomon.shadow.storage.contract import ANY_TIME, difference, is_in_doubt

KNOWN = FileInfo("f", 10, 1_000, "e")


@pytest.mark.parametrize(
    ("known", "found", "how"),
    [
        (KNOWN, KNOWN, ""),
        (KNOWN, KNOWN._replace(size=11), "then 10 bytes, now 11"),
        (KNOWN, KNOWN._replace(etag="other"), "its etag differs"),
        (KNOWN, KNOWN._replace(mtime_ns=2_000), ""),  # the same state by the store's etag
        (KNOWN, KNOWN._replace(etag=""), ""),
        (KNOWN, KNOWN._replace(etag="", mtime_ns=2_000), "its time differs"),
        (KNOWN._replace(etag=""), KNOWN._replace(mtime_ns=0), "its time differs"),
        (KNOWN._replace(etag="", mtime_ns=0), KNOWN, "its time differs"),
        (KNOWN._replace(etag="", mtime_ns=ANY_TIME), KNOWN, ""),
        (KNOWN._replace(etag="", mtime_ns=ANY_TIME), KNOWN._replace(size=9), "then 10 bytes, now 9"),
    ],
)
def test_size_and_etag_decide_and_the_time_where_there_is_no_etag(known: FileInfo, found: FileInfo, how: str) -> None:
    assert difference(known, found) == how


def test_a_new_ctime_puts_a_file_in_doubt_where_both_are_known() -> None:
    known = KNOWN._replace(ctime_ns=5)
    assert is_in_doubt(known, KNOWN._replace(ctime_ns=6))
    assert not is_in_doubt(known, known)
    assert not is_in_doubt(known, KNOWN)
    assert not is_in_doubt(KNOWN, known)

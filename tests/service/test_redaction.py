"""service/redaction.py: the file is named, the folder is not."""

import pytest

from service.redaction import redact
from shadow import DamagedIndexFile, ShadowError, StalePointer

ROOTS = (("/srv/lake", "the source"), ("/srv/lake/shadow", "the index"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ShadowError("/srv/lake/dt=1/p.parquet: gone"), "dt=1/p.parquet: gone"),
        (ShadowError("/srv/lake/shadow/_shadow/spec.json at byte 0"), "_shadow/spec.json at byte 0"),
        (ShadowError("/srv/lake: no data files"), "the source: no data files"),
        (ShadowError("/srv/lake/shadow: not an index"), "the index: not an index"),
        (ShadowError("cannot open '/home/me/my-lake/x.parquet'"), "cannot open 'x.parquet'"),
        (ShadowError("file:///home/me/x.parquet is gone"), "x.parquet is gone"),
        (StalePointer("gone", "/else where/p.parquet"), "p.parquet: gone"),
        (
            DamagedIndexFile("bad", "/srv/lake/shadow/dt=1/x_00003.btree.avro", 7),
            "dt=1/x_00003.btree.avro at byte 7: bad",
        ),
        (PermissionError(13, "Permission denied", "/srv/lake/p.parquet"), "Permission denied"),
        (FileNotFoundError(), "FileNotFoundError"),
        (ShadowError("p.parquet: GET http://me:pw@10.0.0.1:9000/lake/p failed"), "p.parquet: GET (address) failed"),
        (ShadowError("dt=1/country=de/p.parquet at byte 4"), "dt=1/country=de/p.parquet at byte 4"),
    ],
)
def test_folders_of_the_server_are_cut_off(error: Exception, text: str) -> None:
    assert redact(error, ROOTS).startswith(text)
    assert "/srv" not in redact(error, ROOTS)
    assert "/home" not in redact(error, ROOTS)


def test_an_index_at_the_root_of_the_file_system_cuts_nothing_else() -> None:
    assert redact(ShadowError("a/b is broken"), (("/", "the index"),)) == "a/b is broken"

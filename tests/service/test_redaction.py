"""service/errors.py: errors name the file, but not the folder."""

from pathlib import Path

import pytest

from gnomon.service.errors import _ADDRESSES, _FOLDERS, MOST_CHARACTERS, MOST_READ, Roots, redact
from gnomon.shadow import DamagedIndexFile, ShadowError, StalePointer
from tests.service.lake import Client, make_clone

ROOTS = Roots((("/srv/lake", "the source"), ("/srv/lake/shadow", "the index")))


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
        (ShadowError("s3://bucket-7/lake/dt=1/p.parquet: 403"), "p.parquet: 403"),
        (ShadowError("gs://bucket-7: no such bucket"), "(address): no such bucket"),
        (ShadowError("hdfs://namenode-7:8020/user/a/p.orc"), "p.orc"),
        (ShadowError("see https://namenode-7:9870/webhdfs/v1/p."), "see (address)."),
        (ShadowError("dt=1/country=de/p.parquet at byte 4"), "dt=1/country=de/p.parquet at byte 4"),
    ],
)
def test_folders_of_the_server_are_cut_off(error: Exception, text: str) -> None:
    assert redact(error, ROOTS).startswith(text)
    assert "/srv" not in redact(error, ROOTS)
    assert "/home" not in redact(error, ROOTS)
    assert "-7" not in redact(error, ROOTS)


def test_an_index_at_the_root_of_the_file_system_cuts_nothing_else() -> None:
    assert redact(ShadowError("a/b is broken"), Roots((("/", "the index"),))) == "a/b is broken"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("crawl/data/p.parquet at byte 4", "crawl/data/p.parquet at byte 4"),
        ("/data/crawl/data/p.parquet: gone", "crawl/data/p.parquet: gone"),
        ("/data2/p.parquet, /data: gone", "p.parquet, the source: gone"),
        ("in path=/data. See /data/a/p.parquet.", "in path=the source. See a/p.parquet."),
    ],
)
def test_a_folder_called_like_the_source_stays_in_paths_below_it(text: str, redacted: str) -> None:
    assert redact(ShadowError(text), Roots((("/data", "the source"),))) == redacted


def test_an_explanation_names_no_folder_outside_of_the_source(tmp_path: Path) -> None:
    asked = Client(make_clone(tmp_path))
    for key in range(6):  # of each file, read through the index and covered by it
        answer = asked.get(f"/rows/{key}?_explain=true")
        explain = answer.json()["explain"]
        assert [step for step in explain["steps"] if step.get("file", "").endswith(".parquet")]
        assert len(explain["files"]) == 1
        assert "private" not in answer.text
        assert str(tmp_path) not in answer.text


def test_partition_columns_that_are_not_shown_are_cut_out_of_paths() -> None:
    roots = Roots(partitions=("dt",), columns=("id",))
    assert redact(StalePointer("changed", "dt=2026-01-01/hour=3/p.parquet"), roots) == "hour=3/p.parquet: changed"
    assert redact(ShadowError("hour=3/dt=a b/p.parquet: gone"), roots) == "hour=3/p.parquet: gone"
    assert redact(ShadowError("no partition dt=2026-01-01, but hour=3"), roots) == "no partition , but hour=3"
    assert redact(ShadowError("key id: expected int, in width=3"), roots) == "key (a column): expected int, in width=3"


@pytest.mark.parametrize(
    "part",
    [
        "/",
        "//",
        ".",
        "/a",
        "/(",
        "a",
        "a.",
        " /a",
        "/srv/lake",
        "dt=",
        "dt=/",
        "://",
        "a://",
        "file:",
        "file:/",
        "s3://b/",
    ],
)
def test_a_text_of_a_megabyte_is_redacted_in_time_linear_in_it(part: str) -> None:
    """Patterns that look back at each character would take hours."""
    text = part * (1_000_000 // len(part))
    roots = Roots((("/srv/lake", "the source"),), ("dt",), ("id",))
    assert len(redact(ShadowError(text), roots)) <= MOST_CHARACTERS
    for pattern in (_ADDRESSES, _FOLDERS):
        pattern.sub("", text)


def test_what_is_cut_off_a_long_text_leaves_no_half_of_a_folder() -> None:
    text = "x" * (MOST_READ - 20) + " /srv/secret/" + "y" * 100
    assert "srv" not in redact(ShadowError(text), Roots())
    assert redact(ShadowError("/srv/secret/" + "y" * MOST_READ), Roots()) == ""

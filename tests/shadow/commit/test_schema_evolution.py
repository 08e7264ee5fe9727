"""The columns of a source in a snapshot, and their types, where files and builds differ in them."""

from dataclasses import replace

import pytest

from gnomon.shadow.commit.rebase import Changes, State, columns_after, wider
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.snapshots import Snapshot
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn

SPEC = IndexSpec(Folder("/lake"), "parquet", (), (KeyColumn("k", "int"),), (), 4)


def state(**columns: str) -> State:
    return State(Snapshot(1, "build", (), {}, columns, SPEC), ())


def changes(**columns: str) -> Changes:
    return Changes("build", (), (), {}, columns)


def test_columns_that_others_added_stay() -> None:
    base, now = state(k="int32"), state(k="int32", theirs="string")
    ours = changes(k="int64", ours="double")
    assert columns_after(base, now, ours, SPEC) == {"k": "int64", "theirs": "string", "ours": "double"}
    assert columns_after(base, now, changes(k="int32"), SPEC) == {"k": "int32", "theirs": "string"}


def test_of_two_builds_at_once_the_wider_type_of_a_number_stays() -> None:
    theirs = state(n="int64", x="double")
    for base in (State(None), state(n="int8", x="halffloat")):
        assert columns_after(base, theirs, changes(n="int32", x="float"), SPEC) == {"n": "int64", "x": "double"}


def test_types_of_columns_that_files_do_not_tell_are_those_that_both_builds_found() -> None:
    spec = replace(SPEC, format="jsonl", schema="n decimal(17,1), x string")
    assert columns_after(state(n="int64"), state(n="int64", x="string"), changes(n="double"), spec) == {
        "n": "decimal128(17, 1)",
        "x": "string",
    }


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ("", "int8", "int8"),
        ("int64", "int16", "int64"),
        ("halffloat", "double", "double"),
        ("int64", "string", "string"),
        ("int64", "null", "int64"),
        ("timestamp[us, tz=UTC]", "timestamp[us]", "timestamp[us, tz=UTC]"),
        ("timestamp[ns]", "timestamp[ms]", "timestamp[ns]"),
        ("timestamp[s, tz=Asia/Tokyo]", "timestamp[us, tz=+01:00]", "timestamp[us, tz=UTC]"),
        ("timestamp[s, tz=Asia/Tokyo]", "timestamp[us, tz=Asia/Tokyo]", "timestamp[us, tz=Asia/Tokyo]"),
        ("timestamp[us]", "date32[day]", "date32[day]"),
        ("", "null", "null"),
        ("null", "int8", "int8"),
    ],
)
def test_a_type_of_columns_holds_the_numbers_of_all_files(before: str, now: str, found: str) -> None:
    assert wider(before, now) == found

"""Columns that are inferred from rows, over several builds: they widen without a change of old rows; a key column does
not widen."""

import importlib
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build, load
from gnomon.shadow import UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.spark_fixtures import to_arrow

LARGE = 2**53 + 1  # no double has this value


def put(folder: Path, name: str, *rows: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_later_build_widens_columns_and_keeps_every_row(spark: SparkSession, tmp_path: Path) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    put(source, "a.jsonl", {"k": 1, "n": LARGE, "m": 1, "o": {"x": 1}}, {"k": 2, "n": None})
    build(spark, str(source), place, ["k"])
    before = open_index(place)
    put(source, "b.jsonl", {"k": 3, "n": 1.5, "m": 0.5, "o": {"y": "z"}, "more": [True]})
    build(spark, str(source), place, ["k"])
    nothing = {"m": None, "more": None, "o": None}
    rows = [
        {"k": 1, "m": 1.0, "more": None, "n": Decimal(f"{LARGE}.0"), "o": {"x": 1, "y": None}},
        {"k": 2, "n": None, **nothing},
        {"k": 3, "m": 0.5, "more": [True], "n": Decimal("1.5"), "o": {"x": None, "y": "z"}},
    ]
    assert open_index(place).fetch_many([1, 2, 3]) == [[row] for row in rows]
    assert before.fetch(1) == [{"k": 1, "n": LARGE, "m": 1, "o": {"x": 1}}]  # the types of its own snapshot
    assert before.refresh()
    assert before.fetch(1) == [rows[0]]
    keys = spark.createDataFrame([(k,) for k in (1, 3)], "k bigint")
    assert sorted(to_arrow(load(spark, place, keys)).to_pylist(), key=lambda row: row["k"]) == [rows[0], rows[2]]

    put(source, "c.jsonl", {"k": 4})
    put(source, "d.jsonl", {"k": 1.5})
    with pytest.raises(UsageError, match=r"^d.jsonl: column k is double, elsewhere in the source it is bigint$"):
        build(spark, str(source), place, ["k"])
    assert open_index(place).view.snapshot.number == 2


def test_a_column_of_nulls_alone_takes_the_type_of_values_that_come_later_unless_it_is_indexed(tmp_path: Path) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    put(source, "a.jsonl", {"k": 1, "n": None, "l": [1], "included": None})
    build(None, str(source), place, ["k"], ["included"])
    put(source, "b.jsonl", {"k": 2, "n": 1.5, "l": [0.5], "included": 7})
    build(None, str(source), place, ["k"], ["included"])
    put(source, "c.jsonl", {"k": 3, "n": 2, "l": [], "included": None})
    build(None, str(source), place, ["k"], ["included"])
    assert open_index(place).fetch_many([1, 2, 3]) == [
        [{"k": 1, "n": None, "l": [1.0], "included": None}],
        [{"k": 2, "n": 1.5, "l": [0.5], "included": "7"}],
        [{"k": 3, "n": 2.0, "l": [], "included": None}],
    ]


def test_lines_that_are_one_value_stay_so_in_later_builds(tmp_path: Path) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    for name, lines in (("a", '"x"\n'), ("b", ""), ("c", '"y"\n')):
        (source / f"{name}.jsonl").write_text(lines)
        build(None, str(source), place, ["value"])
    assert open_index(place).fetch_many(["x", "y"]) == [[{"value": "x"}], [{"value": "y"}]]


def test_a_later_file_of_csv_may_have_more_columns_in_another_order(tmp_path: Path) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    (source / "a.csv").write_text("k,x\n1,a\n")
    build(None, str(source), place, ["k"])
    (source / "b.csv").write_text("more,k\nm,2\n")
    build(None, str(source), place, ["k"])
    assert open_index(place).fetch_many(["1", "2"]) == [
        [{"k": "1", "x": "a", "more": None}],
        [{"k": "2", "x": None, "more": "m"}],
    ]


def test_builds_at_once_that_both_widen_columns_are_both_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    put(source, "a.jsonl", {"k": 1, "n": 1})
    build(spark, str(source), place, ["k"])
    put(source, "ours.jsonl", {"k": 2, "n": 1.5})
    build_module = importlib.import_module("gnomon.jobs.build.job")
    verify_sample = build_module.verify_sample

    def other_build_meanwhile(*arguments: Any) -> None:
        """A build of a later file, by a program that did not see ours."""
        monkeypatch.undo()
        (source / "ours.jsonl").rename(tmp_path / "ours.jsonl")
        put(source, "theirs.jsonl", {"k": 3, "n": LARGE, "more": "x"})
        assert build(spark, str(source), place, ["k"]).snapshot == 2
        (tmp_path / "ours.jsonl").rename(source / "ours.jsonl")
        verify_sample(*arguments)

    monkeypatch.setattr(build_module, "verify_sample", other_build_meanwhile)
    assert build(spark, str(source), place, ["k"]).snapshot == 3
    rows = [
        {"k": 1, "n": Decimal("1.0"), "more": None},
        {"k": 2, "n": Decimal("1.5"), "more": None},
        {"k": 3, "n": Decimal(f"{LARGE}.0"), "more": "x"},
    ]
    assert open_index(place).fetch_many([1, 2, 3]) == [[row] for row in rows]
    keys = spark.createDataFrame([(row["k"],) for row in rows], "k bigint")
    assert sorted(to_arrow(load(spark, place, keys)).to_pylist(), key=lambda row: row["k"]) == rows
    assert verify(storage_at(place), None).faults == []
    assert not build(spark, str(source), place, ["k"]).committed

"""The bench of appends, with few rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench import dedup
from bench.dedup import APPEND, CHECK, COLUMNS, Line, figures, goals, lakes_table, measure
from bench.dedup_contenders import CONTENDERS, AntiJoin, Gnomon, HashSets, Took, removing_new_files
from bench.dedup_data import Truth, Workload, rows_of
from bench.dedup_tasks import IS_OLD, KEY, unseen
from bench.processes import Cpu
from bench.rounds import WrongRows


@pytest.mark.spark
def test_all_contenders_find_and_append_the_new_rows_and_leave_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup, "SHARES", (0.1,))
    lines, lakes = measure(spark, tmp_path / "bench", Workload("narrow", 0, 200, (400,)), rounds=1, patience=0)
    assert [line[2:4] for line in lines] == [(what, kind) for what in (CHECK, APPEND) for kind in CONTENDERS]
    assert {len(line.runs) for line in lines} == {1}
    assert all(run.seconds > 0 and run.cpu.jvm > 0 and run.shuffled > 0 for line in lines for run in line.runs)
    assert {line.contender for line in lines if line.runs[0].read} == {Gnomon}
    assert [lake.rows for lake in lakes] == [400]
    assert lakes_table(lakes).count("\n| ") == 2
    assert not (tmp_path / "bench").exists()


def test_what_takes_too_long_is_left_out_and_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "SHARES", (0.1,))
    monkeypatch.setattr(dedup, "GOAL_ROWS", 400)
    lines = [Line(200, 0.1, CHECK, kind, [Took(2.0, Cpu(1, 1), 5, 5)], 0) for kind in CONTENDERS]
    assert dedup._expected(lines, 500, 0.1, CHECK, HashSets) == 5
    assert dedup._expected(lines, 500, 0.1, APPEND, HashSets) == 0
    lines += [Line(400, 0.1, CHECK, kind, [Took(2.0, Cpu(1, 1), 5, 5)], 4) for kind in (Gnomon, AntiJoin)]
    lines += [Line(400, 0.1, CHECK, HashSets, [], 4)]
    text = figures(lines)
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {len(COLUMNS) + 1}
    assert "hash sets | left out: some 4 s expected" in text
    assert [line.split(" | ")[1] for line in goals(lines).splitlines()[2:]] == ["1.00 times", "1.00 times"]


@pytest.mark.spark
def test_rows_have_the_size_that_is_named(spark: SparkSession) -> None:
    narrow, wide = (rows_of(spark.range(1), payload).first() for payload in (0, 5_000))
    assert narrow is not None
    assert wide is not None
    assert len(narrow[KEY]) == len(wide[KEY]) == 63
    assert 4_900 <= len(wide["page"]) <= 5_000


def test_a_contender_that_gives_other_rows_ends_the_run() -> None:
    with pytest.raises(WrongRows, match=r"Gnomon gave 2 rows \(7\), expected 2 \(8\)"):
        dedup._check(Gnomon.__new__(Gnomon), Truth(2, 7), Truth(2, 8))


def test_a_set_of_keys_hands_on_each_new_key_once() -> None:
    def batch(keys: str, old: bool) -> pa.RecordBatch:
        return pa.record_batch({KEY: list(keys), IS_OLD: [old] * len(keys)})

    found = list(unseen(iter([batch("ab", True), batch("bc", False), batch("cd", False)])))
    assert [one.to_pydict() for one in found] == [{KEY: ["c"]}, {KEY: ["d"]}]


def test_a_load_is_taken_back_and_what_was_there_must_stay(tmp_path: Path) -> None:
    there = tmp_path / "a"
    there.write_text("1")
    with removing_new_files(tmp_path):
        (tmp_path / "b").write_text("2")
    assert list(tmp_path.iterdir()) == [there]
    with pytest.raises(WrongRows, match="a: a file of the table or the index changed"), removing_new_files(tmp_path):
        there.write_text("11")

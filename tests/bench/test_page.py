"""Results of workloads: their tables, and their records in bench/results."""

import json
import os
from pathlib import Path

import pytest

from bench.page import Report, Table, digits, head, row, tables_of

RESULT = "\n".join(
    [
        *("**narrow rows**", "", "The check alone:", ""),
        *head(["share", "who", "s"]),
        row(["**into 10 rows**", "", ""]),
        *(row(["1%", "ours", "1.00"]), row(["", "theirs", "2.00"])),
        row(["**into 20 rows**", "", ""]),
        row(["1%", "ours", "3.00"]),
        "",
        *head(["table", "bytes"]),
        row(["10 rows", "20.6 MB"]),
        *("", "**Goals**", ""),
        *(row(["goal", ""]), row(["---", "---"]), row(["**faster**", "reached"])),
    ]
)


def test_a_result_is_taken_apart_into_tables_with_titles_and_whole_rows() -> None:
    columns = ["share", "who", "s"]
    assert tables_of(RESULT) == [
        Table(
            "narrow rows: The check alone: into 10 rows", columns, [["1%", "ours", "1.00"], ["1%", "theirs", "2.00"]]
        ),
        Table("narrow rows: The check alone: into 20 rows", columns, [["1%", "ours", "3.00"]]),
        Table("narrow rows", ["table", "bytes"], [["10 rows", "20.6 MB"]]),
        Table("Goals", ["goal", ""], [["faster", "reached"]]),
    ]


@pytest.mark.process
def test_a_recorded_run_stands_before_the_earlier_ones(tmp_path: Path) -> None:
    for seconds in (1, 2):
        report = Report("bench.sleep", ["pyarrow"], {"keys": 3, "only": ["a", "b"], "quick": True, "spark": None})
        report.say("\n".join([*head(["", "s"]), row(["sleep", digits(seconds)])]))
        report.record(True, tmp_path)
    recorded = json.loads((tmp_path / "sleep.json").read_text())
    assert recorded["workload"] == "sleep"
    newest, earlier = recorded["runs"]
    assert newest["tables"] == [{"title": "", "columns": ["", "s"], "rows": [["sleep", "2.00"]]}]
    assert earlier["tables"][0]["rows"] == [["sleep", "1.00"]]
    assert newest["command"] == ".venv/bin/python -m bench.sleep --keys 3 --only a --only b --quick"
    assert f"{os.cpu_count()} cores" in newest["machine"]
    assert newest["commit"]
    assert {"Python", "pyarrow"} <= set(newest["versions"])


def test_a_run_leaves_no_trace_unless_it_is_to_be_recorded(tmp_path: Path) -> None:
    report = Report("bench.sleep", [], {})
    report.say("a result")
    report.record(False, tmp_path)
    assert not list(tmp_path.iterdir())

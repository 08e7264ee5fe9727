"""The bench of fetches: everyone gives the same rows, nobody is left out, and nothing goes on running."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.contenders import Answer, SqliteCopy
from bench.fetch import WORKLOADS, choose_keys, prepare
from bench.goals import goals
from bench.lake import PARAMETERS, keys_of, sources
from bench.rounds import SCAN_ABSENT_KEYS, SCAN_KEYS, Line, WrongRows, check_rows, has_turn, instant, measure
from bench.table import table

PAGES, KEYS = 2_000, 30
MICROS = 1_767_225_600_000_007
EXPECTED = [("https://a.example/", 1, MICROS, 200, "<p>", "2026-01-01")]
ROW = {
    "url": "https://a.example/",
    "merchant_id": 1,
    "crawl_ts": "2026-01-01T00:00:00.000007Z",
    "status": 200,
    "html": "<p>",
    "dt": "2026-01-01",
}


class Wrong(SqliteCopy):
    """Gives another row than the one asked for."""

    def fetch(self, key: str) -> Answer:
        rows = super().fetch(key).rows
        return Answer([{**row, "html": row["html"] + " "} for row in rows])


@pytest.fixture(scope="module")
def lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """All contenders on 2,000 pages; nothing fetched yet."""
    return prepare(spark, tmp_path_factory.mktemp("bench"), PAGES)


def children() -> set[str]:
    """Processes this one has started."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.spark
def test_every_contender_gives_the_same_rows_and_stands_in_the_table(lines: list[Line]) -> None:
    assert [line.contender for line in lines] == [one for workload in WORKLOADS for one in workload.contenders]
    before = children()
    measure(lines, choose_keys(PAGES, KEYS))  # raises WrongRows where two disagree
    assert children() == before
    for line in lines:
        scans = line.contender.scans
        assert len(line.present) == (min(SCAN_KEYS, KEYS) if scans else KEYS)
        assert len(line.absent) == (min(SCAN_ABSENT_KEYS, KEYS // 5) if scans else KEYS // 5)
        assert all(sample.ms > 0 and sample.bytes >= 0 for sample in [*line.present, *line.absent])
        assert (line.cost is None) == (line.contender.extra is None)
    rendered = table(lines).splitlines()
    for workload in WORKLOADS:
        assert sum(workload.title in row for row in rendered) == 1
    for name in {line.contender.name for line in lines}:
        asked = sum(line.contender.name == name for line in lines)
        assert sum(row.startswith(f"| {name} |") for row in rendered) == asked
        assert sum(row.startswith(f"| {name}: absent keys |") for row in rendered) == asked
    assert goals(lines).count("reached") + goals(lines).count("missed") == 12


@pytest.mark.spark
def test_a_wrong_row_fails_the_bench_and_servers_are_stopped(lines: list[Line]) -> None:
    before = children()
    copy = next(line for line in lines if line.contender is SqliteCopy)
    wrong = Line(Wrong, copy.workload, copy.title, copy.source, copy.extra)
    with pytest.raises(WrongRows, match="html is"):
        measure([*lines[:2], wrong], choose_keys(PAGES, 1))
    assert children() == before


@pytest.mark.spark
def test_sources_are_used_again_until_a_parameter_changes(lines: list[Line], spark: SparkSession) -> None:
    folder = lines[0].source.parent.parent
    made = {path: path.stat().st_mtime_ns for path in folder.glob("*/source/**/*.parquet")}
    sources(spark, folder, PAGES)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/source/**/*.parquet")} == made
    (folder / PARAMETERS).write_text("{}")
    sources(spark, folder, PAGES)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/source/**/*.parquet")}.items().isdisjoint(
        made.items()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"html": "<p> "}, "html is '<p> ', others have '<p>'"),
        ({"crawl_ts": datetime(2026, 1, 1, tzinfo=UTC)}, "crawl_ts is"),
        ({"more": 1}, "gave the columns"),
    ],
)
def test_a_row_that_differs_is_found(change: dict[str, object], message: str) -> None:
    check_rows("peer", "key", [ROW], EXPECTED)
    with pytest.raises(WrongRows, match=message):
        check_rows("peer", "key", [{**ROW, **change}], EXPECTED)


def test_a_row_too_many_is_found() -> None:
    with pytest.raises(WrongRows, match="gave 2 rows for key, others 1"):
        check_rows("peer", "key", [ROW, ROW], EXPECTED)


@pytest.mark.parametrize(
    "value",
    [
        MICROS,
        "2026-01-01T00:00:00.000007Z",
        "2026-01-01T02:00:00.000007+02:00",
        datetime(2026, 1, 1, microsecond=7),
        datetime(2026, 1, 1, microsecond=7, tzinfo=UTC),
    ],
)
def test_an_instant_is_the_same_however_a_contender_gives_it(value: object) -> None:
    assert instant(value) == MICROS


@pytest.mark.parametrize(("turns", "wanted"), [(200, 20), (30, 20), (7, 3), (1, 20), (20, 20)])
def test_turns_are_spread_over_all(turns: int, wanted: int) -> None:
    taken = [turn for turn in range(turns) if has_turn(turn, turns, wanted)]
    assert len(taken) == min(turns, wanted)
    assert taken[0] == 0
    gaps = {b - a for a, b in pairwise(taken)}
    assert max(gaps, default=0) <= -(-turns // wanted)


def test_keys_are_the_same_in_every_run_and_none_comes_twice() -> None:
    keys = keys_of(PAGES, 20, 100, 10)
    assert keys == keys_of(PAGES, 20, 100, 10)
    assert len({*keys.warm_up, *keys.present, *keys.absent}) == 130
    with pytest.raises(ValueError, match="more than 2000 pages"):
        keys_of(PAGES, 1, PAGES, 0)

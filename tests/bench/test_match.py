"""The bench of many keys in one index file, with a small one."""

from pathlib import Path

import pyarrow as pa
import pytest

from bench.match import STEP, WORKLOADS, Workload, ask, entries_of, line, make, measure

ENTRIES = 70_000  # more than one batch


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.kind)
def test_every_way_finds_the_keys_that_are_there_and_no_other(tmp_path: Path, workload: Workload) -> None:
    make(tmp_path / "index", workload.kind, ENTRIES)
    some = sorted([*map(workload.present, (0, 1, ENTRIES - 1)), *map(workload.absent, range(5))])
    assert {ask(tmp_path / "index", pa.array(some), way).found for way in ("find", "match", "holds")} == {3}
    cells = line(tmp_path / "index", workload, ENTRIES, 1000, 0.5)
    assert cells[:3] == [workload.kind, "1,000", "50%"]


def test_the_keys_rise_from_batch_to_batch() -> None:
    keys = [key for batch in entries_of("bigint", ENTRIES) for key in batch["k"].to_pylist()]
    assert keys == list(range(0, ENTRIES * STEP, STEP))


def test_the_result_has_a_line_for_each_question(tmp_path: Path) -> None:
    result = measure(20_000, [1000], tmp_path / "index")
    assert result.count("\n| ") == 1 + 2 * 3
    assert not list(tmp_path.iterdir())

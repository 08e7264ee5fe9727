"""The bench of index files: every store gives the entries that were written, and stands in the table."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.btree import COLUMNS, WrongAnswer, measure, table, workloads
from bench.choices import COMPRESSORS, DIONES, LAYOUTS, NODES, SCANS, choices
from bench.stores import STORES, Gnomon, Key, Sqlite, Value

ENTRIES = 2_000


class Forgetful(Sqlite):
    """Gives no entry for a key that comes with others."""

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        return [None] * len(keys)


@pytest.mark.slow
def test_every_store_gives_the_entries_written_and_stands_in_the_table(tmp_path: Path) -> None:
    results = [(one, measure(one, STORES, tmp_path, rounds=2)) for one in workloads(ENTRIES)]
    rendered = table(results).splitlines()
    for workload, lines in results:
        assert sum(workload.title in row for row in rendered) == 1
        assert [line.store.name for line in lines] == [store.name for store in STORES]
        for line in lines:
            assert {len(rounds) for rounds in line.seconds.values()} == {2}
            assert {"write", "get", "get_many", "contains_many", "scan"} <= set(line.seconds)
            assert line.bytes > ENTRIES
        ours = next(line for line in lines if isinstance(line.store, Gnomon))
        assert ours.cost is not None
        assert 1 <= ours.cost[0] <= 4
    assert all(row.count("|") == len(COLUMNS) + 1 for row in rendered)
    for store in STORES:
        assert sum(row.startswith(f"| {store.name} |") for row in rendered) == len(results)


def test_an_entry_that_is_missing_fails_the_bench(tmp_path: Path) -> None:
    with pytest.raises(WrongAnswer, match="SQLite"):
        measure(workloads(ENTRIES)[1], [Forgetful], tmp_path, rounds=1)


def test_every_choice_stands_in_its_table() -> None:
    rendered = choices(workloads(ENTRIES)[0].table, rounds=1)
    for name in (
        *SCANS,
        *NODES,
        *COMPRESSORS,
        *(f"{codec}, {kib} KiB" for codec, kib in LAYOUTS),
        DIONES,
    ):
        assert rendered.count(f"| {name} |") == 1

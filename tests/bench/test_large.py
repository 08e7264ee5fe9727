"""The benches of one large index file and of one large index, with small ones."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench import large
from bench.large import batches, cold, key, measure, measure_index, url, write, write_rows
from bench.page import tables_of

ENTRIES = 70_000  # more than one batch


def test_the_keys_rise_from_batch_to_batch() -> None:
    keys = [key for batch in batches(ENTRIES) for key in batch["url"].to_pylist()]
    assert keys == [url(number) for number in range(ENTRIES)]


def test_a_cold_look_up_is_counted_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(ENTRIES, path)
    (cost,) = cold(path, [url(ENTRIES - 1)])
    assert (cost.nodes, cost.reads) == (3, 2)


def test_the_result_names_what_was_measured(tmp_path: Path) -> None:
    result = measure(ENTRIES, tmp_path / "file")
    sizes, look_ups = tables_of(result)
    assert [row[0] for row in sizes.rows] == [f"{ENTRIES:,}"]
    assert len(look_ups.rows) == 2
    assert not list(tmp_path.iterdir())


def test_the_rows_of_the_large_source_have_keys_that_differ(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", 999_999_000, 1_000_000_500)
    found = pq.read_table(tmp_path / "rows.parquet")
    assert found["id"].to_pylist() == [key(number) for number in range(999_999_000, 1_000_000_500)]
    assert len(set(found["id"].to_pylist())) == 1500
    assert min(found["id"].to_pylist()) >= 0


@pytest.mark.process
@pytest.mark.slow
def test_the_large_index_is_built_used_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "CHECKED", 1000)
    monkeypatch.setattr(
        large,
        "USE",
        large.USE.replace("from bench.large import CHECKED, key", "CHECKED = 1000\nfrom bench.large import key"),
    )
    result = measure_index(20_000, tmp_path / "data")
    made, used, nightly = tables_of(result)
    assert made.rows[0][0] == "20,000"
    assert used.rows[0][2] == "2"
    assert len(nightly.rows[0]) == 4
    assert not (tmp_path / "data").exists()

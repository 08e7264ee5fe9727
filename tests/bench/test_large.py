"""The bench of one large index file, with a small one."""

from pathlib import Path

from bench.large import batches, cold, measure, url, write
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

"""The bench of one large index file, with a small one."""

from pathlib import Path

from bench.large import BENCH, batches, cold, measure, url, write
from bench.page import DOCS, markers

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
    assert result.startswith(f"{ENTRIES:,} entries in ")
    assert result.count("\n| ") == 4
    assert not list(tmp_path.iterdir())


def test_the_page_has_a_place_for_the_result() -> None:
    assert all(DOCS.read_text().count(marker) == 1 for marker in markers(BENCH))

"""The walks of operations through the code get no longer."""

from pathlib import Path

from bench.walks import walks

MOST_FILES = {"open an index": 22, "fetch one key, warm": 37, "GET /rows/7, warm": 34, "dedup of 3,000 rows": 106}


def test_an_operation_passes_no_more_files_than_it_did(tmp_path: Path) -> None:
    """A change that shortens a walk lowers its number here."""
    found = {name: len(by_file) for name, by_file in walks(tmp_path).items()}
    assert all(found.values())
    assert {name: found[name] for name, most in MOST_FILES.items() if found[name] > most} == {}

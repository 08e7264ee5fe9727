"""The bench of growth, with few files and rows."""

from pathlib import Path

import numpy as np
import pytest

from bench.growth import COLUMNS, Case, figures, line, make_files, make_rows
from gnomon.commands.crawl import page_urls

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_source_of_tiny_files_is_measured(tmp_path: Path) -> None:
    case = Case(6, 3, flat=False)
    make_files(tmp_path / "source", case)
    found = figures(case.name, tmp_path, "7", "--key", "id", "--partitioned")
    assert found["reads"] == 1 + case.partitions
    assert all(value for value in found.values())
    assert line(found).count("|") == len(COLUMNS) + 1
    again = figures(case.name, tmp_path, "7", "--key", "id", "--partitioned")
    assert again["first_seconds"] == found["first_seconds"], "the first build was repeated"


def test_a_source_of_large_files_has_each_key_once(tmp_path: Path) -> None:
    make_rows(tmp_path / "source", 100)
    [key] = page_urls(np.array([50])).to_pylist()
    found = figures("100 rows", tmp_path, key, "--key", "id")
    assert found["reads"] == 2

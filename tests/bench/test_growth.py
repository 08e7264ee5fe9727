"""The bench of growth, with few files and rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.growth import NIGHTLY, SIZES, Case, figures, make_files, make_rows, table
from gnomon.commands.crawl import page_urls

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_source_of_tiny_files_is_measured_once(tmp_path: Path) -> None:
    case = Case(6, 3, flat=False)
    make_files(tmp_path / "source", case)
    found = figures(case.name, tmp_path, 7, "--key", "id", "--partitioned")
    assert found["lookup_reads"] == 1 + case.partitions
    assert all(found.values())
    assert found.keys() == {"index", *SIZES.values(), *NIGHTLY.values()}
    assert table([found], SIZES).count("|") == 3 * (len(SIZES) + 2)
    assert figures(case.name, tmp_path, 7) == found == json.loads((tmp_path / "figures.json").read_text())


def test_a_look_up_in_a_source_of_large_files_is_measured(tmp_path: Path) -> None:
    make_rows(tmp_path / "source", 100)
    [key] = page_urls(np.array([50])).to_pylist()
    found = figures("100 rows", tmp_path, key, "--key", "id")
    assert found["lookup_reads"] == 2

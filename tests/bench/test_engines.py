"""The bench of both engines, with a small crawl."""

from pathlib import Path

import pytest

from bench.engines import ENGINES, compared, of_engine, prepare, table

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.nightly]


@pytest.mark.usefixtures("spark")
def test_both_engines_make_the_same(tmp_path: Path) -> None:
    prepare(tmp_path / "engines", 2_000)
    costs = {engine: of_engine(tmp_path / "engines", engine) for engine in ENGINES}
    assert compared(tmp_path / "engines").endswith(", 2,090 rows after the append: equal")
    assert table(costs).count("\n| ") == 4

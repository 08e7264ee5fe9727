"""bench.tables, with small tables and without Spark."""

from pathlib import Path

import pytest

from bench.tables import main

BUILDS = ("a build with nothing to do", "a build of one new file")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_the_readers_of_a_table_find_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(wide=2000, narrow=0, files=3, spark="", folder=tmp_path)
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    looked_up = [cells for cells in lines if len(cells) == 13][1:]  # after the head
    assert len({cells[0] for cells in looked_up}) == len(looked_up) == 8
    for size in range(1, 5):
        assert len({cells[3 * size] for cells in looked_up}) == 1, looked_up
    builds = {cells[0]: cells[2] for cells in lines if len(cells) == 7}
    steps = ["nothing", "an append of 1,000 rows", "a compaction of all files"]
    assert [builds[step] for step in steps] == ["0", "1", "1"]
    commands = [f"{kind}: {what}" for kind in ("Delta", "Iceberg") for what in ("the first build", *BUILDS)]
    assert [cells[0] for cells in lines if len(cells) == 4][1:] == commands

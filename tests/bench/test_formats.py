"""The bench of formats, with few rows: everyone gives the same rows of every format."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from bench.contenders import GnomonInProcess
from bench.fetch import choose_keys
from bench.format_contenders import GnomonByPointer
from bench.format_files import FILES, FormatFile
from bench.formats import PEERS, app, prepare
from bench.rounds import measure
from bench.table import table
from gnomon.sources.registry import FORMATS

ROWS, KEYS = 300, 5
ONE_EACH = tuple({one.format: one for one in FILES}.values())


@pytest.mark.spark
@pytest.mark.parametrize(
    "files", [pytest.param(ONE_EACH, id="one of each"), pytest.param(FILES, id="all", marks=pytest.mark.nightly)]
)
def test_every_contender_gives_the_same_rows_of_every_format(
    files: tuple[FormatFile, ...], spark: SparkSession, tmp_path: Path
) -> None:
    lines = prepare(spark, tmp_path, ROWS, files)
    for one in files:
        expected = [GnomonInProcess, GnomonByPointer, *PEERS[one.format]]
        assert [line.contender for line in lines if line.workload == one.name] == expected
    measure(lines, choose_keys(ROWS, KEYS))  # raises WrongRows where two disagree, whatever the format
    for line in lines:
        assert len(line.present) == KEYS
        assert len(line.absent) == (0 if line.contender.is_by_position else KEYS // 5)
        assert (line.cost is not None) == (line.contender is GnomonInProcess)
    rendered = table(lines).splitlines()
    for one in files:
        assert sum(f"**{one.title}: " in row for row in rendered) == 1
    assert sum(row.startswith(f"| {GnomonByPointer.name} |") for row in rendered) == len(files)
    assert not any(row.startswith(f"| {GnomonByPointer.name}: absent keys |") for row in rendered)


def test_every_format_that_is_read_is_measured() -> None:
    assert {one.format for one in FILES} == set(FORMATS) == set(PEERS)


def test_a_format_that_is_not_known_is_refused() -> None:
    result = CliRunner().invoke(app, ["--formats", "parquett"])
    assert result.exit_code == 2
    assert "no format parquett" in result.output

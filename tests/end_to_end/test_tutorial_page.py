"""docs/tutorial.md is right: its commands run, one after the other, and print the output in it."""

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
MAKE, REWRITE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```\n(\$ .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STEPS = [tuple(step.split("\n", 1)) for block in BLOCKS for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
PROGRAMS = {"make_orders.py": MAKE, "rewrite.py": REWRITE}
KEYS = "printf 'id\\norder-7\\norder-19999\\n' > keys.csv"


def lines(text: str) -> list[str]:
    """The lines without the progress and the times of Spark jobs, and without bytes, which depend on the version of
    Arrow."""
    text = re.sub(r"[\d.]+ (s|[KM]?B|bytes)\b", r"0 \1", re.sub(r"now \d+", "now 0", text))
    return [line for line in text.splitlines() if not re.match(r"gnomon: [a-z ]+(: [\d,]+ \w+)?$", line)]


@pytest.mark.spark
def test_the_commands_print_what_the_page_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(STEPS) == 14
    for command, shown in STEPS:
        words = shlex.split(command)
        if command == KEYS:
            Path("keys.csv").write_text("id\norder-7\norder-19999\n")
        elif words[0] == "python":
            exec(PROGRAMS[words[1]], {})
        else:
            capfd.readouterr()
            main(words[1:])
            out, err = capfd.readouterr()
            assert lines(out + err) == lines(shown.replace("/tmp/tutorial", str(tmp_path))), command

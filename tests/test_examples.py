"""The examples run from their first line to their last, print what they promise, and leave nothing behind."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent.parent / "examples"
PROMISES = {
    "support_desk.py": [
        "'id': 'order-12345'",
        "order-99999 is there: False",
        "200 [{'id': 'order-12345'",
        "404 no row",
    ],
    "nightly_dedup.py": [
        "night 1: 500 of 1600 rows appended; 1000 were in the source already, 100 came twice",
        "again: the batch was appended before",
        "night 2: 200 of 300 rows appended; 100 were in the source already, 0 came twice",
        "The source has 5700 pages, each of them once",
    ],
    "feature_lookup.py": ["Arrow: 999 rows of 1000 users", "a matrix of 1000 x 8, 1 rows of unknown", "lazily: 3 rows"],
    "privacy_request.py": ["3 rows deleted", "rows now: []", "not erased: 1 key, 3 rows", "\nerased: 1 key, 0 rows"],
    "iceberg_catalog.py": [
        "statistics of the files: 40 of 40 files, rows [7, 1234]",
        "through the index: 2 of 40 files, rows [7, 1234]",
    ],
}
NOTEBOOKS = {
    "support_desk.ipynb": ["[17, 517, 1017, 1517, 2017]", "\n100\n", "'key_check'", "the file changed since", "(True,"],
    "feature_lookup.ipynb": [
        "(500, ['key_number', 'user',",
        "\nTrue\n",
        "(10, 2)",
        "((501, 16), [500])",
        "(1, False, True)",
    ],
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_a_script_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", FOLDER / name]
    at = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=at, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    places = [done.stdout.find(promise) for promise in PROMISES[name]]
    assert -1 not in places, done.stdout
    assert places == sorted(places)
    assert list(tmp_path.iterdir()) == []


def test_the_join_on_spark_finds_the_rows(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(FOLDER / "spark_join.py"))["run"](spark, tmp_path)
    assert spark.catalog.dropTempView("crawl_index")  # other tests of this session have a table of that name
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("Indexed 20000 pages")
    assert lines[1:] == [
        "Loaded 400 rows of 500 keys",
        "Loaded 200 of them in the second partition",
        "By SQL: Row(pages=1)",
    ]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_is_stored_without_outputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(FOLDER / name, nbformat.NO_CONVERT)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    shown = "\n".join(
        ["", *(one.text if one.output_type == "stream" else one.data["text/plain"] for one in outputs), ""]
    )
    places = [shown.find(promise) for promise in NOTEBOOKS[name]]
    assert -1 not in places, shown
    assert places == sorted(places)


def test_the_page_names_each_example() -> None:
    here = {path.name for path in FOLDER.iterdir() if path.suffix in {".py", ".ipynb"}}
    assert {*PROMISES, *NOTEBOOKS, "spark_join.py"} == here
    assert set(re.findall(r"^\| \[.*?\]\((\S+)\) \| \S", (FOLDER / "README.md").read_text(), re.MULTILINE)) == here

"""docs/guide/workflow.md is right: its examples run in Airflow and Dagster, in an environment of their own."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pytest

import gnomon
from gnomon.shadow import open_index
from tests.deploy.test_bounds import uv
from tests.shadow.make_index import write_source

pytestmark = [pytest.mark.process, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/workflow.md").read_text(encoding="utf-8")
RUN_ASSETS = """
from flow import definitions

done = definitions.resolve_job_def("index").execute_in_process()
assert done.success
assert [check.passed for check in done.get_asset_check_evaluations()] == [True]
assert done.asset_materializations_for_node("orders_index")[0].metadata["rows"].value == 50
"""


def environment(folder: Path, *packages: str) -> Path:
    """The programs of a new environment with these packages; Gnomon and its packages come behind them."""
    uv_venv = [sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, str(folder)]
    subprocess.run(uv_venv, check=True, timeout=60)
    python = folder / "bin/python"
    uv("install", "--quiet", "--python", str(python), *packages)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "zz_gnomon.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return python.parent


def written(fence: str, folder: Path) -> Path:
    """The example with this fence as `flow.py`, for a source and an index in the folder."""
    write_source(folder / "orders", {"a.parquet": pa.table({"id": range(50), "n": range(50)})})
    [example] = re.findall(rf"^```python {fence}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert "/lake/orders" in example
    assert "/indexes/orders" in example
    file = folder / "flows/flow.py"
    file.parent.mkdir()
    file.write_text(example.replace("/lake/orders", f"{folder}/orders").replace("/indexes/orders", f"{folder}/index"))
    return file


def test_the_dag_runs_in_airflow(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", "apache-airflow>=3")
    flow = written("airflow", tmp_path)
    settings = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(flow.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    for arguments in (["db", "migrate"], ["dags", "reserialize"], *[["dags", "test", "orders_index"]] * 2):
        command = [str(programs / "airflow"), *arguments]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    index = open_index(tmp_path / "index")
    assert (len(index), index.fetch(7)) == (50, [{"id": 7, "n": 7}])
    assert [record.operation for record in gnomon.history(index)] == ["build"]


def test_the_asset_is_made_and_checked_in_dagster(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", "dagster>=1.10")
    flow = written("dagster", tmp_path)
    done = subprocess.run(
        [str(programs / "python"), "-c", RUN_ASSETS],
        cwd=flow.parent,
        env=os.environ | {"DAGSTER_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert open_index(tmp_path / "index").fetch(7) == [{"id": 7, "n": 7}]

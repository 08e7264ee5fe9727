"""A cluster: executors are separate processes, whose Python gets our packages only from the driver. One run of
`cluster.py` serves all tests."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.end_to_end.cluster import NIGHT, ROWS
from tests.plain_python import python_without_gnomon
from tests.stores.process import Store

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, s3: Store) -> dict[str, Any]:
    """The findings of the driver. The executors' environment has no package of ours."""
    work = tmp_path_factory.mktemp("cluster")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "AWS"))}
    env["SPARK_HOME"] = str(_spark_home(work / "spark"))
    words = [
        str(work),
        str(python_without_gnomon(work / "python")),
        json.dumps(s3.variables),
        f"{s3.address}/{work.name}",
    ]
    command = [sys.executable, "-m", "tests.end_to_end.cluster", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return {"work": str(work), **json.loads(done.stdout.splitlines()[-1])}


def _spark_home(folder: Path) -> Path:
    """The installed Spark, but with the folders of executors here."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def test_executors_have_our_packages_from_what_was_shipped_alone(seen: dict[str, Any]) -> None:
    first, second = seen["places"]
    assert first["folder"] != second["folder"]
    for place in (first, second):
        assert place["folder"].startswith(f"{seen['work']}/spark/work/")
        assert place["python"] == f"{seen['work']}/python/bin/python"
        assert re.fullmatch(r"\./gnomon-[0-9a-f]+\.zip/gnomon/__init__\.py", place["gnomon"])


def test_a_command_whose_executors_lack_our_packages_says_so_on_one_line(seen: dict[str, Any]) -> None:
    assert seen["not shipped"] == {
        "code": 3,
        "said": [
            f"gnomon: the executors' {seen['work']}/python/bin/python cannot run our tasks: No module named 'gnomon'; "
            "docs/operations/cluster.md says what executors need"
        ],
    }


def test_a_python_that_executors_lack_is_named(seen: dict[str, Any]) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert seen["no python"] == (
        f"the executors have no /nowhere/python; set PYSPARK_PYTHON to a Python {version} they have; "
        "docs/operations/cluster.md says what executors need"
    )


def test_builds_index_what_is_new(seen: dict[str, Any]) -> None:
    first, nightly = seen["first build"], seen["nightly build"]
    assert (first["rows_indexed"], first["rows"], first["mapped_files"]) == (ROWS, ROWS, first["new_files"])
    assert (nightly["rows_indexed"], nightly["rows"], nightly["snapshot"]) == (NIGHT, ROWS + NIGHT, 2)
    assert seen["build of lines"]["rows"] == ROWS


def test_loads_give_the_rows_of_a_plain_join(seen: dict[str, Any]) -> None:
    assert seen["load"] == {"rows": 180, "same": True}
    assert seen["load of lines"] == {"rows": 90, "same": True}


def test_joins_and_queries_give_what_plain_ones_give(seen: dict[str, Any]) -> None:
    assert seen["join"] == {"rows": 3, "same": True}
    assert seen["load by index"] == {"rows": 180, "same": True}
    assert seen["query"] == {"rows": 4, "same": True}


def test_rows_written_as_values_are_found_by_key(seen: dict[str, Any]) -> None:
    assert sorted(seen["values"]) == [602, 603]


def test_dedup_appends_each_new_key_once(seen: dict[str, Any]) -> None:
    found = seen["dedup"]
    assert (found["code"], found["appended"], found["rows_read"]) == (0, seen["new keys"], 2 * NIGHT)
    assert seen["after dedup"]["same"]


def test_tasks_reach_a_store_by_the_settings_of_the_session(seen: dict[str, Any]) -> None:
    assert seen["build in a store"]["rows"] == ROWS + NIGHT + seen["new keys"]
    assert seen["load from a store"] == {"rows": 90, "same": True}

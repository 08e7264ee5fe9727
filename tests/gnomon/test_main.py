"""The command before any of its commands: help, version, and what is not installed."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.base import kernel
from gnomon.shadow import open_index
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

# A Python in which packages are not installed, and what a run imported.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from gnomon.__main__ import main

code = main({arguments})
print("imported", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def run(
    *arguments: str, missing: tuple[str, ...] = (), environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(missing=repr(set(missing) or {""}), arguments=list(arguments))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_help_shows_examples_and_imports_no_reader_of_files() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "gnomon build /lake/crawl /indexes/crawl --key url" in done.stdout
    imported = done.stderr.split()
    assert "typer" in imported
    assert not {"pyarrow", "numpy", "gnomon.shadow", "pyspark", "starlette", "importlib.metadata"} & set(imported)


def completed(shell: str, line: str, missing: tuple[str, ...] = (), **more: str) -> list[str]:
    """The completions of a line with the cursor at its end, as the script of a shell gets them: one word a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TYPER_COMPLETE_ARGS": line}
    done = run(missing=missing, environment={**words, "_GNOMON_COMPLETE": f"complete_{shell}", **more})
    assert [told for told in done.stderr.splitlines() if not told.startswith("imported")] == []
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_their_values(shell: str) -> None:
    more = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    for line, expected, other in [
        ("gnomon ve", "verify", "vacuum"),
        ("gnomon get i k --exp", "--explain", "--format"),
        ("gnomon get i k --format a", "arrow", "csv"),
        ("gnomon build --eng", "--engine", "--key"),
    ]:
        told = " ".join(completed(shell, line, **more))
        assert expected in told, line
        assert other not in told, line
    script = run(environment={"_GNOMON_COMPLETE": f"source_{shell}"}).stdout
    assert f"_GNOMON_COMPLETE=complete_{shell}" in script


def test_bash_runs_the_script_of_its_completion(tmp_path: Path) -> None:
    program = tmp_path / "gnomon"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gnomon "$@"\n')
    program.chmod(0o755)
    ask = '\nCOMP_WORDS=(gnomon his); COMP_CWORD=1; _gnomon_completion gnomon; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", run(environment={"_GNOMON_COMPLETE": "source_bash"}).stdout + ask],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["history"], done.stderr


def test_the_shell_gets_no_error_for_a_command_whose_extra_is_missing() -> None:
    assert "serve" in completed("bash", "gnomon ", missing=("starlette", "pyspark"))
    assert completed("bash", "gnomon serve --", missing=("starlette", "pyspark")) == []


@pytest.mark.parametrize(
    ("chosen", "command", "expected"),
    [(None, "build", "system"), ("mimalloc", "build", "mimalloc"), (None, "serve", "mimalloc")],
)
def test_a_job_takes_the_memory_pool_that_it_needs_unless_the_user_names_one(
    chosen: str | None, command: str, expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    ask = "import atexit; atexit.register(lambda: print(__import__('pyarrow').default_memory_pool().backend_name))"
    run = f"{ask}; import sys; from gnomon.__main__ import main; sys.argv = ['gnomon', '{command}', '--help']; main()"
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert done.stdout.splitlines()[-1] == expected


def test_the_version_is_told() -> None:
    done = run("--version")
    loops = f"inner loops: {re.escape(kernel.STATE)}"
    assert done.returncode == 0
    assert re.fullmatch(f"gnomon {re.escape(version('gnomon-index'))}\n{loops}\n", done.stdout)


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [("catalog", "httpx", "catalog"), ("serve", "starlette", "service"), ("mcp", "mcp", "mcp")],
)
def test_a_missing_extra_is_one_line_with_its_cure(command: str, missing: str, extra: str) -> None:
    done = run(command, "--help", missing=(missing,))
    assert done.returncode == 3
    line, _ = done.stderr.splitlines()
    assert line == (
        f"gnomon: {command} needs the package {missing}, which is not installed: pip install 'gnomon-index[{extra}]'"
    )


def test_commands_without_an_extra_need_none() -> None:
    assert run("get", "--help", missing=("pyspark", "starlette", "uvicorn", "pandas")).returncode == 0
    done = run("token", "desk", missing=("pyspark", "starlette", "uvicorn", "prometheus_client"))
    assert (done.returncode, done.stdout.splitlines()[1].startswith("desk sha256:")) == (0, True)


WITHOUT_SPARK = ("pyspark", "py4j", "pandas")


def test_a_build_without_pyspark_runs_in_this_process(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    done = run("build", f"{tmp_path}/source", f"{tmp_path}/index", "--key", "id", missing=WITHOUT_SPARK)
    assert (done.returncode, "100 rows indexed" in done.stdout + done.stderr) == (0, True)
    assert open_index(tmp_path / "index").fetch(7) == [{"id": 7}]


def test_a_load_without_pyspark_runs_in_this_process(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100), "v": range(100)})})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    (tmp_path / "keys.csv").write_text("id\n7\n100\n")
    load = ("load", f"{tmp_path}/index", f"{tmp_path}/keys.csv", f"{tmp_path}/out")
    done = run(*load, missing=WITHOUT_SPARK)
    assert (done.returncode, "1 row in " in done.stdout) == (0, True)
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"id": 7, "v": 7}]
    done = run(*load, "--engine", "spark", missing=WITHOUT_SPARK)
    assert done.returncode == 3
    assert done.stderr.startswith("gnomon: load needs the package pyspark, which is not installed")


@pytest.mark.parametrize("arguments", [["--engine", "spark"], ["--master", "local[1]"]])
def test_a_build_that_asks_for_spark_says_how_to_install_it(tmp_path: Path, arguments: list[str]) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    done = run("build", f"{tmp_path}/source", f"{tmp_path}/index", "--key", "id", *arguments, missing=WITHOUT_SPARK)
    line = done.stderr.splitlines()[0]
    assert done.returncode == 3
    assert line == "gnomon: build needs the package pyspark, which is not installed: pip install 'gnomon-index[spark]'"
    assert not (tmp_path / "index").exists()


def test_settings_of_spark_with_the_local_engine_are_refused(tmp_path: Path) -> None:
    done = run(
        "build", f"{tmp_path}/source", f"{tmp_path}/index", "--key", "id", "--engine=local", "--conf", "spark.a=b"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gnomon: --conf: a setting of Spark, which --engine local does not start")


def test_an_append_without_pyspark_runs_in_this_process(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    write_source(tmp_path, {"batch.parquet": pa.table({"id": range(90, 110)})})
    done = run("dedup", f"{tmp_path}/index", f"{tmp_path}/batch.parquet", missing=WITHOUT_SPARK)
    assert (done.returncode, "10 of 20 rows appended in 1 file" in done.stdout) == (0, True)
    assert open_index(tmp_path / "index").fetch(105) == [{"id": 105}]
    done = run("dedup", f"{tmp_path}/index", f"{tmp_path}/batch.parquet", "--engine=spark", missing=WITHOUT_SPARK)
    assert done.returncode == 3
    assert done.stderr.startswith("gnomon: dedup needs the package pyspark, which is not installed")


def test_the_face_appends_without_pyspark(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    program = (
        "import sys; sys.modules['pyspark'] = None; import gnomon, pyarrow as pa; "
        "print(gnomon.append_new(None, sys.argv[1], pa.table({'id': [5, 600, 700]}), 'b').appended)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "2\n"


def test_the_face_loads_without_pyspark(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    program = (
        "import sys; sys.modules['pyspark'] = None; import gnomon, pyarrow as pa; "
        "print(gnomon.load(None, sys.argv[1], pa.table({'id': [5, 6, 700]})).read_all().num_rows)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "2\n"


def test_the_face_builds_without_pyspark(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": range(100)})})
    program = (
        "import sys; sys.modules['pyspark'] = None; source, index = sys.argv[1:]; "
        "import gnomon; print(gnomon.build(None, source, index, ['id']).rows)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "source"), str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "100\n"


def test_the_face_writes_a_key_value_folder_without_pyspark(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; import gnomon, pyarrow as pa; "
        "print(gnomon.write_btree(pa.table({'id': [5, 6], 'v': [1, 2]}), sys.argv[1], ['id']).total_rows); "
        "print(gnomon.open_index(sys.argv[1]).get(6))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "values")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "2\n[{'id': 6, 'v': 2}]\n"

"""The archive of our packages, and the errors of executors that cannot run it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.base import kernel
from gnomon.indexer import ship
from gnomon.indexer.spark.tasks import archive, check_executors


@pytest.mark.process
@pytest.mark.parametrize("module", ["gnomon.indexer.dedup.check", "gnomon.commands.crawl", "gnomon.sources.parquet"])
def test_the_archive_holds_all_that_tasks_import(module: str, tmp_path: Path) -> None:
    program = f"import {module}; print({module}.__file__)"
    env = {"PYTHONPATH": archive()}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(archive())


@pytest.mark.process
def test_the_archive_brings_the_compiled_loops(tmp_path: Path) -> None:
    program = "from gnomon.base import kernel; print(kernel.__file__, kernel.STATE, sep='\\n')"
    env = {"PYTHONPATH": archive(), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    file, state = done.stdout.splitlines()
    assert file.startswith(archive())
    assert state == kernel.STATE
    assert not list(tmp_path.iterdir())


@pytest.mark.process
@pytest.mark.skipif(not kernel.COMPILED, reason="the loops are not compiled here")
def test_an_executor_that_cannot_load_the_compiled_loops_uses_those_in_python(tmp_path: Path) -> None:
    whole, broken = Path(archive()), tmp_path / "broken.zip"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"for another system" if "_records.c" in name else source.read(name))
    program = "from gnomon.base import kernel; print(kernel.COMPILED, kernel.locate.__module__)"
    env = {"PYTHONPATH": str(broken)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "gnomon.base.records_python"]


@pytest.mark.process
def test_an_archive_made_from_the_archive_is_the_same(tmp_path: Path) -> None:
    program = "from gnomon.indexer.spark.tasks import archive; from pathlib import Path; "
    program += "print(Path(archive()).read_bytes().hex())"
    env = {"PYTHONPATH": archive()}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert bytes.fromhex(done.stdout) == Path(archive()).read_bytes()


@pytest.mark.spark
def test_executors_that_have_what_they_need_pass_and_shipping_twice_does_no_harm(spark: SparkSession) -> None:
    path = list(sys.path)
    check_executors(spark)
    ship(spark)
    ship(spark)
    assert sys.path == path

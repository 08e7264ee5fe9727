"""The sdist and the wheel: their content, and a wheel installed next to packages with the names of ours."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.base import kernel
from tests.plain_python import python_without_gnomon
from tests.shadow.make_index import index_source, write_source

pytestmark = [pytest.mark.process, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TOP = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("btree", "indexer", "service", "gnomon")
MADE = ("__pycache__", "_*.so", "_*.c")  # by Python and by builds in place
NAMES_OF_OTHERS = ("btree", "sources", "shadow", "jobs", "indexer", "service")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, the wheel built from the sdist."""
    source = tmp_path_factory.mktemp("checkout")
    for name in TOP:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns(*MADE))
    command = [sys.executable, "-m", "build", "--quiet", str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return source / "dist"


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel, and with other packages that fail when they are imported."""
    python = python_without_gnomon(tmp_path_factory.mktemp("installed") / "venv")
    [wheel] = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, timeout=120)
    [site_packages] = python.parents[1].glob("lib/python*/site-packages")
    for name in NAMES_OF_OTHERS:
        (site_packages / name).mkdir()
        (site_packages / name / "__init__.py").write_text(f"raise RuntimeError('{name} of somebody else')\n")
    return python


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    write_source(lake / "source", {"a.parquet": pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})})
    index_source(lake / "source", lake / "index", ["id"])
    return lake / "index"


@pytest.fixture
def run(python: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run a program of the environment, in a folder with a `shadow.py` of the user's."""
    (tmp_path / "shadow.py").write_text("raise RuntimeError('the shadow of the user')\n")

    def run(*words: str) -> str:
        command = [str(python.parent / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_metadata_of_both_is_fit_to_be_published(dist: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_the_wheel_has_one_top_level_package_and_every_file_of_it(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not any(fnmatch(part, pattern) for part in path.parts for pattern in MADE):
                inside = path.relative_to(ROOT).as_posix()
                expected.add(inside if folder == "gnomon" else f"gnomon/{inside}")
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == expected
    assert compiled or not kernel.COMPILED


def test_the_sdist_has_the_package_and_no_tests(dist: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {member.name.split("/")[1] for member in archive.getmembers() if "/" in member.name}
    assert tops == {*TOP, "gnomon", "PKG-INFO", "setup.cfg", "gnomon_index.egg-info"}


def test_a_row_is_fetched_beside_packages_of_the_same_names(run, index: Path) -> None:  # type: ignore[no-untyped-def]
    assert json.loads(run("gnomon", "get", str(index), "2")) == {"id": 2, "name": "b"}
    program = f"import gnomon; print(gnomon.open_index({str(index)!r}).fetch(3))"
    assert run("python", "-c", program) == "[{'id': 3, 'name': 'c'}]\n"


def test_a_service_is_checked_beside_packages_of_the_same_names(run, index: Path) -> None:  # type: ignore[no-untyped-def]
    assert "index" in run("gnomon", "serve", str(index), "--check")

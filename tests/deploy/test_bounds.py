"""The lower bounds in pyproject.toml: all of them can be installed together, and on those of the extra `service` the
tests of the protocol pass. deploy/try-python.sh runs more tests on all of them. At the other end, `make setup` installs
the newest versions on a bare machine, and all tests run there."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.deployed import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

REQUIRED = "GNOMON_TEST_BOUNDS"
SECONDS = 300.0
OFFLINE = re.compile(
    "dns error|error sending request|[Ff]ailed to (?:fetch|connect)|[Oo]peration timed out|tcp connect"
    "|network was disabled"
)
EXTRAS = ("spark", "service", "delta", "iceberg", "otel", "polars", "catalog", "duckdb")  # `mcp` needs a newer pydantic
TOOLS = ("pytest", "hypothesis", "httpx", "trustme")
TESTS = (
    "tests/service/http/test_connection.py",
    "tests/service/test_root_path.py",
    "tests/service/metrics/test_observe.py",
)
VERSIONS = """
import importlib.metadata, sys
print(*(f"{name}={importlib.metadata.version(name)}" for name in sys.argv[1:]))
"""


def uv(*arguments: str) -> str:
    """The output of `uv pip`. Skips the test where the package index cannot be reached."""
    command = [sys.executable, "-m", "uv", "pip", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode and OFFLINE.search(done.stderr) and os.environ.get(REQUIRED) != "required":
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def requirements(*extras: str) -> list[str]:
    """The requirements of the extras; without an extra those of Gnomon itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if not extras:
        return list(project["dependencies"])
    found = [one for extra in extras for one in project["optional-dependencies"][extra]]
    return [one for one in found if not one.startswith("gnomon-index[")]  # extras of ours, which are tested themselves


def lower_bounds(wanted: list[str]) -> dict[str, str]:
    """The lower bound of each package. Every requirement has one."""
    found = [re.match(r"([\w.-]+)>=([\w.]+)", one) for one in wanted]
    assert None not in found, wanted
    return {one[1].replace(".", "-"): one[2] for one in found if one}


def is_version(version: str, bound: str) -> bool:
    return re.fullmatch(rf"{re.escape(bound)}(\.0)*", version) is not None


def test_the_lower_bounds_of_all_packages_can_be_installed_together_on_the_oldest_python(tmp_path: Path) -> None:
    wanted = [*requirements(), *requirements(*EXTRAS)]
    bounds = lower_bounds(wanted)
    # pyspark has no wheel: its requirements, of py4j alone, are not resolved, since that takes its 400 MB.
    parts = {"pyspark": ["--no-deps"], "others": ["--only-binary", ":all:"]}
    found: dict[str, str] = {}
    for part, options in parts.items():
        file = tmp_path / f"{part}.in"
        file.write_text("\n".join(one for one in wanted if one.startswith("pyspark") == (part == "pyspark")))
        oldest = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
        lines = uv("compile", "--quiet", "--resolution", "lowest-direct", *oldest, *options, str(file))
        found |= dict(re.findall(r"^([\w.-]+)==([\w.]+)", lines, re.MULTILINE))
    higher = {name: found[name] for name, bound in bounds.items() if not is_version(found[name], bound)}
    assert higher == {}, "these are used where the lower bounds are allowed"


def test_the_service_runs_on_the_lowest_versions_that_its_extra_allows(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = ("install", "--quiet", "--python", python)
    uv(*install, "--resolution", "lowest-direct", "--requirements", "pyproject.toml", "--extra", "service")
    uv(*install, *TOOLS)
    bounds = lower_bounds(requirements("service"))
    command = [python, "-c", VERSIONS, *bounds]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = dict(one.split("=") for one in told)
    for name, bound in bounds.items():
        assert is_version(found[name], bound), f"{name}: {bound} is allowed, {found[name]} is used"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not process", *TESTS]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]

"""The lower bounds of the extra `service` in pyproject.toml: the tests of the protocol pass on these versions. At
the other end, `make setup` installs the newest versions on a bare machine, and all tests run there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.deployed import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

REQUIRED = "GNOMON_TEST_BOUNDS"
SECONDS = 300.0
OFFLINE = re.compile(
    "dns error|error sending request|[Ff]ailed to (?:fetch|connect)|[Oo]peration timed out|tcp connect"
    "|network was disabled"
)
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


def uv(*arguments: str) -> None:
    """Run uv. Skips the test where the package index cannot be reached."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode and OFFLINE.search(done.stderr) and os.environ.get(REQUIRED) != "required":
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_the_service_runs_on_the_lowest_versions_that_its_extra_allows(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    uv("--python", python, "--resolution", "lowest-direct", "--requirements", "pyproject.toml", "--extra", "service")
    uv("--python", python, *TOOLS)
    extra = re.search(r"^service = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert extra is not None
    bounds = dict(re.findall(r'^    "([\w-]+)>=([\d.]+)"', extra[1], re.MULTILINE))
    command = [python, "-c", VERSIONS, *bounds]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = dict(one.split("=") for one in told)
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", found[name]), (
            f"{name}: {bound} is allowed, {found[name]} is used"
        )
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not process", *TESTS]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]

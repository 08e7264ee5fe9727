"""deploy/systemd/: units that systemd takes, confined, with commands that Gnomon takes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.deployed import DEPLOY, parse_command, settings_of, units

ANALYZE = shutil.which("systemd-analyze")
EXPOSED = {"gnomon-serve": 20, "gnomon-build": 30}  # at most, of 100, by systemd's own measure
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not here (Debian: systemd)")


def analyze(*words: str, cwd: Path) -> str:
    assert ANALYZE
    done = subprocess.run([ANALYZE, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def values(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", (DEPLOY / "systemd" / unit).read_text(), re.MULTILINE)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units, with a program that is there."""
    for unit in units():
        (tmp_path / unit.name).write_text(re.sub(r"/opt/[\w-]+/bin/gnomon", "/bin/true", unit.read_text()))
    return tmp_path


@pytest.mark.process
@needs_systemd
def test_systemd_takes_the_units(installed: Path) -> None:
    said = analyze("verify", "--man=no", *(f"./{unit.name}" for unit in units()), cwd=installed)
    assert not [line for line in said.splitlines() if "gnomon" in line]


@pytest.mark.process
@needs_systemd
@pytest.mark.parametrize("name", EXPOSED)
def test_a_unit_is_confined(installed: Path, name: str) -> None:
    analyze("security", "--offline=yes", f"--threshold={EXPOSED[name]}", f"./{name}.service", cwd=installed)


def test_the_commands_are_ones_that_gnomon_takes() -> None:
    (serve,) = values("gnomon-serve.service", "ExecStart")
    parse_command(shlex.split(serve)[1:])
    lines = (DEPLOY / "systemd" / "build.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    (build,) = values("gnomon-build.service", "ExecStart")
    words = [given[word.strip("${}")] if word.startswith("$") else word for word in build.split()[1:]]
    parse_command([*words[:-1], *shlex.split(words[-1])])


def test_a_service_that_is_told_to_end_has_its_time() -> None:
    settings = settings_of((DEPLOY / "gnomon.toml").read_text())
    (stop,) = values("gnomon-serve.service", "TimeoutStopSec")
    assert int(stop) > settings.shutdown_seconds


def test_both_programs_read_what_the_other_writes() -> None:
    assert values("gnomon-serve.service", "Group") == values("gnomon-build.service", "Group")
    assert values("gnomon-build.service", "UMask") == ["0027"]

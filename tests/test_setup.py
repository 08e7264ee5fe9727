"""deploy/setup.sh: what it accepts, what it installs, and the one line it says otherwise.

Each test gives it a PATH of its own that holds nothing but stand-ins.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


SCRIPT = Path(__file__).parents[1] / "deploy" / "setup.sh"
BASH = shutil.which("bash") or "/bin/bash"
CHMOD = shutil.which("chmod") or "/bin/chmod"


@dataclass
class Machine:
    """A PATH and a folder of Java installations, with Python and make in place and an ordinary user."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir()
        self.log = self.root / "apt.log"
        self.program("id", "echo 1000")
        self.program("make", "exit 0")
        self.program("python3", f'exec "{sys.executable}" "$@"')

    def program(self, name: str, body: str) -> Path:
        """An executable at `bin/<name>`, or at a path below the machine's root."""
        path = self.root / name if "/" in name else self.root / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def java(self, version: str, home: str | None = None) -> None:
        name = f"{home}/bin/java" if home else "java"
        self.program(name, f"""echo 'openjdk version "{version}" 2025-01-01' >&2; echo 'OpenJDK' >&2""")

    def root_with_apt(self, on_install: str = "exit 0") -> None:
        self.program("id", "echo 0")
        self.program(
            "apt-get",
            f'echo "$DEBIAN_FRONTEND $*" >> "{self.log}"\ncase "$*" in *install*) {on_install} ;; esac',
        )

    def run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": str(self.root / "bin"), "JVM_DIR": str(self.root / "jvm"), **environment}
        command = [BASH, str(SCRIPT), *options]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21", "21.0.2", "25-ea"])
def test_java_17_and_later_pass_without_a_word(machine: Machine, version: str) -> None:
    machine.java(version)
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", "8"), ("11.0.22", "11"), ("16-ea", "16")])
def test_an_older_java_is_one_line_that_says_found_needed_and_package(
    machine: Machine, version: str, major: str
) -> None:
    machine.java(version)
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"Java 17 or later, found {major} ({machine.root}/bin/java)" in line
    assert "openjdk-17-jre-headless" in line


def test_no_java_is_one_line(machine: Machine) -> None:
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "found none" in line
    assert "openjdk-17-jre-headless" in line


def test_a_java_that_does_not_start_counts_as_too_old(machine: Machine) -> None:
    machine.program("java", "exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_java_home_comes_before_the_path(machine: Machine) -> None:
    machine.java("1.8.0_392")
    machine.java("21", home="own")
    home = str(machine.root / "own")
    assert machine.run(JAVA_HOME=home).returncode == 0
    assert machine.run("--java-home", JAVA_HOME=home).stdout == f"{home}\n"


def test_an_old_java_home_gives_way_to_the_path(machine: Machine) -> None:
    machine.java("21")
    machine.java("11", home="own")
    home = str(machine.root / "own")
    assert machine.run(JAVA_HOME=home).returncode == 0
    assert machine.run("--java-home", JAVA_HOME=home).stdout == "\n"


def test_an_installed_java_off_the_path_is_used_and_named(machine: Machine) -> None:
    machine.java("11")
    machine.java("25", home="jvm/jdk-25")
    machine.java("17.0.15", home="jvm/java-17")
    machine.java("1.8.0_392", home="jvm/java-8")
    machine.root_with_apt()
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert f"JAVA_HOME={machine.root}/jvm/java-17" in line
    assert machine.run("--java-home").stdout == f"{machine.root}/jvm/java-17\n"
    assert not machine.log.exists()


def test_root_gets_java_installed_and_is_told_in_one_line(machine: Machine) -> None:
    machine.java("11")
    java = machine.root / "bin" / "java"
    machine.root_with_apt(f"""echo 'echo "openjdk version \\"17.0.15\\"" >&2' > "{java}" """)
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "installing openjdk-17-jre-headless" in line
    update, install = machine.log.read_text().splitlines()
    assert update.startswith("noninteractive")
    assert "update" in update
    assert install.endswith("openjdk-17-jre-headless")


def test_a_release_without_java_17_gets_its_default_java(machine: Machine) -> None:
    java = machine.root / "bin" / "java"
    script = f"""printf '#!/bin/sh\\necho "openjdk version \\\\"21\\\\"" >&2\\n' > "{java}"; {CHMOD} +x "{java}" """
    machine.root_with_apt(f'case "$*" in *openjdk-17*) exit 100 ;; esac; {script}')
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "installing default-jre-headless" in done.stdout.splitlines()[-1]


def test_an_install_that_fails_says_why_and_ends_in_the_one_line(machine: Machine) -> None:
    machine.root_with_apt("echo 'E: no network' >&2; exit 100")
    done = machine.run()
    assert done.returncode == 1
    why, line = done.stderr.splitlines()
    assert why == "E: no network"
    assert "openjdk-17-jre-headless" in line


def test_a_missing_make_is_one_line(machine: Machine) -> None:
    machine.java("17")
    (machine.root / "bin" / "make").unlink()
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "Debian package make" in line


@pytest.mark.parametrize(
    ("answer", "found"), [("9 1", "3.9"), ("11 0", "3.11 without venv"), ("13 0", "3.13 without venv")]
)
def test_a_python_that_will_not_do_is_one_line(machine: Machine, answer: str, found: str) -> None:
    machine.java("17")
    machine.program("python3", f"echo {answer}")
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"found {found} (python3)" in line
    assert "python3-venv" in line


def test_root_gets_python_venv_installed(machine: Machine) -> None:
    machine.java("17")
    python = machine.program("python3", "echo 11 0")
    machine.root_with_apt(f"""echo 'echo 11 1' > "{python}" """)
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "installing python3-venv" in done.stdout


def test_another_python_can_be_named(machine: Machine) -> None:
    machine.java("17")
    machine.program("python3", "echo 9 1")
    assert machine.run(PYTHON=sys.executable).returncode == 0
    missing = machine.run(PYTHON="python9")
    assert missing.returncode == 1
    assert "found none (python9)" in missing.stderr


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_that_is_there_passes_without_a_word(machine: Machine, name: str) -> None:
    machine.program(name, "exit 0")
    machine.root_with_apt()
    done = machine.run("--browser")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not machine.log.exists()


def test_no_browser_is_one_line(machine: Machine) -> None:
    done = machine.run("--browser")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "Debian package chromium" in line


def test_root_gets_a_browser_installed_and_is_told_in_one_line(machine: Machine) -> None:
    browser = machine.root / "bin" / "chromium"
    machine.root_with_apt(f"""echo '#!/bin/sh' > "{browser}"; {CHMOD} +x "{browser}" """)
    done = machine.run("--browser")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "installing chromium" in line


def test_a_browser_that_cannot_be_installed_ends_in_the_one_line(machine: Machine) -> None:
    machine.root_with_apt("echo 'E: no network' >&2; exit 100")
    done = machine.run("--browser")
    assert done.returncode == 1
    why, line = done.stderr.splitlines()
    assert why == "E: no network"
    assert "Debian package chromium" in line


def test_npm_and_go_that_are_there_pass_without_a_word(machine: Machine) -> None:
    machine.program("npm", "exit 0")
    machine.program("go", "exit 0")
    machine.root_with_apt()
    done = machine.run("--stores")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not machine.log.exists()


@pytest.mark.parametrize(("missing", "there", "package"), [("npm", "go", "npm"), ("go", "npm", "golang-go")])
def test_root_gets_npm_and_go_installed_and_others_are_told_in_one_line(
    machine: Machine, missing: str, there: str, package: str
) -> None:
    machine.program(there, "exit 0")
    refused = machine.run("--stores")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"Debian package {package}" in refused.stderr
    program = machine.root / "bin" / missing
    machine.root_with_apt(f"""echo '#!/bin/sh' > "{program}"; {CHMOD} +x "{program}" """)
    done = machine.run("--stores")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert f"installing {package}" in line


def test_nginx_that_is_there_passes_without_a_word(machine: Machine) -> None:
    machine.program("nginx", "exit 0")
    machine.root_with_apt()
    done = machine.run("--nginx")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not machine.log.exists()


def test_root_gets_nginx_installed_and_others_are_told_in_one_line(machine: Machine) -> None:
    refused = machine.run("--nginx")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Debian package nginx" in refused.stderr
    nginx = machine.root / "bin" / "nginx"
    machine.root_with_apt(f"""echo '#!/bin/sh' > "{nginx}"; {CHMOD} +x "{nginx}" """)
    done = machine.run("--nginx")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "installing nginx-light" in line


def test_root_gets_prometheus_installed_and_others_are_told_in_one_line(machine: Machine) -> None:
    refused = machine.run("--prometheus")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Debian package prometheus" in refused.stderr
    makes = f"""for name in prometheus promtool; do echo '#!/bin/sh' > $name; {CHMOD} +x $name; done"""
    machine.root_with_apt(f'cd "{machine.root}/bin"; {makes}')
    done = machine.run("--prometheus")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "installing prometheus" in line
    machine.log.unlink()
    again = machine.run("--prometheus")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert not machine.log.exists()


def test_an_unknown_option_is_refused(machine: Machine) -> None:
    assert machine.run("--help-me").returncode == 1

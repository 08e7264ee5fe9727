"""deploy/Containerfile: it is linted, its copied files exist, and its packages are those of pyproject.toml."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gnomon.service.settings import load_settings
from tests.deploy.deployed import DEPLOY, ROOT, compose, pod_spec
from tests.deploy.deployed import manifests as all_manifests

FILE = DEPLOY / "Containerfile"
USER = "10001"
IMAGES = ("service", "job")


def instructions() -> list[str]:
    """One line each, comments left out."""
    text = re.sub(r"\\\n", " ", FILE.read_text())
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def stage(name: str) -> list[str]:
    """The instructions of a stage and of those it stands on."""
    lines, base = [], ""
    for line in instructions():
        if line.startswith("FROM "):
            _, base, _, current = line.split()
            if current == name:
                parent = base
        elif current == name:
            lines.append(line)
    return lines if "/" in parent else stage(parent) + lines


@pytest.mark.process
def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent)
    assert hadolint, "expected hadolint of the extra dev beside the interpreter"
    done = subprocess.run([hadolint, FILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_is_one_version_and_all_stages_stand_on_it() -> None:
    froms = [line.split()[1] for line in instructions() if line.startswith("FROM ")]
    outside = [one for one in froms if "/" in one]
    assert len(outside) == 1
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-[a-z]+", outside[0])


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_a_user_of_its_own_in_exec_form(name: str) -> None:
    lines = stage(name)
    assert [line for line in lines if line.startswith("USER ")] == [f"USER {USER}:{USER}"]
    (entrypoint,) = [line for line in lines if line.startswith("ENTRYPOINT ")]
    assert entrypoint.startswith('ENTRYPOINT ["/')
    assert any("pip uninstall --yes" in line for line in lines)


def test_only_the_job_has_java_and_only_the_service_a_health_check() -> None:
    assert any("openjdk" in line for line in stage("job"))
    assert not any("openjdk" in line or "apt-get" in line for line in stage("service"))
    (check,) = [line for line in stage("service") if line.startswith("HEALTHCHECK")]
    assert '"/opt/gnomon/healthcheck.py"' in check
    assert "HEALTHCHECK NONE" in stage("job")


def test_the_service_listens_to_its_network_unless_a_mounted_file_has_another_host(tmp_path: Path) -> None:
    (line,) = [line for line in stage("service") if line.startswith("ENV GNOMON_")]
    variables = dict(pair.split("=", 1) for pair in line.split()[1:] if pair.startswith("GNOMON_"))
    file = tmp_path / "gnomon.toml"
    file.write_text('host = "10.0.0.5"\n')
    assert load_settings({"indexes": ["/index"]}, (), None, variables).host == "0.0.0.0"
    mounted = load_settings({"indexes": ["/index"]}, (), str(file), variables)
    assert (mounted.host, mounted.overridden) == ("10.0.0.5", ())


def test_what_is_copied_is_there_and_sent_to_the_builder() -> None:
    sent = [line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = {
        word
        for line in instructions()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert all((ROOT / one).exists() for one in copied)
    assert copied == set(sent)


def test_every_package_is_copied() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert {f"COPY {one} {one}" for one in packages} <= set(instructions())


@pytest.mark.process
def test_the_wheel_takes_every_file_of_a_package_that_is_not_python() -> None:
    taken = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git: which files belong to a package is not known")
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    for name in map(Path, listed.stdout.splitlines()):
        if name.parts[0] in packages and name.suffix != ".py" and not (ROOT / name).is_symlink():
            folder = next(parent for parent in name.parents if (ROOT / parent / "__init__.py").exists())
            package = folder.parts if folder.parts[0] == "gnomon" else ("gnomon", *folder.parts)
            patterns = taken.get(".".join(package), [])
            assert any(name.relative_to(folder).match(pattern) for pattern in patterns), name


def test_each_package_that_the_extras_ask_for_has_a_version_that_they_take() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(
        line.split("==") for line in (DEPLOY / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    pinned = {canonicalize_name(name): number for name, number in pins.items()}
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["service"], *extras["spark"]]:
        needed = Requirement(text)
        name = canonicalize_name(needed.name)
        if needed.marker is None or needed.marker.evaluate():
            assert name in pinned, f"deploy/constraints.txt lacks {name}"
            assert needed.specifier.contains(pinned[name]), f"{text}, and deploy/constraints.txt has {pinned[name]}"


def test_the_user_of_the_manifests_is_that_of_the_images() -> None:
    for name, one in all_manifests().items():
        if name.startswith(("Deployment/", "CronJob/")):
            assert str(pod_spec(one)["securityContext"]["runAsUser"]) == USER, name


def test_the_images_of_the_compose_file_are_stages() -> None:
    for name, one in compose()["services"].items():
        if "build" in one:
            assert one["image"] == f"gnomon-{one['build']['target']}", name
            assert one["build"]["target"] in IMAGES
            assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).resolve() == FILE


def test_the_manifests_ask_for_the_version_that_is_here() -> None:
    texts = "".join(path.read_text() for path in (DEPLOY / "kubernetes").iterdir())
    assert set(re.findall(r"image: \S+/gnomon-\w+:(\S+)", texts)) == {version("gnomon-index")}

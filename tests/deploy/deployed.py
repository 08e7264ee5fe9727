"""The files of deploy/, as tests of several of them need them."""

import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gnomon.__main__ import Commands
from gnomon.service.settings.table import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
MIB, GIB = 1024**2, 1024**3
# The sum of deploy/README.md, "Capacity": bytes.
PROCESS, PARENT = 150 * 10**6, 60 * 10**6


def manifests() -> dict[str, dict[str, Any]]:
    """Kubernetes' objects by kind and name, the examples among them."""
    return deepcopy(_manifests())


@cache
def _manifests() -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(KUBERNETES.iterdir()):
        if path.name != "kustomization.yaml":
            found.update(objects_of(path.read_text()))
    return found


def objects_of(text: str) -> dict[str, dict[str, Any]]:
    """The objects of a text of YAML, by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(text)}


def kustomize() -> list[str] | None:
    """The command that renders a folder; None where there is no program for it."""
    if program := shutil.which("kustomize"):
        return [program, "build"]
    if program := shutil.which("kubectl"):
        told = subprocess.run(
            [program, "version", "--client", "-o", "json"], capture_output=True, text=True, check=False
        )
        if "kustomizeVersion" in told.stdout:  # of 1.24 and later: earlier ones have a version that is too old
            return [program, "kustomize"]
    return None


def rendered(command: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """The objects of a folder with a kustomization.yaml."""
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return objects_of(done.stdout)


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def units() -> list[Path]:
    return sorted([*(DEPLOY / "systemd").glob("*.service"), *(DEPLOY / "systemd").glob("*.timer")])


def settings_of(toml: str) -> Settings:
    """The settings of a file; an error where the service knows one of them not, or not such a value."""
    return Settings(**tomllib.loads(toml))


def memory_of(settings: Settings) -> int:
    """What the runbook says that the service takes, in bytes."""
    return settings.workers * (PROCESS + settings.cache_bytes + settings.memory_bytes) + PARENT


def parse_command(words: Sequence[str]) -> None:
    """Parse the words behind `gnomon` as the command itself does; an error where it would refuse them."""
    name, *arguments = words
    command = Commands(name="gnomon").get_command(None, name)
    command.make_context(name, list(arguments)).close()


def container_commands() -> Iterator[list[str]]:
    """What containers run, behind `gnomon`: compose's and Kubernetes'."""
    for name, one in compose()["services"].items():
        if name != "prometheus":
            yield (["serve"] if name == "service" else []) + one["command"]
    for name, one in manifests().items():
        kind = name.partition("/")[0]
        if kind in ("Deployment", "CronJob"):
            for container in containers(one):
                yield (["serve"] if kind == "Deployment" else []) + container["args"]


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod_spec(manifest)
    return [*spec.get("initContainers", []), *spec["containers"]]


def check_options(words: Sequence[str]) -> None:
    """Assert that the command has the options among the words; arguments may be left out or shortened."""
    name, *arguments = words
    known = {option for one in Commands(name="gnomon").get_command(None, name).params for option in one.opts}
    assert {word for word in arguments if word.startswith("--")} <= known, words


def blocks(page: str) -> list[str]:
    """The lines of a Markdown page that are to be typed, comments taken off."""
    return [line.partition("  #")[0].strip() for line in page.splitlines() if line.startswith("    ")]


def spans(page: str) -> set[str]:
    """What stands between backticks."""
    return {span for line in page.splitlines() if not line.startswith("    ") for span in line.split("`")[1::2]}


def gnomon_commands(texts: Iterable[str]) -> Iterator[list[str]]:
    """The words behind `gnomon` of each command that the texts are."""
    for text in texts:
        for part in text.split("&&"):
            words = part.split()
            if words[:1] == ["gnomon"] and len(words) > 1:
                yield words[1:]

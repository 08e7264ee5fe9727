"""Containers in podman, started, looked at and ended."""

import http.client
import subprocess
import time
from pathlib import Path
from typing import Any


def run(*words: str, seconds: float = 300.0, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = ["podman", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)


def podman(*words: str, seconds: float = 300.0) -> str:
    """The output of a command that succeeds."""
    done = run(*words, seconds=seconds)
    assert done.returncode == 0, f"podman {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Container:
    """A container that runs until it ends or the block does."""

    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self.begun = time.monotonic()
        podman("run", "--detach", "--name", name, *words)

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def inspect(self, template: str) -> str:
        return podman("inspect", "--format", template, self.name)

    @property
    def address(self) -> str:
        return self.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")

    def execute(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return run("exec", self.name, *words)

    def signal(self, name: str) -> None:
        podman("kill", "--signal", name, self.name)

    def stop(self, seconds: int) -> tuple[int, float]:
        """SIGTERM, and SIGKILL after that time. Returns the exit code and how many seconds it took."""
        begin = time.monotonic()
        podman("stop", "--time", str(seconds), self.name)
        return int(self.inspect("{{.State.ExitCode}}")), time.monotonic() - begin

    def wait(self, seconds: float) -> int:
        return int(podman("wait", self.name, seconds=seconds))

    def logs(self) -> str:
        done = run("logs", self.name)
        return done.stdout + done.stderr

    def remove(self) -> None:
        run("rm", "--force", "--time", "0", self.name)


def get(address: str, port: int, path: str, seconds: float, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def compose_words(service: dict[str, Any], folders: dict[str, str], here: Path) -> list[str]:
    """What podman gets for a service of the compose file: options, image, command."""
    words = ["--memory", service["mem_limit"], "--memory-swap", service["mem_limit"]]
    words += [f"--cap-drop={one}" for one in service["cap_drop"]]
    words += [f"--security-opt={one}" for one in service["security_opt"]]
    words += [f"--tmpfs={one}" for one in service["tmpfs"]]
    words += ["--read-only", "--read-only-tmpfs=false"] if service["read_only"] else []
    words += [f"--env={name}={value}" for name, value in service.get("environment", {}).items()]
    for volume in service["volumes"]:
        for name, folder in folders.items():
            volume = volume.replace(name, folder)
        words += ["--volume", f"{here}/{volume[2:]}" if volume.startswith("./") else volume]
    return [*words, service["image"], *service["command"]]

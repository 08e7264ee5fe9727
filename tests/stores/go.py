"""Programs written in Go, built once from their modules and kept."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.stores.process import locked

BUILD_SECONDS = 900
ENOUGH = (1, 21)  # from then on Go fetches a newer version of itself where a module asks for one
NEWER = "golang.org/toolchain@v0.0.1-go1.26.0.linux-amd64"


def go_program(module: str, version: str) -> Path | None:
    """The program of a module, built at the first call of all; None where it cannot be built."""
    name = re.sub(r"/v\d+$", "", module).rpartition("/")[2]  # Go names the program without its major version
    with locked(f"{name}-{version}") as folder:
        program = folder / name
        if not program.exists():
            try:
                _build(module, version, folder)
            except (OSError, subprocess.SubprocessError, ValueError):
                return None
        return program if program.exists() else None


def _build(module: str, version: str, folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        return
    found = re.search(r"go(\d+)\.(\d+)", _said(go, "version"))
    if found is None or (int(found[1]), int(found[2])) < ENOUGH:
        go = _newer(go)
    env = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    subprocess.run([go, "install", f"{module}@{version}"], env=env, timeout=BUILD_SECONDS, check=False)


def _newer(go: str) -> str:
    """A newer Go, which an older one, such as Debian's, fetches like a module: without the permissions of programs."""
    root = Path(json.loads(_said(go, "mod", "download", "-json", NEWER))["Dir"])
    for program in (*root.glob("bin/*"), *root.glob("pkg/tool/*/*")):
        program.chmod(0o755)
    return str(root / "bin/go")


def _said(go: str, *words: str) -> str:
    run = subprocess.run([go, *words], capture_output=True, text=True, timeout=BUILD_SECONDS, check=True, cwd="/")
    return run.stdout

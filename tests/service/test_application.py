"""service/application.py: the parts of an app, and the app for other servers."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import gnomon.service
from gnomon.service.settings import Settings

ROOT = Path(__file__).parents[2]


def run(program: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, "-c", program], {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_importing_the_app_loads_no_spark_and_nothing_above_shadow() -> None:
    program = "import sys, gnomon.service.application, gnomon.service.process.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pyspark", "py4j", "gnomon.indexer", "gnomon.commands"} & set(done.stdout.split())


@pytest.mark.process
def test_importing_the_service_makes_no_app_and_loads_no_web_framework() -> None:
    program = "import sys, gnomon.service; print('app' in vars(gnomon.service), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    made, *loaded = done.stdout.split()
    assert made == "False"
    assert not {"starlette", "gnomon.shadow", "numpy"} & set(loaded)


def test_the_service_has_no_other_lazy_name() -> None:
    with pytest.raises(AttributeError, match=r"module 'gnomon\.service' has no attribute 'apps'"):
        _ = gnomon.service.apps


@pytest.mark.process
@pytest.mark.parametrize("first", ["", "import gnomon.service.application; "])
def test_the_app_is_made_once_with_the_settings_of_the_environment(crawl_settings: Settings, first: str) -> None:
    program = (
        f"{first}from gnomon.service import app; from gnomon import service; assert service.app is app; "
        "print(app.state.service.settings.threads, app.state.following.started)"
    )
    variables = {"GNOMON_INDEXES": crawl_settings.indexes[0], "GNOMON_THREADS": "3", "GNOMON_PORT": "80"}
    done = run(program, variables)
    assert (done.returncode, done.stdout.split()) == (0, ["3", "False"])
    warnings = [line for line in map(json.loads, done.stderr.splitlines()) if line["level"] != "INFO"]
    told = "no effect: GNOMON_PORT; the server that runs gnomon.service:app has options of its own"
    assert [line["message"] for line in warnings] == [told]


@pytest.mark.process
def test_an_app_that_cannot_be_made_is_the_error_of_its_setting() -> None:
    variables = {"GNOMON_INDEXES": "/index", "GNOMON_THREADS": "many"}
    program = "from gnomon.service import app"
    done = run(program, variables)
    assert done.returncode == 1
    assert "UsageError: GNOMON_THREADS: expected a whole number from 1 to 1024, found 'many'" in done.stderr


def test_the_service_imports_shadow_alone_of_ours() -> None:
    ours: set[str] = set()
    for path in (ROOT / "service").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                ours.add(".".join((node.module or "").split(".")[:2]))
            elif isinstance(node, ast.Import):
                ours |= {".".join(alias.name.split(".")[:2]) for alias in node.names}
    assert {name for name in ours if name.startswith("gnomon")} == {"gnomon.base", "gnomon.service", "gnomon.shadow"}

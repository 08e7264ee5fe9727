"""service/application.py: the parts of an app."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_importing_the_app_loads_no_spark_and_nothing_above_shadow() -> None:
    program = "import sys, gnomon.service.application, gnomon.service.process.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pyspark", "py4j", "gnomon.indexer", "gnomon.commands"} & set(done.stdout.split())


def test_the_service_imports_shadow_alone_of_ours() -> None:
    ours: set[str] = set()
    for path in (ROOT / "service").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                ours.add(".".join((node.module or "").split(".")[:2]))
            elif isinstance(node, ast.Import):
                ours |= {".".join(alias.name.split(".")[:2]) for alias in node.names}
    assert {name for name in ours if name.startswith("gnomon")} == {"gnomon.base", "gnomon.service", "gnomon.shadow"}

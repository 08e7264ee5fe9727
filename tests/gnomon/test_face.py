"""`import gnomon`: the public names, imported when they are used, with their types."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gnomon

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

USERS_PROGRAM = """
from pathlib import Path

import gnomon
from pyspark.sql import DataFrame, SparkSession

index: gnomon.Index = gnomon.open_index(Path("/lake/crawl_index"))
rows: list[dict[str, object]] = index.fetch("https://a.example/7", columns=["url"], where={"dt": "2026-01-01"}, limit=1)
there: bool = "https://a.example/7" in index


def nightly(spark: SparkSession, batch: DataFrame) -> int:
    built: gnomon.BuildResult = gnomon.build(spark, "/lake/crawl", "/lake/crawl_index", ["url"], full=True)
    added: gnomon.DedupResult = gnomon.append_new(spark, "/lake/crawl_index", batch, "batch-17")
    found: DataFrame = gnomon.load(spark, "/lake/crawl_index", batch, columns=["url"])
    try:
        rows: int = built.rows + added.appended
        found.show()
        return rows
    except gnomon.StalePointer as error:
        path: str | None = error.path
        raise SystemExit(f"{path}: {error.action}") from error
"""
WRONG = {
    "gnomon.open_index(7)\n": "arg-type",
    'gnomon.open_index("/x").fetch("k", colums=["url"])\n': "call-arg",
    "gnomon.opened_index\n": "attr-defined",
    'first: int = gnomon.open_index("/x").fetch("k")\n': "assignment",
}


def names_for_type_checkers() -> list[str]:
    block = next(node for node in ast.parse(Path(gnomon.__file__).read_text()).body if isinstance(node, ast.If))
    return [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]


def test_each_name_is_there_for_programs_and_for_type_checkers() -> None:
    assert sorted(names_for_type_checkers()) == sorted(gnomon.__all__)
    for name in gnomon.__all__:
        assert getattr(gnomon, name).__name__ == name
        assert name in dir(gnomon)


def test_completion_offers_what_is_for_users_alone() -> None:
    assert sorted(dir(gnomon)) == sorted([*gnomon.__all__, "__version__"])


def test_each_error_that_a_call_raises_is_a_name_of_gnomon() -> None:
    """Also the ones of modules that only some calls import."""
    modules = ("gnomon.btree.errors", "gnomon.sources.errors", "gnomon.shadow.errors")
    found = {
        name: value
        for module in map(importlib.import_module, modules)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, gnomon.GnomonError)
    }
    assert len(found) > 30
    assert {name for name in found if getattr(gnomon, name, None) is not found[name]} == {"TooMany"} & found.keys()


def test_each_name_that_the_docs_give_is_there() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"\bgnomon\.([A-Za-z_]\w*)\(", page.read_text("utf-8"))}
    assert len(named) >= 10
    assert {name for name in named if not hasattr(gnomon, name)} == set()


def test_help_shows_what_each_name_is_for() -> None:
    assert [name for name in gnomon.__all__ if not inspect.getdoc(getattr(gnomon, name))] == []


def test_a_name_that_is_not_there_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'gnomon' has no attribute 'opened_index'"):
        gnomon.opened_index  # noqa: B018


@pytest.mark.process
def test_importing_gnomon_loads_nothing_of_it() -> None:
    program = "import sys; old = set(sys.modules); import gnomon; print(*set(sys.modules) - old); gnomon.__version__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {name for name in done.stdout.split() if name.startswith("gnomon")} == {"gnomon"}
    assert not {"pyarrow", "numpy", "pyspark", "starlette", "typer"} & set(done.stdout.split())


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "missing", "extra"), [("filter_new", "pyspark", "spark"), ("create_app", "starlette", "service")]
)
def test_a_name_whose_packages_are_not_installed_says_what_to_install(name: str, missing: str, extra: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import gnomon; gnomon.open_index; gnomon.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert f"pip install 'gnomon-index[{extra}]'" in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith(f"ModuleNotFoundError: gnomon.{name} needs the package {missing}")


def test_pages_for_users_import_gnomon_alone() -> None:
    found = []
    for page in PAGES:
        for block in re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            found += [
                f"{page.name}: {line}" for line in block.splitlines() if re.search(r"(from|import) gnomon\.", line)
            ]
    assert found == []


@pytest.mark.process
@pytest.mark.slow
def test_a_program_of_a_user_is_checked_by_the_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USERS_PROGRAM + "".join(WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    expected = len(USERS_PROGRAM.splitlines()) + 1
    seen = re.findall(r"^\S+:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert seen == [(str(expected + number), code) for number, code in enumerate(WRONG.values())], done.stdout

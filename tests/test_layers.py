"""The order of the packages: imports point down, stand at the top of the file, and make no cycle.

A module that is imported at its first use (`gnomon/base/later.py`) is imported at the top for type checkers.

All packages are imported below `gnomon`. Three of them lie at the top of the repository, and `gnomon` has a link to
each: `btree/` is `gnomon.btree`."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "base": {"base"},
    "btree": {"btree", "base"},
    "sources": {"sources", "base"},
    "shadow": {"shadow", "btree", "sources", "base"},
    "jobs": {"jobs", "shadow", "btree", "sources", "base"},
    "indexer": {"indexer", "jobs", "shadow", "btree", "sources", "base"},
    "service": {"service", "shadow", "base"},
    "gnomon": {"gnomon", "service", "indexer", "jobs", "shadow", "base"},
}
NOT_BELOW_THE_TOP = {"pyspark", "pandas", "starlette", "uvicorn", "typer", "rich", "mcp"}
NOT_IN = {
    "base": NOT_BELOW_THE_TOP,
    "btree": NOT_BELOW_THE_TOP,
    "sources": NOT_BELOW_THE_TOP,
    "shadow": NOT_BELOW_THE_TOP,
    "jobs": NOT_BELOW_THE_TOP,
    "indexer": {"starlette", "uvicorn"},
    "service": {"pyspark", "pandas"},
}
# The sub-packages of a package, lowest level first: each may import the ones before it.
LEVELS = {
    "sources": ["types", "literals", "parquet", "avro", "orc", "sequence", "text"],
    "shadow": [
        "storage",
        "tables",
        "metadata",
        "values",
        "lookup",
        "fetch",
        "write",
        "commit",
        "maintenance",
        "search",
        "verify",
    ],
    "jobs": ["files", "load", "build", "dedup", "dione"],
    "indexer": ["spark", "tables", "build", "join", "datasource", "dedup"],
    "service": ["settings", "http", "indexes", "access", "api", "metrics", "catalog", "process"],
}
# The most lines and modules of each package. A commit that raises a number says why, and what the new code replaces.
BUDGET = {
    "base": (3_440, 15),
    "btree": (5_470, 21),
    "sources": (17_150, 64),
    "shadow": (26_700, 107),
    "jobs": (8_410, 38),
    "indexer": (4_725, 26),
    "service": (10_900, 51),
    "gnomon": (4_160, 27),
}
SUB_PACKAGES = [f"{package}.{name}" for package, names in LEVELS.items() for name in names]
# A second face of a sub-package, of what needs an extra.
FACES_OF_EXTRAS = {"gnomon.shadow.tables.iceberg_files"}
FACE = Path("gnomon/__init__.py")  # it imports all names for type checkers
LINKED = {"btree", "indexer", "service"}  # they lie at the top; the others are folders of `gnomon`
TOPS = ("gnomon", *sorted(LINKED))
FILES = sorted(path.relative_to(ROOT) for top in TOPS for path in (ROOT / top).rglob("*.py"))


def folder_of(package: str) -> Path:
    """The folder of a package that is named without `gnomon`: "btree", "shadow.fetch"."""
    parts = package.split(".")
    return ROOT.joinpath(*(parts if parts[0] in {*LINKED, "gnomon"} else ("gnomon", *parts)))


def module_of(file: Path) -> str:
    """The name by which a file is imported."""
    parts = file.with_suffix("").parts
    return ".".join(parts if parts[0] == "gnomon" else ("gnomon", *parts)).removesuffix(".__init__")


def package_of(module: str) -> str:
    """The package of an imported module; for other modules, their first name."""
    parts = module.split(".")
    return parts[1] if parts[0] == "gnomon" and parts[1:] and parts[1] in PACKAGES else parts[0]


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file; several tests read each file."""
    return ast.parse((ROOT / file).read_text())


@cache
def imports_of(file: Path) -> list[tuple[str, ast.AST]]:
    """The module that each import of a file names, and the import."""
    return list(imported(parsed(file)))


def at_the_top(tree: ast.Module) -> list[ast.AST]:
    """The statements at the top of a file, and the ones there for type checkers."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return [*tree.body, *(inner for node in blocks for inner in node.body)]


def imported(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The imports among the statements of a tree; expressions, which have none, are most of it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield str(node.module), node
    elif not isinstance(node, ast.expr):
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(node, block, ()):
                yield from imported(inner)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down_and_stand_at_the_top(package: str) -> None:
    for file in (file for file in FILES if package_of(module_of(file)) == package):
        top = at_the_top(parsed(file))
        for name, node in imports_of(file):
            target = package_of(name)
            if name.split(".")[0] == "gnomon" and file != FACE:
                assert target in PACKAGES[package], f"{file}: {package} may not import {name}"
                assert node in top, f"{file}: the import of {name} does not stand at the top"
            assert target not in NOT_IN.get(package, set()), f"{file}: {package} may not import {name}"


def test_a_module_that_is_imported_later_is_the_one_that_type_checkers_see() -> None:
    for file in FILES:
        names = {
            f"{name}.{alias.name}" if isinstance(node, ast.ImportFrom) else name
            for name, node in imports_of(file)
            for alias in node.names
            if node not in parsed(file).body
        }
        later = {
            node.args[0].value
            for node in ast.walk(parsed(file))
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) == "Later"
            and isinstance(node.args[0], ast.Constant)
        }
        assert later <= names, f"{file}: {later - names} is imported later, and no import shows it"


def test_a_package_is_imported_below_gnomon_alone() -> None:
    for package in LINKED:
        assert (ROOT / "gnomon" / package).readlink() == Path("..", package)
    for file in (path.relative_to(ROOT) for top in (*TOPS, "tests", "bench") for path in (ROOT / top).rglob("*.py")):
        for name, _ in imports_of(file):
            assert name.split(".")[0] not in set(PACKAGES) - {"gnomon"}, f"{file}: import gnomon.{name}"


@pytest.mark.parametrize("package", ["btree", "sources", "shadow", "jobs", "service"])
def test_the_tests_of_a_package_run_without_spark(package: str) -> None:
    shared = [ROOT / "tests" / name for name in ("conftest.py", "spark_fixtures.py", "profiles.py")]
    for path in [*shared, *(ROOT / "tests" / "stores").rglob("*.py"), *(ROOT / "tests" / package).rglob("*.py")]:
        file = path.relative_to(ROOT)
        at_the_top = [node for node in parsed(file).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for name, _ in (found for node in at_the_top for found in imported(node)):
            assert package_of(name) not in {"pyspark", "py4j", "indexer"}, f"{file} imports {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_keeps_its_budget(package: str) -> None:
    modules = [ROOT / file for file in FILES if package_of(module_of(file)) == package]
    if package == "base":
        modules += (ROOT / "gnomon" / "base").glob("*.pyx")
    lines = sum(len(path.read_text().splitlines()) for path in modules)
    most_lines, most_modules = BUDGET[package]
    assert lines <= most_lines, f"{package} has {lines:,} lines"
    assert len(modules) <= most_modules, f"{package} has {len(modules)} modules"


def sub_package(module: str) -> str:
    """The innermost sub-package of the module; "" if there is none."""
    found = [package for package in SUB_PACKAGES if f"{module}.".startswith(f"gnomon.{package}.")]
    return max(found, key=len, default="")


@pytest.mark.parametrize("package", LEVELS)
def test_a_sub_package_imports_only_those_below_it(package: str) -> None:
    below: set[str] = set()
    for name in LEVELS[package]:
        below.add(f"{package}.{name}")
        for file in (folder_of(package) / name).rglob("*.py"):
            for target, _ in imports_of(file.relative_to(ROOT)):
                siblings = [
                    f"{package}.{other}"
                    for other in LEVELS[package]
                    if f"{target}.".startswith(f"gnomon.{package}.{other}.")
                ]
                assert set(siblings) <= below, f"{file}: {package}.{name} may not import {target}"


def test_a_sub_package_is_imported_by_its_public_names() -> None:
    for file in FILES:
        for target, _ in imports_of(file):
            package = sub_package(target)
            if package and target not in (f"gnomon.{package}", *FACES_OF_EXTRAS):
                assert f"{module_of(file)}.".startswith(f"gnomon.{package}."), f"{file} imports {target}"


@pytest.mark.parametrize("package", ["btree", "jobs", *SUB_PACKAGES])
def test_the_docstring_of_a_package_lists_its_modules_and_all_its_names(package: str) -> None:
    folder = folder_of(package)
    init = parsed(folder / "__init__.py")
    listed = re.findall(r"^- `(\w+)`", ast.get_docstring(init) or "", re.MULTILINE)
    modules = [file.stem for file in folder.glob("*.py") if file.stem != "__init__"]
    assert sorted(listed) == sorted([*modules, *(file.parent.name for file in folder.glob("*/__init__.py"))])
    names = [alias.name for node in init.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assigned = [node for node in init.body if isinstance(node, ast.Assign)]
    assert sorted(ast.literal_eval(assigned[0].value)) == sorted(names)


def test_modules_make_no_cycle() -> None:
    modules = {module_of(file): file for file in FILES}
    graph = {}
    for module, file in modules.items():
        targets = set()
        for name, node in imports_of(file):
            for alias in getattr(node, "names", []):
                full = f"{name}.{alias.name}"
                targets.add(full if full in modules else name)
        graph[module] = {target for target in targets if target in modules and target != module}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' > '.join([*path, module])}"
        if module not in done:
            for target in graph[module]:
                visit(target, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


WITHOUT_SPARK = (
    "build",
    "get",
    "serve",
    "token",
    "inspect",
    "find",
    "verify",
    "maintenance",
    "dione",
)
COMMANDS_WITHOUT_SPARK = ["gnomon.__main__", *(f"gnomon.commands.{name}" for name in WITHOUT_SPARK)]


@pytest.mark.process
@pytest.mark.parametrize("module", ["gnomon.service.application", "gnomon.shadow", *COMMANDS_WITHOUT_SPARK])
def test_runs_where_no_spark_is_installed(module: str) -> None:
    program = f"import sys; sys.modules['pyspark'] = None; import {module}; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.process
def test_the_command_imports_a_commands_module_only_when_it_is_called() -> None:
    program = (
        "import sys; from gnomon.__main__ import main; assert main(['--help']) == 0; "
        "assert not {'pyspark', 'starlette'} & set(sys.modules), 'too much was imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True, text=True)
    for command in ("build", "get", "load", "dedup", "serve", "inspect", "demo"):
        assert command in done.stdout

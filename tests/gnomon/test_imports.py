"""The modules that a process imports to read one index. Each costs memory and time at its start. A test names the ones
that nobody calls; a clock would name none."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
OURS = 124  # modules of Gnomon, of which `open_index` needs no more
# The packages that it needs of others. Cython's modules leave one of that name.
OTHERS = {"pyarrow", "numpy", "fastavro", "cramjam", "isal", "xxhash", "backports", "cython_runtime"}
# What no reader of one local index calls before it is asked for more. A name stands for what is below it, too.
NOT_TO_OPEN = {
    *(
        f"gnomon.shadow.{name}"
        for name in ("write", "commit", "maintenance", "search", "verify", "key_sets", "samples")
    ),
    *(f"gnomon.shadow.storage.{name}" for name in ("objects", "object_clients", "web", "webhdfs", "webhdfs_calls")),
    *(f"gnomon.shadow.tables.{name}" for name in ("delta", "iceberg", "iceberg_files", "rewritten")),
    *(f"gnomon.sources.{name}" for name in ("avro", "orc", "sequence", "text", "literals")),
    *("gnomon.jobs", "gnomon.indexer", "gnomon.shadow.polars_scan", "gnomon.shadow.samples"),
    *("pyspark", "py4j", "pandas", "polars", "deltalake", "pyiceberg", "obstore", "rich", "lzallright", "pyroaring"),
    *(f"pyarrow.{name}" for name in ("compute", "csv", "dataset", "orc", "flight", "acero", "parquet", "fs", "json")),
    *(f"numpy.{name}" for name in ("testing", "random", "ma", "fft", "polynomial", "ctypeslib", "f2py")),
}
TO_READ_PARQUET = {"pyarrow.parquet", "pyarrow.fs"}  # pyarrow decodes the pages that this program does not
# What the service needs, and programs without it do not.
OF_SERVERS = {
    *("asyncio", "multiprocessing", "http.client", "urllib.request", "msgspec", "typer", "gnomon.commands"),
    *("pydantic", "starlette", "uvicorn", "opentelemetry", "prometheus_client", "gnomon.service"),
}
NOT_TO_SERVE = {
    *("typer", "pydantic", "fastapi", "gnomon.commands", "mcp", "httpx", "jinja2"),
    *("starlette.testclient", "starlette.templating"),
}

OPEN = "import gnomon; index = gnomon.open_index(sys.argv[1]); index.contains('7'); told(); index.fetch('7'); told()"
SERVE = (
    "from gnomon.service.process import worker; from gnomon.service.settings import Settings; "
    "app = worker.create_app(Settings(indexes=(sys.argv[1],))); served = app.state.service.indexes.default; "
    "assert served.is_open; told(); served.index.fetch('7'); told()"
)
GET = "from gnomon.__main__ import main; code = main(['get', sys.argv[1], '7']); told(); assert code == 0"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imports")
    rows = {"id": [str(number) for number in range(100)], "x": [number / 2 for number in range(100)]}
    write_source(folder / "source", {"a.parquet": pa.table(rows)})
    index_source(folder / "source", folder / "index", ["id"])
    return folder / "index"


def imported(program: str, index: Path) -> list[set[str]]:
    """The modules that a program has imported, at each call of `told()` in it."""
    head = "import sys; old = set(sys.modules); told = lambda: print('imported', *set(sys.modules) - old); "
    command = [sys.executable, "-c", head + program, str(index)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("imported ")]


def among(names: set[str], modules: set[str]) -> set[str]:
    """The modules that have one of the names, or lie below one."""
    return {module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in names)}


def packages(modules: set[str]) -> set[str]:
    """The packages of others, without Python's own and what an installation imports for itself (`_`, `__`)."""
    tops = {module.partition(".")[0] for module in modules}
    return {top for top in tops - sys.stdlib_module_names - {"gnomon"} if not top.startswith("_")}


def test_open_index_imports_what_a_look_up_needs_alone(index: Path) -> None:
    opened, fetched = imported(OPEN, index)
    assert among(NOT_TO_OPEN | OF_SERVERS, opened) == set()
    assert packages(opened) <= OTHERS
    assert len(among({"gnomon"}, opened)) <= OURS
    assert among(NOT_TO_OPEN - TO_READ_PARQUET | OF_SERVERS, fetched) == set()
    assert among({"gnomon"}, fetched) == among({"gnomon"}, opened)


def test_gnomon_get_imports_what_a_look_up_and_a_command_need(index: Path) -> None:
    (modules,) = imported(GET, index)
    commands = {f"gnomon.commands.{name}" for name in ("get", "config", "output", "exit_codes", "failures")}
    assert among({"gnomon.commands"}, modules) == {"gnomon.commands", *commands}
    needed = {"typer", "pydantic", "gnomon.commands"}  # typer checks values by pydantic
    assert among(NOT_TO_OPEN - TO_READ_PARQUET | OF_SERVERS - needed, modules) == set()


def test_a_worker_imports_what_reads_and_answers_alone(index: Path) -> None:
    started, fetched = imported(SERVE, index)
    assert among(NOT_TO_OPEN | NOT_TO_SERVE, started) == set()
    assert among(NOT_TO_OPEN - TO_READ_PARQUET | NOT_TO_SERVE, fetched) == set()
    ours = {module for module in among({"gnomon"}, started) if not module.startswith("gnomon.service")}
    assert len(ours) <= OURS

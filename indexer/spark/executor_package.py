"""Gnomon's code for the executors of a cluster: an archive of it, and tasks that check that it works on the
executors."""

import atexit
import hashlib
import logging
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gnomon.shadow import ShadowError

ASKED_FOR = (
    "gnomon.indexer.join.load_rows",
    "gnomon.indexer.dedup.check",
    "pandas",
)  # these modules import all packages that our tasks use
NEEDED = ("pyarrow", "numpy", "pandas", "fastavro", "msgspec", "isal", "cramjam")
MOST_TASKS = 32
WAIT_SECONDS = 30
EPOCH = (1980, 1, 1, 0, 0, 0)  # time of each file in the archive, so that equal code makes equal bytes
NO_PROGRAM = re.compile(r"Cannot run program \"(?P<program>[^\"]*)\"")
NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): (?P<what>[^\n]+)")
OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (?P<what>[^\n]+)")
OUR_MODULE = re.compile(
    rf"ModuleNotFoundError: (?P<what>No module named '(?:{'|'.join(('gnomon', *NEEDED))})(?:\.[\w.]+)?')"
)
log = logging.getLogger(__name__)
PAGE = "docs/operations/cluster.md says what executors need"


class ExecutorsUnfit(ShadowError):
    """The cluster's executors cannot run Gnomon's tasks."""


def ship(spark: SparkSession) -> None:
    """Send this program's own copy of Gnomon to the session's executors, and check that tasks can use it. A second call
    sends nothing. ExecutorsUnfit, with advice, where a task cannot import Gnomon or its dependencies."""
    path = list(sys.path)
    spark.sparkContext.addPyFile(archive())
    sys.path[:] = path  # the driver keeps using its own copy, which outlives the session
    check_executors(spark)


@cache
def archive() -> str:
    """A zip archive of Gnomon's code, from any kind of installation; removed when the program ends."""
    content = dict(_modules(files("gnomon"), "gnomon"))
    digest = hashlib.blake2b(repr(sorted(content.items())).encode(), digest_size=6).hexdigest()
    folder = tempfile.mkdtemp(prefix="gnomon-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"gnomon-{digest}.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in sorted(content.items()):
            target.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return str(path)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _modules(entry, path)
        elif entry.name.endswith((".py", *EXTENSION_SUFFIXES)):
            yield path, entry.read_bytes()


def check_executors(spark: SparkSession) -> None:
    """Check that tasks can import Gnomon and its dependencies. Logs a warning while no executor answers."""

    def imported(_: int) -> str:
        for name in ASKED_FOR:
            import_module(name)
        return name

    context = spark.sparkContext
    tasks = min(context.defaultParallelism, MOST_TASKS)
    waiting = threading.Timer(WAIT_SECONDS, _say_so, [context.master])
    waiting.daemon = True
    waiting.start()
    try:
        context.parallelize(range(tasks), tasks).map(imported).count()
    except (Py4JJavaError, PySparkException) as error:
        raise ExecutorsUnfit(_reason(str(error), context.pythonVer, context.pythonExec)) from error
    finally:
        waiting.cancel()


def unfit(text: str) -> ExecutorsUnfit | None:
    """The error, with advice, if a job failed because Spark's workers run another Python; None for any other error."""
    found = OTHER_PYTHON.search(text) or OUR_MODULE.search(text)
    if found is None:
        return None
    return ExecutorsUnfit(
        f"the Python of Spark's workers cannot run our tasks: {found['what']}; set PYSPARK_PYTHON to {sys.executable} "
        f"before the session is made, on a cluster call gnomon.ship(spark); {PAGE}"
    )


def _say_so(master: str) -> None:
    log.warning(
        "%s: no executor has answered for %d s; is the cluster busy, or asked for more cores or memory than it has? "
        "Still waiting",
        master,
        WAIT_SECONDS,
    )


def _reason(text: str, version: str, python: str) -> str:
    """The fault and the advice, from Spark's error text."""
    if found := NO_PROGRAM.search(text):
        return f"the executors have no {found['program']}; set PYSPARK_PYTHON to a Python {version} they have; {PAGE}"
    if found := OTHER_PYTHON.search(text):
        return f"the executors' {python} is another version than this program's {version}; {found['what']}; {PAGE}"
    if found := NO_MODULE.search(text):
        return f"the executors' {python} cannot run our tasks: {found['what']}; {PAGE}"
    return f"a task failed on the cluster: {' '.join(text.split(chr(10) + chr(10))[0].split())}; {PAGE}"

"""Gnomon in the tasks of Spark: its code for executors, the open index of a worker, and errors that reach the driver.

A task sends its error as JSON, and the caller of the job gets the same error. Spark sends the driver the traceback of
a task, as text. `hands_errors_over` adds the JSON of the error to that text, as a note between two marks; `decoded`
finds it there."""

import atexit
import hashlib
import inspect
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.base.errors import GnomonError
from gnomon.shadow import OpenIndex, ShadowError, open_index
from gnomon.shadow.errors import SnapshotNotFound
from gnomon.shadow.storage import patiently

if TYPE_CHECKING:
    from pyspark import SparkContext, TaskContext  # which a client of Spark Connect does not have

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
try:
    from py4j.protocol import Py4JError as Py4JError
    from py4j.protocol import Py4JJavaError
except ModuleNotFoundError:  # the package for clients of Spark Connect alone
    Py4JError = Py4JJavaError = PySparkException
SPARK_ERRORS = (PySparkException, Py4JJavaError)
log = logging.getLogger(__name__)
PAGE = "docs/operations/cluster.md says what executors need"


class ExecutorsUnfit(ShadowError):
    """The cluster's executors cannot run Gnomon's tasks."""


def ship(spark: SparkSession) -> None:
    """Send this program's own copy of Gnomon to the session's executors, and check that tasks can use it. A second call
    sends nothing. ExecutorsUnfit, with advice, where a task cannot import Gnomon or its dependencies."""
    context = context_of(spark)
    if context is None:
        spark.addArtifacts(archive(), pyfile=True)
    else:
        path = list(sys.path)
        context.addPyFile(archive())
        sys.path[:] = path  # the driver keeps using its own copy, which outlives the session
    check_executors(spark)


def context_of(spark: SparkSession) -> "SparkContext | None":
    """The context of a session of this process; None of a session of Spark Connect, whose driver is a server."""
    return getattr(spark, "sparkContext", None)


def this_task() -> "TaskContext | None":
    """The task that runs here; None outside of Spark's workers."""
    from pyspark import TaskContext

    return TaskContext.get()


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that run at the same time."""
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    if spark not in _CORES:  # a range has a partition for each core
        partitions = spark.range(RANGE_ROWS).select(F.spark_partition_id()).distinct()
        _CORES[spark] = partitions.count()
    return _CORES[spark]


RANGE_ROWS = 1 << 16
_CORES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


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

    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in ASKED_FOR:
            import_module(name)
        yield from batches

    waiting = threading.Timer(WAIT_SECONDS, _say_so, [spark.conf.get("spark.master", "the cluster")])
    waiting.daemon = True
    waiting.start()
    try:
        tasks = min(cores_of(spark), MOST_TASKS)
        spark.range(0, tasks, 1, tasks).mapInArrow(imported, "id bigint").count()
    except SPARK_ERRORS as error:
        python = os.environ.get("PYSPARK_PYTHON", "python3")
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ExecutorsUnfit(_reason(str(error), ours, python)) from error
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


Task = TypeVar("Task", bound=Callable[..., Any])

BEGIN, END = "<gnomon-error>", "</gnomon-error>"
_MARKED = re.compile(f"{BEGIN}(.*?){END}")


def hands_errors_over(task: Task) -> Task:
    """Decorate a function, or a generator function, that Spark runs in a Python worker, so that its errors reach the
    driver."""
    if inspect.isgeneratorfunction(task):

        @wraps(task)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with handing_over():
                yield from task(*args, **kwargs)

        return generate  # type: ignore[return-value]

    @wraps(task)
    def call(*args: Any, **kwargs: Any) -> Any:
        with handing_over():
            return task(*args, **kwargs)

    return call  # type: ignore[return-value]


@contextmanager
def handing_over() -> Iterator[None]:
    """Add a note for the driver to an error of Gnomon that leaves the block, which is part of a job."""
    try:
        with patiently():
            yield
    except GnomonError as error:
        if not any(_MARKED.search(note) for note in getattr(error, "__notes__", ())):
            error.add_note(_marked(json.dumps(error.to_json())))
        raise


def decoded(error: BaseException) -> GnomonError | None:
    """The error of Gnomon that ended a job; None for any other error."""
    marked = _MARKED.findall(str(error)) if isinstance(error, SPARK_ERRORS) else []
    return GnomonError.from_json(json.loads(marked[-1])) if marked else None


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise the error of Gnomon that ended a task, or ExecutorsUnfit where the workers' Python cannot run Gnomon's
    tasks. Other errors pass unchanged. For actions on the frames that `load` and others return, which fail with an
    error of Spark: `with task_errors(): frame.count()`."""
    try:
        yield
    except SPARK_ERRORS as error:
        raised = decoded(error) or unfit(str(error))
        if raised is None:
            raise
        raise raised from error


def _marked(content: str) -> str:
    """JSON between the marks, which JSON cannot contain."""
    return BEGIN + content.replace("<", "\\u003c") + END


WORKER_CACHE_BYTES = 64 * 1024 * 1024
OPEN_INDEXES = 4
LOGGER, LOG_LEVEL = "gnomon", "GNOMON_LOG"


class AtSnapshot(NamedTuple):
    """An index at the snapshot that the driver chose. An index that is deleted and built again in the same folder
    repeats the number, but not the `commit_id`."""

    location: str
    number: int
    commit_id: str

    @classmethod
    def of(cls, index: OpenIndex) -> "AtSnapshot":
        snapshot = index.view.snapshot
        return cls(index.location, snapshot.number, snapshot.commit_id)


@lru_cache(OPEN_INDEXES)
def open_in_worker(at: AtSnapshot) -> OpenIndex:
    """The index, opened once in each worker process, after its fork. SnapshotNotFound where another index is there now:
    the planned columns, types and pointers do not fit it."""
    _log()
    index = OpenIndex.of(open_index(at.location, at.number, WORKER_CACHE_BYTES, keep_pages=False))
    found = index.view.snapshot.commit_id
    if found != at.commit_id:
        raise SnapshotNotFound(
            f"snapshot {at.number} is not the planned one: the index was deleted and built again "
            f"(expected commit {at.commit_id}, found {found}); run the query again",
            at.location,
        )
    return index


def _log() -> None:
    """Write the log of tasks to stderr, which is the executor's log, if GNOMON_LOG names a level."""
    level = os.environ.get(LOG_LEVEL, "").upper()
    logger = logging.getLogger(LOGGER)
    if level in logging.getLevelNamesMapping() and not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level)

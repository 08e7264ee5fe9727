"""The error line and the exit code of an error."""

import importlib
import re

from gnomon.base.errors import GnomonError
from gnomon.commands.exit_codes import FAILED, WRONG_USAGE
from gnomon.shadow.errors import KeyTypeError, OptionError, UsageError

# The last line of a traceback that a Spark worker sent: "ValueError: what was wrong"
WORKER_ERROR = re.compile(r"^(?:\[PYTHON_DATA_SOURCE_ERROR\].*?: )?[\w.]+: .+$")
JAVA_CALL = re.compile(r"^An error occurred while calling \S+ ?: ")
CAUSE = re.compile(r"^Caused by: [\w.$]*?(\w+: .+)$", re.MULTILINE)
JAVA_STACK = re.compile(r"\s+at (?:org|java|scala|jdk)\.")
DATA_SOURCE = "[PYTHON_DATA_SOURCE_ERROR]"
OF_SPARK = ("pyspark", "py4j")
STOPPED = re.compile("stopped SparkContext|SparkContext (?:was|has been) shut ?down")
USAGE_ERRORS = (UsageError, KeyTypeError, OptionError)


def exit_code(error: BaseException) -> int:
    """2 for an error of the caller, 3 for any other error."""
    return WRONG_USAGE if isinstance(_of_task(error), USAGE_ERRORS) else FAILED


def one_line(error: BaseException) -> str:
    """The error on one line."""
    error = _of_task(error)
    text = str(error).strip()
    if isinstance(error, GnomonError):
        return " ".join(text.split())
    if "Traceback (most recent call last)" in text or text.startswith(DATA_SOURCE):
        return _from_worker(text)
    first = " ".join(text.split("\n\n")[0].split()) if text else ""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        why = f" ({first})" if first else ""
        return f"memory ran out{why}: give the process more, or ask for fewer columns or keys at a time"
    if type(error).__module__.startswith(OF_SPARK):
        return _from_spark(text, first or type(error).__name__)
    kind = type(error).__name__
    return f"{kind}: {first} (--debug shows where)" if first else f"{kind} (--debug shows where)"


def _of_task(error: BaseException) -> BaseException:
    """The Gnomon error that ended a Spark task, if Spark's error contains one; else the error itself."""
    if not type(error).__module__.startswith(OF_SPARK):
        return error
    task_errors = importlib.import_module("gnomon.indexer.spark.tasks")  # needs Spark, which is installed
    return task_errors.decoded(error) or error


def _from_spark(text: str, first: str) -> str:
    """An error of Spark or Java, without its stack."""
    if STOPPED.search(text):
        return (
            "Spark: the application was ended before the command was done; a cluster does so where executors do not "
            "start, or its master is gone: the logs of master and workers say why"
        )
    first = JAVA_STACK.split(JAVA_CALL.sub("", first))[0]
    cause = CAUSE.findall(text)  # the root cause comes last
    return f"Spark: {first}" + (f" (cause: {cause[-1].strip()})" if cause else "")


def _from_worker(text: str) -> str:
    """Any other error of a Python task, without its traceback."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(" ")]
    last = next((line for line in reversed(lines) if WORKER_ERROR.match(line)), text.splitlines()[0])
    return f"Spark: {last}"

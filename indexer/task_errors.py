"""Errors of Spark tasks: Spark hands the driver a traceback, as text; who called the job is given the error itself."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from indexer.ship import unfit
from shadow import errors

# The last line of a worker's traceback, or all of it without one, and where in it a data or an index file is named.
LINE = re.compile(
    r"^(?:\[PYTHON_DATA_SOURCE_ERROR\].*?: )?(?P<module>[a-z_.]+)\.(?P<name>[A-Za-z]+): (?P<text>.+)$", re.MULTILINE
)
PLACE = re.compile(r"(?P<path>.+?)(?: at byte (?P<offset>\d+))?: ")
# Spark's error for files, and its reader of Parquet, which decodes some values later, when they are used.
UNREAD_BY_SPARK = (
    "FAILED_READ_FILE",
    "at org.apache.parquet.",
    "at org.apache.spark.sql.execution.datasources.parquet.",
)
WRONG_CHECKSUM = "ChecksumException"
SPARK_ERRORS = (PySparkException, Py4JJavaError)
WITH_MORE = (errors.KeyTypeError, errors.FileChanged)  # hold more than their text tells


@contextmanager
def as_raised() -> Iterator[None]:
    """Raise an error of ours that a task ended with as what it was there, and ExecutorsUnfit where the workers' Python
    cannot run our tasks; others pass."""
    try:
        yield
    except SPARK_ERRORS as error:
        raised = _raised(str(error)) or unfit(str(error))
        if raised is None:
            raise
        raise raised from error


def is_of_a_file(error: Exception) -> bool:
    """Whether Spark could not read a data file, or read a key that is none. A wrong checksum that Hadoop left beside
    the file is another thing: whether the file is what it should be is not for us to say then."""
    text = str(error)
    is_unread = any(sign in text for sign in UNREAD_BY_SPARK) and WRONG_CHECKSUM not in text
    return is_unread or isinstance(_raised(text), errors.BTreeError)


def _raised(text: str) -> Exception | None:
    for match in reversed(list(LINE.finditer(text))):
        kind = getattr(errors, match["name"], None)
        if kind is None or kind.__module__ != match["module"] or issubclass(kind, WITH_MORE):
            continue
        error: Exception = kind.__new__(kind, match["text"])
        place = PLACE.match(match["text"])
        if isinstance(error, errors.SourceError | errors.DamagedIndexFile) and place:
            error.path, error.offset = place["path"], int(place["offset"] or 0)
            if isinstance(error, errors.SourceError) and place["offset"] is None:
                error.offset = None
        return error
    return None

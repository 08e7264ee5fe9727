"""Errors of Spark tasks: a task sends its error as JSON, and the caller of the job gets the same error.

Spark sends the driver the traceback of a task, as text. `hands_errors_over` adds the JSON of the error to that text, as
a note between two marks; `decoded` finds it there. Only this module knows the form."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from gnomon.base.errors import GnomonError
from gnomon.indexer.spark.executor_package import unfit
from gnomon.shadow.storage import patiently

Task = TypeVar("Task", bound=Callable[..., Any])

BEGIN, END = "<gnomon-error>", "</gnomon-error>"
_MARKED = re.compile(f"{BEGIN}(.*?){END}")
SPARK_ERRORS = (PySparkException, Py4JJavaError)


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
def as_raised() -> Iterator[None]:
    """Raise the error of Gnomon that ended a task, or ExecutorsUnfit where the workers' Python cannot run Gnomon's
    tasks. Other errors pass unchanged."""
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

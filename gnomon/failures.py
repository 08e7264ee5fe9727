"""From an error to one line and an exit code."""

import re

import shadow

FOUND, NOT_FOUND, WRONG_USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

# The last line of a traceback that a Spark worker sent: "sources.errors.StalePointer: /path: the file ..."
WORKER_ERROR = re.compile(r"^(?P<kind>[\w.]+): (?P<text>.+)$")
OURS = ("btree.", "sources.", "shadow.", "indexer.")
USAGE_ERRORS = (shadow.UsageError, shadow.KeyTypeError)


def exit_code(error: BaseException) -> int:
    """2 for what the caller got wrong, 3 for everything else."""
    return WRONG_USAGE if isinstance(error, USAGE_ERRORS) else FAILED


def one_line(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        return _from_worker(text)
    first = " ".join(text.split("\n\n")[0].split()) if text else ""
    if isinstance(error, (shadow.ShadowError, shadow.BTreeError, shadow.SourceError)):
        return first
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    kind = type(error).__name__
    if type(error).__module__.startswith(("pyspark", "py4j")):
        return f"Spark: {first or kind}"
    return f"{kind}: {first} (--debug shows where)" if first else f"{kind} (--debug shows where)"


def _from_worker(text: str) -> str:
    """The error a Python task ended with, without its traceback."""
    for line in reversed(text.splitlines()):
        match = WORKER_ERROR.match(line.strip())
        if match and not line.startswith(" "):
            return match["text"] if match["kind"].startswith(OURS) else f"Spark: {line.strip()}"
    return f"Spark: {text.splitlines()[0]}"

"""From an error to one line and an exit code."""

import re

import shadow
from gnomon.exit_codes import FAILED, WRONG_USAGE
from shadow.errors import OptionError

# The last line of a traceback that a Spark worker sent: "sources.errors.StalePointer: /path: the file ..."
WORKER_ERROR = re.compile(r"^(?:\[PYTHON_DATA_SOURCE_ERROR\].*?: )?(?P<kind>[\w.]+): (?P<text>.+)$")
RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<text>.*?)(?= SQLSTATE|\n|$)")
JAVA_CALL = re.compile(r"^An error occurred while calling \S+ ?: ")
CAUSE = re.compile(r"^Caused by: [\w.$]*?(\w+: .+)$", re.MULTILINE)
UNREAD = re.compile(r"\[FAILED_READ_FILE[^]]*\] Encountered error while reading file (?:file:/*(?=/))?(?P<path>.+?)\. ")
STATE = re.compile(r" SQLSTATE: \w+")
JAVA_STACK = re.compile(r"\s+at (?:org|java|scala|jdk)\.")
DATA_SOURCE = "[PYTHON_DATA_SOURCE_ERROR]"
OURS = ("btree.", "sources.", "shadow.", "indexer.")
USAGE_ERRORS = (shadow.UsageError, shadow.KeyTypeError, OptionError)


def exit_code(error: BaseException) -> int:
    """2 for what the caller got wrong, 3 for everything else."""
    wrong = isinstance(error, USAGE_ERRORS) or RAISED.search(str(error)) is not None
    return WRONG_USAGE if wrong else FAILED


def one_line(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = str(error).strip()
    raised = RAISED.search(text)
    if raised:  # a key of the wrong type, found by a task
        return " ".join(raised["text"].split())
    if "Traceback (most recent call last)" in text or text.startswith(DATA_SOURCE):
        return _from_worker(text)
    first = " ".join(text.split("\n\n")[0].split()) if text else ""
    if isinstance(error, (shadow.ShadowError, shadow.BTreeError, shadow.SourceError, OptionError)):
        return first
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        why = f" ({first})" if first else ""
        return f"memory ran out{why}: give the process more, or ask for fewer columns or keys at a time"
    kind = type(error).__name__
    if type(error).__module__.startswith(("pyspark", "py4j")):
        first = JAVA_STACK.split(JAVA_CALL.sub("", first))[0]
        cause = CAUSE.findall(text)  # what began it stands last
        unread = UNREAD.search(f"{first} ")
        if unread:
            why = f" ({STATE.sub('', cause[-1]).strip()})" if cause else ""
            return f"{unread['path']}: Spark cannot read the file{why}; it may be damaged, or of another format"
        return f"Spark: {first or kind}" + (f" (cause: {cause[-1].strip()})" if cause else "")
    return f"{kind}: {first} (--debug shows where)" if first else f"{kind} (--debug shows where)"


def _from_worker(text: str) -> str:
    """The error a Python task ended with, without its traceback."""
    for line in reversed(text.splitlines()):
        match = WORKER_ERROR.match(line.strip())
        if match and not line.startswith(" "):
            return match["text"] if match["kind"].startswith(OURS) else f"Spark: {line.strip()}"
    return f"Spark: {text.splitlines()[0]}"

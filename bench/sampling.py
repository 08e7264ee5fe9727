"""The CPU time of a Python task by function, from samples: a tracing profiler would exaggerate the cost of many small
calls."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

SAMPLE_SECONDS = 0.001  # CPU seconds


class Sampled:
    """Seconds of CPU by innermost line, and by each function below it on the stack, while this context is entered.
    Works in a main thread only. A call into C counts for one line, however long it takes."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self._last = 0.0

    def __enter__(self) -> "Sampled":
        self._last = time.process_time()
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def _note(self, _: int, frame: FrameType | None) -> None:
        now = time.process_time()
        seconds, self._last = now - self._last, now
        stack = list(_stack(frame))
        if stack:
            self.lines[f"{stack[0]}:{frame.f_lineno if frame else 0}"] += seconds  # type: ignore[assignment]
        for name in set(stack):
            self.functions[name] += seconds  # type: ignore[assignment]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.lines, self.functions]))


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        yield f"{'/'.join(Path(code.co_filename).parts[-2:])} {code.co_qualname}"
        frame = frame.f_back


def report(paths: Iterable[Path], most: int) -> str:
    """The samples of several tasks together: the functions with their callees, then the lines themselves."""
    totals: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for path in paths:
        for total, part in zip(totals, json.loads(path.read_text()), strict=True):
            total.update(part)
    lines, functions = totals
    out = [f"{sum(lines.values()):.2f} s of CPU", "", "with what they call:"]
    out += [f"{seconds:8.3f}  {name}" for name, seconds in functions.most_common(most)]
    out += ["", "by line:", *(f"{seconds:8.3f}  {name}" for name, seconds in lines.most_common(most))]
    return "\n".join(out)

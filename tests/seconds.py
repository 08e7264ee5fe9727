"""The seconds of each test file. A run writes them to `build/test-seconds.json`, and names the files that take twice as
long as on record, in `tests/seconds.json`. Copy the one over the other where a change is meant. Several processes run
the longest files first, so that none of them is left with one when the others are done."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECORD, WRITTEN = ROOT / "tests/seconds.json", ROOT / "build/test-seconds.json"
LEAST = 5.0  # seconds; what takes less is noise

_seconds: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        record = json.loads(RECORD.read_text())
        items.sort(key=lambda item: -record.get(item.nodeid.partition("::")[0], 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not _seconds:
        return
    found = {file: round(seconds, 1) for file, seconds in sorted(_seconds.items()) if seconds >= 0.5}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(found, indent=1) + "\n")
    for line in slower(json.loads(RECORD.read_text()), found):
        terminalreporter.write_line(line)


def slower(record: dict[str, float], found: dict[str, float]) -> list[str]:
    """A line for each file that took at least twice its seconds on record, on a machine as fast as this one: the median
    of the ratios is the machine's."""
    ratios = sorted(found[file] / record[file] for file in found.keys() & record.keys() if record[file] >= LEAST)
    machine = max(1.0, ratios[len(ratios) // 2]) if ratios else 1.0
    return [
        f"{file} took {seconds:.0f} s, on record are {record.get(file, 0.0):.0f} s"
        + (f" ({machine:.1f} times that on this machine)" if machine > 1 else "")
        for file, seconds in found.items()
        if seconds > 2 * machine * max(record.get(file, 0.0), LEAST)
    ]

"""gnomon/commands/progress.py: what a terminal shows while a job runs, and what anything else shows."""

import contextlib
import os
import pty
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.commands.progress import shown_progress
from gnomon.jobs import Progress, Step

HIDE, SHOW, ERASE = b"\x1b[?25l", b"\x1b[?25h", b"\x1b[2K"


def on_terminal(monkeypatch: pytest.MonkeyPatch, job: Callable[[Progress], None], starts_spark: bool = False) -> bytes:
    """What a terminal gets while a job tells its steps."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    master, slave = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(master, 65536):
                got.append(part)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(slave, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            with shown_progress(starts_spark) as progress:
                job(progress)
    finally:
        monkeypatch.undo()
        reader.join()
        os.close(master)
    return b"".join(got)


@pytest.mark.parametrize("starts_spark", [True, False])
def test_only_a_job_on_spark_says_that_spark_starts(monkeypatch: pytest.MonkeyPatch, starts_spark: bool) -> None:
    got = on_terminal(monkeypatch, lambda progress: time.sleep(0.3), starts_spark)
    assert b"start" in got
    assert (b"Spark" in got) == starts_spark


def test_a_terminal_shows_stages_tasks_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(progress: Progress) -> None:
        progress(Step("list"))
        progress(Step("write", 3, 1200, "tasks", 1_000_000))

    got = on_terminal(monkeypatch, job)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", got.decode())
    assert "write" in text
    assert "3 of 1,200 tasks, 1,000,000 rows" in text
    assert got.count(HIDE) == got.count(SHOW) == 1
    assert got.endswith(ERASE), "the line is gone, so that the result stands alone"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_no_line_and_no_thread(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    got: list[bytes] = []
    begun: list[threading.Thread] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() is threading.main_thread():  # what other tests left behind begins threads, too
            begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)

    def job(progress: Progress) -> None:
        progress(Step("describe", 0, 7, "files"))
        raise error("midway")

    with pytest.raises(error, match="midway"):
        got.append(on_terminal(monkeypatch, job))
    assert len(begun) == 2, "the reader of this test, and what draws the line"
    for thread in begun:
        thread.join(10)
    assert not any(thread.is_alive() for thread in begun)


def test_what_is_no_terminal_shows_one_plain_line_for_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        Step("list"),
        Step("describe", 0, 7, "files"),
        Step("write", rows=1_000_000),
        Step("scan", 3, 1200, "tasks", 1_000_000),
        Step("write", 3, 1200, "tasks", 1_000_000),
        Step("write", rows=1_000_000),
    ]
    with open(tmp_path / "err", "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with shown_progress() as progress:
            for step in steps:
                progress(step)
    expected = "gnomon: list\ngnomon: describe: 7 files\ngnomon: write: 1,000,000 rows\n"
    assert (tmp_path / "err").read_text() == expected


def test_a_job_goes_on_when_nobody_reads_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        with shown_progress() as progress:
            progress(Step("list"))
        monkeypatch.undo()
        with contextlib.suppress(BrokenPipeError):
            closed.close()


def test_an_estimate_of_rows_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress() as progress:
        progress(Step("write", rows=2161, is_about=True))
    assert capsys.readouterr().err == "gnomon: write: about 2,161 rows\n"

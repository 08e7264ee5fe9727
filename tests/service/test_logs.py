"""service/logs.py: one JSON object per line, whole on a pipe, and no wait for the reader."""

import json
import logging
import os
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gnomon.service import costs, logs
from gnomon.service.logs import LINE_BYTES, Lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def lines_of(reading: int) -> list[dict[str, Any]]:
    """The written lines, after the end of the output."""
    data = b""
    while select.select([reading], [], [], 0)[0]:
        data += os.read(reading, 1 << 20)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


@pytest.fixture
def logger(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[logging.Logger, Lines]]:
    """A logger that writes to the pipe, as a service process writes to stderr."""
    monkeypatch.setattr(logs, "STDERR", pipe[1])
    lines = logs.start()
    yield logging.getLogger("gnomon.test"), lines
    logs.stop(lines)


def test_what_is_logged_is_one_object_a_line_with_its_traceback_inside(
    pipe: tuple[int, int], logger: tuple[logging.Logger, Lines]
) -> None:
    log, lines = logger
    log.info("snapshot %d\nis served", 7)
    try:
        raise RuntimeError("lost")
    except RuntimeError:
        log.exception("it failed")
    log.debug("left out")
    logs.stop(lines)
    first, second = lines_of(pipe[0])
    assert first["message"] == "snapshot 7\nis served"
    assert (first["level"], first["logger"]) == ("INFO", "gnomon.test")
    assert first["time"].endswith("+00:00")
    assert second["message"] == "it failed"
    assert second["traceback"].startswith("Traceback (most recent call last)")
    assert second["traceback"].endswith("RuntimeError: lost\n")


def test_after_the_end_of_the_log_loggers_are_as_before(logger: tuple[logging.Logger, Lines]) -> None:
    assert logger[0].isEnabledFor(logging.INFO)
    logs.stop(logger[1])
    assert not logger[0].isEnabledFor(logging.INFO)


def test_what_ends_a_thread_is_one_line(pipe: tuple[int, int], logger: tuple[logging.Logger, Lines]) -> None:
    thread = threading.Thread(target=lambda: 1 // 0, name="looking")
    thread.start()
    thread.join()
    logs.stop(logger[1])
    [line] = lines_of(pipe[0])
    assert line["message"] == "looking ended with an error"
    assert "ZeroDivisionError" in line["traceback"]


def test_a_line_says_the_request_it_was_logged_for(pipe: tuple[int, int], logger: tuple[logging.Logger, Lines]) -> None:
    log, lines = logger
    costs.begin("req-1")
    log.warning("slow")
    logs.stop(lines)
    [line] = lines_of(pipe[0])
    assert line["request_id"] == "req-1"


@pytest.mark.parametrize("text", ["x" * 100_000, "\n" * 50_000, "日" * 20_000, "😀" * 10_000])
def test_no_line_is_longer_than_a_pipe_takes_whole(pipe: tuple[int, int], text: str) -> None:
    lines = Lines(pipe[1])
    lines.put(lambda: {"level": "ERROR", "message": text, "traceback": f"begin{text}end"})
    lines.start()
    lines.close()
    data = os.read(pipe[0], 1 << 20)
    assert len(data) <= LINE_BYTES
    line = json.loads(data)
    assert line["level"] == "ERROR"
    assert line["traceback"].endswith("end")
    assert line["message"].startswith(text[:10])


def test_lines_nobody_takes_are_counted_and_told_and_nobody_waits(pipe: tuple[int, int]) -> None:
    lines = Lines(pipe[1], most_waiting=10)
    for number in range(25):
        lines.put(lambda number=number: {"number": number})  # type: ignore[misc]
    assert lines.dropped == 15
    lines.start()
    lines.close()
    *told, last = lines_of(pipe[0])
    assert [line["number"] for line in told] == list(range(10))
    assert last["message"] == "15 lines were dropped"


def test_a_reader_that_went_away_ends_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    lines = Lines(writing)
    lines.put(lambda: {"number": 1})
    lines.start()
    lines.close()
    os.close(writing)
    assert lines.dropped == 1


def test_an_entry_that_cannot_be_made_is_told_and_the_next_is_written(pipe: tuple[int, int]) -> None:
    lines = Lines(pipe[1])
    lines.put(lambda: {"number": 1 // 0})
    lines.put(lambda: {"number": 2})
    lines.start()
    lines.close()
    first, second = lines_of(pipe[0])
    assert "ZeroDivisionError" in first["message"]
    assert second == {"number": 2}

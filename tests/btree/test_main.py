"""python -m gnomon.btree dump|get|check|stat FILE."""

import errno
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon.btree import Column, EntrySchema
from gnomon.btree.__main__ import run
from gnomon.btree.format import encode_header, sealed
from tests.btree.files import SYNC, URL_SCHEMA, header_of, opened, url_entries, write
from tests.golden.make import COMPOSITE, composite_entries

Output = pytest.CaptureFixture[str]


@pytest.fixture
def urls(tmp_path: Path) -> str:
    path = tmp_path / "urls.btree.avro"
    path.write_bytes(write(URL_SCHEMA, url_entries(50, copies=2), node_bytes=300))
    return str(path)


@pytest.fixture
def composite(tmp_path: Path) -> str:
    path = tmp_path / "composite.btree.avro"
    path.write_bytes(write(COMPOSITE, composite_entries(), node_bytes=100))
    return str(path)


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """A file with text that not every terminal can show, and with a header value of control characters."""
    schema = EntrySchema((Column("k", "string"),), (Column("x", "double"),))
    data = write(schema, [(("é😀",), (1.5,))])
    header = header_of(data)
    metadata = sealed({**header.metadata, "by": "ü\x1b[2J\r\n\x9b".encode()}, SYNC)
    path = tmp_path / "foreign.btree.avro"
    path.write_bytes(encode_header(metadata, SYNC) + data[header.end :])
    return str(path)


def _process(*arguments: str, stdout: int = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "gnomon.btree", *arguments]
    return subprocess.run(command, check=False, stdout=stdout, stderr=subprocess.PIPE, env={**buffered, **environment})


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_dump_prints_each_entry_in_key_order(urls: str, capsys: Output) -> None:
    assert run(["dump", urls]) == 0
    assert _lines(capsys.readouterr().out) == [
        {"key": {"url": key[0]}, "value": {"file": value[0], "row": value[1]}} for key, value in url_entries(50, 2)
    ]


def test_dump_shows_every_type_as_json_has_it(composite: str, capsys: Output) -> None:
    assert run(["dump", composite]) == 0
    lines = _lines(capsys.readouterr().out)
    assert lines[1]["key"] == {"day": None, "price": "-0.01", "ok": True}
    assert lines[2]["key"] == {"day": "0001-01-01", "price": "0.00", "ok": False}
    assert lines[2]["value"] == {
        "at": "1970-01-01T00:00:02.000002Z",
        "seen": "1969-12-31T23:59:59.999998",
        "x": "Infinity",
        "raw": "AAE=",
    }
    assert lines[-1]["key"] == {"day": "9999-12-31", "price": "9999999.99", "ok": True}


def test_get_prints_the_hits_of_each_key(urls: str, capsys: Output) -> None:
    assert run(["get", urls, "https://example.com/000007", "https://example.com/000003"]) == 0
    assert [line["value"]["row"] for line in _lines(capsys.readouterr().out)] == [14, 15, 6, 7]


def test_get_says_1_when_a_key_is_absent_and_prints_the_others(urls: str, capsys: Output) -> None:
    assert run(["get", urls, "nowhere", "https://example.com/000003"]) == 1
    assert len(_lines(capsys.readouterr().out)) == 2


def test_a_composite_key_is_a_json_object(composite: str, capsys: Output) -> None:
    key = {"ok": True, "day": "2026-01-01", "price": "12.30"}
    assert run(["get", composite, json.dumps(key)]) == 0
    assert [line["key"] for line in _lines(capsys.readouterr().out)] == [key, key]
    assert run(["get", composite, '{"day": null, "price": null, "ok": null}']) == 0


def test_a_key_nested_deep_is_wrong_usage_and_shown_in_short(composite: str, capsys: Output) -> None:
    lists = [f'{{"day": {"[" * depth}{"]" * depth}, "price": 1, "ok": 1}}' for depth in range(850, 1000)]
    for key in ("[" * 100_000, '{"day":' * 100_000, *lists):  # nested too deeply to read, or only to show
        assert run(["get", composite, key]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert len(line) < 200


def test_a_key_that_begins_with_a_dash_comes_after_two(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "doubles.btree.avro"
    schema = EntrySchema((Column("x", "double"),), (Column("row", "int"),))
    path.write_bytes(write(schema, [((-math.inf,), (0,)), ((-1.5,), (1,))]))
    assert run(["get", str(path), "--", "-Infinity", "-1.5"]) == 0
    assert [line["value"]["row"] for line in _lines(capsys.readouterr().out)] == [0, 1]
    with pytest.raises(SystemExit):
        run(["get", "--help"])
    assert "a key that begins with - comes after --" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "key", ["plain", "[]", "{}", "a\nb", '{"day": null}', '{"day": "x", "price": "1.00", "ok": true}']
)
def test_a_key_that_makes_no_sense_is_wrong_usage(composite: str, capsys: Output, key: str) -> None:
    assert run(["get", composite, key]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_check_is_one_line_of_what_the_file_holds(urls: str, capsys: Output) -> None:
    assert run(["check", urls]) == 0
    census = opened(Path(urls).read_bytes()).census()
    assert capsys.readouterr().out == (
        f"100 entries, {census.nodes} nodes, height {census.height}, {Path(urls).stat().st_size} bytes\n"
    )


def test_stat_says_what_the_header_says(urls: str, capsys: Output) -> None:
    assert run(["stat", urls]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:4] == ["key url string", "value file string", "value row bigint", "entries 100"]
    assert out[4].startswith(f"file {Path(urls).stat().st_size} bytes")
    assert {"avro.codec deflate", "gnomon.checksum crc32", "gnomon.split_runs 0"} <= set(out)


def test_stat_shows_control_characters_of_a_header_as_escapes(foreign: str, capsys: Output) -> None:
    assert run(["stat", foreign]) == 0
    assert r"by ü\x1b[2J\r\n\x9b" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["dump", "check", "stat"])
def test_damage_is_one_line_and_3(urls: str, capsys: Output, command: str) -> None:
    Path(urls).write_bytes(Path(urls).read_bytes()[:-1])
    assert run([command, urls]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{urls} at byte " in line


def test_a_missing_file_is_one_line_and_3(tmp_path: Path, capsys: Output) -> None:
    assert run(["check", str(tmp_path / "none")]) == 3
    assert run(["check", str(tmp_path)]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("argv", [[], ["look"], ["dump"], ["get", "file"], ["check", "a", "b"]])
def test_wrong_usage_is_2(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        run(argv)
    assert error.value.code == 2


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_is_not_utf_gets_json_and_escapes(foreign: str, encoding: str) -> None:
    wanted = [{"key": {"k": "é😀"}, "value": {"x": 1.5}}]
    for arguments in (["dump", foreign], ["get", foreign, "é😀"]):
        done = _process(*arguments, PYTHONIOENCODING=encoding, PYTHONUTF8="1")
        assert (done.returncode, done.stderr, _lines(done.stdout.decode("ascii"))) == (0, b"", wanted)
    done = _process("stat", foreign, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert r"by ü\x1b[2J\r\n\x9b".encode(encoding, "backslashreplace") in done.stdout.splitlines()


@pytest.mark.process
def test_a_pipe_closed_before_small_output_is_no_error(urls: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (["dump", urls], ["stat", urls], ["get", urls, "https://example.com/000003"]):
        done = _process(*arguments, stdout=writing)
        assert (done.returncode, done.stderr) == (0, b""), arguments
    os.close(writing)


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("count", [50, 5000])
def test_output_that_cannot_be_written_is_one_line_and_3(tmp_path: Path, count: int) -> None:
    path = tmp_path / "urls.btree.avro"
    path.write_bytes(write(URL_SCHEMA, url_entries(count)))
    with open("/dev/full", "wb") as full:
        done = _process("dump", str(path), stdout=full.fileno())
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"output: No space left" in done.stderr


def test_a_closed_output_is_one_line_and_3(urls: str, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["dump", urls]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_file_that_cannot_be_read_is_told_from_output_that_cannot_be_written(
    urls: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    class Failing(io.BytesIO):
        def fileno(self) -> int:
            return descriptor

        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with open(urls, "rb") as real:
        descriptor = real.fileno()
        monkeypatch.setattr("builtins.open", lambda *_: Failing())
        assert run(["check", urls]) == 3
    assert capsys.readouterr().err == f"python -m gnomon.btree: {urls}: Input/output error\n"


@pytest.mark.process
def test_it_runs_as_a_module_and_bears_a_closed_pipe(tmp_path: Path) -> None:
    path = tmp_path / "large.btree.avro"
    path.write_bytes(write(URL_SCHEMA, url_entries(5000)))
    command = [sys.executable, "-m", "gnomon.btree", "dump", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "000000" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0

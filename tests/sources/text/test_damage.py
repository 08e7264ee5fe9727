"""Every changed byte and every cut of small text files: rows of the schema, equal in scan and fetch, or a SourceError.
Text has no checksum, so a changed value cannot be noticed."""

import gzip

import pytest

from tests.profiles import positions
from tests.sources.fuzz import Case, attempt

CSV = b'id,name,x\r\n1,"a ""b""\r\nc",1.5\r\n\r\n2,,\r\n3,\xc3\xa9,-2e3\r\n'
JSON = '{"a":1,"b":[{"c":"é"},null],"d":1.5}\n\n{"a":-2,"d":"2020-01-31"}\r\n{"b":[]}\n'.encode()
SAMPLES = [
    pytest.param("csv", CSV, {}, id="csv"),
    pytest.param("csv", CSV, {"schema": "id int, name string, x double"}, id="csv, typed"),
    pytest.param("csv", CSV.replace(b'\r\nc"', b'"'), {"header": "false", "multiline": "false"}, id="csv, lines"),
    pytest.param("csv", gzip.compress(CSV), {"whole_file": "true"}, id="csv, compressed"),
    pytest.param("jsonl", JSON, {}, id="jsonl"),
    pytest.param("jsonl", JSON, {"schema": "a bigint, b array<struct<c:string>>, d string"}, id="jsonl, typed"),
    pytest.param("jsonl", gzip.compress(JSON), {"whole_file": "true"}, id="jsonl, compressed"),
]


@pytest.mark.parametrize(("format", "data", "options"), SAMPLES)
def test_a_changed_byte_gives_rows_or_an_error(format: str, data: bytes, options: dict[str, str]) -> None:
    assert attempt(Case(format, data, options)) == "rows"
    outcomes = set()
    for at in positions(range(len(data))):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(data)
            changed[at] ^= change
            outcomes.add(attempt(Case(format, bytes(changed), options)))
    assert outcomes == {"rows", "error"}


@pytest.mark.parametrize(("format", "data", "options"), SAMPLES)
def test_a_cut_gives_rows_or_an_error(format: str, data: bytes, options: dict[str, str]) -> None:
    for begin in positions(range(len(data))):
        assert attempt(Case(format, data[:begin], options)) in ("rows", "error")
        assert attempt(Case(format, data[begin:], options)) in ("rows", "error")
        assert attempt(Case(format, data[:begin] + data[begin + 1 :], options)) in ("rows", "error")


def test_a_changed_byte_of_compressed_text_is_seen() -> None:
    """gzip has a checksum: a read of the changed text ends with an error."""
    data = gzip.compress(JSON, mtime=0)
    for at in positions(range(10, len(data))):
        changed = bytearray(data)
        changed[at] ^= 1
        assert attempt(Case("jsonl", bytes(changed), {"whole_file": "true"})) == "error"

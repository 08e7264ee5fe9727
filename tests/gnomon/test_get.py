"""`gnomon get`: where its keys come from, and how rows are printed."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.__main__ import main
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def index(tmp_path: Path) -> Path:
    rows = {
        "country": ["de", "de", "fr", "fr"],
        "id": pa.array([1, 2, 1, 1]),
        "text": ['with "quotes", commas', None, "two\nlines", "z"],
        "tags": [["a"], [], None, ["b", None]],
    }
    write_source(tmp_path / "source", {"a.parquet": pa.table(rows)})
    index_source(tmp_path / "source", tmp_path / "index", ["country", "id"])
    index_source(tmp_path / "source", tmp_path / "by_id", ["id"])
    return tmp_path


def test_a_key_of_several_columns_may_be_a_list(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ('["de", 2]', '{"country": "de", "id": 2}'):
        assert main(["get", str(index / "index"), key, "--columns", "country,id"]) == 0
        assert json.loads(capsys.readouterr().out) == {"country": "de", "id": 2}
    assert main(["get", str(index / "index"), "de"]) == 2
    assert "expected a JSON object or list, found 'de'" in capsys.readouterr().err


def test_keys_come_from_a_file_and_from_standard_input(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (index / "keys").write_text('["de", 1]\n\n["fr", 1]\n')
    assert main(["get", str(index / "index"), "--keys", str(index / "keys"), "--columns", "country"]) == 0
    assert [json.loads(line)["country"] for line in capsys.readouterr().out.splitlines()] == ["de", "fr", "fr"]
    monkeypatch.setattr("sys.stdin", io.StringIO("2\r\n7\n"))
    assert main(["get", str(index / "by_id"), "-", "--columns", "id"]) == 1
    out, err = capsys.readouterr()
    assert (json.loads(out), err.startswith("gnomon: not found: 7 ")) == ({"id": 2}, True)


def test_no_key_and_no_file_are_one_line(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", str(index / "by_id")]) == 2
    assert "expected one key or more" in capsys.readouterr().err
    assert main(["get", str(index / "by_id"), "--keys", str(index / "nowhere")]) == 2
    assert capsys.readouterr().err.endswith("nowhere: no such file on this machine; expected one key a line\n")


def test_a_limit_is_of_each_key(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", str(index / "by_id"), "1", "2", "--limit", "2", "--columns", "id"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [1, 1, 2]


def test_rows_are_printed_as_csv(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", str(index / "by_id"), "1", "2", "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["country", "id", "text", "tags"]
    assert sorted(rows[1:]) == [
        ["de", "1", 'with "quotes", commas', '["a"]'],
        ["de", "2", "", "[]"],
        ["fr", "1", "two\nlines", ""],
        ["fr", "1", "z", '["b", null]'],
    ]


def test_rows_are_printed_as_an_arrow_stream(index: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["get", str(index / "by_id"), "2", "9", "1", "--format", "arrow", "--columns", "id,tags"]) == 1
    out, err = capfdbinary.readouterr()
    table = pa.ipc.open_stream(out).read_all()
    assert table.column_names == ["key_number", "id", "tags"]
    assert table["key_number"].to_pylist() == [0, 2, 2, 2]
    assert table["id"].to_pylist() == [2, 1, 1, 1]
    assert err.startswith(b"gnomon: not found: 9 ")


def test_ranges_are_printed_in_key_order(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str, name: str = "index", code: int = 0) -> list[list[object]]:
        assert main(["get", str(index / name), *words]) == code
        return [[row["country"], row["id"]] for row in map(json.loads, capsys.readouterr().out.splitlines())]

    assert printed("--prefix", "d") == printed("--prefix", '["de"]') == [["de", 1], ["de", 2]]
    assert printed("--from", '["de", 2]', "--to", '["fr", 1]') == [["de", 2]]
    assert printed("--from", '["de", 2]', "--to", '["fr", 1]', "--inclusive", "--reverse", "--limit", "2") == [
        ["fr", 1],
        ["fr", 1],
    ]
    assert printed("--from", "1", "--to", "2", name="by_id") == [["de", 1], ["fr", 1], ["fr", 1]]
    assert printed("--prefix", "x", code=1) == []
    assert main(["get", str(index / "index"), "--prefix", "de", "--count"]) == 0
    assert capsys.readouterr().out == "2\n"
    assert main(["get", str(index / "index"), "--prefix", "de", "--format", "csv", "--columns", "id"]) == 0
    assert capsys.readouterr().out == "id\n1\n2\n"


def test_a_page_ends_with_the_cursor_of_the_next_one(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, words = [], ["get", str(index / "by_id"), "--from", "0", "--limit", "3", "--columns", "id"]
    code, cursor = main(words), ""
    while code == 0:
        out, err = capsys.readouterr()
        found += [json.loads(line)["id"] for line in out.splitlines()]
        if "--after" not in err:
            break
        cursor = err.split("--after ")[1].strip()
        code = main([*words, "--after", cursor])
    assert found == [1, 1, 1, 2]


def test_a_range_and_keys_are_refused_together(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", str(index / "by_id"), "1", "--prefix", "1"]) == 2
    assert "expected keys, or a range" in capsys.readouterr().err
    assert main(["get", str(index / "by_id"), "--prefix", "1", "--from", "1"]) == 2
    assert "a prefix, or a lowest and a highest key, not both" in capsys.readouterr().err

"""gnomon import-dione."""

import json
from pathlib import Path

import pytest

from gnomon.__main__ import main
from tests.jobs.dione.dione_files import dione_index
from tests.jobs.dione.test_import import ROWS, file_of, write_source


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(list(map(str, words)))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_an_import_says_what_it_took_over_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source", "parquet")
    dione = dione_index(source, tmp_path / "dione", ["key"], [], "parquet")
    (source / "dt=2026-01-02" / "part-3").write_bytes(file_of("parquet", 9))
    words = "import-dione", dione, tmp_path / "index", "--source", source
    code, out, err = run(capsys, *words)
    assert code == 0
    assert out.startswith(f"snapshot 1: 3 files and {3 * ROWS} rows taken over in ")
    assert out.endswith(f"1 file left out; gnomon build {tmp_path / 'index'} indexes them\n")
    assert "gnomon: left out dt=2026-01-02/part-3: " in err
    code, out, _ = run(capsys, *words, "--json")
    result = json.loads(out)
    assert (result["committed"], [one["path"] for one in result["left_out"]]) == (False, ["dt=2026-01-02/part-3"])


def test_a_folder_without_a_source_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source", "parquet")
    dione = dione_index(source, tmp_path / "dione", ["key"], [], "parquet")
    code, out, err = run(capsys, "import-dione", dione, tmp_path / "index")
    assert (code, out) == (2, "")
    assert err == f"gnomon: {dione}: a folder of Dione's does not say which data it is of; name the source (--source)\n"


def test_a_moved_source_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source", "parquet")
    dione = dione_index(source, tmp_path / "dione", ["key"], [], "parquet")
    now = source.rename(tmp_path / "now")
    words = "import-dione", dione, tmp_path / "index", "--source", now
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--moved OLD=NEW" in err
    code, out, _ = run(capsys, *words, "--moved", f"{source}={now}")
    assert code == 0
    assert f"4 files and {4 * ROWS:,} rows taken over" in out


@pytest.mark.parametrize("text", ["/old", "/old=", "=/new", "/old=/new=/newer"])
def test_a_move_that_is_not_two_folders_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    code, _, err = run(capsys, "import-dione", tmp_path, tmp_path / "index", "--source", tmp_path, "--moved", text)
    assert (code, err) == (2, f"gnomon: --moved: expected OLD=NEW with one equals sign, found {text!r}\n")


def test_an_export_to_a_folder_prints_how_to_declare_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source", "parquet")
    assert run(capsys, "build", source, tmp_path / "index", "--key", "key", "--engine", "local")[0] == 0
    words = (
        "export-dione",
        tmp_path / "index",
        tmp_path / "dione",
        "--data-table",
        "db.data",
        "--table",
        "db.data_index",
    )
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote 2 partitions in 2 files, removed 0; {4 * ROWS:,} rows in 2 partitions\n")
    assert "CREATE EXTERNAL TABLE IF NOT EXISTS db.data_index (" in out
    assert out.endswith("MSCK REPAIR TABLE db.data_index SYNC PARTITIONS;\n")
    code, out, _ = run(capsys, *words, "--json")
    assert json.loads(out)["written"] == []


def test_an_export_that_names_a_folder_twice_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "export-dione", tmp_path / "index", tmp_path / "dione", "--location", tmp_path)
    assert (code, err) == (2, f"gnomon: --location: {tmp_path / 'dione'} is one already; name a table\n")

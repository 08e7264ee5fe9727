"""`gnomon.toml`: every command takes an index by name, and refuses a wrong file or name in one line."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.__main__ import main
from gnomon.commands import config
from gnomon.service.settings import load_settings
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder below one with `gnomon.toml`, which names an index by a path of its own folder."""
    write_source(tmp_path / "source", {"a.parquet": pa.table({"id": [1, 2], "text": ["one", "two"]})})
    index_source(tmp_path / "source", tmp_path / "indexes" / "first", ["id"])
    (tmp_path / "gnomon.toml").write_text('[indexes]\ncrawl = "indexes/first"\n\n[indexes.far]\npath = "s3://b/i"\n')
    folder = tmp_path / "deep" / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in config.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    return tmp_path


def test_every_command_that_takes_an_index_takes_its_name(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "keys.csv").write_text("id\n2\n")
    for words, told in [
        (["get", "crawl", "2"], '{"id": 2, "text": "two"}'),
        (["inspect", "crawl"], "snapshot   1"),
        (["history", "crawl"], "build"),
        (["verify", "crawl"], "1"),
        (["build", "crawl"], "nothing new"),
        (["build", str(work / "source"), "crawl", "--key", "id", "--engine", "local"], "nothing new"),
        (["load", "crawl", str(work / "keys.csv"), str(work / "out"), "--engine", "local"], "1 row"),
        (["compact", "crawl"], ""),
        (["vacuum", "crawl", "--dry-run"], ""),
        (["rebucket", "crawl", "--buckets", "2"], ""),
    ]:
        assert main(words) == 0, (words, capsys.readouterr().err)
        assert told in capsys.readouterr().out
    assert not (work / "deep" / "work" / "crawl").exists()


def test_a_path_that_exists_or_has_a_slash_wins_over_a_name(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "./crawl", "2"]) == 3
    assert "work/crawl: not an index" in capsys.readouterr().err
    index_source(work / "source", work / "deep" / "work" / "crawl", ["text"])
    assert main(["get", "crawl", "two"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 2, "text": "two"}


def test_a_file_of_another_user_is_left_aside_unless_it_is_named(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, user = work / "gnomon.toml", os.getuid()
    if user == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert main(["get", "crawl", "2"]) == 3
    told = capsys.readouterr().err
    assert told.startswith(f"gnomon: {file} is of another user, and left aside; name it by GNOMON_CONFIG to use it\n")
    assert "crawl: not an index" in told
    monkeypatch.setenv("GNOMON_CONFIG", str(file))
    monkeypatch.chdir(work)
    assert main(["get", "crawl", "2"]) == 0


def test_an_unknown_name_is_told_with_the_known_ones_and_a_new_folder_is_none(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "craw", "2"]) == 2
    file = work / "gnomon.toml"
    assert capsys.readouterr().err == (
        f"gnomon: craw: no folder and no index of this name; expected a path, or a name of {file}, line 1: indexes: "
        "crawl, far\n"
    )
    assert main(["build", str(work / "source"), "made", "--key", "text", "--engine", "local"]) == 0
    assert (work / "deep" / "work" / "made" / "_shadow").is_dir()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mastre = 'local'\n", ", line 1: mastre: there is no such setting; did you mean master?"),
        ("\nmaster = 7\n", ", line 2: master: expected a text that is not empty, found 7"),
        ("[indexes]\ncrawl = 7\n", ", line 2: indexes.crawl: expected a path or URL, or a table with a path"),
        ("[indexes.a]\npath = 'x'\nkey = 'id'\n", ", line 3: indexes.a.key: there is no such key"),
        ("master\n", ", line 1, column 7: expected a setting like port = 8000"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(
    work: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    (work / "gnomon.toml").write_text(text)
    assert main(["get", "crawl", "2"]) == 2
    assert capsys.readouterr().err.startswith(f"gnomon: {work / 'gnomon.toml'}{told}")


def test_the_nearest_file_is_read_then_the_users_own_and_a_named_one_before_both(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = work / "own" / "gnomon" / "gnomon.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[indexes]\nowned = "../../indexes/first"\n')
    assert main(["get", "owned", "1"]) == 2
    (work / "gnomon.toml").unlink()
    assert main(["get", "owned", "1"]) == 0
    named = work / "named.toml"
    named.write_text(f'[indexes]\nother = "{work / "indexes" / "first"}"\n')
    monkeypatch.setenv("GNOMON_CONFIG", str(named))
    assert main(["get", "owned", "1"]) == 2
    assert main(["get", "other", "1"]) == 0
    monkeypatch.setenv("GNOMON_CONFIG", str(work / "gone.toml"))
    capsys.readouterr()
    assert main(["get", "other", "1"]) == 2
    assert capsys.readouterr().err.startswith(f"gnomon: GNOMON_CONFIG: {work / 'gone.toml'}: No such file")
    monkeypatch.delenv("GNOMON_CONFIG")
    monkeypatch.setenv("GNOMON_INDEXES", f"by_variable={work / 'indexes' / 'first'}")
    assert main(["get", "by_variable", "1"]) == 0


def test_the_defaults_of_commands_come_from_the_file_of_the_service(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (config.cache(), config.master()) == ({}, None)
    (work / "gnomon.toml").write_text('cache_folder = "c"\ncache_folder_bytes = 9\nmaster = "local[2]"\nport = 1\n')
    assert config.cache() == {"cache_folder": str(work / "c"), "cache_folder_bytes": 9}
    assert config.master() == "local[2]"
    monkeypatch.setenv("GNOMON_MASTER", "local[3]")
    assert config.master() == "local[3]"
    served = load_settings({"indexes": ["/i"]}, environment={}, found=config.found_file())
    assert (served.port, served.cache_folder, served.where("port")) == (
        1,
        str(work / "c"),
        f"{work / 'gnomon.toml'}, line 4: port",
    )


def test_a_served_index_keeps_the_name_and_the_hidden_columns_of_the_file(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "gnomon.toml").write_text('[indexes.crawl]\npath = "indexes/first"\nhidden_columns = ["text"]\n')
    for words in (["serve", "crawl", "--check"], ["serve", "--check"]):
        assert main([*words, "--port", "0"]) == 0
        assert capsys.readouterr().out.startswith(f"crawl: {work / 'indexes/first'}: snapshot 1, 2 rows")


def test_the_shell_completes_the_names_of_the_file(work: Path) -> None:
    assert config.completed_names("") == ["crawl", "far"]
    assert config.completed_names("c") == ["crawl"]
    (work / "gnomon.toml").write_text("no TOML")
    assert config.completed_names("") == []

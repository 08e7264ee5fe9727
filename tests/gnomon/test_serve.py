"""gnomon serve: what it checks before it serves, and how it refuses."""

import socket
from pathlib import Path

import pytest

from gnomon.__main__ import main
from tests.service.lake import make_crawl


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_crawl(tmp_path_factory.mktemp("crawl")).indexes[0]


def test_check_opens_all_that_serving_needs_and_says_a_line_for_each_index(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text(f'[indexes.a]\npath = "{index}"\n[indexes.b]\npath = "{index}"\n')
    assert main(["serve", "--check", "--config", str(file), "--set", "threads=2"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [f"{name}: {index}: snapshot 1, 18 rows, key url" for name in "ab"]
    assert said.err == ""


def test_check_says_which_variable_replaces_a_setting_of_the_file(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('host = "127.0.0.1"\n')
    monkeypatch.setenv("GNOMON_HOST", "0.0.0.0")
    assert main(["serve", "--check", index, "--config", str(file)]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first == f"GNOMON_HOST='0.0.0.0' replaces {file}, line 1: host = '127.0.0.1'"


def test_check_says_which_index_cannot_be_opened(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--check", index, f"other={tmp_path}"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{tmp_path}: not an index" in said.err


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "192.0.2.1"])
def test_check_says_that_nothing_can_listen_at_a_host_that_is_not_here(
    index: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--check", index, "--host", host]) == 3
    assert capsys.readouterr().err.startswith(f"gnomon: cannot listen at {host}, port 8000 (--host, setting port): ")


def test_check_runs_beside_the_service_that_listens_there(index: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--check", index, "--port", str(taken.getsockname()[1])]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port", "http"], "--port: expected a whole number from 0 to 65535, found 'http'"),
        (["--workers", "0"], "--workers: expected a whole number from 1 to 256, found 0"),
        (["--set", "prot=1"], "--set: there is no setting 'prot'; did you mean port?"),
        (["--config", "/no/such.toml"], "--config: /no/such.toml: No such file"),
    ],
)
def test_a_wrong_setting_is_one_line_and_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "/nowhere", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"gnomon: {says}")
    assert said.err.count("\n") == 1


def test_without_an_index_it_says_where_to_name_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GNOMON_INDEXES", raising=False)
    monkeypatch.delenv("GNOMON_CONFIG", raising=False)
    assert main(["serve"]) == 2
    assert "no index is given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", 'columns={"ex": ["url"]}'], "--set columns: there is no index ex; there are a"),
        (["--set", 'columns={"a": []}'], "--set columns: index a: expected at least one column, found none"),
        (["--set", 'hidden_columns={"a": ["rwa"]}'], "--set hidden_columns: index a has no column rwa; it has "),
        (["--set", "cors_origins=*"], "--set cors_origins: expected origins as browsers send them, "),
        (["--set", "trusted_proxies=x"], "--set trusted_proxies: expected addresses or networks like 10.0.0.0/8, "),
        (["--set", "tokens=ann"], "--set tokens, entry 1: expected NAME sha256:HEX "),
        (["--tokens-file", "/no/tokens"], "--tokens-file: /no/tokens: the tokens cannot be read "),
        (["--tls-key", "/no/key"], "--tls-key: expected tls_certificate beside tls_key; TLS needs both"),
        (["--tls-key", "/", "--tls-certificate", "/no/pem"], "--tls-certificate: /no/pem: No such file "),
    ],
)
def test_what_only_opening_finds_wrong_names_where_it_was_given_too(
    index: str, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--check", f"a={index}", *words]) == 2
    assert capsys.readouterr().err.startswith(f"gnomon: {says}")


def test_the_index_that_a_name_is_wrong_of_is_named_by_flag_variable_or_file(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text(f'[indexes.a]\npath = "{index}"\n[indexes.b]\npath = "{index}"\ncolumns = ["ulr"]\n')
    assert main(["serve", "--check", "--config", str(file)]) == 2
    assert main(["serve", "--check", "a=/x", "a=/y"]) == 2
    monkeypatch.setenv("GNOMON_COLUMNS", '{"ex": ["url"]}')
    assert main(["serve", "--check", f"a={index}"]) == 2
    of_file, of_flag, of_variable = capsys.readouterr().err.splitlines()
    assert of_file.startswith(f"gnomon: {file}, line 5: indexes.b.columns: index b has no column ulr; it has url")
    assert of_flag.startswith("gnomon: INDEX: two are called a; ")
    assert of_variable == "gnomon: GNOMON_COLUMNS: there is no index ex; there are a"

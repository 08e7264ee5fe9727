"""gnomon token: a secret that is printed once, and the line that the service keeps."""

import datetime as dt
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gnomon.__main__ import main
from gnomon.commands.token import append
from gnomon.service.access.tokens import Tokens
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def accepted(file: Path, secret: str) -> str | None:
    found = Tokens(Settings(indexes=["x"], tokens_file=str(file))).find(secret)
    return found and found.line


def test_the_token_and_its_line_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    today = dt.datetime.now(dt.UTC).date()
    code, [secret, line], err = run(capsys, "token", "ann", "--index", "b", "--index", "a", "--days", "30")
    assert (code, err) == (0, "")
    (tmp_path / "tokens").write_text(f"{line}\n")
    assert accepted(tmp_path / "tokens", secret) == line
    assert " indexes=a,b expires=" in line
    last_day = dt.date.fromisoformat(line.rpartition("=")[2])
    assert dt.timedelta(30) <= last_day - today <= dt.timedelta(31)  # a new day may have begun


def test_a_file_gets_the_line_and_only_the_token_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    _, [first], _ = run(capsys, "token", "ann", "--file", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    with file.open("a") as out:
        out.write("# a comment, and no end of the line")
    code, [second], err = run(capsys, "token", "bob", "--file", file)
    assert (code, err) == (0, "")
    assert accepted(file, first)
    assert accepted(file, second)
    assert "# a comment, and no end of the line\n" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not {first, second} & set(file.read_text().split())
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


def test_a_link_to_the_file_stays_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real/tokens")
    _, [secret], _ = run(capsys, "token", "ann", "--file", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert accepted(tmp_path / "real/tokens", secret)


def test_a_file_of_something_else_is_left_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("to do: sleep\n")
    code, out, err = run(capsys, "token", "ann", "--file", file)
    assert (code, out) == (2, [])
    assert err.startswith(f"gnomon: {file}: line 1: the second word: expected sha256:")
    assert file.read_text() == "to do: sleep\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a b"], "token name 'a b': expected up to 64 letters"),
        (["ann", "--index", "a/b"], "token for index 'a/b': expected the name of an index"),
        (["ann", "--days", "0"], "--days 0: expected 1 to 36500"),
        (["ann", "--file", "/no/such/folder/tokens"], "/no/such/folder: no such folder"),
    ],
)
def test_what_cannot_be_made_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    code, out, err = run(capsys, "token", *arguments)
    assert (code, out) == (2, [])
    assert says in err
    assert err.count("\n") == 1


def test_tokens_that_are_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = [new_token(f"t{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: append(file, one[1]), made))
    assert all(accepted(file, secret) for secret, _ in made)
